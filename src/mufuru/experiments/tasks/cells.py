"""The recurrent layers that tasks compare, behind one interface: mufuru, gru, lstm and vanilla.

One setting means the same for every cell that has it. An option that a cell lacks is refused rather than ignored;
`CellConfig.for_cell` leaves those out for another cell.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import mufuru
from mufuru import ops as operations
from mufuru.experiments.settings import SettingError, check_default, check_positive, choose
from mufuru.unit import Activation, ControllerActivation, Reset

CellName = Literal["mufuru", "gru", "lstm", "vanilla"]
State: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""(layers * directions, batch, hidden); a pair with the memory for lstm, with the controller for mufuru with one."""

GATES: dict[type[nn.Module], dict[str, int]] = {nn.GRU: {"reset_bias": 0, "keep_bias": 1}, nn.LSTM: {"keep_bias": 1}}
"""By torch layer and setting, the index of a gate among the blocks of rows: the update gate of a GRU and the forget
gate of an LSTM keep the state."""


DIGITS = 6
"""Decimals of a weight in a record: further ones differ between kernels."""


class CellOptions:
    """Settings of a cell, of which `mufuru` has every option."""

    options: ClassVar[Mapping[str, tuple[str, ...]]]
    """By cell, the options that not every cell has."""

    def check_options(self) -> None:
        """Refuse options that the cell lacks, unknown operations, and a bias of keep without keep."""
        settings: Any = self
        own = choose("cell", settings.cell, self.options)
        for name in sorted(set(self.options["mufuru"]) - set(own)):
            owners = " and ".join(cell for cell, names in self.options.items() if name in names)
            check_default(self, (name,), f"is an option of {owners}, not of {settings.cell}: leave it out")
        try:
            operations.resolve(settings.ops)
        except (TypeError, ValueError) as error:
            raise SettingError(f"ops: {error}") from None
        if "keep" not in settings.ops and settings.keep_bias is not None:
            names = ", ".join(settings.ops)
            raise SettingError(f"keep_bias needs the operation keep, and ops is {names}: leave it out")

    def for_cell(self, cell: str) -> Self:
        """Return the same settings for another cell, without the options that it lacks."""
        settings: Any = self
        defaults = {name: getattr(type(self), name) for name in set(self.options["mufuru"]) - set(self.options[cell])}
        changed: Self = dataclasses.replace(settings, cell=cell, **defaults)
        return changed


@dataclass(frozen=True)
class CellConfig(CellOptions):
    """The recurrent layer."""

    options: ClassVar = {
        "mufuru": ("ops", "reset", "activation", "controller_size", "controller_activation", "reset_bias", "keep_bias"),
        "gru": ("reset_bias", "keep_bias"),
        "lstm": ("keep_bias",),
        "vanilla": (),
    }
    cell: CellName = "mufuru"
    """mufuru, gru (torch.nn.GRU), lstm (torch.nn.LSTM) or vanilla (torch.nn.RNN with tanh)."""
    hidden_size: int = 8
    """Units of each layer and direction."""
    num_layers: int = 1
    """Number of stacked layers."""
    bidirectional: bool = False
    """Read every sequence in both directions; not for language models, which cannot read ahead."""
    ops: tuple[str, ...] = mufuru.PAPER
    """Operations to choose from (mufuru only)."""
    reset: Reset = "before"
    """Position of the reset gate, before or after the recurrent product, or None for no gate (mufuru only)."""
    activation: Activation | None = None
    """Activation of the features (mufuru only): tanh or sigmoid; None for the default, tanh."""
    controller_size: int | None = None
    """Size of a recurrent controller; None lets input and state choose the operations (mufuru only)."""
    controller_activation: ControllerActivation | None = None
    """Activation of the recurrent controller (mufuru only): tanh or relu; None for the default, tanh."""
    reset_bias: float | None = None
    """Initial bias of the reset gate (mufuru, gru); None for the default: 1 in mufuru, random as its other biases in
    gru."""
    keep_bias: float | None = None
    """Initial bias of what keeps the state: keep's logit in mufuru, the update gate in gru, the forget gate in lstm;
    None for the default: 2 in mufuru, random as its other biases in gru and lstm."""
    initialisation: Literal["default", "uniform", "orthogonal"] = "default"
    """Initial weights: default, the layer's own, uniform up to 1 / sqrt(hidden_size) in every cell; uniform up to
    initial_scale; or orthogonal recurrent weights, Xavier's input weights and no biases. mufuru's biases of reset gate
    and operations have fixed initial values."""
    initial_scale: float = 0.1
    """Largest initial weight of the uniform initialisation."""

    def __post_init__(self) -> None:
        check_positive(self, "hidden_size", "num_layers", "controller_size", "initial_scale")
        self.check_options()
        if self.reset is None and self.reset_bias is not None:
            raise SettingError("reset_bias needs a reset gate, and reset is None: leave one of them out")
        if self.controller_size is None and self.controller_activation is not None:
            raise SettingError("controller_activation needs a recurrent controller: give a controller_size too")


class SequenceLayer(nn.Module):
    """A recurrent layer of any cell: `output, state = layer(input, state, lengths)`.

    `input` is a PackedSequence, or padded and time first, (steps, batch, input_size), with `lengths` where sequences
    are of different length. `output` is (steps, batch, output_size), zero past a sequence's end, or packed as the
    input; `state` is that of each sequence's own end.
    """

    def __init__(self, config: CellConfig, input_size: int) -> None:
        super().__init__()
        self.config = config
        self.rnn: nn.Module = _make(config, input_size)
        draw_weights(self.rnn, config.initialisation, config.initial_scale)
        set_gates(self.rnn, config)

    @property
    def directions(self) -> int:
        return 2 if self.config.bidirectional else 1

    @property
    def output_size(self) -> int:
        """Features of an output, and of `last`."""
        return self.directions * self.config.hidden_size

    def forward(
        self, input: Tensor | PackedSequence, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Any, State]:
        output: Tensor | PackedSequence
        if lengths is None:
            output, state = self.rnn(input, state)
        elif isinstance(self.rnn, mufuru.MuFuRU):
            output, state = self.rnn(input, state, lengths)
        else:
            padded: Any = input
            packed, state = self.rnn(pack_padded_sequence(padded, lengths.cpu(), enforce_sorted=False), state)
            output, _ = pad_packed_sequence(packed, total_length=len(padded))
        return output, state

    def last(self, state: State) -> Tensor:
        """Return (batch, output_size): the final state of the top layer, both directions side by side."""
        hidden = state if isinstance(state, Tensor) else state[0]
        return hidden[-1] if self.directions == 1 else torch.cat((hidden[-2], hidden[-1]), -1)


def per_step(function: Callable[[Tensor], Tensor], input: Tensor | PackedSequence) -> Tensor | PackedSequence:
    """Apply a function of single steps to a padded batch, or to the rows of a packed one."""
    return input._replace(data=function(input.data)) if isinstance(input, PackedSequence) else function(input)


@torch.no_grad()
def traced(model: nn.Module, *inputs: Any) -> tuple[Any, Any]:
    """Run a model with one MuFuRU; return the layer's trace and the model's outputs."""
    with mufuru.tracing(model) as traces:
        outputs = model(*inputs)
    ((trace,),) = traces.values()
    return trace, outputs


def weight_table(
    names: Iterable[str], counts: Iterable[Any], ops: Iterable[str], rows: Iterable[Tensor], entropy: float
) -> dict[str, Any]:
    """Return mean operation weights by class of tokens, ready for JSON: a row of `weight` for each of `tokens`;
    `entropy` is that of the choice, in nats."""
    return {
        "tokens": list(names),
        "counts": [int(count) for count in counts],
        "ops": list(ops),
        "weight": [[round(value, DIGITS) for value in row.tolist()] for row in rows],
        "entropy": round(entropy, DIGITS),
    }


def detach(state: State) -> State:
    """Return a state for the next batch, without gradients to this one."""
    return state.detach() if isinstance(state, Tensor) else (state[0].detach(), state[1].detach())


def _make(config: CellConfig, input_size: int) -> nn.Module:
    shape: dict[str, Any] = {"num_layers": config.num_layers, "bidirectional": config.bidirectional}
    if config.cell != "mufuru":
        kinds: dict[str, Any] = {"gru": nn.GRU, "lstm": nn.LSTM, "vanilla": nn.RNN}
        layer: nn.Module = kinds[config.cell](input_size, config.hidden_size, **shape)
        return layer
    names = ("activation", "controller_activation", "reset_bias")
    own: dict[str, Any] = {name: value for name in names if (value := getattr(config, name)) is not None}
    own |= {} if config.keep_bias is None else {"op_bias": {"keep": config.keep_bias}}
    return mufuru.MuFuRU(
        input_size, config.hidden_size, **shape, **own,
        ops=config.ops, reset=config.reset, controller_size=config.controller_size,
    )  # fmt: skip


@torch.no_grad()
def draw_weights(layer: nn.Module, initialisation: str, scale: float) -> None:
    """Draw the weights again; "default" leaves those that the layer drew itself."""
    if initialisation == "default":
        return
    for name, parameter in layer.named_parameters():
        for block in _blocks(layer, name, parameter):
            if initialisation == "uniform":
                block.uniform_(-scale, scale)
            elif block.dim() == 1:
                block.zero_()
            elif name.startswith(("weight_hh", "weight_kk")):
                nn.init.orthogonal_(block)
            else:
                nn.init.xavier_uniform_(block)


@torch.no_grad()
def set_gates(layer: nn.Module, config: CellConfig) -> None:
    """Set initial biases of the gates of a torch layer; None leaves a gate as it was drawn."""
    for setting, block in GATES.get(type(layer), {}).items():
        value = getattr(config, setting)
        for name, parameter in layer.named_parameters():
            # the layer adds two biases: the first holds the value
            if value is not None and name.startswith("bias_"):
                _blocks(layer, name, parameter)[block].fill_(value if name.startswith("bias_ih") else 0.0)


def _blocks(layer: nn.Module, name: str, parameter: Tensor) -> tuple[Tensor, ...]:
    """Return the blocks of a parameter's rows, one per gate, feature or operation, without MuFuRU's fixed biases."""
    if not isinstance(layer, mufuru.MuFuRU):
        return torch.split(parameter, int(getattr(layer, "hidden_size")))
    unit = layer.unit
    if name.startswith("bias_op"):
        return ()
    if name.startswith(("weight_kk", "weight_op")):
        return (parameter,) if name.startswith("weight_kk") else torch.split(parameter, unit.hidden_size)
    feature, reset, controller = unit.split(parameter)
    if parameter.dim() == 1:
        return (feature,) if unit.controller_size is None else (feature, controller)
    chosen = torch.split(controller, unit.hidden_size) if unit.controller_size is None else (controller,)
    return (feature, *chosen) if unit.reset is None else (feature, reset, *chosen)
