r"""What a unit is: its sizes and options, the shapes of its parameters and their first values.

Cell, layer and kernels share this description, so a rule about the unit stands here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from mufuru import ops as operations
from mufuru.ops import Op

Reset: TypeAlias = Literal["before", "after"] | None
Activation: TypeAlias = Literal["tanh", "sigmoid"]
ControllerActivation: TypeAlias = Literal["tanh", "relu"]
OpBias: TypeAlias = Mapping[str, float] | Sequence[float] | None

DEFAULT_OP_BIAS: Mapping[str, float] = {"keep": 2.0}
"""The logit `keep` starts with when no `op_bias` is given; the others start at 0. See docs: The unit."""


STEMS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_kk", "weight_op", "bias_op")


class Weights(NamedTuple):
    """The parameters of one unit, in the order in which `nn.GRU` and then the recurrent controller name them."""

    ih: Tensor
    hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None
    kk: Tensor | None = None
    op: Tensor | None = None
    bias_op: Tensor | None = None


@dataclass(frozen=True)
class Unit:
    """Sizes and options of one unit. Rows of its weights: feature, reset (if any), then one block per operation."""

    input_size: int
    hidden_size: int
    ops: tuple[Op, ...]
    reset: Reset
    activation: Activation
    controller_size: int | None
    controller_activation: ControllerActivation
    bias: bool
    weight_shapes: tuple[tuple[int, ...] | None, ...] = field(init=False, compare=False, repr=False)
    """The shapes in the order of `Weights`, `None` for those that this unit lacks."""
    codes: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """The operations' codes, in order."""
    python_ops: tuple[Op, ...] = field(init=False, compare=False, repr=False)
    """Those that the native kernel does not have."""

    def __post_init__(self) -> None:
        if self.controller_size is not None:
            check_size("controller_size", self.controller_size)
        if self.reset not in ("before", "after", None):
            raise ValueError(f"reset should be 'before', 'after' or None (no reset gate), got {self.reset!r}")
        if self.activation not in ("tanh", "sigmoid"):
            raise ValueError(f"activation should be 'tanh' or 'sigmoid', got {self.activation!r}")
        if self.controller_activation not in ("tanh", "relu"):
            raise ValueError(f"controller_activation should be 'tanh' or 'relu', got {self.controller_activation!r}")
        # here and not in a cached property: a compiler cannot trace the lock in it
        shapes = self.shapes()
        object.__setattr__(self, "weight_shapes", tuple(shapes.get(stem) for stem in STEMS))
        object.__setattr__(self, "codes", tuple(op.code for op in self.ops))
        object.__setattr__(self, "python_ops", tuple(op for op in self.ops if op.native_code is None))

    @property
    def op_names(self) -> tuple[str, ...]:
        return tuple(op.name for op in self.ops)

    @property
    def rows(self) -> list[int]:
        """Rows of `weight_ih` and `weight_hh` by block: feature, reset, operations (or the recurrent controller)."""
        size = self.hidden_size
        controller = len(self.ops) * size if self.controller_size is None else self.controller_size
        return [size, 0 if self.reset is None else size, controller]

    def split(self, tensor: Tensor, dim: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """The blocks feature, reset and operations (or recurrent controller) of a weight, bias or pre-activation."""
        feature, reset, controller = tensor.split(self.rows, dim)
        return feature, reset, controller

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name stem and shape of every parameter, in the order of `Weights`."""
        rows, size = sum(self.rows), self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, self.input_size), "weight_hh": (rows, size)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.controller_size is not None:
            logits = len(self.ops) * size
            shapes |= {
                "weight_kk": (self.controller_size, self.controller_size),
                "weight_op": (logits, self.controller_size),
            }
            if self.bias:
                shapes["bias_op"] = (logits,)
        return shapes

    def names(self, suffix: str) -> tuple[str | None, ...]:
        """The names of the parameters in the order of `Weights`, `None` for those that this unit lacks."""
        shapes = self.shapes()
        return tuple(stem + suffix if stem in shapes else None for stem in STEMS)

    def initialise(self, weights: Weights, reset_bias: float, op_bias: Sequence[float]) -> None:
        """Uniform as `nn.GRU`; the biases of reset gate and operations start at exactly the given values."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for weight in weights:
            if weight is not None:
                nn.init.uniform_(weight, -bound, bound)
        if weights.bias_ih is None or weights.bias_hh is None:
            return
        logits = weights.ih.new_tensor(op_bias).repeat_interleave(self.hidden_size)
        with torch.no_grad():
            for bias, share in ((weights.bias_ih, 1.0), (weights.bias_hh, 0.0)):
                _, reset, controller = self.split(bias)
                reset.fill_(share * reset_bias)
                if weights.bias_op is None:
                    controller.copy_(share * logits)
            if weights.bias_op is not None:
                weights.bias_op.copy_(logits)


def op_biases(op_bias: OpBias, ops: Sequence[Op], bias: bool) -> tuple[float, ...]:
    """One initial logit per operation from a mapping by name, a sequence, or `None` for the default."""
    names = [op.name for op in ops]
    if op_bias is None:
        return tuple(DEFAULT_OP_BIAS.get(name, 0.0) for name in names)
    if not bias:
        raise ValueError("op_bias needs bias=True: without biases there is nothing to start at the given values")
    if isinstance(op_bias, Mapping):
        for name in op_bias:
            if name not in names:
                operations.get(name)
                raise ValueError(f"op_bias names {name!r}, which is not among this unit's ops {tuple(names)}")
        return tuple(float(op_bias.get(name, 0.0)) for name in names)
    if len(op_bias) != len(names):
        raise ValueError(f"op_bias needs one number for each of the {len(names)} operations, got {len(op_bias)}")
    return tuple(float(value) for value in op_bias)


def check_size(name: str, value: int) -> None:
    # a size that a compiler left open is a SymInt
    if not isinstance(value, int | torch.SymInt) or isinstance(value, bool):
        raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
    if value <= 0:
        raise ValueError(f"{name} must be greater than zero")
