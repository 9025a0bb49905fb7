"""Those who are measured: each is a call without arguments that does one training step or one inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
import shapes
import torch
from floor import BLOCKS, GATED_BLOCKS, Floor, one_product
from onnx import TensorProto, helper, numpy_helper
from shapes import Mode, Shape
from torch import Tensor, nn

from mufuru import PAPER, MuFuRU, MuFuRUCell

Call: TypeAlias = Callable[[], object]


def times(s: Tensor, v: Tensor) -> Tensor:
    """What the built-in `mul` does, as a user would write it."""
    return s * v


WITH_CUSTOM = tuple(times if name == "mul" else name for name in PAPER)


class Steps(nn.Module):
    """A cell that takes a sequence step by step, as a decoder does. The result is its last state."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> tuple[Tensor]:
        state: Any = None
        for step in x:
            state = self.cell(step, state)
        return (state[0] if isinstance(state, tuple) else state,)


def layers(shape: Shape) -> dict[str, nn.Module]:
    """The torch modules among the peers, with weights of their own."""
    n, m = shape.input_size, shape.hidden_size
    if shape.cell:
        return {
            shapes.SEVEN: Steps(MuFuRUCell(n, m, kernel="native")),
            shapes.GATED: Steps(MuFuRUCell(n, m, ops=("keep", "replace"), kernel="native")),
            shapes.CONTROLLER: Steps(MuFuRUCell(n, m, controller_size=50, kernel="native")),
            shapes.REFERENCE: Steps(MuFuRUCell(n, m, kernel="reference")),
            shapes.GRU: Steps(nn.GRUCell(n, m)),
            shapes.LSTM: Steps(nn.LSTMCell(n, m)),
        }
    found: dict[str, nn.Module] = {
        shapes.SEVEN: MuFuRU(n, m, kernel="native"),
        shapes.GATED: MuFuRU(n, m, ops=("keep", "replace"), kernel="native"),
        shapes.CONTROLLER: MuFuRU(n, m, controller_size=50, kernel="native"),
        shapes.REFERENCE: MuFuRU(n, m, kernel="reference"),
        shapes.GRU: nn.GRU(n, m),
        shapes.LSTM: nn.LSTM(n, m),
    }
    if shape.name == "language model":
        found[shapes.CUSTOM] = MuFuRU(n, m, ops=WITH_CUSTOM, kernel="native")
    return found


def build(shape: Shape, mode: Mode, threads: int, compiled: bool = False) -> dict[str, Call]:
    """All peers that can run this, in the order of `shapes.PEERS`, and the arithmetic alone."""
    found: dict[str, Call] = {}
    modules = layers(shape)
    for name, module in modules.items():
        found[name] = _call(module, shape, mode)
    if compiled and not shape.cell:
        # a compiled module keeps one version per graph: a new one knows nothing of the shapes before
        torch.compiler.reset()
        found[shapes.COMPILED] = _call(torch.compile(MuFuRU(*_sizes(shape), kernel="reference")), shape, mode)
    gru = modules[shapes.GRU]
    if mode == "inference" and isinstance(gru, nn.GRU):
        session, x = onnx_session(gru, threads), torch.randn(shape.steps, shape.batch, shape.input_size).numpy()
        found[shapes.ONNX] = lambda: session.run(None, {"x": x})
    floor = Floor(shape)
    found[shapes.FLOOR] = floor.training if mode == "training" else floor.forward
    for name, blocks in ((shapes.SEVEN, BLOCKS), (shapes.GATED, GATED_BLOCKS)):
        found[shapes.ARITHMETIC[name]] = one_product(shape, mode, blocks)
    return {name: found[name] for name in (*shapes.PEERS, *shapes.ARITHMETIC.values()) if name in found}


def _sizes(shape: Shape) -> tuple[int, int]:
    return shape.input_size, shape.hidden_size


def _call(module: Any, shape: Shape, mode: Mode) -> Call:
    x = torch.randn(shape.steps, shape.batch, shape.input_size)
    if mode == "inference":
        module.eval()
        return lambda: module(x)
    x.requires_grad_()

    def step() -> None:
        module.zero_grad()
        x.grad = None
        module(x)[0].sum().backward()

    return step


def onnx_session(gru: nn.GRU, threads: int) -> onnxruntime.InferenceSession:
    """onnxruntime's GRU with the weights of torch's: from x to all states and the last one."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    # its threads spin within a run but not after it, when it is another peer's turn
    options.add_session_config_entry("session.force_spinning_stop", "1")
    model = onnx_gru(gru).SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def onnx_gru(gru: nn.GRU) -> onnx.ModelProto:
    weights = {
        "W": _update_first(gru, "weight_ih_l0")[None],
        "R": _update_first(gru, "weight_hh_l0")[None],
        "B": np.concatenate([_update_first(gru, "bias_ih_l0"), _update_first(gru, "bias_hh_l0")])[None],
    }
    node = helper.make_node(
        "GRU", ["x", "W", "R", "B"], ["y", "y_h"], hidden_size=gru.hidden_size, linear_before_reset=1
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "gru",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", "batch", gru.input_size])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "y_h")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def _update_first(gru: nn.GRU, name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """ONNX has the update gate first, torch the reset gate."""
    reset, update, new = gru.get_parameter(name).detach().chunk(3)
    array: np.ndarray[Any, np.dtype[np.float32]] = torch.cat([update, reset, new]).numpy()
    return array
