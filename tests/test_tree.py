"""TreeMuFuRU against a recursion node by node, against MuFuRU on a chain, and at its edges."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from oracle import OPS
from torch import Tensor
from tree_oracle import chain, compose, numbered, random_tree, state

import mufuru
from mufuru import PAPER, Levels, MuFuRU, TreeMuFuRU
from mufuru.tree_order import bottom_up

N, M = 3, 4
# the same float64 operations in another order
CLOSE: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
FORESTS: dict[str, Sequence[Any]] = {
    "one word": [0],
    "two words": [(0, 1)],
    "words alone": [0, 1, 2],
    "left": [((((0, 1), 2), 3), 4)],
    "right": [(0, (1, (2, (3, 4))))],
    "balanced": [((0, 1), (2, 3))],
    "mixed": [2, ((0, 4), (3, (1, 5))), (6, 7), (8, ((9, 10), 11))],
}


def leaves_of(tree: Any) -> int:
    return 1 if isinstance(tree, int) else leaves_of(tree[0]) + leaves_of(tree[1])


def made(ops: Sequence[str] = PAPER) -> TreeMuFuRU:
    """Weights far enough from 0 that every part makes a difference."""
    tree = TreeMuFuRU(N, M, ops=ops, dtype=torch.float64)
    with torch.no_grad():
        for parameter in tree.parameters():
            parameter.normal_()
    return tree


def arrays(tree: torch.nn.Module) -> dict[str, Any]:
    return {name: parameter.detach().double().numpy() for name, parameter in tree.named_parameters()}


def assert_as_the_recursion(tree: TreeMuFuRU, trees: Sequence[Any]) -> None:
    x = torch.randn(sum(map(leaves_of, trees)), N, dtype=torch.float64)
    children, nodes = numbered(trees, len(x))
    found = tree(x, children)
    expected = np.stack([state(arrays(tree), tree.ops, node, x.numpy()) for node in nodes])
    torch.testing.assert_close(found.detach(), torch.from_numpy(expected), **CLOSE)


@pytest.mark.parametrize("forest", FORESTS)
@pytest.mark.parametrize("ops", [PAPER, ("keep", "replace"), ("max",), tuple(OPS)], ids=["paper", "gru", "max", "all"])
def test_every_state_is_that_of_the_recursion(forest: str, ops: Sequence[str]) -> None:
    assert_as_the_recursion(made(ops), FORESTS[forest])


@pytest.mark.parametrize("seed", range(5))
def test_random_forests(seed: int) -> None:
    chance, trees, first = np.random.default_rng(seed), [], 0
    for leaves in chance.integers(1, 12, 6).tolist():
        trees.append(random_tree(chance, first, leaves))
        first += leaves
    assert_as_the_recursion(made(), trees)


@pytest.mark.parametrize("ops", [PAPER, ("keep", "replace")], ids=["paper", "gru"])
def test_gradients(ops: Sequence[str]) -> None:
    tree = made(ops)
    children, _ = numbered(FORESTS["mixed"], 12)
    x = torch.randn(12, N, dtype=torch.float64, requires_grad=True)
    names, parameters = zip(*tree.named_parameters(), strict=True)

    def states(x: Tensor, *given: Tensor) -> Tensor:
        found = torch.func.functional_call(tree, dict(zip(names, given, strict=True)), (x, children))
        return torch.as_tensor(found)

    assert torch.autograd.gradcheck(states, (x, *parameters))


def test_the_trace_has_the_weights_of_every_choice() -> None:
    tree, x = made(), torch.randn(12, N, dtype=torch.float64)
    children, nodes = numbered(FORESTS["mixed"], 12)
    trace = tree.trace(x, children)
    assert torch.equal(trace.states, tree(x, children))
    for number, (left, right) in enumerate(nodes[12:]):
        parts = [state(arrays(tree), tree.ops, part, x.numpy()) for part in (left, right)]
        _, p = compose(arrays(tree), tree.ops, *parts)
        torch.testing.assert_close(trace.weights[number].detach(), torch.from_numpy(p), **CLOSE)
    assert tree.trace(x[:1], children[:0]).weights.shape == (0, len(tree.choices), M)


def chain_unit(tree: TreeMuFuRU) -> MuFuRU:
    """The unit that a tree is on its left branch, if it leaves the right child's gate open and its operations alone."""
    layer = MuFuRU(M, M, ops=tree.ops, dtype=torch.float64)
    blocks = [0, 1, *(3 + k for k, name in enumerate(tree.choices) if not name.endswith("_right"))]
    rows = torch.cat([torch.arange(block * M, (block + 1) * M) for block in blocks])
    with torch.no_grad():
        layer.weight_hh_l0[:] = tree.weight[rows, :M]
        layer.weight_ih_l0[:] = tree.weight[rows, M:]
        layer.bias_ih_l0[:] = tree.bias[rows]
        layer.bias_hh_l0.zero_()
    return layer


@pytest.mark.parametrize("ops", [PAPER, ("keep", "replace"), ("add", "negate", "sqr_diff")], ids=" ".join)
def test_on_a_left_branch_it_is_mufuru(ops: Sequence[str]) -> None:
    """MuFuRU over the leaves' states, from the first of them on."""
    tree, words = made(ops), 9
    with torch.no_grad():
        # sigmoid(1000) is 1 and exp(-1000) is 0, exactly
        tree.bias[2 * M : 3 * M] = 1000.0
        for k, name in enumerate(tree.choices):
            if name.endswith("_right"):
                tree.bias[(3 + k) * M : (4 + k) * M] = -1000.0
    x = torch.randn(words, N, dtype=torch.float64)
    leaves = tree.leaf(x)
    output, _ = chain_unit(tree)(leaves[1:].unsqueeze(1), leaves[:1].unsqueeze(0))
    children, _ = chain(words, "left")
    torch.testing.assert_close(tree(x, children)[words:], output.squeeze(1), **CLOSE)


@pytest.mark.parametrize("to", ["left", "right"])
def test_a_deep_tree(to: str) -> None:
    """Deeper than Python can call itself; its root is that of compositions one after the other."""
    words = 1200
    tree, x = TreeMuFuRU(N, M), torch.randn(words, N, requires_grad=True)
    children, root = chain(words, to)
    found = tree(x, children)[root]
    with torch.no_grad():
        leaves = tree.leaf(x)
        top, *rest = leaves.split(1) if to == "left" else leaves.flip(0).split(1)
        for word in rest:
            top = tree.compose(top, word) if to == "left" else tree.compose(word, top)
    # the same products of other shapes may round in another way
    torch.testing.assert_close(found.detach(), top.squeeze(0), rtol=0, atol=1e-5)
    found.sum().backward()
    last = x.grad[-1] if to == "left" else x.grad[0]
    assert last.abs().sum() > 0
    assert torch.isfinite(x.grad).all()


def test_one_call_for_each_height() -> None:
    children, _ = numbered(FORESTS["mixed"], 12)
    sizes = []

    def compose(pairs: Tensor) -> Tensor:
        sizes.append(len(pairs))
        return pairs.sum(1)

    ones = bottom_up(torch.ones(12, 1), Levels.of(children, 12), compose).flatten().tolist()
    assert sizes == [4, 2, 2]
    # every node's sum is the number of its leaves
    assert ones == [1.0] * 12 + [2.0, 2.0, 3.0, 5.0, 2.0, 2.0, 3.0, 4.0]


def test_levels_serve_several_passes_and_inner_nodes_may_have_any_order() -> None:
    tree, x = made(), torch.randn(5, N, dtype=torch.float64)
    one = torch.tensor([[0, 1], [2, 3], [5, 6], [7, 4]])
    other = torch.tensor([[2, 3], [0, 1], [6, 5], [7, 4]])
    levels = Levels.of(one, 5)
    torch.testing.assert_close(tree(x, levels), tree(x, one), rtol=0, atol=0)
    torch.testing.assert_close(tree(x, other)[[6, 5, 7, 8]], tree(x, one)[5:], **CLOSE)


def test_choices_of_the_papers_operations() -> None:
    tree = TreeMuFuRU(N, M)
    both = [f"{name}_{side}" for name in ("keep", "max", "min", "mul", "diff") for side in ("left", "right")]
    assert sorted(tree.choices) == sorted([*both, "replace", "forget"])
    assert tree.ops == PAPER


def test_an_operation_of_ones_own() -> None:
    def even(s: Tensor, v: Tensor) -> Tensor:
        return s * s * v

    def features(s: Tensor, v: Tensor) -> Tensor:
        return v.abs()

    def far_out(s: Tensor, v: Tensor) -> Tensor:
        return s.clamp(min=1.0) * v

    tree = TreeMuFuRU(N, M, ops=("keep", even, features, far_out))
    own = ("even_left", "even_right", "features", "far_out_left", "far_out_right")
    assert tree.choices == ("keep_left", "keep_right", *own)
    assert torch.isfinite(tree(torch.randn(2, N), torch.tensor([[0, 1]]))).all()


def test_first_values() -> None:
    tree = TreeMuFuRU(N, 50, reset_bias=0.5, op_bias={"keep": 3.0, "max": -1.0})
    blocks = dict(zip(("v", "g_left", "g_right", *tree.choices), tree.bias.detach().split(50), strict=True))
    bound = 50**-0.5
    for name, block in blocks.items():
        expected = {"g": 0.5, "keep": 3.0, "max": -1.0}.get(name.split("_")[0], 0.0)
        assert name == "v" or block.eq(expected).all(), name
    assert 0 < blocks["v"].std() < bound
    assert bound / 2 < tree.weight.abs().max() <= bound
    by_default = TreeMuFuRU(N, M)
    assert by_default.bias[3 * M : 5 * M].eq(2.0).all()
    assert by_default.bias[M : 3 * M].eq(1.0).all()


def test_copies_and_words() -> None:
    tree, x = TreeMuFuRU(N, M, ops=("keep", "max")), torch.randn(2, N)
    children = torch.tensor([[0, 1]])
    for other in (copy.deepcopy(tree), pickle.loads(pickle.dumps(tree))):
        assert torch.equal(other(x, children), tree(x, children))
    assert repr(tree) == "TreeMuFuRU(3, 4, ops=('keep', 'max'))"
    assert mufuru.TreeMuFuRU is TreeMuFuRU


@pytest.mark.parametrize(
    ("rows", "children", "error", "words"),
    [
        ((0, N), [], ValueError, "expected at least one tree, which has at least one leaf, got 0 leaves"),
        ((2, N + 1), [[0, 1]], ValueError, "input should be (leaves, 3), got [2, 4]"),
        ((2, N), [0, 1], ValueError, "children should be (inner nodes, 2), a left and a right one, got [2]"),
        ((2, N), [[0.0, 1.0]], TypeError, "children should be numbers of nodes, int64"),
        ((2, N), [[0, 2]], ValueError, "node 2 has the children 0 and 2: expected numbers from 0 to 1"),
        ((3, N), [[0, 1], [-1, 2]], ValueError, "node 4 has the children -1 and 2: expected numbers from 0 to 3"),
    ],
)
def test_what_is_refused(rows: tuple[int, int], children: list[Any], error: type[Exception], words: str) -> None:
    tree = TreeMuFuRU(N, M)
    given = torch.tensor(children) if children else torch.zeros(0, 2, dtype=torch.int64)
    with pytest.raises(error, match=re.escape(words)):
        tree(torch.randn(rows), given)


def test_another_default_device_does_not_matter() -> None:
    tree, x, children = TreeMuFuRU(N, M), torch.randn(3, N), torch.tensor([[0, 1], [3, 2]])
    with torch.device("meta"):
        found = tree(x, children)
        TreeMuFuRU(N, M, device="cpu")
    assert torch.equal(found, tree(x, children))


def test_more_that_is_refused() -> None:
    for given in ((None, torch.tensor([[0, 1]])), (torch.randn(2, N), [[0, 1]])):
        with pytest.raises(TypeError, match="input and children should be tensors, children perhaps Levels, got"):
            TreeMuFuRU(N, M)(*given)
    with pytest.raises(ValueError, match="the trees have 3 leaves, expected an input row for each, got 2"):
        TreeMuFuRU(N, M)(torch.randn(2, N), Levels.of(torch.tensor([[0, 1]]), 3))
    with pytest.raises(ValueError, match="hidden_size should be a whole number above 0, got 0"):
        TreeMuFuRU(N, 0)
    with pytest.raises(ValueError, match="unknown operation 'maximum'"):
        TreeMuFuRU(N, M, ops=("maximum",))
    with pytest.raises(ValueError, match="op_bias names 'max'"):
        TreeMuFuRU(N, M, ops=("keep",), op_bias={"max": 1.0})
