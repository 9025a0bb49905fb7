"""Learning curves made small enough to be kept with the results."""

from __future__ import annotations

import math
from typing import Any

DIGITS = 5
"""Significant digits of a number in a kept curve: a figure shows fewer."""


def thinned(curve: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many lines, evenly chosen with the last among them, and their numbers rounded."""
    if most < 1 or not curve:
        return []
    step = math.ceil(len(curve) / most)
    return [rounded(line) for line in curve[(len(curve) - 1) % step :: step]]


def rounded(value: Any) -> Any:
    """Every fraction in a value of JSON."""
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
