"""Operations as ONNX nodes: the built-in ones by a table, a Python function by exporting it alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from mufuru.export.body import Nodes
from mufuru.export.translate import translate
from mufuru.ops import Op

MISSING = re.compile(r"No ONNX function found for .*?op='([\w.]+)'")
"""How torch's exporter says that ONNX lacks a call."""
Build: TypeAlias = Callable[[Nodes, str, str], str]
"""Adds an operation's nodes; gives the name of its value."""


def builder(op: Op, dtype: torch.dtype, hidden_size: int, number: int) -> Build:
    """What adds the operation's nodes to a body; `dtype` and `number` are the tensors' type, torch's and ONNX's."""
    if op.native_code is None:
        return _Exported(op, dtype, hidden_size)
    if op.name not in _BUILT_IN:
        raise NotImplementedError(f"the built-in operation {op.name!r} has no nodes in mufuru.export.operations")
    return lambda nodes, s, v: _BUILT_IN[op.name](nodes, s, v, number)


def _times(nodes: Nodes, factor: float, value: str, number: int) -> str:
    name: str = nodes.add("Mul", nodes.constant([factor], number, ()), value)
    return name


_BUILT_IN: dict[str, Callable[[Nodes, str, str, int], str]] = {
    "keep": lambda n, s, v, t: s,
    "replace": lambda n, s, v, t: v,
    "max": lambda n, s, v, t: n.add("Max", s, v),
    "min": lambda n, s, v, t: n.add("Min", s, v),
    "mul": lambda n, s, v, t: n.add("Mul", s, v),
    "diff": lambda n, s, v, t: _times(n, 0.5, n.add("Abs", n.add("Sub", s, v)), t),
    "forget": lambda n, s, v, t: n.add("Expand", n.constant([0.0], t, ()), n.add("Shape", s)),
    "sqr_diff": lambda n, s, v, t: _times(n, 0.25, n.add("Mul", d := n.add("Sub", s, v), d), t),
    "negate": lambda n, s, v, t: n.add("Neg", s),
    "add": lambda n, s, v, t: n.add("Add", s, v),
}


class _Function(nn.Module):
    def __init__(self, op: Op) -> None:
        super().__init__()
        self.op = op

    def forward(self, s: Tensor, v: Tensor) -> Tensor:
        # an operation may hand through what it is given; a graph wants a result of its own
        return self.op(s, v).clone()


class _Exported:
    """A Python function's nodes, found by exporting it alone and copied under new names."""

    def __init__(self, op: Op, dtype: torch.dtype, hidden_size: int) -> None:
        self.graph = _graph_of(op, dtype, hidden_size)

    def __call__(self, nodes: Nodes, s: str, v: str) -> str:
        from onnx import NodeProto

        prefix = f"{nodes.prefix}own_{len(nodes.found)}_"
        names = {value.name: name for value, name in zip(self.graph.input, (s, v), strict=True)}
        for tensor in self.graph.initializer:
            names[tensor.name] = nodes.add("Constant", value=tensor)
        for node in self.graph.node:
            copy = NodeProto()
            copy.CopyFrom(node)
            copy.name = ""
            names |= {name: prefix + name for name in node.output if name}
            copy.input[:] = [names.get(name, name) for name in node.input]
            copy.output[:] = [names.get(name, name) for name in node.output]
            nodes.found.append(copy)
        return names[self.graph.output[0].name]


def _graph_of(op: Op, dtype: torch.dtype, hidden_size: int) -> Any:
    from torch.onnx import OnnxExporterError

    example = tuple(torch.zeros(2, hidden_size, dtype=dtype) for _ in "sv")
    free = {0: torch.export.Dim.DYNAMIC}
    try:
        program = torch.export.export(_Function(op), example, dynamic_shapes={"s": free, "v": free})
        return translate(program).graph
    except (OnnxExporterError, RuntimeError, ValueError, TypeError) as error:
        raise NotImplementedError(f"operation {op.name!r} cannot be exported to ONNX: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """The call that ONNX lacks, if that is what stopped it; else the first line of the deepest error."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    for text in map(str, reversed(chain)):
        if found := MISSING.search(text):
            return f"ONNX has nothing for the call {found[1]}"
    return str(chain[-1]).strip().splitlines()[0]
