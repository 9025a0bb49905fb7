"""The unit over trees in NumPy float64, written again from its equations: one tree, one node, one vector at a time.

A tree is nested pairs; a leaf is the number of its input row. It shares nothing with the package but the layout of the
parameters: rows of `weight` are the blocks feature, gate of the left child, gate of the right one, then the choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from oracle import OPS, Array, sigmoid, softmax
from torch import Tensor

Nested = Any
"""A number or a pair of trees."""
OF_FEATURES_ALONE = ("replace", "forget")


def random_tree(chance: np.random.Generator, first: int, leaves: int) -> Nested:
    """A tree over so many leaves, numbered from `first` on, split at random places."""
    if leaves == 1:
        return first
    left = int(chance.integers(1, leaves))
    return random_tree(chance, first, left), random_tree(chance, first + left, leaves - left)


def numbered(trees: Sequence[Nested], leaves: int) -> tuple[Tensor, list[Nested]]:
    """The children as the package wants them, and the subtree behind every number."""
    children: list[list[int]] = []
    nodes: list[Nested] = list(range(leaves))

    def visit(tree: Nested) -> int:
        if isinstance(tree, int):
            return tree
        children.append([visit(tree[0]), visit(tree[1])])
        nodes.append(tree)
        return len(nodes) - 1

    for tree in trees:
        visit(tree)
    return torch.tensor(children, dtype=torch.int64).view(-1, 2), nodes


def state(w: Mapping[str, Array], ops: Sequence[str], tree: Nested, x: Array) -> Array:
    """The state of a tree's root."""
    if isinstance(tree, int):
        return np.asarray(np.tanh(w["weight_leaf"] @ x[tree] + w["bias_leaf"]))
    return compose(w, ops, state(w, ops, tree[0], x), state(w, ops, tree[1], x))[0]


def compose(w: Mapping[str, Array], ops: Sequence[str], left: Array, right: Array) -> tuple[Array, Array]:
    """A node's state from its children's, and the weights of its choices."""
    M = len(left)

    def rows(block: int, both: Array) -> Array:
        place = slice(block * M, (block + 1) * M)
        return w["weight"][place] @ both + w["bias"][place]

    both = np.concatenate((left, right))
    gates = np.concatenate((sigmoid(rows(1, both)), sigmoid(rows(2, both))))
    v = np.tanh(rows(0, gates * both))
    composed = []
    for name in ops:
        composed += [OPS[name](left, v)] + ([] if name in OF_FEATURES_ALONE else [OPS[name](right, v)])
    p = softmax(np.stack([rows(3 + k, both) for k in range(len(composed))]), None)
    return np.asarray((p * np.stack(composed)).sum(0)), p


def lstm(w: Mapping[str, Array], tree: Nested, x: Array) -> tuple[Array, Array]:
    """h and c of a tree's root, by the equations 9 to 14 of Tai et al. (2015); an input or a child that is not there
    adds nothing."""
    M = len(w["bias"]) // 4
    has_input = isinstance(tree, int)
    children = [] if has_input else [lstm(w, tree[0], x), lstm(w, tree[1], x)]

    def gate(of_input: int | None, of_children: int, bias: int) -> Array:
        total = w["bias"][bias * M : (bias + 1) * M].copy()
        if has_input and of_input is not None:
            total += w["weight_leaf"][of_input * M : (of_input + 1) * M] @ x[tree]
        for k, (h, _) in enumerate(children):
            total += w["weight"][of_children * M : (of_children + 1) * M, k * M : (k + 1) * M] @ h
        return np.asarray(total)

    i, o, u = sigmoid(gate(0, 0, 0)), sigmoid(gate(1, 1, 1)), np.tanh(gate(2, 2, 2))
    c = i * u
    for k, (_, memory) in enumerate(children):
        c = c + sigmoid(gate(None, 3 + k, 3)) * memory
    return o * np.tanh(c), c


def chain(words: int, to: str) -> tuple[Tensor, int]:
    """A tree that branches to one side only, and the number of its root: no node of it needs recursion to be made."""
    children, top = [], 0 if to == "left" else words - 1
    for step in range(words - 1):
        word = step + 1 if to == "left" else words - 2 - step
        children.append([top, word] if to == "left" else [word, top])
        top = words + step
    return torch.tensor(children, dtype=torch.int64).view(-1, 2), top
