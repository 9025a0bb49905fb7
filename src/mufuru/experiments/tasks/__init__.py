"""The tasks by name: their settings, their presets, and what makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from mufuru.experiments.tasks import classify, lm, logic, trees
from mufuru.experiments.tasks.task import Task


@dataclass(frozen=True)
class Kind:
    """A kind of task: `make(config)` gives the task, and `presets[name]` a config to start from."""

    config: type[Any]
    make: Callable[[Any], Task]
    presets: Mapping[str, Any]
    restore: Callable[[Any, Mapping[str, Tensor]], nn.Module] | None = None
    """From a config and weights to the model that they fit, without the task and its data; None where that is not
    possible."""


KINDS: dict[str, Kind] = {
    "logic": Kind(logic.LogicConfig, logic.LogicTask, logic.PRESETS),
    "lm": Kind(lm.LMConfig, lm.LMTask, lm.PRESETS, lm.restore),
    "classify": Kind(classify.ClassifyConfig, classify.ClassifyTask, classify.PRESETS, classify.restore),
    "trees": Kind(trees.TreesConfig, trees.TreesTask, trees.PRESETS, trees.restore),
}
