"""Operations as Triton functions, generated from their Python: traced with their derivatives, where all is known."""

from __future__ import annotations

import hashlib
import linecache
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._decomp import get_decompositions
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import make_fx

from mufuru.kernels import custom
from mufuru.kernels.triton import pointwise
from mufuru.ops import Op, with_code

aten = torch.ops.aten


class Translation(NamedTuple):
    """A Triton function (s, v) -> value and derivatives, or the reason why there is none."""

    probe: custom.Probe | None
    """The operation of a user as it was when it was traced; None for one of the table, which never changes."""
    function: Any
    reason: str = ""


_translations: weakref.WeakKeyDictionary[Op, Translation] = weakref.WeakKeyDictionary()


def translation(code: int) -> Translation:
    """Return the operation in Triton. It is traced anew when it has become another function."""
    op, known = with_code(code), _translations.get(with_code(code))
    probe = next((probe for _, probe in custom.probes((code,))), None)
    if known is None or (probe and known.probe and not probe.is_as(known.probe)):
        try:
            known = Translation(probe, _compiled(_source(_traced(op))))
        except _UnknownError as error:
            known = Translation(probe, None, f"operation {op.name!r} {error}")
        _translations[op] = known
    return known


class _UnknownError(Exception):
    """The rest of a sentence that begins with the operation."""


def _traced(op: Op) -> Graph:
    """Value and derivatives as a graph of torch's operators. No number is known while it is traced, and no size."""

    def everything(s: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        value, pull = torch.func.vjp(op.function, s, v)[:2]
        return value, *pull(torch.ones_like(value))

    s, v = (torch.linspace(first, -first, 35, device="cpu").view(5, 7) for first in (-0.9, 0.8))
    try:
        with torch.inference_mode(False), torch.enable_grad():
            pure = torch.func.functionalize(everything, remove="mutations_and_views")
            graph: Graph = make_fx(pure, _DECOMPOSED, tracing_mode="symbolic")(s, v).graph
    except Exception as error:
        raise _UnknownError(f"cannot be traced to Triton ({type(error).__name__})") from error
    graph.eliminate_dead_code()
    return graph


_DECOMPOSED: Any = get_decompositions([
    aten.tanh_backward, aten.sigmoid_backward, aten.threshold_backward, aten.silu, aten.silu_backward, aten.elu,
    aten.elu_backward, aten.softplus, aten.softplus_backward, aten.hardtanh, aten.hardtanh_backward, aten.lerp,
    aten.leaky_relu, aten.leaky_relu_backward, aten.gelu, aten.gelu_backward, aten.addcmul, aten.rsub, aten.masked_fill,
    aten.hardsigmoid, aten.hardsigmoid_backward, aten.square, aten.logaddexp,
])  # fmt: skip


def _signed(name: str) -> Callable[..., str]:
    return lambda a, b: f"({a} {name} {b})"


def _scaled(sign: str) -> Callable[..., str]:
    return lambda a, b, alpha="1": f"({a} {sign} {b})" if alpha == "1" else f"({a} {sign} {alpha} * {b})"


def _called(name: str) -> Callable[..., str]:
    return lambda a: f"{name}({a})"


def _power(a: str, exponent: str) -> str:
    number = float(exponent)
    if number in (1, 2, 3, 4):
        return f"({' * '.join([a] * int(number))})"
    if number in (0.5, -0.5, -1, -2):
        roots = {0.5: f"tl.sqrt({a})", -0.5: f"(1.0 / tl.sqrt({a}))"}
        return (roots | {-1: f"(1.0 / {a})", -2: f"(1.0 / ({a} * {a}))"})[number]
    raise _UnknownError(f"uses a power of {exponent}, which has no translation to Triton")


def _clamp(a: str, low: str = "None", high: str = "None") -> str:
    if low != "None":
        a = f"tl.where({a} < {low}, {low}, {a})"
    return a if high == "None" else f"tl.where({a} > {high}, {high}, {a})"


def _log1p(a: str) -> str:
    # exact to the last bits near 0, as Kahan has it
    return f"tl.where({a} + 1.0 == 1.0, {a}, tl.log({a} + 1.0) * {a} / ({a} + 1.0 - 1.0))"


def _expm1(a: str) -> str:
    e = f"tl.exp({a})"
    return f"tl.where({e} == 1.0, {a}, tl.where(tl.abs({a}) > 0.5, {e} - 1.0, ({e} - 1.0) * {a} / tl.log({e})))"


def _full(value: str) -> str:
    return f"tl.full(s.shape, {value}, tl.float32)"


_KNOWN: dict[str, Callable[..., str]] = {
    "add": _scaled("+"), "sub": _scaled("-"), "mul": _signed("*"), "div": _signed("/"),
    "gt": _signed(">"), "lt": _signed("<"), "ge": _signed(">="), "le": _signed("<="), "eq": _signed("=="),
    "ne": _signed("!="), "logical_and": _signed("&"), "logical_or": _signed("|"), "bitwise_and": _signed("&"),
    "bitwise_or": _signed("|"), "logical_not": lambda a: f"({a} == 0)", "bitwise_not": lambda a: f"({a} == 0)",
    "neg": lambda a: f"(-{a})", "abs": _called("tl.abs"), "exp": _called("tl.exp"),
    "log": _called("tl.log"), "log1p": _log1p, "expm1": _expm1, "sqrt": _called("tl.sqrt"),
    "sin": _called("tl.sin"), "cos": _called("tl.cos"),
    "erf": _called("tl.erf"), "sigmoid": _called("sigmoid"), "tanh": lambda a: f"activate({a}, 0)",
    "relu": lambda a: f"activate({a}, 2)", "reciprocal": lambda a: f"(1.0 / {a})",
    "rsqrt": lambda a: f"(1.0 / tl.sqrt({a}))", "pow": _power, "clamp": _clamp,
    "clamp_min": lambda a, low: _clamp(a, low), "clamp_max": lambda a, high: _clamp(a, "None", high),
    "maximum": lambda a, b: f"tl.where(({a} > {b}) | ({a} != {a}), {a}, {b})",
    "minimum": lambda a, b: f"tl.where(({a} < {b}) | ({a} != {a}), {a}, {b})",
    "where": lambda c, a, b: f"tl.where({c}, {a}, {b})",
    "sign": lambda a: f"tl.where({a} > 0, 1.0, tl.where({a} < 0, -1.0, 0.0))",
    "sgn": lambda a: f"tl.where({a} > 0, 1.0, tl.where({a} < 0, -1.0, 0.0))",
    "zeros_like": lambda a: _full("0.0"), "empty_like": lambda a: _full("0.0"), "fill": lambda a, value: _full(value),
    "ones_like": lambda a: _full("1.0"), "full_like": lambda a, value: _full(value),
    "scalar_tensor": _full, "new_full": lambda a, size, value: _full(value), "full": lambda size, value: _full(value),
    "masked_fill": lambda a, c, value: f"tl.where({c}, {value}, {a})", "_to_copy": lambda a: f"({a}).to(tl.float32)",
    "clone": lambda a: a, "detach": lambda a: a, "alias": lambda a: a,
}  # fmt: skip


def _source(graph: Graph) -> str:
    """The graph as the body of a Triton function."""
    names: dict[Node, str] = {}
    lines: list[str] = []

    def text(arg: Any) -> str:
        if isinstance(arg, Node):
            return names[arg]
        if arg is None or isinstance(arg, bool | int) or arg == []:
            return repr(arg)
        if isinstance(arg, float):
            return repr(arg) if arg == arg and abs(arg) != float("inf") else f"float('{arg}')"
        raise _UnknownError("uses an argument that has no translation to Triton")

    for node in graph.nodes:
        if node.op == "placeholder":
            names[node] = ("s", "v")[len(names)]
        elif node.op == "output":
            lines.append("return " + ", ".join(text(arg) for arg in node.args[0]))
        else:
            names[node] = f"a{len(lines)}"
            lines.append(f"{names[node]} = {_expression(node, text)}")
    return "\n    ".join(lines)


def _expression(node: Node, text: Callable[[Any], str]) -> str:
    packet = getattr(node.target, "overloadpacket", None)
    name = "" if packet is None else str(packet).removeprefix("aten.")
    if node.op != "call_function" or name not in _KNOWN:
        raise _UnknownError(f"uses {name or node.target}, which has no translation to Triton")
    if name == "_to_copy" and node.kwargs.get("dtype") not in (None, torch.float32):
        raise _UnknownError("changes its dtype, which has no translation to Triton")
    options = {"alpha": text(node.kwargs["alpha"])} if "alpha" in node.kwargs else {}
    try:
        return _KNOWN[name](*map(text, node.args), **options)
    except TypeError:
        raise _UnknownError(f"uses {name} with options that have no translation to Triton") from None


def _compiled(body: str) -> Any:
    """A Triton function, named by what it does: Triton's cache of compiled kernels knows it by its name."""
    name = f"own_{hashlib.sha256(body.encode()).hexdigest()[:16]}"
    source = f"def {name}(s, v):\n    {body}\n"
    # Triton reads the source of a function where Python's tracebacks read it
    file = f"<mufuru {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, Any] = {
        "__name__": __name__, "tl": tl, "sigmoid": pointwise.sigmoid, "activate": pointwise.activate,
    }  # fmt: skip
    exec(compile(source, file, "exec"), scope)
    return triton.jit(scope[name])
