"""Propositional formulae: the gates, evaluation, parsing and printing, and random formulae that are all different.

A formula is a value, then pairs of value and gate, folded from the left: `1 0 AND 0 OR 1 if/then` is
((1 ∧ 0) ∨ 0) ⇒ 1. The gates are the ten of Graves, Adaptive Computation Time (arXiv 1603.08983), by his names.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from mufuru.experiments.draws import Draws
from mufuru.experiments.settings import SettingError
from mufuru.ops import did_you_mean


@dataclass(frozen=True)
class Gate:
    """A Boolean function of the value so far and the next one."""

    name: str
    symbols: str
    """Symbols for it, each a single character."""
    function: Callable[[bool, bool], bool]


GATES = (
    Gate("NOR", "↓⊽", lambda p, q: not (p or q)),
    Gate("Xq", "↚⊄", lambda p, q: not p and q),
    Gate("ABJ", "↛⊅", lambda p, q: p and not q),
    Gate("XOR", "⊕⊻≠", lambda p, q: p != q),
    Gate("NAND", "↑⊼", lambda p, q: not (p and q)),
    Gate("AND", "∧&", lambda p, q: p and q),
    Gate("XNOR", "⇔↔≡⊙", lambda p, q: p == q),
    Gate("if/then", "⇒→⊃", lambda p, q: not p or q),
    Gate("then/if", "⇐←⊂", lambda p, q: p or not q),
    Gate("OR", "∨|", lambda p, q: p or q),
)
TOKENS = ("0", "1", *(gate.name for gate in GATES))
"""The tokens of formulae; a token's id is its place here."""

_FIRST_GATE = 2
_NUMBERS = {name.lower(): number for number, name in enumerate(TOKENS)} | {
    symbol: _FIRST_GATE + number for number, gate in enumerate(GATES) for symbol in gate.symbols
}


def known_from_last(gates: int) -> float:
    """Return the accuracy of reading only the last gates and their values, and guessing the value before them.

    A gate whose result does not depend on the value so far resets the formula: `0 AND` is 0. If none of the last gates
    does, guessing is right half of the time.
    """
    steps = [(gate.function(False, q), gate.function(True, q)) for gate in GATES for q in (False, True)]
    passing = sum(low != high for low, high in steps) / len(steps)
    return float(1 - passing**gates / 2)


class FormulaError(SettingError):
    """A text that is not a formula; the message says where and what was expected."""


@dataclass(frozen=True)
class Formula:
    """A formula by the ids of its tokens: value, then value and gate, value and gate, ..."""

    tokens: tuple[int, ...]

    @property
    def gates(self) -> int:
        return len(self.tokens) // 2

    @property
    def value(self) -> bool:
        value = bool(self.tokens[0])
        for operand, gate in zip(self.tokens[1::2], self.tokens[2::2], strict=True):
            value = GATES[gate - _FIRST_GATE].function(value, bool(operand))
        return value

    def __str__(self) -> str:
        """Return the formula as `parse` takes it: `1 0 AND 0 OR 1 if/then`."""
        return " ".join(TOKENS[token] for token in self.tokens)


def parse(text: str) -> Formula:
    """Parse a written formula: names in any case or symbols, with any blanks, commas and brackets.

    >>> str(parse("[1, 0, ∧, 0, ∨, 1, ⇒]"))
    '1 0 AND 0 OR 1 if/then'
    """
    words = [(match.start() + 1, match.group()) for match in re.finditer(r"[01]|[^\W\d_][\w/]*|[^\s,;\[\]()]", text)]
    tokens = tuple(_number(word, column, place) for place, (column, word) in enumerate(words))
    if len(tokens) % 2 == 0:
        expected = "a gate after the last value" if tokens else "a value, 0 or 1"
        raise FormulaError(f"the formula ends too early, at column {len(text) + 1}: expected {expected}")
    return Formula(tokens)


def _number(word: str, column: int, place: int) -> int:
    """Return the id of a token at this place: values at the first and at every second one, gates at the others."""
    number = _NUMBERS.get(word.lower())
    where = f"at column {column} of the formula"
    if number is None:
        raise FormulaError(f"unknown {word!r} {where}: {did_you_mean(word, TOKENS)}")
    wants_gate = place > 0 and place % 2 == 0
    if wants_gate and number < _FIRST_GATE:
        raise FormulaError(
            f"expected a gate {where}, got the value {word}: after the first, values and gates alternate"
        )
    if not wants_gate and number >= _FIRST_GATE:
        raise FormulaError(f"expected a value, 0 or 1, {where}, got {word!r}: a gate comes after its second value")
    return number


@dataclass(frozen=True)
class Wanted:
    """Number of formulae and range of their gates: each number of gates is equally likely."""

    count: int
    min_gates: int
    max_gates: int

    def covers(self, formula: Formula) -> bool:
        return self.min_gates <= formula.gates <= self.max_gates


def sample_splits(wanted: Mapping[str, Wanted], seed: int) -> dict[str, list[Formula]]:
    """Sample disjoint sets of formulae, each from its own stream: the size of one does not change the others, unless
    it has taken what the other would have drawn."""
    taken: set[Formula] = set()
    splits = {}
    for split, want in wanted.items():
        splits[split] = sample_unique(want, Draws("logic", split, seed), taken)
        taken.update(splits[split])
    return splits


def sample_unique(want: Wanted, draws: Draws, taken: Set[Formula] = frozenset()) -> list[Formula]:
    """Sample different formulae, none of them taken."""
    exist = sum(2 * (2 * len(GATES)) ** gates for gates in range(want.min_gates, want.max_gates + 1))
    used = sum(map(want.covers, taken))
    if want.count > exist - used:
        raise SettingError(
            f"there are not {want.count} different formulae of {want.min_gates} to {want.max_gates} gates: "
            f"{exist} exist, {used} are used in another set. Ask for fewer formulae or more gates"
        )
    formulae: dict[Formula, None] = {}
    while len(formulae) < want.count:
        formula = sample(want, draws)
        if formula not in taken:
            formulae[formula] = None
    return list(formulae)


def sample(want: Wanted, draws: Draws, chosen: Sequence[int] = range(len(GATES))) -> Formula:
    """Sample a formula: fair values, the chosen gates equally likely."""
    gates = want.min_gates + draws.below(want.max_gates - want.min_gates + 1)
    tokens = [draws.bits(1)]
    for _ in range(gates):
        tokens += [draws.bits(1), _FIRST_GATE + chosen[draws.below(len(chosen))]]
    return Formula(tuple(tokens))
