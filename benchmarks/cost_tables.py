"""Tables and the figure of `cost.py`, from its record alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from cost_model import FLOAT, TRAINING, Cost
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

NETWORKS = {"1 Gbit/s": 1e9 / 8, "10 Gbit/s": 1e10 / 8, "100 Gbit/s": 1e11 / 8}
"""Bytes per second."""
PROCESSORS = {"a core": 1, "16 cores": 16, "1,000 cores' worth of GPU": 1000}
"""Times the rate of a core."""
BATCHES = (20, 320)
"""Sequences of 35 steps that ranks share."""
RANKS = (1, 2, 4, 8, 16, 32, 64)
MODELS = {200: Cost(words=10_000), 2000: Cost(inputs=2000, units=2000, words=10_000)}
COLOURS = ("#0072B2", "#D55E00", "#009E73")
NAMES = {"inputs": "inputs", "units": "units", "layers": "layers", "steps": "steps", "batch": "sequences"}
NAMES |= {"operations": "operations"}


def page(record: dict[str, Any]) -> str:
    """The Markdown page of a record."""
    here = record["machine"]
    about = f"{here['cpu']}, {here['date']}, torch {here['torch']}, commit {here['commit']}."
    parts = {
        "Time and memory of a layer": layers(record),
        "Two ranks": shared(record),
        "When it pays": f"{pays(record)}\n{most(record)}",
    }
    text = "\n".join(f"## {title}\n\n{table}" for title, table in parts.items())
    return f"# What training costs\n\nWritten by `benchmarks/cost.py`. {about}\n\n{text}"


def table(*rows: tuple[str, ...]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"


def shape(row: dict[str, Any]) -> Cost:
    return Cost(**row["shape"])


def label(cost: Cost, base: Cost) -> str:
    """Differences from the first shape."""
    changed = [
        f"{getattr(cost, name):,} {word}" for name, word in NAMES.items() if getattr(cost, name) != getattr(base, name)
    ]
    words = ", ".join(changed) or ", ".join(f"{getattr(base, name)} {word}" for name, word in NAMES.items())
    return words.replace("1 layers", "1 layer") if cost == base else words.replace("1 sequences", "1 sequence")


def ratios(record: dict[str, Any]) -> list[tuple[str, float, float, float, float]]:
    """By shape: its name; per token, relative to the first, multiplications and time; bytes predicted and counted."""
    rows = record["layers"]
    base = shape(rows[0])
    result = []
    for row in rows:
        cost = shape(row)
        predicted = cost.multiplications / base.multiplications
        measured = (row["seconds"] / cost.tokens) / (rows[0]["seconds"] / base.tokens)
        result.append(
            (label(cost, base), predicted, measured, cost.saved_bytes / cost.tokens, row["saved_bytes"] / cost.tokens)
        )
    return result


def layers(record: dict[str, Any]) -> str:
    head = ("shape", "multiplications per token", "measured time per token", "bytes kept per token", "counted")
    rows = [
        (name, f"{predicted:.2f}", f"{measured:.2f}", f"{wanted:,.0f}", f"{counted:,.0f}")
        for name, predicted, measured, wanted, counted in ratios(record)
    ]
    return table(head, *rows)


def shared(record: dict[str, Any]) -> str:
    """Two ranks on this machine: predicted from the parts, and measured."""
    head = ("batch", "gradients", "sending", "optimiser", "shared, predicted", "shared, measured")
    rows = []
    for row in record["shared"]:
        cost, seconds = shape(row), row["seconds"]
        alone = seconds["alone"]
        predicted = (alone - seconds["optimiser"]) / row["ranks"] + seconds["optimiser"] + seconds["sending"]
        parts = (seconds["sending"], seconds["optimiser"], predicted, seconds["shared"])
        size = f"{cost.batch} sequences of {cost.steps} steps"
        rows.append((size, f"{FLOAT * row['parameters'] / 1e6:.0f} MB", *(f"{part / alone:.2f}" for part in parts)))
    return table(head, *rows)


def rate(record: dict[str, Any]) -> float:
    """Multiplications per second of one core, at the first shape."""
    row = record["layers"][0]
    cost = shape(row)
    return TRAINING * cost.multiplications * cost.tokens / float(row["seconds"])


def pays(record: dict[str, Any]) -> str:
    """Tokens per rank and update from which computing takes longer than sending."""
    head = ("units", "a rank is", *NETWORKS)
    rows = [
        (
            f"{units:,}",
            name,
            *(_round(cost.tokens_to_pay(factor * rate(record), network)) for network in NETWORKS.values()),
        )
        for units, cost in MODELS.items()
        for name, factor in PROCESSORS.items()
    ]
    return table(head, *rows)


def most(record: dict[str, Any]) -> str:
    """Ranks of one core up to which sharing a batch keeps half of the ideal speed."""
    head = ("units", "tokens in the batch", *NETWORKS)
    rows = []
    for units, cost in MODELS.items():
        for batch in BATCHES:
            sized = replace(cost, batch=batch)
            counts = (sized.most_ranks(rate(record), network) for network in NETWORKS.values())
            rows.append((f"{units:,}", f"{sized.tokens:,}", *(f"{count:,}" for count in counts)))
    return table(head, *rows)


def _round(tokens: float) -> str:
    """Two digits: the rate is no better known."""
    digits = 10 ** max(0, len(str(int(tokens))) - 2)
    return f"{max(1, round(tokens / digits) * digits):,}"


def draw(record: dict[str, Any], stem: Path) -> None:
    """Write the figure as SVG and PNG."""
    plt.rcParams.update(
        {"font.size": 9, "svg.hashsalt": "mufuru", "axes.spines.top": False, "axes.spines.right": False}
    )
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    draw_layers(left, record)
    for axes, (units, cost) in zip((middle, right), MODELS.items(), strict=True):
        draw_speedup(axes, record, units, cost)
    middle.set_ylabel("updates per second, by those of one rank")
    figure.savefig(stem.with_suffix(".svg"), bbox_inches="tight", metadata={"Date": None})
    figure.savefig(stem.with_suffix(".png"), dpi=130, bbox_inches="tight")
    plt.close(figure)


def draw_layers(axes: Axes, record: dict[str, Any]) -> None:
    rows = ratios(record)
    limits = (0.5 * min(min(row[1:3]) for row in rows), 2 * max(max(row[1:3]) for row in rows))
    axes.plot(limits, limits, color="#999999", linewidth=1, label="as predicted")
    axes.scatter([row[1] for row in rows], [row[2] for row in rows], color=COLOURS[0], s=18, zorder=3)
    for name, predicted, measured, *_ in rows[1:]:
        if not 0.7 < measured / predicted < 1.4:
            axes.annotate(
                name, (predicted, measured), textcoords="offset points", xytext=(-5, -3), ha="right", fontsize=7
            )
    axes.set(xscale="log", yscale="log", xlim=limits, ylim=limits, title="Cost of a token, by that of 200 units")
    axes.set(xlabel="multiplications, predicted", ylabel="time, measured")
    axes.legend(frameon=False, loc="upper left")


def draw_speedup(axes: Axes, record: dict[str, Any], units: int, cost: Cost) -> None:
    axes.plot(RANKS, RANKS, color="#999999", linewidth=1, label="ideal")
    for colour, (name, network) in zip(COLOURS, NETWORKS.items(), strict=True):
        for batch, style in zip(BATCHES, ("-", "--"), strict=True):
            sized = replace(cost, batch=batch)
            speeds = [sized.speedup(ranks, rate(record), network) for ranks in RANKS]
            axes.plot(RANKS, speeds, style, color=colour, label=f"{name}, {sized.tokens:,} tokens", linewidth=1.3)
    axes.set(xscale="log", yscale="log", xticks=RANKS, yticks=RANKS, title=f"{units:,} units, ranks of one core")
    axes.set_xticklabels(map(str, RANKS))
    axes.set_yticklabels(map(str, RANKS))
    axes.minorticks_off()
    axes.set(xlabel="ranks that share one batch", ylim=(0.4, 80))
    axes.legend(frameon=False, fontsize=7, loc="upper left", labelspacing=0.3)
