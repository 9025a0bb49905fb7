"""Learn to evaluate propositional formulae, and generalise to longer ones: the paper's unit test."""

from mufuru.experiments.tasks.logic.config import PRESETS, LogicConfig
from mufuru.experiments.tasks.logic.task import LogicTask

__all__ = ["PRESETS", "LogicConfig", "LogicTask"]
