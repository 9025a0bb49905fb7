"""Results of a search: a table, a plot, and the command that repeats the best trial."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mufuru.disk import write_atomically
from mufuru.experiments import tasks
from mufuru.experiments.report.figures import CELLS, GRID, new, png, style, svg
from mufuru.experiments.search.run import Made
from mufuru.experiments.search.space import Axis, Space
from mufuru.experiments.search.state import Trial
from mufuru.saving.card import table

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def heads(space: Space, made: Made) -> list[str]:
    return ["trial", *(axis.title for axis in space.axes), f"valid {made.metric}", "validations", "state"]


def rows(space: Space, made: Made) -> list[list[str]]:
    """Return a row for each trial, the best first."""
    return [
        [
            trial.name,
            *(show(trial.settings[axis.names[0]]) for axis in space.axes),
            "" if trial.last is None else f"{trial.last:.4f}",
            str(len(trial.validations)),
            trial.state,
        ]
        for trial in made.ranked
    ]


def show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def write(space: Space, made: Made, folder: Path) -> list[Path]:
    """Write the table and the plot into a folder; return the files."""
    write_atomically(folder / "table.md", f"{table(heads(space, made), rows(space, made))}\n".encode())
    files = [folder / "table.md"]
    if any(trial.last is not None for trial in made.trials):
        figure = plot(space, made)
        for name, content in (("plot.svg", svg(figure)), ("plot.png", png(figure))):
            write_atomically(folder / name, content)
            files.append(folder / name)
    return files


def plot(space: Space, made: Made) -> Figure:
    """Draw a panel for each setting: the metric of every trial over its value."""
    with style():
        figure = new(1.0 + 3.2 * len(space.axes), 3.4)
        grid = figure.subplots(1, len(space.axes), sharey=True, squeeze=False)[0]
        for axes, axis in zip(grid, space.axes, strict=True):
            _panel(axes, axis, made)
        grid[0].set_ylabel(f"valid {made.metric}")
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
        return figure


def _panel(axes: Axes, axis: Axis, made: Made) -> None:
    shown = [trial for trial in made.trials if trial.last is not None]
    places = _places(axes, axis, shown)
    looks: dict[str, tuple[str, str, int]] = {
        "finished": (CELLS["gru"].colour, "o", 5),
        "not finished": ("#999999", "x", 5),
        "best": (CELLS["mufuru"].colour, "*", 12),
    }
    groups = {trial.number: "finished" if trial.state == "finished" else "not finished" for trial in shown}
    if made.best:
        groups[made.best.number] = "best"
    for name, (colour, marker, size) in looks.items():
        if points := [(places[trial.number], trial.last) for trial in shown if groups[trial.number] == name]:
            look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": size}
            axes.plot(*zip(*points, strict=True), linestyle="", label=name, **look)
    axes.set_xlabel(axis.title)
    axes.grid(axis="y", color=GRID, linewidth=0.8)


def _places(axes: Axes, axis: Axis, trials: Sequence[Trial]) -> dict[int, float]:
    """Return the place of each trial on the axis, which is set up for it."""
    values = {trial.number: trial.settings[axis.names[0]] for trial in trials}
    if axis.values and not axis.high:
        axes.set_xticks(range(len(axis.values)), [show(value) for value in axis.values])
        axes.set_xlim(-0.5, len(axis.values) - 0.5)
        return {number: float(axis.values.index(value)) for number, value in values.items()}
    if axis.log:
        axes.set_xscale("log")
    return {number: float(value) for number, value in values.items()}


def train_command(kind: str, config: Any) -> str:
    """Return the command that makes a run with these settings."""
    presets = tasks.KINDS[kind].presets
    flags = {name: list(flags_between(preset, config)) for name, preset in presets.items()}
    preset = min(flags, key=lambda name: len(flags[name]))
    return shlex.join(["mufuru", "train", kind, "--preset", preset, *(word for flag in flags[preset] for word in flag)])


def flags_between(one: Any, other: Any) -> Iterator[list[str]]:
    """Return a flag and its values for each setting that differs."""
    for field in dataclasses.fields(one):
        before, value = getattr(one, field.name), getattr(other, field.name)
        flag = "--" + field.name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            yield from flags_between(before, value)
        elif value == before:
            continue
        elif isinstance(value, bool):
            yield [flag if value else flag.replace("--", "--no-", 1)]
        else:
            yield [flag, *map(str, value if isinstance(value, tuple) else (value,))]
