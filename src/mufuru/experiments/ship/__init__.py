"""Use of a run's model outside of training: hooks of its task, files for others, graphs, pruning."""

from pathlib import Path
from typing import Any

from mufuru.experiments import tasks
from mufuru.experiments.engine import load_model, read_config


def load_as(hook: str, folder: Path) -> Any:
    """The trained model of a run as a hook of its task wraps it, such as "predictor"; without its data."""
    kind, config = read_config(folder)
    wrap = tasks.hook(kind, hook, folder)
    return wrap(load_model(folder), config)
