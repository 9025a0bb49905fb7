"""The native kernel as torch operators, `mufuru::forward` and `mufuru::backward`: shapes for tracing, and gradients.

In plain eager mode the dispatcher is left out: `_Native`, an autograd function, calls the same two functions directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor as is_legacy_batched
from torch.utils.flop_counter import register_flop_formula

from mufuru.door import ORDINARY
from mufuru.kernels import custom, inference, native, reference
from mufuru.kernels.native import N_DIFFERENTIABLE, Gradients, Inputs, Options, Outputs, Saved
from mufuru.kernels.run import Masks, Result, Run, fresh
from mufuru.ops import CUSTOM, with_code
from mufuru.unit import STEMS, Unit, Weights

N_GRADS, N_INPUTS, N_OPTIONS, N_SAVED = 5, len(Inputs._fields), len(Options._fields), len(Saved._fields)
_INPUTS = ", ".join(f"Tensor{'' if name in ('x', 's0', 'ih', 'hh') else '?'} {name}" for name in Inputs._fields)
_OPTIONS = (
    "int[] codes, int reset, int activation, int controller_activation, bool reverse, bool trace, bool on_reference, "
    "bool bfloat16"
)
_EAGER = frozenset({*ORDINARY, type(None)})
_GRADS = ", ".join(f"Tensor? grad_{name}" for name in Outputs._fields[:N_GRADS])
_SAVED = ", ".join(f"Tensor saved_{name}" for name in Saved._fields)

_library = torch.library.Library("mufuru", "DEF")
_library.define(f"forward({_INPUTS}, {_OPTIONS}) -> ({', '.join(['Tensor'] * len(Outputs._fields))})")
_library.define(
    f"backward({_GRADS}, {_INPUTS}, {_OPTIONS}, {_SAVED}, bool needs_x)"
    f" -> ({', '.join(['Tensor'] * len(Gradients._fields))})"
)


def sequence(run: Run) -> Result:
    """`reference.sequence`, natively."""
    inputs, options = arguments(run)
    if in_eager_mode(inputs):
        if not torch.is_grad_enabled() or not any(
            tensor is not None and tensor.requires_grad for tensor in inputs[:N_DIFFERENTIABLE]
        ):
            return inference.sequence(inputs, options, run.packed)
        out = _apply(_Native, options, *_kept(_given(inputs)))
        if len(out) == 2:
            return Result(*out)
    elif torch.compiler.is_compiling():
        out = torch.ops.mufuru.forward(*inputs, *options)
    elif torch._C._are_functorch_transforms_active() and not all(_functionalizing()):
        out = _apply(_Transformable, options, *_kept(inputs))
    else:
        out = torch.ops.mufuru.forward(*_kept(inputs), *options)
    return _result(run, out)


def _kept(inputs: Iterable[Any]) -> list[Any]:
    """The inputs as a backward pass may keep them. A leaf is kept as a view: before that pass a program may give the
    parameter other data, of another type or shape even, by `.data =` or `.half()`."""
    found = _keepable(inputs)
    if not torch.is_grad_enabled() or torch._C._get_tracing_state():
        return found
    leaves = (arg if arg is None or not arg.is_leaf else arg.view_as(arg) for arg in found[:N_DIFFERENTIABLE])
    return [*leaves, *found[N_DIFFERENTIABLE:]]


def _given(inputs: Inputs) -> tuple[Any, ...]:
    """The inputs without what is missing at their end: each costs an autograd function its time."""
    n = N_INPUTS
    while inputs[n - 1] is None:
        n -= 1
    return inputs[:n]


def _keepable(args: Iterable[Any]) -> list[Any]:
    """The arguments, with copies of tensors that inference made: torch does not keep those for a backward pass."""
    if torch._C._get_tracing_state():
        return list(args)  # torch.jit.trace runs a second time, with copies, and compares
    if torch._C._are_functorch_transforms_active():
        return [arg.clone() if isinstance(arg, Tensor) and _unwrapped(arg).is_inference() else arg for arg in args]
    return [arg.clone() if isinstance(arg, Tensor) and arg.is_inference() else arg for arg in args]


def _unwrapped(tensor: Tensor) -> Tensor:
    """The tensor without what function transforms put around it."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def opaque_reference(run: Run) -> Result:
    """`reference.sequence` as one operator of a graph: a compiler does not look inside, and the gradient is ours."""
    inputs, options = arguments(run)
    return _result(run, torch.ops.mufuru.forward(*inputs, *options._replace(on_reference=True)))


def arguments(run: Run) -> tuple[Inputs, Options]:
    unit, masks = run.unit, run.masks
    inputs = Inputs(
        run.x, run.s0, run.k0, *run.weights, run.batch_sizes, masks.state, masks.zoneout, masks.allowed,
        masks.resets,
    )  # fmt: skip
    options = Options(
        unit.codes, native.RESETS[unit.reset], native.ACTIVATIONS[unit.activation],
        native.ACTIVATIONS[unit.controller_activation], run.reverse, run.trace, bfloat16=run.bfloat16,
    )  # fmt: skip
    return inputs, options


def _result(run: Run, out: tuple[Tensor, ...]) -> Result:
    output, s_n, k_n, p, v = out[:N_GRADS]
    return Result(output, s_n, None if run.k0 is None else k_n, *((p, v) if run.trace else ()))


def _functionalizing() -> list[bool]:
    """Whether each of the function transforms around is `functionalize`."""
    functionalize = torch._C._functorch.TransformType.Functionalize
    return [level.key() == functionalize for level in torch._C._functorch.get_interpreter_stack() or ()]


def functionalized_gradient() -> bool:
    """Whether `functionalize` is around, and another transform too."""
    return 0 < sum(found := _functionalizing()) < len(found)


def in_eager_mode(tensors: Iterable[Tensor | None]) -> bool:
    """Whether these are ordinary tensors, with no tracing, no function transforms and no fake tensors about."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._are_functorch_transforms_active():
        return False
    return _are_ordinary(tensors)


def _are_ordinary(tensors: Iterable[Tensor | None]) -> bool:
    return _EAGER.issuperset(map(type, tensors))


class _Native(torch.autograd.Function):
    """For eager mode: the shortest way."""

    @staticmethod
    def forward(ctx: Any, options: Options, *inputs: Any) -> tuple[Tensor, ...]:
        found = Inputs(*inputs, *[None] * (N_INPUTS - len(inputs)))
        out = native.forward_checked(found, options)
        _keep(ctx, options, inputs, Saved.of(out))
        return out[:2] if found.k0 is None and not options.trace else out[:N_GRADS]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return _run_backward(ctx, (*grads, *[None] * (N_GRADS - len(grads))))


class _Transformable(torch.autograd.Function):
    """For function transforms, which want to see the context set up apart."""

    @staticmethod
    def forward(options: Options, *inputs: Any) -> tuple[Tensor, ...]:
        return tuple(native.forward(Inputs(*inputs), options))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _keep(ctx, inputs[0], inputs[1:], Saved.of(Outputs(*output)))
        ctx.mark_non_differentiable(*output[N_GRADS:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return _run_backward(ctx, grads)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return _one_by_one(_Transformable.apply, info.batch_size, in_dims, args)


class _Backward(torch.autograd.Function):
    """The gradient as a function of its own, with second derivatives by the reference kernel."""

    @staticmethod
    def forward(options: Options, needs_x: bool, *tensors: Any) -> tuple[Tensor, ...]:
        a, b = N_GRADS, N_GRADS + N_INPUTS
        return tuple(native.backward(tensors[:a], Inputs(*tensors[a:b]), options, Saved(*tensors[b:]), needs_x))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[2 : 2 + N_GRADS + N_INPUTS])
        ctx.options = inputs[0]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, None, *_second_derivatives(ctx.options, ctx.saved_tensors, grads), *[None] * N_SAVED

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        return _one_by_one(_Backward.apply, info.batch_size, in_dims, args)


def _apply(function: Any, *args: Any) -> Any:
    return function.apply(*args)  # torch's own is without types


def _keep(ctx: Any, options: Options, inputs: tuple[Any, ...], saved: Saved) -> None:
    ctx.save_for_backward(*inputs, *saved)
    ctx.options = options
    # the backward pass needs them, and the layer may be gone by then
    ctx.own_ops = custom.probes(options.codes) if max(options.codes) >= CUSTOM else []
    ctx.set_materialize_grads(False)


def _run_backward(ctx: Any, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    saved, needs = ctx.saved_tensors, ctx.needs_input_grad[1:]
    inputs = Inputs(*saved[:-N_SAVED], *[None] * (N_INPUTS + N_SAVED - len(saved)))
    kept = Saved(*saved[-N_SAVED:])
    custom.check_unchanged(ctx.own_ops)
    batched = any(grad is not None and is_legacy_batched(grad) for grad in grads)
    if batched or torch._C._len_torch_dispatch_stack() or not _are_ordinary(grads):
        result = torch.ops.mufuru.backward(*grads[:N_GRADS], *inputs, *ctx.options, *kept, needs[0])
    elif torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        result = _apply(_Backward, ctx.options, needs[0], *_keepable(grads[:N_GRADS]), *inputs, *kept)
    else:
        result = native.backward(grads[:N_GRADS], inputs, ctx.options, kept, needs[0])
    return None, *_needed(result, inputs, needs)[: len(needs)]


def _one_by_one(function: Any, size: int, in_dims: tuple[int | None, ...], args: tuple[Any, ...]) -> Any:
    """Map over a dimension by running the function for each of its entries."""
    args = tuple(_keepable(args))
    rows = [
        function(*(arg.select(dim, i) if isinstance(dim, int) else arg for arg, dim in zip(args, in_dims, strict=True)))
        for i in range(size)
    ]
    return tuple(torch.stack(parts) for parts in zip(*rows, strict=True)), (0,) * len(rows[0])


def _needed(result: tuple[Tensor, ...], inputs: Inputs, needs: tuple[bool, ...]) -> list[Tensor | None]:
    grads = [
        grad if need and tensor is not None else None
        for grad, tensor, need in zip(result, inputs, needs, strict=False)
    ]  # fmt: skip
    return [*grads, *[None] * (N_INPUTS - len(grads))]


def _forward(*args: Any) -> tuple[Tensor, ...]:
    inputs, options = Inputs(*args[:N_INPUTS]), _options(args[N_INPUTS:])
    custom.check_in_graph(options.codes, native=not options.on_reference)
    return _distinct((_forward_on_reference if options.on_reference else native.forward)(inputs, options))


def _backward(*args: Any) -> tuple[Tensor, ...]:
    grads, inputs, options, saved, needs_x = _split(args)
    custom.check_in_graph(options.codes, native=not options.on_reference)
    if options.on_reference:
        return _distinct(_backward_on_reference(grads, inputs, options, needs_x))
    _check_kept(inputs, options, saved)
    return _distinct(native.backward(grads, inputs, options, saved, needs_x))


def _check_kept(inputs: Inputs, options: Options, saved: Saved) -> None:
    """A graph keeps the parameters themselves, and a program may give them other data before the backward pass."""
    (rows, hidden), width = saved.output.shape, saved.gates.size(1)
    controller = width - (hidden if options.reset == native.RESETS[None] else 2 * hidden)
    gates = width + (hidden if inputs.kk is None else 0)
    logits = len(options.codes) * hidden
    batch, size = inputs.s0.size(0), inputs.x.size(1)
    expected = (
        (rows, size), (batch, hidden), (batch, controller), (gates, size), (gates, hidden), (gates,), (gates,),
        (controller, controller), (logits, controller), (logits,),
    )  # fmt: skip
    for name, tensor, shape in zip(("input", "hx", "hx", *STEMS), inputs, expected, strict=False):
        if tensor is not None and (tensor.shape != shape or tensor.dtype != saved.output.dtype):
            raise RuntimeError(
                f"{name} was {saved.output.dtype} of shape {list(shape)} in the forward pass, and is {tensor.dtype} of "
                f"shape {list(tensor.shape)} now: call backward before parameters get other data"
            )


def _forward_on_reference(inputs: Inputs, options: Options) -> Outputs:
    result = reference.sequence(run_of(inputs, options)._replace(trace=options.trace))
    nothing = inputs.s0.new_empty(0)
    output, s_n, *rest = (nothing if tensor is None else fresh(tensor) for tensor in result)
    return Outputs(output, s_n, *rest, *[nothing] * 3)


def _backward_on_reference(
    grads: tuple[Tensor | None, ...], inputs: Inputs, options: Options, needs_x: bool
) -> tuple[Tensor, ...]:
    """All steps once more, as plain autograd takes them."""
    with custom.differentiating():
        leaves: list[Any] = [
            _leaf(tensor, False) if tensor is not None else None for tensor in inputs[:N_DIFFERENTIABLE]
        ]
        found = _products(Inputs(*leaves, *inputs[N_DIFFERENTIABLE:]), options, grads, create_graph=False)
    nothing = inputs.s0.new_empty(0)
    wanted = [inputs.x if needs_x else None, *inputs[1:N_DIFFERENTIABLE]]
    return tuple(
        nothing if like is None else fresh(torch.zeros_like(like) if grad is None else grad)
        for grad, like in zip(found, wanted, strict=True)
    )


def _distinct(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """An operator's results may not be one and the same tensor, not even the empty one."""
    return tuple(tensor if tensor.numel() else torch.empty_like(tensor) for tensor in tensors)


def _options(args: tuple[Any, ...]) -> Options:
    return Options(tuple(args[0]), *args[1:])


def _split(args: tuple[Any, ...]) -> tuple[tuple[Tensor | None, ...], Inputs, Options, Saved, bool]:
    """The arguments of `mufuru::backward`."""
    a, b, c = N_GRADS, N_GRADS + N_INPUTS, N_GRADS + N_INPUTS + N_OPTIONS
    return args[:a], Inputs(*args[a:b]), _options(args[b:c]), Saved(*args[c : c + N_SAVED]), args[-1]


def _count(inputs: tuple[Any, ...]) -> int:
    """Multiplications and additions, from the shapes of the inputs: every row uses every weight once."""
    given = Inputs(*inputs[:N_INPUTS])
    used = sum(shape[0] * shape[1] for shape in (given.ih, given.hh, given.kk, given.op) if shape is not None)
    return 2 * int(given.x[0]) * int(used)


# the gradients by the states and by the weights take as much as the forward pass each
register_flop_formula(torch.ops.mufuru.forward)(lambda *args, **_: _count(args))
register_flop_formula(torch.ops.mufuru.backward)(lambda *args, **_: 2 * _count(args[N_GRADS:]))
_library.impl("forward", _forward, "CompositeExplicitAutograd")
_library.impl("backward", _backward, "CompositeExplicitAutograd")


def _mapped(operator: Any) -> Any:
    """How `vmap` runs the operator."""

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        return _one_by_one(operator, info.batch_size, in_dims, args)

    return rule


torch.library.register_vmap("mufuru::forward", _mapped(torch.ops.mufuru.forward), lib=_library)
torch.library.register_vmap("mufuru::backward", _mapped(torch.ops.mufuru.backward), lib=_library)


def _forward_fake(*args: Any) -> tuple[Tensor, ...]:
    inputs, options = Inputs(*args[:N_INPUTS]), _options(args[N_INPUTS:])
    shape = native.Shape.of(inputs, options)
    return _distinct(native.empty_outputs(shape, inputs.s0, options, keep=not options.on_reference))


def _backward_fake(*args: Any) -> tuple[Tensor, ...]:
    _, inputs, _, _, needs_x = _split(args)
    nothing = inputs.s0.new_empty(0)
    like = [inputs.x if needs_x else nothing, inputs.s0]
    like += [nothing if tensor is None else tensor for tensor in inputs[2:N_DIFFERENTIABLE]]
    return tuple(torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in like)


torch.library.register_fake("mufuru::forward", _forward_fake, lib=_library)
torch.library.register_fake("mufuru::backward", _backward_fake, lib=_library)


def _setup_forward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:N_INPUTS], *Saved.of(Outputs(*output)))
    ctx.options = inputs[N_INPUTS:]


def _differentiate_forward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    inputs, kept = Inputs(*saved[:N_INPUTS]), saved[N_INPUTS:]
    needs = ctx.needs_input_grad
    result = torch.ops.mufuru.backward(*grads[:N_GRADS], *inputs, *ctx.options, *kept, needs[0])
    return *_needed(result, inputs, needs), *[None] * N_OPTIONS


torch.library.register_autograd("mufuru::forward", _differentiate_forward, setup_context=_setup_forward, lib=_library)


def _setup_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    grads, tensors, options, _, _ = _split(inputs)
    ctx.save_for_backward(*grads, *tensors)
    ctx.options = options


def _differentiate_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    second = _second_derivatives(ctx.options, ctx.saved_tensors, grads)
    return *second, *[None] * (N_OPTIONS + N_SAVED + 1)


torch.library.register_autograd(
    "mufuru::backward", _differentiate_backward, setup_context=_setup_backward, lib=_library
)  # fmt: skip


def _second_derivatives(
    options: Options, saved: tuple[Tensor | None, ...], grads: tuple[Tensor | None, ...]
) -> list[Tensor | None]:
    """The gradient of <grads, vector-Jacobian product> by the cotangents and the inputs, by the reference kernel."""
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves: list[Any] = [t if t is None or not t.is_floating_point() else _leaf(t, differentiable) for t in saved]
        products = _products(Inputs(*leaves[N_GRADS:]), options, leaves[:N_GRADS], create_graph=True)
        pairs = [(p, g) for p, g in zip(products, grads, strict=True) if p is not None and g is not None]
        pairs = [(p, g) for p, g in pairs if p.requires_grad and p.shape == g.shape]
        second = _gradients(pairs, leaves[: N_GRADS + N_DIFFERENTIABLE], create_graph=differentiable)
    return [*second, *[None] * (N_INPUTS - N_DIFFERENTIABLE)]


def _products(
    inputs: Inputs, options: Options, cotangents: Sequence[Tensor | None], create_graph: bool
) -> list[Tensor | None]:
    """The vector-Jacobian products by the inputs, by the reference kernel."""
    result = reference.sequence(run_of(inputs, options))
    outputs = (result.output, result.s_n, result.k_n, result.p, result.v)
    pairs = [(out, c) for out, c in zip(outputs, cotangents, strict=True) if out is not None and c is not None]
    pairs = [(out, c) for out, c in pairs if out.shape == c.shape]
    return _gradients(pairs, list(inputs[:N_DIFFERENTIABLE]), create_graph)


def _leaf(tensor: Tensor, differentiable: bool) -> Tensor:
    """The tensor as a variable of its own; still part of the graph when third derivatives are wanted."""
    return tensor.view_as(tensor) if differentiable and tensor.requires_grad else tensor.detach().requires_grad_()


def _gradients(
    pairs: list[tuple[Tensor, Tensor]], inputs: list[Tensor | None], create_graph: bool
) -> list[Tensor | None]:
    """Of all outputs with their cotangents, by those inputs that are there."""
    present = [tensor for tensor in inputs if tensor is not None]
    if not pairs:
        return [None] * len(inputs)
    outputs, cotangents = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outputs, present, cotangents, create_graph=create_graph, allow_unused=True))
    return [None if tensor is None else next(found) for tensor in inputs]


def run_of(inputs: Inputs, options: Options) -> Run:
    """The run that these arguments describe."""
    reset: Any = {code: name for name, code in native.RESETS.items()}[options.reset]
    activations: dict[int, Any] = {code: name for name, code in native.ACTIVATIONS.items()}
    controller = None if inputs.kk is None else inputs.kk.size(0)
    sizes = (inputs.x.size(1), inputs.s0.size(1))
    unit = Unit(
        *sizes, tuple(map(with_code, options.codes)), reset, activations[options.activation],
        controller, activations[options.controller_activation], inputs.bias_ih is not None,
    )  # fmt: skip
    masks = Masks(inputs.state_mask, inputs.zoneout, inputs.allowed, inputs.resets)
    weights = Weights(*inputs[3:10])
    return Run(unit, weights, inputs.x, inputs.s0, inputs.k0, inputs.batch_sizes, options.reverse, masks, True)
