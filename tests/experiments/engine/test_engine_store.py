"""What a run folder holds when a run could not begin, and when the program has learned new settings since."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from lm_texts import config
from toy import intrude, toy

from mufuru.experiments.data import DataError
from mufuru.experiments.engine import Interrupted, RunError, checkpoint, fit, load_run
from mufuru.experiments.engine.checkpoint import Checkpoint
from mufuru.experiments.engine.sweep import Job, sweep
from mufuru.experiments.record import RunFolder
from mufuru.experiments.settings import SettingError, Training, from_json, to_json
from mufuru.experiments.tasks.lm.config import DataConfig, LMConfig


def without_text(tmp_path: Path) -> LMConfig:
    return config(data=DataConfig(text=(str(tmp_path / "nowhere.txt"),)))


def test_data_that_cannot_be_had_leaves_no_run_behind(tmp_path: Path) -> None:
    """The corrected command can use the same folder."""
    for _ in range(2):
        with pytest.raises(DataError, match=r"nowhere\.txt"):
            fit("lm", without_text(tmp_path), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_sweep_says_which_data_cannot_be_had(tmp_path: Path) -> None:
    """In a sentence: it is the user's mistake, not a bug."""
    job = Job("one", "lm", without_text(tmp_path), tmp_path / "run")
    failure = sweep([job], workers=1, quiet=True).failed["one"]
    assert "nowhere.txt" in failure
    assert "bug" not in failure


def test_a_run_whose_data_is_gone_says_where_it_looked(tmp_path: Path) -> None:
    text = tmp_path / "book.txt"
    text.write_text("a b c d\n" * 50, encoding="utf-8")
    settings = config(data=DataConfig(text=(str(text),)))
    fit("lm", settings, tmp_path / "run")
    text.unlink()
    with pytest.raises(
        RunError, match=r"the data of the run in .* cannot be loaded: .*book\.txt.* in which it was started"
    ):
        load_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "value"), [("epochs", 1.9), ("epochs", True), ("select", 3), ("clip", "1"), ("learning_rate", None)]
)
def test_a_setting_of_another_type_is_refused(name: str, value: Any) -> None:
    settings = to_json(toy().training)
    assert from_json(Training, settings | {"clip": 1}).clip == 1.0
    with pytest.raises(SettingError, match=name):
        from_json(Training, settings | {name: value})


def forget_decay(document: dict[str, Any]) -> dict[str, Any]:
    """A config as a version wrote it that did not know this setting, whose default is not None."""
    del document["config"]["training"]["decay"]
    return document


def make_older(run: RunFolder) -> None:
    """Config and checkpoint as that version wrote them."""
    run.config.write_text(json.dumps(forget_decay(json.loads(run.config.read_text(encoding="utf-8")))))
    last = checkpoint.load(run.last)
    checkpoint.save(run.last, Checkpoint(last.tensors, {**last.values, "run": forget_decay(last.values["run"])}))


def test_a_setting_younger_than_the_run_has_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit("toy", toy(), tmp_path / "whole")
    with monkeypatch.context() as patch:
        intrude(patch, 4, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(Interrupted):
            fit("toy", toy(), tmp_path / "run")
    make_older(RunFolder(tmp_path / "run"))
    with pytest.raises(RunError, match=r"training\.decay is 0\.5 there and 0\.9 here"):
        fit("toy", toy(decay=0.9), tmp_path / "run", resume=True)
    result = fit("toy", toy(), tmp_path / "run", resume=True)
    assert result["test"] == whole["test"]


def test_a_setting_that_this_version_does_not_know_is_named(tmp_path: Path) -> None:
    fit("toy", toy(), tmp_path / "run")
    path = RunFolder(tmp_path / "run").config
    document = json.loads(path.read_text(encoding="utf-8"))
    document["config"]["unheard_of"] = 1
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(RunError, match="unheard_of is 1 there and null here"):
        fit("toy", toy(), tmp_path / "run", resume=True)
