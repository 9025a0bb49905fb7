"""Binary trees in an order in which they can be computed: all nodes of one height at a time, from the leaves up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Compose = Callable[[Tensor], Tensor]
"""From (nodes, 2, features), the states of the left and the right children, to (nodes, features)."""


@dataclass(frozen=True, eq=False)
class Levels:
    """The nodes of some trees, sorted by height: made by `Levels.of`, used by every layer over those trees."""

    leaves: int
    """Nodes without children: the first in any order."""
    children: tuple[Tensor, ...]
    """For each height from 1 on, (nodes, 2): where left and right child stand in the order of heights."""
    places: Tensor
    """(nodes,): where each node, by its number, stands in the order of heights."""

    @classmethod
    def of(cls, children: Tensor, leaves: int) -> Levels:
        """Sort trees whose nodes have numbers: leaves from 0 on, then inner nodes, each after its children.

        `children` is (inner nodes, 2), the numbers of left and right child. There may be any number of trees.
        """
        _check(children, leaves)
        heights = [0] * leaves
        for left, right in children.tolist():
            heights.append(1 + max(heights[left], heights[right]))
        height = torch.tensor(heights, device="cpu")
        order = height.argsort(stable=True)
        places = torch.empty_like(order)
        places[order] = torch.arange(len(order), device=order.device)
        sorted_children = places[children.cpu()][order[leaves:] - leaves].to(children.device)
        sizes = height.bincount().tolist()[1:]
        return cls(leaves, tuple(sorted_children.split(sizes)) if sizes else (), places.to(children.device))


def bottom_up(leaves: Tensor, levels: Levels, compose: Compose) -> Tensor:
    """(nodes, features): the states of all nodes by their numbers, one call of `compose` for each height."""
    states = leaves
    for children in levels.children:
        pairs = states.index_select(0, children.flatten()).view(-1, 2, states.size(1))
        states = torch.cat((states, compose(pairs)))
    return states.index_select(0, levels.places)


def _check(children: Tensor, leaves: int) -> None:
    if leaves < 1:
        raise ValueError(f"expected at least one tree, which has at least one leaf, got {leaves} leaves")
    if children.dim() != 2 or children.size(1) != 2:
        raise ValueError(f"children should be (inner nodes, 2), a left and a right one, got {list(children.shape)}")
    if children.dtype != torch.int64:
        raise TypeError(f"children should be numbers of nodes, int64, got {children.dtype}")
    own = torch.arange(leaves, leaves + len(children), device=children.device).unsqueeze(1)
    wrong = ((children < 0) | (children >= own)).any(1).nonzero().flatten().tolist()
    if wrong:
        node, pair = leaves + wrong[0], children[wrong[0]].tolist()
        raise ValueError(f"node {node} has the children {pair[0]} and {pair[1]}: expected numbers from 0 to "
                         f"{node - 1}, as leaves come first and every other node after its children")  # fmt: skip
