"""Label raw data with the model in this folder. Needs Python 3.11, onnxruntime and numpy, nothing else.

    python predict.py FILE        or        some program | python predict.py

Every line is a text or, for a model of numbers, a series: its values, or a JSON list of its steps. Each gives a line
of JSON: the likeliest label, and the probability of each. In a program of your own: `predict(["a text", "another"])`.
"""

import json
import re
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

HERE = Path(__file__).parent
MODEL = json.loads((HERE / "model.json").read_text(encoding="utf-8"))
SESSION = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])
IDS = {word: number for number, word in enumerate((MODEL["vocabulary"] or {"words": ()})["words"])}


def read(line: str) -> Any:
    """Return the ids of a text's tokens, (steps,), or the numbers of a series, (steps, channels)."""
    if MODEL["vocabulary"] is None:
        separator = next((mark for mark in "\t," if mark in line), None)
        fields = json.loads(line) if line.lstrip().startswith("[") else line.split(separator)
        while fields and str(fields[-1]).strip().lower() in ("", "?", "nan"):
            fields.pop()
        values = np.array(fields, np.float32).reshape(-1, MODEL["channels"])[: MODEL["max_length"]]
        if not len(values) or not np.isfinite(values).all():
            raise SystemExit(f"expected the values of a series, got {line!r}")
        return values
    for old, new in MODEL["tokeniser"]["replace"].items():
        line = line.replace(old, new)
    tokens = [match[0] for match in re.finditer(MODEL["tokeniser"]["pattern"], line)][: MODEL["max_length"]]
    unknown = MODEL["vocabulary"]["unknown"]
    lower = MODEL["tokeniser"]["lowercase"]
    return np.array([IDS.get(token.lower() if lower else token, IDS[unknown]) for token in tokens or [unknown]])


def predict(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return label and probabilities of every line."""
    rows = [read(line) for line in lines]
    lengths = np.array([len(row) for row in rows])
    inputs = np.zeros((len(rows), lengths.max(), *rows[0].shape[1:]), rows[0].dtype)
    for place, row in zip(inputs, rows, strict=True):
        place[: len(row)] = row
    inputs = inputs.swapaxes(0, 1) if MODEL["layout"] == "steps first" else inputs
    (logits,) = SESSION.run(["logits"], {"inputs": inputs, "lengths": lengths})
    weights = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    labelled = [
        dict(zip(MODEL["labels"], row.tolist(), strict=True)) for row in weights / weights.sum(1, keepdims=True)
    ]
    return [{"label": max(row, key=row.__getitem__), "probabilities": row} for row in labelled]


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8-sig")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    with open(sys.argv[1], encoding="utf-8-sig") if len(sys.argv) > 1 else sys.stdin as source:
        while batch := [line.removesuffix("\n") for line in islice(source, 32)]:
            for answer in predict(batch):
                print(json.dumps(answer, ensure_ascii=False), flush=True)
