"""What goes into a kernel and what comes out: the one signature that all kernels share.

A kernel takes one unit through whole sequences. They come packed, as in `PackedSequence`: the rows of step 0, then of
step 1, and so on, longest sequence first, so that step t has the first `batch_sizes[t]` sequences and no padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from mufuru.unit import Unit, Weights

F = TypeVar("F", bound=Callable[..., Any])
Packed: TypeAlias = dict[str, tuple[tuple[object, ...], Tensor | None]]
"""Where a kernel keeps weights in its own form from one call to the next, with what tells that they still hold; `None`
for weights that it has only met."""


class Masks(NamedTuple):
    """What training noise and interventions do to a run; drawn outside, so that every kernel sees the same."""

    state: Tensor | None = None
    """(batch, hidden): factor on the state wherever it enters a matrix product."""
    zoneout: Tensor | None = None
    """(total, hidden): the share of the old state that survives the step."""
    allowed: Tensor | None = None
    """(batch, operations), bool: `False` gives the operation weight 0 and renormalises the others."""
    resets: Tensor | None = None
    """(total,), bool: where the state is set back to the initial one before the run reads the step."""

    def to(self, dtype: torch.dtype) -> Masks:
        state = None if self.state is None else self.state.to(dtype)
        return self._replace(state=state, zoneout=None if self.zoneout is None else self.zoneout.to(dtype))


NO_MASKS = Masks()


class Run(NamedTuple):
    """One unit, its weights and its input sequences."""

    unit: Unit
    weights: Weights
    x: Tensor
    """(total, input): the packed inputs. Rows beyond the last step's are padding, which a compiler needs: they are
    never read, and what comes out there is zero."""
    s0: Tensor
    """(batch, hidden); sequences beyond `batch_sizes[0]` are empty and keep this state."""
    k0: Tensor | None = None
    """(batch, controller)"""
    batch_sizes: Tensor | None = None
    """(steps,), int64 on CPU, never growing; `None` if all sequences have the same length."""
    reverse: bool = False
    masks: Masks = NO_MASKS
    trace: bool = False
    """Also return operation weights and features."""
    packed: Packed | None = None
    """The layer's own; `None` where nothing is to be kept."""
    bfloat16: bool = False
    """Whether products may round what they multiply to bfloat16: the tensors came so, or autocast asks for it."""

    def sizes(self) -> list[int]:
        """Sequences alive at each step."""
        if self.batch_sizes is not None:
            return whole_numbers(self.batch_sizes)
        batch = self.s0.size(0)
        return [batch] * (self.x.size(0) // batch) if batch else []


class Result(NamedTuple):
    output: Tensor
    """(total, hidden): the state after every step, packed as the input."""
    s_n: Tensor
    """(batch, hidden): the state at each sequence's end."""
    k_n: Tensor | None = None
    p: Tensor | None = None
    """(total, operations, hidden): operation weights, if a trace was asked for."""
    v: Tensor | None = None
    """(total, hidden): features, if a trace was asked for."""


def known_when_traced(function: F) -> F:
    """Let a compiler call the function while it traces, and take the result for a constant.

    This is `torch.compiler.assume_constant_result` without its import of the whole compiler.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function


def whole_numbers(tensor: Tensor) -> list[int]:
    """The entries of a vector; one by one where the tensor has no memory of its own, as in `functionalize`."""
    if not torch.compiler.is_compiling() and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return [int(entry) for entry in tensor.unbind()]
    entries: list[int] = tensor.tolist()
    return entries


def fresh(tensor: Tensor) -> Tensor:
    """A copy whose strides follow from its shape: in a graph, those of a view can tie free sizes to each other."""
    return tensor.clone(memory_format=torch.contiguous_format)


def present(batch_sizes: Tensor, batch: int) -> Tensor:
    """(steps, batch), bool: whether a sequence, longest first, has the step."""
    return torch.arange(batch, device="cpu") < batch_sizes.unsqueeze(1)


def packed_order(batch_sizes: Tensor, batch: int) -> Tensor:
    """(steps * batch,): which row of the grid each packed row is, the padding last. No size depends on the lengths."""
    absent = ~present(batch_sizes, batch).flatten()
    # no key twice: ONNX has no stable sort
    return (absent.long() * absent.numel() + torch.arange(absent.numel(), device="cpu")).argsort()


def previous_states(
    states: Tensor, initial: Tensor, batch_sizes: Tensor | None, reverse: bool, resets: Tensor | None = None
) -> Tensor:
    """(total, size): the state that every step started from, packed as the states after every step, without padding."""
    if not states.size(0):
        return states
    if batch_sizes is None:
        batch = initial.size(0)
        before = torch.cat([states[batch:], initial]) if reverse else torch.cat([initial, states[:-batch]])
    else:
        rows = _rows_before(batch_sizes, reverse).to(states.device)
        before = torch.cat([states[: len(rows)], initial]).index_select(0, rows)
    if resets is None:
        return before
    first = initial.index_select(0, sequence_of_rows(batch_sizes, len(before), len(initial)).to(states.device))
    return torch.where(resets[: len(before), None], first, before)


def sequence_of_rows(batch_sizes: Tensor | None, total: int, batch: int) -> Tensor:
    """(total,): which sequence every packed row belongs to."""
    rows = torch.arange(total, device="cpu")
    if batch_sizes is None:
        return rows % batch
    return rows - (batch_sizes.cumsum(0) - batch_sizes)[torch.repeat_interleave(batch_sizes)]


def _rows_before(batch_sizes: Tensor, reverse: bool) -> Tensor:
    """For every packed row, the row of the same sequence one step before; the initial states follow the last row."""
    ends = batch_sizes.cumsum(0)
    starts, total = ends - batch_sizes, int(ends[-1])
    step = torch.repeat_interleave(batch_sizes)
    sequence = sequence_of_rows(batch_sizes, total, 0)
    before = step + (1 if reverse else -1)
    inside = before.clamp(0, len(batch_sizes) - 1)
    known = (before == inside) & (sequence < batch_sizes[inside])
    return torch.where(known, starts[inside] + sequence, total + sequence)
