"""The tensors of a case, and the programs that use a layer on them, one for each mode."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from random import Random
from typing import Any

import torch
from fuzz_cases import MAPPED, SUFFIX, Case
from fuzz_tensors import KINDS, READABLE, VALUES
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence

Tensors = dict[str, Tensor]


class Program:
    """A case's module and tensors."""

    def __init__(self, case: Case, module: nn.Module, tensors: Tensors) -> None:
        self.case, self.module, self.tensors = case, module, tensors
        self.names = [name for name, _ in module.named_parameters()]

    def call(self, tensors: Tensors) -> Tensors:
        """All that the layer returns, by name."""
        case, hx = self.case, tensors.get("hx")
        more: dict[str, Any] = {}
        given: Any = (hx, tensors["hx" + SUFFIX]) if "hx" + SUFFIX in tensors else hx
        x: Any = tensors["input"]
        if case.resets:
            more["resets"] = _resets(case)
        if case.form == "packed":
            packing = _packing(case)
            x, more = PackedSequence(x, *packing), {name: PackedSequence(t, *packing) for name, t in more.items()}
        elif case.form == "lengths":
            more["lengths"] = torch.tensor(case.lengths, dtype=torch.int64)
        weights = {name: tensors[name] for name in self.names if name in tensors}
        found = functional_call(self.module, weights, (x, given), more)
        output, state = (None, found) if case.cell else found
        named = {} if output is None else {"output": output.data if case.form == "packed" else output}
        pair = state if isinstance(state, tuple) else (state,)
        return named | dict(zip(("h_n", "h_n" + SUFFIX), pair, strict=False))

    def wanted(self) -> Tensors:
        return {name: tensor for name, tensor in self.tensors.items() if tensor.requires_grad}


def _packing(case: Case) -> tuple[Tensor, Tensor | None, Tensor | None]:
    sizes = [sum(length > step for length in case.lengths) for step in range(case.steps)]
    order = torch.randperm(case.batch, generator=torch.Generator().manual_seed(case.number))
    return torch.tensor(sizes), *((order, order.argsort()) if case.number % 2 else (None, None))


def _resets(case: Case) -> Tensor:
    """Every other element of a tensor. Not from torch's generator: inside `vmap` that may draw for each entry."""
    random = Random(case.number)
    shape = (sum(case.lengths),) if case.form == "packed" else (case.steps, case.batch)
    numbers = [random.random() < 0.4 for _ in range(2 * math.prod(shape))]
    drawn = torch.tensor(numbers, dtype=torch.bool).view(*shape, 2)[..., 0]
    if case.form == "unbatched":
        return drawn[:, 0]
    return drawn.t() if case.options.get("batch_first") and case.form != "packed" else drawn


def make_tensors(case: Case, plain: bool) -> Tensors:
    """By name; plain ones have the numbers of the others."""
    generator = torch.Generator().manual_seed(case.number)
    made: Tensors = {}
    for name, shape in case.shapes.items():
        t = torch.randn(shape, generator=generator, dtype=torch.float64).mul_(0.5).to(case.dtypes.get(name, case.dtype))
        t = VALUES[case.values[name]](t) if name in case.values else t
        kind = case.kinds.get(name, "plain")
        with warnings.catch_warnings():  # torch calls some kinds prototypes or deprecated
            warnings.simplefilter("ignore")
            held = KINDS[kind].make(t.clone())
        if plain:
            held = torch.empty(shape, dtype=t.dtype).copy_(held.detach()) if kind in READABLE else t
        held = held.requires_grad_() if name in case.wanted else held.detach() if held.requires_grad else held
        made[name] = held
    weights = [name for name in made if name.startswith(("weight", "bias"))]
    _arrange(made, weights, case.layout)
    if case.parameters:
        made |= {name: nn.Parameter(made[name], made[name].requires_grad) for name in weights if made[name].is_leaf}
    return made


def _arrange(made: Tensors, weights: list[str], layout: str) -> None:
    """Parts of one tensor, or one tensor for all of a shape."""
    if layout == "flat":
        flat = torch.cat([made[name].detach().flatten() for name in weights])
        parts = flat.split([made[name].numel() for name in weights])
        for name, part in zip(weights, parts, strict=True):
            made[name] = part.view(made[name].shape).requires_grad_(made[name].requires_grad)
    elif layout == "tied":
        first: dict[tuple[int, ...], Tensor] = {}
        made |= {name: first.setdefault(tuple(made[name].shape), made[name]) for name in weights}


def _grad(
    p: Program,
    around: Any = nullcontext(),  # noqa: B008
    between: Callable[[], None] = lambda: None,
    **options: Any,
) -> Tensors:
    with around:
        outputs = p.call(p.tensors)
    between()
    wanted = p.wanted()
    roots = {name: output for name, output in outputs.items() if output.requires_grad}
    if not wanted or not roots:
        return outputs
    incoming = [p.tensors["gradient of " + name].to(root.dtype) for name, root in roots.items()]
    found = torch.autograd.grad(
        list(roots.values()), list(wanted.values()), incoming, materialize_grads=True, **options
    )  # fmt: skip
    return outputs | {f"gradient of {name}": grad for name, grad in zip(wanted, found, strict=True)}


def _batched(p: Program) -> Tensors:
    found = _grad(p, is_grads_batched=True)
    for name, shape in p.case.shapes.items():
        grad = found.get(f"gradient of {name}")
        # torch fills in for an input without a gradient, once for the whole batch
        if grad is not None and grad.shape == shape:
            found[f"gradient of {name}"] = grad.expand(MAPPED, *shape)
    return found


def _double(p: Program) -> Tensors:
    first = _grad(p, create_graph=True)
    squares = [grad.square().sum() for name, grad in first.items() if name.startswith("grad") and grad.requires_grad]
    wanted = p.wanted()
    # a gradient that depends on nothing has a gradient of 0
    found = [torch.zeros_like(tensor) for tensor in wanted.values()]
    if squares:
        found = [*torch.autograd.grad(squares, list(wanted.values()), materialize_grads=True)]
    return first | {f"second gradient of {name}": grad for name, grad in zip(wanted, found, strict=True)}


def _plain(context: Callable[[], Any]) -> Callable[[Program], Tensors]:
    def twice(p: Program) -> Tensors:
        """The second time from packed weights."""
        with context():
            first = p.call(p.tensors)
            torch.manual_seed(p.case.number)
            return {**first, **{f"again {name}": tensor for name, tensor in p.call(p.tensors).items()}}

    return twice


def _edited(p: Program) -> Tensors:
    """Weights that change between two calls: in place, by `.data`, or as other tensors."""
    with torch.no_grad():
        p.call(p.tensors)
        way = ("in place", "data", "another")[p.case.number % 3]
        for name in (name for name in p.names if name in p.tensors and name not in p.case.kinds):
            if way == "in place":
                p.tensors[name].mul_(-1.5)
            elif way == "data":
                p.tensors[name].data = p.tensors[name] * -1.5
            else:
                p.tensors[name] = p.tensors[name] * -1.5
        torch.manual_seed(p.case.number)
        return p.call(p.tensors)


def _exchanged(p: Program) -> Tensors:
    """Weights that get other memory before the backward pass."""

    def exchange() -> None:
        for name in (name for name in p.names if name in p.tensors and name not in p.case.kinds):
            p.tensors[name].data = p.tensors[name].detach() * -1.5

    return _grad(p, between=exchange)


def _autocast(p: Program) -> Tensors:
    return _grad(p, torch.autocast("cpu", dtype=torch.bfloat16))


def _loss(p: Program) -> Callable[[Tensors], Tensor]:
    def loss(chosen: Tensors) -> Tensor:
        outputs = p.call(p.tensors | chosen)
        return torch.stack([output.double().square().sum() for output in outputs.values()]).sum()

    return loss


def _chosen(p: Program) -> Tensors:
    return {name: p.tensors[name] for name in p.case.chosen}


def _func_grad(p: Program) -> Tensors:
    found: Tensors = torch.func.grad(_loss(p))(_chosen(p))
    return found


def _vmap(p: Program, of: Callable[[Tensors], Any] | None = None) -> Tensors:
    call = of or (lambda chosen: p.call(p.tensors | chosen))
    found: Tensors = torch.vmap(call, in_dims=p.case.position, randomness="different")(_chosen(p))
    return found


def _vmap_grad(p: Program) -> Tensors:
    return _vmap(p, torch.func.grad(_loss(p)))


def _vmap_vjp(p: Program) -> Tensors:
    with torch.no_grad():
        outputs, pull = torch.func.vjp(lambda chosen: p.call(p.tensors | chosen), _chosen(p))[:2]
        incoming = {name: torch.stack([torch.ones_like(output), output]) for name, output in outputs.items()}
        found = torch.vmap(pull)(incoming)[0]
    return dict(outputs) | {f"gradient of {name}": grad for name, grad in found.items()}


def _jvp(p: Program) -> Tensors:
    chosen = _chosen(p)
    tangents = {name: torch.ones_like(tensor) for name, tensor in chosen.items()}
    outputs, moved = torch.func.jvp(lambda chosen: p.call(p.tensors | chosen), (chosen,), (tangents,))[:2]
    return dict(outputs) | {f"tangent of {name}": tangent for name, tangent in moved.items()}


def _functionalize(p: Program) -> Tensors:
    found: Tensors = torch.func.functionalize(p.call)(p.tensors)
    return found


PROGRAMS: dict[str, Callable[[Program], Tensors]] = {
    "grad": _grad, "no_grad": _plain(torch.no_grad), "inference_mode": _plain(torch.inference_mode),
    "edited weights": _edited, "batched gradients": _batched, "double backward": _double, "autocast": _autocast,
    "func.grad": _func_grad, "vmap": _vmap, "vmap of grad": _vmap_grad, "vmap of vjp": _vmap_vjp, "jvp": _jvp,
    "functionalize": _functionalize, "exchanged weights": _exchanged,
}  # fmt: skip
