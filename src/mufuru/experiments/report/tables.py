"""Tables as data, and how numbers are written in them."""

from __future__ import annotations

from dataclasses import dataclass

from mufuru.experiments.report.statistics import Summary

MISSING = "–"


@dataclass(frozen=True)
class Table:
    """Plain text in rows; Markdown and HTML are made from it."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    wordy: bool = False
    """Cells hold sentences and not numbers."""


def count(number: int, thing: str) -> str:
    """A number of things, of which one has no s."""
    return f"{number} {thing}" + ("" if number == 1 else "s")


def accuracy(found: Summary | None) -> str:
    """Mean and 95 % interval; an interval does not leave [0, 1], as no accuracy does."""
    if found is None:
        return MISSING
    interval = found.interval(0, 1)
    return f"{found.mean:.3f} " + ("(n/a)" if interval is None else f"({interval[0]:.3f}–{interval[1]:.3f})")


def gain(found: Summary | None) -> str:
    """A difference and its 95 % interval, signs shown."""
    if found is None:
        return MISSING
    interval = found.interval()
    return f"{signed(found.mean)} " + (
        "(n/a)" if interval is None else f"({signed(interval[0])} to {signed(interval[1])})"
    )


def signed(value: float) -> str:
    """With a sign, and a minus as long as a plus; what rounds to 0 has a plus."""
    # adding 0.0 turns -0.0 into 0.0
    return f"{round(value, 3) + 0.0:+.3f}".replace("-", "−")


def share(found: Summary | None, bar: float) -> str:
    """How many of the runs reach the bar."""
    return MISSING if found is None else f"{found.reaching(bar)} of {found.n}"
