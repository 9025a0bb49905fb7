"""The bridge to `torch.nn.GRU`: the same function with the weights carried over.

A GRU is `ops=("keep", "replace")` with the reset gate after the product. Its update gate is the softmax of two, so keep
takes the gate's weights and replace takes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mufuru import ops as operations

if TYPE_CHECKING:
    from mufuru.layer import MuFuRU

SHARED = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")


def from_gru(cls: type[MuFuRU], gru: nn.GRU, added_bias: float, options: dict[str, Any]) -> MuFuRU:
    if not isinstance(gru, nn.GRU):
        raise TypeError(f"from_gru expects a torch.nn.GRU, got {type(gru).__name__}")
    fixed = {"reset": "after", "activation": "tanh", "controller_size": None}
    for name, value in fixed.items():
        if options.get(name, value) != value:
            raise ValueError(f"from_gru sets {name}={value!r}, which is what nn.GRU computes; got {options[name]!r}")
    options = {"ops": ("keep", "replace")} | options | fixed
    like: Tensor = getattr(gru, "weight_ih_l0")
    shared = {name: getattr(gru, name) for name in SHARED}
    layer = cls(**shared, device=like.device, dtype=like.dtype, **options)
    for name in ("keep", "replace"):
        if name not in layer.ops:
            raise ValueError(f"from_gru needs the operations keep and replace, got {layer.ops}")
        if operations.get(name) not in layer.unit.ops:
            raise ValueError(
                f"from_gru needs the built-in {name}, got an operation of your own of that name: rename it"
            )
    if not gru.bias and len(layer.ops) > 2:
        raise ValueError("from_gru can add operations only to a GRU with biases: their first weight is set by a bias")
    with torch.no_grad():
        for name in (name for _, _, names in layer._units for name in names if name is not None):
            own: Tensor = getattr(layer, name)
            # by its name: a parametrization, weight norm or pruning computes it from other parameters
            reset, update, feature = getattr(gru, name).chunk(3)
            blocks = {"keep": update}
            if name.startswith("bias_ih"):
                blocks |= {op: torch.full_like(update, added_bias) for op in layer.ops if op not in ("keep", "replace")}
            own.copy_(torch.cat([feature, reset, *(blocks.get(op, torch.zeros_like(update)) for op in layer.ops)]))
    return layer.train(gru.training)


def to_gru(layer: MuFuRU) -> nn.GRU:
    wrong = [
        f"{name}={getattr(layer, name)!r} (needs {need!r})"
        for name, need in {"reset": "after", "activation": "tanh", "controller_size": None}.items()
        if getattr(layer, name) != need
    ]
    if sorted(layer.ops) != ["keep", "replace"]:
        wrong.insert(0, f"ops={layer.ops} (needs keep and replace)")
    if layer.unit.python_ops:
        wrong.append("operations written in Python")
    if layer.zoneout:
        wrong.append(f"zoneout={layer.zoneout} (nn.GRU has none, and it acts in evaluation too)")
    if layer.learn_initial_state:
        wrong.append("learn_initial_state=True (nn.GRU starts from zeros: pass the learned state as its hx)")
    if wrong:
        raise ValueError(f"nn.GRU cannot compute what this layer computes: {', '.join(wrong)}")
    like = layer.all_weights[0][0]
    gru = nn.GRU(**{name: getattr(layer, name) for name in SHARED}, device=like.device, dtype=like.dtype)
    with torch.no_grad():
        for name, parameter in gru.named_parameters():
            feature, reset, first, second = getattr(layer, name).chunk(4)
            keep, replace = (first, second) if layer.ops == ("keep", "replace") else (second, first)
            parameter.copy_(torch.cat([reset, keep - replace, feature]))
    return gru.train(layer.training)
