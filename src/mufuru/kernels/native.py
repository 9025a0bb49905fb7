"""The native kernel as a row of the kernel table: which calls it supports, how they reach it, and its status.

In plain eager mode the dispatcher is left out: `_Native`, an autograd function, calls `compute` directly. Elsewhere a
call is torch's operator `mufuru::forward`, or `_Transformable` inside function transforms.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor as is_legacy_batched
from torch.autograd import forward_ad

from mufuru.kernels import compute, custom, library
from mufuru.kernels.call import (
    N_DIFFERENTIABLE,
    PLAIN,
    Call,
    Result,
    Settings,
    exporting,
    known_when_traced,
    transform_obstacle,
)
from mufuru.kernels.operators import (
    N_GRADS,
    N_INPUTS,
    N_SAVED,
    Gradient,
    filled,
    keepable,
    kept,
    needed,
    one_by_one,
    options_of,
    result_of,
)  # fmt: skip
from mufuru.kernels.problem import MAX_OPS


def obstacle(call: Call) -> str:
    """Return why the native kernel cannot do this call; empty if it can."""
    if call.x.dtype not in (torch.float32, torch.float64):
        return f"it computes in float32 and float64, got {call.x.dtype}"
    if not call.unit.hidden_size:
        return "it needs at least one unit"
    if len(call.unit.ops) > MAX_OPS:
        return f"it takes up to {MAX_OPS} operations, got {len(call.unit.ops)}"
    if forward_ad._current_level >= 0:
        return "it has no forward-mode derivatives"
    reason = _transform_obstacle(call) or (_python_obstacle(call) if call.unit.python_ops else "")
    return reason or missing_library()


@known_when_traced
def missing_library() -> str:
    """Return why there is no native library; empty if there is one."""
    return "" if library.load() is not None else library.status().reason


def _transform_obstacle(call: Call) -> str:
    if not torch._C._are_functorch_transforms_active():
        return ""
    return transform_obstacle(call) or (
        "functionalize has no rule for its gradient" if _functionalized_gradient() else ""
    )


def _python_obstacle(call: Call) -> str:
    if exporting():
        return "a number stands for an operation written in Python, which an exported program cannot know"
    if not torch.compiler.is_compiling() and not _in_eager_mode((call.x, call.s0, *call.weights)):
        return "it takes operations written in Python only in plain eager mode"
    if torch.compiler.is_compiling() and not all(custom.may_be_in_graphs(op.code) for op in call.unit.python_ops):
        return "an operation has parameters of its own or draws random numbers"
    codes = (op.code for op in call.unit.python_ops)
    return next((reason for code in codes if (reason := custom.obstacle(code))), "")


def status() -> str:
    """Return whether there is a library, with where it came from or why there is none and what to do."""
    live = library.status()
    return f"not available: {live.reason}" if live.state == "unavailable" else f"available ({live.state})"


def sequence(call: Call) -> Result:
    """`reference.sequence`, natively."""
    tensors = call.tensors()
    if _in_eager_mode(tensors):
        if not torch.is_grad_enabled() or not any(
            tensor is not None and tensor.requires_grad for tensor in tensors[:N_DIFFERENTIABLE]
        ):
            return compute.inference(call)
        return Result(*_apply(_Native, call.settings(), *kept(_given(tensors))))
    if torch.compiler.is_compiling():
        out = torch.ops.mufuru.forward(*tensors, *options_of(call))
    elif torch._C._are_functorch_transforms_active() and not all(_functionalizing()):
        out = _apply(_Transformable, call.settings(), *kept(tensors))
    else:
        out = torch.ops.mufuru.forward(*kept(tensors), *options_of(call))
    return result_of(call, out)


def _given(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs without the `None`s at their end: each costs an autograd function its time."""
    n = N_INPUTS
    while inputs[n - 1] is None:
        n -= 1
    return inputs[:n]


def _in_eager_mode(tensors: Iterable[Tensor | None]) -> bool:
    """Return whether these are ordinary tensors, with no tracing, no function transforms and no fake tensors about."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._are_functorch_transforms_active():
        return False
    return _are_ordinary(tensors)


def _are_ordinary(tensors: Iterable[Tensor | None]) -> bool:
    return PLAIN.issuperset(map(type, tensors))


def _functionalizing() -> list[bool]:
    """Return whether all enclosing function transforms are `functionalize`."""
    functionalize = torch._C._functorch.TransformType.Functionalize
    return [level.key() == functionalize for level in torch._C._functorch.get_interpreter_stack() or ()]


def _functionalized_gradient() -> bool:
    """Return whether `functionalize` is around, and another transform too."""
    return 0 < sum(levels := _functionalizing()) < len(levels)


class _Native(torch.autograd.Function):
    """For eager mode: the shortest way."""

    @staticmethod
    def forward(ctx: Any, settings: Settings, *inputs: Any) -> tuple[Tensor | None, ...]:
        out = compute.forward(settings.call(inputs))
        _keep(ctx, settings, inputs, out)
        return tuple(out[: 2 if inputs[2] is None and not settings.trace else N_GRADS])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return _run_backward(ctx, (*grads, *[None] * (N_GRADS - len(grads))))


class _Transformable(torch.autograd.Function):
    """For function transforms, which need a separate `setup_context`."""

    @staticmethod
    def forward(settings: Settings, *inputs: Any) -> tuple[Tensor, ...]:
        return filled(compute.forward_of_any(settings.call(inputs)), inputs[1])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _keep(ctx, inputs[0], inputs[1:], output)
        ctx.mark_non_differentiable(*output[N_GRADS:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return _run_backward(ctx, grads)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return one_by_one(_Transformable.apply, info.batch_size, in_dims, args)


class _Backward(Gradient):
    @staticmethod
    def forward(settings: Settings, needs_x: bool, *tensors: Any) -> tuple[Tensor, ...]:
        grads, inputs, saved = tensors[:N_GRADS], tensors[N_GRADS:-N_SAVED], tensors[-N_SAVED:]
        return filled(compute.backward(grads, settings.call(inputs), saved, needs_x), inputs[1])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return one_by_one(_Backward.apply, info.batch_size, in_dims, args)


def _apply(function: Any, *args: Any) -> Any:
    return function.apply(*args)  # torch's own is without types


def _keep(ctx: Any, settings: Settings, inputs: Sequence[Any], out: Sequence[Any]) -> None:
    ctx.save_for_backward(*inputs, out[0], *out[N_GRADS:])
    ctx.settings = settings
    # the backward pass needs them, and the layer may be gone by then
    ctx.own_ops = custom.probes(settings.unit.codes) if settings.unit.python_ops else ()
    ctx.set_materialize_grads(False)


def _run_backward(ctx: Any, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    saved, needs, settings = ctx.saved_tensors, ctx.needs_input_grad[1:], ctx.settings
    grads = grads[:N_GRADS]
    inputs = (*saved[:-N_SAVED], *[None] * (N_INPUTS + N_SAVED - len(saved)))
    kept = saved[-N_SAVED:]
    custom.check_unchanged(ctx.own_ops)
    batched = any(grad is not None and is_legacy_batched(grad) for grad in grads)
    if batched or torch._C._len_torch_dispatch_stack() or not _are_ordinary(grads):
        kept = filled(kept, inputs[1])
        result = torch.ops.mufuru.backward(*grads, *inputs, *options_of(settings), *kept, needs[0])
    elif torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        result = _apply(_Backward, settings, needs[0], *keepable(grads), *inputs, *kept)
    else:
        result = compute.backward(grads, settings.call(inputs), kept, needs[0])
    return None, *needed(result, inputs, needs)[: len(needs)]
