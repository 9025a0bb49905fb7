"""What a caller of `nn.GRUCell` relies on, asked of it first and then of `MuFuRUCell`."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from mufuru import MuFuRU, MuFuRUCell

BATCH, N, M = 4, 3, 5
# one row and a batch, and other strides, take different matrix products: float32 rounding
CLOSE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-6}


def test_shapes_and_default_state(cell_type: Any) -> None:
    cell, x = cell_type(N, M), torch.randn(BATCH, N)
    assert cell(x).shape == (BATCH, M)
    assert torch.equal(cell(x), cell(x, torch.zeros(BATCH, M)))
    assert cell(x[0]).shape == (M,)
    assert torch.equal(cell(input=x, hx=torch.ones(BATCH, M)), cell(x, torch.ones(BATCH, M)))


def test_unbatched_equals_a_batch_of_one(cell_type: Any) -> None:
    cell, x, h = cell_type(N, M), torch.randn(BATCH, N), torch.randn(BATCH, M)
    for i in range(BATCH):
        torch.testing.assert_close(cell(x[i], h[i]), cell(x, h)[i], **CLOSE)


def test_views(cell_type: Any) -> None:
    cell, h = cell_type(N, M), torch.randn(M, BATCH).t()
    for x in (torch.randn(N, BATCH).t(), torch.randn(1, N).expand(BATCH, -1), torch.randn(BATCH, 2 * N)[:, ::2]):
        torch.testing.assert_close(cell(x, h), cell(x.contiguous(), h.contiguous()), **CLOSE)


def test_gradients(cell_type: Any) -> None:
    cell = cell_type(N, M)
    x, h = torch.randn(BATCH, N, requires_grad=True), torch.randn(BATCH, M, requires_grad=True)
    cell(x, h).square().sum().backward()
    for tensor in (x, h, *cell.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.any()


def test_empty_batch(cell_type: Any) -> None:
    assert cell_type(N, M)(torch.randn(0, N)).shape == (0, M)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_parameter_names(cell_type: Any, bias: bool) -> None:
    cell = cell_type(N, M, bias)
    assert [name for name, _ in cell.named_parameters()] == [
        name for name, _ in nn.GRUCell(N, M, bias).named_parameters()
    ]
    assert (cell.bias_ih is None) == (cell.bias_hh is None) == (not bias)
    assert list(cell.state_dict()) == [name for name, _ in cell.named_parameters()]


def test_copies_and_files(cell_type: Any) -> None:
    cell, x, file = cell_type(N, M), torch.randn(BATCH, N), io.BytesIO()
    torch.save(cell.state_dict(), file)
    file.seek(0)
    loaded = cell_type(N, M)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    for twin in (copy.deepcopy(cell), pickle.loads(pickle.dumps(cell)), loaded):
        assert torch.equal(twin(x), cell(x))
    with pytest.raises(RuntimeError, match="Missing key"):
        cell.load_state_dict({})


def test_repr(cell_type: Any) -> None:
    assert repr(cell_type(3, 4)) == f"{cell_type.__name__}(3, 4)"
    assert repr(cell_type(3, 4, bias=False)) == f"{cell_type.__name__}(3, 4, bias=False)"


def test_factory_arguments_and_precisions(cell_type: Any) -> None:
    assert cell_type(N, M, device="meta").weight_ih.device.type == "meta"
    cell = cell_type(N, M, dtype=torch.float64)
    assert cell(torch.randn(BATCH, N).double()).dtype == torch.float64
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert cell.to(dtype)(torch.randn(BATCH, N).to(dtype)).dtype == dtype


def test_device_and_dtype_by_place(cell_type: Any) -> None:
    cell = cell_type(N, M, True, "cpu", torch.float64)
    assert cell.weight_ih.dtype == cell.bias_hh.dtype == torch.float64
    assert cell_type(N, M, True, "meta").weight_hh.device.type == "meta"


def test_sizes_of_numpy_and_any_truth_as_bias(cell_type: Any) -> None:
    cell = cell_type(np.int64(N), np.int64(M), 1)
    assert cell(torch.randn(BATCH, N)).shape == (BATCH, M)
    assert cell.bias_ih is not None
    for bias in (0, None):
        assert cell_type(N, M, bias).bias_ih is None


@pytest.mark.parametrize(("inputs", "hidden"), [(N, 0), (0, M), (0, 0)], ids=["no state", "no input", "neither"])
def test_sizes_of_zero(cell_type: Any, inputs: int, hidden: int) -> None:
    cell = cell_type(inputs, hidden)
    x, h = torch.randn(BATCH, inputs, requires_grad=True), torch.randn(BATCH, hidden, requires_grad=True)
    assert cell(x[0]).shape == (hidden,)
    new = cell(x, h)
    assert new.shape == (BATCH, hidden)
    new.square().sum().backward()
    for tensor in (x, h, *cell.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.shape == tensor.shape
        assert tensor.grad.isfinite().all()


def test_functional_call(cell_type: Any) -> None:
    cell, other, x = cell_type(N, M), cell_type(N, M), torch.randn(BATCH, N)
    assert torch.equal(functional_call(cell, dict(other.named_parameters()), (x,)), other(x))


def test_symbolic_trace(cell_type: Any) -> None:
    model, x = nn.Sequential(cell_type(N, M), nn.Tanh()), torch.randn(BATCH, N)
    assert torch.equal(torch.fx.symbolic_trace(model)(x), model(x))


def test_inference_mode(cell_type: Any) -> None:
    with torch.inference_mode():
        assert cell_type(N, M)(torch.randn(BATCH, N)).is_inference()


@pytest.mark.parametrize(("layer", "cell"), [(nn.GRU, nn.GRUCell), (MuFuRU, MuFuRUCell)], ids=["GRU", "MuFuRU"])
def test_a_loop_over_the_cell_is_the_layer(layer: Any, cell: Any) -> None:
    rnn, one = layer(N, M), cell(N, M)
    one.load_state_dict({name.removesuffix("_l0"): value for name, value in rnn.state_dict().items()})
    x = torch.randn(6, BATCH, N)
    output, _ = rnn(x)
    state = torch.zeros(BATCH, M)
    for t in range(6):
        state = one(x[t], state)
        torch.testing.assert_close(state, output[t], **CLOSE)
