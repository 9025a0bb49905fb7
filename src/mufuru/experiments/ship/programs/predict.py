"""Answer raw data by the model in this folder; needs Python 3.11, onnxruntime and numpy, nothing else.

`python predict.py FILE`, or lines from standard input: each is a text or, for a model of numbers, a series, its values
or a JSON list of its steps. Each gives a line of JSON. In a program of your own: `answer("a line")`.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

MODEL = json.loads((Path(__file__).parent / "model.json").read_text(encoding="utf-8"))
SESSION = onnxruntime.InferenceSession(Path(__file__).parent / "model.onnx", providers=["CPUExecutionProvider"])


IDS_of_texts = {word: number for number, word in enumerate(MODEL["vocabulary"]["words"])}


def cut_of_texts(line: str) -> list[str]:
    """Return the tokens of a text."""
    for old, new in MODEL["tokeniser"]["replace"].items():
        line = line.replace(old, new)
    return [match[0] for match in re.finditer(MODEL["tokeniser"]["pattern"], line)][: MODEL["max_length"]]


def read_of_texts(line: str) -> Any:
    """Return the ids of a text's tokens."""
    tokens = [token.lower() if MODEL["tokeniser"]["lowercase"] else token for token in cut_of_texts(line)]
    unknown = MODEL["vocabulary"]["unknown"]
    return np.array([IDS_of_texts.get(token, IDS_of_texts[unknown]) for token in tokens or [unknown]])


def read_of_numbers(line: str) -> Any:
    """Return the numbers of a series, (steps, channels)."""
    separator = next((mark for mark in "\t," if mark in line), None)
    fields = json.loads(line) if line.lstrip().startswith("[") else line.split(separator)
    while fields and str(fields[-1]).strip().lower() in ("", "?", "nan"):
        fields.pop()
    values = np.array(fields, np.float32).reshape(len(fields), -1 if fields else 1)
    if not fields or values.shape[1] != MODEL["channels"] or not np.isfinite(values).all():
        raise ValueError(f"expected steps of {MODEL['channels']} finite numbers, got {line!r}")
    if len(fields) - 1 == MODEL["length"]:
        raise ValueError(f"got {len(fields)} values, one more than in training: leave the label out")
    return values[: MODEL["max_length"]]


def run(inputs: Any) -> Any:
    """Return the graph's answer to one sequence, with as many columns as it has outputs."""
    batch = np.expand_dims(inputs, MODEL["inputs"]["inputs"]["axes"].index("batch"))
    given = {"inputs": batch, "lengths": np.array([len(inputs)])}
    (output,) = SESSION.run(None, {name: given[name] for name in MODEL["inputs"]})
    return output.reshape(-1, output.shape[-1]).astype(np.float64)


def shares(logits: Any) -> Any:
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def answer_of_classifier(line: str) -> dict[str, Any]:
    """Return the likeliest label, and the probability of each."""
    (row,) = shares(run(read_of_texts(line))).tolist()
    label = MODEL["labels"][row.index(max(row))]
    return {"label": label, "probabilities": dict(zip(MODEL["labels"], row, strict=True))}


def answer_of_regressor(line: str) -> dict[str, Any]:
    """Return the expected number, and its quantiles where the model has learnt some."""
    ((value, *rest),) = run(read_of_texts(line)).tolist()
    return {"value": value, "quantiles": dict(zip(MODEL["quantiles"], sorted(rest), strict=True))}


def answer_of_forecaster(line: str) -> dict[str, Any]:
    """Return the next values of a series, the first of each step, and their quantiles."""
    series = read_of_numbers(line)[-MODEL["context"] :]
    if len(series) < MODEL["context"]:
        raise ValueError(f"expected at least {MODEL['context']} values to forecast from, got {len(series)}")
    quantiles = dict(zip(MODEL["quantiles"], run(series).T.tolist(), strict=True))
    return {"forecast": quantiles.pop("0.5"), "quantiles": quantiles}


def forms_of_tagger(word: str) -> list[str]:
    """Return a word and what an unknown one is read as: its kind and ending, its kind alone, or nothing known of it."""
    kind = "digit" if any(map(str.isdigit, word)) else "lower"
    if word[:1].isupper():
        kind = "upper" if word.isupper() and len(word) > 1 else "title"
    kind += "-hyphen" if "-" in word.strip("-") else ""
    ending = f"-{word[-2:].lower()}" if len(word) > 3 and word[-2:].isalpha() else ""
    return [
        word.lower() if MODEL["tokeniser"]["lowercase"] else word,
        *(f"<unk-{kind}{ending}>", f"<unk-{kind}>", MODEL["vocabulary"]["unknown"]),
    ]


def answer_of_tagger(line: str) -> dict[str, Any]:
    """Return the tokens of a text or of a JSON list, the likeliest label of each, and its probability."""
    tokens = json.loads(line) if line.lstrip().startswith('["') else cut_of_texts(line)
    ids = [next(IDS_of_texts[form] for form in forms_of_tagger(token) if form in IDS_of_texts) for token in tokens]
    rows = shares(run(np.array(ids or [0])))[: len(tokens)]
    labels = [MODEL["labels"][label] for label in rows.argmax(1)]
    return {"tokens": tokens, "labels": labels, "probabilities": rows.max(1).tolist()}


if __name__ == "__main__":
    number, name = 0, "".join(sys.argv[1:2])
    try:
        if MODEL.get("tokeniser") and name.endswith((".csv", ".tsv", ".json", ".jsonl", ".conll", ".conllu", ".gz")):
            raise ValueError(f"expected a text in each line, got the table {name}: `mufuru predict` reads its columns")
        with open(name or 0, "rb") as source:
            for line in source:
                number += 1
                result = answer_of_classifier(line.decode("utf-8-sig").rstrip("\r\n"))
                print(json.dumps(result, allow_nan=False), flush=True)
    except (OSError, RecursionError, TypeError, ValueError) as error:
        print(f"predict.py: {f'line {number}: ' if number else ''}{error}", file=sys.stderr)
        sys.exit(2)
