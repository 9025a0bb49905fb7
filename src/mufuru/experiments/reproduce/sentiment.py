"""The runs of the sentiment experiment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mufuru.experiments.data import glove
from mufuru.experiments.engine.sweep import Job
from mufuru.experiments.reproduce import grid
from mufuru.experiments.reproduce.grid import Setting, for_cell, with_cell, with_training
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks import trees
from mufuru.experiments.tasks.cells import CellName
from mufuru.experiments.tasks.classify import PRESETS, ClassifyConfig

CELLS: tuple[CellName, ...] = ("gru", "lstm", "mufuru")
COMPARED: tuple[CellName, ...] = ("gru", "mufuru")
"""Cells of the parts that ask what a choice is worth."""
FEWER = 100
"""Units of a TreeMuFuRU with about as many parameters as a Tree-LSTM of 150."""
SEEDS = {"paper": 5, "dimensions": 5, "best": 5, "search": 1, "trees": 5, "choices": 3, "tuning": 2}
"""Runs of each setting, by part."""
EPOCH_SECONDS = 60.0
"""About what one core takes to read all phrases once."""
Part = Literal["paper", "dimensions", "best", "search", "trees", "choices", "tuning"]

SHORT = replace(
    with_training(PRESETS["paper"], epochs=1, learning_rate=2e-3, evaluate_every=50),
    data=replace(PRESETS["paper"].data, phrases=False),
)
"""Once through the whole sentences, without their phrases."""


@dataclass(frozen=True)
class SentimentGrid:
    """The runs of the experiment with the Stanford Sentiment Treebank."""

    part: Part | Literal["all"] = "all"
    """paper: the paper's setting, as far as it is known. dimensions: the same with smaller or larger word vectors.
    best: both directions, well regularised. search: what was tried for best, with the GRU. trees: TreeMuFuRU and
    Tree-LSTM along the parse trees. choices: what the paper does not say, one change at a time. tuning: ten epochs, and
    ten settings of each cell, from which the development data choose."""
    cells: tuple[CellName, ...] = CELLS
    """Cells of the parts paper and best."""
    dimensions: tuple[int, ...] = (50,)
    """Features of GloVe's vectors in the part dimensions: 50, 200 or 300; the other parts have 100."""
    seeds: int | None = None
    """Runs of each setting; None for as many as a part has: 5, but 3 of choices, 2 of tuning and 1 of search."""
    short: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only GRU and MuFuRU, once through the sentences: a minute on two cores."""

    def __post_init__(self) -> None:
        grid.check_seeds(self.seeds)
        there = glove.SOURCES["6B"].dimensions
        if unknown := [size for size in self.dimensions if size not in there]:
            known = ", ".join(map(str, there))
            raise SettingError(f"dimensions should be some of {known}, got {', '.join(map(str, unknown))}")

    def jobs(self, root: Path) -> list[Job]:
        settings = short_settings() if self.short else self.settings()
        return grid.seeds_first(grid.jobs(root, settings, cost))

    def settings(self) -> Iterator[Setting]:
        """Those of the part, or of all parts one after another."""
        for group, what, config in every_setting(self.cells, self.dimensions):
            if self.part in (group, "all"):
                kind = "trees" if group == "trees" else "classify"
                yield Setting(group, what, kind, config, range(self.seeds or SEEDS[group]))


def short_settings() -> Iterator[Setting]:
    for cell in COMPARED:
        yield Setting("short", cell, "classify", for_cell(SHORT, cell), range(2))


def every_setting(cells: tuple[CellName, ...], dimensions: tuple[int, ...]) -> Iterator[tuple[str, str, Any]]:
    """Group, what is different, and the settings."""
    for group in ("paper", "best"):
        for cell in cells:
            yield group, cell, for_cell(PRESETS[group], cell)
    for what, config in search(for_cell(PRESETS["best"], "gru")):
        yield "search", f"gru-{what}", config
    tree = trees.PRESETS["paper"]
    yield "trees", "lstm", for_cell(tree, "lstm")
    yield "trees", "mufuru", tree
    yield "trees", f"mufuru-{FEWER}", with_cell(tree, hidden_size=FEWER)
    for cell in COMPARED:
        paper = for_cell(PRESETS["paper"], cell)
        for size in dimensions:
            yield "dimensions", f"{cell}-glove{size}", replace(paper, embedding_size=size)
        for what, config in choices(paper):
            yield "choices", f"{cell}-{what}", config
    for name, config in tuned_cells(with_training(PRESETS["paper"], epochs=10, smoothing=5)):
        for what, tried in tuning(config):
            yield "tuning", f"{name}-{what}", tried


def choices(config: ClassifyConfig) -> Iterator[tuple[str, ClassifyConfig]]:
    """One thing changed at a time, of those on which the paper is silent."""
    for rate in (5e-4, 2e-3):
        yield f"lr{rate:g}", with_training(config, learning_rate=rate)
    for dropout in (0.0, 0.3):
        yield f"dropout{dropout:g}", replace(config, embedding_dropout=dropout, output_dropout=dropout)


def tuned_cells(config: ClassifyConfig) -> Iterator[tuple[str, ClassifyConfig]]:
    """MuFuRU, the paper's GRU (two operations that start alike) and `nn.GRU`."""
    yield "mufuru", for_cell(config, "mufuru")
    yield "paper-gru", for_cell(config, "mufuru", ops=("keep", "replace"), keep_bias=0.0)
    yield "gru", for_cell(config, "gru")


def tuning(config: ClassifyConfig) -> Iterator[tuple[str, ClassifyConfig]]:
    """The settings that each cell is tried in, as many for each.

    Of a cell's ten the one with the highest smoothed development accuracy, the mean over its seeds, is taken as it is,
    and trained anew with seeds from 100: a rule from before the first run. The test data have no part in it.
    """
    for rate in (5e-4, 1e-3, 2e-3):
        for dropout in (0.3, 0.5):
            changed = replace(config, embedding_dropout=dropout, output_dropout=dropout)
            yield f"lr{rate:g}-dropout{dropout:g}", with_training(changed, learning_rate=rate)
    yield "no-bucketing", replace(config, bucketing=False)
    yield "distinct", replace(config, data=replace(config.data, distinct_phrases=True))
    for scale in (0.5, 2.0):
        yield f"scale{scale:g}", replace(config, vector_scale=scale)


def search(config: ClassifyConfig) -> Iterator[tuple[str, ClassifyConfig]]:
    """One thing changed at a time, of those that were tried for the preset best."""
    yield "labels2", replace(config, data=replace(config.data, graded=False))
    yield "max", replace(config, pooling="max")
    yield "dropout0.7", replace(config, embedding_dropout=0.7)
    yield "decay0.1", with_training(config, weight_decay=0.1)


def cost(config: Any) -> float:
    """About how many seconds a run takes at most; trees share the states of phrases inside each other."""
    directions = 2 if isinstance(config, ClassifyConfig) and config.cell.bidirectional else 1
    return EPOCH_SECONDS * float(config.training.epochs) * directions
