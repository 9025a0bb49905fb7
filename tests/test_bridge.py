"""The unit as other units: `nn.GRU` there and back, `nn.RNN`, and ONNX's GRU with the reset gate before the product."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn.utils.prune import random_unstructured

from mufuru import PAPER, MuFuRU, Op

STEPS, BATCH, N, M = 9, 4, 3, 5
# what the bridge promises in float32
CLOSE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-6}

shapes = pytest.mark.parametrize(
    ("layers", "bidirectional", "bias"), list(itertools.product([1, 3], [False, True], [True, False]))
)


def assert_same_function(a: nn.Module, b: nn.Module, layers: int, bidirectional: bool) -> None:
    h0 = torch.randn(layers * (2 if bidirectional else 1), BATCH, M)
    x = torch.randn(STEPS, BATCH, N)
    for hx in (None, h0):
        for ours, theirs in zip(a(x, hx), b(x, hx), strict=True):
            torch.testing.assert_close(ours, theirs, **CLOSE)


@shapes
def test_from_gru(layers: int, bidirectional: bool, bias: bool) -> None:
    gru = nn.GRU(N, M, layers, bias, bidirectional=bidirectional)
    layer = MuFuRU.from_gru(gru)
    assert layer.ops == ("keep", "replace")
    assert layer.reset == "after"
    assert_same_function(layer, gru, layers, bidirectional)


@shapes
@pytest.mark.parametrize("ops", [("keep", "replace"), ("replace", "keep")], ids=", ".join)
def test_to_gru(layers: int, bidirectional: bool, bias: bool, ops: tuple[str, ...]) -> None:
    layer = MuFuRU(N, M, layers, bias, bidirectional=bidirectional, ops=ops, reset="after")
    gru = layer.to_gru()
    assert type(gru) is nn.GRU
    assert_same_function(gru, layer, layers, bidirectional)


@shapes
def test_there_and_back(layers: int, bidirectional: bool, bias: bool) -> None:
    gru = nn.GRU(N, M, layers, bias, bidirectional=bidirectional)
    again = MuFuRU.from_gru(gru).to_gru()
    for (name, ours), theirs in zip(again.named_parameters(), gru.parameters(), strict=True):
        assert torch.equal(ours, theirs), name


def test_gradients_are_grus() -> None:
    gru = nn.GRU(N, M, 2, bidirectional=True)
    layer, x = MuFuRU.from_gru(gru), torch.randn(STEPS, BATCH, N)
    for module in (gru, layer):
        module(x)[0].square().sum().backward()
    for name, parameter in gru.named_parameters():
        assert parameter.grad is not None
        reset, update, feature = parameter.grad.chunk(3)
        ours = getattr(layer, name).grad.chunk(4)
        # sums over steps and batch, larger than the outputs themselves
        for mine, its in zip(ours, (feature, reset, update, -update), strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)


def test_the_rest_of_the_module_comes_along() -> None:
    gru: Any = nn.GRU(N, M, 2, batch_first=True, dropout=0.25, dtype=torch.float64).eval()
    layer: Any = MuFuRU.from_gru(gru)
    assert layer.batch_first
    assert layer.dropout == 0.25
    assert not layer.training
    assert layer.weight_ih_l0.dtype == torch.float64
    back: Any = layer.to_gru()
    assert back.batch_first
    assert back.dropout == 0.25
    assert not back.training
    assert back.weight_ih_l0.dtype == torch.float64
    assert layer.weight_ih_l0.data_ptr() != gru.weight_ih_l0.data_ptr()


def test_from_a_gru_whose_weights_are_computed() -> None:
    gru = nn.GRU(N, M)
    nn.utils.parametrizations.weight_norm(gru, "weight_hh_l0")
    random_unstructured(gru, "weight_ih_l0", amount=0.3)
    assert_same_function(MuFuRU.from_gru(gru), gru, 1, False)


def test_from_gru_with_options() -> None:
    layer = MuFuRU.from_gru(nn.GRU(N, M), zoneout=0.1, kernel="reference")
    assert layer.zoneout == 0.1


@pytest.mark.parametrize("ops", [PAPER, ("max", "replace", "diff", "keep")], ids=["paper", "mixed"])
def test_warm_start_is_near_and_nearer_with_a_lower_bias(ops: tuple[str, ...]) -> None:
    gru, x = nn.GRU(N, M, 2, bidirectional=True), torch.randn(STEPS, BATCH, N)
    gaps = [(MuFuRU.from_gru(gru, ops=ops, added_bias=b)(x)[0] - gru(x)[0]).abs().max().item() for b in (-2, -5, -20)]
    assert gaps[0] > gaps[1] > gaps[2]
    # exp(-5) of replace's weight for each of up to five operations, over a few steps
    assert gaps[1] < 0.1
    # exp(-20) is 2e-9: float32 rounding remains
    assert gaps[2] < 1e-6
    assert torch.equal(MuFuRU.from_gru(gru, ops=ops)(x)[0], MuFuRU.from_gru(gru, ops=ops, added_bias=-5)(x)[0])


def test_added_operations_begin_at_most_at_their_share() -> None:
    layer = MuFuRU.from_gru(nn.GRU(N, M), ops=PAPER, added_bias=-3.0)
    trace = layer.trace(torch.randn(STEPS, BATCH, N))
    ratio = trace.weight("mul") / trace.weight("replace")
    torch.testing.assert_close(ratio, torch.full_like(ratio, float(np.exp(-3.0))))


def test_warm_start_trains_all_operations() -> None:
    layer: Any = MuFuRU.from_gru(nn.GRU(N, M), ops=PAPER)
    x = torch.randn(STEPS, BATCH, N)
    layer(x)[0].square().sum().backward()
    blocks = layer.weight_hh_l0.grad.view(2 + len(PAPER), M, M)
    assert blocks.flatten(1).any(1).all()


from_gru: Any = MuFuRU.from_gru
FROM_GRU_ERRORS: dict[str, tuple[Any, type[Exception], str]] = {
    "not a GRU": (lambda: from_gru(nn.LSTM(N, M)), TypeError, "expects a torch.nn.GRU, got LSTM"),
    "a cell": (lambda: from_gru(nn.GRUCell(N, M)), TypeError, "expects a torch.nn.GRU, got GRUCell"),
    "reset before": (lambda: from_gru(nn.GRU(N, M), reset="before"), ValueError, "from_gru sets reset='after'"),
    "sigmoid": (lambda: from_gru(nn.GRU(N, M), activation="sigmoid"), ValueError, "sets activation='tanh'"),
    "controller": (lambda: from_gru(nn.GRU(N, M), controller_size=2), ValueError, "sets controller_size=None"),
    "no keep": (lambda: from_gru(nn.GRU(N, M), ops=("replace", "max")), ValueError, "needs the operations keep"),
    "no bias to add by": (
        lambda: from_gru(nn.GRU(N, M, bias=False), ops=PAPER), ValueError, "only to a GRU with biases"
    ),
    "another keep": (
        lambda: from_gru(nn.GRU(N, M), ops=(Op("keep", "2s", lambda s, v: 2 * s, "twice the state"), "replace")),
        ValueError, "needs the built-in keep, got an operation of your own"
    ),
    "unknown operation": (lambda: from_gru(nn.GRU(N, M), ops=("keep", "repl")), ValueError, "mean 'replace'"),
}  # fmt: skip

TO_GRU_ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "operations": ({"reset": "after"}, "(needs keep and replace)"),
    "reset before": ({"ops": ("keep", "replace")}, "reset='before' (needs 'after')"),
    "no reset": ({"ops": ("keep", "replace"), "reset": None}, "reset=None (needs 'after')"),
    "sigmoid": ({"ops": ("keep", "replace"), "reset": "after", "activation": "sigmoid"}, "activation='sigmoid'"),
    "controller": ({"ops": ("keep", "replace"), "reset": "after", "controller_size": 2}, "controller_size=2"),
    "zoneout": ({"ops": ("keep", "replace"), "reset": "after", "zoneout": 0.5}, "zoneout=0.5 (nn.GRU has none"),
    "operation of one's own": (
        {"ops": ("keep", Op("replace", "2v", lambda s, v: 2 * v, "twice the features")), "reset": "after"},
        "operations written in Python",
    ),
    "learned start": ({"ops": ("keep", "replace"), "reset": "after", "learn_initial_state": True}, "starts from zeros"),
}


@pytest.mark.parametrize("case", FROM_GRU_ERRORS)
def test_wrong_from_gru(case: str) -> None:
    call, error, text = FROM_GRU_ERRORS[case]
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


@pytest.mark.parametrize("case", TO_GRU_ERRORS)
def test_wrong_to_gru(case: str) -> None:
    options, text = TO_GRU_ERRORS[case]
    with pytest.raises(ValueError, match=r"nn\.GRU cannot compute what this layer computes") as caught:
        MuFuRU(N, M, **options).to_gru()
    assert text in str(caught.value)


@shapes
def test_replace_without_reset_is_the_vanilla_rnn(layers: int, bidirectional: bool, bias: bool) -> None:
    rnn = nn.RNN(N, M, layers, bias=bias, bidirectional=bidirectional)
    layer = MuFuRU(N, M, layers, bias, bidirectional=bidirectional, ops=("replace",), reset=None)
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            # the feature block; the logit of an operation alone plays no part
            getattr(layer, name)[:M].copy_(parameter)
    assert_same_function(layer, rnn, layers, bidirectional)


def onnx_gru(layer: MuFuRU) -> onnxruntime.InferenceSession:
    """ONNX's GRU with `linear_before_reset=0` and the layer's weights: in ONNX's order update, reset, feature."""

    def gates(stem: str, suffix: str) -> Tensor:
        feature, reset, keep, replace = getattr(layer, stem + suffix).detach().chunk(4)
        return torch.cat([keep - replace, reset, feature])

    suffixes = ("_l0", "_l0_reverse")[: layer.num_directions]
    weights = {
        "W": torch.stack([gates("weight_ih", s) for s in suffixes]),
        "R": torch.stack([gates("weight_hh", s) for s in suffixes]),
        "B": torch.stack([torch.cat([gates("bias_ih", s), gates("bias_hh", s)]) for s in suffixes]),
    }
    way = "bidirectional" if layer.bidirectional else "forward"
    node = helper.make_node(
        "GRU", ["X", "W", "R", "B", "", "h0"], ["Y", "Y_h"], hidden_size=M, direction=way, linear_before_reset=0
    )
    ranks = {"X": 3, "h0": 3, "Y": 4, "Y_h": 3}
    tensors = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank) for name, rank in ranks.items()
    }
    graph = helper.make_graph(
        [node], "gru", [tensors["X"], tensors["h0"]], [tensors["Y"], tensors["Y_h"]],
        [numpy_helper.from_array(value.numpy(), name) for name, value in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    onnx.checker.check_model(model)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
def test_reset_before_is_onnx_gru(bidirectional: bool) -> None:
    layer = MuFuRU(N, M, bidirectional=bidirectional, ops=("keep", "replace"), reset="before")
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-1, 1)
    x, h0 = torch.randn(STEPS, BATCH, N), torch.randn(layer.num_directions, BATCH, M)
    y, y_h = onnx_gru(layer).run(None, {"X": x.numpy(), "h0": h0.numpy()})
    output, h_n = layer(x, h0)
    # (steps, directions, batch, hidden) there, directions side by side here; onnxruntime's own fast tanh and sigmoid
    expected = torch.from_numpy(y).transpose(1, 2).flatten(2)
    torch.testing.assert_close(output, expected, rtol=0, atol=2e-6)
    torch.testing.assert_close(h_n, torch.from_numpy(y_h), rtol=0, atol=2e-6)
