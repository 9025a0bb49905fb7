"""The language model of a run, for commands that use one. The folder of the run is enough: no text is needed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mufuru.experiments.data.text import Level
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.engine import RunError, load_model, read_config
from mufuru.experiments.tasks.lm import LMConfig
from mufuru.experiments.tasks.lm.model import LanguageModel


class LoadedModel(NamedTuple):
    """A trained model and what its tokens are."""

    model: LanguageModel
    vocabulary: Vocabulary
    level: Level


def load_language_model(folder: Path) -> LoadedModel:
    """The selected weights of a run; one of another task is refused."""
    kind, config = read_config(folder)
    model = load_model(folder) if isinstance(config, LMConfig) else None
    if not isinstance(model, LanguageModel):
        raise RunError(f"the run in {folder} is of the task {kind}: expected a language model, of `mufuru train lm`")
    return LoadedModel(model, model.vocabulary, config.data.level)
