"""The paper's claims on logic put to the test. The rule by which each is judged is written beside the verdict."""

from __future__ import annotations

from collections.abc import Callable

from mufuru.experiments.record import Record
from mufuru.experiments.report import paper, runs, tables, weights
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.statistics import Summary, paired
from mufuru.experiments.report.tables import Table

SOLVED = 0.99
"""Test accuracy from which a run counts as having learned to evaluate formulae."""
GAP = 0.05
"""Training accuracy above test accuracy by more than this counts as overfitting."""
SIZE = paper.LOGIC_SIZE

Verdict = tuple[str, str]
"""What was measured, and what follows: holds, holds in part, does not hold, or not measured."""
HOLDS, PARTLY, FAILS = "holds", "holds in part", "does not hold"
UNKNOWN: Verdict = (tables.MISSING, "not measured")


def table(records: Runs, caption: str) -> Table:
    """Each claim, its rule, what these runs give, and the verdict."""
    rows = tuple(
        (f"“{claim.text}” ({claim.place})", RULES[claim.name][0], *RULES[claim.name][1](records))
        for claim in paper.LOGIC_CLAIMS
    )
    return Table(caption, ("the paper says", "taken to hold if", "measured", "verdict"), rows, wordy=True)


def verdicts(records: Runs) -> dict[str, str]:
    """The verdict on each claim by its name."""
    return {claim.name: RULES[claim.name][1](records)[1] for claim in paper.LOGIC_CLAIMS}


def at(records: Runs, cell: str, size: int) -> list[Record]:
    return runs.where(records, cell__cell=cell, cell__hidden_size=size)


def sizes(records: Runs, cell: str) -> list[int]:
    return runs.values(runs.where(records, cell__cell=cell), "cell.hidden_size")


def gap(records: Runs) -> Summary | None:
    """Training accuracy minus test accuracy, run by run."""
    return paired(runs.by_seed(records, "train"), runs.by_seed(records, "test"))


def _small(records: Runs) -> Verdict:
    found = runs.summary(at(records, "mufuru", SIZE))
    if found is None:
        return UNKNOWN
    measured = f"MuFuRU, {SIZE} units: {tables.accuracy(found)}; {tables.share(found, SOLVED)} runs reach {SOLVED}"
    return measured, _judge(found.reaches(SOLVED), found.reaching(SOLVED) > 0)


def _struggles(records: Runs) -> Verdict:
    found = runs.summary(at(records, "gru", SIZE))
    ahead = runs.difference(at(records, "mufuru", SIZE), at(records, "gru", SIZE))
    if found is None or ahead is None:
        return UNKNOWN
    measured = f"GRU, {SIZE} units: {tables.accuracy(found)}; MuFuRU minus GRU {tables.gain(ahead)}"
    interval = ahead.interval()
    return measured, _judge(interval is not None and interval[0] > 0 and not found.reaches(SOLVED))


def _emulates(records: Runs) -> Verdict:
    found = {size: f for size in sizes(records, "gru") if size > SIZE and (f := runs.summary(at(records, "gru", size)))}
    if not found:
        return UNKNOWN
    best = max(found, key=lambda size: found[size].mean)
    measured = f"best GRU above {SIZE} units has {best}: {tables.accuracy(found[best])}"
    return measured, _judge(found[best].reaches(SOLVED), any(f.reaching(SOLVED) for f in found.values()))


def _gru_overfits(records: Runs) -> Verdict:
    gaps = _gaps(records, "gru")
    if not gaps:
        return UNKNOWN
    size = max(gaps)
    over = [size for size in gaps if gaps[size].mean > GAP]
    return f"GRU, {size} units: training minus test {tables.gain(gaps[size])}", _judge(size in over, bool(over))


def _never_overfits(records: Runs) -> Verdict:
    gaps = _gaps(records, "mufuru")
    if not gaps:
        return UNKNOWN
    worst = max(gaps, key=lambda size: gaps[size].mean)
    over = [size for size in gaps if gaps[size].mean > GAP]
    measured = f"widest gap of MuFuRU at {worst} units: training minus test {tables.gain(gaps[worst])}"
    return measured + _listed("; above the bar with", over), _judge(not over, len(over) < len(gaps))


def _gaps(records: Runs, cell: str) -> dict[int, Summary]:
    return {size: g for size in sizes(records, cell) if size >= SIZE and (g := gap(at(records, cell, size)))}


def _sparse(records: Runs) -> Verdict:
    chosen = at(records, "mufuru", SIZE)
    used, table = weights.effective(chosen), weights.mean(chosen)
    if used is None or table is None:
        return UNKNOWN
    several = len(table.operations)
    measured = f"{SIZE} units: at a step, a unit's weight is spread as over {used.mean:.1f} of {several} operations"
    return measured, _judge(used.mean <= several / 2)


def _or(records: Runs) -> Verdict:
    found = weights.mean(at(records, "mufuru", SIZE))
    if found is None or "OR" not in found.tokens:
        return UNKNOWN
    row = found.row("OR")
    top = max(row, key=lambda operation: row[operation])
    each = [weights.mean([record]) for record in at(records, "mufuru", SIZE)]
    chose = [max(w.row("OR"), key=w.row("OR").__getitem__) == "mul" for w in each if w is not None]
    first = f"{top} has the highest mean weight, {row[top]:.2f}; mul is first in {sum(chose)} of {len(chose)} runs"
    return f"{SIZE} units: {first}", _judge(top == "mul", any(chose))


def _judge(whole: bool, part: bool = False) -> str:
    return HOLDS if whole else PARTLY if part else FAILS


def _listed(words: str, sizes: list[int]) -> str:
    return f"{words} {', '.join(map(str, sizes))} units" if sizes else ""


RULES: dict[str, tuple[str, Callable[[Runs], Verdict]]] = {
    "small": (f"mean test accuracy at {SIZE} units is {SOLVED} or more (in part: some runs reach it)", _small),
    "struggles": (
        f"at {SIZE} units the GRU's mean is below {SOLVED} and the 95 % interval of MuFuRU's lead is above 0",
        _struggles,
    ),
    "emulates": (f"the mean reaches {SOLVED} at some larger size (in part: some runs do)", _emulates),
    "gru overfits": (
        f"at the largest size, training accuracy is more than {GAP} above test accuracy (in part: at another size)",
        _gru_overfits,
    ),
    "never overfits": (
        f"at no size from {SIZE} up is training accuracy more than {GAP} above test accuracy (in part: at some)",
        _never_overfits,
    ),
    "sparse": (
        "the weight of a step is spread as over at most half of the operations (exponential of the mean entropy)",
        _sparse,
    ),
    "or": ("mul has the highest mean weight at OR (in part: in some runs)", _or),
}
