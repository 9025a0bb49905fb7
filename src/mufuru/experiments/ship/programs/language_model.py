"""Score a text with the language model in this folder. Needs Python 3.11, onnxruntime and numpy, and where the tokens
are parts of words the package tokenizers; nothing else.

`python predict.py FILE`, or a text from standard input. Every token gives a line: the token and, after a tab, the
natural logarithm of the probability that the model gave it.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

HERE, WINDOW = Path(__file__).parent, 512
MODEL = json.loads((HERE / "model.json").read_text(encoding="utf-8"))
SESSION = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])


def read_of_pieces(lines: Iterable[str]) -> list[tuple[str, int]]:
    """Return the tokens of a text, and their ids."""
    from tokenizers import Tokenizer

    pieces = Tokenizer.from_file(str(HERE / "tokenizer.json"))
    ids = [number for line in lines for number in pieces.encode(line).ids]
    return [(pieces.decode([number]), number) for number in ids]


def read_of_texts(lines: Iterable[str]) -> list[tuple[str, int]]:
    """Return the tokens of a text, and their ids."""
    tokens, rules, end = [], MODEL["tokeniser"], MODEL["tokeniser"]["line_end"]
    for line in lines:
        for old, new in rules["replace"].items():
            line = line.replace(old, new)
        tokens += [match[0] for match in re.finditer(rules["pattern"], line)] + ([end] if end else [])
    ids = {word: number for number, word in enumerate(MODEL["vocabulary"]["words"])}
    unknown = ids[MODEL["vocabulary"]["unknown"]]
    return [(token, ids.get(token, unknown)) for token in tokens]


def score(ids: list[int]) -> Iterator[float]:
    """Yield the logarithm of every token's probability, given all tokens before it."""
    sizes = {name: about["axes"] for name, about in MODEL["inputs"].items()}
    batch, before = sizes.pop("tokens").index("batch"), [MODEL["first"], *ids]
    state: dict[str, Any] = {
        name: np.zeros([1 if size == "batch" else size for size in axes], np.float32) for name, axes in sizes.items()
    }
    for start in range(0, len(ids), WINDOW):
        targets = np.array(ids[start : start + WINDOW])
        tokens = np.expand_dims(np.array(before[start : start + len(targets)]), batch)
        output, *states = SESSION.run(None, {"tokens": tokens, **state})
        state = dict(zip(state, states, strict=True))
        logits = output.reshape(len(targets), -1).astype(np.float64)
        logits -= logits.max(1, keepdims=True)
        yield from (logits[np.arange(len(targets)), targets] - np.log(np.exp(logits).sum(1))).tolist()


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    try:
        with open(sys.argv[1] if sys.argv[1:] else 0, encoding="utf-8-sig") as source:
            tokens = read_of_texts(source)
    except (OSError, ValueError) as error:
        print(f"predict.py: {error}", file=sys.stderr)
        sys.exit(2)
    print("token\tlog_probability")
    for (token, _), log in zip(tokens, score([number for _, number in tokens]), strict=True):
        print(f"{json.dumps(token, ensure_ascii=False)[1:-1]}\t{log:.6f}")
