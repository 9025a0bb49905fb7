"""First values and options of the unit: biases, the learned initial state, the controller's pair of states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from mufuru import PAPER, MuFuRU, MuFuRUCell

STEPS, BATCH, N, M, K = 5, 2, 3, 4, 6
X = torch.linspace(-1, 1, STEPS * BATCH * N).view(STEPS, BATCH, N)


def first_bias(module: Any, suffix: str = "") -> torch.Tensor:
    """Input's and state's side together, by block: feature, reset, then the operations."""
    total: torch.Tensor = getattr(module, "bias_ih" + suffix) + getattr(module, "bias_hh" + suffix)
    return total.detach().view(-1, M)


@pytest.mark.parametrize("make", [MuFuRU, MuFuRUCell])
def test_first_biases(make: Any) -> None:
    suffix = "_l0" if make is MuFuRU else ""
    plain = first_bias(make(N, M), suffix)
    assert bool((plain[1] == 1).all())
    named = first_bias(make(N, M, reset_bias=-0.5, op_bias={"max": 3.0, "keep": -1.0}), suffix)
    assert bool((named[1] == -0.5).all())
    assert named[2:, 0].tolist() == [-1, 0, 3, 0, 0, 0, 0]
    in_order = first_bias(make(N, M, op_bias=range(7)), suffix)
    assert in_order[2:].tolist() == [[float(j)] * M for j in range(7)]


def test_first_biases_in_every_layer_and_direction() -> None:
    layer = MuFuRU(N, M, 2, bidirectional=True, op_bias={"diff": 4.0}, reset_bias=2.0)
    for suffix in ("_l0", "_l0_reverse", "_l1", "_l1_reverse"):
        bias = first_bias(layer, suffix)
        assert bias[1].tolist() == [2.0] * M
        assert bias[2 + PAPER.index("diff")].tolist() == [4.0] * M


def test_first_biases_with_a_controller() -> None:
    layer: Any = MuFuRU(N, M, controller_size=K, op_bias={"mul": 1.5}, reset_bias=0.25)
    assert layer.bias_op_l0.view(-1, M)[:, 0].tolist() == [0, 0, 0, 0, 1.5, 0, 0]
    assert (layer.bias_ih_l0 + layer.bias_hh_l0)[M : 2 * M].tolist() == [0.25] * M


def test_reset_parameters_brings_the_first_biases_back() -> None:
    layer: Any = MuFuRU(N, M, reset_bias=0.5)
    with torch.no_grad():
        layer.bias_ih_l0.fill_(9)
    layer.reset_parameters()
    assert first_bias(layer, "_l0")[1].tolist() == [0.5] * M


@pytest.mark.parametrize("reset", ["before", "after", None])
@pytest.mark.parametrize("controller", [None, K], ids=["full", "controller"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_parameter_shapes(reset: Any, controller: int | None, bias: bool) -> None:
    layer: Any = MuFuRU(N, M, 2, bias, bidirectional=True, reset=reset, controller_size=controller)
    rows = M * (1 if reset is None else 2) + (7 * M if controller is None else K)
    expected: dict[str, tuple[int, ...]] = {"weight_ih_l1_reverse": (rows, 2 * M), "weight_hh_l1_reverse": (rows, M)}
    expected |= {"bias_ih_l1_reverse": (rows,), "bias_hh_l1_reverse": (rows,)} if bias else {}
    if controller is not None:
        expected |= {"weight_kk_l1_reverse": (K, K), "weight_op_l1_reverse": (7 * M, K)}
        expected |= {"bias_op_l1_reverse": (7 * M,)} if bias else {}
    found = {name: tuple(p.shape) for name, p in layer.named_parameters() if name.endswith("_l1_reverse")}
    assert found == expected
    assert layer.weight_ih_l0.shape == (rows, N)


def test_a_controller_makes_the_state_a_pair() -> None:
    layer = MuFuRU(N, M, 2, bidirectional=True, controller_size=K)
    _, (h_n, k_n) = layer(X)
    assert h_n.shape == (4, BATCH, M)
    assert k_n.shape == (4, BATCH, K)
    _, (h, k) = layer(X[:, 0])
    assert (h.shape, k.shape) == ((4, M), (4, K))
    cell = MuFuRUCell(N, M, controller_size=K)
    h, k = cell(X[0])
    assert (h.shape, k.shape) == ((BATCH, M), (BATCH, K))
    h, k = cell(X[0, 0], (h[0], k[0]))
    assert (h.shape, k.shape) == ((M,), (K,))


def test_the_pair_is_carried() -> None:
    layer = MuFuRU(N, M, controller_size=K)
    whole, end = layer(X)
    first, state = layer(X[:2])
    second, last = layer(X[2:], state)
    # float32 rounding of products of another height
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=0, atol=1e-6)
    torch.testing.assert_close(last, end, rtol=0, atol=1e-6)
    assert not torch.allclose(layer(X[2:], (state[0], torch.zeros_like(state[1])))[0], second)


def test_pairs_with_unsorted_packed_sequences() -> None:
    layer = MuFuRU(N, M, controller_size=K)
    h0, k0 = torch.randn(1, BATCH, M), torch.rand(1, BATCH, K)
    _, (h_n, k_n) = layer(pack_padded_sequence(X, [2, 5], enforce_sorted=False), (h0, k0))
    _, (h, k) = layer(X[:2, :1], (h0[:, :1], k0[:, :1]))
    torch.testing.assert_close(h_n[:, :1], h, rtol=0, atol=1e-6)
    torch.testing.assert_close(k_n[:, :1], k, rtol=0, atol=1e-6)


@pytest.mark.parametrize("controller", [None, K], ids=["full", "controller"])
def test_learned_initial_state(controller: int | None) -> None:
    layer: Any = MuFuRU(N, M, 2, bidirectional=True, controller_size=controller, learn_initial_state=True)
    plain = MuFuRU(N, M, 2, bidirectional=True, controller_size=controller)
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k not in ("h_0", "k_0")})
    assert torch.equal(layer(X)[0], plain(X)[0]), "it starts at zero"
    with torch.no_grad():
        for name in ("h_0", "k_0")[: 1 if controller is None else 2]:
            getattr(layer, name).uniform_(0, 1)
    h0 = layer.h_0.unsqueeze(1).expand(-1, BATCH, -1)
    hx = h0 if controller is None else (h0, layer.k_0.unsqueeze(1).expand(-1, BATCH, -1))
    assert torch.equal(layer(X)[0], plain(X, hx)[0])
    given = torch.zeros(4, BATCH, M) if controller is None else (torch.zeros(4, BATCH, M), torch.zeros(4, BATCH, K))
    assert torch.equal(layer(X, given)[0], plain(X)[0]), "a given state goes before the learned one"
    layer(X)[0].sum().backward()
    assert layer.h_0.grad.any()
    assert controller is None or layer.k_0.grad.any()


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_controller_with_relu_grows_without_bound(activation: Any) -> None:
    """Where it doubles itself; the operations that it chooses are then the same, whatever comes in."""
    layer: Any = MuFuRU(N, M, ops=("keep", "replace"), controller_size=K, controller_activation=activation)
    with torch.no_grad():
        layer.weight_kk_l0.copy_(2 * torch.eye(K))
    trace = layer.trace(torch.randn(60, 1, N))
    changing = trace.weight("keep")[40:, 0].std(0).max()
    assert bool(changing < 1e-6) == (activation == "relu")
    _, (_, k) = layer(torch.randn(200, 1, N))
    assert k.isfinite().all().item() == (activation == "tanh")


def test_repr_names_the_options() -> None:
    layer = MuFuRU(N, M, ops=("keep", "replace"), reset=None, activation="sigmoid", controller_size=K)
    assert repr(layer) == ("MuFuRU(3, 4, ops=('keep', 'replace'), reset=None, activation='sigmoid', controller_size=6)")
    assert repr(MuFuRUCell(N, M, ops=("keep",), reset="after")) == "MuFuRUCell(3, 4, ops=('keep',), reset='after')"


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_kernels_by_name(kernel: Any) -> None:
    layer = MuFuRU(N, M, kernel=kernel)
    reference = MuFuRU(N, M, kernel="reference")
    reference.load_state_dict(layer.state_dict())
    # another kernel may add in another order: float32 rounding
    torch.testing.assert_close(layer(X)[0], reference(X)[0], rtol=0, atol=1e-6)
