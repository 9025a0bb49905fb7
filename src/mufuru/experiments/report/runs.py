"""Queries on records: settings, models, groups of runs."""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from mufuru.experiments.record import Record
from mufuru.experiments.settings import SettingError, flat, from_json, to_json
from mufuru.experiments.tasks import KINDS
from mufuru.experiments.tasks.cells import CellConfig

Runs: TypeAlias = Sequence[Record]
Lines: TypeAlias = Mapping[str, Runs]
"""Name -> runs that differ in their seed alone; none of them is empty."""
Key = TypeVar("Key", bound=Hashable)

CELLS = {"mufuru": "MuFuRU", "gru": "GRU", "lstm": "LSTM", "vanilla": "tanh RNN"}
"""Names of the cells for readers, in the order of every table and legend."""
PAPERS_GRU = "GRU of the paper"
"""MuFuRU with keep and replace alone, whose logits start alike, and its reset gate before the product."""
WORDS = 44
"""Maximum letters of a name that is made of settings."""
FOLDERS = 3
"""Maximum folders of one setting to write out."""
MODEL = ("cell.cell", "cell.controller_size", "cell.controller_activation")
"""The settings by which models are distinguished."""


def setting(record: Record, path: str) -> Any:
    """Return a setting by its dotted name, such as "cell.hidden_size"; None where the task has no such setting."""
    value: Any = record.config
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def is_lacking(record: Record, path: str) -> bool:
    """Return whether the cell lacks this option of a layer: its record has a value all the same."""
    options, name = CellConfig.options, path.removeprefix("cell.")
    return path != name and name in options["mufuru"] and name not in options.get(cell_of(record), ())


def on_papers_data(record: Record) -> bool:
    """Return whether a run used the paper's data and not the user's."""
    return not any(setting(record, name) for name in ("data.text", "data.data", "data.treebank"))


def where(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """Return the records with these settings; a double underscore stands for the dot."""
    named = {name.replace("__", "."): value for name, value in wanted.items()}
    return [record for record in records if all(setting(record, name) == value for name, value in named.items())]


def grouped(records: Iterable[Record], key: Callable[[Record], Key]) -> dict[Key, list[Record]]:
    """Return the records by a key, in order of first occurrence."""
    groups: dict[Key, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def of_part(records: Runs, part: str) -> list[Record]:
    """Return the runs of one part of an experiment."""
    return [record for record in records if record.group == part]


def values(records: Iterable[Record], path: str) -> list[Any]:
    """Return the different values of a setting, in order: None, numbers, texts and lists."""
    different = {json.dumps(value): value for value in (setting(record, path) for record in records)}
    return sorted(different.values(), key=_order)


def _order(value: Any) -> tuple[bool, bool, Any]:
    words = isinstance(value, str | list)
    return value is not None, words, plain(value) if words else value or 0


def plain(value: Any) -> str:
    """Write a value of JSON for readers."""
    if isinstance(value, list):
        return " ".join(map(plain, value))
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def cells(records: Iterable[Record]) -> list[str]:
    """Return the cells among the records, MuFuRU first."""
    present = {setting(record, "cell.cell") for record in records}
    return [cell for cell in CELLS if cell in present] + sorted(map(str, present - CELLS.keys() - {None}))


def name(cell: str) -> str:
    return CELLS.get(cell, cell)


def unique(records: Iterable[Record]) -> list[Record]:
    """Return each run once, with every setting, in an order that does not depend on how they were read."""
    by_config = {json.dumps([r.task, r.group, r.config], sort_keys=True): r for r in map(with_defaults, records)}
    return [by_config[key] for key in sorted(by_config)]


def with_defaults(record: Record) -> Record:
    """Return a record with the defaults of settings that are newer than it; as it is where its settings are unknown."""
    with suppress(SettingError, KeyError):
        return replace(record, config=to_json(from_json(KINDS[record.task].config, record.config)))
    return record


def metric(record: Record, split: str = "test", key: str = "accuracy") -> float | None:
    """Return a metric of the selected weights; None where it was not measured."""
    value = record.result.get(split, {}).get(key)
    return None if value is None else float(value)


def cell_of(record: Record) -> str:
    """Return the name of the cell, from either place in the settings."""
    return str(setting(record, "cell.cell") or setting(record, "cell"))


def is_papers_gru(record: Record) -> bool:
    ops, keep = (setting(record, f"cell.{name}") for name in ("ops", "keep_bias"))
    two = cell_of(record) == "mufuru" and ops == ["keep", "replace"] and keep == 0
    return two and record.config["cell"].get("reset", "before") == "before"


def model(record: Record) -> str:
    """Return a model's name for readers: the cell, and the controller where it has one."""
    cell = cell_of(record)
    if setting(record, "cell") is None:
        return record.task
    if is_papers_gru(record):
        return PAPERS_GRU
    if record.task in KINDS and cell in (names := KINDS[record.task].cell_names):
        return names[cell]
    controller = setting(record, "cell.controller_size")
    if controller is None:
        return name(cell)
    with_relu = setting(record, "cell.controller_activation") == "relu"
    return f"{name(cell)} (controller {controller}{' with relu' if with_relu else ''})"


def by_model(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the runs of each model: MuFuRU first, then those with a controller, then the others."""
    order = list(CELLS)

    def place(record: Record) -> tuple[int, bool, int, str, str]:
        cell, controller, activation = cell_of(record), *(setting(record, path) for path in MODEL[1:])
        first = order.index(cell) if cell in order else len(order)
        return first, is_papers_gru(record), controller or 0, activation or "", cell

    return grouped(sorted(records, key=place), model)


def lines(records: Runs, part: str) -> dict[str, list[Record]]:
    """Return the runs of a part by model."""
    return by_model(of_part(records, part))


def split(lines: Lines, path: str, words: str) -> dict[str, list[Record]]:
    """Split each line by the values of a setting, which `words` formats behind the line's name."""
    return {
        f"{name} ({words.format(value)})": [record for record in some if setting(record, path) == value]
        for name, some in lines.items()
        for value in values(some, path)
    }


def mufuru(records: Runs, titles: Mapping[str, str]) -> dict[str, list[Record]]:
    """Return MuFuRU's runs in several parts, by the parts' titles."""
    return {title: some for part, title in titles.items() if (some := lines(records, part).get("MuFuRU"))}


def by_settings(records: Runs) -> dict[str, list[Record]]:
    """Return the runs of each model and, where runs differ in more than model and seed, of each setting. Where that
    takes many words, they are named by their folders, if they have any that tell them apart."""
    differ = [path for path in varying(records) if path not in (*MODEL, "cell", "seed")]

    def named(record: Record) -> str:
        own = [path for path in differ if not is_lacking(record, path)]
        changes = [f"{path.rpartition('.')[2].replace('_', ' ')} {end(record, path, records)}" for path in own]
        return ", ".join([model(record), *changes])

    ordered = sorted(records, key=lambda record: [_order(setting(record, path)) for path in differ])
    groups = grouped((record for some in by_model(ordered).values() for record in some), named)
    folders = {}
    for some in groups.values():
        names = [record.name for record in some if record.name]
        listed = ", ".join(names) if len(names) <= FOLDERS else f"{names[0]} and {len(names) - 1} others"
        if len(names) == len(some):
            folders[f"{model(some[0])}, {listed}"] = some
    return folders if len(folders) == len(groups) and max(map(len, groups), default=0) > WORDS else groups


def end(record: Record, path: str, records: Runs) -> str:
    """Write a setting; of a path only the file name, if that distinguishes the runs."""
    every = {plain(setting(other, path)) for other in records}
    value = plain(setting(record, path))
    return value.rpartition("/")[2] if len({other.rpartition("/")[2] for other in every}) == len(every) else value


def varying(records: Runs) -> list[str]:
    """Return the settings in which the runs differ, by their dotted names, the seed last."""
    names = sorted({name for r in records for name in flat(r.config)}, key=lambda name: (name == "seed", name))
    return [name for name in names if len({json.dumps(setting(record, name)) for record in records}) > 1]


def differing(base: Record, record: Record) -> list[str]:
    """Return the names of the settings that are not the base's, the seed aside."""
    one, other = flat(base.config), flat(record.config)
    return [name for name in sorted(one.keys() | other.keys()) if name != "seed" and one.get(name) != other.get(name)]
