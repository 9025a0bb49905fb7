"""The reference as captured CUDA graphs: one launch in place of some twenty per step, for repeated shapes.

A graph reads and writes fixed memory. Inputs, parameters among them, are copied in before every replay and results are
copied out behind it, so that the next one overwrites nothing that is in use. The backward pass runs all steps again
from the inputs: the forward pass leaves nothing in a graph's memory that is needed later.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from mufuru.validate import ORDINARY

Tensors: TypeAlias = list[Tensor | None]
Function: TypeAlias = Callable[[Sequence[Tensor | None]], Tensors]
Capture: TypeAlias = Callable[[Callable[[], Tensors]], tuple[Tensors, Callable[[], object]]]
"""Takes a function without arguments; returns its results in fixed memory, and what computes them there again."""

GRAPHS, MET = 16, 64
"""Maximum number of graphs, each with the memory of all its steps, and of remembered shapes: the last used."""


class Graph(NamedTuple):
    inputs: Tensors
    outputs: Tensors
    replay: Callable[[], object]


_graphs: OrderedDict[Hashable, Graph] = OrderedDict()
"""By everything that is fixed in a graph."""
_met: OrderedDict[Hashable, None] = OrderedDict()
"""Shapes that were seen once: one is captured at its second call, since lengths of sequences may never do so."""
_lock = threading.Lock()


def usable(tensors: Sequence[Tensor | None]) -> bool:
    """Return whether graphs are asked for, and these tensors are where they can be made: not inside another one."""
    if not wanted() or not all(tensor is None or type(tensor) in ORDINARY for tensor in tensors):
        return False
    devices = {tensor.device.type for tensor in tensors if tensor is not None}
    return not devices.isdisjoint(CAPTURES) and not _capturing()


def _capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def wanted() -> bool:
    """Return whether the variable MUFURU_GRAPHS asks for graphs."""
    value = os.environ.get("MUFURU_GRAPHS", "0")
    if value not in ("0", "1"):
        raise ValueError(f"MUFURU_GRAPHS should be 0 or 1, got {value!r}")
    return value == "1"


def run(function: Function, key: Hashable, tensors: Sequence[Tensor | None]) -> Tensors:
    """Return `function(tensors)`, by a graph if the same key and shapes were seen before.

    The key is what the function depends on beside the tensors. Whole numbers on the CPU are read while a graph is made,
    and belong to it.
    """
    whole = (key, _surroundings(tensors), *map(_described, tensors))
    # copies, replay and copies are queued together: another thread may be on the same stream
    with _lock:
        if whole in _graphs or whole in _met:
            graph = _graphs.get(whole) or _captured(function, tensors)
            _remember(_graphs, whole, graph, GRAPHS)
            return _replayed(graph, tensors)
        _remember(_met, whole, None, MET)
    return function(tensors)


def clear() -> None:
    """Forget all graphs and give their memory back."""
    with _lock:
        _graphs.clear()
        _met.clear()


def _replayed(graph: Graph, tensors: Sequence[Tensor | None]) -> Tensors:
    with torch.inference_mode(False), torch.no_grad():
        for static, tensor in zip(graph.inputs, tensors, strict=True):
            if static is not None and tensor is not None:
                static.copy_(tensor)
    graph.replay()
    return [None if output is None else output.clone() for output in graph.outputs]


def _remember(table: OrderedDict[Hashable, Any], key: Hashable, value: Any, limit: int) -> None:
    """Move the key to the end, and drop the first of too many."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > limit:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # it may still be running
        table.popitem(last=False)


def _captured(function: Function, tensors: Sequence[Tensor | None]) -> Graph:
    # not as inference tensors, which could not be written to outside of that mode
    with torch.inference_mode(False), torch.no_grad():
        inputs = [None if tensor is None else tensor.detach().clone() for tensor in tensors]
        first = next(tensor for tensor in inputs if tensor is not None and tensor.device.type in CAPTURES)
        with torch.cuda.device_of(first):
            outputs, replay = CAPTURES[first.device.type](lambda: function(inputs))
    return Graph(inputs, outputs, replay)


def capture_on_device(function: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], object]]:
    """Capture on the current device, after two runs that let libraries take the memory that they keep."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # other threads, such as those that load data, may allocate meanwhile
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        outputs = function()
    return outputs, graph.replay


CAPTURES: dict[str, Capture] = {"cuda": capture_on_device}
"""By type of device."""


def _described(tensor: Tensor | None) -> Hashable:
    """The properties of a tensor that are fixed in a graph."""
    if tensor is None:
        return None
    numbers = tuple(tensor.tolist()) if tensor.device.type == "cpu" and tensor.dtype == torch.int64 else ()
    return tuple(tensor.shape), tensor.dtype, tensor.device, numbers


def _surroundings(tensors: Sequence[Tensor | None]) -> Hashable:
    """Everything else that decides which kernels torch launches, and the stream: graphs on two of them may run at
    once."""
    devices = {tensor.device for tensor in tensors if tensor is not None and tensor.is_cuda}
    streams = tuple(torch.cuda.current_stream(device).cuda_stream for device in devices)
    return (
        streams,
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch._C._is_any_autocast_enabled(),
    )
