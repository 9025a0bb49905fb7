"""Batches of like length: nothing lost, nothing repeated, the same for the same seed and epoch."""

from __future__ import annotations

import classify_data
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence

from mufuru.experiments.tasks.classify.model import POOL, Encoded, shuffled
from mufuru.experiments.tasks.task import Batches


def lengths(count: int, seed: int = 0) -> Tensor:
    return torch.randint(1, 40, (count,), generator=torch.Generator().manual_seed(seed))


def ragged(*counts: int) -> Encoded:
    """Sequences of these lengths; step t of sequence n is 100 n + t."""
    steps = torch.cat([100 * number + torch.arange(count) for number, count in enumerate(counts)])
    return Encoded(steps, torch.tensor(counts), 7 * torch.arange(len(counts)))


@given(st.integers(1, 400), st.integers(1, 30), st.integers(0, 3))
def test_every_sequence_is_in_one_batch(count: int, batch_size: int, epoch: int) -> None:
    groups = shuffled(lengths(count), batch_size, "test", epoch)
    assert torch.cat(groups).sort().values.tolist() == list(range(count))
    sizes = sorted(map(len, groups))
    assert set(sizes[1:]) <= {batch_size}
    assert sizes[0] == (count % batch_size or batch_size)


def test_the_order_follows_from_the_name() -> None:
    one, same, other = (shuffled(lengths(200), 8, "test", 0, epoch) for epoch in (1, 1, 2))
    assert list(map(Tensor.tolist, one)) == list(map(Tensor.tolist, same))
    assert list(map(Tensor.tolist, one)) != list(map(Tensor.tolist, other))
    assert {tuple(group.sort().values.tolist()) for group in one} != {
        tuple(group.sort().values.tolist()) for group in other
    }


def test_like_lengths_are_together_and_short_ones_do_not_come_first() -> None:
    found = lengths(20 * POOL)
    groups = shuffled(found, 10, "test")
    means = torch.stack([found[group].float().mean() for group in groups])
    spread = max(int(found[group].max() - found[group].min()) for group in groups)
    # a pool of 500 has some 13 sequences of each of the 39 lengths
    assert spread <= 3
    half = len(means) // 2
    # means of 50 numbers from 1 to 39, whose deviation is about 11 / 7
    assert abs(float(means[:half].mean() - means[half:].mean())) < 6


def test_without_pools_lengths_mean_nothing() -> None:
    """The same sequences are together whatever their lengths are."""
    one, other = (shuffled(lengths(200, seed), 8, "test", pool=1) for seed in (0, 1))
    assert [set(group.tolist()) for group in one] == [set(group.tolist()) for group in other]
    assert torch.cat(one).sort().values.tolist() == list(range(200))


def test_in_evaluation_the_shortest_always_come_first() -> None:
    task = classify_data.task()
    one, other = ([batch.which.tolist() for batch in task.batches("test", epoch)] for epoch in (0, 1))
    assert one == other
    lengths = [len(text) for text in task.labelled.test.sequences]
    assert [lengths[row] for batch in one for row in batch[::-1]] == sorted(lengths)


def test_a_batch_is_packed_as_torch_does_it() -> None:
    encoded = ragged(3, 1, 5, 3)
    batch = encoded.batch(torch.tensor([3, 1, 2, 0]))
    assert batch.which.tolist() == [2, 3, 0, 1]
    assert batch.targets.tolist() == [14, 21, 0, 7]
    parts = encoded.steps.split([3, 1, 5, 3])
    expected = pack_sequence([parts[number] for number in (2, 3, 0, 1)])
    assert torch.equal(batch.inputs.data, expected.data)
    assert torch.equal(batch.inputs.batch_sizes, expected.batch_sizes)


def test_batches_are_a_sequence() -> None:
    batches = Batches(ragged(1, 2, 3, 4, 5).batch, torch.arange(5).split(2))
    assert len(batches) == 3
    assert [batch.which.tolist() for batch in batches] == [[1, 0], [3, 2], [4]]
    assert batches[-1].inputs.data.tolist() == [400, 401, 402, 403, 404]
    with pytest.raises(IndexError):
        batches[3]


def test_numbers_keep_their_channels() -> None:
    task = classify_data.task(kind="numeric")
    (batch, *_) = task.batches("valid")
    assert batch.inputs.data.shape == (int(batch.inputs.batch_sizes.sum()), 2)
    assert batch.inputs.data.dtype == torch.float32


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_a_task_gives_all_its_data(split: str) -> None:
    task = classify_data.task()
    examples = getattr(task.labelled, split)
    seen = {
        int(number): int(target)
        for batch in task.batches(split, epoch=4)
        for number, target in zip(batch.which, batch.targets, strict=True)
    }
    assert seen == dict(enumerate(examples.targets.tolist()))
