"""The published records: each is a run that its experiment's command makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mufuru.experiments.record import Record
from mufuru.experiments.reproduce import EXPERIMENTS, recorded

RESULTS = Path(__file__).parents[3] / "results"


def published(name: str) -> list[Record]:
    found = recorded.read(RESULTS / name)
    assert found or not EXPERIMENTS[name].whole
    return found


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
    assert {recorded.place(job)[0] for job in left} <= EXPERIMENTS[name].unfinished


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
    assert EXPERIMENTS[name].unfinished <= parts
    assert parts - EXPERIMENTS[name].unfinished == {*EXPERIMENTS[name].whole}
