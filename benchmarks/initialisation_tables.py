"""The record of `initialisation.py` as Markdown. Needs the standard library alone, for the documentation uses it."""

from __future__ import annotations

import math
import statistics
from typing import Any, TypeAlias

Run: TypeAlias = dict[str, Any]

OPERATIONS = 7
"""The paper's: keep and six others, which start at logit 0."""


def page(runs: list[Run]) -> str:
    parts = [
        "# The first logit of keep",
        "Written by `benchmarks/initialisation.py`. MuFuRU has the paper's seven operations and starts with the given "
        "logit of keep, the other operations with 0; `nn.GRU` starts as torch makes it. Keep's first share is its "
        "weight as long as the biases alone decide.",
        bits(runs),
        formulae(runs),
        "Versions: " + "; ".join(sorted({", ".join(f"{k} {v}" for k, v in run["versions"].items()) for run in runs})),
    ]
    return "\n\n".join(parts) + "\n"


def bits(runs: list[Run]) -> str:
    """Updates until the answers are right, for recall and parity."""
    recall, parity = _of(runs, task="recall"), _of(runs, task="parity")
    chosen = recall + parity
    about = (
        f"Updates until 99% of the answers on 1,000 fresh sequences are right, looked at every 25 updates: median "
        f'(least–most) of {_seeds(chosen)}. "Not": not within {_values(chosen, "updates")} updates, and how many '
        f"seeds got there. Recall: the first of T bits, after the last. Parity: whether this bit and the one "
        f"before differ, at every step of {_values(parity, 'steps')}. {_values(chosen, 'hidden_size')} units, "
        f"batches of {_values(chosen, 'batch')}, Adam with rate {_values(chosen, 'lr')}."
    )
    columns = {
        f"recall, T {steps}": _of(recall, steps=steps) for steps in sorted({r["config"]["steps"] for r in recall})
    }
    columns["parity"] = parity
    keeps = _keeps(chosen)
    cells = [[updates(_of(column, keep=keep)) for column in columns.values()] for keep in keeps]
    return about + "\n\n" + _table(list(columns), keeps, cells)


def formulae(runs: list[Run]) -> str:
    """Test accuracy on Boolean formulae."""
    chosen = _of(runs, task="logic")
    rates = sorted({run["config"]["lr"] for run in chosen})
    about = (
        f"Boolean formulae as in `examples/logic.py`: accuracy on unseen longer formulae, mean ± standard deviation "
        f"(least–most) of {_seeds(chosen)}. {_values(chosen, 'hidden_size')} units, {_values(chosen, 'epochs')} "
        "epochs of Adam with the given rate."
    )
    cells = [[accuracy(_of(chosen, keep=keep, lr=rate)) for rate in rates] for keep in _keeps(chosen)]
    return about + "\n\n" + _table([f"rate {rate:g}" for rate in rates], _keeps(chosen), cells)


def updates(runs: list[Run]) -> str:
    """The median with its range; a run that did not get there took longer than any other."""
    found = [math.inf if (number := run["metrics"]["updates"]) is None else number for run in runs]
    if not found:
        return "–"
    # one that was measured: of an even number there may be no mean of the middle two
    middle = statistics.median_high(found)
    if math.isinf(middle):
        return f"not ({sum(map(math.isfinite, found))} of {len(found)})"
    return f"{middle} ({min(found)}–{'not' if math.isinf(max(found)) else max(found)})"


def accuracy(runs: list[Run]) -> str:
    found = [run["metrics"]["accuracy"] for run in runs]
    if not found:
        return "–"
    spread = statistics.stdev(found) if len(found) > 1 else math.nan
    return f"{statistics.mean(found):.3f} ± {spread:.3f} ({min(found):.3f}–{max(found):.3f})"


def share(keep: float) -> float:
    return math.exp(keep) / (math.exp(keep) + OPERATIONS - 1)


def _of(runs: list[Run], **wanted: Any) -> list[Run]:
    return [run for run in runs if all(run["config"].get(key) == value for key, value in wanted.items())]


def _keeps(runs: list[Run]) -> list[float | None]:
    """nn.GRU, which has none, first."""
    return sorted({run["config"].get("keep") for run in runs}, key=lambda keep: -math.inf if keep is None else keep)


def _values(runs: list[Run], key: str) -> str:
    return ", ".join(f"{value:,g}" for value in sorted({run["config"][key] for run in runs}))


def _seeds(runs: list[Run]) -> str:
    counts: dict[str, int] = {}
    for run in runs:
        counts[str(run["config"])] = counts.get(str(run["config"]), 0) + 1
    least, most = min(counts.values(), default=0), max(counts.values(), default=0)
    return f"{most} seeds" if least == most else f"{least} to {most} seeds"


def _table(head: list[str], keeps: list[float | None], cells: list[list[str]]) -> str:
    lines = [["layer", "keep's first share", *head], ["---"] * (len(head) + 2)]
    for keep, row in zip(keeps, cells, strict=True):
        name = ["`nn.GRU`", "about 0.5"] if keep is None else [f"MuFuRU, keep {keep:g}", f"{share(keep):.2f}"]
        lines.append([*name, *row])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
