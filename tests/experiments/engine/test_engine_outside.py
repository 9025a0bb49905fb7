"""What a run shows while it goes, and what it tells of where it was made."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from toy import intrude, toy

import mufuru
from mufuru.experiments.engine import Progress, RunError, fit, progress_for, store
from mufuru.experiments.engine.progress import Live


class Notes(Progress):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        self.told.append(("start", total, done, metric))

    def step(self, update: int, loss: float) -> None:
        self.told.append(update)

    def validated(self, line: dict[str, Any]) -> None:
        self.told.append(("look", line["update"]))

    def stop(self) -> None:
        self.told.append("stop")


def test_progress_is_told_everything_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And after a stop it goes on counting where it was."""
    notes = Notes()
    with monkeypatch.context() as patch:
        intrude(patch, 3, lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fit("toy", toy(evaluate_every=2), tmp_path / "run", progress=notes, checkpoint_seconds=0)
    assert notes.told == [("start", 15, 0, "accuracy"), 1, 2, ("look", 2), "stop"]
    notes = Notes()
    fit("toy", toy(evaluate_every=2), tmp_path / "run", progress=notes, resume=True)
    assert notes.told[:4] == [("start", 15, 2, "accuracy"), 3, 4, ("look", 4)]
    assert notes.told[-3:] == [15, ("look", 15), "stop"]


def test_plain_lines(tmp_path: Path) -> None:
    """The first and the last, and none between since all is over within seconds."""
    stream = io.StringIO()
    fit("toy", toy(), tmp_path / "run", progress=progress_for(stream))
    title, first, last = stream.getvalue().splitlines()
    assert title == f"toy in {tmp_path / 'run'}: 15 updates"
    assert first.startswith("update 3/15  epoch 1  loss ")
    assert last.startswith("update 15/15  epoch 3  loss ")
    assert all(word in last for word in ("valid accuracy", "updates/s", "0:00:00 left"))


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=160, legacy_windows=False)
    fit("toy", toy(), tmp_path / "run", progress=Live(console, every=0.0))
    text = stream.getvalue()
    assert all(word in text for word in ("15/15", "loss", "valid accuracy", "updates/s"))
    assert text.rstrip().endswith("\x1b[?25h"), "the cursor is back"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_suits_a_stream() -> None:
    for stream, terminal in ((Terminal(), True), (io.StringIO(), False)):
        progress = progress_for(stream)
        assert isinstance(progress, Live)
        assert progress.terminal == terminal
    assert type(progress_for(Terminal(), quiet=True)) is Progress


def test_silence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fit("toy", toy(), tmp_path / "run")
    assert capfd.readouterr() == ("", "")


def test_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    fit("toy", toy(), tmp_path / "run", tensorboard=True)
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    found = [(event.step, event.value) for event in events.Scalars("accuracy/valid")]
    # TensorBoard keeps float32
    assert found == [(line["update"], pytest.approx(line["valid"]["accuracy"], rel=1e-6)) for line in lines]
    assert {"loss/train", "loss/valid", "learning_rate"} <= set(events.Tags()["scalars"])


def test_tensorboard_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(RunError, match="TensorBoard is not installed: `pip install tensorboard`"):
        fit("toy", toy(), tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


def test_the_environment_of_a_run(tmp_path: Path) -> None:
    fit("toy", toy(), tmp_path / "run")
    text = (tmp_path / "run" / "environment.json").read_text()
    found = json.loads(text)
    assert found["mufuru"] == mufuru.__version__
    assert found["python"] == sys.version.split()[0]
    assert found["kernel"] in ("native", "reference")
    assert found["threads"] >= 1
    for private in (str(Path.home()), str(Path.cwd()), str(tmp_path)):
        assert private not in text


def test_paths_of_the_machine_stay_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    argv = ["/usr/bin/mufuru", "train", "logic", f"{tmp_path}/runs/x", "--output=/home/me/y", "~/z", "--cell", "gru"]
    expected = ["mufuru", "train", "logic", "runs/x", "--output=y", "z", "--cell", "gru"]
    assert store.command(argv) == expected
    for module in ("mufuru/__main__.py", "mufuru_command.py"):
        assert store.command([module, "doctor"]) == ["mufuru", "doctor"]


def test_outside_of_a_checkout_there_is_no_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store.commit.cache_clear()
    monkeypatch.setattr(store, "SOURCE", tmp_path)
    assert store.commit() == {"commit": None, "dirty": None}
    store.commit.cache_clear()


def test_an_environment_that_changed_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        intrude(patch, 3, lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fit("toy", toy(), tmp_path / "run")
    monkeypatch.setattr(mufuru, "__version__", "9.9")
    fit("toy", toy(), tmp_path / "run", resume=True)
    found = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert found["resumed"] == [{"mufuru": "9.9"}]
