"""The Tree-LSTM against the paper's equations, node by node, in NumPy; and against nn.LSTM on a chain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from tree_oracle import chain, lstm, numbered, random_tree

from mufuru import Levels
from mufuru.experiments.tasks.trees.model import TreeLSTM
from mufuru.tree_order import bottom_up

N, M = 3, 4
# the same float64 operations in another order
CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}


def made() -> TreeLSTM:
    """Weights far enough from 0 that every part makes a difference."""
    unit = TreeLSTM(N, M).double()
    with torch.no_grad():
        for parameter in unit.parameters():
            parameter.normal_()
    return unit


def forest(seed: int) -> tuple[Tensor, Levels, list[Any]]:
    chance, trees, first = np.random.default_rng(seed), [], 0
    for leaves in (1, 2, *chance.integers(1, 12, 4).tolist()):
        trees.append(random_tree(chance, first, leaves))
        first += leaves
    children, nodes = numbered(trees, first)
    return torch.randn(first, N, dtype=torch.float64), Levels.of(children, first), nodes


@pytest.mark.parametrize("seed", range(4))
def test_every_state_is_that_of_the_equations(seed: int) -> None:
    unit, (x, levels, nodes) = made(), forest(seed)
    w = {name: parameter.detach().numpy() for name, parameter in unit.named_parameters()}
    expected = np.stack([lstm(w, node, x.numpy())[0] for node in nodes])
    torch.testing.assert_close(unit(x, levels).detach(), torch.from_numpy(expected), **CLOSE)


def test_gradients() -> None:
    unit, (x, levels, _) = made(), forest(0)
    names, parameters = zip(*unit.named_parameters(), strict=True)

    def states(x: Tensor, *given: Tensor) -> Tensor:
        found = torch.func.functional_call(unit, dict(zip(names, given, strict=True)), (x, levels))
        return torch.as_tensor(found)

    assert torch.autograd.gradcheck(states, (x.requires_grad_(), *parameters))


def test_on_a_left_branch_it_is_an_lstm() -> None:
    """nn.LSTM over the leaves' h, if the right child's memory is forgotten: its gates are i, f, g, o."""
    unit, words = made(), 7
    x, levels = torch.randn(words, N, dtype=torch.float64), Levels.of(chain(words, "left")[0], words)
    with torch.no_grad():
        # no product reaches 1000, and sigmoid(-1000) is 0: the right forget gate is shut, the left one as it was
        unit.weight[4 * M :] = 0.0
        unit.weight[4 * M :, M:] = -1e6
        leaves = unit._leaf(x)
        leaves[:, :M] = leaves[:, :M].abs() + 0.01
        layer = torch.nn.LSTM(M, M).double()
        i, o, u, f, _ = unit.weight.split(M)
        layer.weight_hh_l0[:] = torch.cat([block[:, :M] for block in (i, f, u, o)])
        layer.weight_ih_l0[:] = torch.cat([block[:, M:] for block in (i, f, u, o)])
        b_i, b_o, b_u, b_f = unit.bias.split(M)
        layer.bias_ih_l0[:] = torch.cat((b_i, b_f, b_u, b_o))
        layer.bias_hh_l0.zero_()
        h, c = leaves[:1].chunk(2, 1)
        output, _ = layer(leaves[1:, :M].unsqueeze(1), (h.unsqueeze(0), c.unsqueeze(0)))
        found = bottom_up(leaves, levels, unit._compose)[words:, :M]
    torch.testing.assert_close(found, output.squeeze(1), **CLOSE)


def test_first_values() -> None:
    unit = TreeLSTM(N, 50, forget_bias=1.5)
    assert unit.bias[150:].eq(1.5).all()
    bound = 50**-0.5
    assert bound / 2 < unit.bias[:150].abs().max() <= bound
    assert TreeLSTM(N, 50).bias[150:].abs().max() <= bound
    # the equations' count: U of five gates over two children, W of three at leaves, b of four
    assert sum(parameter.numel() for parameter in unit.parameters()) == 5 * 50 * 100 + 3 * 50 * N + 4 * 50
