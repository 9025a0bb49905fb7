"""The tasks by name. A task is a folder here with a `KIND`, and its name in `KINDS`."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Any

from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.task import Kind

__all__ = ["KINDS", "Kind", "Kinds", "hook"]


class Kinds(MutableMapping[str, Kind]):
    """Tasks by name; the module of one is imported when it is looked up, so that a command loads only its own."""

    def __init__(self, *names: str) -> None:
        self._known: dict[str, Kind | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Kind:
        kind = self._known[name]
        if kind is None:
            kind = self._known[name] = import_module(f"{__name__}.{name}").KIND
        return kind

    def __setitem__(self, name: str, kind: Kind) -> None:
        self._known[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


KINDS = Kinds(
    "logic",
    "lm",
    "classify",
    "trees",
)


def hook(name: str, hook: str, run: Path) -> Any:
    """A hook of the task of a run, or an error that names the tasks that have it."""
    if (own := getattr(KINDS[name], hook)) is None:
        able = [(kind.noun or "model", other) for other, kind in KINDS.items() if getattr(kind, hook)]
        expected = " or ".join(f"a {noun}, of `mufuru train {other}`" for noun, other in able)
        raise SettingError(f"the run in {run} is of the task {name}: expected {expected}")
    return own
