"""Layers without some operations: beside the layer that is forbidden to use them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mufuru
from mufuru import MuFuRU, MuFuRUCell
from mufuru.prune import without_operations

LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "stacked, both ways": {"num_layers": 2, "bidirectional": True},
    "no reset": {"reset": None},
    "controller, learned start": {"controller_size": 3, "learn_initial_state": True},
    "controller, relu": {"controller_size": 3, "controller_activation": "relu"},
    "no biases": {"bias": False, "reset": "after"},
    "zoneout": {"zoneout": 0.3, "batch_first": True},
}


@pytest.mark.parametrize("kernel", ["native", "reference"])
@pytest.mark.parametrize("dropped", [("max",), ("keep", "forget"), ("replace", "max", "min", "mul", "diff", "forget")])
@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_it_is_the_layer_that_may_not_use_them(options: dict[str, Any], dropped: tuple[str, ...], kernel: Any) -> None:
    layer = MuFuRU(3, 4, kernel=kernel, dtype=torch.float64, **options).eval()
    smaller = without_operations(layer, dropped)
    assert smaller.ops == tuple(name for name in layer.ops if name not in dropped)
    assert smaller.kernel == kernel
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    with mufuru.intervene(layer, forbid=dropped):
        expected, state = layer(x)
    found, small_state = smaller(x)
    # the same sums in another order
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(small_state, state, rtol=1e-12, atol=1e-12)


def test_nothing_changes_where_the_weight_was_zero() -> None:
    layer = MuFuRU(3, 4, ops=("keep", "replace", "mul"))
    with torch.no_grad():
        # a logit of -200 is a weight of exactly 0 in float32
        layer.bias_ih_l0[-4:] = -200.0
    x = torch.randn(6, 2, 3)
    assert float(layer.trace(x).weight("mul").detach().max()) == 0.0
    # the sums are of the same numbers; kernels may add them in another order
    torch.testing.assert_close(without_operations(layer, ["mul"])(x)[0], layer(x)[0], rtol=1e-6, atol=1e-7)


def test_the_others_are_divided_by_their_sum() -> None:
    layer = MuFuRU(3, 4).eval()
    x = torch.randn(1, 2, 3)
    p = layer.trace(x).weights()
    smaller = without_operations(layer, ["max", "min"]).trace(x).weights()
    kept = p[..., [0, 1, 4, 5, 6], :]
    torch.testing.assert_close(smaller, kept / (1 - p[..., [2, 3], :].sum(-2, keepdim=True)))


def test_a_cell() -> None:
    cell = MuFuRUCell(3, 4, op_bias={"keep": 1.0, "max": 2.0})
    smaller = without_operations(cell, ["max"])
    assert smaller.op_bias == {"keep": 1.0}
    x = torch.randn(2, 3)
    with mufuru.intervene(cell, forbid="max"):
        expected = cell(x)
    torch.testing.assert_close(smaller(x), expected)


def test_operations_and_options_of_ones_own_stay() -> None:
    def halve(s: Tensor, v: Tensor) -> Tensor:
        return 0.5 * s

    layer = MuFuRU(3, 4, ops=("keep", halve, "max"), op_bias=[1.0, 2.0, 3.0], state_dropout=0.25, reset_bias=0.5)
    smaller = without_operations(layer.train(), ["keep"])
    assert smaller.ops == ("halve", "max")
    assert (smaller.op_bias, smaller.state_dropout, smaller.reset_bias) == ([2.0, 3.0], 0.25, 0.5)
    assert smaller.training
    smaller.eval()(torch.randn(5, 2, 3))[0].sum().backward()
    assert smaller.weight_hh_l0.grad is not None
    assert layer.weight_hh_l0.grad is None


def test_what_is_frozen_stays_frozen() -> None:
    layer = MuFuRU(3, 4).requires_grad_(False)
    layer.bias_ih_l0.requires_grad_(True)
    smaller = without_operations(layer, ["max"])
    assert [name for name, parameter in smaller.named_parameters() if parameter.requires_grad] == ["bias_ih_l0"]


def test_one_name_is_no_list_of_letters() -> None:
    assert without_operations(MuFuRU(3, 4, ops=("keep", "max")), "max").ops == ("keep",)


def test_what_cannot_be_dropped() -> None:
    layer = MuFuRU(3, 4, ops=("keep", "replace"))
    with pytest.raises(ValueError, match=r"no operation 'maximum': expected one of keep, replace"):
        without_operations(layer, ["maximum"])
    with pytest.raises(ValueError, match="nothing is left of the operations keep, replace"):
        without_operations(layer, ["keep", "replace"])
    nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")
    with pytest.raises(ValueError, match="weight_hh_l0 is computed from other tensors"):
        without_operations(layer, ["keep"])
