"""The tasks by name. A task is a folder here with a `KIND`, and its name in `KINDS`."""

from collections import UserDict
from importlib import import_module
from pathlib import Path
from typing import Any

from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.task import Kind

__all__ = ["KINDS", "Kind", "Kinds", "hook"]


class Kinds(UserDict[str, Any]):
    """Tasks by name; the module of one is imported when it is looked up, so that a command loads only its own."""

    def __getitem__(self, name: str) -> Kind:
        if self.data[name] is None:
            self.data[name] = import_module(f"{__name__}.{name}").KIND
        kind: Kind = self.data[name]
        return kind


KINDS = Kinds(logic=None, lm=None, classify=None, trees=None, regress=None, tag=None, forecast=None, languages=None)


def hook(name: str, hook: str, run: Path) -> Any:
    """Return a hook of the task of a run, or raise an error that names the tasks that have it."""
    if (own := getattr(KINDS[name], hook)) is None:
        able = [(kind.card.noun or "model", other) for other, kind in KINDS.items() if getattr(kind, hook)]
        expected = " or ".join(f"a {noun}, of `mufuru train {other}`" for noun, other in able)
        raise SettingError(f"the run in {run} is of the task {name}: expected {expected}")
    return own
