"""The experiment with formal languages: its runs and its page. It is none of the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from mufuru.experiments.data import flare
from mufuru.experiments.draws import Draws
from mufuru.experiments.record import Record
from mufuru.experiments.report import inspection, plots, runs
from mufuru.experiments.report.experiment import Part as Section
from mufuru.experiments.report.measure import summarise
from mufuru.experiments.report.page import MISSING, Block, Picture, Table
from mufuru.experiments.report.results import parameters
from mufuru.experiments.report.runs import Runs, of_part
from mufuru.experiments.reproduce.grid import Experiment, Flag, Grid, Setting, with_training
from mufuru.experiments.reproduce.logic_runs import SHARE, SOLVED
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.languages import tracking
from mufuru.experiments.tasks.languages.config import PRESETS, LanguagesConfig, ReaderConfig

Model = Literal["mufuru", "paper-gru", "gru", "lstm", "vanilla", "transformer"]
CELLS: dict[Model, ReaderConfig] = {
    "mufuru": ReaderConfig("mufuru"),
    # two operations that start alike, and the reset gate before the product
    "paper-gru": ReaderConfig("mufuru", ops=("keep", "replace"), keep_bias=0.0),
    "gru": ReaderConfig("gru"),
    "lstm": ReaderConfig("lstm"),
    "vanilla": ReaderConfig("vanilla"),
    "transformer": ReaderConfig("transformer"),
}
NAMES: dict[Model, str] = {
    "mufuru": "MuFuRU",
    "paper-gru": runs.PAPERS_GRU,
    "gru": "nn.GRU",
    "lstm": "LSTM",
    "vanilla": "tanh RNN",
    "transformer": "transformer",
}
FIRST = (*flare.REGULAR, "majority", "marked-reversal")
"""Languages of the part flare, in the order in which they are published, each when all its runs are made."""
UNITS: dict[Model, int] = {"mufuru": 26, "paper-gru": 39, "gru": 45, "lstm": 39, "vanilla": 79, "transformer": 32}
"""Units of five layers with which a model has about the 64,000 parameters of FLaRe; the embedding makes up the rest."""
TOKENS, RATES = (128, 4096), (1e-4, 1e-2)
"""Ranges from which FLaRe draws the size of batches and, by its logarithm, the learning rate of a run."""
STATE = 32
"""Numbers of the state in the part equal-state: an LSTM has half of them as memory."""
BUDGET = 20_000
"""Parameters in the part equal-parameters."""
TRACKING_UNITS: dict[str, dict[Model, int]] = {
    "equal-parameters": {"mufuru": 32, "paper-gru": 48, "gru": 56, "lstm": 48, "vanilla": 96, "transformer": 28},
    "equal-state": {"mufuru": STATE, "paper-gru": STATE, "gru": STATE, "lstm": STATE // 2, "vanilla": STATE},
}
TRACKING_RATES = (1e-3, 3e-3, 1e-2)
TRACKING_SEEDS = 3
SECONDS = 300.0
"""Rough time on one core for a run of FLaRe with batches of 1,024 symbols; runs differ much in length."""
Part = Literal["flare", "flare-more", "equal-parameters", "equal-state"]


@dataclass(frozen=True)
class LanguagesGrid(Grid):
    """The runs of the experiment with formal languages."""

    part: Part | Literal["all"] = "all"
    """flare: the regular languages of FLaRe, majority and marked-reversal, by its protocol. flare-more: its other
    languages. equal-parameters, equal-state: states to track, over learning rates, with as many parameters, or as many
    numbers of state."""
    models: tuple[Model, ...] = tuple(CELLS)
    """Models; paper-gru is MuFuRU with keep and replace alone, which start alike."""
    languages: tuple[str, ...] = ()
    """Languages; none for all."""
    seeds: int | None = None
    """Runs of each setting; None for as many as a part has: 10 of FLaRe, each with a learning rate and a size of
    batches of its own, 3 of the others."""
    short: Flag = False
    """Only MuFuRU and nn.GRU with 16 units, on parity, and few strings: a minute on two cores."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = (*flare.LANGUAGES, *tracking.LANGUAGES)
        if unknown := [name for name in self.languages if name not in known]:
            raise SettingError(f"languages should be some of {', '.join(known)}, got {', '.join(unknown)}")

    def settings(self) -> Iterator[Setting]:
        for cell in ("gru", "mufuru"):
            config = replace(PRESETS["short"], cell=replace(PRESETS["short"].cell, cell=cell))
            yield Setting("short", cell, "languages", config, range(2))
        for group, what, config, seeds in every_setting(self.models, self.seeds):
            if not self.languages or config.data.language in self.languages:
                yield Setting(group, what, "languages", config, seeds)

    @staticmethod
    def cost(config: LanguagesConfig) -> float:
        """Return about how many seconds a run takes; small batches take longer."""
        whole = config.data.language in flare.LANGUAGES
        return (SECONDS if whole else SECONDS / 4) * (0.75 + 256 / config.batch_tokens)


def every_setting(models: tuple[Model, ...], seeds: int | None) -> Iterator[tuple[str, str, LanguagesConfig, range]]:
    """Return the group, the difference within it, the settings and their seeds."""
    for language, trial in product(flare.LANGUAGES, range(seeds or 10)):
        tokens, rate = drawn(language, trial)
        group = "flare" if language in FIRST else "flare-more"
        for model in models:
            cell = replace(CELLS[model], hidden_size=UNITS[model], num_layers=5)
            config = replace(with_training(PRESETS["flare"], learning_rate=rate), cell=cell, batch_tokens=tokens)
            config = replace(config, data=replace(config.data, language=language))
            yield group, f"{language}-{model}", config, range(trial, trial + 1)
    for group, units in TRACKING_UNITS.items():
        several = range(seeds or TRACKING_SEEDS)
        for language, model, rate in product(tracking.LANGUAGES, units, TRACKING_RATES):
            if model in models:
                layers = 2 if model == "transformer" else 1
                cell = replace(CELLS[model], hidden_size=units[model], num_layers=layers)
                config = replace(with_training(PRESETS["tracking"], learning_rate=rate), cell=cell)
                config = replace(config, data=replace(config.data, language=language))
                if group == "equal-parameters":
                    config = replace(config, parameters=BUDGET)
                yield group, f"{language}-{model}-lr{rate:g}", config, several


def drawn(language: str, trial: int) -> tuple[int, float]:
    """Return the batch size and the learning rate of a trial, the same for all models."""
    draws = Draws("languages", "trial", language, trial)
    tokens = TOKENS[0] + draws.below(TOKENS[1] - TOKENS[0] + 1)
    low, high = RATES
    return tokens, float(f"{low * (high / low) ** (draws.bits(32) / 2**32):.4g}")


def model_of(record: Record) -> Model:
    """Return the model of a run."""
    cell: Any = runs.cell_of(record)
    model: Model = "paper-gru" if runs.is_papers_gru(record) else cell
    return model


Lines = Mapping[tuple[str, Model], Runs]
"""Runs by language and model."""


def lines(records: Runs) -> Lines:
    return runs.grouped(records, lambda record: (str(runs.setting(record, "data.language")), model_of(record)))


def accuracies(records: Runs) -> list[float]:
    return [value for record in records if (value := runs.metric(record)) is not None]


def mean_and_best(records: Runs) -> str:
    values = accuracies(records)
    return f"{SHARE.value(statistics.fmean(values))}, {SHARE.value(max(values))}"


def solved(records: Runs) -> str:
    return SHARE.solved(summarise(accuracies(records)), SOLVED)


def minutes(records: Runs) -> str:
    return f"{statistics.fmean(record.result['seconds'] for record in records) / 60:.1f}"


def reach(records: Runs) -> str:
    lengths = [inspection.longest(record, "lengths", SOLVED) for record in records]
    return f"{statistics.median(lengths):g}, {max(lengths)}"


def pivot(by_line: Lines, caption: str, entry: Callable[[Runs], str]) -> Table:
    """Return a row for each language, a column for each model."""
    models = [model for model in CELLS if any(model == key[1] for key in by_line)]
    rows = tuple(
        (language, *(entry(some) if (some := by_line.get((language, model))) else MISSING for model in models))
        for language in languages_of(by_line)
    )
    return Table(caption, ("language", *(NAMES[model] for model in models)), rows)


def languages_of(by_line: Lines) -> list[str]:
    present = {language for language, _ in by_line}
    return [name for name in (*flare.LANGUAGES, *tracking.LANGUAGES) if name in present]


def over_length(name: str, by_line: Lines) -> Picture:
    """Return mean test accuracy over length, a panel for each language."""
    panels = {
        language: {
            NAMES[model]: (str(model), [inspection.by_length(record, "lengths") for record in some])
            for model in CELLS
            if (some := by_line.get((language, model)))
        }
        for language in languages_of(by_line)
    }
    alt = f"Line plots of test accuracy against length of string for {', '.join(panels)}"
    caption = "Test accuracy by length of string: mean over the runs (line), and every run (faint)."
    return Picture(name, lambda: plots.by_length(panels), alt, caption)


def recognition(records: Runs, part: str) -> list[Block]:
    """Return a part with languages of FLaRe."""
    by_line = lines(of_part(records, part))
    return [
        pivot(by_line, "Test accuracy on strings of up to 500 symbols: mean and best of the trials", mean_and_best),
        pivot(
            by_line, f"Trials with {SOLVED} or more and, in brackets, the 95 % interval of their share (Wilson)", solved
        ),
        over_length(f"languages-{part}", by_line),
        pivot(by_line, "Parameters", parameters),
        pivot(by_line, "Minutes of one core, mean of the trials; other work on the machine is in them", minutes),
    ]


def tracked(records: Runs, part: str) -> list[Block]:
    """Return a part with states to track."""
    by_line = lines(of_part(records, part))
    how = f"over {len(TRACKING_RATES)} learning rates and {TRACKING_SEEDS} seeds"
    return [
        pivot(by_line, f"Runs with a test accuracy of {SOLVED} or more, {how}, and the 95 % interval of their share "
              "(Wilson)", solved),
        pivot(by_line, f"Length up to which accuracy is at least {SOLVED}, {how}: median and best", reach),
        over_length(f"languages-{part}", by_line),
        pivot(by_line, "Parameters", parameters),
    ]  # fmt: skip


def section(part: str, title: str, varies: tuple[str, ...]) -> Section:
    blocks = recognition if part.startswith("flare") else tracked
    return Section(title, lambda records: blocks(records, part), varies=varies)


VARIES = ("data.language", "training.learning_rate", "batch_tokens")
EXPERIMENT: Experiment = Experiment(
    "languages",
    "Recognising formal languages",
    ("languages",),
    SHARE,
    ("cell.cell", "cell.ops"),
    "Recurrent layers and a transformer learn formal languages from short strings, and are tested on longer ones.",
    "flare",
    {
        "flare": section("flare", "FLaRe", VARIES),
        "flare-more": section("flare-more", "FLaRe, languages beyond", VARIES),
        "equal-parameters": section("equal-parameters", "States to track, equal parameters", VARIES),
        "equal-state": section("equal-state", "States to track, equal state", VARIES),
        "short": Section(
            "The short form",
            lambda records: [pivot(lines(of_part(records, "short")), "Test accuracy: mean and best", mean_and_best)],
            heading="Parity of a few strings",
        ),
    },
    (),
    grid=LanguagesGrid,
    example="flare --models mufuru gru --languages parity --seeds 2",
    # its runs are many and their curves would be most of the records
    curve_lines=0,
    piece="data.language",
    unfinished=frozenset({"flare", "flare-more", "equal-parameters", "equal-state"}),
)
