"""The search itself: which trials are run, and their outcomes."""

import importlib
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mufuru.experiments import tasks
from mufuru.experiments.engine.errors import PlaceError
from mufuru.experiments.engine.progress import Overall
from mufuru.experiments.engine.remote import Remote, fetch_weights
from mufuru.experiments.engine.sweep import Pool, Where, is_finished, opened
from mufuru.experiments.engine.work import Job, Validation
from mufuru.experiments.record import RunFolder, read_json
from mufuru.experiments.search.space import Space, Values, changed
from mufuru.experiments.search.state import Journal, Trial
from mufuru.experiments.settings import SettingError, to_json

Method = Literal["grid", "random", "asha"]
DEFAULT_TRIALS = 20
ENDLESS = 10**9
CHECKED = 1000
"""Maximum trials whose settings are checked before the first one starts."""


@dataclass(frozen=True)
class Search:
    """A search: many runs that differ in a few settings."""

    kind: str
    config: Any
    space: Space
    over: tuple[str, ...]
    """The space as it was typed."""
    method: Method = "random"
    seed: int = 0
    """Seed of the drawn settings."""
    trials: int | None = None
    hours: float | None = None
    """Maximum time to spend, over all sessions."""
    grace: int = 1
    factor: int = 3

    def __post_init__(self) -> None:
        if self.method == "grid" and self.space.size is None:
            ranges = [axis.title for axis in self.space.axes if not axis.values]
            raise SettingError(f"--search grid needs a number of values for {ranges[0]}: such as log:1e-4:1e-2:5, or a "
                               "list")  # fmt: skip
        for number in range(min(self.limit, CHECKED)):
            self.settings_of(number)

    @property
    def limit(self) -> int:
        """Maximum number of trials."""
        default = ENDLESS if self.hours is not None or self.method == "grid" else DEFAULT_TRIALS
        asked = default if self.trials is None else self.trials
        return asked if self.space.size is None else min(asked, self.space.size)

    @property
    def endless(self) -> bool:
        """Whether time alone ends it."""
        return self.limit == ENDLESS

    @property
    def about(self) -> dict[str, Any]:
        """The search's identity: all but its budget, which may change."""
        about = {"task": self.kind, "settings": to_json(self.config), "over": list(self.over), "search": self.method}
        return {**about, "search seed": self.seed, **({"grace": self.grace} if self.method == "asha" else {})}

    def values(self, number: int) -> Values:
        """Return the settings that a trial varies, by their dotted names."""
        return self.space.grid(number) if self.method == "grid" else self.space.random(number, self.seed)

    def settings_of(self, number: int) -> Any:
        """Return all settings of a trial."""
        values = self.values(number)
        try:
            return changed(self.config, values)
        except SettingError as error:
            drawn = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in values.items())
            raise SettingError(f"--over allows {drawn}: {error}") from None

    def job(self, number: int, root: Path) -> Job:
        name = Trial(number, {}).name
        return Job(name, self.kind, self.settings_of(number), root / name, cost=0.0 if self.endless else 1.0)


@dataclass(frozen=True)
class Made:
    """Outcome of a search."""

    trials: list[Trial]
    metric: str
    higher_is_better: bool

    @property
    def ranked(self) -> list[Trial]:
        """Return finished trials, the best first; then those that were stopped early; then the others."""
        sign = -1.0 if self.higher_is_better else 1.0
        order = {"finished": 0, "stopped early": 1, "begun": 2, "failed": 3}

        def place(trial: Trial) -> tuple[int, float, int]:
            return order[trial.state], sign * trial.last if trial.last is not None else 0.0, trial.number

        return sorted(self.trials, key=place)

    @property
    def best(self) -> Trial | None:
        first = self.ranked[:1]
        return first[0] if first and first[0].state == "finished" else None


class Halving:
    """Asynchronous successive halving (ASHA) by Optuna: after `grace` validations, and after each `factor` times as
    many, a run that is not among the best 1 / `factor` of those so far should stop."""

    def __init__(self, higher_is_better: bool, grace: int, factor: int) -> None:
        try:
            optuna: Any = importlib.import_module("optuna")
        except ImportError as error:
            message = "--search asha needs Optuna, which is not installed: `pip install '.[search]'` in the folder of "
            raise PlaceError(message + "mufuru, or search at random") from error
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.study = optuna.create_study(
            direction="maximize" if higher_is_better else "minimize",
            sampler=optuna.samplers.RandomSampler(0),
            pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=grace, reduction_factor=factor),
        )
        self.trials: dict[int, Any] = {}
        self.seen: dict[int, int] = {}
        """Number of the last validation by trial: a resumed run sends its earlier ones again."""

    def look(self, number: int, validation: Validation) -> bool:
        """Take note of a validation; return whether the run should stop."""
        if validation.number <= self.seen.get(number, 0):
            return False
        if number not in self.trials:
            self.trials[number] = self.study.ask()
        self.seen[number] = validation.number
        self.trials[number].report(validation.value, validation.number)
        return bool(self.trials[number].should_prune())


class Trials:
    """The plan of a search: unfinished trials first, then new ones until the budget is spent."""

    overall: Overall

    def __init__(self, search: Search, where: Where, journal: Journal, metric: str, higher_is_better: bool) -> None:
        self.search, self.where, self.journal, self.state = search, where, journal, journal.state
        self.metric, self.before, self.started = metric, journal.state.seconds, time.monotonic()
        asha = search.method == "asha"
        self.halving = Halving(higher_is_better, search.grace, search.factor) if asha else None
        self.unfinished = deque[Trial]()
        self.running: dict[str, Trial] = {}

    def take_up(self) -> None:
        """Find the trials that finished after the state was last written; replay those that ended in the halving."""
        for trial in self.state.trials:
            job = self.search.job(trial.number, self.where.root)
            if trial.state in ("begun", "failed") and is_finished(job, self.where.store):
                self.finish(trial, job.folder)
            if self.halving and trial.state in ("finished", "stopped early"):
                for number, value in enumerate(trial.validations, 1):
                    self.halving.look(trial.number, Validation(number, value))

    def make(self, quiet: bool) -> None:
        """Make as many trials as the budget allows."""
        trials, search = self.state.trials, self.search
        over = [trial for trial in trials if trial.state in ("finished", "stopped early")]
        self.unfinished.extend(trial for trial in trials if trial not in over and trial.number < search.limit)
        left, seconds = search.limit - len(over), (search.hours or 0.0) * 3600 - self.before
        if left <= 0 or (search.hours is not None and seconds <= 0):
            return
        cost, runs = (seconds, None) if search.endless else (float(left), search.limit)
        with opened(self.where, left) as backend, Overall(cost, len(over), runs, quiet) as self.overall:
            try:
                Pool(self, backend, self.where.store, self.overall).run()
            finally:
                self.spend()
                self.journal.save()

    def finish(self, trial: Trial, folder: Path) -> None:
        """Take note of a finished trial's result."""
        trial.state, trial.value = "finished", read_json(RunFolder(folder).result)["valid"][self.metric]

    def spend(self) -> float:
        """Return the time spent, over all sessions."""
        self.state.seconds = self.before + time.monotonic() - self.started
        return self.state.seconds

    def enough(self) -> bool:
        self.journal.renew()
        spent = self.spend()
        if self.search.endless:
            self.overall.settled_cost = spent - self.before
        return self.search.hours is not None and spent >= self.search.hours * 3600

    def next(self) -> Job | None:
        if self.enough():
            return None
        if self.unfinished:
            trial = self.unfinished.popleft()
            trial.state, trial.reason = "begun", ""
        else:
            number = len(self.state.trials)
            if number >= self.search.limit:
                return None
            trial = Trial(number, self.search.values(number))
            self.state.trials.append(trial)
        self.running[trial.name] = trial
        self.journal.save()
        return self.search.job(trial.number, self.where.root)

    def look(self, job: Job, validation: Validation) -> bool:
        trial = self.running[job.name]
        # a resumed run sends its earlier validations again
        del trial.validations[validation.number - 1 :]
        trial.validations.append(validation.value)
        return self.halving is not None and self.halving.look(trial.number, validation)

    def settle(self, job: Job, failure: str | None, halted: bool) -> None:
        trial = self.running.pop(job.name)
        if halted:
            trial.state = "stopped early"
            self.overall.early += 1
        elif failure is not None:
            trial.state, trial.reason = "failed", failure
        else:
            self.finish(trial, job.folder)
        self.spend()
        self.journal.save()


def run(search: Search, where: Where, quiet: bool = False) -> Made:
    """Make the trials of a search, or continue it; return them all."""
    journal = Journal(where.root, where.store, search.about)
    with journal.alone():
        journal.load()
        task = tasks.KINDS[search.kind].make(search.settings_of(0))
        metric, higher = task.metric, task.higher_is_better
        # its data would stay in memory
        del task
        plan = Trials(search, where, journal, metric, higher)
        plan.take_up()
        plan.make(quiet)
        made = Made(journal.state.trials, metric, higher)
        if where.store and (best := made.best):
            fetch_weights(Remote(where.store) / best.name, RunFolder(where.root / best.name))
    return made
