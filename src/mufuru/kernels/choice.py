"""Which kernel runs: native where it can, else the reference; by the user's word where there is one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch._compile import _disable_dynamo  # torch.compiler.disable, without its import of the whole compiler
from torch.autograd import forward_ad

from mufuru.door import ORDINARY
from mufuru.kernels import custom, library, onnx, operators, reference, scan
from mufuru.kernels.problem import MAX_OPS
from mufuru.kernels.run import Result, Run, known_when_traced

Choice: TypeAlias = Literal["auto", "native", "reference"]
CHOICES = get_args(Choice)

Sequence: TypeAlias = Callable[[Run], Result]

_only: ContextVar[Sequence | None] = ContextVar("mufuru_sequence", default=None)
_override: ContextVar[Choice | None] = ContextVar("mufuru_kernel", default=None)


def check_choice(kernel: str) -> Any:
    if kernel not in CHOICES:
        raise ValueError(f"kernel should be one of {', '.join(map(repr, CHOICES))}, got {kernel!r}")
    return kernel


@contextmanager
def use_kernel(kernel: Choice) -> Iterator[None]:
    """Within this context every layer runs on the given kernel, whatever its own `kernel=` says.

    A compiled or exported model keeps the kernel that it was compiled with.
    """
    token = _override.set(check_choice(kernel))
    try:
        yield
    finally:
        _override.reset(token)


@contextmanager
def use_sequence(sequence: Sequence) -> Iterator[None]:
    """Within this context this function is the kernel of every layer: exporters bring their own."""
    token = _only.set(sequence)
    try:
        yield
    finally:
        _only.reset(token)


def choose(run: Run, kernel: Choice) -> Sequence:
    """The kernel that runs it. A loop over the steps, in a graph, would fix their number: there `scan` stands in."""
    if not torch.compiler.is_dynamo_compiling():
        if only := _only.get():
            return only
        if onnx.tracing():
            return onnx.sequence
    wanted = wanted_kernel(kernel)
    if wanted != "reference":
        reason = obstacle(run) or missing_library()
        if not reason:
            return operators.sequence
        if wanted == "native":
            raise RuntimeError(f"kernel='native' cannot run this: {reason}. Use kernel='auto' or 'reference'")
    if not torch.compiler.is_compiling():
        return reference.sequence
    return scan.sequence if exporting() else _in_a_graph(run)


def _in_a_graph(run: Run) -> Sequence:
    """Not `scan`, of which torch's compiler makes wrong gradients: one operator, or none if that could not be right."""
    if torch._C._are_functorch_transforms_active():
        return reference.sequence  # step by step: transforms and operators do not go together there
    return operators.opaque_reference if _may_be_in_graphs(run) else _outside_of_graphs


def _may_be_in_graphs(run: Run) -> bool:
    return all(custom.may_be_in_graphs(op.code) for op in run.unit.python_ops)


@_disable_dynamo
def _outside_of_graphs(run: Run) -> Result:
    return reference.sequence(run)


vars(_outside_of_graphs).update(
    _torchdynamo_disable=True,
    _torchdynamo_disable_msg="an operation of this layer has parameters of its own or draws random numbers, so that it "
    "runs outside of the graph: leave out fullgraph=True",
)


@known_when_traced
def wanted_kernel(kernel: Choice) -> Choice:
    """`use_kernel` has the first word, then the layer's `kernel=`, then the variable MUFURU_KERNEL."""
    wanted = _override.get() or kernel
    return check_choice(os.environ.get("MUFURU_KERNEL", "auto")) if wanted == "auto" else wanted


@known_when_traced
def missing_library() -> str:
    """Why there is no native library; empty if there is one."""
    return "" if library.load() is not None else library.status().reason


@known_when_traced
def exporting() -> bool:
    """Whether a program is made that other processes may run. What torch 2.10's compiler says itself is not true."""
    return torch.compiler.is_exporting()


def obstacle(run: Run) -> str:
    """Why the native kernel cannot do this run; empty if it can."""
    if run.x.device.type != "cpu":
        return f"it runs on the CPU, the tensors are on {run.x.device}"
    if run.x.dtype not in (torch.float32, torch.float64):
        return f"it computes in float32 and float64, got {run.x.dtype}"
    if not run.unit.hidden_size:
        return "it needs at least one unit"
    if len(run.unit.ops) > MAX_OPS:
        return f"it takes up to {MAX_OPS} operations, got {len(run.unit.ops)}"
    if forward_ad._current_level >= 0:
        return "it has no forward-mode derivatives"
    return _transform_obstacle(run) or (_python_obstacle(run) if run.unit.python_ops else "")


def _transform_obstacle(run: Run) -> str:
    if not torch._C._are_functorch_transforms_active():
        return ""
    if torch.compiler.is_compiling():
        return "a compiler cannot differentiate it inside function transforms"
    if torch._C._len_torch_dispatch_stack():
        return "what records operators would miss it inside function transforms"
    if not {type(tensor) for tensor in (run.x, run.s0, run.k0, *run.weights)} <= {*ORDINARY, type(None)}:
        return "it takes no tensor subclasses inside function transforms"
    return "functionalize has no rule for its gradient" if operators.functionalized_gradient() else ""


def _python_obstacle(run: Run) -> str:
    if exporting():
        return "a number stands for an operation written in Python, which an exported program cannot know"
    if not torch.compiler.is_compiling() and not operators.in_eager_mode((run.x, run.s0, *run.weights)):
        return "it takes operations written in Python only in plain eager mode"
    if torch.compiler.is_compiling() and not _may_be_in_graphs(run):
        return "an operation has parameters of its own or draws random numbers"
    codes = (op.code for op in run.unit.python_ops)
    return next((reason for code in codes if (reason := custom.obstacle(code))), "")
