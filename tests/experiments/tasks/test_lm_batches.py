"""Windows written down by hand, and what must hold for every text."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mufuru.experiments.tasks.lm.task import Windows


def test_two_columns_by_hand() -> None:
    """Eleven tokens in two columns of five; the eleventh fills none. 9 stands before the text."""
    windows = Windows(torch.arange(10, 21), 9, batch_size=2, steps=2)
    assert [(window.inputs.tolist(), window.targets.tolist()) for window in windows] == [
        ([[9, 14], [10, 15]], [[10, 15], [11, 16]]),
        ([[11, 16], [12, 17]], [[12, 17], [13, 18]]),
        ([[13, 18]], [[14, 19]]),
    ]


def test_one_column_by_hand() -> None:
    windows = Windows(torch.tensor([4, 0, 4]), 7, batch_size=1, steps=2)
    assert [(window.inputs.T.tolist(), window.targets.T.tolist()) for window in windows] == [
        ([[7, 4]], [[4, 0]]),
        ([[0]], [[4]]),
    ]


def test_too_little_text_for_the_columns() -> None:
    assert len(Windows(torch.arange(3), 0, batch_size=4, steps=2)) == 0
    assert len(Windows(torch.arange(0), 0, batch_size=1, steps=2)) == 0


@given(st.integers(1, 90), st.integers(1, 9), st.integers(1, 40))
def test_every_token_of_a_column_is_predicted_once_and_from_the_one_before(
    length: int, batch_size: int, steps: int
) -> None:
    windows = list(Windows(torch.arange(length), -1, batch_size, steps))
    if length < batch_size:
        assert windows == []
        return
    targets = torch.cat([window.targets for window in windows]).T.flatten()
    assert targets.tolist() == list(range(batch_size * (length // batch_size)))
    inputs = torch.cat([window.inputs for window in windows]).T.flatten()
    assert inputs.tolist() == [target - 1 for target in targets.tolist()]
    assert all(len(window.inputs) == steps for window in windows[:-1])
    assert 1 <= len(windows[-1].inputs) <= steps


@pytest.mark.parametrize("steps", [1, 16, 10_000])
def test_one_column_loses_nothing(steps: int) -> None:
    assert sum(window.targets.numel() for window in Windows(torch.zeros(7376, dtype=torch.int64), 0, 1, steps)) == 7376
