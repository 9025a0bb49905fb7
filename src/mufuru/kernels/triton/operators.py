"""The Triton kernel as torch operators, `mufuru::triton_forward` and `mufuru::triton_backward`.

They take what `mufuru::forward` and `mufuru::backward` take. The forward pass keeps its output and the controller's
states; second derivatives are the reference's.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from mufuru.kernels import custom
from mufuru.kernels.call import N_DIFFERENTIABLE, Call, Result, Settings
from mufuru.kernels.operators import (
    N_GRADS,
    N_INPUTS,
    N_OPTIONS,
    SCHEMA_GRADS,
    SCHEMA_INPUTS,
    SCHEMA_OPTIONS,
    Gradient,
    call_of,
    count,
    differentiate_twice,
    empty_gradients,
    filled,
    keepable,
    kept,
    mapped,
    needed,
    one_by_one,
    options_from,
    options_of,
    parted,
    result_of,
)
from mufuru.kernels.triton import passes
from mufuru.kernels.triton.checks import checked_call, checked_gradients
from mufuru.ops import CUSTOM
from mufuru.unit import STEMS
from mufuru.validate import check_all

N_SAVED = 2
"""The output and the controller's states."""
_library = torch.library.Library("mufuru", "FRAGMENT")
_library.define(f"triton_forward({SCHEMA_INPUTS}, {SCHEMA_OPTIONS}) -> ({', '.join(['Tensor'] * (N_GRADS + 1))})")
_library.define(
    f"triton_backward({SCHEMA_GRADS}, {SCHEMA_INPUTS}, {SCHEMA_OPTIONS}, Tensor output, Tensor states_k, bool needs_x)"
    f" -> ({', '.join(['Tensor'] * N_DIFFERENTIABLE)})"
)


def sequence(call: Call) -> Result:
    """`reference.sequence` on a GPU."""
    tensors = call.tensors()
    if torch.compiler.is_compiling():
        out = torch.ops.mufuru.triton_forward(*tensors, *options_of(call))
    elif torch._C._are_functorch_transforms_active():
        apply: Any = _Transformable.apply
        out = apply(call.settings(), *kept(tensors))
    else:
        out = torch.ops.mufuru.triton_forward(*kept(tensors), *options_of(call))
    return result_of(call, out)


def _forward(*args: Any) -> tuple[Tensor, ...]:
    tensors, options = args[:N_INPUTS], options_from(args[N_INPUTS:])
    custom.check_in_graph(options.codes, native=True)
    return filled(passes.forward(checked_call(tensors, options)), tensors[1])


def _backward(*args: Any) -> tuple[Tensor, ...]:
    grads, tensors, options, saved, needs_x = parted(args)
    custom.check_in_graph(options.codes, native=True)
    _check_kept(call_of(tensors, options), saved[0])
    call = checked_call(tensors, options)
    output, states_k = cast(list[Tensor], check_all(("output", "states_k"), saved))
    return filled(passes.backward(checked_gradients(grads, call), call, output, states_k, needs_x), tensors[1])


def _check_kept(call: Call, output: Tensor) -> None:
    """A graph keeps the parameters themselves, and a program may give them other data before the backward pass."""
    expected = (*call.unit.weight_shapes, (call.x.size(0), call.s0.size(1)))
    for name, tensor, shape in zip((*STEMS, "output"), (*call.weights, output), expected, strict=True):
        if tensor is not None and (tensor.shape != shape or tensor.dtype != call.x.dtype):
            raise RuntimeError(
                f"{name} should be {call.x.dtype} of shape {list(shape or ())} as in the forward pass, and is "
                f"{tensor.dtype} of shape {list(tensor.shape)} now: call backward before parameters get other data"
            )


_library.impl("triton_forward", _forward, "CompositeExplicitAutograd")
_library.impl("triton_backward", _backward, "CompositeExplicitAutograd")
_forward_op, _backward_op = torch.ops.mufuru.triton_forward, torch.ops.mufuru.triton_backward
torch.library.register_vmap("mufuru::triton_forward", mapped(_forward_op), lib=_library)
torch.library.register_vmap("mufuru::triton_backward", mapped(_backward_op), lib=_library)
# the gradients by the states and by the weights take as much as the forward pass each, and the gates are computed again
register_flop_formula(_forward_op)(lambda *args, **_: count(args))
register_flop_formula(_backward_op)(lambda *args, **_: 3 * count(args[N_GRADS:]))


def _forward_fake(*args: Any) -> tuple[Tensor, ...]:
    tensors, options = args[:N_INPUTS], options_from(args[N_INPUTS:])
    return filled(passes.empty(call_of(tensors, options)), tensors[1])


def _backward_fake(*args: Any) -> tuple[Tensor, ...]:
    _, tensors, _, _, needs_x = parted(args)
    return empty_gradients(tensors, needs_x)


torch.library.register_fake("mufuru::triton_forward", _forward_fake, lib=_library)
torch.library.register_fake("mufuru::triton_backward", _backward_fake, lib=_library)


def _setup_forward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:N_INPUTS], output[0], output[N_GRADS])
    ctx.options = inputs[N_INPUTS:]
    # a graph has no Python to look at again: its operator does so when it runs
    traced = torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack()
    ctx.own_ops = [] if traced or max(ctx.options[0]) < CUSTOM else custom.probes(tuple(ctx.options[0]))
    ctx.set_materialize_grads(False)


def _differentiate_forward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved, needs = ctx.saved_tensors, ctx.needs_input_grad
    custom.check_unchanged(ctx.own_ops)
    tensors, states = saved[:N_INPUTS], saved[N_INPUTS:]
    result = _backward_op(*grads[:N_GRADS], *tensors, *ctx.options, *states, needs[0])
    return *needed(result, tensors, needs), *[None] * N_OPTIONS


torch.library.register_autograd(
    "mufuru::triton_forward", _differentiate_forward, setup_context=_setup_forward, lib=_library
)  # fmt: skip
differentiate_twice("mufuru::triton_backward", _library)


class _Transformable(torch.autograd.Function):
    """For function transforms, which need a separate `setup_context`."""

    @staticmethod
    def forward(settings: Settings, *inputs: Any) -> tuple[Tensor, ...]:
        return filled(passes.forward(settings.call(inputs)), inputs[1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[1:], output[0], output[N_GRADS])
        ctx.settings = inputs[0]
        ctx.mark_non_differentiable(*output[N_GRADS:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        saved, needs = ctx.saved_tensors, ctx.needs_input_grad[1:]
        apply: Any = _TransformableBackward.apply
        result = apply(ctx.settings, needs[0], *keepable(grads[:N_GRADS]), *saved)
        return None, *needed(result, saved[:N_INPUTS], needs)[: len(needs)]

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return one_by_one(_Transformable.apply, info.batch_size, in_dims, args)


class _TransformableBackward(Gradient):
    @staticmethod
    def forward(settings: Settings, needs_x: bool, *tensors: Any) -> tuple[Tensor, ...]:
        grads, inputs, (output, states_k) = tensors[:N_GRADS], tensors[N_GRADS:-N_SAVED], tensors[-N_SAVED:]
        return filled(passes.backward(grads, settings.call(inputs), output, states_k, needs_x), inputs[1])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return one_by_one(_TransformableBackward.apply, info.batch_size, in_dims, args)
