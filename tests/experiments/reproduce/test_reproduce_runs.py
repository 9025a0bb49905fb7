"""From nothing to a report: `mufuru reproduce lm` and `sentiment` on small data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from classify_data import config as classifier
from classify_data import write_csv
from commands import assert_refused, command
from lm_texts import config as language_model
from published_records import classifiers, language_models

from mufuru.experiments import reproduce, tasks
from mufuru.experiments.cli.reproduce import show
from mufuru.experiments.engine import Interrupted, fit
from mufuru.experiments.engine.sweep import Job, Outcome
from mufuru.experiments.record import Record, find_runs, read_records
from mufuru.experiments.reproduce import EXPERIMENTS, Reproduction
from mufuru.experiments.tasks.classify.config import DataConfig as Sequences
from mufuru.experiments.tasks.lm.config import DataConfig as Text


def write_book(path: Path) -> Path:
    path.write_text("the cat sat on the mat\nthe dog sat , and the cat ran\n" * 16)
    return path


def test_language_models(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time nothing is trained, nothing is announced, and everything is written again."""
    text = Text(text=(str(write_book(tmp_path / "book.txt")),))
    monkeypatch.setattr(reproduce.lm, "SHORT", language_model("mufuru", data=text))
    line = ("reproduce", "lm", "--short", "--jobs", 1, "--output", tmp_path / "runs", "--record", tmp_path / "kept")
    said = command(capsys, *line)
    assert said.code == 0, said.err
    assert said.err.startswith("2 of 2 runs to make: up to about 1 minute on 1 core. Ctrl-C saves them")
    for word in ("Once through the text", "MuFuRU", "GRU", "test perplexity", "report.html", "lm-curves-short.svg"):
        assert word in said.out
    assert [str(run.relative_to(tmp_path / "runs")) for run in find_runs(tmp_path / "runs")] == [
        "short/gru/seed-0",
        "short/mufuru/seed-0",
    ]
    (tmp_path / "runs" / "report" / "report.html").unlink()
    again = command(capsys, *line)
    assert (again.code, again.out, again.err) == (0, said.out, "")
    page = tmp_path / "runs" / "report" / "report.html"
    shown = page.read_text(encoding="utf-8")
    assert "mufuru/seed-0 (lm) reads an example. A row is a unit" in shown
    assert shown.index("lm (book.txt): test perplexity ") < shown.index("2 finished runs of MuFuRU, GRU")
    (tmp_path / "runs" / "short" / "mufuru" / "seed-0" / "best.safetensors").write_bytes(b"cut")
    assert command(capsys, "report", tmp_path / "runs", "--output", page).code == 0
    assert "There is no map of mufuru/seed-0: " in page.read_text(encoding="utf-8")
    kept = read_records(tmp_path / "kept" / "short.jsonl")
    assert [(record.group, len(record.curve)) for record in kept] == [("short", 2), ("short", 2)]


def test_what_is_finished_before_a_signal_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_and_stop(jobs: list[Job], **_: Any) -> Outcome:
        fit(jobs[0].kind, jobs[0].config, jobs[0].folder)
        raise Interrupted("stopped; all runs are saved")

    text = Text(text=(str(write_book(tmp_path / "book.txt")),))
    monkeypatch.setattr(reproduce.lm, "SHORT", language_model("mufuru", data=text))
    monkeypatch.setattr(reproduce, "sweep", one_and_stop)
    line = ("reproduce", "lm", "--short", "--output", tmp_path / "runs", "--record", tmp_path / "kept", "--quiet")
    assert command(capsys, *line).code == 130
    assert len(read_records(tmp_path / "kept" / "short.jsonl")) == 1
    # nor does a record that cannot be read or written hide the signal
    (tmp_path / "kept" / "short.jsonl").unlink()
    monkeypatch.setattr(reproduce, "sweep", Mock(side_effect=Interrupted("stopped; all runs are saved")))
    next((tmp_path / "runs").rglob("result.json")).write_text("{")
    said = command(capsys, *line)
    assert (said.code, said.err) == (130, "mufuru: stopped; all runs are saved\n")


def test_sentiment(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    data = Sequences(data=str(write_csv(tmp_path / "texts.csv")))
    monkeypatch.setattr(reproduce.sentiment, "SHORT", classifier("mufuru", data=data))
    said = command(capsys, "reproduce", "sentiment", "--short", "--jobs", 1, "--output", tmp_path / "runs", "--quiet")
    assert (said.code, said.out, said.err) == (0, "", "")
    assert len(find_runs(tmp_path / "runs")) == 4
    page = (tmp_path / "runs" / "report" / "report.html").read_text(encoding="utf-8")
    # what the trained model was asked: operations by class of word, and sentences
    for words in (
        "Which operation led in every unit",
        "negation",
        "the first short sentence with",
        "standard deviation of the weight between the tokens",
    ):
        assert words in page


def test_data_that_cannot_be_had_is_told_once_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce.lm, "SHORT", language_model(data=Text(text=(str(tmp_path / "none.txt"),))))
    said = command(capsys, "reproduce", "lm", "--short", "--output", tmp_path / "runs")
    assert_refused(said, 2, "none.txt: there is no such file")
    assert not (tmp_path / "runs").exists()


def test_data_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    note: Any = seen.append
    noting = replace(tasks.KINDS["lm"], make=note)
    monkeypatch.setattr(tasks, "KINDS", {"lm": noting})
    one = language_model("gru")
    other = replace(one, data=Text(text=("a.txt",)))
    configs = [one, replace(one, seed=1), other]
    reproduce.check_data([Job(str(n), "lm", c, tmp_path / str(n)) for n, c in enumerate(configs)])
    assert seen == [one, other]


def test_finished_runs_need_no_data(tmp_path: Path) -> None:
    """The report of what there is can be made where the data is not."""
    (tmp_path / "result.json").write_text("{}")
    missing = language_model(data=Text(text=("nowhere.txt",)))
    reproduce.check_data([Job("one", "lm", missing, tmp_path)])


@pytest.mark.parametrize(("name", "records"), [("lm", language_models()), ("sentiment", classifiers())])
def test_all_main_results_are_shown(name: str, records: list[Record], capsys: pytest.CaptureFixture[str]) -> None:
    """Results of every part are shown, also where one model has several settings."""
    show(name, Reproduction(Outcome(), records, [Path("report.html")]))
    said = capsys.readouterr().out
    experiment = EXPERIMENTS[name]
    assert all(experiment.parts[part].heading in said for part in experiment.whole)
    wanted = {
        "lm": ["MuFuRU, keep bias 0", "MuFuRU, keep bias 3", "GRU, keep bias 1"],
        "sentiment": ["TreeMuFuRU, hidden size 100"],
    }
    assert all(words in said for words in (*wanted[name], "Written:\n  report.html"))


def test_what_can_be_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Job] = []

    def note(jobs: list[Job], **_: object) -> Outcome:
        asked[:] = jobs
        return Outcome()

    monkeypatch.setattr(reproduce, "sweep", note)
    monkeypatch.setattr(reproduce, "check_data", lambda jobs: None)
    (tmp_path / "runs").mkdir()
    place = ("--output", tmp_path / "runs")
    said = command(
        capsys, "reproduce", "sentiment", "--part", "dimensions", "--dimensions", 50, 300, "--seeds", 1, *place
    )
    assert said.code == 0, said.err
    assert [job.name for job in asked] == [
        f"dimensions/{cell}-glove{size}/seed-0" for cell in ("gru", "mufuru") for size in (50, 300)
    ]
    assert said.err.startswith("4 of 4 runs to make: up to about ")
    said = command(capsys, "reproduce", "lm", "--part", "best", "--cells", "lstm", *place)
    assert [job.name for job in asked] == ["best/lstm/seed-0"]
    assert_refused(command(capsys, "reproduce", "lm", "--part", "lena"), 2, "--part", "lean")
    assert_refused(command(capsys, "reproduce", "sentiment", "--dimensions", 64), 2, "dimensions should be some of 50")
    assert_refused(command(capsys, "reproduce", "lm", "--seeds", 0), 2, "seeds should be a number above 0, got 0")


@pytest.mark.parametrize("name", reproduce.EXPERIMENTS)
def test_help_has_examples_that_parse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from mufuru.experiments.cli import reproduce as cli

    said = command(capsys, "reproduce", name, "--help")
    assert said.code == 0
    examples = [line.split()[3:] for line in cli.examples(name).splitlines()]
    assert len(examples) == 4
    for arguments in examples:
        assert " ".join(arguments) in said.out
        assert cli.parse_experiment(name, arguments)[1].jobs(Path())
