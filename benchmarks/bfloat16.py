"""bfloat16 beside float32: the time, where the processor has AVX512_BF16, and what models learn, on any machine.

    python benchmarks/bfloat16.py                    writes benchmarks/results/bfloat16.json
    python benchmarks/bfloat16.py --only time        seconds: time and bits alone, printed
    python benchmarks/bfloat16.py --only quality --seeds 1

Models are trained under `torch.autocast("cpu", torch.bfloat16)`, and the same in float32. Where the instruction is
missing its arithmetic is lowered, which takes longer and learns the same.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from record import machine
from shapes import MODES, SHAPES, Mode, Shape
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

import mufuru
from mufuru.experiments.tasks.logic.config import PRESETS
from mufuru.experiments.tasks.logic.formulae import sample_splits
from mufuru.experiments.tasks.logic.model import FormulaReader, encode
from mufuru.kernels import half

OUTPUT = Path(__file__).parent / "results" / "bfloat16.json"
TIMED = ("language model", "large")
MISSING = "not measured: no AVX512_BF16 here"
PRECISIONS = {"float32": False, "bfloat16": True}
THREADS = (1, 2)
WINDOW, BATCH, UPDATES = 20, 8, 600
"""Steps and sequences of the language model's updates, and the number of updates."""


@contextmanager
def wanting(choice: str) -> Iterator[None]:
    """Let MUFURU_BFLOAT16 be this."""
    before = os.environ.get("MUFURU_BFLOAT16")
    os.environ["MUFURU_BFLOAT16"] = choice
    try:
        yield
    finally:
        del os.environ["MUFURU_BFLOAT16"]
        if before is not None:
            os.environ["MUFURU_BFLOAT16"] = before


def call(layer: mufuru.MuFuRU, x: Tensor, mode: Mode, rough: bool) -> None:
    """One training step, or one inference."""
    with torch.autocast("cpu", torch.bfloat16, enabled=rough):
        if mode == "inference":
            with torch.inference_mode():
                layer(x)
            return
        layer.zero_grad()
        output, _ = layer(x)
    output.float().sum().backward()


def ratio(shape: Shape, mode: Mode, rounds: int = 15) -> float:
    """Ratio of the medians of bfloat16 and float32, which take turns."""
    layer = mufuru.MuFuRU(shape.input_size, shape.hidden_size, kernel="native")
    x = torch.randn(shape.steps, shape.batch, shape.input_size, requires_grad=mode == "training")
    samples: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds + 2):
        for rough in (True, False):
            start = time.perf_counter()
            call(layer, x, mode, rough)
            if number >= 2:
                samples[rough].append(time.perf_counter() - start)
    return statistics.median(samples[True]) / statistics.median(samples[False])


def same_bits() -> bool:
    """Whether the instruction and the lowered code give the same numbers, to the last bit."""
    layer, x = mufuru.MuFuRU(67, 131), torch.randn(40, 9, 67)
    way, found = half.way, []
    for lowered in (False, True):
        half.way = (lambda: half.LOWERED) if lowered else way
        with torch.autocast("cpu", torch.bfloat16):
            _, h_n = layer(x, torch.zeros(1, 9, 131))
        found.append([h_n.detach(), *torch.autograd.grad(h_n.sum(), list(layer.parameters()))])
    half.way = way
    return all(map(torch.equal, *found))


def times() -> dict[str, Any]:
    """Ratios to float32 by shape, mode and threads."""
    there = half.way() == half.INSTRUCTED
    found: dict[str, Any] = {"instruction and lowered code give the same bits": same_bits() if there else MISSING}
    for shape in (shape for shape in SHAPES if shape.name in TIMED):
        for mode in MODES:
            for threads in THREADS:
                torch.set_num_threads(threads)
                name = f"{shape}, {mode}, {threads} thread{'s' if threads > 1 else ''}"
                found[name] = round(ratio(shape, mode), 3) if there else MISSING
                print(f"{name}: {found[name]}", flush=True)
    return found


def fit(model: nn.Module, loss: Callable[[Any], Tensor], batches: Iterator[Any], rate: float, rough: bool) -> None:
    """One update for every batch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for batch in batches:
        with torch.autocast("cpu", torch.bfloat16, enabled=rough):
            value = loss(batch)
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def logic(seed: int, rough: bool) -> float:
    """Accuracy on longer formulae than those of training: the preset `short`."""
    config = PRESETS["short"]
    splits = {name: encode(formulae) for name, formulae in sample_splits(config.splits, seed).items()}
    torch.manual_seed(seed)
    model = FormulaReader(config.cell)
    train, test, size = splits["train"], splits["test"], config.training.batch_size
    batches = (
        batch
        for _ in range(config.training.epochs)
        for batch in train.batches(torch.randperm(config.train_formulae), size)
    )

    def loss(batch: Any) -> Tensor:
        return binary_cross_entropy_with_logits(model(batch.tokens).float(), batch.values)

    fit(model, loss, batches, config.training.learning_rate, rough)
    right = 0
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=rough):
        for batch in test.batches(torch.arange(config.test_formulae), size):
            right += int(((model(batch.tokens) > 0) == (batch.values > 0.5)).sum())
    return right / config.test_formulae


class Writer(nn.Module):
    """A language model of characters."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(characters, 32), mufuru.MuFuRU(32, 64)
        self.output = nn.Linear(64, characters)

    def loss(self, window: Tensor) -> Tensor:
        """Nats per character of a (steps + 1, batch) window."""
        outputs, _ = self.rnn(self.embedding(window[:-1]))
        return cross_entropy(self.output(outputs).float().flatten(0, 1), window[1:].flatten())


def characters() -> Tensor:
    """A text that every machine with this torch has: the source of its functions."""
    text = Path(nn.functional.__file__).read_text(encoding="utf-8")
    alphabet = sorted(set(text))
    return torch.tensor([alphabet.index(character) for character in text])


def language_model(seed: int, rough: bool) -> float:
    """Bits per character on the last tenth of the text."""
    tokens = characters()
    end = len(tokens) * 9 // 10
    torch.manual_seed(seed)
    model = Writer(int(tokens.max()) + 1)
    starts = torch.randint(end - WINDOW - 1, (UPDATES, BATCH))
    windows = (torch.stack([tokens[s : s + WINDOW + 1] for s in row.tolist()], 1) for row in starts)
    fit(model, model.loss, windows, 5e-3, rough)
    rest = tokens[end : end + (len(tokens) - end) // (WINDOW + 1) * (WINDOW + 1)].view(-1, WINDOW + 1).T
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=rough):
        return float(model.loss(rest)) / 0.6931471805599453


def quality(seeds: int) -> dict[str, Any]:
    """Results of every seed in both precisions."""
    found: dict[str, Any] = {"products": half.described()}
    tasks = {"logic, accuracy": logic, "language model, bits per character": language_model}
    for name, task in tasks.items():
        found[name] = {precision: [] for precision in PRECISIONS}
        for seed in range(seeds):
            for precision, rough in PRECISIONS.items():
                found[name][precision].append(round(task(seed, rough), 4))
            print(name, {precision: values[-1] for precision, values in found[name].items()}, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("time", "quality"), help="this part, printed and not written")
    parser.add_argument("--seeds", type=int, default=5, help="models of each kind (5)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the record")
    chosen = parser.parse_args()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    found: dict[str, Any] = {"machine": machine(date) | {"updates of the language model": UPDATES}}
    if chosen.only != "quality":
        with wanting("auto"):
            found["ratios to float32"] = times()
    torch.set_num_threads(1)
    if chosen.only != "time":
        with wanting("always"):
            found["quality"] = quality(chosen.seeds)
    text = json.dumps(found, indent=1) + "\n"
    print(text) if chosen.only else chosen.output.write_text(text)


if __name__ == "__main__":
    main()
