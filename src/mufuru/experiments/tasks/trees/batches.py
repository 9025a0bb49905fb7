"""Trees as tensors: encoded once, then taken by index, many side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from mufuru import Levels
from mufuru.experiments.data import DataError
from mufuru.experiments.data.trees import Tree, render
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.draws import permutation

UNLABELLED = -1
"""The target of a phrase that is read but not learned from."""


class Batch(NamedTuple):
    """Some trees: the leaves of all, then the inner nodes of all."""

    words: Tensor
    """(leaves,): the ids of the words."""
    levels: Levels
    """The children of every node, by height."""
    targets: Tensor
    """(nodes,): the id of each phrase's class, or `UNLABELLED`."""
    roots: Tensor
    """(trees,): which nodes are whole sentences."""


class Phrases(NamedTuple):
    """A tree in numbers, of which `n` leaves make n - 1 inner nodes: leaves from 0 on, inner nodes from n on."""

    words: list[str]
    targets: list[int]
    """Targets of leaves, then of inner nodes."""
    children: list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees, one after the other."""

    words: Tensor
    """(leaves of all trees,)."""
    leaf_targets: Tensor
    """(leaves of all trees,)."""
    inner_targets: Tensor
    """(inner nodes of all trees,)."""
    children: Tensor
    """(inner nodes of all trees, 2): numbers within a tree, see `Phrases`."""
    leaves: Tensor
    """(trees,): each at least 1."""

    @cached_property
    def starts(self) -> Tensor:
        """(trees,): where the leaves of each begin."""
        return self.leaves.cumsum(0) - self.leaves

    def __len__(self) -> int:
        return len(self.leaves)

    def batch(self, which: Tensor) -> Batch:
        """The trees of these indices."""
        leaves, inner = self.leaves[which], self.leaves[which] - 1
        # every tree before this one has one inner node less than leaves
        leaf_rows = _ranges(self.starts[which], leaves)
        inner_rows = _ranges(self.starts[which] - which, inner)
        first_leaf = leaves.cumsum(0) - leaves
        first_inner = leaves.sum() + inner.cumsum(0) - inner
        tree = torch.repeat_interleave(inner).unsqueeze(1)
        own = self.children[inner_rows]
        children = torch.where(own < leaves[tree], own + first_leaf[tree], own - leaves[tree] + first_inner[tree])
        targets = torch.cat((self.leaf_targets[leaf_rows], self.inner_targets[inner_rows]))
        roots = torch.where(inner > 0, first_inner + inner - 1, first_leaf)
        return Batch(self.words[leaf_rows], Levels.of(children, len(leaf_rows)), targets, roots)


def in_order(count: int, batch_size: int) -> Sequence[Tensor]:
    """Always the same groups."""
    groups: Sequence[Tensor] = torch.arange(count).split(batch_size)
    return groups


def shuffled(count: int, batch_size: int, *name: str | int) -> Sequence[Tensor]:
    """Groups in random order, by a name such as ("trees", seed, epoch)."""
    groups: Sequence[Tensor] = permutation(count, *name).split(batch_size)
    return groups


def numbered(tree: Tree, target: Callable[[int], int]) -> Phrases:
    """A tree in numbers; `target` gives the class of a label, or `UNLABELLED`."""
    nodes = tree.nodes()
    words = [node.word for node in nodes if node.word is not None]
    leaves, inner, waiting = 0, len(words), list[int]()
    targets: tuple[list[int], list[int]] = [], []
    children: list[tuple[int, int]] = []
    for node in nodes:
        if node.word is not None:
            waiting.append(leaves)
            leaves += 1
        elif len(node.children) != 2:
            raise DataError(f"expected trees whose phrases have two parts, got one with {len(node.children)}: "
                            f"{render(node)[:80]}. Make the trees binary first")  # fmt: skip
        else:
            right, left = waiting.pop(), waiting.pop()
            children.append((left, right))
            waiting.append(inner)
            inner += 1
        targets[node.word is None].append(target(node.label))
    return Phrases(words, targets[0] + targets[1], children)


def encode(trees: Iterable[Phrases], vocabulary: Vocabulary, lowercase: bool) -> Forest:
    """Trees as ids of words, targets and children."""
    trees = list(trees)
    words = (word.lower() if lowercase else word for tree in trees for word in tree.words)
    leaves = [len(tree.words) for tree in trees]
    leaf_targets = [target for tree, n in zip(trees, leaves, strict=True) for target in tree.targets[:n]]
    inner_targets = [target for tree, n in zip(trees, leaves, strict=True) for target in tree.targets[n:]]
    children = torch.tensor([pair for tree in trees for pair in tree.children], dtype=torch.int64).view(-1, 2)
    return Forest(
        vocabulary.encode(words), torch.tensor(leaf_targets, dtype=torch.int64),
        torch.tensor(inner_targets, dtype=torch.int64), children, torch.tensor(leaves, dtype=torch.int64),
    )  # fmt: skip


def _ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """Ranges of the given starts and lengths, one after the other."""
    ends = lengths.cumsum(0)
    total = int(ends[-1]) if len(ends) else 0
    return torch.arange(total) + (starts - ends + lengths).repeat_interleave(lengths)
