"""The run folder: all that a run leaves behind, and the only meeting point of engine and report.

config.json              the task's name and every setting, the seed among them
environment.json         versions, commit, kernel, threads, the command
metrics.jsonl            one line per look at the data; the same for the same config, killed and resumed or not
best.safetensors         the weights with the best validation metric
best-before.safetensors  those that the last checkpoint knows as the best, until the next one
last.safetensors         everything needed to go on
previous.safetensors     the same, one checkpoint earlier
result.json              the metrics of the finished run; its presence says that the run is finished
dynamic.json             dynamic evaluation of a language model, where it was asked for and kept
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mufuru.disk import write_atomically
from mufuru.experiments.settings import to_json


class RecordError(ValueError):
    """A run folder or a file of records that cannot be read; the message says what to do."""


@dataclass(frozen=True)
class RunFolder:
    """Where the files of one run are."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def best(self) -> Path:
        return self.path / "best.safetensors"

    @property
    def best_before(self) -> Path:
        return self.path / "best-before.safetensors"

    @property
    def last(self) -> Path:
        return self.path / "last.safetensors"

    @property
    def previous(self) -> Path:
        return self.path / "previous.safetensors"

    @property
    def weights(self) -> tuple[Path, ...]:
        return self.best, self.best_before, self.last, self.previous

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def dynamic(self) -> Path:
        return self.path / "dynamic.json"

    @property
    def finished(self) -> bool:
        return self.result.exists()


@dataclass(frozen=True)
class Record:
    """One finished run, as reports read it and `results/` keeps it."""

    task: str
    config: dict[str, Any]
    """Every setting, as `settings.to_json` writes it."""
    environment: dict[str, Any]
    result: dict[str, Any]
    """`{"updates", "epochs", "parameters", "best_update", "seconds", "valid": {metric: value}, "test": {...},
    "train": {...}, "inspection": {...}}`; metrics are those of the selected weights, beside "smoothed", the validation
    metric that selected them where that is a mean of several looks."""
    curve: list[dict[str, Any]] = field(default_factory=list)
    """The lines of metrics.jsonl; empty where only results are kept."""
    group: str = ""
    """Which part of an experiment the run belongs to, such as "sweep" or "ablation"; empty for a run of its own."""
    dynamic: dict[str, Any] = field(default_factory=dict)
    """Dynamic evaluation on the test data, as `mufuru evaluate --dynamic --keep` leaves it; empty without."""


OPTIONAL = ("curve", "dynamic")
"""Left out of a file of records where there is nothing."""


def config_document(task: str, config: Any) -> dict[str, Any]:
    """What config.json holds."""
    return {"task": task, "config": to_json(config)}


def read_json(path: Path) -> Any:
    """A JSON file of a run, or an error that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordError(f"{path} is missing: is {path.parent} the folder of a run?") from None
    except NotADirectoryError:
        raise RecordError(f"{path.parent} is not a folder: expected the folder of a run") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} is damaged: {error}") from None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise RecordError(f"{path} is damaged: expected an object, got {type(found).__name__}")
    return found


def read_document(path: Path) -> dict[str, Any]:
    """The config.json of a run: its task and settings."""
    document = read_object(path)
    if not isinstance(document.get("task"), str) or not isinstance(document.get("config"), dict):
        raise RecordError(f"{path} is not that of a run: expected a task and its settings. An exported model is no "
                          "run: give the folder that `mufuru train` made")  # fmt: skip
    return document


def read_lines(path: Path) -> list[Any]:
    """The complete lines of a JSON-lines file; a last line without its end was cut off by a crash and is left out."""
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} is damaged: {error}") from None


def read_run(path: Path, curve: bool = True) -> Record:
    """The record of a finished run."""
    folder = RunFolder(path)
    if not path.is_dir():
        raise RecordError(f"{path} is not a folder: expected the folder of a run, as `mufuru train` makes it")
    document = read_document(folder.config)
    if not folder.finished:
        raise RecordError(f"the run in {path} is not finished: go on with `mufuru train --resume {path}`")
    lines = read_lines(folder.metrics) if curve else []
    environment, result = read_object(folder.environment), read_object(folder.result)
    dynamic = read_object(folder.dynamic) if folder.dynamic.exists() else {}
    return Record(document["task"], document["config"], environment, result, lines, dynamic=dynamic)


def find_runs(root: Path) -> list[Path]:
    """All finished runs in a folder and the folders inside it."""
    return sorted(path.parent for path in root.rglob("result.json"))


def _group(run: Path) -> str:
    """Experiments keep their runs in folders like sweep/mufuru-8/seed-3: the first one is the group."""
    return run.parts[0] if len(run.parts) > 2 else ""


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Records as JSON lines: first what all have in common, then a line per run, in an order that does not depend on
    when they ran."""
    rows = [{key: value for key, value in vars(record).items() if value or key not in OPTIONAL} for record in records]
    common = _common(rows)
    lines = sorted(json.dumps(_without(common, row), sort_keys=True) for row in rows)
    lines.insert(0, json.dumps({"common": common}, sort_keys=True))
    write_atomically(path, "".join(line + "\n" for line in lines).encode())


def _common(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The entries that are the same in all, those of dicts inside dicts too."""
    shared: dict[str, Any] = {}
    for key, value in (rows[0] if rows else {}).items():
        if all(key in row and row[key] == value for row in rows):
            shared[key] = value
        elif all(isinstance(row.get(key), dict) for row in rows):
            shared[key] = _common([row[key] for row in rows])
    return shared


def _without(common: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in row.items() if key not in common or common[key] != value}
    return {key: _without(common[key], value) if key in common else value for key, value in rest.items()}


def _with(common: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    merged = common | row
    for key in common.keys() & row.keys():
        merged[key] = _with(common[key], row[key])
    return merged


def read_records(path: Path) -> list[Record]:
    """Records that `write_records` wrote, or those of all finished runs in a folder."""
    if path.is_dir():
        return [replace(read_run(run), group=_group(run.relative_to(path))) for run in find_runs(path)]
    if not path.exists():
        raise RecordError(f"{path} does not exist: expected the folder of a run, or a file of records")
    try:
        lines = read_lines(path)
    except RecordError:
        lines = []
    if not lines or not all(isinstance(line, dict) for line in lines) or "common" not in lines[0]:
        raise RecordError(f"{path} is no file of records: expected one that `mufuru reproduce --record` wrote")
    return [Record(**_with(lines[0]["common"], line)) for line in lines[1:]]
