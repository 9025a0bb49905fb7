"""Settings shared by the tasks that learn from a user's files: the parts of the data, and training on little of it."""

from dataclasses import dataclass
from typing import Any, ClassVar

from mufuru.experiments.settings import Training, check_held_out

FEW = Training(
    updates=1000, batch_size=25, learning_rate=4e-3, beta1=0.9, clip=1.0, schedule="cosine", evaluate_every=50,
    ties="loss",
)  # fmt: skip
"""Training with as many updates for a small training set as for a large one."""


@dataclass(frozen=True)
class Files:
    """The files of training, validation and test. Paths are kept as given: a run that was started with relative paths
    is resumed in the same folder."""

    files: ClassVar[tuple[str, ...]] = ("data", "valid_data", "test_data")
    """Settings that name files of the user."""
    data: str | None = None
    """Training file; required."""
    valid_data: str | None = None
    """Validation file, to select the best weights; None to hold out a part of the data, see held_out."""
    test_data: str | None = None
    """Test file; None to hold out a part of the data, see held_out."""
    held_out: tuple[float, float] = (0.1, 0.1)
    """Fractions held out for validation and test, where no files are given."""
    split_seed: int = 0
    """Seed of the held-out split, so that runs with other seeds share the same test data."""

    def __post_init__(self) -> None:
        check_held_out(self.held_out)

    @property
    def parts(self) -> dict[str, Any]:
        """Arguments of the readers: the files beside the first, and what is held out of it."""
        return {"valid": self.valid_data, "test": self.test_data, "held_out": self.held_out, "seed": self.split_seed}
