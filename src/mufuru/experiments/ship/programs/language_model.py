"""Score a text with the language model in this folder. Needs Python 3.11, onnxruntime and numpy, and where the tokens
are parts of words the package tokenizers; nothing else.

    python predict.py FILE        or        some program | python predict.py

Every token gives a line: the token and, after a tab, the natural logarithm of the probability that the model gave it.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

HERE = Path(__file__).parent
MODEL = json.loads((HERE / "model.json").read_text(encoding="utf-8"))
SESSION = onnxruntime.InferenceSession(HERE / "model.onnx", providers=["CPUExecutionProvider"])
IDS = {word: number for number, word in enumerate(MODEL["vocabulary"]["words"])}
WINDOW = 512


def read(lines: Iterable[str]) -> list[tuple[str, int]]:
    """Return the tokens of a text, and their ids."""
    if MODEL["tokeniser"] is None:
        from tokenizers import Tokenizer

        pieces = Tokenizer.from_file(str(HERE / "tokenizer.json"))
        ids = [number for line in lines for number in pieces.encode(line).ids]
        return [(pieces.decode([number]), number) for number in ids]
    tokens, end = [], MODEL["tokeniser"]["line_end"]
    for line in lines:
        for old, new in MODEL["tokeniser"]["replace"].items():
            line = line.replace(old, new)
        tokens += [match[0] for match in re.finditer(MODEL["tokeniser"]["pattern"], line)] + ([end] if end else [])
    unknown = IDS[MODEL["vocabulary"]["unknown"]]
    return [(token, IDS.get(token, unknown)) for token in tokens]


def score(ids: list[int]) -> Iterator[float]:
    """Yield the logarithm of every token's probability, given all tokens before it."""
    sizes = {name: about["axes"] for name, about in MODEL["inputs"].items() if name != "tokens"}
    state: dict[str, Any] = {
        name: np.zeros([1 if size == "batch" else size for size in axes], np.float32) for name, axes in sizes.items()
    }
    before = [MODEL["first"], *ids]
    for start in range(0, len(ids), WINDOW):
        targets = np.array(ids[start : start + WINDOW])
        tokens = np.array(before[start : start + len(targets)])
        tokens = tokens[:, None] if MODEL["layout"] == "steps first" else tokens[None]
        logits, *states = SESSION.run(["logits", *(f"{name}_n" for name in state)], {"tokens": tokens, **state})
        state = dict(zip(state, states, strict=True))
        logits = logits.reshape(len(targets), -1).astype(np.float64)
        logits -= logits.max(1, keepdims=True)
        yield from (logits[np.arange(len(targets)), targets] - np.log(np.exp(logits).sum(1))).tolist()


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8-sig")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    with open(sys.argv[1], encoding="utf-8-sig") if len(sys.argv) > 1 else sys.stdin as source:
        read_tokens = read(source)
    print("token\tlog_probability")
    for (token, _), log in zip(read_tokens, score([number for _, number in read_tokens]), strict=True):
        print(f"{json.dumps(token, ensure_ascii=False)[1:-1]}\t{log:.6f}")
