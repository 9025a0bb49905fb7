"""The native kernel as torch operators, `mufuru::forward` and `mufuru::backward`: shapes for tracing, and gradients.

An operator takes the tensors of `INPUTS` in a row, then `Options`; schemas and shapes are made of the table's rows.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, get_type_hints

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from mufuru.kernels import compute, custom, graphed, reference
from mufuru.kernels.call import INPUTS, N_DIFFERENTIABLE, OUTPUTS, Call, Result, Settings, fresh
from mufuru.kernels.problem import SAVED
from mufuru.ops import CUSTOM, with_code
from mufuru.tensors import named_sizes
from mufuru.unit import ACTIVATIONS, RESETS, Unit


class Options(NamedTuple):
    """A call's settings as numbers: an operator takes nothing else beside tensors."""

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


N_GRADS, N_INPUTS, N_OPTIONS, N_SAVED = len(OUTPUTS), len(INPUTS), len(Options._fields), 1 + len(SAVED)
_KINDS: dict[Any, str] = {tuple[int, ...]: "int[]", int: "int", bool: "bool"}
SCHEMA_INPUTS = ", ".join(f"Tensor{'?' if row.optional else ''} {row.name}" for row in INPUTS)
SCHEMA_OPTIONS = ", ".join(f"{_KINDS[kind]} {name}" for name, kind in get_type_hints(Options).items())
SCHEMA_GRADS = ", ".join(f"Tensor? grad_{row.name}" for row in OUTPUTS)
_SAVED = ", ".join(f"Tensor saved_{row.name}" for row in (OUTPUTS[0], *SAVED))

_library = torch.library.Library("mufuru", "DEF")
_library.define(f"forward({SCHEMA_INPUTS}, {SCHEMA_OPTIONS}) -> ({', '.join(['Tensor'] * (N_GRADS + len(SAVED)))})")
_library.define(
    f"backward({SCHEMA_GRADS}, {SCHEMA_INPUTS}, {SCHEMA_OPTIONS}, {_SAVED}, bool needs_x)"
    f" -> ({', '.join(['Tensor'] * N_DIFFERENTIABLE)})"
)


def options_of(call: Call | Settings, on_reference: bool = False) -> Options:
    reset, activation, controller_activation = call.unit.numbers[-3:]
    return Options(
        call.unit.codes, reset, activation, controller_activation, call.reverse, call.trace, on_reference, call.bfloat16
    )


def call_of(tensors: Sequence[Any], options: Options) -> Call:
    """Return the call that these arguments of an operator describe."""
    return _call(tensors, options, _unit)


def _call_again(tensors: Sequence[Any], options: Options) -> Call:
    """`call_of` for tensors with memory, whose sizes are numbers: the unit of the last call serves again."""
    return _call(tensors, options, _unit if max(options.codes) >= CUSTOM else _unit_again)


def _call(tensors: Sequence[Any], options: Options, unit: Callable[..., Unit]) -> Call:
    given = {row.name: tensor for row, tensor in zip(INPUTS, tensors, strict=True)}
    controller = None if given["kk"] is None else given["kk"].size(0)
    sizes = given["x"].size(1), given["s0"].size(1), controller, given["bias_ih"] is not None
    settings = Settings(unit(*sizes, *options[:4]), options.reverse, options.trace, options.bfloat16)
    return settings.call(tensors)


def _unit(
    inputs: int, hidden: int, controller: int | None, bias: bool,
    codes: tuple[int, ...], reset: int, activation: int, controller_activation: int,
) -> Unit:  # fmt: skip
    resets: dict[int, Any] = {code: name for name, code in RESETS.items()}
    activations: dict[int, Any] = {code: name for name, code in ACTIVATIONS.items()}
    return Unit(
        inputs, hidden, tuple(map(with_code, codes)), resets[reset], activations[activation],
        controller, activations[controller_activation], bias,
    )  # fmt: skip


_unit_again = lru_cache(maxsize=64)(_unit)


def result_of(call: Call, out: Sequence[Tensor]) -> Result:
    """Return the result from an operator's outputs, which has an empty tensor where a call has none."""
    output, s_n, k_n, p, v = out[:N_GRADS]
    return Result(output, s_n, None if call.k0 is None else k_n, *((p, v) if call.trace else ()))


def opaque_reference(call: Call) -> Result:
    """`reference.sequence` as one operator: a compiler does not look inside, it may be `graphed`, and the gradient is
    ours."""
    tensors = call.tensors() if torch.compiler.is_compiling() else kept(call.tensors())
    return result_of(call, torch.ops.mufuru.forward(*tensors, *options_of(call, on_reference=True)))


def filled(tensors: Iterable[Tensor | None], like: Tensor) -> tuple[Tensor, ...]:
    """Return an operator's outputs: tensors all, and no two the same, not even the empty one."""
    return tuple(
        like.new_empty(0) if tensor is None else tensor if tensor.numel() else torch.empty_like(tensor)
        for tensor in tensors
    )


def keepable(args: Iterable[Any]) -> list[Any]:
    """Return the arguments, with copies of inference tensors: torch does not keep those for a backward pass."""
    if torch._C._get_tracing_state():
        return list(args)  # torch.jit.trace runs a second time, with copies, and compares
    if torch._C._are_functorch_transforms_active():
        return [arg.clone() if isinstance(arg, Tensor) and _unwrapped(arg).is_inference() else arg for arg in args]
    return [arg.clone() if isinstance(arg, Tensor) and arg.is_inference() else arg for arg in args]


def kept(inputs: Iterable[Any]) -> list[Any]:
    """The inputs as a backward pass may keep them. A leaf is kept as a view: before that pass a program may give the
    parameter other data, of another type or shape even, by `.data =` or `.half()`."""
    tensors = keepable(inputs)
    if not torch.is_grad_enabled() or torch._C._get_tracing_state():
        return tensors
    leaves = (arg if arg is None or not arg.is_leaf else arg.view_as(arg) for arg in tensors[:N_DIFFERENTIABLE])
    return [*leaves, *tensors[N_DIFFERENTIABLE:]]


def _unwrapped(tensor: Tensor) -> Tensor:
    """The tensor without the wrappers of function transforms."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def one_by_one(function: Any, size: int, in_dims: tuple[int | None, ...], args: tuple[Any, ...]) -> Any:
    """Map over a dimension by running the function for each of its entries."""
    args = tuple(keepable(args))
    rows = [
        function(*(arg.select(dim, i) if isinstance(dim, int) else arg for arg, dim in zip(args, in_dims, strict=True)))
        for i in range(size)
    ]
    return tuple(torch.stack(parts) for parts in zip(*rows, strict=True)), (0,) * len(rows[0])


def needed(
    result: Sequence[Tensor | None], tensors: Sequence[Tensor | None], needs: Sequence[bool]
) -> list[Tensor | None]:
    """Return a gradient for each input, `None` where none is needed or possible."""
    grads = [
        grad if need and tensor is not None else None
        for grad, tensor, need in zip(result, tensors, needs, strict=False)
    ]  # fmt: skip
    return [*grads, *[None] * (N_INPUTS - len(grads))]


def _forward(*args: Any) -> tuple[Tensor, ...]:
    tensors, options = args[:N_INPUTS], options_from(args[N_INPUTS:])
    custom.check_in_graph(options.codes, native=not options.on_reference)
    if options.on_reference:
        out = _graphed(lambda given: _forward_on_reference(given, options), ("forward", options), tensors)
        return filled([*out, *[None] * len(SAVED)], tensors[1])
    return filled(compute.forward_of_any(_call_again(tensors, options)), tensors[1])


def _backward(*args: Any) -> tuple[Tensor, ...]:
    grads, tensors, options, saved, needs_x = parted(args)
    custom.check_in_graph(options.codes, native=not options.on_reference)
    if options.on_reference:
        gradients = _graphed(
            lambda given: _backward_on_reference(given[:N_GRADS], given[N_GRADS:], options, needs_x),
            ("backward", options, needs_x), (*grads, *tensors),
        )  # fmt: skip
    else:
        gradients = compute.backward(grads, _call_again(tensors, options), saved, needs_x)
    return filled(gradients, tensors[1])


def _graphed(function: graphed.Function, key: Any, tensors: Sequence[Any]) -> list[Tensor | None]:
    """Run by a captured graph where one can be: operations written in Python may close over anything."""
    own = max(key[1].codes) >= CUSTOM
    return function(tensors) if own or not graphed.usable(tensors) else graphed.run(function, key, tensors)


def _forward_on_reference(tensors: Sequence[Any], options: Options) -> list[Tensor | None]:
    return [None if tensor is None else fresh(tensor) for tensor in reference.sequence(call_of(tensors, options))]


def _blocks(options: Options) -> int:
    """Blocks of rows before the operations': features, and the reset gate if there is one."""
    return 1 if options.reset == RESETS[None] else 2


def _backward_on_reference(
    grads: Sequence[Tensor | None], tensors: Sequence[Any], options: Options, needs_x: bool
) -> list[Tensor | None]:
    """All steps once more, as plain autograd takes them."""
    with custom.differentiating():
        leaves = [None if tensor is None else _leaf(tensor, False) for tensor in tensors[:N_DIFFERENTIABLE]]
        call = call_of((*leaves, *tensors[N_DIFFERENTIABLE:]), options)
        gradients = _products(call, grads, create_graph=False)
    wanted = [tensors[0] if needs_x else None, *tensors[1:N_DIFFERENTIABLE]]
    return [
        None if like is None else fresh(torch.zeros_like(like) if grad is None else grad)
        for grad, like in zip(gradients, wanted, strict=True)
    ]


def options_from(args: Sequence[Any]) -> Options:
    return Options(tuple(args[0]), *args[1:])


def parted(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...], Options, tuple[Any, ...], bool]:
    """Part the arguments of a backward operator: gradients, inputs, options, saved tensors, whether x needs one."""
    a, b, c = N_GRADS, N_GRADS + N_INPUTS, N_GRADS + N_INPUTS + N_OPTIONS
    return args[:a], args[a:b], options_from(args[b:c]), args[c:-1], args[-1]


def count(shapes: Sequence[Any]) -> int:
    """Multiplications and additions, from the shapes of the inputs: every row uses every weight once."""
    products = [row.role == "weight" and len(row.shape) == 2 for row in INPUTS]
    used = sum(shape[0] * shape[1] for shape, counts in zip(shapes, products, strict=False) if counts and shape)
    return 2 * int(shapes[0][0]) * int(used)


# the gradients by the states and by the weights take as much as the forward pass each
register_flop_formula(torch.ops.mufuru.forward)(lambda *args, **_: count(args))
register_flop_formula(torch.ops.mufuru.backward)(lambda *args, **_: 2 * count(args[N_GRADS:]))
_library.impl("forward", _forward, "CompositeExplicitAutograd")
_library.impl("backward", _backward, "CompositeExplicitAutograd")


def mapped(operator: Any) -> Any:
    """The rule by which `vmap` runs the operator."""

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        return one_by_one(operator, info.batch_size, in_dims, args)

    return rule


torch.library.register_vmap("mufuru::forward", mapped(torch.ops.mufuru.forward), lib=_library)
torch.library.register_vmap("mufuru::backward", mapped(torch.ops.mufuru.backward), lib=_library)


def _forward_fake(*args: Any) -> tuple[Tensor, ...]:
    options = options_from(args[N_INPUTS:])
    given = {row.name: tensor for row, tensor in zip(INPUTS, args, strict=False)}
    x, s0, kk = given["x"], given["s0"], given["kk"]
    controller = 0 if kk is None else kk.size(0)
    sizes = named_sizes(x.size(1), s0.size(1), controller, len(options.codes), _blocks(options))
    sizes |= {"total": x.size(0), "batch": s0.size(0)}
    there = {"controller": kk is not None, "after": options.reset == RESETS["after"]}
    facts = frozenset(fact for fact, holds in there.items() if holds)
    return filled(compute.empty_outputs(s0, sizes, facts, options.trace, keep=not options.on_reference), s0)


def _backward_fake(*args: Any) -> tuple[Tensor, ...]:
    _, tensors, _, _, needs_x = parted(args)
    return empty_gradients(tensors, needs_x)


def empty_gradients(tensors: Sequence[Any], needs_x: bool) -> tuple[Tensor, ...]:
    """Return tensors of the sizes of the gradients by the inputs; an empty one where there is none."""
    like = [tensors[0] if needs_x else None, *tensors[1:N_DIFFERENTIABLE]]
    return tuple(
        tensors[1].new_empty(0) if tensor is None else torch.empty_like(tensor, memory_format=torch.contiguous_format)
        for tensor in like
    )


class Gradient(torch.autograd.Function):
    """The gradient as a separate function of settings, whether x needs one, gradients, inputs and saved tensors; with
    second derivatives by the reference kernel."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*inputs[2 : 2 + N_GRADS + N_INPUTS])
        ctx.settings, ctx.saved = inputs[0], len(inputs) - 2 - N_GRADS - N_INPUTS
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, None, *second_derivatives(ctx.settings.call, ctx.saved_tensors, grads), *[None] * ctx.saved


torch.library.register_fake("mufuru::forward", _forward_fake, lib=_library)
torch.library.register_fake("mufuru::backward", _backward_fake, lib=_library)


def _setup_forward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:N_INPUTS], output[0], *output[N_GRADS:])
    ctx.options = inputs[N_INPUTS:]


def _differentiate_forward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    saved, needs = ctx.saved_tensors, ctx.needs_input_grad
    tensors, kept = saved[:N_INPUTS], saved[N_INPUTS:]
    result = torch.ops.mufuru.backward(*grads[:N_GRADS], *tensors, *ctx.options, *kept, needs[0])
    return *needed(result, tensors, needs), *[None] * N_OPTIONS


torch.library.register_autograd("mufuru::forward", _differentiate_forward, setup_context=_setup_forward, lib=_library)


def differentiate_twice(name: str, library: Any) -> None:
    """Register the second derivatives of a backward operator."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        grads, tensors, options, saved, _ = parted(inputs)
        ctx.save_for_backward(*grads, *tensors)
        ctx.options, ctx.saved = options, len(saved)

    def differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        second = second_derivatives(lambda tensors: call_of(tensors, ctx.options), ctx.saved_tensors, grads)
        return *second, *[None] * (N_OPTIONS + ctx.saved + 1)

    torch.library.register_autograd(name, differentiate, setup_context=setup, lib=library)


differentiate_twice("mufuru::backward", _library)


def second_derivatives(
    call_with: Callable[[Sequence[Any]], Call], saved: Sequence[Tensor | None], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradient of <grads, vector-Jacobian product> by the cotangents and the inputs, by the reference kernel."""
    if torch._C._are_functorch_transforms_active():
        return _second_derivatives_in_transforms(call_with, saved, grads)
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves: list[Any] = [t if t is None or not t.is_floating_point() else _leaf(t, differentiable) for t in saved]
        products = _products(call_with(leaves[N_GRADS:]), leaves[:N_GRADS], create_graph=True)
        pairs = [(p, g) for p, g in zip(products, grads, strict=True) if p is not None and g is not None]
        pairs = [(p, g) for p, g in pairs if p.requires_grad and p.shape == g.shape]
        second = _gradients(pairs, leaves[: N_GRADS + N_DIFFERENTIABLE], create_graph=differentiable)
    return [*second, *[None] * (N_INPUTS - N_DIFFERENTIABLE)]


def _second_derivatives_in_transforms(
    call_with: Callable[[Sequence[Any]], Call], saved: Sequence[Tensor | None], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """`second_derivatives` by transforms: within them no tensor can be made to require a gradient."""
    there = {i: tensor for i, tensor in enumerate(saved[: N_GRADS + N_DIFFERENTIABLE]) if tensor is not None}
    places = tuple(there)
    weighted = {i: grad for i, grad in enumerate(grads, N_GRADS) if grad is not None and i in there}
    weighted = {i: grad for i, grad in weighted.items() if there[i].shape == grad.shape}
    if not weighted:
        return [None] * (N_GRADS + N_INPUTS)

    def outputs(*variables: Tensor) -> Tensor:
        given = [*saved]
        for i, variable in zip(places, variables, strict=True):
            given[i] = variable
        result = reference.sequence(call_with(given[N_GRADS:])._replace(trace=True))
        pairs = [(out, c) for out, c in zip(result, given, strict=False) if out is not None and c is not None]
        return torch.stack([(out * c).sum() for out, c in pairs if out.shape == c.shape]).sum()

    def slopes(*variables: Tensor) -> Tensor:
        by = tuple(position for position, i in enumerate(places) if i in weighted)
        products = torch.func.grad(outputs, by)(*variables)
        return torch.stack([(p * g).sum() for p, g in zip(products, weighted.values(), strict=True)]).sum()

    second = dict(zip(places, torch.func.grad(slopes, tuple(range(len(places))))(*there.values()), strict=True))
    return [second.get(i) for i in range(N_GRADS + N_INPUTS)]


def _products(call: Call, cotangents: Sequence[Tensor | None], create_graph: bool) -> list[Tensor | None]:
    """The vector-Jacobian products by the inputs, by the reference kernel."""
    result = reference.sequence(call._replace(trace=True))
    pairs = [(out, c) for out, c in zip(result, cotangents, strict=True) if out is not None and c is not None]
    pairs = [(out, c) for out, c in pairs if out.shape == c.shape]
    return _gradients(pairs, call.tensors()[:N_DIFFERENTIABLE], create_graph)


def _leaf(tensor: Tensor, differentiable: bool) -> Tensor:
    """The tensor as a separate variable; still part of the graph when third derivatives are wanted."""
    return tensor.view_as(tensor) if differentiable and tensor.requires_grad else tensor.detach().requires_grad_()


def _gradients(
    pairs: list[tuple[Tensor, Tensor]], inputs: Sequence[Tensor | None], create_graph: bool
) -> list[Tensor | None]:
    """Gradients by those inputs that are there, from pairs of outputs and their cotangents."""
    present = [tensor for tensor in inputs if tensor is not None]
    if not pairs:
        return [None] * len(inputs)
    outputs, cotangents = zip(*pairs, strict=True)
    grads = iter(torch.autograd.grad(outputs, present, cotangents, create_graph=create_graph, allow_unused=True))
    return [None if tensor is None else next(grads) for tensor in inputs]
