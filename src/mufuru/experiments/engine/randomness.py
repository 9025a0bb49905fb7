"""The random states of Python, NumPy and torch: seeded, saved, put back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Randomness(NamedTuple):
    """All three states; `values` holds the parts that are not tensors."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]


def seed(number: int) -> None:
    """Seed all three; they take numbers of different size."""
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.manual_seed(number % 2**63)


def capture() -> Randomness:
    """Return the current states."""
    version, words, normal = random.getstate()
    numpy: Any = np.random.get_state(legacy=False)
    tensors = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor(words, dtype=torch.int64),
        "numpy": torch.from_numpy(numpy["state"]["key"].astype(np.int64)),
    }
    rest = {"pos": int(numpy["state"]["pos"]), "has_gauss": int(numpy["has_gauss"]), "gauss": float(numpy["gauss"])}
    return Randomness(tensors, {"python": [version, normal], "numpy": rest})


def restore(states: Randomness) -> None:
    """Restore the states, as if nothing had been drawn since `capture`."""
    tensors, values = states
    version, normal = values["python"]
    random.setstate((version, tuple(tensors["python"].tolist()), normal))
    numpy = values["numpy"]
    key = tensors["numpy"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", key, numpy["pos"], numpy["has_gauss"], numpy["gauss"]))
    torch.set_rng_state(tensors["torch"])


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the states after this context, whatever is drawn within."""
    before = capture()
    try:
        yield
    finally:
        restore(before)
