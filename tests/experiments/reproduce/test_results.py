"""The published records: each is a run that its experiment's command makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mufuru.experiments.engine.sweep import Job
from mufuru.experiments.record import Record
from mufuru.experiments.reproduce import EXPERIMENTS, languages, recorded
from mufuru.experiments.settings import to_json

RESULTS = Path(__file__).parents[3] / "results"


def published(name: str) -> list[Record]:
    found = recorded.read(RESULTS / name)
    assert found or not EXPERIMENTS[name].whole
    return found


def as_record(job: Job) -> Record:
    return Record(job.kind, to_json(job.config), {}, {}, group=recorded.place(job)[0])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_record_is_a_run_of_the_experiment(name: str) -> None:
    """After a change of a preset or of a grid, records of before are not mistaken for its runs."""
    made = {recorded.place(job) for job in EXPERIMENTS[name].grid().jobs(Path())}
    found = [recorded.place(record) for record in published(name)]
    assert [one for one in found if one not in made] == []
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_run_of_the_experiment_has_a_record(name: str) -> None:
    """The first page says so; parts that are marked as unfinished may lack some, and no page shows them."""
    left = recorded.without_record(EXPERIMENTS[name].grid().jobs(Path()), published(name))
    assert not [job.name for job in left if EXPERIMENTS[name].is_published(as_record(job))]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_record_comes_from_a_commit(name: str) -> None:
    """Not from code that nobody else has."""
    for record in published(name):
        assert record.environment["commit"]
        assert not record.environment["dirty"]
        # where it was resumed, by what was different
        for changed in record.environment.get("resumed", []):
            assert changed.get("commit", "the same")
            assert not changed.get("dirty")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_part_is_published_when_it_is_whole(name: str) -> None:
    """The report, from which the pages are made, does not know a part that is marked as unfinished."""
    parts = {recorded.place(job)[0] for job in EXPERIMENTS[name].grid().jobs(Path())}
    assert {part.partition("/")[0] for part in EXPERIMENTS[name].unfinished} <= parts
    assert parts - EXPERIMENTS[name].unfinished == {*EXPERIMENTS[name].whole}


def test_a_language_is_published_when_its_runs_are_whole() -> None:
    report = replace(EXPERIMENTS["languages"], unfinished=frozenset({"flare/first", "flare-more", "equal-state"}))
    jobs = report.grid(part="flare", seeds=1).jobs(Path())
    shown = [job.config.data.language for job in jobs if report.is_published(as_record(job))]
    assert set(shown) == set(languages.FIRST) - {"first"}
    (text,) = report.document([])["flare"].splitlines()[-1:]
    assert text == "Still to come, since their runs are being made: first."
