"""The paper's claims on language models and sentiment put to the test. The rule is written beside each verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mufuru.experiments.report.claims import FAILS, HOLDS, PARTLY, UNKNOWN, Verdict
from mufuru.experiments.report.models import Measure, difference, summary
from mufuru.experiments.report.paper import Claim
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.statistics import NOISE
from mufuru.experiments.report.tables import Table

Lines = Mapping[str, Runs]


@dataclass(frozen=True)
class Rule:
    """When a claim is taken to hold, in words and in code."""

    text: str
    judge: Callable[[Lines], Verdict]


def table(claims: Iterable[Claim], rules: Mapping[str, Rule], lines: Lines, caption: str) -> Table:
    """Each claim, its rule, what these runs give, and the verdict."""
    rows = tuple(
        (f"“{claim.text}” ({claim.place})", rules[claim.name].text, *rules[claim.name].judge(lines)) for claim in claims
    )
    return Table(caption, ("the paper says", "taken to hold if", "measured", "verdict"), rows, wordy=True)


def reaches(name: str, bar: float, slack: float, measure: Measure) -> Rule:
    """Does a model's mean come to the paper's number?"""
    sign, side = (1, "lower") if measure.lower_is_better else (-1, "higher")
    text = f"{name}'s mean test {measure.key} is {bar:.1f} or {side} (in part: it misses that by at most {slack:g})"

    def judge(lines: Lines) -> Verdict:
        found = summary(lines.get(name, ()))
        if found is None:
            return UNKNOWN
        missed = sign * (found.mean - bar)
        return f"{name}: {measure.interval(found)}", _verdict(missed <= NOISE, missed <= slack + NOISE)

    return Rule(text, judge)


def ahead(one: str, other: str, measure: Measure) -> Rule:
    """Is one model surely better than another?"""
    side, place = ("lower", "below") if measure.lower_is_better else ("higher", "above")
    text = (
        f"the 95 % interval of {one}'s mean test {measure.key} minus {other}'s, seed by seed, is {place} 0 (in part: "
        f"the mean is {side})"
    )

    def judge(lines: Lines) -> Verdict:
        found = difference(lines.get(one, ()), lines.get(other, ()))
        if found is None:
            return UNKNOWN
        sign = -1 if measure.lower_is_better else 1
        sure = found.margin is not None and sign * found.mean > found.margin
        return f"{one} minus {other}: {measure.change(found)}", _verdict(sure, sign * found.mean > 0)

    return Rule(text, judge)


def as_good(one: str, other: str, measure: Measure) -> Rule:
    """Is one model not worse than another?"""
    side = "higher" if measure.lower_is_better else "lower"
    text = (
        f"{one}'s mean test {measure.key} is not {side} than {other}'s (in part: it is, and the 95 % interval of the "
        "difference, seed by seed, holds 0)"
    )

    def judge(lines: Lines) -> Verdict:
        found = difference(lines.get(one, ()), lines.get(other, ()))
        if found is None:
            return UNKNOWN
        worse = found.mean if measure.lower_is_better else -found.mean
        unsure = found.margin is not None and worse <= found.margin
        return f"{one} minus {other}: {measure.change(found)}", _verdict(worse <= NOISE, unsure)

    return Rule(text, judge)


def _verdict(whole: bool, part: bool) -> str:
    return HOLDS if whole else PARTLY if part else FAILS
