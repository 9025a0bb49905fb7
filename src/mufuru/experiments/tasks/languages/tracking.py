"""Languages whose strings are programs for a small machine: a model has to know the machine's state at the end.

Counters, the word problems of two groups, and arithmetic modulo 5 with brackets, which also needs a stack.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

from mufuru.experiments.draws import Draws

String = tuple[str, ...]
Permutation = tuple[int, ...]


@dataclass(frozen=True)
class Tracking:
    """A language of this kind."""

    symbols: String
    classes: int
    """Number of states that a string may end in."""
    draw: Callable[[int, Draws], String]
    """Return a random string of a length."""
    state: Callable[[String], int]
    """Return the state in which a string ends."""


def counter(modulus: int) -> Tracking:
    """Return the language of sums of 0 and 1 modulo a number; parity for 2."""
    return Tracking(("0", "1"), modulus, any_of("0", "1"), lambda string: string.count("1") % modulus)


def any_of(*symbols: str) -> Callable[[int, Draws], String]:
    return lambda length, draws: tuple(symbols[draws.below(len(symbols))] for _ in range(length))


def word_problem(size: int, even: bool, **generators: Permutation) -> Tracking:
    """Return the language of products in the symmetric group of some things, or in its even part, the alternating
    group: the class is the number of the product among the elements in order."""
    elements = [one for one in permutations(range(size)) if not even or is_even(one)]
    numbers = {element: number for number, element in enumerate(elements)}

    def state(string: String) -> int:
        product: Permutation = tuple(range(size))
        for symbol in string:
            product = tuple(generators[symbol][place] for place in product)
        return numbers[product]

    return Tracking((*generators,), len(elements), any_of(*generators), state)


def is_even(permutation: Permutation) -> bool:
    pairs = [(a, b) for place, a in enumerate(permutation) for b in permutation[place + 1 :]]
    return sum(a > b for a, b in pairs) % 2 == 0


MODULUS = 5
DIGITS = tuple(map(str, range(MODULUS)))
OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


def expression(length: int, draws: Draws) -> String:
    """Return a random expression: a digit, the negative of an expression, or two in brackets with an operator between
    them. Every split of the length between the two is as likely."""
    if length == 1:
        return (DIGITS[draws.below(MODULUS)],)
    if length == 3:
        return ("(", *expression(1, draws), ")")
    if length < 5:
        return ("-", *expression(length - 1, draws))
    left = 1 + draws.below(length - 4)
    operator = tuple(OPERATORS)[draws.below(len(OPERATORS))]
    return ("(", *expression(left, draws), operator, *expression(length - 3 - left, draws), ")")


def value(string: String) -> int:
    """Return the value of an expression modulo 5."""
    return _value(iter(string)) % MODULUS


def _value(symbols: Iterator[str]) -> int:
    first = next(symbols)
    if first in DIGITS:
        return int(first)
    if first == "-":
        return -_value(symbols)
    left, operator = _value(symbols), next(symbols)
    if operator == ")":
        return left
    right = _value(symbols)
    next(symbols)
    return OPERATORS[operator](left, right) % MODULUS


LANGUAGES: dict[str, Tracking] = {
    "count-2": counter(2),
    "count-3": counter(3),
    "count-5": counter(5),
    "s3": word_problem(3, False, a=(1, 0, 2), b=(1, 2, 0)),
    "a5": word_problem(5, True, a=(1, 0, 3, 2, 4), b=(0, 2, 4, 3, 1)),
    "brackets-5": Tracking((*DIGITS, *OPERATORS, "(", ")"), MODULUS, expression, value),
}
