"""Settings and presets of the propositional-logic task."""

from dataclasses import dataclass, field, replace

from mufuru.experiments.settings import SettingError, Training, check_positive
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.logic.formulae import Wanted


@dataclass(frozen=True)
class LogicConfig:
    """Learn to evaluate propositional formulae, and generalise to longer ones.

    The seed decides everything random: formulae, initial weights and the order of training. So the runs of several
    seeds differ in all of it, and an interval over them covers all of it.

    Validation formulae are as long as those of training. Longer ones would let the choice of weights see what only
    the test may see: whether the model generalises to longer formulae.
    """

    cell: CellConfig = field(default_factory=CellConfig)
    training: Training = field(default_factory=Training)
    seed: int = 0
    """Seed of formulae, initial weights and the order of training."""
    train_formulae: int = 1000
    """Formulae to train on."""
    valid_formulae: int = 1000
    """Validation formulae, other ones of the same lengths, to select the best weights."""
    test_formulae: int = 1000
    """Formulae to test on."""
    min_gates: int = 5
    """Minimum number of gates of a formula in training and validation."""
    max_gates: int = 10
    """Maximum number of gates of a formula in training and validation."""
    test_min_gates: int = 11
    """Minimum number of gates of a formula in the test."""
    test_max_gates: int = 20
    """Maximum number of gates of a formula in the test."""
    probes: bool = False
    """Measure more after training: formulae of XOR and XNOR alone, of up to 250 gates, and, for mufuru, the effect of
    forbidding each operation at each token."""

    def __post_init__(self) -> None:
        check_positive(self, "train_formulae", "valid_formulae", "test_formulae", "min_gates", "test_min_gates")
        for low, high in (("min_gates", "max_gates"), ("test_min_gates", "test_max_gates")):
            if getattr(self, low) > getattr(self, high):
                raise SettingError(
                    f"{low} should be at most {high}, got {getattr(self, low)} and {getattr(self, high)}"
                )

        if self.probes and (self.cell.bidirectional or self.cell.controller_size is not None):
            raise SettingError("probes are for layers that read forwards and have no controller: leave one of them out")

    @property
    def splits(self) -> dict[str, Wanted]:
        """Number and lengths of the formulae of each split."""
        return {
            "train": Wanted(self.train_formulae, self.min_gates, self.max_gates),
            "valid": Wanted(self.valid_formulae, self.min_gates, self.max_gates),
            "test": Wanted(self.test_formulae, self.test_min_gates, self.test_max_gates),
        }


_PAPER = Training(select="last")
"""The paper has no validation set. It gives neither learning rate nor batch size: see the table of open choices."""

PRESETS: dict[str, LogicConfig] = {
    "paper": LogicConfig(CellConfig(hidden_size=8), _PAPER),
    # ten times the learning rate: enough for 8 to 128 units alike
    "solved": LogicConfig(CellConfig(hidden_size=8), replace(_PAPER, learning_rate=1e-2)),
    # at this rate a MuFuRU needs no more; a GRU is close behind
    "short": LogicConfig(CellConfig(hidden_size=8), replace(_PAPER, learning_rate=1e-2, epochs=20)),
}
