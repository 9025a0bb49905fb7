"""Which kernel runs: native where it can, else the reference; by the user's word where there is one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch.autograd import forward_ad

from mufuru.kernels import custom, library, operators, reference
from mufuru.kernels.problem import MAX_OPS
from mufuru.kernels.run import Result, Run

Choice: TypeAlias = Literal["auto", "native", "reference"]

_override: ContextVar[Choice | None] = ContextVar("mufuru_kernel", default=None)


def check_choice(kernel: str) -> Any:
    if kernel not in get_args(Choice):
        raise ValueError(f"kernel should be one of {', '.join(map(repr, get_args(Choice)))}, got {kernel!r}")
    return kernel


@contextmanager
def use_kernel(kernel: Choice) -> Iterator[None]:
    """Within this context every layer runs on the given kernel, whatever its own `kernel=` says."""
    token = _override.set(check_choice(kernel))
    try:
        yield
    finally:
        _override.reset(token)


def choose(run: Run, kernel: Choice) -> Callable[[Run], Result]:
    """`use_kernel` has the first word, then the layer's `kernel=`, then the variable MUFURU_KERNEL."""
    wanted = _override.get() or kernel
    if wanted == "auto":
        wanted = check_choice(os.environ.get("MUFURU_KERNEL", "auto"))
    if wanted == "reference":
        return reference.sequence
    reason = obstacle(run)
    if not reason:
        if library.load() is not None:
            return operators.sequence
        reason = library.status().reason
    if wanted == "native":
        raise RuntimeError(f"kernel='native' cannot run this: {reason}. Use kernel='auto' or 'reference'")
    return reference.sequence


def obstacle(run: Run) -> str:
    """Why the native kernel cannot do this run; empty if it can."""
    if run.x.device.type != "cpu":
        return f"it runs on the CPU, the tensors are on {run.x.device}"
    if run.x.dtype not in (torch.float32, torch.float64):
        return f"it computes in float32 and float64, got {run.x.dtype}"
    if len(run.unit.ops) > MAX_OPS:
        return f"it takes up to {MAX_OPS} operations, got {len(run.unit.ops)}"
    if forward_ad._current_level >= 0:
        return "it has no forward-mode derivatives"
    if run.unit.python_ops and not operators.in_eager_mode((run.x, run.s0, *run.weights)):
        return "it takes operations written in Python only in plain eager mode"
    return next((reason for op in run.unit.python_ops if (reason := custom.obstacle(op))), "")
