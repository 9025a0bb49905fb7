"""Asynchronous successive halving (ASHA) by Optuna: a run that falls behind the others is stopped early."""

import importlib
from typing import Any

from mufuru.experiments.engine.errors import PlaceError
from mufuru.experiments.engine.work import Validation
from mufuru.experiments.search.state import Trial


class Halving:
    """Decides after `grace` validations, and after each `factor` times as many, whether a run is among the best
    1 / `factor` of those so far."""

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

    def replay(self, trial: Trial) -> None:
        """Take note of a trial that is over."""
        for number, value in enumerate(trial.validations, 1):
            self.look(trial.number, Validation(number, value))

    def look(self, number: int, validation: Validation) -> bool:
        """Take note of a validation; return whether the run should stop."""
        if validation.number <= self.seen.get(number, 0):
            return False
        if number not in self.trials:
            self.trials[number] = self.study.ask()
        self.seen[number] = validation.number
        self.trials[number].report(validation.value, validation.number)
        return bool(self.trials[number].should_prune())
