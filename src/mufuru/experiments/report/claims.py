"""Claims put to the test. A claim is one entry of a list: its words, the rule it is judged by, and the judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from mufuru.experiments.report.measure import Measure
from mufuru.experiments.report.page import MISSING, Table
from mufuru.experiments.report.runs import Lines
from mufuru.experiments.report.statistics import NOISE

Evidence = TypeVar("Evidence", contravariant=True)
"""Input of a judge: runs, or lines of runs."""
AUTHORS = "Weissenborn and Rocktäschel, 2016"
HOLDS, PARTLY, FAILS = "holds", "holds in part", "does not hold"


class Verdict(NamedTuple):
    measured: str = MISSING
    verdict: str = "not measured"


UNKNOWN = Verdict()


class Rule(NamedTuple, Generic[Evidence]):
    """When a claim is taken to hold, in words and in code."""

    text: str
    judge: Callable[[Evidence], Verdict]


class Claim(NamedTuple, Generic[Evidence]):
    """A sentence of the paper, in its words and with its place, and the rule it is judged by."""

    name: str
    text: str
    place: str
    rule: str
    judge: Callable[[Evidence], Verdict]


class Number(NamedTuple):
    """A result of the paper."""

    model: str
    value: float
    place: str


def table(claims: Iterable[Claim[Evidence]], evidence: Evidence, caption: str) -> Table:
    """Return a row for each claim: its words, its rule, what was measured, and the verdict."""
    rows = tuple((f"“{c.text}” ({c.place})", c.rule, *c.judge(evidence)) for c in claims)
    return Table(caption, ("the paper says", "taken to hold if", "measured", "verdict"), rows, wordy=True)


def verdicts(claims: Iterable[Claim[Evidence]], evidence: Evidence) -> dict[str, str]:
    """Return the verdict on each claim by its name."""
    return {claim.name: claim.judge(evidence).verdict for claim in claims}


def judged(measured: str, whole: bool, part: bool = False) -> Verdict:
    return Verdict(measured, HOLDS if whole else PARTLY if part else FAILS)


def reaches(name: str, bar: float, slack: float, measure: Measure) -> Rule[Lines]:
    """Return the rule that a model's mean comes to a published number."""
    sign, side = (1, "lower") if measure.lower_is_better else (-1, "higher")
    text = f"{name}'s mean test {measure.key} is {bar:.1f} or {side} (in part: it misses that by at most {slack:g})"

    def judge(lines: Lines) -> Verdict:
        summary = measure.summary(lines.get(name, ()))
        if summary is None:
            return UNKNOWN
        missed = sign * (summary.mean - bar)
        return judged(f"{name}: {measure.interval(summary)}", missed <= NOISE, missed <= slack + NOISE)

    return Rule(text, judge)


def ahead(one: str, other: str, measure: Measure) -> Rule[Lines]:
    """Return the rule that one model is surely better than another."""
    side, place = ("lower", "below") if measure.lower_is_better else ("higher", "above")
    text = (
        f"the 95 % interval of {one}'s mean test {measure.key} minus {other}'s, seed by seed, is {place} 0 (in part: "
        f"the mean is {side})"
    )
    # without an interval nothing is sure
    return Rule(
        text, _compared(one, other, measure, lambda lead, margin: (margin is not None and lead > margin, lead > 0))
    )


def as_good(one: str, other: str, measure: Measure) -> Rule[Lines]:
    """Return the rule that one model is not worse than another."""
    side = "higher" if measure.lower_is_better else "lower"
    text = (
        f"{one}'s mean test {measure.key} is not {side} than {other}'s (in part: it is, and the 95 % interval of the "
        "difference, seed by seed, holds 0)"
    )
    return Rule(
        text,
        _compared(one, other, measure, lambda lead, margin: (-lead <= NOISE, margin is not None and -lead <= margin)),
    )


def _compared(
    one: str, other: str, measure: Measure, decide: Callable[[float, float | None], tuple[bool, bool]]
) -> Callable[[Lines], Verdict]:
    """Return a judge of two models; `decide` gets the mean lead of the first and the interval's half width."""

    def judge(lines: Lines) -> Verdict:
        change = measure.difference(lines.get(one, ()), lines.get(other, ()))
        if change is None:
            return UNKNOWN
        lead = -change.mean if measure.lower_is_better else change.mean
        return judged(f"{one} minus {other}: {measure.change(change)}", *decide(lead, change.margin))

    return judge
