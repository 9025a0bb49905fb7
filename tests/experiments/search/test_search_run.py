"""A search with runs that cost nothing: what is made, what is kept, and what is made again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mufuru.experiments.cli.train import parse_run
from mufuru.experiments.engine import sweep as engine
from mufuru.experiments.engine.errors import PlaceError, RunError
from mufuru.experiments.engine.store import open_store
from mufuru.experiments.engine.sweep import Where
from mufuru.experiments.engine.work import Ended, Event, Job, Looked, Validation
from mufuru.experiments.record import config_document
from mufuru.experiments.search import results
from mufuru.experiments.search import run as search_module
from mufuru.experiments.search.run import Made, Method, Search, run
from mufuru.experiments.search.space import parse_space
from mufuru.experiments.search.state import NAME, Trial
from mufuru.experiments.settings import SettingError, Training
from mufuru.experiments.tasks import KINDS
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.logic.config import LogicConfig

CONFIG = LogicConfig(CellConfig(hidden_size=2), Training(epochs=9, batch_size=10), 0, 20, 10, 10)
RATES = "learning_rate=log:1e-4:1e-2"


@dataclass
class Pretending:
    """A backend whose runs have the accuracy of a function, in every validation, and take one call each."""

    accuracy: Callable[[Any], float]
    most: int = 2
    fails: Callable[[Any], bool] = lambda config: False

    def __post_init__(self) -> None:
        self.jobs: dict[str, list[Any]] = {}
        self.halted: set[str] = set()
        self.started: list[str] = []
        self.calls = 0

    def running(self) -> dict[str, tuple[Job, float]]:
        return {name: (job, 0.5) for name, (job, _) in self.jobs.items()}

    def room(self) -> int:
        return self.most - len(self.jobs)

    def start(self, job: Job) -> None:
        self.started.append(job.name)
        self.jobs[job.name] = [job, 0]

    def listen(self, seconds: float) -> list[Event]:
        self.calls += 1
        events: list[Event] = []
        for name, pair in list(self.jobs.items()):
            job, pair[1] = pair[0], pair[1] + 1
            if name in self.halted or pair[1] > job.config.training.epochs:
                del self.jobs[name]
                events.append(self.end(job, name in self.halted))
            else:
                events.append(Looked(job, Validation(pair[1], self.accuracy(job.config))))
        return events

    def end(self, job: Job, halted: bool) -> Ended:
        if halted:
            return Ended(job, None, halted=True)
        if self.fails(job.config):
            return Ended(job, "first line\nthe disk is on fire")
        with open_store(job.folder, config_document(job.kind, job.config), resume=False) as store:
            store.begin()
            store.finish({"valid": {"accuracy": self.accuracy(job.config)}, "test": {"accuracy": 0.5}})
        return Ended(job, None)

    def halt(self, name: str) -> None:
        self.halted.add(name)

    def stop(self) -> None: ...

    def close(self) -> None: ...


def best_at_a_thousandth(config: Any) -> float:
    return 1.0 / (1.0 + abs(float(config.training.learning_rate) - 1e-3))


def search(*over: str, method: Method = "random", **options: Any) -> Search:
    return Search("logic", CONFIG, parse_space(over, CONFIG), over, method, **options)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pretending]:
    def make(accuracy: Callable[[Any], float] = best_at_a_thousandth, **options: Any) -> Pretending:
        backend = Pretending(accuracy, **options)
        monkeypatch.setattr(engine, "Processes", lambda *_: backend)
        return backend

    return make


Pretend = Callable[..., Pretending]


def state_of(folder: Path) -> Any:
    return json.loads((folder / NAME).read_text())


def test_the_best_of_a_random_search(pretend: Pretend, tmp_path: Path) -> None:
    backend = pretend()
    made = run(search(RATES, trials=12), Where(tmp_path), quiet=True)
    assert len(backend.started) == 12
    rates = {trial.number: trial.settings["training.learning_rate"] for trial in made.trials}
    assert made.best is not None
    assert rates[made.best.number] == min(rates.values(), key=lambda rate: abs(rate - 1e-3))
    assert made.best.validations == [made.best.value] * 9
    assert [trial.value for trial in made.ranked] == sorted((t.value or 0.0 for t in made.trials), reverse=True)
    config = json.loads((tmp_path / made.best.name / "config.json").read_text())["config"]
    assert config["training"]["learning_rate"] == rates[made.best.number]


def test_finished_trials_are_not_made_again_and_more_can_be_added(pretend: Pretend, tmp_path: Path) -> None:
    pretend()
    first = run(search(RATES, trials=3), Where(tmp_path), quiet=True)
    backend = pretend()
    assert run(search(RATES, trials=3), Where(tmp_path), quiet=True).trials == first.trials
    assert backend.started == []
    more = run(search(RATES, trials=5), Where(tmp_path), quiet=True)
    assert backend.started == ["trial-0003", "trial-0004"]
    assert more.trials[:3] == first.trials


def test_a_killed_search_loses_nothing(pretend: Pretend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = pretend(most=1)
    listen = backend.listen

    def die(seconds: float) -> list[Event]:
        # in the middle of the third trial; the second is finished, and the state does not know it yet
        if backend.calls == 14:
            raise KeyboardInterrupt
        return listen(seconds)

    monkeypatch.setattr(backend, "listen", die)
    with pytest.raises(KeyboardInterrupt):
        run(search(RATES, trials=4), Where(tmp_path), quiet=True)
    state = state_of(tmp_path)
    assert [trial["state"] for trial in state["trials"]] == ["finished", "begun"]
    # the result was written, the state was not
    backend = pretend()
    backend.end(search(RATES).job(1, tmp_path), halted=False)
    made = run(search(RATES, trials=4), Where(tmp_path), quiet=True)
    assert backend.started == ["trial-0002", "trial-0003"]
    assert [trial.state for trial in made.trials] == ["finished"] * 4


def test_failed_trials_are_kept_and_tried_again(pretend: Pretend, tmp_path: Path) -> None:
    pretend(fails=lambda config: config.seed == 1)
    made = run(search("seed=0,1,2", method="grid"), Where(tmp_path), quiet=True)
    assert [trial.state for trial in made.trials] == ["finished", "failed", "finished"]
    assert made.trials[1].reason == "first line\nthe disk is on fire"
    backend = pretend()
    made = run(search("seed=0,1,2", method="grid"), Where(tmp_path), quiet=True)
    assert backend.started == ["trial-0001"]
    assert [(trial.state, trial.reason) for trial in made.trials] == [("finished", "")] * 3


def test_hours_end_a_search(pretend: Pretend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = pretend(most=1)

    class Clock:
        """A minute passes with every call of the backend."""

        @staticmethod
        def monotonic() -> float:
            return 60.0 * backend.calls

    monkeypatch.setattr(search_module, "time", Clock)
    made = run(search(RATES, hours=0.5), Where(tmp_path), quiet=True)
    # each trial takes ten calls
    assert [trial.state for trial in made.trials] == ["finished", "finished", "finished"]
    assert state_of(tmp_path)["seconds"] == 1800
    assert run(search(RATES, hours=0.5), Where(tmp_path), quiet=True).trials == made.trials
    # later minutes are added to these
    backend.calls = 0
    assert len(run(search(RATES, hours=0.6), Where(tmp_path), quiet=True).trials) == 4


def test_halving_stops_what_falls_behind(pretend: Pretend, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    backend = pretend(lambda config: config.training.learning_rate, most=1)
    over = "learning_rate=1e-1,2e-1,3e-1,1e-2,2e-2,4e-1"
    made = run(replace(search(over, method="asha"), seed=5), Where(tmp_path), quiet=True)
    states = {trial.settings["training.learning_rate"]: trial.state for trial in made.trials}
    assert states[4e-1] == "finished"
    assert made.best is not None
    assert made.best.settings == {"training.learning_rate": 4e-1}
    early = [trial for trial in made.trials if trial.state == "stopped early"]
    assert early
    # a trial is judged after 1, 3 and 9 validations; the first one is never behind
    assert {len(trial.validations) for trial in early} <= {1, 3, 9}
    assert made.trials[0].state == "finished"
    assert backend.halted == {trial.name for trial in early}


def test_halving_remembers_the_trials_of_earlier_sessions(pretend: Pretend, tmp_path: Path) -> None:
    """In a session of its own the first trial is never behind."""
    pytest.importorskip("optuna")
    pretend()
    run(search(RATES, method="asha", trials=3), Where(tmp_path), quiet=True)
    backend = pretend(lambda config: 0.0)
    made = run(search(RATES, method="asha", trials=4), Where(tmp_path), quiet=True)
    assert (made.trials[3].state, len(made.trials[3].validations)) == ("stopped early", 1)
    assert backend.started == ["trial-0003"]


def test_one_folder_has_one_search(pretend: Pretend, tmp_path: Path) -> None:
    pretend()
    run(search(RATES, trials=1), Where(tmp_path), quiet=True)
    before = (tmp_path / NAME).read_bytes()
    for other in (search("seed=0,1"), search(RATES, method="asha"), replace(search(RATES), seed=1)):
        with pytest.raises(PlaceError, match=r"holds another sweep, with a different (over|search|search seed)"):
            run(other, Where(tmp_path), quiet=True)
    assert (tmp_path / NAME).read_bytes() == before


def test_two_searches_at_once_in_one_folder_are_refused(pretend: Pretend, tmp_path: Path) -> None:
    backend = pretend()
    met: list[bool] = []
    listen = backend.listen

    def second(seconds: float) -> list[Event]:
        if not met:
            with pytest.raises(PlaceError, match=r"another sweep is at work in .*: wait for it, stop it, or choose"):
                run(search(RATES), Where(tmp_path), quiet=True)
            met.append(True)
        return listen(seconds)

    backend.listen = second  # type: ignore[method-assign]
    assert len(run(search(RATES, trials=2), Where(tmp_path), quiet=True).trials) == 2
    assert met


def test_two_searches_at_once_behind_one_url_are_refused(
    pretend: Pretend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, store = pretend(), f"file://{tmp_path}/store"
    monkeypatch.setattr(engine, "fetch_records", lambda *_: None)
    monkeypatch.setattr(search_module, "fetch_weights", lambda *_: None)
    listen = backend.listen

    def second(seconds: float) -> list[Event]:
        if backend.calls == 0:
            with pytest.raises(PlaceError, match=r"another sweep is at work in file://.*/store, on "):
                run(search(RATES), Where(tmp_path / "other", store=store), quiet=True)
        return listen(seconds)

    backend.listen = second  # type: ignore[method-assign]
    assert len(run(search(RATES, trials=2), Where(tmp_path / "one", store=store), quiet=True).trials) == 2
    # its state is there too: another machine knows of both trials
    backend.started = []
    assert len(run(search(RATES, trials=2), Where(tmp_path / "two", store=store), quiet=True).trials) == 2
    assert backend.started == []
    assert not (tmp_path / "store" / "sweep.lock").exists()


def test_a_damaged_state_is_refused(pretend: Pretend, tmp_path: Path) -> None:
    pretend()
    (tmp_path / NAME).write_text('{"trials": 3')
    with pytest.raises(PlaceError, match=r"sweep\.json is damaged"):
        run(search(RATES), Where(tmp_path), quiet=True)
    (tmp_path / NAME).write_text('{"trials": 3}')
    with pytest.raises(PlaceError, match=r"sweep\.json in .* is damaged"):
        run(search(RATES), Where(tmp_path), quiet=True)


def test_a_full_disk_is_a_sentence_and_nothing_is_lost(
    pretend: Pretend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend()
    run(search(RATES, trials=1), Where(tmp_path), quiet=True)
    before = (tmp_path / NAME).read_bytes()

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mufuru.experiments.search.state.write_atomically", full)
    with pytest.raises(
        RunError, match=r"cannot write .*sweep\.json \(No space left on device\): what was saved before"
    ):
        run(search(RATES, trials=2), Where(tmp_path), quiet=True)
    assert (tmp_path / NAME).read_bytes() == before


def test_a_grid_needs_lists() -> None:
    with pytest.raises(SettingError, match=r"--search grid needs a number of values for learning_rate: such as log:"):
        search("seed=0,1", RATES, method="grid")


def test_trials_that_the_settings_refuse_are_refused_before_any_starts() -> None:
    with pytest.raises(
        SettingError, match=r"--over allows cell gru, controller_size 8: controller_size is an option of"
    ):
        search("cell=mufuru,gru", "controller_size=None,8", method="grid")


def test_limits() -> None:
    assert search(RATES).limit == 20
    assert search("seed=0,1,2").limit == 3
    assert search("seed=0,1,2", trials=2).limit == 2
    assert search("seed=0,1,2", method="grid").limit == 3
    assert search(RATES, hours=1.0).endless
    assert search(RATES, hours=1.0, trials=7).limit == 7


def test_table_and_plot(tmp_path: Path) -> None:
    some = search("learning_rate=log:1e-4:1e-2", "cell=mufuru,gru")
    trials = [Trial(number, some.values(number), "finished", [0.5], 0.5 + number / 10) for number in range(3)]
    trials[1].state, trials[1].value = "stopped early", None
    made = Made(trials, "accuracy", higher_is_better=True)
    files = results.write(some.space, made, tmp_path)
    assert [path.name for path in files] == ["table.md", "plot.svg", "plot.png"]
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert lines[0] == "| trial | learning_rate | cell | valid accuracy | validations | state |"
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| trial-0002", "| trial-0000", "| trial-0001"]
    picture = (tmp_path / "plot.svg").read_text()
    for word in ("learning_rate", "cell", "valid accuracy", "best", "not finished", "gru"):
        assert word in picture


@pytest.mark.parametrize(
    ("kind", "over"),
    [
        ("logic", ("learning_rate=log:1e-4:1e-2", "cell=gru,lstm")),
        (
            "lm",
            ("tied=false,true", "embedding_size=None,100", "keep_bias=-1.5,None", "clip=None,1", "average=None,0.9"),
        ),
        ("classify", ("pooling=max,mean", "bucketing=true,false", "schedule=constant,cosine")),
    ],
)
def test_the_command_repeats_a_trial(kind: str, over: tuple[str, ...]) -> None:
    preset = list(KINDS[kind].presets.values())[-1]
    config = replace(preset, data=replace(preset.data, text=("a b.txt", "c.txt"))) if kind == "lm" else preset
    some = Search(kind, config, parse_space(over, config), over, trials=8)
    for number in range(some.limit):
        line = shlex.split(results.train_command(kind, some.settings_of(number)))
        assert line[:2] == ["mufuru", "train"]
        assert parse_run(line[2:])[2] == some.settings_of(number)
