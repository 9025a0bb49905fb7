"""Training: one loop for all tasks, which loses nothing when it is stopped, killed, or runs out of disk."""

from mufuru.experiments.engine.errors import Failure, Interrupted, RunError
from mufuru.experiments.engine.evaluate import evaluate, load_model, load_run, read_config
from mufuru.experiments.engine.fit import fit
from mufuru.experiments.engine.progress import Progress, progress_for

__all__ = [
    "Failure",
    "Interrupted",
    "Progress",
    "RunError",
    "evaluate",
    "fit",
    "load_model",
    "load_run",
    "progress_for",
    "read_config",
]
