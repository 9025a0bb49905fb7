"""What holds in every test: a fixed seed, and fresh memory full of NaN, so that a forgotten write shows."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import torch
from torch import nn

from mufuru import MuFuRU, MuFuRUCell

# no test asserts a time, and a busy machine must not either; the same examples every time
hypothesis.settings.register_profile("mufuru", deadline=None, derandomize=True)
hypothesis.settings.load_profile("mufuru")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20160610)


@pytest.fixture(autouse=True)
def _fresh_memory_is_nan() -> Iterator[None]:
    deterministic: Any = importlib.import_module("torch.utils.deterministic")
    before = torch.are_deterministic_algorithms_enabled(), deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before[0])
    deterministic.fill_uninitialized_memory = before[1]


@pytest.fixture(params=[nn.GRU, MuFuRU], ids=["GRU", "MuFuRU"])
def layer_type(request: pytest.FixtureRequest) -> Any:
    """A contract is asked of `nn.GRU` first: what it does not keep is not asked of `MuFuRU`."""
    return request.param


@pytest.fixture(params=[nn.GRUCell, MuFuRUCell], ids=["GRUCell", "MuFuRUCell"])
def cell_type(request: pytest.FixtureRequest) -> Any:
    return request.param
