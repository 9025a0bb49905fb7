"""A unit inside a graph that is being traced for ONNX: one node that stands for all its steps.

A GRU becomes ONNX's own `GRU`. Any other unit becomes a node `mufuru::Unit`, which `scans` turns into a `Scan`; it gets
the products with the inputs ready made, and the recurrent weights transposed as its matrix products want them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from mufuru.kernels.run import Result, Run, fresh, packed_order, present
from mufuru.ops import Op
from mufuru.unit import Unit

DOMAIN, UNIT = "mufuru", "Unit"
INPUTS = ("from_x", "alive", "zoneout", "s", "k", "w_v", "b_v", "w_s", "b_s", "w_kk", "w_op", "b_op")
"""Of a `mufuru::Unit`: what a step reads, the states, then weights. Which rows of the recurrent weights `w_s` has
depends on the reset gate: before the product, the features' own `w_v` waits for it."""


class Exporter:
    """The kernel of layers that are traced for ONNX. It keeps the operations, since a graph holds only their places."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    def sequence(self, run: Run) -> Result:
        if run.trace or run.masks.allowed is not None or run.masks.state is not None:
            raise NotImplementedError(
                "an ONNX file holds a layer in evaluation mode: export outside of tracing(), intervene() and training"
            )
        steps = _Steps(run)
        if is_gru(run):
            output, s_n = _gru(run, steps)
            return Result(steps.rows(output), s_n)
        from_x = linear(run.x, run.weights.ih, run.weights.bias_ih)
        tensors = _recurrent_weights(run) | {
            "from_x": steps.grid(from_x), "alive": steps.alive, "s": run.s0, "k": run.k0,
            "zoneout": None if run.masks.zoneout is None else steps.grid(run.masks.zoneout),
        }  # fmt: skip
        output, s_n, *k_n = self._unit(run, [tensors.get(name) for name in INPUTS], steps)
        return Result(steps.rows(output), s_n, k_n[0] if k_n else None)

    def _unit(self, run: Run, inputs: list[Tensor | None], steps: _Steps) -> Any:
        unit = run.unit
        places = [self.ops.index(op) if op in self.ops else self._add(op) for op in unit.ops]
        attributes: dict[str, Any] = {
            "ops": places, "reset": unit.reset or "", "activation": unit.activation, "rows": unit.rows,
            "controller_activation": unit.controller_activation,
            "reverse": int(run.reverse), "hidden_size": unit.hidden_size,
        }  # fmt: skip
        states = [run.s0] if run.k0 is None else [run.s0, run.k0]
        shapes = [(steps.count, steps.batch, unit.hidden_size), *(state.shape for state in states)]
        return torch.onnx.ops.symbolic_multi_out(
            f"{DOMAIN}::{UNIT}", inputs, attributes, dtypes=[run.x.dtype] * len(shapes), shapes=shapes, version=1
        )

    def _add(self, op: Op) -> int:
        self.ops.append(op)
        return len(self.ops) - 1


class _Steps:
    """Packed rows as a grid (steps, batch, ...) and back."""

    def __init__(self, run: Run) -> None:
        self.batch = run.s0.size(0)
        self.count = run.x.size(0) // self.batch if run.batch_sizes is None else run.batch_sizes.size(0)
        self.alive = self.lengths = self._order = None
        if run.batch_sizes is not None:
            self._order = packed_order(run.batch_sizes, self.batch)
            here = present(run.batch_sizes, self.batch)
            self.alive, self.lengths = here.unsqueeze(-1), here.sum(0)

    def grid(self, rows: Tensor) -> Tensor:
        rows = fresh(rows) if self._order is None else rows.index_select(0, self._order.argsort())
        return rows.view(self.count, self.batch, *rows.shape[1:])

    def rows(self, grid: Tensor) -> Tensor:
        if self._order is None or self.alive is None:
            return fresh(grid.flatten(0, 1))
        return torch.where(self.alive, grid, 0.0).flatten(0, 1).index_select(0, self._order)


def _recurrent_weights(run: Run) -> dict[str, Tensor | None]:
    """By their names in `INPUTS`."""
    unit, weights = run.unit, run.weights
    cut = unit.hidden_size if unit.reset == "before" else 0
    hh, bias = weights.hh, weights.bias_hh
    return {
        "w_v": hh[:cut].t() if cut else None,
        "b_v": None if bias is None or not cut else bias[:cut],
        "w_s": hh[cut:].t(),
        "b_s": None if bias is None else bias[cut:],
        "w_kk": None if weights.kk is None else weights.kk.t(),
        "w_op": None if weights.op is None else weights.op.t(),
        "b_op": weights.bias_op,
    }


def is_gru(run: Run) -> bool:
    """Whether ONNX's own `GRU` computes this; onnxruntime has it in float32."""
    unit = run.unit
    return (
        sorted(unit.op_names) == ["keep", "replace"] and not unit.python_ops and unit.controller_size is None
        and unit.reset is not None and unit.activation == "tanh"
        and run.masks.zoneout is None and run.x.dtype == torch.float32
    )  # fmt: skip


def _gru(run: Run, steps: _Steps) -> tuple[Tensor, Tensor]:
    """ONNX's update gate is the softmax of two: the weights of keep less those of replace."""
    unit, weights = run.unit, run.weights
    w, r = (_gates(unit, weight).unsqueeze(0) for weight in (weights.ih, weights.hh))
    bias = None
    if weights.bias_ih is not None and weights.bias_hh is not None:
        bias = torch.cat([_gates(unit, weights.bias_ih), _gates(unit, weights.bias_hh)]).unsqueeze(0)
    lengths = None if steps.lengths is None else steps.lengths.to(torch.int32)
    attributes: dict[str, Any] = {
        "hidden_size": unit.hidden_size,
        "direction": "reverse" if run.reverse else "forward",
        "linear_before_reset": int(unit.reset == "after"),
    }
    shapes = [(steps.count, 1, steps.batch, unit.hidden_size), (1, steps.batch, unit.hidden_size)]
    output, s_n = torch.onnx.ops.symbolic_multi_out(
        "GRU", [steps.grid(run.x), w, r, bias, lengths, run.s0.unsqueeze(0)], attributes,
        dtypes=[run.x.dtype] * 2, shapes=shapes,
    )  # fmt: skip
    s_n = s_n.squeeze(0)
    if steps.lengths is not None:  # of a sequence without steps onnxruntime's GRU does not return the initial state
        s_n = torch.where(steps.lengths.unsqueeze(1) > 0, s_n, run.s0)
    return output.squeeze(1), s_n


def _gates(unit: Unit, tensor: Tensor) -> Tensor:
    """Rows update, reset, feature from feature, reset, operations."""
    feature, reset, logits = unit.split(tensor)
    first, second = logits.chunk(2)
    keep, replace = (first, second) if unit.op_names[0] == "keep" else (second, first)
    return torch.cat([keep - replace, reset, feature])
