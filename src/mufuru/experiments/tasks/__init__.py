"""The tasks by name: their settings, their presets, and what makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mufuru.experiments.tasks import logic
from mufuru.experiments.tasks.task import Task


@dataclass(frozen=True)
class Kind:
    """A kind of task: `make(config)` gives the task, and `presets[name]` a config to start from."""

    config: type[Any]
    make: Callable[[Any], Task]
    presets: Mapping[str, Any]


KINDS: dict[str, Kind] = {
    "logic": Kind(logic.LogicConfig, logic.LogicTask, logic.PRESETS),
}
