"""Interface of a task: data, model, step and metrics for the engine, and hooks for the commands that use a model."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

Batch = Any
"""An item of a task's `batches`, which its `step` takes: tensors or named tuples of them."""
State = Any
"""Passed from one step to the next: None, a tensor, or nested tuples of tensors."""

TOP = 10
"""Number of likeliest labels or words of a prediction."""
KEPT = 40
"""Number of validation texts that a run keeps for the explorer."""


@dataclass(frozen=True)
class Step:
    """Results of one batch. Sums and counts stay apart, so that no metric depends on the batch size."""

    loss: Tensor
    """Sum of the losses of all predictions; differentiable."""
    count: int
    """Number of predictions."""
    state: State = None
    """State for the next batch, detached; None where batches do not follow each other."""
    sums: Mapping[str, Tensor | float] = field(default_factory=dict)
    """More sums over the predictions, such as the number of correct ones."""
    penalty: Tensor | None = None
    """Added to the mean loss for the gradient only, such as activation regularisation."""


@dataclass
class Totals:
    """Steps added up over a data set."""

    loss: float = 0.0
    count: int = 0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        self.loss += float(step.loss.detach())
        self.count += step.count
        for name, value in step.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value.detach() if isinstance(value, Tensor) else value)

    def mean(self, name: str) -> float:
        """The mean of a sum over the predictions; "loss" names the loss."""
        return (self.loss if name == "loss" else self.sums[name]) / self.count


class Task(Protocol):
    """One experiment: made from its settings alone, so that the same settings give the same data in the same order.

    It may have a `description`, a sentence about its data that is printed when a run begins; a `layout`, as JSON, of
    the user's files, which the run folder keeps for `mufuru predict` and `evaluate --data`; `examples()`, up to
    `KEPT` texts of the validation data for the explorer that a finished run keeps in its folder; and `check_new`, which
    refuses settings or data for a new run, not for one that exists. `complete(model)` may change the
    selected model before it is tested, and returns whether it did; doing it twice is doing it once.
    `details(model, split)` returns more than metrics for `mufuru evaluate`, ready for JSON. One run can be trained on
    several processes if the task has `rows(batch)`, the number of rows that do not depend on each other, and
    `share(batch, rows: slice)`, a batch of some of them; tensors of a carried state have rows as second dimension.
    """

    config: Any
    metric: str
    """The key of `metrics` that chooses the best weights."""
    higher_is_better: bool

    def build(self) -> nn.Module:
        """Return a fresh model; its initial weights come from torch's global generator."""

    def batches(self, split: str, epoch: int = 0) -> Sequence[Batch]:
        """Return all batches of "train", "valid" or "test". The order of "train" follows from seed and epoch alone, so
        that a resumed run can start at any batch."""

    def step(self, model: nn.Module, batch: Batch, state: State) -> Step:
        """Run the model over one batch."""

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Return the metrics of a data set from its totals, the loss among them."""

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """Return facts about a trained model for the report beyond metrics, ready for JSON; may be empty."""


class Batches(Sequence[Batch]):
    """The batches of a data set by groups of its indices, each made on access."""

    def __init__(self, make: Callable[[Tensor], Batch], groups: Sequence[Tensor]) -> None:
        self.make, self.groups = make, groups

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: Any) -> Batch:
        return self.make(self.groups[index])


def packed_rows(packed: PackedSequence, rows: slice) -> PackedSequence:
    """Return some sequences of those packed in their own order, the longest first."""
    sizes = packed.batch_sizes
    chosen = torch.zeros(int(sizes[0]), dtype=torch.bool)
    chosen[rows] = True
    row = torch.arange(len(packed.data)) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    counts = chosen.cumsum(0)[sizes - 1]
    return PackedSequence(packed.data[chosen[row]], counts[counts > 0])


def by_length(lengths: Tensor, right: Tensor, ranges: int = 10) -> dict[str, list[int]]:
    """Return the number of correct sequences by length, ready for JSON: for ranges of equal width the longest length,
    the number of sequences, and of those that are right."""
    low, high = int(lengths.min()), int(lengths.max())
    width = -(-(high - low + 1) // ranges)
    places = (lengths - low) // width
    return {
        "longest": [min(high, low + width * (place + 1) - 1) for place in range(ranges)],
        "sequences": places.bincount(minlength=ranges).tolist(),
        "right": places[right].bincount(minlength=ranges).tolist(),
    }


class Prediction(NamedTuple):
    """The likeliest label, and the probability of each."""

    label: str
    probabilities: dict[str, float]


@dataclass(frozen=True)
class HowToRead:
    """Options of `mufuru predict` and `mufuru evaluate --data` for reading a new file."""

    layout: Mapping[str, Any] = field(default_factory=dict)
    """The layout of training, as the run folder keeps it."""
    labels: Literal["guess", "yes", "no"] = "guess"
    """Whether it has labels."""
    format: Any = None
    """Format; None for that of training, or a guess."""
    text_column: str | None = None
    label_column: str | None = None


class Predictor(Protocol):
    """A trained model as `mufuru predict` uses it.

    It may have `open(file, how)`, which returns an iterator of all sequences of a file, or of the standard input for
    None, and a note for the user; without it every line is one sequence. `how` is a `HowToRead`.
    """

    def read(self, line: str) -> Any:
        """Return the sequence of a line; a DataError says what is wrong with it."""

    def predict(self, sequences: list[Any]) -> list[Prediction]:
        """Return one prediction for each sequence, in their order."""


@dataclass(frozen=True)
class Steps:
    """The steps of a text as a model reads it."""

    tokens: list[str]
    """The token of each step, for display."""
    x: Tensor
    """(steps,) ids of tokens, or (steps, channels) of numbers."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user, such as unknown words."""


@dataclass(frozen=True)
class StepPrediction:
    """The prediction after a step."""

    top: list[tuple[str, float]]
    """The likeliest labels or words and their probabilities, the likeliest first; or estimates of a number and their
    places from 0 to 1 on the reader's scale."""
    truth: str | None = None
    """The correct label, where it is known."""
    came: float | None = None
    """The probability of the next token, where there is one."""


class Reader(ABC):
    """A trained model as `mufuru explore` uses it: a text in, the outputs of its recurrent layer, and a prediction
    after every step."""

    takes: str
    """The user's input: formula, words, characters or series."""
    examples: ClassVar[tuple[str, ...]] = ()
    estimates: ClassVar[str] = ""
    """Name of the number that is predicted; "" where predictions are labels or words with probabilities."""

    def __init__(self, model: Any, config: Any) -> None:
        self.model, self.config = model.eval(), config

    @property
    def layer(self) -> Any:
        """The model's `cells.SequenceLayer`."""
        return self.model.reader

    @property
    def both_ways(self) -> bool:
        """Whether the model reads in both directions, so that an output depends on later steps."""
        return bool(self.layer.directions == 2)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the predictions, where there are few of them."""
        return ()

    @property
    def corpus(self) -> tuple[str, ...]:
        """Texts to search for a run that kept none."""
        return self.examples

    @abstractmethod
    def steps(self, text: str) -> Steps:
        """Return the steps of a text; a DataError or SettingError says what is wrong with it."""

    def embed(self, x: Tensor) -> Tensor:
        """Return the layer's inputs for (steps, batch) ids or (steps, batch, channels) numbers."""
        embedded: Tensor = self.model.embedding(x)
        return embedded

    def outputs(self, steps: Steps) -> Tensor:
        """Return (steps, features): the layer's outputs when it reads all of the text."""
        outputs: Tensor = self.layer(self.embed(steps.x.unsqueeze(1)))[0]
        return outputs[:, 0]

    def answers(self, steps: Steps) -> Tensor:
        """Return the model's answers to all beginnings of a text, by step."""
        answers: Tensor = self.model(prefixes(steps.x)).flip(0)
        return answers

    @abstractmethod
    def predict(self, steps: Steps, outputs: Tensor) -> list[StepPrediction]:
        """Return a prediction after each step, from the steps up to it alone."""

    def scale(self, steps: Steps) -> tuple[float, float] | None:
        """Return the numbers at the places 0 and 1 of estimates; None for probabilities."""
        return None


def prefixes(rows: Tensor) -> PackedSequence:
    """Return all prefixes of a sequence (steps, ...), the longest first."""
    sizes = torch.arange(len(rows), 0, -1)
    return PackedSequence(rows.repeat_interleave(sizes, 0), sizes)


def ranked(probabilities: Tensor, labels: tuple[str, ...]) -> list[list[tuple[str, float]]]:
    """Return by step the likeliest labels of (steps, labels)."""
    values, places = probabilities.topk(min(TOP, len(labels)), 1)
    rows = zip(values.tolist(), places.tolist(), strict=True)
    return [[(labels[k], round(p, 6)) for p, k in zip(ps, ks, strict=True)] for ps, ks in rows]


def place_of(value: float, low: float, high: float) -> float:
    """Return the place of an estimate on a scale, from 0 to 1; beyond its ends it is at them."""
    return round(min(1.0, max(0.0, (value - low) / (high - low))), 6) if high > low else 0.5


def estimate(value: float, low: float, high: float) -> str:
    """Write an estimate to a thousandth of its scale."""
    places = 3 - math.floor(math.log10(high - low)) if high > low else 3
    return f"{value:.{min(max(places, 0), 9)}f}"


@dataclass(frozen=True)
class Card:
    """Texts of a model card; empty ones name the task."""

    noun: str = ""
    """Name of the model, such as "language model"."""
    data: str = ""
    """Name of the data of a run that names no files."""
    pipeline: Callable[[Mapping[str, Any]], str | None] = lambda config: None
    """From the settings, as JSON, to the Hub's pipeline tag."""


@dataclass(frozen=True)
class Kind:
    """A task for the commands: what makes it, its settings, and hooks, each None where a task lacks it.

    A model is exported by its own methods, see `models.TaskModel`. It is pruned where its settings have a
    `cells.CellConfig` of mufuru as `cell`.
    """

    make: Callable[[Any], Task]
    presets: Mapping[str, Any]
    """Settings by name, all of one class; the first is the default."""
    card: Card = Card()
    model: type[Any] | None = None
    """A `models.TaskModel`, which is restored from settings and weights, without the task and its data."""
    predictor: Callable[[Any, Any], Predictor] | None = None
    """From model and settings to what `mufuru predict` uses."""
    new_data: Callable[[Any, Any, Path, HowToRead], Task] | None = None
    """From model, settings, a file of the user's and how to read it to a task with the file as its part "data", which
    `mufuru evaluate --data` measures."""
    reader: Callable[[Any, Any], Reader] | None = None
    """From model and settings to what `mufuru explore` uses."""
    text_model: Callable[[Any, Any], Any] | None = None
    """From model and settings to what `mufuru generate` and `mufuru score` use, see `lm.use.TextModel`."""
    dynamic: Callable[..., dict[str, float]] | None = None
    """Metrics of a model that keeps learning while it is evaluated, see `lm.dynamic.evaluate`."""
    cell_names: Mapping[str, str] = field(default_factory=dict)
    """Names of the cells in reports, where they are not the usual ones."""

    @property
    def config(self) -> type[Any]:
        """The class of the settings."""
        return type(next(iter(self.presets.values())))
