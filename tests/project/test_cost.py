"""The cost of training on paper is that of the layers and models themselves; no time is tested."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import mufuru
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.lm.config import LMConfig
from mufuru.experiments.tasks.lm.model import LanguageModel

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules that need no native kernel."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    names = ("cost_model", "cost_tables")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return SimpleNamespace(**{name: importlib.import_module(name) for name in names})


@pytest.mark.parametrize(("layers", "operations"), [(1, 7), (3, 7), (2, 2)])
def test_parameters_of_a_layer(parts: Any, layers: int, operations: int) -> None:
    ops = mufuru.PAPER[:operations]
    cost = parts.cost_model.Cost(5, 6, layers, operations=operations)
    assert cost.parameters == sum(p.numel() for p in mufuru.MuFuRU(5, 6, layers, ops=ops).parameters())


def test_parameters_of_a_language_model(parts: Any) -> None:
    vocabulary = importlib.import_module("mufuru.experiments.data.vocabulary").Vocabulary(("<unk>", "a", "b"))
    model = LanguageModel(LMConfig(CellConfig(hidden_size=6), embedding_size=5), vocabulary)
    assert parts.cost_model.Cost(5, 6, words=3).parameters == sum(p.numel() for p in model.parameters())


def test_multiplications_are_those_of_the_products(parts: Any) -> None:
    """Products of a unit with all of its logits, less those of one operation."""
    cost = parts.cost_model.Cost(5, 6)
    layer = mufuru.MuFuRU(5, 6)
    products = sum(p.numel() for name, p in layer.named_parameters() if name.startswith("weight"))
    assert cost.multiplications == products - 6 * (5 + 6)
    gru = sum(p.numel() for name, p in nn.GRU(5, 6).named_parameters() if name.startswith("weight"))
    assert cost.multiplications == gru * 8 / 3


def test_speed_of_ranks(parts: Any) -> None:
    """A network without end gives as many times the speed as there are ranks; at the threshold many have half of it."""
    cost = parts.cost_model.Cost(words=100, batch=1000)
    assert cost.speedup(4, 1e10, 1e30) == pytest.approx(4)
    assert cost.speedup(1, 1e10, 1.0) == 1
    ranks = 1000
    bandwidth = 1e9
    rate = cost.tokens / ranks / cost.tokens_to_pay(1.0, bandwidth)
    assert cost.speedup(ranks, rate, bandwidth) == pytest.approx(ranks / 2, rel=2 / ranks)


def test_the_most_ranks_keep_half_of_the_speed(parts: Any) -> None:
    cost = parts.cost_model.Cost(words=10_000)
    for bandwidth in (1e7, 1e8, 1e9, 1e10):
        most = cost.most_ranks(3e10, bandwidth)
        assert most == 1 or cost.speedup(most, 3e10, bandwidth) >= most / 2
        assert cost.speedup(most + 1, 3e10, bandwidth) < (most + 1) / 2


def test_a_ring_sends_what_it_should(parts: Any) -> None:
    """Written again: ranks - 1 rounds of a part each, once to add and once to hand out."""
    cost = parts.cost_model.Cost()
    for ranks in (2, 3, 8):
        assert cost.sent_bytes(ranks) == pytest.approx(2 * (ranks - 1) * 4 * cost.parameters / ranks)


def test_the_page_is_the_record(parts: Any) -> None:
    record = BENCHMARKS / "results" / "cost.json"
    page = parts.cost_tables.page(json.loads(record.read_text(encoding="utf-8")))
    assert record.with_suffix(".md").read_text(encoding="utf-8") == page


def test_bytes_are_as_predicted(parts: Any) -> None:
    """In the record, where the native kernel ran."""
    rows = json.loads((BENCHMARKS / "results" / "cost.json").read_text(encoding="utf-8"))["layers"]
    for row in rows:
        cost = parts.cost_model.Cost(**row["shape"])
        assert (row["saved_bytes"], row["parameters"]) == (cost.saved_bytes, cost.parameters)


@pytest.mark.slow
def test_it_runs(tmp_path: Path) -> None:
    line = [sys.executable, str(BENCHMARKS / "cost.py"), "--quick", "--output", str(tmp_path / "cost")]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert "## Two ranks" in done.stdout
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".md", ".svg", ".png"}
    assert torch.isfinite(torch.tensor(json.loads((tmp_path / "cost.json").read_text())["layers"][0]["seconds"]))
