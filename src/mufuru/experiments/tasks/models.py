"""Models of tasks: saved, restored from settings and weights without their data, and exported as graphs."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import mufuru
from mufuru.experiments.settings import SettingError, flat, from_json, to_json
from mufuru.experiments.tasks.cells import CellConfig, SequenceLayer
from mufuru.saving.card import code, page, table
from mufuru.saving.operations import custom_operations
from mufuru.saving.pretrained import Pretrained

if TYPE_CHECKING:
    # a task of no words reads none
    from mufuru.experiments.data.vocabulary import Vocabulary

Tensors = tuple[Tensor, ...]


class Metadata(nn.Module):
    """A JSON value, such as a vocabulary, and a fingerprint of the training data, as buffers of a model.

    A run folder is then enough to use the model, and weights never meet the vocabulary of another run: weights trained
    on other data are refused, unless the model has no fingerprint. Models call it `carried`, as their files do.
    """

    content: Tensor
    fingerprint: Tensor

    def __init__(self, value: Any, fingerprint: str = "") -> None:
        super().__init__()
        self.register_buffer("content", to_bytes(json.dumps(value)))
        # always as long as a sha256, since weights have to fit in shape
        self.register_buffer("fingerprint", to_bytes(fingerprint.ljust(64, "-")))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Load as usual, unless the weights belong to other data."""
        given, own = state_dict.get(f"{prefix}fingerprint"), self.fingerprint
        if given is not None and to_text(own).strip("-") and not torch.equal(given, own):
            errors: list[str] = rest[-1]
            errors.append("they were trained on other data, or the files of the data have changed since")
        else:
            super()._load_from_state_dict(dict(state_dict), prefix, *rest)


def read_metadata(weights: Mapping[str, Tensor]) -> Any:
    """Return the JSON value in the weights of a model."""
    return json.loads(to_text(weights["carried.content"]))


def to_bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def to_text(data: Tensor) -> str:
    return bytes(data.numpy().tobytes()).decode()


class Graph(NamedTuple):
    """A module whose arguments and results are tensors, for files that other programs run."""

    module: nn.Module
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    open_sizes: tuple[dict[int, Any], ...]
    """By input the dimensions of any size: batch and time."""


class StepState(NamedTuple):
    """A tensor that a model carries from step to step."""

    name: str
    sizes: tuple[int | None, ...]
    """None for the batch."""
    initial: float = 0.0
    """Its numbers before the first step."""


class StepGraph(NamedTuple):
    """One step of a model: the input of a step and the state in, the logits and the new state out."""

    module: nn.Module
    input: str
    states: tuple[StepState, ...]


class OneStep(nn.Module):
    """The `one_step` of a model as a module: input and states in, logits and new states out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = exportable(model)

    def forward(self, input: Tensor, *states: Tensor) -> Tensors:
        model: Any = self.model
        step: Tensors = model.one_step(input, *states)
        return step


class CFile(NamedTuple):
    """Facts of a model for its file of C: a layer between the inputs and a linear `output`."""

    labels: tuple[str, ...]
    """Names of the answers."""
    vocabulary: "Vocabulary | None"
    """The characters; None for a model of numbers."""
    level: str
    """Tokens of a text, as the settings name them."""
    first_token: int | None = None
    """The token before a text, where the model reads one."""
    units: tuple[float, float] | None = None
    """Deviation and mean of answers that are numbers; None for answers that are probabilities."""


class TaskModel(Pretrained):
    """A model of a task. With `example` and `answers` it can be exported as files, with `graph` as a graph too, with
    `raw` as a folder that takes raw data, with `step_states`, `one_step` and `by_steps` as a graph of a single step,
    with `c_file` as C."""

    settings: ClassVar[type[Any]]
    """The dataclass of `config`."""
    metadata: ClassVar[type[Any] | None] = None
    """The class of the constructor's second argument, which `carried` holds as JSON; None if there is none."""
    result: ClassVar[str] = "logits"
    """Name of the answers in a graph, and of those in the graph of a step."""
    step_input: ClassVar[str] = "inputs"
    """Name of the input in the graph of a step."""
    config: Any

    @classmethod
    def restored(cls, config: Any, weights: Mapping[str, Tensor]) -> Self:
        """Return a model that fits the weights, which are still to be loaded; made without its data."""
        make: Any = cls
        model: Self = make(config, *(() if cls.metadata is None else (cls.metadata.from_json(read_metadata(weights)),)))
        return model

    def example(self, batch: int, steps: int, seed: int) -> Tensors:
        """Return random arguments of `answers`, and of the graph."""
        raise NotImplementedError

    def answers(self, *arguments: Tensor) -> Tensors:
        """Return the model's own outputs for these arguments, computed as in evaluation."""
        raise NotImplementedError

    def graph(self) -> Graph:
        """Return the model as a graph with open batch and time."""
        raise SettingError(f"a {type(self).__name__} cannot be written as a graph: export it with --to safetensors")

    def raw(self) -> dict[str, Any]:
        """Return how raw data becomes the graph's inputs, and an answer its outputs, ready for JSON; "kind" names the
        program that does it. Empty if no program does."""
        return {}

    def step_graph(self) -> StepGraph | None:
        """Return a single step of the model; None for a model that has no answer before the end."""
        states = self.step_states()
        return None if states is None else StepGraph(OneStep(self), self.step_input, states)

    def step_states(self) -> tuple[StepState, ...] | None:
        """Return the tensors that are carried from step to step; None for a model without single steps."""
        return None

    def one_step(self, input: Tensor, *states: Tensor) -> Tensors:
        """Map the input of a step and the states to the answers so far and new states."""
        raise NotImplementedError

    def by_steps(self, inputs: Tensor) -> list[Tensor]:
        """Return the answers after every step of sequences of the same length, computed by the whole model."""
        raise NotImplementedError

    def c_file(self) -> CFile | None:
        """Return the facts for a file of C; None for a model that `ship/step.c` does not compute."""
        return None

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = without_paths(to_json(self.config))
        return options

    @classmethod
    def _from_options(cls, options: Any, tensors: Any, dtype: torch.dtype, changes: dict[str, Any]) -> Self:
        if changes:
            raise TypeError(f"a model of a task has the settings it was trained with, got {', '.join(changes)}")
        config = from_json(cls.settings, options)
        with torch.random.fork_rng(devices=[]):
            try:
                return cls.restored(config, tensors).to(dtype)
            except KeyError as error:
                raise ValueError(f"the weights lack {error}, which says what the model's numbers mean") from None

    def _card(self) -> str:
        return page(head(), f"# {self._model_name()}", use(self), settings_table(self._options()))


class SequenceModel(TaskModel):
    """A model with one answer per sequence: `forward` takes a PackedSequence, as in training, or a padded batch,
    (steps, batch) or (steps, batch, channels), and `lengths`."""

    reader: SequenceLayer
    argument: ClassVar[str] = "inputs"
    """Name of the sequences in a graph."""

    def draw(self, steps: int, batch: int, generator: torch.Generator) -> Tensor:
        """Return random padded sequences."""
        raise NotImplementedError

    def example(self, batch: int, steps: int, seed: int) -> Tensors:
        """Return sequences of different lengths, and the lengths."""
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, steps + 1, (batch,), generator=generator)
        lengths[0] = steps
        return self.draw(steps, batch, generator), lengths

    @torch.no_grad()
    def answers(self, *arguments: Tensor) -> Tensors:
        """Return the logits of packed sequences: computed in another way than the graph's."""
        inputs, lengths = arguments
        packed = pack_padded_sequence(inputs, lengths, enforce_sorted=False)
        logits: Tensor = self(PackedSequence(packed.data, packed.batch_sizes))
        order = packed.unsorted_indices
        return (logits if order is None else logits[order],)

    def graph(self) -> Graph:
        open_sizes: tuple[dict[int, Any], ...] = ({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO})
        return Graph(exportable(self), (self.argument, "lengths"), (self.result,), open_sizes)

    def by_steps(self, inputs: Tensor) -> list[Tensor]:
        """Return the answers to all prefixes."""
        lengths = torch.ones(inputs.size(1), dtype=torch.int64)
        return [self.answers(inputs[:steps], steps * lengths)[0] for steps in range(1, len(inputs) + 1)]


def layer_states(config: CellConfig) -> tuple[StepState, ...]:
    """Return the state of the recurrent layer of an exportable model."""
    sizes = {"h": config.hidden_size, "k": config.controller_size}
    return tuple(StepState(name, (config.num_layers, None, size)) for name, size in sizes.items() if size is not None)


def exportable(model: Any) -> nn.Module:
    """Return a copy whose `reader` is a MuFuRU, which can be exported with open length, without its metadata."""
    made = copy.deepcopy(model).eval()
    if hasattr(made, "carried"):
        del made.carried
    if isinstance(made.reader.rnn, nn.GRU):
        # a GRU is a MuFuRU by its weights
        made.reader.rnn = mufuru.MuFuRU.from_gru(made.reader.rnn)
    if not isinstance(made.reader.rnn, mufuru.MuFuRU):
        raise SettingError(
            f"a run of the cell {made.reader.config.cell} cannot be written with open batch and time, only those of "
            "mufuru and gru: export it with --to safetensors"
        )
    module: nn.Module = made
    return module


def without_paths(value: Any) -> Any:
    """Return settings for others to read: a path outside of the folder is reduced to its last name."""
    if isinstance(value, dict):
        return {key: without_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(item) for item in value]
    if not isinstance(value, str):
        return value
    return Path(value).name if Path(value).is_absolute() or ".." in Path(value).parts else value


def head(**more: Any) -> dict[str, Any]:
    """Return the part of a card for machines."""
    return {"library_name": "mufuru", "tags": ["mufuru", "pytorch", "recurrent"], **more}


def use(model: TaskModel) -> str:
    """Return the part of a card that shows how to load the model."""
    module, name = type(model).__module__, type(model).__name__
    return f"## Use\n\n{code(name, f'from {module} import {name}', list(custom_operations(model)))}"


def settings_table(options: Mapping[str, Any]) -> str:
    rows = [(f"`{name}`", f"`{json.dumps(value, ensure_ascii=False)}`") for name, value in flat(options).items()]
    return f"## Settings\n\n{table(('setting', 'value'), rows)}"
