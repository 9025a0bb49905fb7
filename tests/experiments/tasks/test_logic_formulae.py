"""Formulae: gates, evaluation, text and back."""

from __future__ import annotations

import pytest

from mufuru.experiments.draws import Draws
from mufuru.experiments.tasks.logic.formulae import (
    GATES,
    TOKENS,
    Formula,
    FormulaError,
    Wanted,
    known_from_last,
    parse,
    sample,
)

TRUTH = {
    # columns: P Q = 00, 01, 10, 11, copied from the table of arXiv 1603.08983
    "NOR": "1000",
    "Xq": "0100",
    "ABJ": "0010",
    "XOR": "0110",
    "NAND": "1110",
    "AND": "0001",
    "XNOR": "1001",
    "if/then": "1101",
    "then/if": "1011",
    "OR": "0111",
}
PYTHON = {
    "↓": "+ {} < 1",
    "↚": "< {}",
    "↛": "> {}",
    "⊕": "!= {}",
    "↑": "+ {} < 2",
    "∧": "and {}",
    "⇔": "== {}",
    "⇒": "<= {}",
    "⇐": ">= {}",
    "∨": "or {}",
}
"""Each symbol with its right side, as Python calculates with 0 and 1."""


def by_python(formula: Formula) -> bool:
    """The value of a formula in infix notation, such as ((1 ∧ 0) ∨ 0) ⇒ 1, evaluated by Python itself."""
    text, *rest = (TOKENS[token] if token < 2 else GATES[token - 2].symbols[0] for token in formula.tokens)
    for operand, gate in zip(rest[::2], rest[1::2], strict=True):
        text = f"({text}) {PYTHON[gate].format(operand)}"
    return bool(eval(text, {"__builtins__": {}}))


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_a_gate_has_its_truth_table(gate: object) -> None:
    name = getattr(gate, "name")
    values = "".join(str(int(parse(f"{p} {q} {name}").value)) for p in (0, 1) for q in (0, 1))
    assert values == TRUTH[name]


def test_the_gates_are_the_ten_of_the_table_and_all_differ() -> None:
    assert [gate.name for gate in GATES] == list(TRUTH)
    assert len(set(TRUTH.values())) == 10
    assert ("0", "1", *TRUTH) == TOKENS


def test_the_papers_example() -> None:
    formula = parse("[1, 0, ∧, 0, ∨, 1, ⇒]")
    assert formula == parse("1 0 AND 0 OR 1 if/then")
    assert formula.gates == 3
    assert formula.value is True


def test_python_agrees_on_ten_thousand_formulae() -> None:
    draws = Draws("test", "python")
    formulae = [sample(Wanted(10_000, 1, 20), draws) for _ in range(10_000)]
    assert [formula.value for formula in formulae] == [by_python(formula) for formula in formulae]
    # both values are common, so agreement says something
    assert 4_000 < sum(formula.value for formula in formulae) < 6_000


def test_text_comes_back() -> None:
    draws = Draws("test", "text")
    for _ in range(200):
        formula = sample(Wanted(1, 1, 20), draws)
        assert parse(str(formula)) == formula
        symbols = "".join(TOKENS[token] if token < 2 else GATES[token - 2].symbols[0] for token in formula.tokens)
        assert parse(symbols) == formula


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_every_symbol_and_case_is_read(gate: object) -> None:
    name, symbols = getattr(gate, "name"), getattr(gate, "symbols")
    for written in (name.lower(), name.upper(), *symbols):
        assert str(parse(f"1 0 {written}")) == f"1 0 {name}"


def test_symbols_are_of_one_gate_each() -> None:
    symbols = "".join(gate.symbols for gate in GATES)
    assert len(set(symbols)) == len(symbols)


def test_a_value_alone_is_a_formula() -> None:
    assert (parse("1").value, parse("0").value, parse("1").gates) == (True, False, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 0 ADN", r"unknown 'ADN' at column 5 of the formula: expected one of 0, 1, NOR.*Did you mean 'AND'\?"),
        ("1 0 AND 0 ifthen", r"unknown 'ifthen' at column 11.*Did you mean 'if/then'\?"),
        ("1 2 AND", "unknown '2' at column 3"),
        ("1 AND 0", "expected a value, 0 or 1, at column 3 of the formula, got 'AND': a gate comes after"),
        ("AND", "expected a value, 0 or 1, at column 1"),
        ("1 0 1", "expected a gate at column 5 of the formula, got the value 1"),
        ("1 0", "ends too early, at column 4: expected a gate after the last value"),
        ("1 0 AND 1", "ends too early, at column 10"),
        ("", "ends too early, at column 1: expected a value, 0 or 1"),
    ],
)
def test_a_typing_mistake_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(FormulaError, match=message):
        parse(text)


def test_accuracy_of_reading_the_end_alone() -> None:
    assert known_from_last(0) == 0.5
    # by hand: of the 20 steps of a gate and its value, 8 do not depend on the value so far, and 12 do
    assert known_from_last(1) == pytest.approx(0.4 + 0.6 / 2)
    draws = Draws("test", 1)
    right, several = 0, 4000
    for _ in range(several):
        formula = sample(Wanted(1, 12, 12), draws)
        first = {Formula((start, *formula.tokens[-4:])).value == formula.value for start in (0, 1)}
        right += 2 if first == {True} else 1
    # four standard deviations of a share of 4000
    assert right / (2 * several) == pytest.approx(known_from_last(2), abs=4 * 0.5 / several**0.5)
