"""Claims put to the test. A claim is one entry of a list: its words, the rule it is judged by, and the judge."""

import math
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from mufuru.experiments.report.measure import NOISE, Measure
from mufuru.experiments.report.page import MISSING, Table, count
from mufuru.experiments.report.runs import Lines

Evidence = TypeVar("Evidence", contravariant=True)
"""Input of a judge: runs, or lines of runs."""
AUTHORS = "Weissenborn and Rocktäschel, 2016"
WHICH_GRU = (
    "GRU is `torch.nn.GRU` here, whose reset gate acts after the recurrent product; the paper's equation has it before "
    "the product, which is MuFuRU with keep and replace alone."
)
HOLDS, PARTLY, FAILS = "holds", "holds in part", "does not hold"
FEWEST = 6
"""Minimum pairs of runs for a comparison to hold: with 5 an exact sign test cannot get below p = 0.06."""


class Verdict(NamedTuple):
    measured: str = MISSING
    verdict: str = "not measured"


UNKNOWN = Verdict()


class Rule(NamedTuple, Generic[Evidence]):
    """The rule by which a claim holds, in words and in code."""

    text: str
    judge: Callable[[Evidence], Verdict]


class Claim(NamedTuple, Generic[Evidence]):
    """A sentence of the paper, in its words and with its place, and the rule it is judged by."""

    text: str
    place: str
    rule: str
    judge: Callable[[Evidence], Verdict]


def table(claims: Iterable[Claim[Evidence]], evidence: Evidence, caption: str) -> Table:
    """Return a row for each claim: its words, its rule, the measurement, and the verdict."""
    rows = tuple((f"“{c.text}” ({c.place})", c.rule, *c.judge(evidence)) for c in claims)
    return Table(caption, ("the paper says", "taken to hold if", "measured", "verdict"), rows, wordy=True)


def judged(measured: str, whole: bool, part: bool = False) -> Verdict:
    return Verdict(measured, HOLDS if whole else PARTLY if part else FAILS)


def reaches(name: str, bar: float, slack: float, measure: Measure) -> Rule[Lines]:
    """Return the rule that a model's mean reaches a published number."""
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
        f"the 95 % interval of {one}'s mean test {measure.key} minus {other}'s ({measure.compared[0]}) is {place} 0 "
        f"with {FEWEST} runs of each or more (in part: the mean is {side})"
    )
    return _compared(one, other, measure, text, lambda lead, margin: (lead > margin, lead > 0))


def as_good(one: str, other: str, measure: Measure) -> Rule[Lines]:
    """Return the rule that one model is not worse than another."""
    side = "higher" if measure.lower_is_better else "lower"
    text = (
        f"{one}'s mean test {measure.key} is not {side} than {other}'s with {FEWEST} runs of each or more (in part: "
        f"with fewer, or it is and the 95 % interval of the difference ({measure.compared[0]}) holds 0)"
    )
    return _compared(one, other, measure, text, lambda lead, margin: (-lead <= NOISE, -lead <= margin < math.inf))


def _compared(
    one: str, other: str, measure: Measure, text: str, decide: Callable[[float, float], tuple[bool, bool]]
) -> Rule[Lines]:
    """Return a rule about two models; `decide` gets the mean lead of the first and the interval's half width, infinite
    where there is no interval: then nothing is sure."""

    def judge(lines: Lines) -> Verdict:
        change = measure.difference(lines.get(one, ()), lines.get(other, ()))
        if change is None:
            return UNKNOWN
        lead = -change.mean if measure.lower_is_better else change.mean
        margin = math.inf if change.margin is None else change.margin
        whole, part = decide(lead, margin)
        enough = change.n >= FEWEST
        few = "" if enough else f", {count(change.n, 'run')} of each, too few for an exact test to reach 0.05"
        measured = f"{one} minus {other}: {measure.change(change)}{few}"
        return judged(measured, whole and enough, whole or part)

    return Rule(text, judge)
