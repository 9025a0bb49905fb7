"""Learn to evaluate propositional formulae, and generalise to longer ones: the paper's unit test."""

from mufuru.experiments.tasks.logic.config import PRESETS, LogicConfig
from mufuru.experiments.tasks.logic.model import FormulaReader
from mufuru.experiments.tasks.logic.task import LogicReader, LogicTask
from mufuru.experiments.tasks.task import Kind

KIND = Kind(
    LogicConfig,
    LogicTask,
    PRESETS,
    restore=lambda config, weights: FormulaReader.restored(config.cell, weights),
    reader=LogicReader,
    noun="reader of Boolean formulae",
    data="drawn formulae",
)
