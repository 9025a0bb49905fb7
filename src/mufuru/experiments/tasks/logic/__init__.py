"""Learn to evaluate propositional formulae, and generalise to longer ones: the paper's unit test."""

from mufuru.experiments.tasks.logic.config import PRESETS
from mufuru.experiments.tasks.logic.model import FormulaReader
from mufuru.experiments.tasks.logic.task import LogicReader, LogicTask
from mufuru.experiments.tasks.task import Card, Kind

CARD = Card("reader of Boolean formulae", "drawn formulae")
KIND = Kind(LogicTask, PRESETS, CARD, model=FormulaReader, reader=LogicReader)
