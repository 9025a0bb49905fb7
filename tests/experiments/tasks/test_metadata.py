"""What a model carries among its weights beside numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from mufuru.experiments.engine import checkpoint
from mufuru.experiments.tasks.models import Metadata, read_metadata

VALUE = {"words": ["naïve", "<unk>", "\n", "😀"], "labels": [], "channels": 3}


class Model(nn.Module):
    def __init__(self, fingerprint: str = "") -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1)
        self.carried = Metadata(VALUE, fingerprint)


def test_it_comes_back_from_a_checkpoint(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "file", checkpoint.Checkpoint(dict(Model("a" * 64).state_dict()), {}))
    weights = checkpoint.load(tmp_path / "file").tensors
    assert read_metadata(weights) == VALUE
    Model().load_state_dict(weights)


def test_it_is_no_parameter() -> None:
    assert sum(parameter.numel() for parameter in Model().parameters()) == 2


def test_weights_of_other_data_are_refused() -> None:
    weights = Model("a" * 64).state_dict()
    model = Model("b" * 64)
    with pytest.raises(RuntimeError, match="they were trained on other data"):
        model.load_state_dict(weights)
    Model("a" * 64).load_state_dict(weights)


def test_a_model_without_a_fingerprint_takes_any_and_then_has_it() -> None:
    model = Model()
    model.load_state_dict(Model("a" * 64).state_dict())
    assert torch.equal(model.carried.fingerprint, Model("a" * 64).carried.fingerprint)


def test_missing_is_said_as_always() -> None:
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: .*carried\.content"):
        Model("a" * 64).load_state_dict(nn.ModuleDict({"linear": nn.Linear(1, 1)}).state_dict())
