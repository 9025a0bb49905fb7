"""The published records: each is a run that its experiment's command makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mufuru.experiments import tasks
from mufuru.experiments.record import Record, read_records
from mufuru.experiments.reproduce import EXPERIMENTS
from mufuru.experiments.settings import from_json

RESULTS = Path(__file__).parents[2] / "results"


def published(name: str) -> list[Record]:
    found = [record for file in sorted((RESULTS / name).glob("*.jsonl")) for record in read_records(file)]
    assert found
    return found


def place(record: Record) -> tuple[str, str, object]:
    """Part, task and settings; settings newer than the record have their defaults."""
    return record.group, record.task, from_json(tasks.KINDS[record.task].config, record.config)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_record_is_a_run_of_the_experiment(name: str) -> None:
    """After a change of a preset or of a grid, records of before are not mistaken for its runs."""
    jobs = EXPERIMENTS[name].grid().jobs(Path())
    made = {(job.name.partition("/")[0], job.kind, job.config) for job in jobs}
    found = [place(record) for record in published(name)]
    assert [one for one in found if one not in made] == []
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_run_of_the_experiment_has_a_record(name: str) -> None:
    """The first page says so."""
    jobs = EXPERIMENTS[name].grid().jobs(Path())
    found = [place(record) for record in published(name)]
    assert [job.name for job in jobs if (job.name.partition("/")[0], job.kind, job.config) not in found] == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_record_comes_from_a_commit(name: str) -> None:
    """Not from code that nobody else has."""
    for record in published(name):
        assert record.environment["commit"]
        assert not record.environment["dirty"]
        # where it was gone on with, by what was different
        for changed in record.environment.get("resumed", []):
            assert changed.get("commit", "the same")
            assert not changed.get("dirty")
