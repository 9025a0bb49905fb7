"""Propositional formulae: the gates, evaluation, and their way to text and back.

A formula is a value, then pairs of value and gate, folded from the left: `1 0 AND 0 OR 1 if/then` is
((1 ∧ 0) ∨ 0) ⇒ 1. The gates are the ten of Graves, Adaptive Computation Time (arXiv 1603.08983), by his names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from mufuru.experiments.settings import SettingError
from mufuru.ops import did_you_mean


@dataclass(frozen=True)
class Gate:
    """A Boolean function of the value so far and the next one."""

    name: str
    symbols: str
    """How people write it, each a single character; the first stands in infix renderings."""
    function: Callable[[bool, bool], bool]

    @property
    def symbol(self) -> str:
        return self.symbols[0]


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
"""What a formula is written in; a token's number is its place here."""

_FIRST_GATE = 2
_NUMBERS = {name.lower(): number for number, name in enumerate(TOKENS)} | {
    symbol: _FIRST_GATE + number for number, gate in enumerate(GATES) for symbol in gate.symbols
}


class FormulaError(SettingError):
    """A text that is not a formula; the message says where and what was expected."""


@dataclass(frozen=True)
class Formula:
    """The numbers of its tokens: value, then value and gate, value and gate, ..."""

    tokens: tuple[int, ...]

    @property
    def gates(self) -> int:
        return len(self.tokens) // 2

    @property
    def value(self) -> bool:
        """What the formula evaluates to."""
        value = bool(self.tokens[0])
        for operand, gate in zip(self.tokens[1::2], self.tokens[2::2], strict=True):
            value = GATES[gate - _FIRST_GATE].function(value, bool(operand))
        return value

    def infix(self) -> str:
        """As people write it: `((1 ∧ 0) ∨ 0) ⇒ 1`."""
        text = TOKENS[self.tokens[0]]
        for operand, gate in zip(self.tokens[1::2], self.tokens[2::2], strict=True):
            left = f"({text})" if " " in text else text
            text = f"{left} {GATES[gate - _FIRST_GATE].symbol} {TOKENS[operand]}"
        return text

    def __str__(self) -> str:
        """As `parse` takes it: `1 0 AND 0 OR 1 if/then`."""
        return " ".join(TOKENS[token] for token in self.tokens)


def parse(text: str) -> Formula:
    """A written formula: names in any case or symbols, with blanks, commas and brackets as one likes.

    >>> parse("[1, 0, ∧, 0, ∨, 1, ⇒]").infix()
    '((1 ∧ 0) ∨ 0) ⇒ 1'
    """
    words = [(match.start() + 1, match.group()) for match in re.finditer(r"[01]|[^\W\d_][\w/]*|[^\s,;\[\]()]", text)]
    tokens = tuple(_number(word, column, place) for place, (column, word) in enumerate(words))
    if len(tokens) % 2 == 0:
        expected = "a gate after the last value" if tokens else "a value, 0 or 1"
        raise FormulaError(f"the formula ends too early, at column {len(text) + 1}: expected {expected}")
    return Formula(tokens)


def _number(word: str, column: int, place: int) -> int:
    """The token that stands at this place, values at the first and at every second one, gates at the others."""
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
