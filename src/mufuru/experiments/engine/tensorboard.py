"""The metrics for TensorBoard, if it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mufuru.experiments.engine.errors import RunError
from mufuru.experiments.engine.progress import Progress


class TensorBoard(Progress):
    """Writes every look at the validation data into the folder `tensorboard` of the run."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise RunError("TensorBoard is not installed: `pip install tensorboard`, or train without it") from None
        self._make = SummaryWriter
        self.folder = folder / "tensorboard"
        self.writer: Any = None

    def start(self, title: str, total: int, done: int, metric: str) -> None:
        # what a killed run wrote after its last checkpoint is hidden
        self.writer = self._make(str(self.folder), purge_step=done + 1 if done else None)

    def look(self, line: dict[str, Any]) -> None:
        for split in ("train", "valid"):
            for name, value in line[split].items():
                self.writer.add_scalar(f"{name}/{split}", value, line["update"])
        self.writer.add_scalar("learning_rate", line["learning_rate"], line["update"])

    def stop(self) -> None:
        self.writer.close()
