"""What two run folders have in common: everything but the time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from mufuru.experiments.engine import checkpoint
from mufuru.experiments.record import RunFolder


def assert_same_run(one: Path, other: Path) -> None:
    """The same bytes in metrics and best weights, the same last state, the same result apart from the seconds."""
    a, b = RunFolder(one), RunFolder(other)
    assert a.metrics.read_bytes() == b.metrics.read_bytes()
    assert a.best.read_bytes() == b.best.read_bytes()
    assert a.config.read_bytes() == b.config.read_bytes()
    assert without_seconds(a.result) == without_seconds(b.result)
    assert_same_state(a.last, b.last)
    assert not list(one.glob(".*"))


def without_seconds(path: Path) -> Any:
    return {**json.loads(path.read_text()), "seconds": None}


def assert_same_state(one: Path, other: Path) -> None:
    """All tensors bit for bit, random states and optimiser among them, and all values but the seconds."""
    a, b = checkpoint.load(one), checkpoint.load(other)
    assert a.tensors.keys() == b.tensors.keys()
    for name, tensor in a.tensors.items():
        assert torch.equal(tensor, b.tensors[name]), name
    for values in (a.values, b.values):
        values["status"].pop("seconds")
    assert a.values == b.values


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
