"""Layers as files: the arguments of the constructor are what config.json holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch

from mufuru.ops import Op, did_you_mean
from mufuru.saving.card import layer_card
from mufuru.saving.operations import custom_operations
from mufuru.saving.pretrained import Pretrained

MACHINE = ("self", "kernel", "device", "dtype")
"""Arguments that are no part of the model; which kernel runs is a matter of the machine."""


class PretrainedLayer(Pretrained):
    """A layer of this library; every constructor argument is kept as an attribute of the same name."""

    ops: Any
    op_bias: Any

    def _operations(self) -> tuple[Op, ...]:
        """The rows of the table that the layer composes with."""
        raise NotImplementedError

    @classmethod
    def _constructor(cls) -> Callable[..., None]:
        """Of this library's class, also in a subclass that has its own."""
        own: Any = next(base for base in cls.__mro__ if base.__module__.startswith("mufuru."))
        constructor: Callable[..., None] = own.__init__
        return constructor

    @classmethod
    def _option_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls._constructor()).parameters if name not in MACHINE]

    def _options(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in self._option_names()} | {"ops": list(self.ops)}
        if isinstance(self.op_bias, Mapping):
            options["op_bias"] = dict(self.op_bias)
        return options

    @classmethod
    def _from_options(cls, options: Any, tensors: Any, dtype: torch.dtype, changes: dict[str, Any]) -> Self:
        if not isinstance(options, dict):
            raise TypeError(f"options should be an object, got {type(options).__name__}")
        known = [*cls._option_names(), "kernel"]
        for name in {**options, **changes}:
            if name not in known:
                raise ValueError(f"unknown option {name!r}: {did_you_mean(name, known)}")
        for name in ("bidirectional", "learn_initial_state"):
            if not isinstance(options.get(name, False), bool):
                raise TypeError(f"{name} should be true or false, got {options[name]!r}")
        layers = {**options, **changes}.get("num_layers", 1)
        if isinstance(layers, int) and layers > len(tensors):
            raise ValueError(f"num_layers is {layers}, expected at most one for each of the {len(tensors)} tensors")
        # without memory: whether the tensors fit is seen before anything is made of a damaged size
        make: Callable[..., Self] = cls
        return make(**{**options, **changes}, device="meta", dtype=dtype)

    def _card(self) -> str:
        size = sum(parameter.numel() for parameter in self.parameters())
        return layer_card(self._model_name(), self._options(), list(custom_operations(self)), size)
