"""`benchmarks/own_data.py`: its data made from sources, and its table from its record."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def own_data(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("own_data")


def test_calls_and_definitions_of_a_line(own_data: Any) -> None:
    (one, other) = own_data.calls("def run(a):\n    if (b := os.path.join(a, [2])): print(a.b, x)\n")
    assert list(zip(*one, strict=True)) == [
        ("def", "O"), ("run", "B-DEF"), ("(", "O"), ("a", "O"), (")", "O"), (":", "O")
    ]  # fmt: skip
    named = [(name, label) for name, label in zip(*other, strict=True) if label != "O"]
    assert named == [("os", "B-CALL"), (".", "I-CALL"), ("path", "I-CALL"), (".", "I-CALL"), ("join", "I-CALL"),
                     ("print", "B-CALL")]  # fmt: skip


def test_the_table_is_the_records(own_data: Any) -> None:
    record = json.loads((BENCHMARKS / "results" / "own_data.json").read_text())
    # a row that was not measured yet is left out
    assert list(record["rows"]) == [case for case in own_data.CASES if case in record["rows"]]
    assert (BENCHMARKS / "results" / "own_data.md").read_text() == own_data.tables(record)
    for row in record["rows"].values():
        for metric, cells in row["models"].items():
            assert {cell: len(values) for cell, values in cells.items()} == {"mufuru": 5, "gru": 5}
            assert row["baselines"][metric]


def test_spread_over_seeds(own_data: Any) -> None:
    assert own_data.spread([0.5]) == "**0.5** (1)"
    assert own_data.spread([1.0, 2.0, 3.0]) == "**2** ± 1 (3)"
