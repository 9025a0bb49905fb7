"""Operation use over a whole data set, in memory that does not grow with it."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from mufuru.sequences import Sequences, from_input
from mufuru.trace import Trace


@dataclass(frozen=True)
class Use:
    """Mean use of the operations by one direction of one layer."""

    op_names: tuple[str, ...]
    steps: int
    """Steps seen, over all sequences."""
    weight: Tensor
    """(operations, hidden): mean weight."""
    entropy: Tensor
    """(operations, hidden): mean of -p log p, in nats; the sum over operations is the entropy of the choice."""
    label_steps: Tensor
    """(labels,): steps seen with each label."""
    label_weight: Tensor
    """(labels, operations): mean weight over units where the step had the label; NaN for a label never seen."""
    label_deviation: Tensor
    """(labels, operations): standard deviation, between a label's steps, of the mean weight over units."""

    def mean(self) -> dict[str, float]:
        """Mean weight of each operation over steps and units."""
        return dict(zip(self.op_names, self.weight.mean(1).tolist(), strict=True))


class Recorder:
    """Collects traces: `recorder.add(layer.trace(x), labels)` for each batch, then `recorder.use()`."""

    def __init__(self, labels: int = 0) -> None:
        if labels < 0:
            raise ValueError(f"labels is the number of label classes, got {labels}")
        self.labels = labels
        self._sums: dict[tuple[int, int], _Sums] = {}
        self._op_names: tuple[str, ...] = ()

    def add(self, trace: Trace, labels: Tensor | PackedSequence | None = None) -> None:
        """Add one forward pass; `labels` holds an integer per step, laid out as the layer's input without its
        last dimension, and negative where a step has no label.
        """
        if self._op_names and trace.op_names != self._op_names:
            raise ValueError(
                f"this recorder gathers {self._op_names}, the trace has {trace.op_names}: use a new recorder"
            )
        weights = {divmod(index, trace.directions): part.p.detach() for index, part in enumerate(trace.parts)}
        sizes = {key: p.size(-1) for key, p in weights.items()}
        gathered = {key: sums.weight.size(-1) for key, sums in self._sums.items()}
        if gathered and sizes != gathered:
            raise ValueError(
                f"this recorder gathers units by (layer, direction) as {gathered}, the trace has {sizes}: "
                "use a new recorder"
            )
        rows = None if labels is None else self._label_rows(trace, labels)
        # nothing fails from here on, so a refused batch has changed nothing
        self._op_names = trace.op_names
        for key, p in weights.items():
            self._sums.setdefault(key, _Sums(self.labels, *p.shape[1:])).add(p, rows)

    def use(self, layer: int = 0, direction: int = 0) -> Use:
        """The summary so far."""
        if (layer, direction) not in self._sums:
            raise IndexError(f"nothing was recorded for layer={layer}, direction={direction}: {sorted(self._sums)}")
        return self._sums[layer, direction].use(self._op_names)

    def _label_rows(self, trace: Trace, labels: Tensor | PackedSequence) -> Tensor:
        if not self.labels:
            raise ValueError("labels were given: say how many classes there are with Recorder(labels=n)")
        p = trace.parts[0].p
        expected = trace.sequences.padded(p[:, 0, 0]).shape
        padded = _unpacked(labels, trace.sequences) if isinstance(labels, PackedSequence) else labels
        if padded.shape != expected:
            raise ValueError(
                "labels need one integer per step of the input: "
                f"expected shape {list(expected)}, got {list(padded.shape)}"
            )
        rows = trace.sequences.pack(padded.to(p.device))
        if rows.numel() and int(rows.max()) >= self.labels:
            raise ValueError(f"labels should be below {self.labels}, got {int(rows.max())}")
        return rows.to(torch.int64)


def _unpacked(labels: PackedSequence, like: Sequences) -> Tensor:
    """Labels padded as the trace is: the two may have been packed in different orders."""
    layout = from_input(labels, None, like.batch_first)
    if layout.lengths().tolist() != like.lengths().tolist():
        raise ValueError(
            "packed labels need one integer per step of the input: "
            f"expected sequences of lengths {like.lengths().tolist()}, got {layout.lengths().tolist()}"
        )
    return replace(layout, steps=like.steps, batched=like.batched).padded(labels.data)


class _Sums:
    def __init__(self, labels: int, ops: int, hidden: int) -> None:
        self.steps = 0
        self.weight = torch.zeros(ops, hidden, dtype=torch.float64, device="cpu")
        self.entropy = torch.zeros(ops, hidden, dtype=torch.float64, device="cpu")
        self.label_steps = torch.zeros(labels, dtype=torch.int64, device="cpu")
        self.label_weight = torch.zeros(labels, ops, dtype=torch.float64, device="cpu")
        self.label_square = torch.zeros(labels, ops, dtype=torch.float64, device="cpu")

    def add(self, p: Tensor, labels: Tensor | None) -> None:
        p = p.double()
        self.steps += p.size(0)
        self.weight += p.sum(0).cpu()
        self.entropy += torch.special.entr(p).sum(0).cpu()
        if labels is not None:
            labelled = labels >= 0
            rows, p = labels[labelled].cpu(), p[labelled].mean(-1).cpu()
            self.label_steps += torch.bincount(rows, minlength=len(self.label_steps))
            self.label_weight.index_add_(0, rows, p)
            self.label_square.index_add_(0, rows, p.square())

    def use(self, op_names: tuple[str, ...]) -> Use:
        steps = max(self.steps, 1)
        seen = self.label_steps.unsqueeze(1)
        label_weight = self.label_weight / seen
        # rounding can take a variance of nothing below 0
        deviation = (self.label_square / seen - label_weight.square()).clamp(min=0).sqrt()
        return Use(
            op_names, self.steps, self.weight / steps, self.entropy / steps,
            self.label_steps.clone(), label_weight, deviation,
        )  # fmt: skip
