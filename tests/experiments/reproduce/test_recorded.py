"""An experiment goes on from its records: on another machine, in another folder, run by run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from commands import Said, command
from published_records import lm_record

from mufuru.experiments import reproduce
from mufuru.experiments.engine.sweep import Job
from mufuru.experiments.record import Record, find_runs, read_records
from mufuru.experiments.reproduce import logic, recorded
from mufuru.experiments.reproduce.lm import LMGrid
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.logic.config import PRESETS, LogicConfig

TINY = LogicConfig(CellConfig(hidden_size=2), Training(epochs=2, batch_size=10), 0, 20, 10, 10)
JOBS = LMGrid(part="keep").jobs(Path())


@pytest.fixture(autouse=True)
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "short", TINY)
    monkeypatch.setattr(reproduce.logic, "SHORT_SEEDS", 1)


def short(capsys: pytest.CaptureFixture[str], machine: Path, kept: Path, *options: Any) -> Said:
    said = command(capsys, "reproduce", "logic", "--short", "--jobs", 1, "-o", machine, "--record", kept, *options)
    assert said.code == 0, said.err
    return said


def names(runs: Path) -> list[str]:
    return [run.relative_to(runs).as_posix() for run in find_runs(runs)]


def cells(kept: Path) -> list[str]:
    return [record.config["cell"]["cell"] for record in read_records(kept / "short.jsonl")]


def test_another_machine_makes_only_what_has_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first makes one of two runs, the second the other one, and together they are as made on one."""
    one, other, kept = tmp_path / "one", tmp_path / "other", tmp_path / "kept"
    short(capsys, one, tmp_path / "whole")
    shutil.rmtree(one / "short" / "mufuru-8")
    said = short(capsys, one, kept, "--collect")
    assert "Not finished: 1 of the runs." in said.out
    assert cells(kept) == ["gru"]
    first = read_records(kept / "short.jsonl")
    said = short(capsys, other, kept)
    assert said.err.startswith("1 of 2 runs have a record: not made again.")
    assert "Not finished" not in said.out
    # the table and the report have both runs, this machine one of them
    assert "GRU" in said.out
    assert "GRU" in (other / "report" / "report.html").read_text(encoding="utf-8")
    assert names(other) == ["short/mufuru-8/seed-0"]
    merged = read_records(kept / "short.jsonl")
    assert merged[:1] == first
    assert [numbers(r) for r in merged] == [numbers(r) for r in read_records(tmp_path / "whole" / "short.jsonl")]


def numbers(record: Record) -> tuple[Any, ...]:
    """All but the time that a run took."""
    return record.group, record.config, {**record.result, "seconds": 0}


def test_whole_records_leave_nothing_to_make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short(capsys, tmp_path / "one", tmp_path / "kept")
    before = (tmp_path / "kept" / "short.jsonl").read_bytes()
    said = short(capsys, tmp_path / "other", tmp_path / "kept")
    assert said.err == "2 of 2 runs have a record: not made again.\n"
    assert names(tmp_path / "other") == []
    assert (tmp_path / "kept" / "short.jsonl").read_bytes() == before


def test_collecting_makes_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not where nothing is finished either."""
    said = short(capsys, tmp_path / "runs", tmp_path / "kept", "--collect")
    assert (said.out, said.err) == ("Not finished: 2 of the runs.\n", "")
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "kept").exists()


def test_a_part_without_a_section_has_records_and_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it is unfinished."""
    monkeypatch.delitem(cast(dict[str, object], logic.EXPERIMENT.sections), "features")
    runs = tmp_path / "runs"
    short(capsys, runs, tmp_path / "kept")
    (runs / "short").rename(runs / "features")
    shutil.rmtree(runs / "report")
    line = ("reproduce", "logic", "--part", "features", "--collect", "--output", runs, "--record", tmp_path / "kept")
    said = command(capsys, *line)
    assert (said.code, said.out) == (0, "Not finished: 160 of the runs.\n")
    assert not (runs / "report").exists()
    assert [record.group for record in read_records(tmp_path / "kept" / "features.jsonl")] == ["features"] * 2


def test_runs_are_added_in_any_order(tmp_path: Path) -> None:
    records = [lm_record(job) for job in JOBS]
    for place, some in {"a": (records,), "b": (records[1:], records[:1]), "c": (records[:2], records[1:])}.items():
        for found in some:
            recorded.save(found, tmp_path / place, 40)
    a, b, c = ((tmp_path / place / "keep.jsonl").read_bytes() for place in "abc")
    assert a == b == c


def test_a_finished_run_replaces_its_record(tmp_path: Path) -> None:
    """It may know more: dynamic evaluation comes after the end of a run."""
    record = lm_record(JOBS[0])
    recorded.save([record], tmp_path)
    recorded.save([replace(record, dynamic={"perplexity": 99.0})], tmp_path)
    assert [one.dynamic for one in recorded.read(tmp_path)] == [{"perplexity": 99.0}]


def test_what_is_the_same_run(tmp_path: Path) -> None:
    """Part, task and every setting; one that is newer than the record has its default."""
    one, *others = JOBS
    record = lm_record(one)
    assert recorded.without_record(JOBS, [record]) == others
    older = {**record.config, "cell": {k: v for k, v in record.config["cell"].items() if k != "activation"}}
    assert recorded.without_record(JOBS, [replace(record, config=older)]) == others
    for changed in (replace(record, group="paper"), replace(record, config={**record.config, "seed": 7})):
        assert recorded.without_record(JOBS, [changed]) == JOBS
    assert recorded.without_record([Job(one.name, one.kind, one.config, tmp_path / "elsewhere")], [record]) == []
