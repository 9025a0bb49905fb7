"""Engines for inference, each with `nn.GRU`'s weights: onnxruntime's GRU and OpenVINO's."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

try:
    import openvino
except ImportError:
    openvino = None

NO_OPENVINO = "openvino is not installed: pip install openvino"
ONE_THREAD = "an engine with threads of its own, which disturb the others: measured on one thread only"


def versions() -> dict[str, str]:
    """Their descriptions in the record."""
    return {
        "onnxruntime": onnxruntime.__version__,
        "openvino": openvino.__version__.split("-")[0] if openvino else "not installed",
    }


def onnx_call(gru: nn.GRU, x: Tensor) -> Callable[[], list[np.ndarray[Any, Any]]]:
    """onnxruntime's GRU on one thread: from x to all states and the last one."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.log_severity_level = 3
    model = onnx_gru(gru).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = {"x": x.numpy()}
    return lambda: session.run(None, inputs)


def openvino_call(gru: nn.GRU, x: Tensor, half: bool = False) -> Callable[[], list[np.ndarray[Any, Any]]]:
    """OpenVINO's GRU on one thread, for sequences of this length and number."""
    core = openvino.Core()
    model = core.read_model(io.BytesIO(onnx_gru(gru).SerializeToString()))
    model.reshape({"x": list(x.shape)})
    how = {
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if half else "f32",
    }
    request = core.compile_model(model, "CPU", how).create_infer_request()
    inputs = {0: x.numpy()}

    def call() -> list[np.ndarray[Any, Any]]:
        found = request.infer(inputs, share_inputs=True, share_outputs=True)
        return [found[0], found[1]]

    return call


def has_openvino() -> bool:
    return openvino is not None


def openvino_has_bfloat16() -> bool:
    return "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


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
