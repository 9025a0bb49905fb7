"""The run folder: everything that a run writes, and the only meeting point of engine and report.

config.json              the task's name and every setting, the seed among them
environment.json         versions, commit, kernel, threads, the command
metrics.jsonl            one line per evaluation; the same for the same config, killed and resumed or not
best.safetensors         the weights with the best validation metric, for whatever uses the model
last.safetensors         everything needed to resume, the best weights among it
previous.safetensors     the same, one checkpoint earlier
layout.json              how the user's files were read: format, columns, guesses
result.json              the metrics of the finished run; its presence marks the run as finished
examples.json            a few texts or series of the validation data for `mufuru explore`, where the task has them
dynamic.json             dynamic evaluation of a language model, if kept
best-before.safetensors  of an unfinished run of version 0.1: the best weights that its last checkpoint counts on
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mufuru.disk import write_atomically
from mufuru.experiments.settings import UserError, to_json


class RecordError(UserError, ValueError):
    """A run folder or a file of records that cannot be read; the message says what to do."""


class RunFolder:
    """Paths of the files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.environment = path / "environment.json"
        self.layout = path / "layout.json"
        self.metrics = path / "metrics.jsonl"
        self.best = path / "best.safetensors"
        self.best_before = path / "best-before.safetensors"
        self.last = path / "last.safetensors"
        self.previous = path / "previous.safetensors"
        self.weights = (self.best, self.best_before, self.last, self.previous)
        self.result = path / "result.json"
        self.examples = path / "examples.json"
        self.dynamic = path / "dynamic.json"

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
    metric that selected them where that is a mean of several evaluations, and "selection", the rule that chose them."""
    curve: list[dict[str, Any]] = field(default_factory=list)
    """The lines of metrics.jsonl; empty where only results are kept."""
    group: str = ""
    """Which part of an experiment the run belongs to, such as "sweep" or "ablation"; empty for a single run."""
    dynamic: dict[str, Any] = field(default_factory=dict)
    """Dynamic evaluation on the test data, as `mufuru evaluate --dynamic --keep` leaves it; empty without."""
    folder: Path | None = field(default=None, compare=False)
    """The run's folder; None where it was not read from one."""

    @property
    def name(self) -> str:
        """Name of the run's folder, also of `.`; empty without one."""
        return self.folder.resolve().name if self.folder else ""


OPTIONAL = ("curve", "dynamic")
"""Entries that a file of records omits where they are empty."""


def config_document(task: str, config: Any) -> dict[str, Any]:
    """Return the content of config.json."""
    return {"task": task, "config": to_json(config)}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run, which holds an object; an error names it."""
    if path.exists() and not path.is_file():
        raise RecordError(f"{path} is not a file: expected one that `mufuru train` wrote")
    try:
        content = _parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecordError(f"{path} is missing: is {path.parent} the folder of a run?") from None
    except NotADirectoryError:
        raise RecordError(f"{path.parent} is not a folder: expected the folder of a run") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {error}") from None
    if not isinstance(content, dict):
        raise RecordError(f"{path} is damaged: expected an object, got {type(content).__name__}")
    return content


def read_document(path: Path) -> dict[str, Any]:
    """Read the config.json of a run: its task and settings."""
    document = read_json(path)
    if not isinstance(document.get("task"), str) or not isinstance(document.get("config"), dict):
        raise RecordError(f"{path} is not that of a run: expected a task and its settings. An exported model is no "
                          "run: give the folder that `mufuru train` made")  # fmt: skip
    return document


def read_lines(path: Path) -> list[Any]:
    """Read the complete lines of a JSON-lines file; a last line without its end, cut off by a crash, is left out."""
    if not path.exists():
        return []
    try:
        return [_parsed(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {error}") from None


def _parsed(text: str) -> Any:
    """Parse JSON; NaN and infinities, which Python would accept, are no JSON and no result."""

    def finite(number: str) -> float:
        # 1e400 is JSON, but infinite here
        if not math.isfinite(value := float(number)):
            raise ValueError(f"{number[:20]} is not a finite number")
        return value

    return json.loads(text, parse_constant=finite, parse_float=finite)


def read_result(path: Path) -> dict[str, Any]:
    """Read the result.json of a run: its metrics are numbers by name."""
    result = read_json(path)
    for split in ("train", "valid", "test"):
        metrics = result.get(split, {})
        if not isinstance(metrics, dict) or not all(isinstance(value, int | float) for value in metrics.values()):
            raise RecordError(f"{path} is damaged: expected numbers by name as the metrics of {split}")
    return result


def read_examples(path: Path) -> tuple[str, ...]:
    """Return the texts that a finished run has kept; runs of other tasks and of earlier versions have none."""
    if not path.exists():
        return ()
    texts = read_json(path).get("texts")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RecordError(
            f"{path} is damaged: expected a list of texts. Delete it to look into the run without examples"
        )
    return tuple(texts)


def endings(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ending of each path that distinguishes it from the others."""
    paths = [folder.resolve() for folder in folders]
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(set(paths)):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]


def read_run(path: Path, curve: bool = True) -> Record:
    """Read the record of a finished run."""
    folder = RunFolder(path)
    if not path.is_dir():
        raise RecordError(f"{path} is not a folder: expected the folder of a run, as `mufuru train` makes it")
    document = read_document(folder.config)
    if not folder.finished:
        raise RecordError(f"the run in {path} is not finished: resume it with `mufuru train --resume {path}`")
    lines = read_lines(folder.metrics) if curve else []
    environment, result = read_json(folder.environment), read_result(folder.result)
    dynamic = read_json(folder.dynamic) if folder.dynamic.exists() else {}
    return Record(document["task"], document["config"], environment, result, lines, dynamic=dynamic, folder=path)


def find_runs(root: Path) -> list[Path]:
    """Return all finished runs in a folder and the folders inside it."""
    return sorted(path.parent for path in root.rglob("result.json"))


def write_records(path: Path, records: Iterable[Record]) -> None:
    """Write records as JSON lines: first the entries that all share, then a line per run, in an order that does not
    depend on when they ran."""
    # no other machine has the folder
    rows = [
        {key: value for key, value in vars(record).items() if key != "folder" and (value or key not in OPTIONAL)}
        for record in records
    ]
    common = _common(rows)
    lines = sorted(json.dumps(_without(common, row), sort_keys=True) for row in rows)
    lines.insert(0, json.dumps({"common": common}, sort_keys=True))
    write_atomically(path, "".join(line + "\n" for line in lines).encode())


def _common(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the entries that are the same in all, those of dicts inside dicts too."""
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
    """Read the records that `write_records` wrote, or those of all finished runs in a folder."""
    if path.is_dir():
        # experiments keep their runs in folders like sweep/mufuru-8/seed-3: the first is the group
        parts = {run: run.relative_to(path).parts for run in find_runs(path)}
        return [replace(read_run(run), group=names[0] if len(names) > 2 else "") for run, names in parts.items()]
    if not path.exists():
        raise RecordError(f"{path} does not exist: expected the folder of a run, or a file of records")
    try:
        lines = read_lines(path)
    except RecordError:
        lines = []
    if not lines or not all(isinstance(line, dict) for line in lines) or "common" not in lines[0]:
        raise RecordError(f"{path} is no file of records: expected one that `mufuru reproduce --record` wrote")
    return [Record(**_with(lines[0]["common"], line)) for line in lines[1:]]
