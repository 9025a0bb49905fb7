"""Divide examples into training, validation and test so that every class has its share of each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mufuru.experiments.data.errors import DataError
from mufuru.experiments.draws import permutation
from mufuru.experiments.settings import SettingError


def stratified(targets: Tensor, held_out: Sequence[float], seed: int) -> list[Tensor]:
    """The rows of training, then those of each held-out part, all in their first order.

    Of every class a part gets its fraction, rounded up or down such that the part as a whole comes as near to its
    fraction as it can; one example of each class at least stays in training. Which ones is drawn from the seed, the
    same on every platform.
    """
    if not (all(0 < fraction < 1 for fraction in held_out) and sum(held_out) < 1):
        raise SettingError(f"held_out should be fractions above 0 and below 1 together, got {tuple(held_out)}")
    rows = [torch.nonzero(targets == target).flatten() for target in range(int(targets.max()) + 1)]
    shuffled = [part[permutation(len(part), "split", seed, target)] for target, part in enumerate(rows)]
    # all but one of each class may be held out
    free = [max(len(part) - 1, 0) for part in rows]
    parts = []
    for fraction in held_out:
        shares = _shares([len(part) for part in rows], free, fraction)
        parts.append([part[:share] for part, share in zip(shuffled, shares, strict=True)])
        shuffled = [part[share:] for part, share in zip(shuffled, shares, strict=True)]
        free = [left - share for left, share in zip(free, shares, strict=True)]
        if not sum(shares):
            raise DataError(f"{len(targets)} examples are too few to hold out {fraction:g} of them: give more, hold "
                            "out more, or give a file for each part")  # fmt: skip
    return [torch.cat(part).sort().values for part in (shuffled, *parts)]


def _shares(sizes: Sequence[int], free: Sequence[int], fraction: float) -> list[int]:
    """How many of each class: the whole part of its fraction, and one more where the largest pieces are left over."""
    shares = [min(int(size * fraction), left) for size, left in zip(sizes, free, strict=True)]
    pieces = [size * fraction - share for size, share in zip(sizes, shares, strict=True)]
    missing = max(round(sum(sizes) * fraction) - sum(shares), 0)
    # a piece that is an error of rounding is none
    able = [target for target, piece in enumerate(pieces) if piece > 1e-9 and shares[target] < free[target]]
    for target in sorted(able, key=lambda target: -pieces[target])[:missing]:
        shares[target] += 1
    return shares
