"""Records are written and read without loss, however much they have in common."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mufuru.experiments.record import (
    Record,
    RecordError,
    read_json,
    read_lines,
    read_records,
    read_result,
    read_run,
    write_records,
)


def record(seed: int = 0, **changes: Any) -> Record:
    config = {"cell": {"cell": "gru", "ops": ["keep", "max"]}, "seed": seed, "clip": None, **changes}
    return Record("logic", config, {"commit": "abc", "dirty": False}, {"test": {"accuracy": seed / 7}}, group="sweep")


def by_content(record: Record) -> str:
    return json.dumps(vars(record), sort_keys=True)


ODD = [
    [record()],
    [record(0), record(1)],
    [record(0), record(1, clip=2.0)],
    [record(0), record(1, cell={"cell": "lstm"})],
    [record(0), record(1, younger=3)],
    [record(0, younger={"a": 1}), record(1)],
    [record(0, cell=None), record(1)],
    [record(0), Record("lm", {}, {}, {"test": {}}, [{"update": 1}])],
    [record(0), record(0)],
]


@pytest.mark.parametrize("records", ODD)
def test_records_come_back_as_they_were(records: list[Record], tmp_path: Path) -> None:
    write_records(tmp_path / "records.jsonl", records)
    read = read_records(tmp_path / "records.jsonl")
    assert sorted(read, key=by_content) == sorted(records, key=by_content)


def test_the_order_does_not_matter(tmp_path: Path) -> None:
    records = [record(seed) for seed in range(5)]
    write_records(tmp_path / "one.jsonl", records)
    write_records(tmp_path / "other.jsonl", reversed(records))
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "other.jsonl").read_bytes()


def test_what_all_have_in_common_is_written_once(tmp_path: Path) -> None:
    write_records(tmp_path / "records.jsonl", [record(seed) for seed in range(5)])
    assert (tmp_path / "records.jsonl").read_text(encoding="utf-8").count("gru") == 1


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for text in (b"", b'{"update": 1}\n', b"1\n2\n", b"na\xefve\n", b"no JSON\n"):
        path.write_bytes(text)
        with pytest.raises(RecordError, match="no file of records"):
            read_records(path)


@pytest.mark.parametrize("name", ["config.json", "environment.json", "result.json"])
def test_a_file_of_a_run_that_holds_something_else(name: str, tmp_path: Path) -> None:
    files = {"config.json": '{"task": "toy", "config": {}}', "environment.json": "{}", "result.json": "{}"}
    for other, text in {**files, name: "[1]"}.items():
        (tmp_path / other).write_text(text, encoding="utf-8")
    with pytest.raises(RecordError, match=f"{name} is damaged: expected an object, got list"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"loss": NaN}', "NaN is not a finite number"),
        ('{"loss": -1e400}', "-1e400 is not"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_result_that_is_no_json(text: str, why: str, tmp_path: Path) -> None:
    for name in ("result.json", "metrics.jsonl"):
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    with pytest.raises(RecordError, match=rf"result\.json is damaged: .*{why}"):
        read_json(tmp_path / "result.json")
    with pytest.raises(RecordError, match=rf"metrics\.jsonl is damaged: .*{why}"):
        read_lines(tmp_path / "metrics.jsonl")


@pytest.mark.parametrize("test", ['"x"', '{"accuracy": "x"}'])
def test_metrics_that_are_no_numbers(test: str, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(f'{{"test": {test}}}', encoding="utf-8")
    with pytest.raises(RecordError, match=r"result\.json is damaged: expected numbers by name as the metrics of test"):
        read_result(tmp_path / "result.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "result.json")
    with pytest.raises(RecordError, match=r"result\.json is not a file"):
        read_json(tmp_path / "result.json")


def test_an_exported_model_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 3}', encoding="utf-8")
    with pytest.raises(RecordError, match="An exported model is no run: give the folder that `mufuru train` made"):
        read_run(tmp_path)
