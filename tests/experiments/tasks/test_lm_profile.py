"""The benchmark of a language model's update: it times what the engine does, and its tables are the record's."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from lm_texts import config

from mufuru.experiments.engine.fit import Fit
from mufuru.experiments.engine.ranks import Alone

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("lm_profile")


@pytest.mark.parametrize("cell", ["mufuru", "gru", "lstm"])
def test_it_times_the_updates_that_the_engine_makes(profile: ModuleType, cell: Any) -> None:
    """The same weights bit for bit after three updates, with clipping that acts and with a carried state."""
    chosen = config(cell, clip=0.01)
    text = profile.corpus(30, chosen)
    timed = profile.Updates(chosen, text)
    for _ in range(3):
        assert all(seconds > 0 for seconds in timed.update())
    nothing: Any = None
    torch.manual_seed(chosen.seed)
    alone, model = Alone(), timed.task.build()
    alone.adopt(timed.task, model)
    engine = Fit(timed.task, model, chosen.training, nothing, [], 60.0, alone)
    for window in timed.windows[:3]:
        engine.update(window)
    for one, other in zip(timed.parameters, engine.parameters, strict=True):
        assert torch.equal(one, other)


def test_plain_pytorch_trains_the_same_model(profile: ModuleType) -> None:
    """From the same first weights to the same weights, but for rounding."""
    chosen = config("gru", clip=0.01)
    text = profile.corpus(30, chosen)
    ours, plain = profile.Updates(chosen, text), profile.PlainUpdates(chosen, text)
    with torch.no_grad():
        for one, other in zip(ours.parameters, plain.parameters, strict=True):
            other.copy_(one)
    for _ in range(3):
        ours.update()
        assert all(seconds > 0 for seconds in plain.update())
    for one, other in zip(ours.parameters, plain.parameters, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_tables_by_hand(profile: ModuleType) -> None:
    tables = importlib.import_module("lm_profile_tables")
    machine = {"cpu": "a processor", "torch": "2", "commit": "c0ffee", "date": "today"}
    settings = {"units": 4, "words": 10_000, "steps": 5, "columns": 2, "seconds": 1.0}
    stages = {tables.GRU: [[0.1, 0.2, 0.1, 0.0, 0.1]] * 3, tables.MUFURU: [[0.2, 0.2, 0.5, 0.0, 0.1]] * 3}
    stages[tables.PLAIN] = [[0.1, 0.2, 0.6, 0.0, 0.9]] * 3
    page = tables.page(tables.Profile(machine, settings, {"1": stages}))
    assert "4 units, 10,000 words, 5 steps of 2 columns; a processor, torch 2, commit c0ffee, today." in page
    assert "| nn.GRU | 20 | 1.00 (1.00–1.00) | 3 |" in page
    assert "| MuFuRU | 10 | 2.00 (2.00–2.00) | 3 |" in page
    assert "| backward | 0.200 | 1.000 | 1.200 |" in page
    assert page.endswith("is missed: 2.00. Beside the nn.GRU model in plain PyTorch it takes 0.56 of the time.\n")


def test_the_program(
    profile: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quick run, then the table anew from its record."""
    before = torch.get_num_threads()
    output = tmp_path / "new" / "quick"
    monkeypatch.setattr(sys, "argv", ["lm_profile.py", "--quick", "--seconds", "0.01", "--output", str(output)])
    try:
        profile.main()
    finally:
        torch.set_num_threads(before)
    page = output.with_suffix(".md").read_text(encoding="utf-8")
    assert page in capsys.readouterr().out
    models = "MuFuRU, controller 50", "nn.LSTM", "nn.GRU, plain PyTorch"
    for words in ("## 1 thread\n", *models, "softmax and its gradients"):
        assert words in page
    output.with_suffix(".md").unlink()
    monkeypatch.setattr(sys, "argv", ["lm_profile.py", "--from", str(output.with_suffix(".json"))])
    profile.main()
    assert output.with_suffix(".md").read_text(encoding="utf-8") == page
    assert sorted(path.name for path in output.parent.iterdir()) == ["quick.json", "quick.md"]
