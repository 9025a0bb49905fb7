"""The Triton kernel as a row of the kernel table: which calls it supports, how they reach it, and its status.

It is imported when a call is on a GPU. On the CPU it runs only where Triton interprets its kernels, for tests.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch.autograd import forward_ad

from mufuru.kernels import custom
from mufuru.kernels.call import Call, Result, exporting, interpreted, known_when_traced, transform_obstacle


def obstacle(call: Call) -> str:
    """Return why the Triton kernel cannot do this call; empty if it can."""
    if not installed():
        return "triton is not installed, which CUDA and ROCm builds of torch bring along"
    if call.x.device.type != "cuda" and not (call.x.device.type == "cpu" and interpreted()):
        return f"it runs on a GPU, the tensors are on {call.x.device}"
    if call.x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"it computes in float32, bfloat16 and float16, got {call.x.dtype}"
    if not call.unit.hidden_size:
        return "it needs at least one unit"
    if forward_ad._current_level >= 0:
        return "it has no forward-mode derivatives"
    python = _python_obstacle(call) if call.unit.python_ops else ""
    return _transform_obstacle(call) or python or untranslatable(call.unit.codes)


def _transform_obstacle(call: Call) -> str:
    if exporting():
        return "an exported program may run where it is not"
    if not torch._C._are_functorch_transforms_active():
        return ""
    if reason := transform_obstacle(call):
        return reason
    functionalize = torch._C._functorch.TransformType.Functionalize
    levels = torch._C._functorch.get_interpreter_stack() or ()
    return "it cannot be functionalized" if any(level.key() == functionalize for level in levels) else ""


def _python_obstacle(call: Call) -> str:
    if torch.compiler.is_compiling() and not all(custom.may_be_in_graphs(op.code) for op in call.unit.python_ops):
        return "an operation has parameters of its own or draws random numbers"
    return next((reason for op in call.unit.python_ops if (reason := custom.obstacle(op.code))), "")


@known_when_traced
def untranslatable(codes: tuple[int, ...]) -> str:
    """Return why there is no Triton function of one of these operations; empty if there is one of each."""
    from mufuru.kernels.triton import operations, own

    made = (own.translation(code).reason for code in codes if code not in operations.CODES)
    return next(filter(None, made), "")


@known_when_traced
def installed() -> bool:
    return find_spec("triton") is not None


def sequence(call: Call) -> Result:
    """`reference.sequence` on a GPU."""
    # triton is imported by the first call that needs it
    from mufuru.kernels.triton import operators

    return operators.sequence(call)


def status() -> str:
    """Return a sentence on whether it can run here."""
    if not installed():
        return "not available: triton is not installed, which CUDA and ROCm builds of torch bring along"
    if interpreted():
        return "interpreted on the CPU, for tests (TRITON_INTERPRET=1)"
    if not torch.cuda.is_available():
        return "not available: torch finds no GPU"
    return f"runs on {torch.cuda.get_device_name()}"
