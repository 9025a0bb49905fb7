"""Pruning: a layer without operations that it hardly uses has fewer rows of weights and less to compute."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from mufuru.ops import did_you_mean
from mufuru.recurrent import Recurrent
from mufuru.unit import Unit

Layer = TypeVar("Layer", bound=Recurrent)


def without_operations(layer: Layer, names: Sequence[str] | str) -> Layer:
    """A new layer that lacks these operations: the rows of their logits are left out, all else stays as it is.

    It computes what `layer` computes inside `intervene(layer, forbid=names)`: the remaining weights are divided by
    their sum. Where the dropped weights were 0 that changes nothing; where they added up to q, each remaining weight p
    becomes p / (1 - q).
    """
    names = (names,) if isinstance(names, str) else names
    for name in names:
        if name not in layer.ops:
            raise ValueError(f"this layer has no operation {name!r}: {did_you_mean(name, layer.ops)}")
    kept = [place for place, name in enumerate(layer.ops) if name not in names]
    if not kept:
        raise ValueError(f"nothing is left of the operations {', '.join(layer.ops)}: keep at least one")
    changes = {"ops": tuple(layer.unit.ops[place] for place in kept), "kernel": layer.kernel}
    options = {**layer._options(), "op_bias": _kept_biases(layer, kept)}
    weights = kept_weights(layer, kept)
    smaller = layer._from_options(options, weights, layer._first_weight.dtype, changes)
    smaller.load_state_dict(weights, assign=True)
    for name, parameter in smaller.named_parameters():
        parameter.requires_grad_(layer.get_parameter(name).requires_grad)
    return smaller.train(layer.training)


def kept_weights(layer: Recurrent, kept: Sequence[int]) -> dict[str, Tensor]:
    """The layer's parameters with the rows of some operations only, by their places."""
    layer._check_savable()
    parameters: dict[str, Tensor] = {name: tensor.detach().clone() for name, tensor in layer.state_dict().items()}
    for unit, suffix, _ in layer._units:
        for stem in unit.shapes():
            name = stem + suffix
            parameters[name] = _kept_rows(unit, stem, parameters[name], kept)
    return parameters


def _kept_rows(unit: Unit, stem: str, tensor: Tensor, kept: Sequence[int]) -> Tensor:
    if unit.controller_size is not None:
        return _blocks(unit, tensor, kept) if stem in ("weight_op", "bias_op") else tensor
    feature, reset, logits = unit.split(tensor)
    return torch.cat((feature, reset, _blocks(unit, logits, kept)))


def _blocks(unit: Unit, logits: Tensor, kept: Sequence[int]) -> Tensor:
    """Return the rows of some operations from (operations * hidden, ...)."""
    blocks = logits.split(unit.hidden_size)
    return torch.cat([blocks[place] for place in kept])


def _kept_biases(layer: Recurrent, kept: Sequence[int]) -> Any:
    """Initial biases of the remaining operations, for `reset_parameters`."""
    given = layer.op_bias
    if given is None:
        return None
    if isinstance(given, Mapping):
        names = {layer.ops[place] for place in kept}
        return {name: value for name, value in given.items() if name in names}
    return [given[place] for place in kept]
