"""What the explorer must know of each kind of task: how a text becomes steps, and outputs become predictions."""

from __future__ import annotations

from typing import Any

from torch import nn

from mufuru.experiments.explorer.kinds.classify import SequenceReader
from mufuru.experiments.explorer.kinds.lm import TextReader
from mufuru.experiments.explorer.kinds.logic import LogicReader
from mufuru.experiments.explorer.kinds.reader import Reader
from mufuru.experiments.settings import choose

READERS: dict[str, type[Reader]] = {"logic": LogicReader, "lm": TextReader, "classify": SequenceReader}


def reader_for(kind: str, config: Any, model: nn.Module) -> Reader:
    """The reader of a run, by its task's name."""
    return choose("kind of run", kind, READERS)(model, config)
