"""Random formulae, all different, for training, validation and test."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from mufuru.experiments.draws import Draws
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.logic.formulae import GATES, Formula


@dataclass(frozen=True)
class Wanted:
    """How many formulae, and of how many gates: each number of gates is as likely as another."""

    count: int
    min_gates: int
    max_gates: int

    def covers(self, formula: Formula) -> bool:
        return self.min_gates <= formula.gates <= self.max_gates


def sample_splits(wanted: Mapping[str, Wanted], seed: int) -> dict[str, list[Formula]]:
    """Sets of formulae that share none, each from a stream of its own: the size of one does not change the others,
    unless it has taken what the other would have drawn.
    """
    taken: set[Formula] = set()
    splits = {}
    for split, want in wanted.items():
        splits[split] = sample_unique(want, Draws("logic", split, seed), taken)
        taken.update(splits[split])
    return splits


def sample_unique(want: Wanted, draws: Draws, taken: Set[Formula] = frozenset()) -> list[Formula]:
    """Different formulae, none of them taken."""
    _check_enough(want, taken)
    found: dict[Formula, None] = {}
    while len(found) < want.count:
        formula = sample(want, draws)
        if formula not in taken:
            found[formula] = None
    return list(found)


def sample(want: Wanted, draws: Draws) -> Formula:
    """A random formula: fair values, each gate as likely as another."""
    gates = want.min_gates + draws.below(want.max_gates - want.min_gates + 1)
    tokens = [draws.bits(1)]
    for _ in range(gates):
        tokens += [draws.bits(1), 2 + draws.below(len(GATES))]
    return Formula(tuple(tokens))


def _check_enough(want: Wanted, taken: Set[Formula]) -> None:
    exist = sum(2 * (2 * len(GATES)) ** gates for gates in range(want.min_gates, want.max_gates + 1))
    free = exist - sum(map(want.covers, taken))
    if want.count > free:
        raise SettingError(
            f"there are not {want.count} different formulae of {want.min_gates} to {want.max_gates} gates: "
            f"{exist} exist, {exist - free} are used in another set. Ask for fewer formulae or more gates"
        )
