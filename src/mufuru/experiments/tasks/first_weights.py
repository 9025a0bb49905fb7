"""First values of the weights of recurrent layers, by blocks: one matrix per gate, feature or operation."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import mufuru

RESET_GATE: dict[type[nn.Module], int] = {nn.GRU: 0}
"""Which block of a layer's rows is the reset gate."""
KEEP_GATE: dict[type[nn.Module], int] = {nn.GRU: 1, nn.LSTM: 1}
"""Which block keeps the state where it is open: the update gate of a GRU, the forget gate of an LSTM."""


@torch.no_grad()
def draw(layer: nn.Module, initialisation: str, scale: float) -> None:
    """Draw the weights anew; "default" leaves those that the layer drew itself."""
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
def set_gates(layer: nn.Module, reset_bias: float | None, keep_bias: float | None) -> None:
    """Start gates of a torch layer at exactly these biases; None leaves a gate as it was drawn."""
    for block, value in ((RESET_GATE.get(type(layer)), reset_bias), (KEEP_GATE.get(type(layer)), keep_bias)):
        if block is None or value is None:
            continue
        for name, parameter in layer.named_parameters():
            # the layer adds two biases: the first holds the value
            if name.startswith("bias_"):
                _blocks(layer, name, parameter)[block].fill_(value if name.startswith("bias_ih") else 0.0)


def _blocks(layer: nn.Module, name: str, parameter: Tensor) -> tuple[Tensor, ...]:
    """The blocks of a parameter's rows, less those of MuFuRU's biases that have a value of their own."""
    if not isinstance(layer, mufuru.MuFuRU):
        return _rows(parameter, int(getattr(layer, "hidden_size")))
    unit = layer.unit
    if name.startswith("bias_op"):
        return ()
    if name.startswith(("weight_kk", "weight_op")):
        return (parameter,) if name.startswith("weight_kk") else _rows(parameter, unit.hidden_size)
    feature, reset, controller = unit.split(parameter)
    if parameter.dim() == 1:
        return (feature,) if unit.controller_size is None else (feature, controller)
    chosen = _rows(controller, unit.hidden_size) if unit.controller_size is None else (controller,)
    return (feature, *chosen) if unit.reset is None else (feature, reset, *chosen)


def _rows(parameter: Tensor, count: int) -> tuple[Tensor, ...]:
    """Cut into blocks of so many rows."""
    return tuple(parameter[start : start + count] for start in range(0, len(parameter), count))
