"""Records made up for the tests of the report: every number is known before."""

from __future__ import annotations

from typing import Any

from mufuru.experiments.record import Record

PAPER = ("keep", "replace", "max", "min", "mul", "diff", "forget")
ENVIRONMENT: dict[str, Any] = {
    "mufuru": "0.1.0",
    "commit": "c0ffee",
    "dirty": False,
    "python": "3.11.2",
    "command": ["mufuru", "reproduce", "logic"],
}


def made(
    group: str = "sweep",
    cell: str = "mufuru",
    size: int = 8,
    seed: int = 0,
    test: float = 0.9,
    *,
    train: float = 1.0,
    ops: tuple[str, ...] = PAPER,
    rate: float = 1e-3,
    batch: int = 50,
    start: str = "default",
    activation: str | None = None,
    epochs: int = 0,
    task: str = "logic",
) -> Record:
    """One finished run; `epochs` is the length of its learning curve."""
    config: dict[str, Any] = {
        "cell": {"cell": cell, "hidden_size": size, "ops": list(ops), "initialisation": start, "initial_scale": 0.1},
        "training": {"learning_rate": rate, "batch_size": batch, "epochs": 100},
        "seed": seed,
        **dict(zip(("min_gates", "max_gates", "test_min_gates", "test_max_gates"), (5, 10, 11, 20), strict=True)),
    }
    if activation is not None:
        config["cell"]["activation"] = activation
    result: dict[str, Any] = {"updates": 2000, "parameters": 321, "seconds": 12.4}
    result |= {name: {"accuracy": value} for name, value in (("train", train), ("valid", train), ("test", test))}
    if cell == "mufuru":
        result["inspection"] = {"operation_weights": weights(ops, seed)}
    curve = [line(epoch, test) for epoch in range(1, epochs + 1)]
    if cell == "mufuru":
        for at in curve:
            at["operations"] = {op: 1 / len(ops) for op in ops}
    return Record(task, config, ENVIRONMENT, result, curve, group)


def weights(ops: tuple[str, ...], seed: int) -> dict[str, Any]:
    """The first operation takes all at 0 and, in even seeds, mul takes all at OR; otherwise all have the same."""
    even = [1 / len(ops)] * len(ops)
    first = [float(place == 0) for place in range(len(ops))]
    chosen = [float(op == "mul") for op in ops] if "mul" in ops and seed % 2 == 0 else even
    return {"tokens": ["OR", "0", "AND"], "ops": list(ops), "weight": [chosen, first, None], "entropy": 0.0}


def line(epoch: int, level: float) -> dict[str, Any]:
    return {"update": 20 * epoch, "epoch": epoch, "train": {"loss": 1 / epoch}, "valid": {"accuracy": level}}


def experiment() -> list[Record]:
    """A small whole of five parts: MuFuRU solves the task, the GRU does not."""
    seeds = range(3)
    found = [
        made(group, cell, size, seed, high - 0.01 * seed, train=1.0, epochs=4 if group == "sweep" else 0)
        for group in ("sweep", "solved")
        for cell, high in (("mufuru", 1.0), ("gru", 0.8))
        for size in (4, 8, 64)
        for seed in seeds
    ]
    found += [
        made("open", cell, size, seed, 0.7 + 10 * rate - 0.01 * seed, rate=rate, batch=batch, start=start)
        for cell in ("mufuru", "gru")
        for size in (8, 64)
        for rate in (1e-3, 1e-2)
        for batch in (10, 50)
        for start in ("default", "uniform")
        for seed in seeds
    ]
    found += [made("features", seed=seed, test=0.7 - 0.01 * seed, activation="sigmoid") for seed in seeds]
    sets = [PAPER, PAPER[:-1], PAPER[1:], ("keep", "replace"), ("keep", "replace", "max")]
    return found + [
        made("ablation", seed=seed, ops=ops, test=0.6 + 0.05 * len(ops) - 0.01 * seed) for ops in sets for seed in seeds
    ]


def part(group: str) -> list[Record]:
    return [record for record in experiment() if record.group == group]
