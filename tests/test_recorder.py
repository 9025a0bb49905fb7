"""The recorder against a plain computation from all the weights at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from mufuru import MuFuRU, Recorder

N, M, CLASSES = 4, 5, 3
OPS = ("keep", "replace", "max", "forget")
# float32 weights summed in float64, in another order
CLOSE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-6}


def batches() -> list[tuple[Tensor, Tensor, list[int]]]:
    """Inputs, labels (some -1: no label) and lengths, of different batch sizes."""
    found = []
    for steps, lengths in ((6, [2, 6, 0, 3]), (4, [4]), (5, [1, 5])):
        labels = torch.randint(-1, CLASSES, (steps, len(lengths)))
        found.append((torch.randn(steps, len(lengths), N), labels, lengths))
    return found


def record(layer: MuFuRU, recorder: Recorder, data: list[tuple[Tensor, Tensor, list[int]]]) -> None:
    for x, labels, lengths in data:
        recorder.add(layer.trace(x, lengths=lengths), labels)


def rows(layer: MuFuRU, data: Any, unit: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """All valid steps, one by one: their weights (total, operations, hidden) and labels."""
    weights, marks = [], []
    for x, labels, lengths in data:
        p = layer.trace(x, lengths=lengths).weights(*unit)
        for i, length in enumerate(lengths):
            for t in range(length):
                weights.append(p[t, i].detach().double())
                marks.append(int(labels[t, i]))
    return torch.stack(weights), torch.tensor(marks)


@pytest.mark.parametrize("unit", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_summaries_are_those_of_all_steps(unit: tuple[int, int]) -> None:
    layer, recorder, data = MuFuRU(N, M, 2, bidirectional=True, ops=OPS), Recorder(labels=CLASSES), batches()
    record(layer, recorder, data)
    p, labels = rows(layer, data, unit)
    use = recorder.use(*unit)
    assert use.op_names == OPS
    assert use.steps == len(p)
    torch.testing.assert_close(use.weight, p.mean(0), **CLOSE)
    torch.testing.assert_close(use.entropy, -(p * p.log()).mean(0), **CLOSE)
    assert use.label_steps.tolist() == [int((labels == c).sum()) for c in range(CLASSES)]
    for c in range(CLASSES):
        torch.testing.assert_close(use.label_weight[c], p[labels == c].mean((0, 2)), **CLOSE)
        spread = p[labels == c].mean(2).std(0, correction=0)
        torch.testing.assert_close(use.label_deviation[c], spread, **CLOSE)
    assert list(use.mean()) == list(OPS)
    assert sum(use.mean().values()) == pytest.approx(1, abs=1e-6)
    assert use.mean()["max"] == pytest.approx(p[:, 2].mean().item(), abs=1e-6)


def test_batch_size_does_not_matter() -> None:
    layer, x, labels = MuFuRU(N, M, ops=OPS), torch.randn(6, 4, N), torch.randint(-1, CLASSES, (6, 4))
    whole, single = Recorder(labels=CLASSES), Recorder(labels=CLASSES)
    whole.add(layer.trace(x), labels)
    for i in range(4):
        single.add(layer.trace(x[:, i]), labels[:, i])
    torch.testing.assert_close(whole.use().weight, single.use().weight, **CLOSE)
    torch.testing.assert_close(whole.use().label_weight, single.use().label_weight, **CLOSE)


def test_layouts_of_labels() -> None:
    lengths, x, labels = [2, 6, 3], torch.randn(6, 3, N), torch.randint(0, CLASSES, (6, 3))
    layer, batch_first = MuFuRU(N, M, ops=OPS), MuFuRU(N, M, ops=OPS, batch_first=True)
    batch_first.load_state_dict(layer.state_dict())
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    packed_labels = pack_padded_sequence(labels, lengths, enforce_sorted=False)
    calls: list[tuple[Any, Any]] = [
        (layer.trace(x, lengths=lengths), labels),
        (layer.trace(packed), labels),
        (layer.trace(packed), packed_labels),
        (batch_first.trace(x.transpose(0, 1), lengths=lengths), labels.transpose(0, 1)),
        (layer.trace(x, lengths=lengths), labels.to(torch.int32)),
    ]
    uses = []
    for trace, given in calls:
        recorder = Recorder(labels=CLASSES)
        recorder.add(trace, given)
        uses.append(recorder.use())
    for use in uses[1:]:
        assert torch.equal(use.label_steps, uses[0].label_steps)
        torch.testing.assert_close(use.label_weight, uses[0].label_weight, **CLOSE)


def test_a_label_never_seen_is_nan() -> None:
    recorder = Recorder(labels=CLASSES)
    recorder.add(MuFuRU(N, M, ops=OPS).trace(torch.randn(3, 2, N)), torch.tensor([[0, 2], [-1, 0], [2, 2]]))
    use = recorder.use()
    assert use.label_steps.tolist() == [2, 0, 3]
    assert use.label_weight[1].isnan().all()
    assert not use.label_weight[[0, 2]].isnan().any()


def test_without_labels() -> None:
    recorder = Recorder()
    recorder.add(MuFuRU(N, M, ops=OPS).trace(torch.randn(3, 2, N)))
    assert recorder.use().steps == 6
    assert recorder.use().label_weight.shape == (0, 4)


def test_memory_does_not_grow() -> None:
    layer, recorder = MuFuRU(N, M, ops=OPS), Recorder(labels=CLASSES)

    def held() -> int:
        sums = recorder._sums[0, 0]
        return sum(value.numel() for value in vars(sums).values() if isinstance(value, Tensor))

    sizes = set()
    for _ in range(5):
        record(layer, recorder, batches())
        assert not any(v.requires_grad for v in vars(recorder._sums[0, 0]).values() if isinstance(v, Tensor))
        sizes.add(held())
    assert sizes == {2 * len(OPS) * M + CLASSES + 2 * CLASSES * len(OPS)}
    assert len(recorder._sums) == 1


def test_a_summary_is_not_changed_by_what_comes_later() -> None:
    layer, recorder, data = MuFuRU(N, M, ops=OPS), Recorder(labels=CLASSES), batches()
    record(layer, recorder, data[:1])
    use = recorder.use()
    before = use.weight.clone(), use.label_steps.clone()
    record(layer, recorder, data)
    assert torch.equal(use.weight, before[0])
    assert torch.equal(use.label_steps, before[1])


def test_a_choice_without_doubt_has_no_entropy() -> None:
    layer = MuFuRU(N, M, ops=("replace",))
    recorder = Recorder()
    recorder.add(layer.trace(torch.randn(3, 2, N)))
    assert not recorder.use().entropy.any()


def test_errors() -> None:
    layer, x = MuFuRU(N, M, ops=OPS), torch.randn(3, 2, N)
    with pytest.raises(ValueError, match="number of label classes, got -1"):
        Recorder(labels=-1)
    recorder = Recorder(labels=2)
    with pytest.raises(IndexError, match="nothing was recorded for layer=0, direction=0"):
        recorder.use()
    with pytest.raises(ValueError, match="labels should be below 2, got 2"):
        recorder.add(layer.trace(x), torch.full((3, 2), 2))
    with pytest.raises(ValueError, match=r"say how many classes there are with Recorder\(labels=n\)"):
        Recorder().add(layer.trace(x), torch.zeros(3, 2))
    recorder.add(layer.trace(x), torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="use a new recorder"):
        recorder.add(MuFuRU(N, M).trace(x))


@pytest.mark.parametrize(
    ("hidden", "options"), [(1, {}), (M + 1, {}), (M, {"num_layers": 2}), (M, {"bidirectional": True})], ids=str
)
def test_what_is_refused_changes_nothing(hidden: int, options: dict[str, Any]) -> None:
    x, recorder = torch.randn(3, 2, N), Recorder(labels=2)
    recorder.add(MuFuRU(N, M, ops=OPS).trace(x))
    before = recorder.use().weight.clone()
    with pytest.raises(ValueError, match=r"\{\(0, 0\): 5\}, the trace has \{\(0, 0\): .*: use a new recorder"):
        recorder.add(MuFuRU(N, hidden, ops=OPS, **options).trace(x))
    assert recorder.use().steps == 6
    assert torch.equal(recorder.use().weight, before)
    fresh = Recorder(labels=2)
    with pytest.raises(ValueError, match="labels should be below 2"):
        fresh.add(MuFuRU(N, M).trace(x), torch.full((3, 2), 2))
    fresh.add(MuFuRU(N, M, ops=OPS).trace(x))


def test_packed_labels_in_another_order() -> None:
    x, labels = torch.randn(4, 3, N), torch.randint(0, CLASSES, (4, 3))
    layer, plain, sorted_ = MuFuRU(N, M, ops=OPS), Recorder(labels=CLASSES), Recorder(labels=CLASSES)
    plain.add(layer.trace(x, lengths=[4, 2, 4]), labels)
    packed = pack_padded_sequence(x, [4, 2, 4], enforce_sorted=False)
    # the same labels, the two long sequences the other way round in the rows
    order = torch.tensor([2, 0, 1])
    rows = pack_padded_sequence(labels[:, order], [4, 4, 2]).data
    sorted_.add(layer.trace(packed), PackedSequence(rows, packed.batch_sizes, order, order.argsort()))
    assert torch.equal(sorted_.use().label_steps, plain.use().label_steps)
    torch.testing.assert_close(sorted_.use().label_weight, plain.use().label_weight, **CLOSE)
    # as many rows, of other sequences
    for lengths in ([4, 4, 2], [4, 3, 3]):
        other = pack_padded_sequence(labels, lengths, enforce_sorted=False)
        with pytest.raises(ValueError, match=r"lengths \[4, 2, 4\], got"):
            Recorder(labels=CLASSES).add(layer.trace(packed), other)


def test_packed_labels_of_other_layouts() -> None:
    layer, x, labels = MuFuRU(N, M, ops=OPS), torch.randn(6, 2, N), torch.randint(0, CLASSES, (6, 2))
    for trace, given in (
        (layer.trace(x, lengths=[3, 5]), pack_padded_sequence(labels, [3, 5], enforce_sorted=False)),
        (layer.trace(x), pack_padded_sequence(labels, [6, 6])),
        (layer.trace(x[:, 0]), pack_padded_sequence(labels[:, :1], [6])),
    ):
        recorder = Recorder(labels=CLASSES)
        recorder.add(trace, given)
        assert int(recorder.use().label_steps.sum()) == recorder.use().steps == len(given.data)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (3, 2, 1), (4, 2), (3, 3)], ids=str)
@pytest.mark.parametrize("lengths", [None, [3, 1]], ids=["equal", "lengths"])
def test_labels_of_a_wrong_shape(shape: tuple[int, ...], lengths: Any) -> None:
    trace = MuFuRU(N, M, ops=OPS).trace(torch.randn(3, 2, N), lengths=lengths)
    with pytest.raises(ValueError, match="labels need one integer per step of the input"):
        Recorder(labels=2).add(trace, torch.zeros(shape, dtype=torch.int64))
