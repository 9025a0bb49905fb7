"""The arguments and the result of a kernel: the one signature that all kernels share, and the table of its tensors.

A kernel takes one unit through whole sequences. They are packed, as in `PackedSequence`: the rows of step 0, then of
step 1, and so on, longest sequence first, so that step t has the first `batch_sizes[t]` sequences and no padding.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from mufuru.tensors import Shape, rows
from mufuru.unit import STEMS, WEIGHTS, Unit, Weights
from mufuru.validate import ORDINARY

F = TypeVar("F", bound=Callable[..., Any])
PLAIN = frozenset({*ORDINARY, type(None)})
"""Types of the tensors of an ordinary call."""
Packed: TypeAlias = dict[str, tuple[tuple[object, ...], Tensor]]
"""Weights in a kernel's own form, kept from one call to the next, with a key that shows whether they hold."""


class Masks(NamedTuple):
    """Training noise, interventions and resets of a call; drawn outside, so that every kernel sees the same."""

    state: Annotated[Tensor | None, Shape("batch hidden", name="state_mask")] = None
    """Factor on the state wherever it enters a matrix product."""
    zoneout: Annotated[Tensor | None, Shape("total hidden")] = None
    """Share of the old state that survives the step."""
    allowed: Annotated[Tensor | None, Shape("batch ops", torch.bool)] = None
    """`False` gives the operation weight 0 and renormalises the others."""
    resets: Annotated[Tensor | None, Shape("total", torch.bool)] = None
    """Whether the state is reset to the initial one before the step."""

    def to(self, dtype: torch.dtype) -> Masks:
        """Return the masks of real numbers in another precision."""
        pairs = zip(self, MASKS, strict=True)
        return Masks(*(mask if mask is None or row.dtype else mask.to(dtype) for mask, row in pairs))

    def map(self, of_rows: Callable[[Tensor], Tensor], of_sequences: Callable[[Tensor], Tensor]) -> Masks:
        """Apply one function to the masks with an entry for every packed row, another to those per sequence."""
        pairs = zip(self, MASKS, strict=True)
        changed = (
            None if mask is None else of_rows(mask) if row.shape[0] == "total" else of_sequences(mask)
            for mask, row in pairs
        )  # fmt: skip
        return Masks(*changed)

    def of(self, rows: slice, alive: int | None = None) -> Masks:
        """Return the masks of these packed rows and of the first `alive` sequences."""
        return self.map(lambda mask: mask[rows], lambda mask: mask[:alive])


NO_MASKS = Masks()
MASKS = rows(Masks, "mask")
OF_ROWS = tuple(field for field, row in zip(Masks._fields, MASKS, strict=True) if row.shape[0] == "total")
"""Masks with an entry for every packed row."""


class Call(NamedTuple):
    """One unit, its weights and its input sequences."""

    unit: Unit
    weights: Weights
    x: Annotated[Tensor, Shape("total inputs")]
    """The packed inputs. Rows beyond the last step's are padding, which a compiler needs: they are never read, and the
    output is zero there."""
    s0: Annotated[Tensor, Shape("batch hidden")]
    """Initial states; sequences beyond `batch_sizes[0]` are empty and keep theirs."""
    k0: Annotated[Tensor | None, Shape("batch controller", when="controller")] = None
    batch_sizes: Annotated[Tensor | None, Shape("steps", torch.int64)] = None
    """Sequences alive at each step, on the CPU, never growing; `None` if all sequences have the same length."""
    reverse: bool = False
    masks: Masks = NO_MASKS
    trace: bool = False
    """Also return operation weights and features."""
    packed: Packed | None = None
    """The layer's own; `None` where nothing is to be kept."""
    bfloat16: bool = False
    """Whether products may round what they multiply to bfloat16: the tensors are bfloat16, or autocast is on."""

    def sizes(self) -> list[int]:
        """Sequences alive at each step."""
        if self.batch_sizes is not None:
            return whole_numbers(self.batch_sizes)
        batch = self.s0.size(0)
        return [batch] * (self.x.size(0) // batch) if batch else []

    def tensors(self) -> tuple[Tensor | None, ...]:
        """All tensors that go in, in the order of `INPUTS`."""
        return (self.x, self.s0, self.k0, *self.weights, self.batch_sizes, *self.masks)

    def settings(self) -> Settings:
        """All other fields."""
        return Settings(self.unit, self.reverse, self.trace, self.bfloat16)


class Settings(NamedTuple):
    """A call without its tensors: an autograd function takes and keeps the two apart."""

    unit: Unit
    reverse: bool
    trace: bool
    bfloat16: bool

    def call(self, tensors: Sequence[Any]) -> Call:
        """Return the call with these tensors, in the order of `INPUTS`; missing ones at the end are `None`."""
        x, s0, k0 = tensors[:3]
        weights, masks = Weights(*tensors[3:N_DIFFERENTIABLE]), Masks(*tensors[N_DIFFERENTIABLE + 1 :])
        batch_sizes = tensors[N_DIFFERENTIABLE] if len(tensors) > N_DIFFERENTIABLE else None
        return Call(self.unit, weights, x, s0, k0, batch_sizes, self.reverse, masks, self.trace, None, self.bfloat16)


class Result(NamedTuple):
    """States after every step and at the end, and intermediate values if a trace is requested."""

    output: Annotated[Tensor, Shape("total hidden")]
    """The state after every step, packed as the input."""
    s_n: Annotated[Tensor, Shape("batch hidden")]
    """The state at each sequence's end."""
    k_n: Annotated[Tensor | None, Shape("batch controller", when="controller")] = None
    p: Annotated[Tensor | None, Shape("total ops hidden", when="trace")] = None
    """Operation weights."""
    v: Annotated[Tensor | None, Shape("total hidden", when="trace")] = None
    """Features."""


_OF_CALL = {row.name: row for row in rows(Call, "input")}
INPUTS = (_OF_CALL["x"], _OF_CALL["s0"], _OF_CALL["k0"], *WEIGHTS, _OF_CALL["batch_sizes"], *MASKS)
"""All tensors that go in, as `Call.tensors` gives them: first those with gradients."""
N_DIFFERENTIABLE = sum(row.differentiable for row in INPUTS)
"""Inputs with gradients."""
GIVEN = ("input", "h_0", "k_0", *STEMS)
"""The users' names for inputs with gradients."""
OUTPUTS = rows(Result, "output")


def known_when_traced(function: F) -> F:
    """Let a compiler call the function while it traces, and treat the result as a constant.

    This is `torch.compiler.assume_constant_result` without its import of the whole compiler.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function


@known_when_traced
def exporting() -> bool:
    """Return whether a program is made that other processes may run; in a graph torch 2.10's own answer is wrong."""
    return torch.compiler.is_exporting()


def transform_obstacle(call: Call) -> str:
    """Return why only the reference kernel can do a call inside function transforms; empty if others can."""
    if torch.compiler.is_compiling():
        return "a compiler cannot differentiate it inside function transforms"
    if torch._C._len_torch_dispatch_stack():
        return "what records operators would miss it inside function transforms"
    if not {type(tensor) for tensor in (call.x, call.s0, call.k0, *call.weights)} <= PLAIN:
        return "it takes no tensor subclasses inside function transforms"
    return ""


@known_when_traced
def interpreted() -> bool:
    """Return whether Triton interprets its kernels, which it does on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def whole_numbers(tensor: Tensor) -> list[int]:
    """Return the entries of a vector; one by one if the tensor has no memory, as in `functionalize`."""
    if not torch.compiler.is_compiling() and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return [int(entry) for entry in tensor.unbind()]
    entries: list[int] = tensor.tolist()
    return entries


def fresh(tensor: Tensor) -> Tensor:
    """Return a contiguous copy: in a graph, the strides of a view can tie free sizes to each other."""
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
