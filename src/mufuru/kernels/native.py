"""The native kernel on tensors: memory for `csrc/` to read and write, and the calls.

The softmax does not change when one logit is subtracted from all: the last operation is the reference, its weights are
taken off the others' beforehand, and it needs no product of its own. Biases stay as they are, since one may be -inf.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mufuru.kernels import custom, half
from mufuru.kernels.problem import Problem, native, plain
from mufuru.kernels.run import previous_states
from mufuru.ops import CUSTOM

NO_RESET, BEFORE, AFTER = 0, 1, 2
RESETS = {None: NO_RESET, "before": BEFORE, "after": AFTER}
ACTIVATIONS = {"tanh": 0, "sigmoid": 1, "relu": 2}
TRAINING_STEPS, INFERENCE_STEPS = 4, 1
"""Up to this many steps use each weight too seldom for packing all of them: products then pack a little at a time.
Inference keeps packed weights from call to call, and packs for few steps too when it meets the same weights again."""


class Inputs(NamedTuple):
    """All tensors that go in."""

    x: Tensor
    s0: Tensor
    k0: Tensor | None
    ih: Tensor
    hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    kk: Tensor | None
    op: Tensor | None
    bias_op: Tensor | None
    batch_sizes: Tensor | None
    state_mask: Tensor | None
    zoneout: Tensor | None
    allowed: Tensor | None
    resets: Tensor | None


N_DIFFERENTIABLE = Inputs._fields.index("bias_op") + 1
"""Of the inputs, so many have gradients."""


class Options(NamedTuple):
    """What is not a tensor."""

    codes: tuple[int, ...]
    reset: int
    activation: int
    controller_activation: int
    reverse: bool
    trace: bool
    on_reference: bool = False
    """Whether the reference kernel computes it, in a graph that the native kernel cannot be in."""
    bfloat16: bool = False
    """Whether products may round what they multiply to bfloat16; whether they do is decided where they run."""


class Outputs(NamedTuple):
    """What comes out, and what the backward pass needs; a tensor without elements where there is nothing."""

    output: Tensor
    s_n: Tensor
    k_n: Tensor
    p: Tensor
    v: Tensor
    gates: Tensor
    probs: Tensor
    inner: Tensor


class Saved(NamedTuple):
    """Of what comes out, that which the backward pass reads."""

    output: Tensor
    gates: Tensor
    probs: Tensor
    inner: Tensor

    @classmethod
    def of(cls, out: Outputs) -> Saved:
        return cls(out.output, out.gates, out.probs, out.inner)


class Gradients(NamedTuple):
    """By the inputs of the same names; without elements where there is nothing."""

    x: Tensor
    s0: Tensor
    k0: Tensor
    ih: Tensor
    hh: Tensor
    bias_ih: Tensor
    bias_hh: Tensor
    kk: Tensor
    op: Tensor
    bias_op: Tensor


class Shape(NamedTuple):
    """Sizes of a run and where blocks lie in a row of its gates: features, reset, then logits or controller."""

    total: int
    batch: int
    hidden: int
    controller: int
    ops: int
    rest: int
    """The column where the logits, or the controller, begin."""
    width: int

    @classmethod
    def of(cls, inputs: Inputs, options: Options) -> Shape:
        batch, hidden = inputs.s0.shape
        controller = 0 if inputs.kk is None else inputs.kk.size(0)
        rest = hidden if options.reset == NO_RESET else 2 * hidden
        width = inputs.ih.size(0) - (0 if controller else hidden)
        return cls(inputs.x.size(0), batch, hidden, controller, len(options.codes), rest, width)


def forward(inputs: Inputs, options: Options) -> Outputs:
    """All steps, and what the backward pass will need. The inputs may be anything that torch's dispatcher gives."""
    return forward_checked(Inputs(*plain(inputs)), options)


def forward_checked(inputs: Inputs, options: Options) -> Outputs:
    """`forward` of tensors that came through the layer's door."""
    problem, out = describe(inputs, options, keep=True)
    if not problem.direct:
        pack(problem, inputs)
    run(problem, inputs, options, out)
    return out


def describe(inputs: Inputs, options: Options, keep: bool) -> tuple[Problem, Outputs]:
    """The arguments of a forward pass but for the packed weights, and where its results will be.

    The inputs came through the layer's door: nothing is checked again.
    """
    tensors: Any = [tensor if tensor is None else tensor.contiguous() for tensor in inputs]
    inputs = Inputs(*tensors)
    at = Shape.of(inputs, options)
    out = empty_outputs(at, inputs.s0, options, keep or max(options.codes) >= CUSTOM)
    return _problem(at, inputs, options, TRAINING_STEPS if keep else INFERENCE_STEPS, out), out


def pack(problem: Problem, inputs: Inputs) -> Tensor:
    """The weights as panels."""
    space = problem.take_space(False, inputs.hh.dtype)
    native().mufuru_pack(problem.address)
    return space


def run(problem: Problem, inputs: Inputs, options: Options, out: Outputs) -> None:
    """All steps of a forward pass that is fully described."""
    if max(options.codes) >= CUSTOM:
        custom.forward(problem, inputs, options, out)
    else:
        native().mufuru_forward(problem.address)
    _clear_padding(inputs.batch_sizes, out.output, out.p, out.v)


def empty_outputs(at: Shape, like: Tensor, options: Options, keep: bool = True) -> Outputs:
    """Memory for what comes out."""
    traced = at.total if options.trace else 0
    nothing = like.new_empty(0)
    return Outputs(
        output=like.new_empty(at.total, at.hidden),
        s_n=like.new_empty(at.batch, at.hidden),
        k_n=like.new_empty(at.batch, at.controller) if at.controller else nothing,
        p=like.new_empty(traced, at.ops, at.hidden) if options.trace else nothing,
        v=like.new_empty(traced, at.hidden) if options.trace else nothing,
        gates=like.new_empty(at.total, at.width) if keep else nothing,
        probs=like.new_empty(at.total, (at.ops - 1) * at.hidden) if keep and at.controller else nothing,
        inner=like.new_empty(at.total, at.hidden) if keep and options.reset == AFTER else nothing,
    )


def backward(
    grads: tuple[Tensor | None, ...], inputs: Inputs, options: Options, saved: Saved, needs_x: bool
) -> Gradients:
    """`grads` belong to output, s_n, k_n, p and v."""
    inputs, saved = Inputs(*plain(inputs)), Saved(*plain(saved))
    at = Shape.of(inputs, options)
    nothing = inputs.s0.new_empty(0)
    found = Gradients(
        torch.empty_like(inputs.x) if needs_x else nothing,
        torch.empty_like(inputs.s0),
        *(nothing if tensor is None else torch.empty_like(tensor) for tensor in inputs[2:N_DIFFERENTIABLE]),
    )
    out = (saved.output, None, None, None, None, saved.gates, saved.probs, saved.inner)
    problem = _problem(at, inputs, options, TRAINING_STEPS, out, *plain(grads), *found)
    problem.take_space(True, inputs.hh.dtype)
    if max(options.codes) >= CUSTOM:
        states = previous_states(saved.output, inputs.s0, inputs.batch_sizes, options.reverse, inputs.resets)
        found_values = custom.derivatives(options.codes, states, saved.gates[: len(states), : at.hidden])
        problem.point("custom", *plain(found_values))
    native().mufuru_backward(problem.address)
    _clear_padding(inputs.batch_sizes, found.x)
    return found


def _clear_padding(batch_sizes: Tensor | None, *packed: Tensor) -> None:
    """The kernel leaves the rows beyond the last step's as they were."""
    if batch_sizes is None:
        return
    rows = int(batch_sizes.sum())
    for tensor in packed:
        if tensor.size(0) > rows:
            tensor[rows:] = 0


def _problem(
    at: Shape,
    inputs: Inputs,
    options: Options,
    direct_steps: int,
    out: tuple[Tensor | None, ...],
    *gradients: Tensor | None,
) -> Problem:
    steps, offsets = _offsets(inputs.batch_sizes, at)
    sizes = (
        steps, at.batch, inputs.x.size(1), at.hidden, at.controller, at.ops,
        options.reset, options.activation, options.controller_activation, options.reverse,
        inputs.hh.dtype == torch.float64, half.way() if options.bfloat16 else half.WHOLE, steps <= direct_steps,
    )  # fmt: skip
    masks = inputs.state_mask, inputs.zoneout, inputs.allowed, inputs.resets
    tensors = (_codes(options.codes), None, *inputs[:N_DIFFERENTIABLE], offsets, *masks, *out, *gradients)
    return Problem(sizes, tensors)


@lru_cache(maxsize=64)
def _codes(codes: tuple[int, ...]) -> Tensor:
    return torch.tensor(custom.local_codes(codes), device="cpu")


def _offsets(batch_sizes: Tensor | None, at: Shape) -> tuple[int, Tensor]:
    """The number of steps, and where the rows of each begin."""
    if batch_sizes is None:
        return (at.total // at.batch if at.batch else 0), _even_offsets(at.total, at.batch)
    offsets = torch.zeros(len(batch_sizes) + 1, dtype=torch.int64, device="cpu")
    torch.cumsum(batch_sizes, 0, out=offsets[1:])
    return len(batch_sizes), offsets


@lru_cache(maxsize=64)
def _even_offsets(total: int, batch: int) -> Tensor:
    return torch.arange(0, total + 1, batch or 1, device="cpu")
