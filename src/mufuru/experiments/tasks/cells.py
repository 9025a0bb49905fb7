"""The recurrent layers that tasks compare, behind one interface: mufuru, gru, lstm and vanilla.

One setting means the same for every cell that has it. An option that a cell lacks is refused rather than ignored;
`CellConfig.for_cell` carries a setting over to another cell without those.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import mufuru
from mufuru import ops as operations
from mufuru.experiments.settings import SettingError, check_positive, choose
from mufuru.experiments.tasks import first_weights
from mufuru.unit import Activation, ControllerActivation, Reset

CellName = Literal["mufuru", "gru", "lstm", "vanilla"]
State: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""(layers * directions, batch, hidden); a pair with the memory for lstm, with the controller for mufuru with one."""

OPTIONS: dict[str, frozenset[str]] = {
    "mufuru": frozenset(
        {"ops", "reset", "activation", "controller_size", "controller_activation", "reset_bias", "keep_bias"}
    ),
    "gru": frozenset({"reset_bias", "keep_bias"}),
    "lstm": frozenset({"keep_bias"}),
    "vanilla": frozenset(),
}
"""The options that not every cell has, by cell."""


@dataclass(frozen=True)
class CellConfig:
    """The recurrent layer."""

    cell: CellName = "mufuru"
    """mufuru, gru (torch.nn.GRU), lstm (torch.nn.LSTM) or vanilla (torch.nn.RNN with tanh)."""
    hidden_size: int = 8
    """Units of each layer and direction."""
    num_layers: int = 1
    """Layers on top of each other."""
    bidirectional: bool = False
    """Read every sequence from both ends; not for language models, which cannot read ahead."""
    ops: tuple[str, ...] = mufuru.PAPER
    """Operations to choose from (mufuru only)."""
    reset: Reset = "before"
    """Where the reset gate acts, before or after the recurrent product, or None for no gate (mufuru only)."""
    activation: Activation | None = None
    """Activation of the features (mufuru only): tanh or sigmoid; None for the layer's own, tanh."""
    controller_size: int | None = None
    """Size of a recurrent controller; None lets input and state choose the operations (mufuru only)."""
    controller_activation: ControllerActivation | None = None
    """Of the recurrent controller (mufuru only): tanh or relu; None for the layer's own, tanh."""
    reset_bias: float | None = None
    """First bias of the reset gate (mufuru, gru); None for the layer's own: 1 in mufuru, drawn as its other biases in
    gru."""
    keep_bias: float | None = None
    """First bias of what keeps the state: keep's logit in mufuru, the update gate in gru, the forget gate in lstm; None
    for the layer's own: 2 in mufuru, drawn as its other biases in gru and lstm."""
    initialisation: Literal["default", "uniform", "orthogonal"] = "default"
    """First weights: default, each layer's own, uniform up to 1 / sqrt(hidden_size) in all of them; uniform up to
    initial_scale; or orthogonal recurrent weights, Xavier's input weights and no biases. mufuru's biases of reset gate
    and operations have values of their own and are never drawn."""
    initial_scale: float = 0.1
    """Largest first weight of the uniform initialisation."""

    def __post_init__(self) -> None:
        check_positive(self, "hidden_size", "num_layers", "controller_size", "initial_scale")
        own = choose("cell", self.cell, OPTIONS)
        for name in sorted(OPTIONS["mufuru"] - own):
            if getattr(self, name) != _DEFAULTS[name]:
                owners = " and ".join(cell for cell, options in OPTIONS.items() if name in options)
                raise SettingError(f"{name} is an option of {owners}, not of {self.cell}: leave it out")
        if self.cell == "mufuru":
            self._check_mufuru()

    def _check_mufuru(self) -> None:
        try:
            operations.resolve(self.ops)
        except (TypeError, ValueError) as error:
            raise SettingError(f"ops: {error}") from None
        if self.reset is None and self.reset_bias is not None:
            raise SettingError("reset_bias needs a reset gate, and reset is None: leave one of them out")
        if self.controller_size is None and self.controller_activation is not None:
            raise SettingError("controller_activation needs a recurrent controller: give a controller_size too")
        if "keep" not in self.ops and self.keep_bias is not None:
            raise SettingError(f"keep_bias needs the operation keep, and ops is {', '.join(self.ops)}: leave it out")

    def for_cell(self, cell: CellName) -> CellConfig:
        """The same setting for another cell, without the options that it lacks."""
        missing = OPTIONS["mufuru"] - OPTIONS[cell]
        return dataclasses.replace(self, cell=cell, **{name: _DEFAULTS[name] for name in missing})


_DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(CellConfig)}


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
        first_weights.draw(self.rnn, config.initialisation, config.initial_scale)
        if not isinstance(self.rnn, mufuru.MuFuRU):
            first_weights.set_gates(self.rnn, config.reset_bias, config.keep_bias)

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
        elif isinstance(input, PackedSequence):
            raise ValueError("lengths are for a padded batch: a PackedSequence carries its own")
        elif isinstance(self.rnn, mufuru.MuFuRU):
            output, state = self.rnn(input, state, lengths)
        else:
            packed = pack_padded_sequence(input, lengths.cpu(), enforce_sorted=False)
            packed, state = self.rnn(packed, state)
            output, _ = pad_packed_sequence(packed, total_length=input.size(0))
        return output, state

    def last(self, state: State) -> Tensor:
        """(batch, output_size): what the top layer ends with, both directions side by side."""
        hidden = state if isinstance(state, Tensor) else state[0]
        return hidden[-1] if self.directions == 1 else torch.cat((hidden[-2], hidden[-1]), -1)


def detach(state: State) -> State:
    """A state to carry to the next batch without its past."""
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
