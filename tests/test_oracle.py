"""Layer, cell and kernel against the NumPy oracle: values for every option, gradients by finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from oracle import Array, Options
from torch import Tensor, nn

from mufuru import PAPER, MuFuRU, MuFuRUCell, intervene, ops
from mufuru.kernels import Call, Masks, execute

# float64 sums of a few dozen terms in another order: some units in the last place, 2e-16 each
TOLERANCE = 1e-12
N, M, K, STEPS, BATCH = 3, 4, 5, 6, 2
LENGTHS = (6, 0, 3, 1)


def options_of(module: MuFuRU | MuFuRUCell, **more: Any) -> Options:
    chooser = module.controller_size, module.controller_activation
    return Options(module.hidden_size, module.ops, module.reset, module.activation, *chooser, **more)


def arrays(module: nn.Module) -> dict[str, Array]:
    return {name: p.detach().numpy().astype(np.float64) for name, p in module.named_parameters()}


def scrambled(module: Any) -> Any:
    """Parameters far from their first values, biases too: zeros hide mistakes."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-1.2, 1.2)
    return module


def states(layer: MuFuRU, batch: int) -> tuple[Tensor, Tensor | None]:
    units = layer.num_layers * layer.num_directions
    h = torch.rand(units, batch, layer.hidden_size, dtype=torch.float64) * 2 - 1
    if layer.controller_size is None:
        return h, None
    return h, torch.rand(units, batch, layer.controller_size, dtype=torch.float64)


def assert_layer_matches(
    layer: MuFuRU, lengths: tuple[int, ...] | None = None, given: bool = True, **more: Any
) -> None:
    batch = BATCH if lengths is None else len(lengths)
    x = torch.randn(STEPS, batch, layer.input_size, dtype=torch.float64)
    h0, k0 = states(layer, batch) if given else (None, None)
    hx = h0 if k0 is None or h0 is None else (h0, k0)
    output, h_n = layer(x, hx, lengths=lengths)
    sequences = [x[: STEPS if lengths is None else lengths[i], i].numpy() for i in range(batch)]
    expected = oracle.network(
        options_of(layer, **more), arrays(layer), sequences,
        None if h0 is None else h0.numpy(), None if k0 is None else k0.numpy(),
        layers=layer.num_layers, directions=layer.num_directions,
    )  # fmt: skip
    for i, ys in enumerate(expected.outputs):
        np.testing.assert_allclose(output[: len(ys), i].detach().numpy(), ys, rtol=0, atol=TOLERANCE)
        assert not output[len(ys) :, i].any()
    h, k = h_n if isinstance(h_n, tuple) else (h_n, None)
    np.testing.assert_allclose(h.detach().numpy(), expected.h_n, rtol=0, atol=TOLERANCE)
    assert (k is None) == (expected.k_n is None)
    if k is not None and expected.k_n is not None:
        np.testing.assert_allclose(k.detach().numpy(), expected.k_n, rtol=0, atol=TOLERANCE)


def double(**options: Any) -> MuFuRU:
    layer: MuFuRU = scrambled(MuFuRU(N, M, dtype=torch.float64, **options))
    return layer


CHOOSERS: dict[str, dict[str, Any]] = {
    "full": {},
    "controller": {"controller_size": K},
    "controller, relu": {"controller_size": K, "controller_activation": "relu"},
}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("chooser", CHOOSERS)
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("reset", ["before", "after", None])
def test_layer_has_the_oracles_values(reset: Any, activation: Any, chooser: str, bias: bool) -> None:
    assert_layer_matches(double(reset=reset, activation=activation, bias=bias, **CHOOSERS[chooser]))


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["equal", "lengths"])
@pytest.mark.parametrize("controller", [None, K], ids=["full", "controller"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize("layers", [1, 3])
def test_stacks_have_the_oracles_values(layers: int, bidirectional: bool, controller: int | None, lengths: Any) -> None:
    layer = double(num_layers=layers, bidirectional=bidirectional, controller_size=controller)
    assert_layer_matches(layer, lengths)
    assert_layer_matches(layer, lengths, given=False)


@pytest.mark.parametrize("op", ops.names())
def test_each_operation_alone(op: str) -> None:
    assert op in oracle.OPS, f"write {op} into the oracle, from its formula"
    assert_layer_matches(double(ops=(op,)))


@pytest.mark.parametrize("names", [("replace", "keep"), ("diff", "mul", "forget", "sqr_diff"), tuple(reversed(PAPER))])
def test_operations_in_any_order(names: tuple[str, ...]) -> None:
    assert_layer_matches(double(ops=names, num_layers=2), LENGTHS)


@pytest.mark.parametrize("controller", [None, K], ids=["full", "controller"])
def test_zoneout_at_evaluation(controller: int | None) -> None:
    layer = double(zoneout=0.3, num_layers=2, bidirectional=True, controller_size=controller).eval()
    assert_layer_matches(layer, LENGTHS, zoneout=0.3)


def test_forbidden_operations() -> None:
    layer = double(bidirectional=True)
    with intervene(layer, forbid=("keep", "diff")):
        assert_layer_matches(layer, LENGTHS, allowed=[name not in ("keep", "diff") for name in PAPER])


@pytest.mark.parametrize("reset", ["before", "after", None])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_kernel_with_a_state_mask(reset: Any, reverse: bool) -> None:
    layer = double(reset=reset)
    mask = torch.tensor([0.0, 2.0, 1.5, 0.0], dtype=torch.float64)
    x, (h0, _) = torch.randn(STEPS, N, dtype=torch.float64), states(layer, 1)
    call = Call(layer.unit, layer._weights(0), x, h0[0], masks=Masks(state=mask[None]), reverse=reverse)
    w = {name.removesuffix("_l0"): p for name, p in arrays(layer).items()}
    ys, last, _ = oracle.direction(options_of(layer), w, x.numpy(), h0[0, 0].numpy(), None, reverse, mask.numpy())
    result = execute(call)
    np.testing.assert_allclose(result.output.detach().numpy(), ys, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(result.s_n[0].detach().numpy(), last, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("chooser", CHOOSERS)
@pytest.mark.parametrize("reset", ["before", "after", None])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_cell_has_the_oracles_values(reset: Any, chooser: str, bias: bool) -> None:
    cell = scrambled(MuFuRUCell(N, M, bias, reset=reset, **CHOOSERS[chooser], dtype=torch.float64))
    x, s = torch.randn(BATCH, N, dtype=torch.float64), torch.randn(BATCH, M, dtype=torch.float64)
    k = None if cell.controller_size is None else torch.rand(BATCH, cell.controller_size, dtype=torch.float64)
    result = cell(x, s if k is None else (s, k))
    new_s, new_k = result if isinstance(result, tuple) else (result, None)
    for i in range(BATCH):
        k_i = None if k is None else k[i].numpy()
        expected, expected_k, _, _ = oracle.step(options_of(cell), arrays(cell), x[i].numpy(), s[i].numpy(), k_i)
        np.testing.assert_allclose(new_s[i].detach().numpy(), expected, rtol=0, atol=TOLERANCE)
        if new_k is not None:
            assert expected_k is not None
            np.testing.assert_allclose(new_k[i].detach().numpy(), expected_k, rtol=0, atol=TOLERANCE)


def sampled_differences(value: Callable[[], float], array: Array, entries: int = 12) -> dict[int, float]:
    """Central finite differences of `value()` by some entries of an array that it reads."""
    eps, flat = 1e-6, array.reshape(-1)
    chosen = np.random.default_rng(0).permutation(flat.size)[:entries]
    slopes = {}
    for index in chosen.tolist():
        old, ends = flat[index], []
        for sign in (1, -1):
            flat[index] = old + sign * eps
            ends.append(value())
        flat[index] = old
        slopes[index] = (ends[0] - ends[1]) / (2 * eps)
    return slopes


GRADIENT_CASES: dict[str, dict[str, Any]] = {
    "paper": {},
    "after": {"reset": "after"},
    "no reset, no bias": {"reset": None, "bias": False},
    "sigmoid": {"activation": "sigmoid"},
    "controller": CHOOSERS["controller"],
    "controller, relu": CHOOSERS["controller, relu"],
    "two layers, both ways": {"num_layers": 2, "bidirectional": True},
    "all operations": {"ops": ops.names()},
    "controller, both ways, after": {"controller_size": K, "bidirectional": True, "reset": "after"},
}


@pytest.mark.parametrize("case", GRADIENT_CASES)
def test_gradients_are_the_oracles_slopes(case: str) -> None:
    layer, lengths = double(**GRADIENT_CASES[case]), (3, 0, 2)
    x = torch.randn(3, len(lengths), N, dtype=torch.float64)
    start = [state for state in states(layer, len(lengths)) if state is not None]
    leaves = {"x": x, "h0": start[0]} | ({"k0": start[1]} if len(start) == 2 else {})
    numbers = {name: leaf.numpy().copy() for name, leaf in leaves.items()} | arrays(layer)
    numbers = {name: array.copy() for name, array in numbers.items()}
    factor = np.random.default_rng(1).normal(size=100)

    def value() -> float:
        sequences = [numbers["x"][:length, i] for i, length in enumerate(lengths)]
        result = oracle.network(
            options_of(layer), numbers, sequences, numbers["h0"], numbers.get("k0"),
            layers=layer.num_layers, directions=layer.num_directions,
        )  # fmt: skip
        ends = [result.h_n] + ([] if result.k_n is None else [result.k_n])
        flat = np.concatenate([a.reshape(-1) for a in (*result.outputs, *ends)])
        return float((flat * np.resize(factor, flat.size)).sum())

    for leaf in leaves.values():
        leaf.requires_grad_()
    hx = start[0] if len(start) == 1 else (start[0], start[1])
    output, h_n = layer(x, hx, lengths=lengths)
    ends = h_n if isinstance(h_n, tuple) else (h_n,)
    flat = torch.cat(
        [output[:length, i].reshape(-1) for i, length in enumerate(lengths)] + [e.reshape(-1) for e in ends]
    )
    loss = (flat * torch.from_numpy(np.resize(factor, len(flat)))).sum()
    # summation order alone sets the two apart
    assert loss.item() == pytest.approx(value(), abs=1e-10)
    loss.backward()
    for name, leaf in (leaves | dict(layer.named_parameters())).items():
        assert leaf.grad is not None, name
        for index, slope in sampled_differences(value, numbers[name]).items():
            # central differences at 1e-6: cancellation leaves about 1e-16 / 1e-6 times a few dozen terms
            assert leaf.grad.reshape(-1)[index].item() == pytest.approx(slope, abs=1e-7), (name, index)
