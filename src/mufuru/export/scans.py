"""From the nodes `mufuru::Unit` of an exported model to ONNX's `Scan`: one for each layer and direction."""

from __future__ import annotations

from typing import Any

import torch

from mufuru.export.body import Nodes, Step, step
from mufuru.export.nodes import DOMAIN, INPUTS
from mufuru.export.operations import Build, builder
from mufuru.ops import Op

SCANNED, STATES = INPUTS[:3], INPUTS[3:5]
TYPES = {1: torch.float32, 11: torch.float64}
"""ONNX's numbers of the element types that a kernel computes in."""


class Builders:
    """Of operations by their place in a list; each is exported once, however many layers have it."""

    def __init__(self, ops: list[Op]) -> None:
        self.ops = ops
        self._found: dict[tuple[int, int, int], Build] = {}

    def get(self, place: int, number: int, hidden_size: int) -> Build:
        key = (place, number, hidden_size)
        if key not in self._found:
            self._found[key] = builder(self.ops[place], TYPES[number], hidden_size, number)
        return self._found[key]


def expand(model: Any, ops: list[Op]) -> None:
    """Replace every `mufuru::Unit` in the model."""
    types = {value.name: value.type.tensor_type for value in [*model.graph.value_info, *model.graph.output]}
    new: list[Any] = []
    builders = Builders(ops)
    for number, node in enumerate(model.graph.node):
        new.append(_scan(node, builders, types, f"mufuru_{number}_") if node.domain == DOMAIN else node)
    del model.graph.node[:]
    model.graph.node.extend(new)
    kept = [opset for opset in model.opset_import if opset.domain != DOMAIN]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _scan(node: Any, builders: Builders, types: dict[str, Any], prefix: str) -> Any:
    from onnx import TensorProto, helper

    options = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    given = dict(zip(INPUTS, [*node.input, *[""] * (len(INPUTS) - len(node.input))], strict=True))
    number, hidden = types[node.output[0]].elem_type, options["hidden_size"]
    inside = [name for name in (*STATES, *SCANNED) if given[name]]
    names = given | {name: prefix + name for name in inside}
    nodes = Nodes(prefix)
    build = [builders.get(place, number, hidden) for place in options["ops"]]
    words = {name: options[name].decode() for name in ("reset", "activation", "controller_activation")}
    states = step(nodes, Step(names, list(options["rows"]), ops=build, **words))
    output = nodes.add("Identity", states[0])
    kinds = {name: TensorProto.BOOL if name == "alive" else number for name in inside}
    body = helper.make_graph(
        nodes.found, f"{prefix}step",
        [helper.make_tensor_value_info(names[name], kinds[name], None) for name in inside],
        [helper.make_tensor_value_info(name, number, None) for name in (*states, output)],
    )  # fmt: skip
    scanned = [name for name in SCANNED if given[name]]
    inputs = [given[name] for name in inside]
    # ours gives the output first, Scan gives it last
    outputs = [*node.output[1:], node.output[0]]
    return helper.make_node(
        "Scan", inputs, outputs, name=f"{prefix}scan", body=body, num_scan_inputs=len(scanned),
        scan_input_directions=[options["reverse"]] * len(scanned), scan_output_directions=[options["reverse"]],
    )  # fmt: skip
