"""Operations written in Python, inside the native kernel: their values step by step, their derivatives all at once.

That needs an operation to be element-wise, deterministic, and without parameters of its own; `obstacle` tries it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from mufuru.kernels.call import Call, Result, known_when_traced
from mufuru.kernels.problem import Problem, loaded
from mufuru.ops import CUSTOM, Op, with_code

_obstacles: weakref.WeakKeyDictionary[Op, Obstacle] = weakref.WeakKeyDictionary()
_in_graphs: set[Op] = set()
"""Operations that a compiled graph calls by their codes: the graph may outlive the layer."""


class Probe(NamedTuple):
    """One call of an operation on fixed numbers, to see whether the operation has changed."""

    value: Tensor
    trains: bool
    """Whether it has parameters of its own that require a gradient."""
    draws: bool
    """Whether it drew from torch's generator."""
    writes: bool
    """Whether it changed its arguments in place."""

    def is_as(self, other: Probe) -> bool:
        return self[1:] == other[1:] and (self.draws or _same(self.value, other.value))


class Obstacle(NamedTuple):
    """Why the native kernel cannot run an operation; empty if it can."""

    probe: Probe
    """The operation as it was when it was tried."""
    reason: str = ""
    repeatable: bool = True
    """Whether running it again gives the same value and gradients, as a graph requires."""


@known_when_traced
def obstacle(code: int) -> str:
    """Return why the native kernel cannot run this operation; empty if it can."""
    return _obstacle(with_code(code)).reason


@known_when_traced
def may_be_in_graphs(code: int) -> bool:
    """Return whether a graph may call the operation by its code, in the backward pass too; then it is kept alive."""
    op = with_code(code)
    repeatable = _obstacle(op).repeatable
    if repeatable:
        _in_graphs.add(op)
    return repeatable


def check_in_graph(codes: tuple[int, ...], native: bool) -> None:
    """Refuse an operation that has changed since a graph was made that calls it by its code."""
    with differentiating():
        for op in _callables(codes):
            tried = _obstacle(op)
            if not tried.repeatable or (native and tried.reason):
                raise RuntimeError(
                    f"operation {op.name!r} has changed since the graph was made: it trains parameters, draws random "
                    "numbers or is not element-wise now. Compile again, after torch.compiler.reset()"
                )


def probes(codes: tuple[int, ...]) -> list[tuple[Op, Probe]]:
    """Probe the operations written in Python, in the forward pass."""
    return [(op, _probe(op)) for op in _callables(codes)]


def check_unchanged(before: Iterable[tuple[Op, Probe]]) -> None:
    """Refuse a backward pass if an operation has changed since the forward pass."""
    for op, probe in before:
        now = _probe(op)
        if now.draws or not _same(now.value, probe.value):
            raise RuntimeError(
                f"operation {op.name!r} gives other values than in the forward pass, so that gradients would be wrong: "
                "change it after the backward pass, or use kernel='reference'"
            )


def _obstacle(op: Op) -> Obstacle:
    """Return the result of the trial, repeated if the operation has changed: a parameter thawed, a module's mode."""
    # the trial needs gradients, also where the layer has none; a checkpoint around must not count what it saves
    with torch.inference_mode(False), torch.enable_grad(), saved_tensors_hooks(_as_it_is, _as_it_is):
        probe = _probe(op)
        if op not in _obstacles or not probe.is_as(_obstacles[op].probe):
            _obstacles[op] = _try(op, probe)
    return _obstacles[op]


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def _probe(op: Op) -> Probe:
    """Leaves torch's generator as it was, so that a seed means the same on every kernel."""
    s, v = (numbers.clone() for numbers in _numbers())
    generator = torch.default_generator
    state, versions = generator.get_state(), (s._version, v._version)
    with torch.enable_grad():
        value = op(s, v)
    # the generator is the process's: another thread may have drawn
    draws = not torch.equal(state, generator.get_state()) and _draws(op, s, v)
    if draws:
        generator.set_state(state)
    return Probe(value.detach(), value.requires_grad, draws, versions != (s._version, v._version))


class _Draws(TorchDispatchMode):
    """Notes whether an operator that runs inside draws from a generator."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen = self.seen or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def _draws(op: Op, s: Tensor, v: Tensor) -> bool:
    mode = _Draws()
    with mode:
        op(s, v)
    return mode.seen


@functools.cache
def _numbers() -> tuple[Tensor, Tensor]:
    """States and features of both signs and of every size that a layer meets: a limit that an operation clamps to may
    lie far from 0."""
    with torch.inference_mode(False):
        sizes = torch.logspace(-4, 6, 256, device="cpu", dtype=torch.float64).float()
        s = torch.cat((sizes, -sizes))
        # every number beside one of another size
        return s.view(-1, 4), s[torch.arange(512, device="cpu") * 197 % 512].view(-1, 4)


def _try(op: Op, probe: Probe) -> Obstacle:
    if probe.trains:
        reason = f"operation {op.name!r} has parameters of its own, which the native kernel would not train"
        return Obstacle(probe, reason, repeatable=False)
    if probe.draws:
        reason = f"operation {op.name!r} does not give the same value twice: it draws random numbers"
        return Obstacle(probe, reason, repeatable=False)
    if probe.writes:
        return Obstacle(probe, f"operation {op.name!r} changes its arguments in place")
    s, v = (_sample(seed).requires_grad_() for seed in (1, 2))
    value = op(s, v)
    if not _same(value, op(s, v)):
        return Obstacle(probe, f"operation {op.name!r} does not give the same value twice", repeatable=False)
    if not _alone(op, s.detach(), v.detach(), value.detach()) or not _separable(value, (s, v)):
        return Obstacle(probe, f"operation {op.name!r} is not element-wise")
    return Obstacle(probe)


def _sample(seed: int) -> Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(seed), device="cpu")


def _alone(op: Op, s: Tensor, v: Tensor, value: Tensor) -> bool:
    """Return whether each element keeps its value when its row stands alone and when all other elements change."""
    rows = torch.cat([op(s[i : i + 1], v[i : i + 1]) for i in range(len(s))])
    others = torch.empty_like(value)
    for i in range(s.numel()):
        changed = _sample(3), _sample(4)
        for tensor, own in zip(changed, (s, v), strict=True):
            tensor.view(-1)[i] = own.view(-1)[i]
        others.view(-1)[i] = op(*changed).view(-1)[i]
    # vectors of other lengths may round differently
    return all(torch.allclose(values, value, rtol=1e-5, atol=1e-6, equal_nan=True) for values in (rows, others))


def _separable(value: Tensor, inputs: tuple[Tensor, Tensor]) -> bool:
    """Return whether no element of the value has a derivative by another place's inputs."""
    if not value.requires_grad:
        return True
    for position, element in enumerate(value.flatten()):
        for grad in torch.autograd.grad(element, inputs, retain_graph=True, allow_unused=True):
            if grad is not None and grad.flatten().count_nonzero() > (grad.flatten()[position] != 0):
                return False
    return True


def local_codes(codes: tuple[int, ...]) -> tuple[int, ...]:
    """The codes as the library takes them: Python operations numbered by their place in the value arrays."""
    places = {code: CUSTOM + place for place, code in enumerate(code for code in codes if code >= CUSTOM)}
    return tuple(places.get(code, code) for code in codes)


def forward(problem: Problem, call: Call, out: Result, gates: Tensor) -> None:
    """Run each step in three parts: gates in the library, values in Python, the new state in the library."""
    ops = _callables(call.unit.codes)
    s, k, resets, sizes = call.s0.clone(), call.k0, call.masks.resets, call.sizes()
    starts = [0, *accumulate(sizes)]
    values = out.output.new_empty(len(ops), starts[-1], out.output.size(1))  # no padding: the library has none
    problem.point("custom", values)
    for t in reversed(range(len(sizes))) if call.reverse else range(len(sizes)):
        rows, alive = slice(starts[t], starts[t] + sizes[t]), sizes[t]
        if resets is not None:
            s[:alive] = torch.where(resets[rows, None], call.s0[:alive], s[:alive])
        loaded().mufuru_activate(problem.address, t)
        v = gates[rows, : s.size(1)]
        for place, op in enumerate(ops):
            values[place, rows] = op(s[:alive], v)
        loaded().mufuru_compose(problem.address, t)
        s[:alive] = out.output[rows]
        if k is not None:
            k = torch.cat([gates[rows, -k.size(1) :], k[alive:]])
    out.s_n.copy_(s)
    if k is not None and out.k_n is not None:
        out.k_n.copy_(k)


def derivatives(codes: tuple[int, ...], s: Tensor, v: Tensor) -> list[Tensor]:
    """Values and partial derivatives by s and by v of the Python operations for all steps, in one batched call each."""
    derived: list[tuple[Tensor, Tensor, Tensor]] = []
    with differentiating():
        s, v = s.detach().requires_grad_(), v.detach().requires_grad_()
        for op in _callables(codes):
            value = op(s, v)
            total = value.sum()
            ds, dv = torch.autograd.grad(total, (s, v), allow_unused=True) if total.requires_grad else (None, None)
            zero = torch.zeros_like(s)
            derived.append((value.detach(), zero if ds is None else ds, zero if dv is None else dv))
        return [torch.stack(parts) for parts in zip(*derived, strict=True)]


BEHIND = (
    DispatchKey.AutogradFunctionality,
    DispatchKey.ADInplaceOrView,
    DispatchKey.Conjugate,
    DispatchKey.Negative,
    DispatchKey.ZeroTensor,
)
"""Keys that the dispatcher may exclude inside an operator."""


@contextmanager
def differentiating() -> Iterator[None]:
    """Enable gradients, also inside an operator, where the dispatcher excludes autograd. Inside a tensor subclass it
    excludes negative and zero tensors too, and would read their memory as their numbers."""
    include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    for key in BEHIND:
        exclude = exclude.remove(key)
    with torch._C._ForceDispatchKeyGuard(include, exclude), torch.enable_grad():
        yield


def _callables(codes: tuple[int, ...]) -> list[Op]:
    return [with_code(code) for code in codes if code >= CUSTOM]
