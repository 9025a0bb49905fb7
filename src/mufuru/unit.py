r"""The description of a unit: its sizes and options, the shapes of its parameters and their initial values.

Cell, layer and kernels share this description, so a rule about the unit stands here and nowhere else.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from mufuru import ops as operations
from mufuru.ops import Op
from mufuru.tensors import Shape, exists, named_sizes, rows

Reset: TypeAlias = Literal["before", "after"] | None
Activation: TypeAlias = Literal["tanh", "sigmoid"]
ControllerActivation: TypeAlias = Literal["tanh", "relu"]
OpBias: TypeAlias = Mapping[str, float] | Sequence[float] | None

DEFAULT_OP_BIAS: Mapping[str, float] = {"keep": 2.0}
"""Initial logits when no `op_bias` is given; the others start at 0. See docs: The unit."""

RESETS: Mapping[Reset, int] = {None: 0, "before": 1, "after": 2}
ACTIVATIONS: Mapping[str, int] = {"tanh": 0, "sigmoid": 1, "relu": 2}
"""Options as numbers, for operators and for C."""


class Weights(NamedTuple):
    """The parameters of one unit, in the order in which `nn.GRU` and then the recurrent controller name them."""

    ih: Annotated[Tensor, Shape("rows inputs")]
    hh: Annotated[Tensor, Shape("rows hidden")]
    bias_ih: Annotated[Tensor | None, Shape("rows", when="bias")] = None
    bias_hh: Annotated[Tensor | None, Shape("rows", when="bias")] = None
    kk: Annotated[Tensor | None, Shape("controller controller", when="controller")] = None
    op: Annotated[Tensor | None, Shape("logits controller", when="controller")] = None
    bias_op: Annotated[Tensor | None, Shape("logits", when="controller bias")] = None


WEIGHTS = rows(Weights, "weight")
STEMS = tuple(row.name if row.name.startswith("bias") else f"weight_{row.name}" for row in WEIGHTS)
"""Names of the parameters, before the suffix of layer and direction."""


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
    sizes: Mapping[str, int] = field(init=False, compare=False, repr=False)
    """Sizes by the names that shapes use."""
    facts: frozenset[str] = field(init=False, compare=False, repr=False)
    """Those of `bias`, `controller` and `after` that hold for this unit: they decide which tensors exist."""
    numbers: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """Sizes and options as `struct Problem` has them, from `inputs` to `controller_activation`."""
    codes: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """The operations' codes, in order."""
    python_ops: tuple[Op, ...] = field(init=False, compare=False, repr=False)
    """Operations without native code."""

    def __post_init__(self) -> None:
        if self.controller_size is not None:
            check_size("controller_size", self.controller_size)
        if self.reset not in ("before", "after", None):
            raise ValueError(f"reset should be 'before', 'after' or None (no reset gate), got {self.reset!r}")
        if self.activation not in ("tanh", "sigmoid"):
            raise ValueError(f"activation should be 'tanh' or 'sigmoid', got {self.activation!r}")
        if self.controller_activation not in ("tanh", "relu"):
            raise ValueError(f"controller_activation should be 'tanh' or 'relu', got {self.controller_activation!r}")
        self._derive()

    def __getstate__(self) -> dict[str, Any]:
        # the codes of operations written in Python are numbers of this process: a copy derives its own
        return {part.name: getattr(self, part.name) for part in fields(self) if part.init}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._derive()

    def _derive(self) -> None:
        """Set all that follows from sizes and options: a compiler cannot trace the lock in a cached property."""
        sizes = self.input_size, self.hidden_size, self.controller_size or 0, len(self.ops)
        options = RESETS[self.reset], ACTIVATIONS[self.activation], ACTIVATIONS[self.controller_activation]
        named = named_sizes(*sizes, blocks=1 if self.reset is None else 2)
        there = {"bias": self.bias, "controller": self.controller_size is not None, "after": self.reset == "after"}
        facts = frozenset(fact for fact, holds in there.items() if holds)
        shapes = tuple(row.sized(named) if exists(row, facts) else None for row in WEIGHTS)
        derived = {
            "weight_shapes": shapes,
            "sizes": named,
            "facts": facts,
            "numbers": (*sizes, *options),
            "codes": tuple(op.code for op in self.ops),
            "python_ops": tuple(op for op in self.ops if op.native_code is None),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

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
        return {stem: shape for stem, shape in zip(STEMS, self.weight_shapes, strict=True) if shape is not None}

    def names(self, suffix: str) -> tuple[str | None, ...]:
        """The names of the parameters in the order of `Weights`, `None` for those that this unit lacks."""
        there = self.shapes()
        return tuple(stem + suffix if stem in there else None for stem in STEMS)

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
    # a dynamic size in a graph is a SymInt
    if not isinstance(value, int | torch.SymInt) or isinstance(value, bool):
        raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
    if value <= 0:
        raise ValueError(f"{name} must be greater than zero")
