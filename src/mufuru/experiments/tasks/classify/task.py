"""The classification task: sequences in, the probability of each label out."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mufuru.experiments.data import PARTS, DataError, alike, sst
from mufuru.experiments.data import labelled as labelled_files
from mufuru.experiments.data.examples import Examples, Labelled
from mufuru.experiments.data.labelled import examples_of
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.classify import scores
from mufuru.experiments.tasks.classify.config import ClassifyConfig, DataConfig
from mufuru.experiments.tasks.classify.inspection import operation_weights, walk
from mufuru.experiments.tasks.classify.model import POOL, Batch, Classifier, Encoded, Standardise, encode, shuffled
from mufuru.experiments.tasks.classify.use import known_of, written
from mufuru.experiments.tasks.task import KEPT, Batches, HowToRead, State, Step, Totals, packed_rows
from mufuru.experiments.tasks.words import Meaning, read_words, set_vectors

EVALUATION_BATCH = 100
"""Sequences at a time where nothing is trained; no metric depends on it."""
KEPT_CHARACTERS, KEPT_STEPS, KEPT_STEPS_BOTH_WAYS = 4_000, 300, 100
"""Sizes of the sequences that a run keeps for the explorer, which reads no longer ones."""


class LabelledTask:
    """Sequences with targets, their batches and a model of them: shared by the tasks classify, regress and tag."""

    model: ClassVar[Callable[..., Any]]
    """Made from settings, meaning and fingerprint."""

    def __init__(self, config: Any, labelled: Labelled) -> None:
        self.config = config
        self.labelled = data = labelled
        self.description = data.description
        self.layout = None if data.layout is None else data.layout.to_json()
        examples = {split: getattr(data, split) for split in PARTS}
        if data.kind == "numeric" and config.vectors is not None:
            raise SettingError("vectors are for words, and the data is numeric: leave vectors out")
        vocabulary, self.vectors = None, None
        if data.kind == "text":
            texts = {split: self.texts(split) for split in examples}
            vocabulary, self.vectors = read_words(config, config.data.data_dir, texts)
        self.meaning = self.read_meaning(vocabulary)
        self._encoded = {split: self.encode(some) for split, some in examples.items()}

    def texts(self, split: str) -> list[list[str]]:
        """Return the words of a part as far as they are read."""
        return [text[: self.config.max_length] for text in getattr(self.labelled, split).sequences]

    def read_meaning(self, vocabulary: Vocabulary | None) -> Meaning:
        """Return the meaning of the model's numbers."""
        return Meaning(self.labelled.labels, vocabulary, self.labelled.channels)

    def encode(self, examples: Examples) -> Encoded:
        return encode(examples.sequences, examples.targets, self.meaning, self.config)

    def take(self, examples: Examples, note: str) -> None:
        """Use these examples as the only part, "data"."""
        self.description = f"{note}; {len(examples):,} examples"
        self._encoded = {"data": self.encode(examples)}

    @property
    def fingerprint(self) -> str:
        """The sha256 of the data and its known words, wherever they were read from."""
        return hashlib.sha256(json.dumps([self.labelled.fingerprint, self.meaning.to_json()]).encode()).hexdigest()

    def build(self) -> Any:
        model = type(self).model(self.config, self.meaning, self.fingerprint)
        if isinstance(model.embedding, Standardise):
            model.embedding.measure(self._encoded["train"].steps)
        elif self.vectors and self.meaning.vocabulary:
            set_vectors(model.embedding, self.meaning.vocabulary, self.vectors)
        return model

    def batches(self, split: str, epoch: int = 0) -> Batches:
        """Return all batches; those of "train" in the order of the epoch."""
        encoded = self._encoded[split]
        if split != "train":
            return Batches(encoded.batch, encoded.lengths.argsort(stable=True).split(EVALUATION_BATCH))
        size, pool = self.config.training.batch_size, POOL if self.config.bucketing else 1
        return Batches(encoded.batch, shuffled(encoded.lengths, size, "classify", self.config.seed, epoch, pool=pool))

    def rows(self, batch: Batch) -> int:
        return len(batch.which)

    def share(self, batch: Batch, rows: slice) -> Batch:
        """Return some sequences."""
        return Batch(packed_rows(batch.inputs, rows), batch.targets[rows], batch.which[rows])

    def examples(self) -> list[str]:
        """Return validation sequences as the explorer reads them."""
        most = KEPT_STEPS_BOTH_WAYS if self.config.cell.bidirectional else KEPT_STEPS
        sequences = self.labelled.valid.sequences
        texts = dict.fromkeys(self.written(sequences[row][:most]) for row in islice(self.example_rows(), 4 * KEPT))
        return [text for text in texts if len(text) <= KEPT_CHARACTERS][:KEPT]

    def written(self, sequence: Any) -> str:
        """Return a sequence as the explorer reads it."""
        return written(sequence, self.config)

    def example_rows(self) -> Iterable[int]:
        """Return the rows of validation in the order in which they are examples."""
        return range(len(self.labelled.valid))

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """Return a description of the data, and a MuFuRU's operations over validation by class of the word it reads,
        `operation_weights`."""
        facts: dict[str, Any] = {"data": self.description}
        if self.config.cell.cell != "mufuru":
            return facts
        return facts | operation_weights(model, self.batches("valid"), self.words)

    @property
    def words(self) -> Vocabulary | None:
        """The vocabulary, where it is one of words."""
        return None if self.config.data.cut == "characters" else self.meaning.vocabulary


class ClassifyTask(LabelledTask):
    """Sequences, model and metrics of one run."""

    metric: str = "accuracy"
    higher_is_better = True
    model = Classifier

    def __init__(self, config: ClassifyConfig, labelled: Labelled | None = None) -> None:
        self.metric, self.higher_is_better = config.selection_metric, config.selection_metric != "loss"
        data = load(config.data) if labelled is None else labelled
        super().__init__(config, data)
        self.class_weights = None if config.class_weights == "none" else balanced(data.train.targets, len(data.labels))

    def example_rows(self) -> list[int]:
        """Return the first of each label, then the second."""
        valid = self.labelled.valid
        targets = valid.targets.argmax(1) if valid.targets.is_floating_point() else valid.targets
        seen: Counter[int] = Counter()
        turns = []
        for row, label in enumerate(targets.tolist()):
            turns.append((seen[label], row))
            seen[label] += 1
        return [row for _, row in sorted(turns)]

    def check_new(self) -> None:
        """Refuse numbers to predict as labels, and data that was probably meant for another task."""
        if self.labelled.doubts and not self.config.data.numeric_classes:
            raise DataError(self.labelled.doubts[0])

    def step(self, model: nn.Module, batch: Batch, state: State) -> Step:
        logits: Tensor = model(batch.inputs)
        weights = self.class_weights if model.training else None
        loss = cross_entropy(logits, batch.targets, weights, reduction="sum")
        predicted = logits.detach().argmax(1)
        if batch.targets.is_floating_point():  # as right as the share of the predicted label
            return Step(loss, len(batch.targets), sums={"right": batch.targets.gather(1, predicted.unsqueeze(1)).sum()})
        sums: dict[str, Tensor | float] = {"right": (predicted == batch.targets).sum()}
        if not model.training:
            sums |= _confusion(predicted, batch.targets, logits.size(1))
        return Step(loss, len(batch.targets), sums=sums)

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Return loss and accuracy, and in evaluation, unless there are shares, the mean of the classes' F1 scores."""
        metrics = {"loss": totals.mean("loss"), "accuracy": totals.mean("right")}
        return metrics | ({"macro_f1": _macro_f1(totals.sums)} if "predicted 0" in totals.sums else {})

    def complete(self, model: nn.Module) -> bool:
        """Calibrate the model on validation, if its settings say so."""
        if not self.config.calibrate:
            return False
        chosen = model.get_buffer("temperature")
        chosen.fill_(1.0)
        chosen.fill_(scores.temperature(*scores.logits_of(model, self.batches("valid"))))
        return True

    def details(self, model: nn.Module, split: str) -> dict[str, Any]:
        """Return the confusion matrix and the scores of each class; nothing for graded targets."""
        logits, targets = scores.logits_of(model, self.batches(split))
        return {} if targets.is_floating_point() else scores.details(logits, targets, self.meaning.labels)

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """Add "details" for a user's data, the temperature, and for words the "sentences" of `walk`."""
        facts = super().inspect(model)
        if self.config.data.data is not None:
            facts["details"] = {split: self.details(model, split) for split in ("valid", "test")}
        if self.config.calibrate:
            facts["temperature"] = float(model.get_buffer("temperature"))
        if self.config.cell.cell == "mufuru" and self.words is not None:
            valid = self.labelled.valid
            facts["sentences"] = walk(model, self.meaning, self.config, valid.sequences, valid.targets)
        return facts


class NewData(ClassifyTask):
    """Another file for a trained classifier: one part, "data"."""

    def __init__(self, model: Classifier, config: ClassifyConfig, file: Path, how: HowToRead) -> None:
        self.config, self.meaning, self.class_weights = config, model.meaning, None
        known = known_of(model, config, how)
        data = alike.labelled(file, known, how.format, (how.text_column, how.label_column, None))
        self.take(examples_of(list(data.examples), model.meaning.labels), data.note)


def load(data: DataConfig) -> Labelled:
    if data.data is None:
        treebank = sst.load(data.data_dir)
        return sst.examples(treebank, data.classes, data.phrases, distinct=data.distinct_phrases, graded=data.graded)
    columns: dict[str, Any] = {"text": data.text_column, "label": data.label_column, "split": data.split_column}
    return labelled_files.load(data.data, format=data.format, cut=data.cut, **columns, **data.parts)


def balanced(targets: Tensor, classes: int) -> Tensor:
    """Return (classes,) weights in inverse proportion to the frequency of each class, whose mean over the data is 1."""
    return len(targets) / (classes * torch.bincount(targets, minlength=classes).float())


def _confusion(predicted: Tensor, targets: Tensor, classes: int) -> dict[str, Tensor | float]:
    """Return by class the number of predictions, of targets, and of right predictions."""
    counts = {"predicted": predicted, "true": targets, "both": predicted[predicted == targets]}
    return {
        f"{name} {number}": float(count)
        for name, labels in counts.items()
        for number, count in enumerate(torch.bincount(labels, minlength=classes).tolist())
    }


def _macro_f1(sums: dict[str, float]) -> float:
    """Return the mean F1 of the classes; one that neither occurs nor is predicted has none."""
    classes = [name.removeprefix("both ") for name in sums if name.startswith("both ")]
    scores = [
        2 * sums[f"both {number}"] / either
        for number in classes
        if (either := sums[f"predicted {number}"] + sums[f"true {number}"])
    ]
    return sum(scores) / len(scores)
