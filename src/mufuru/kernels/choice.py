"""Which kernel runs: the one the user names, else the device's own, else the reference."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import torch
from torch._compile import _disable_dynamo  # torch.compiler.disable, without its import of the whole compiler
from torch.autograd import forward_ad

from mufuru.kernels import custom, graphed, library, native, onnx, operators, reference, scan, triton
from mufuru.kernels.call import Call, Result, exporting, interpreted, known_when_traced
from mufuru.kernels.library import MuFuRUKernelWarning, Status

Choice: TypeAlias = Literal["auto", "native", "triton", "reference"]
CHOICES = get_args(Choice)

Sequence: TypeAlias = Callable[[Call], Result]

_only: ContextVar[Sequence | None] = ContextVar("mufuru_sequence", default=None)
_override: ContextVar[Choice | None] = ContextVar("mufuru_kernel", default=None)


class Kernel(NamedTuple):
    """A row of the table. Its module has `obstacle(call) -> str`, why it cannot do a call (empty if it can),
    `sequence(call) -> Result`, and `status() -> str`, one line for readers."""

    devices: tuple[str, ...]
    """Types of the devices where `kernel="auto"` takes it."""
    place: str
    """The same in words."""
    module: Callable[[], Any]
    """Returns the module."""
    half: bool = False
    """Whether it takes tensors in half precision as they are."""


KERNELS = {
    "native": Kernel(("cpu",), "the CPU", lambda: native),
    "triton": Kernel(("cuda",), "a GPU", lambda: triton, half=True),
}
"""The fast kernels by name."""
_BY_DEVICE = {device: row for row in KERNELS.values() for device in row.devices}


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


def sequence_is_given() -> bool:
    """Return whether `use_sequence` is around."""
    return _only.get() is not None


def choose(call: Call, kernel: Choice) -> Sequence:
    """Return the kernel that runs the call. In a graph a loop would fix the number of steps: `scan` takes its place."""
    if not torch.compiler.is_dynamo_compiling():
        if only := _only.get():
            return only
        if onnx.tracing():
            return onnx.sequence
    wanted = wanted_kernel(kernel)
    if wanted == "auto":
        if sequence := _by_device(call):
            return sequence
    elif wanted != "reference":
        return _by_name(call, wanted)
    if not torch.compiler.is_compiling():
        return reference.sequence
    return scan.sequence if exporting() else _in_a_graph(call)


def takes_half(call: Call, kernel: Choice) -> bool:
    """Return whether the kernel that runs the call takes half precision as it is; the others compute in float32."""
    wanted = wanted_kernel(kernel)
    row = _BY_DEVICE.get(call.x.device.type) if wanted == "auto" else KERNELS.get(wanted)
    return row is not None and row.half and not row.module().obstacle(call)


def _by_device(call: Call) -> Sequence | None:
    """Return the fast kernel of the device, or `None`, after a warning on a GPU, if it cannot do the call."""
    device = call.x.device.type
    if device not in _BY_DEVICE:
        reason = f"no other kernel runs on {device}"
    else:
        module = _BY_DEVICE[device].module()
        reason = module.obstacle(call)
        if not reason:
            sequence: Sequence = module.sequence
            return sequence
    possible = device in graphed.CAPTURES and _may_be_graphed(call)
    by_graphs = possible and not torch.compiler.is_compiling() and graphed.wanted()
    if device not in ("cpu", "meta"):
        _warn_of_reference(device, reason, by_graphs, possible)
    return operators.opaque_reference if by_graphs else None


def _may_be_graphed(call: Call) -> bool:
    """Return whether the reference may be one operator, run as a captured graph: not where Python must be seen."""
    if torch.compiler.is_compiling() or call.unit.python_ops:
        return not call.unit.python_ops
    watched = torch._C._are_functorch_transforms_active() or torch._C._get_tracing_state()
    return not watched and forward_ad._current_level < 0


def _by_name(call: Call, name: str) -> Sequence:
    """Return the kernel that the user named, or refuse."""
    row = KERNELS[name]
    if call.x.device.type in row.devices or (name == "triton" and interpreted()):
        reason = row.module().obstacle(call)
    else:
        reason = f"it runs on {row.place}, the tensors are on {call.x.device}"
    if reason:
        raise RuntimeError(f"kernel={name!r} cannot run this: {reason}. Use kernel='auto' or 'reference'")
    sequence: Sequence = row.module().sequence
    return sequence


_warned: set[tuple[str, str]] = set()


@known_when_traced
def _warn_of_reference(device: str, reason: str, by_graphs: bool, possible: bool) -> None:
    """Warn once per process and reason: on such a device, a loop in Python is far slower than the device could be."""
    if (device, reason) in _warned:
        return
    _warned.add((device, reason))
    way = "as a captured graph for shapes that come again" if by_graphs else "step by step"
    graphs = "set MUFURU_GRAPHS=1 to capture it, " if possible and not graphed.wanted() else ""
    message = (
        f"the reference kernel runs on {device}, {way}, and far slower than a fused kernel: {reason}. Change that, "
        f"{graphs}move model and input to the CPU, or ask for kernel='reference', which does not warn"
    )
    warnings.warn(message, MuFuRUKernelWarning, stacklevel=2)


def _in_a_graph(call: Call) -> Sequence:
    """Not `scan`, of which torch's compiler makes wrong gradients: one operator, or none if that could not be right."""
    if torch._C._are_functorch_transforms_active():
        return reference.sequence  # step by step: transforms and operators do not go together there
    may_be = all(custom.may_be_in_graphs(op.code) for op in call.unit.python_ops)
    return operators.opaque_reference if may_be else _outside_of_graphs


@_disable_dynamo
def _outside_of_graphs(call: Call) -> Result:
    return reference.sequence(call)


vars(_outside_of_graphs).update(
    _torchdynamo_disable=True,
    _torchdynamo_disable_msg="an operation of this layer has parameters of its own or draws random numbers, so that it "
    "runs outside of the graph: leave out fullgraph=True",
)


@known_when_traced
def wanted_kernel(kernel: Choice) -> Choice:
    """Return the choice of `use_kernel`, else the layer's `kernel=`, else that of the variable MUFURU_KERNEL."""
    wanted = _override.get() or kernel
    chosen: Choice = check_choice(os.environ.get("MUFURU_KERNEL", "auto") if wanted == "auto" else wanted)
    return chosen


def kernel_status() -> Status:
    """Return which library of the native kernel is live and why, and the status of every kernel by its name."""
    kernels = {name: row.module().status() for name, row in KERNELS.items()}
    return replace(library.status(), kernels=kernels | {"reference": "available on every device"})
