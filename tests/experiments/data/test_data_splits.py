"""Examples divided into parts: all of them, once, every class in proportion, the same everywhere."""

from __future__ import annotations

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mufuru.experiments.data import DataError
from mufuru.experiments.data.examples import stratified

FRACTION = st.floats(0.05, 0.45)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), FRACTION, FRACTION, st.integers(0, 9))
def test_everything_once_and_in_proportion(sizes: list[int], valid: float, test: float, seed: int) -> None:
    targets = torch.cat([torch.full((size,), target) for target, size in enumerate(sizes)])
    targets = targets[torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))]
    try:
        parts = stratified(targets, (valid, test), seed)
    except DataError:
        assert min(valid, test) * len(targets) < 1 + len(sizes)
        return
    assert sorted(torch.cat(parts).tolist()) == list(range(len(targets)))
    for part in parts:
        assert part.tolist() == sorted(part.tolist())
    for target, size in enumerate(sizes):
        train, *held_out = (int((targets[part] == target).sum()) for part in parts)
        assert train >= 1
        for count, fraction in zip(held_out, (valid, test), strict=True):
            # rounded up or down; a class that is nearly used up gives less
            assert count < size * fraction + 1
            assert count > size * fraction - 1 or train == 1


def test_a_share_without_a_rest_stays_so() -> None:
    """A third of 39 is 13, whatever the classes beside it, of which nothing can be held out, leave over."""
    targets = torch.tensor([0, 1] + [2] * 39)
    assert [len(part) for part in stratified(targets, (0.25, 1 / 3), 0)] == [18, 10, 13]


def test_a_division_by_hand() -> None:
    """A fifth of 10 and 5 is 2 and 1; the tenth of all is 1.5, so 2 of 1.0 and 0.5: one each."""
    targets = torch.tensor([0] * 10 + [1] * 5)
    parts = stratified(targets, (0.2, 0.1), 0)
    assert [torch.bincount(targets[part]).tolist() for part in parts] == [[7, 3], [2, 1], [1, 1]]


def shuffled(rows: list[int], name: str) -> list[int]:
    """In the order of the published hash's numbers."""
    stream = hashlib.shake_256(name.encode()).digest(8 * len(rows))
    keys = [int.from_bytes(stream[8 * place : 8 * place + 8], "little", signed=True) for place in range(len(rows))]
    return [row for _, row in sorted(zip(keys, rows, strict=True))]


def test_the_seed_decides() -> None:
    targets = torch.tensor([0, 1] * 10)
    even, odd = shuffled(list(range(0, 20, 2)), "split/3/0"), shuffled(list(range(1, 20, 2)), "split/3/1")
    expected = [sorted(even[part] + odd[part]) for part in (slice(4, None), slice(0, 2), slice(2, 4))]
    assert [part.tolist() for part in stratified(targets, (0.2, 0.2), 3)] == expected
    assert stratified(targets, (0.2, 0.2), 4)[1].tolist() != expected[1]


def test_too_few() -> None:
    with pytest.raises(DataError, match=r"3 examples are too few to hold out 0.1 of them: give more"):
        stratified(torch.tensor([0, 0, 1]), (0.1, 0.1), 0)
    # one of each stays in training, so nothing is left to hold out
    with pytest.raises(DataError, match=r"2 examples are too few to hold out 0.4"):
        stratified(torch.tensor([0, 1]), (0.4,), 0)
