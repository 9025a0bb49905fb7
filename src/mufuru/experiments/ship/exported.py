"""Load what `mufuru export` wrote, for the commands that use a model.

A folder is data: no pickle is read, and no program of it is run.
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from mufuru.experiments.data.bpe import AnyVocabulary
from mufuru.experiments.engine import RunError
from mufuru.experiments.settings import SettingError, from_json
from mufuru.experiments.ship.onnx import BATCH_FIRST, FACTS, FORMAT, MODEL, Session, onnxruntime, written
from mufuru.experiments.tasks import KINDS
from mufuru.experiments.tasks.forecast.model import Columns
from mufuru.experiments.tasks.lm.model import log_probabilities
from mufuru.experiments.tasks.regress.task import Scale
from mufuru.experiments.tasks.words import Meaning
from mufuru.saving.files import WEIGHTS, PretrainedError, read_config


class Loaded(NamedTuple):
    """A model with its task and settings."""

    task: str
    model: Any
    config: Any


def load(folder: Path) -> Loaded | None:
    """Load an export; None for any other folder."""
    if (folder / FACTS).is_file():
        return load_onnx(folder)
    return load_saved(folder) if (folder / WEIGHTS).is_file() else None


def load_saved(folder: Path) -> Loaded:
    """Load a folder that was written as safetensors or int8."""
    # a model that has only a part of its run's settings is of no use to a command
    classes = {task: kind.model for task, kind in KINDS.items() if kind.model and kind.model.settings is kind.config}
    known = {model.__name__: task for task, model in classes.items()}
    try:
        name = read_config(folder).get("model")
        if name not in known:
            raise RunError(f"{folder} holds a {name}, expected one of {', '.join(known)}: load it with from_pretrained")
        model = classes[known[name]].from_pretrained(folder)
    except PretrainedError as error:
        raise RunError(str(error)) from None
    return Loaded(known[name], model, model.config)


def load_onnx(folder: Path) -> Loaded:
    """Load a folder that was written as ONNX, for onnxruntime."""
    path = folder / FACTS
    try:
        facts = json.loads(path.read_bytes())
        if facts["format"] != FORMAT:
            raise RunError(f"{path} has the format {facts['format']!r}, this mufuru reads {FORMAT}: use a newer one")
        session = Session(onnxruntime(), folder / MODEL)
        if {key: written(value) for key, value in facts.items()} != session.metadata:
            raise RunError(f"{path} does not say what {MODEL} beside it says: one of them was changed. Export again")
        make = MODELS.get(facts.get("kind"))
        if make is None:
            raise RunError(f"{folder} holds a model of the task {facts['task']}, which no command takes as ONNX: give "
                           "its run, or a folder of --to safetensors")  # fmt: skip
        config = from_json(KINDS[facts["task"]].config, facts["settings"])
        return Loaded(facts["task"], make(session, facts), config)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, SettingError) as error:
        raise RunError(f"{path} or {MODEL} beside it is missing or damaged ({error}): export the run again") from None


class OnnxModel:
    """A graph in place of a model of torch."""

    def __init__(self, session: Session, facts: dict[str, Any]) -> None:
        self.session = session
        self.batch_first = facts["layout"] == BATCH_FIRST
        self.sizes = {name: about["axes"] for name, about in facts["inputs"].items()}

    def eval(self) -> Self:
        return self

    def turned(self, tensor: Tensor) -> Tensor:
        """Return a tensor in the other layout, if the graph has the other."""
        return tensor.transpose(0, 1) if self.batch_first else tensor


class OnnxClassifier(OnnxModel):
    """A graph with the interface of `classify.model.Classifier` that predictions need."""

    meaning_of: ClassVar[type[Meaning]] = Meaning

    def __init__(self, session: Session, facts: dict[str, Any]) -> None:
        super().__init__(session, facts)
        self.meaning = self.meaning_of.from_json({field.name: facts[field.name] for field in fields(self.meaning_of)})

    def __call__(self, inputs: PackedSequence) -> Tensor:
        padded, lengths = pad_packed_sequence(inputs)
        return self.session.answers((self.turned(padded), lengths))[0]


class OnnxRegressor(OnnxClassifier):
    """The same for `regress.task.Regressor`."""

    meaning_of = Scale

    def estimates(self, inputs: PackedSequence) -> Tensor:
        return self(inputs).double()


class OnnxTagger(OnnxClassifier):
    """The same for `tag.model.Tagger`."""

    def __call__(self, inputs: PackedSequence) -> Any:
        padded, lengths = pad_packed_sequence(inputs)
        logits = self.turned(self.session.answers((self.turned(padded), lengths))[0])
        return pack_padded_sequence(logits, lengths)


class OnnxForecaster(OnnxModel):
    """The same for `forecast.model.Forecaster`."""

    def __init__(self, session: Session, facts: dict[str, Any]) -> None:
        super().__init__(session, facts)
        self.columns = Columns.from_json(facts["columns"])

    def __call__(self, windows: Tensor) -> Tensor:
        return self.session.answers((self.turned(windows),))[0]


class OnnxLanguageModel(OnnxModel):
    """A graph with the interface of `lm.model.LanguageModel` that scores and generated text need; its hidden vectors
    are the logits."""

    def __init__(self, session: Session, facts: dict[str, Any]) -> None:
        super().__init__(session, facts)
        self.vocabulary = AnyVocabulary.from_json(facts["vocabulary"])

    def __call__(self, tokens: Tensor, state: Any = None) -> tuple[Tensor, list[Tensor]]:
        if state is None:
            shapes = [[tokens.size(1) if size == "batch" else size for size in self.sizes[name]]
                      for name in self.session.inputs[1:]]  # fmt: skip
            state = [torch.zeros(shape) for shape in shapes]
        logits, *state = self.session.answers((self.turned(tokens), *state))
        return self.turned(logits), state

    def output(self, logits: Tensor) -> Tensor:
        return logits

    def log_probabilities(self, tokens: Tensor, targets: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, state = self(tokens, state)
        return log_probabilities(self.output, logits.flatten(0, 1), targets.flatten()).view(targets.shape), state


MODELS: dict[str | None, type[Any]] = {
    "classifier": OnnxClassifier,
    "regressor": OnnxRegressor,
    "tagger": OnnxTagger,
    "forecaster": OnnxForecaster,
    "language model": OnnxLanguageModel,
}
