"""Models of tasks as files: the settings and the weights are enough to make one again, without its data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from mufuru.experiments.settings import from_json, to_json
from mufuru.saving.card import code, page, table
from mufuru.saving.operations import custom_operations
from mufuru.saving.pretrained import Pretrained


class TaskModel(Pretrained):
    """A model of a task; `config` are the settings that it was made with."""

    settings: ClassVar[type[Any]]
    """The dataclass of `config`."""
    config: Any

    @classmethod
    def restored(cls, config: Any, weights: Mapping[str, Tensor]) -> Self:
        """A model that fits the weights, which are still to be loaded."""
        raise NotImplementedError

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


def without_paths(value: Any) -> Any:
    """Settings for others to read: of a path that leads elsewhere the last name only."""
    if isinstance(value, dict):
        return {key: without_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(item) for item in value]
    if not isinstance(value, str):
        return value
    return Path(value).name if Path(value).is_absolute() or ".." in Path(value).parts else value


def head(**more: Any) -> dict[str, Any]:
    """For the machines that read a card."""
    return {"library_name": "mufuru", "tags": ["mufuru", "pytorch", "recurrent"], **more}


def use(model: TaskModel) -> str:
    """How to load it, for a card."""
    cls = type(model)
    imports = f"from {cls.__module__} import {cls.__name__}"
    return f"## Use\n\n{code(cls.__name__, imports, list(custom_operations(model)))}"


def settings_table(options: Mapping[str, Any]) -> str:
    rows = [(f"`{name}`", f"`{json.dumps(value, ensure_ascii=False)}`") for name, value in flat(options)]
    return f"## Settings\n\n{table(('setting', 'value'), rows)}"


def flat(options: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The settings inside of settings, by names such as cell.hidden_size."""
    found: list[tuple[str, Any]] = []
    for name, value in options.items():
        found += flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return found
