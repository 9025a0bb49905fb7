"""Use of a run's model outside of training: hooks of its task, files for others, graphs, pruning."""

from pathlib import Path
from typing import Any

from mufuru.experiments import tasks
from mufuru.experiments.engine import RunError, load_model, read_config
from mufuru.experiments.ship import exported

ON_GRAPHS = ("predictor", "text_model")
"""Hooks that need nothing but a model's answers."""


def load_as(hook: str, folder: Path) -> Any:
    """Return the trained model of a run or of an export, as a hook of its task wraps it, such as "predictor"; without
    its data."""
    if (loaded := exported.load(folder)) is None:
        kind, config = read_config(folder)
        wrap = tasks.hook(kind, hook, folder)
        return wrap(load_model(folder), config)
    wrap = tasks.hook(loaded.task, hook, folder)
    if isinstance(loaded.model, exported.OnnxModel) and hook not in ON_GRAPHS:
        raise RunError(f"{folder} holds a graph, which cannot be looked into: give its run, or export to safetensors")
    return wrap(loaded.model, loaded.config)
