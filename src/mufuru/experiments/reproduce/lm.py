"""The runs of the language-model experiment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mufuru.experiments.engine.sweep import Job
from mufuru.experiments.reproduce import grid
from mufuru.experiments.reproduce.grid import Setting, for_cell, with_cell, with_training
from mufuru.experiments.tasks.cells import CellName
from mufuru.experiments.tasks.lm import PRESETS, LMConfig

CELLS: tuple[CellName, ...] = ("gru", "mufuru", "lstm")
CONTROLLER = 50
"""Units of the lean unit's recurrent controller: with 200 units it has a GRU's arithmetic."""
KEEPS: tuple[tuple[CellName, float], ...] = (("mufuru", 0.0), ("mufuru", 3.0), ("gru", 1.0))
"""Other starts of what keeps the state. MuFuRU's own is 2, the GRU's 0: each then keeps about half of it."""
WIDE = {"batch20": 240, "best": 238}
"""Units with which a GRU has as many parameters as MuFuRU with 200, by the part that has both."""
QUARTER = 664
"""Updates between two looks at the validation text in the part operations: a quarter of an epoch."""
SEEDS = {
    "paper": 3,
    "lean": 3,
    "keep": 1,
    "batch20": 3,
    "choices": 1,
    "best": 1,
    "wide": 1,
    "operations": 6,
    "best-seeds": 2,
}
"""Runs of each setting, by part. The LSTM has one: it is there to see where the others stand."""
FIRST_SEED = {"best-seeds": 1}
"""First seed of a part whose runs with earlier seeds belong to other parts; 0 for the others."""
EPOCH_SECONDS = 300.0
"""About what one core takes to read the Penn Treebank once with 200 units; most of it is the softmax."""
Part = Literal["paper", "lean", "keep", "batch20", "choices", "best", "wide", "operations", "best-seeds"]

SHORT = with_training(
    with_cell(PRESETS["paper"], hidden_size=50), epochs=1, batch_size=100, learning_rate=1e-2, evaluate_every=100
)
"""A quarter of the units, once through the text."""


@dataclass(frozen=True)
class LMGrid:
    """The runs of the language-model experiment on the Penn Treebank."""

    part: Part | Literal["all"] = "all"
    """paper: the paper's setting, as far as it is known. lean: MuFuRU with a recurrent controller. keep: other starts
    of what keeps the state. batch20: larger batches, with which the search for the paper's setting began. choices: what
    the paper does not say, mostly for the GRU, one change at a time. best: the same units well regularised. wide: a GRU
    with as many parameters as MuFuRU, beside batch20 and best. operations: whether operations, start or parameters
    decide: seven and two operations from the same starts of keep, and both GRUs, with four looks an epoch. best-seeds:
    more runs of MuFuRU and both GRUs in best."""
    cells: tuple[CellName, ...] = CELLS
    """Cells of the parts paper, batch20 and best."""
    seeds: int | None = None
    """Runs of each setting; None for as many as a part has: 6 of operations, 3 of paper, lean and batch20, 2 of
    best-seeds, 1 of the others and of the LSTM."""
    short: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only GRU and MuFuRU with 50 units, once through the text: minutes on two cores."""

    def __post_init__(self) -> None:
        grid.check_seeds(self.seeds)

    def jobs(self, root: Path) -> list[Job]:
        settings = short_settings() if self.short else self.settings()
        return grid.seeds_first(grid.jobs(root, settings, cost))

    def settings(self) -> Iterator[Setting]:
        """Those of the part, or of all parts one after another."""
        for group, what, config in every_setting(self.cells):
            if self.part in (group, "all"):
                runs = 1 if config.cell.cell == "lstm" else SEEDS[group]
                first = FIRST_SEED.get(group, 0)
                yield Setting(group, what, "lm", config, range(first, first + (self.seeds or runs)))


def short_settings() -> Iterator[Setting]:
    for cell in ("gru", "mufuru"):
        yield Setting("short", cell, "lm", for_cell(SHORT, cell), range(1))


def every_setting(cells: tuple[CellName, ...]) -> Iterator[tuple[str, str, LMConfig]]:
    """Group, what is different, and the settings."""
    paper, best = PRESETS["paper"], PRESETS["best"]
    larger = with_training(paper, batch_size=20)
    lean = f"mufuru-controller{CONTROLLER}"
    for cell in cells:
        yield "paper", cell, for_cell(paper, cell)
    yield "lean", lean, for_cell(paper, "mufuru", controller_size=CONTROLLER)
    for cell, value in KEEPS:
        yield "keep", f"{cell}-keep{value:g}", for_cell(paper, cell, keep_bias=value)
    for cell in cells:
        yield "batch20", cell, for_cell(larger, cell)
    if "mufuru" in cells:
        yield "batch20", lean, for_cell(larger, "mufuru", controller_size=CONTROLLER)
    for what, config in choices(for_cell(larger, "gru")):
        yield "choices", f"gru-{what}", config
    yield "choices", "gru-batch10-lr0.001", with_training(for_cell(paper, "gru"), learning_rate=1e-3)
    yield "choices", "mufuru-lr0.001", with_training(for_cell(larger, "mufuru"), learning_rate=1e-3)
    for cell, value in KEEPS:
        yield "choices", f"{cell}-keep{value:g}", for_cell(larger, cell, keep_bias=value)
    for cell in cells:
        yield "best", cell, for_cell(best, cell)
    if "mufuru" in cells:
        yield "best", lean, for_cell(best, "mufuru", controller_size=CONTROLLER)
        # not without regularisation: with batches of 20 all seeds diverge
        with_relu = for_cell(best, "mufuru", controller_size=CONTROLLER, controller_activation="relu")
        yield "best", f"{lean}-relu", with_relu
    for part, config in {"batch20": larger, "best": best}.items():
        yield "wide", f"gru-{part}", wider(for_cell(config, "gru"), WIDE[part])
    # two epochs of patience, as in the paper's setting
    for what, config in operations(with_training(paper, evaluate_every=QUARTER, patience=8)):
        yield "operations", what, config
    yield "best-seeds", "mufuru", for_cell(best, "mufuru")
    yield "best-seeds", "gru", for_cell(best, "gru")
    yield "best-seeds", f"gru-{WIDE['best']}", wider(for_cell(best, "gru"), WIDE["best"])


def operations(config: LMConfig) -> Iterator[tuple[str, LMConfig]]:
    """Seven operations and two (the paper's GRU) from each start of keep, `nn.GRU`, and one of MuFuRU's size."""
    for keep in (2.0, 0.0):
        yield f"mufuru-keep{keep:g}", for_cell(config, "mufuru", keep_bias=keep)
        yield f"paper-gru-keep{keep:g}", for_cell(config, "mufuru", keep_bias=keep, ops=("keep", "replace"))
    units = WIDE["batch20"]
    yield "gru", for_cell(config, "gru")
    yield f"gru-{units}", wider(for_cell(config, "gru"), units)


def wider(config: LMConfig, units: int) -> LMConfig:
    """With more units, and embeddings as before unless the softmax uses them too."""
    kept = None if config.tied else config.features
    return replace(config, cell=replace(config.cell, hidden_size=units), embedding_size=kept)


def choices(config: LMConfig) -> Iterator[tuple[str, LMConfig]]:
    """One thing changed at a time, of those on which the paper is silent. Batches of 10 are the paper's setting."""
    for rate in (5e-4, 1e-3, 4e-3):
        yield f"lr{rate:g}", with_training(config, learning_rate=rate)
    for batch in (5, 40):
        yield f"batch{batch}", with_training(config, batch_size=batch)
    yield "window70", replace(config, bptt=70)
    yield "clip1", with_training(config, clip=1.0)
    yield "clip-none", with_training(config, clip=None)
    yield "start-default", with_cell(config, initialisation="default")


def cost(config: LMConfig) -> float:
    """About how many seconds a run takes at most: it may stop earlier."""
    return EPOCH_SECONDS * config.training.epochs * config.cell.hidden_size / 200
