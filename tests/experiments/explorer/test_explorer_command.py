"""`mufuru explore` as a user meets it: where the page is, which runs it has, and how it ends."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from commands import TINY, assert_refused, command, start
from explored_runs import trained_folders

from mufuru.experiments.cli import explore, main
from mufuru.experiments.cli.usage import UsageError
from mufuru.experiments.engine import RunError
from mufuru.experiments.explorer.runs import View
from mufuru.experiments.record import RecordError
from mufuru.experiments.tasks.task import KEPT


def first_lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def get(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=30) as response:
        return json.load(response)


def test_it_serves_takes_the_next_port_and_ends_with_ctrl_c() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start("explore", "--port", port)
        try:
            said = first_lines(process, 2)
            assert said[0].startswith(f"Port {port} is taken, this is ")
            address = said[1].split(": ", 1)[1].split()[0]
            assert said[1].startswith("Looking into mufuru-8, gru-8: http://127.0.0.1:")
            assert [run["name"] for run in get(f"{address}api/runs")["runs"]] == ["mufuru-8", "gru-8"]
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert (process.returncode, err) == (0, "")


def test_runs_of_every_kind_are_loaded_from_their_folders() -> None:
    folders = trained_folders()
    runs = explore.load(list(folders.values()))
    assert [(run.name, run.kind, run.info()["takes"]) for run in runs] == [
        ("words", "lm", "words"),
        ("letters", "lm", "characters"),
        ("texts", "classify", "words"),
        ("series", "classify", "series"),
    ]
    assert "perplexity" in runs[0].scores
    assert "accuracy" in runs[2].scores


def test_names_tell_runs_apart(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "seed-0", tmp_path / "b" / "seed-0"]
    assert explore.names(paths) == ["a/seed-0", "b/seed-0"]
    assert explore.names(paths[:1]) == ["seed-0"]
    with pytest.raises(UsageError, match="twice"):
        explore.names([paths[0], paths[0]])


def test_a_folder_of_runs_shows_the_finished_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b", "a", "unfinished"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text("{}")
        if name != "unfinished":
            (tmp_path / "runs" / name / "result.json").write_text("{}")
    runs = tmp_path / "runs"
    assert explore.run_folders([runs]) == [runs / "a", runs / "b"]
    assert explore.run_folders([runs / "unfinished", runs]) == [runs / "unfinished", runs / "a", runs / "b"]
    monkeypatch.setattr(explore, "MOST", 1)
    with pytest.raises(RunError, match="2 runs are too many for one page, at most 1"):
        explore.run_folders([runs])


def test_a_run_that_is_not_finished_can_be_looked_into(tmp_path: Path) -> None:
    assert main(["train", "logic", *TINY, "--epochs", "1", "--quiet", "--output", str(tmp_path / "run")]) == 0
    (tmp_path / "run" / "result.json").unlink()
    assert explore.load([tmp_path / "run"])[0].scores == {}


def test_own_classifiers_and_series_begin_with_validation_data(tmp_path: Path) -> None:
    folders = trained_folders()
    for name, data in (("texts", "texts.csv"), ("series", "bumps.tsv")):
        (run,) = explore.load([folders[name]])
        examples = run.info()["examples"]
        assert 2 <= len(examples) <= 5 <= KEPT
        assert examples == list(run.examples[:5])
        lines = (folders[name].parent / data).read_text().splitlines()
        for text in examples:
            steps = run.answer(View(run.name, text))["tokens"]
            if name == "texts":
                assert any(text in line for line in lines)
                assert steps == text.split()
            else:
                # told to six places
                series = [[float(value) for value in re.split(r"[\t,]", line)[1:] if value] for line in lines]
                assert any([float(value) for value in text.split()] == pytest.approx(row, rel=1e-5) for row in series)
    old = tmp_path / "old"
    shutil.copytree(folders["series"], old)
    (old / "examples.json").write_text('{"texts": 3}')
    with pytest.raises(RecordError, match=r"examples.json is damaged: expected a list of texts"):
        explore.load([old])
    (old / "examples.json").unlink()
    assert explore.load([old])[0].info()["examples"] == []


def test_a_language_model_begins_with_its_validation_text() -> None:
    """A passage reads as the tokens that it was cut from."""
    for run in explore.load([trained_folders()["words"], trained_folders()["letters"]]):
        assert run.examples
        for text in run.examples:
            answer = run.answer(View(run.name, text))
            assert answer["notes"] == []
            shown = answer["tokens"][1:]
            lines = " ".join(shown).replace(" <eos>", "\n").replace("\n ", "\n")
            assert ("".join(shown) if run.name == "letters" else lines) == text


def test_mistakes_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_refused(command(capsys, "explore", tmp_path / "none"), 2, "is missing", "none")
    assert_refused(command(capsys, "explore", tmp_path), 2, "no finished run in", "mufuru train")
    assert_refused(command(capsys, "explore", "--port", "0"), 2, "--port should be from 1 to 65535")
    assert_refused(command(capsys, "explore", "--prt", "1"), 2, "--port")
    assert_refused(command(capsys, "explore", "--host", "203.0.113.1"), 1, "cannot listen on 203.0.113.1")
    (tmp_path / "config.json").write_text('{"task": "dance", "config": {}}')
    assert_refused(command(capsys, "explore", tmp_path), 2, "dance")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    assert_refused(command(capsys, "explore"), 2, "uvicorn", "pip install '.[explore]'")


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "explore", "--help")
    assert said.code == 0
    assert "mufuru explore runs/mufuru runs/gru" in said.out
