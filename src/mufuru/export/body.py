"""One step of a unit as ONNX nodes: the body of its `Scan`, the same equations as `kernels.reference.step`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Nodes:
    """A list of nodes that grows, with names that occur once in the model."""

    prefix: str
    found: list[Any] = field(default_factory=list)

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; the name of its output, or their names."""
        from onnx import helper

        names = [f"{self.prefix}{kind.lower()}_{len(self.found)}_{place}" for place in range(outputs)]
        self.found.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, values: Any, kind: int, shape: tuple[int, ...] | None = None) -> str:
        from onnx import helper

        values = list(values)
        tensor = helper.make_tensor("value", kind, (len(values),) if shape is None else shape, values)
        name: str = self.add("Constant", value=tensor)
        return name

    def ints(self, *values: int) -> str:
        from onnx import TensorProto

        return self.constant(values, TensorProto.INT64)

    def split(self, value: str, sizes: list[int]) -> list[str]:
        """Pieces along the last axis, none for a size of 0."""
        sizes = [size for size in sizes if size]
        if len(sizes) == 1:
            return [value]
        return list(self.add("Split", value, self.ints(*sizes), outputs=len(sizes), axis=-1))

    def linear(self, value: str, weight: str, bias: str) -> str:
        product: str = self.add("MatMul", value, weight)
        return self.add("Add", product, bias) if bias else product


@dataclass(frozen=True)
class Step:
    """What a step is made of: names of values, and the unit's options."""

    names: dict[str, str]
    """By the names in `nodes.INPUTS`; empty where there is nothing."""
    rows: list[int]
    reset: str
    activation: str
    controller_activation: str
    ops: list[Any]
    """For each operation a function (nodes, s, v) -> name of its value."""


def step(nodes: Nodes, at: Step) -> list[str]:
    """The new state, and with a recurrent controller its new state."""
    v, logits = _gates(nodes, at)
    n, hidden = at.names, at.rows[0]
    states = []
    if n["k"]:
        activate = "Tanh" if at.controller_activation == "tanh" else "Relu"
        k = nodes.add(activate, nodes.add("Add", logits, nodes.add("MatMul", n["k"], n["w_kk"])))
        logits = nodes.linear(k, n["w_op"], n["b_op"])
        states.append(k)
    # a 0 keeps the batch as it is
    grid = nodes.add("Reshape", logits, nodes.ints(0, len(at.ops), hidden))
    p = nodes.add("Softmax", grid, axis=1)
    one = nodes.ints(1)
    values = [nodes.add("Unsqueeze", op(nodes, n["s"], v), one) for op in at.ops]
    weighted = nodes.add("Mul", p, nodes.add("Concat", *values, axis=1))
    s = nodes.add("ReduceSum", weighted, one, keepdims=0)
    if n["zoneout"]:
        # z s + (1 - z) s' = s' + z (s - s')
        s = nodes.add("Add", s, nodes.add("Mul", n["zoneout"], nodes.add("Sub", n["s"], s)))
    states.insert(0, s)
    if n["alive"]:
        before = (n["s"], n["k"])
        states = [nodes.add("Where", n["alive"], new, old) for new, old in zip(states, before, strict=False)]
    return states


def _gates(nodes: Nodes, at: Step) -> tuple[str, str]:
    """The features, and the logits or what goes into the recurrent controller."""
    n, rows = at.names, at.rows
    x_v, *x_rest = nodes.split(n["from_x"], rows)
    product = nodes.linear(n["s"], n["w_s"], n["b_s"])
    if at.reset == "before":
        s_r, s_k = nodes.split(product, rows[1:])
        r = nodes.add("Sigmoid", nodes.add("Add", x_rest[0], s_r))
        s_v = nodes.linear(nodes.add("Mul", r, n["s"]), n["w_v"], n["b_v"])
    else:
        s_v, *s_rest = nodes.split(product, rows)
        s_k = s_rest[-1]
        if at.reset == "after":
            r = nodes.add("Sigmoid", nodes.add("Add", x_rest[0], s_rest[0]))
            s_v = nodes.add("Mul", r, s_v)
    v = nodes.add("Tanh" if at.activation == "tanh" else "Sigmoid", nodes.add("Add", x_v, s_v))
    return v, nodes.add("Add", x_rest[-1], s_k)
