"""A trained model to look into, and the answer to "read this, and show me that"."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import mufuru
from mufuru import MuFuRU
from mufuru.experiments.data import DataError
from mufuru.experiments.explorer import numbers, requests
from mufuru.experiments.explorer.requests import Refused, View
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.task import Reader, Steps
from mufuru.ops import did_you_mean


@dataclass(frozen=True)
class ExploredRun:
    """A run by its name on the page. Not for two threads at once: an intervention changes the layer while it lasts."""

    name: str
    kind: str
    reader: Reader
    parameters: int
    scores: dict[str, float]
    """Test metrics, where the run is finished."""

    @property
    def rnn(self) -> MuFuRU | None:
        """The layer, where it can say which operations it used."""
        rnn = self.reader.layer.rnn
        return rnn if isinstance(rnn, MuFuRU) else None

    @property
    def layers(self) -> int:
        """Layers to look into: other cells keep the states of all but the top to themselves."""
        return int(self.reader.config.cell.num_layers) if self.rnn else 1

    def info(self) -> dict[str, Any]:
        """Facts that the page needs before its first request."""
        reader, cell, rnn = self.reader, self.reader.config.cell, self.rnn
        return {
            "name": self.name, "kind": self.kind, "takes": reader.takes, "examples": list(reader.examples),
            "labels": list(reader.labels), "cell": cell.cell, "units": cell.hidden_size,
            "layers": self.layers, "directions": reader.layer.directions,
            "parameters": self.parameters,
            "ops": [numbers.described(op) for op in rnn.unit.ops] if rnn else [], "scores": self.scores,
        }  # fmt: skip

    @torch.no_grad()
    def answer(self, view: View) -> dict[str, Any]:
        """Every number that the page draws of this view."""
        self._check(view)
        requests.check_length(view.text)
        try:
            steps = self.reader.steps(view.text)
        except (DataError, SettingError) as error:
            raise Refused(422, str(error)) from None
        requests.check_steps(len(steps.tokens), self.reader.both_ways)
        with self._intervention(view):
            shown, outputs = self._look(steps, view)
            predictions = self.reader.predict(steps, outputs)
        said = [{key: value for key, value in vars(p).items() if value is not None} for p in predictions]
        return {"run": self.name, "tokens": steps.tokens, "notes": steps.notes, "predictions": said} | shown

    def _look(self, steps: Steps, view: View) -> tuple[dict[str, Any], torch.Tensor]:
        """Read everything once and say what happened inside."""
        if self.rnn is None:
            outputs = self.reader.outputs(steps)
            hidden = self.reader.config.cell.hidden_size
            return {"states": numbers.in_units(outputs[:, view.direction * hidden :][:, :hidden])}, outputs
        with mufuru.tracing(self.rnn) as traces:
            outputs = self.reader.outputs(steps)
        return numbers.of_trace(traces[""][0], view.layer, view.direction, view.unit), outputs

    def _intervention(self, view: View) -> AbstractContextManager[None]:
        if self.rnn is None or not (view.forbid or view.force):
            return nullcontext()
        return mufuru.intervene(self.rnn, forbid=view.forbid, force=view.force)

    def _check(self, view: View) -> None:
        for name, value, count in (
            ("layer", view.layer, self.layers),
            ("direction", view.direction, self.reader.layer.directions),
            ("unit", view.unit, self.reader.config.cell.hidden_size),
        ):
            if not 0 <= value < count:
                raise Refused(422, f"{name} should be from 0 to {count - 1} in {self.name}, got {value}")
        self._check_operations(view.forbid, view.force)

    def _check_operations(self, forbid: tuple[str, ...], force: str | None) -> None:
        asked = (*forbid, *(() if force is None else (force,)))
        if asked and self.rnn is None:
            cell = self.reader.config.cell.cell
            raise Refused(422, f"{self.name} is of the cell {cell}, which has no operations: allow all of them")
        ops = self.rnn.ops if self.rnn else ()
        for name in asked:
            if name not in ops:
                raise Refused(422, f"{self.name} has no operation {name[:60]!r}: {did_you_mean(name[:60], ops)}")
        if asked and not {force or name for name in ops} - set(forbid):
            raise Refused(422, f"nothing is left of the operations {', '.join(ops)}: allow at least one")


def explored(name: str, kind: str, reader: Reader, scores: dict[str, float] | None = None) -> ExploredRun:
    """A run to look into, by its task's reader. A GRU is shown as the MuFuRU that computes the same, of the operations
    keep and replace, so that its update gate can be seen, and taken away, as theirs.
    """
    # of the GRU itself: as a MuFuRU it has weights that are all 0
    parameters = sum(parameter.numel() for parameter in reader.model.parameters())
    if isinstance(reader.layer.rnn, nn.GRU):
        reader.layer.rnn = MuFuRU.from_gru(reader.layer.rnn).eval()
    return ExploredRun(name, kind, reader, parameters, scores or {})


def shipped() -> list[Path]:
    """Run folders of the two small models that come with the package, a MuFuRU and a GRU of 8 units that evaluate
    Boolean formulae. They lack what only training needs. Made by, with `--cell gru` for the other one:

        mufuru train logic --preset solved --cell mufuru --select best --evaluate-every 2000 --output mufuru-8

    The preset has 2000 updates, so the only evaluation is the last: the best weights are the last ones.
    """
    return [Path(__file__).parent / "models" / name for name in ("mufuru-8", "gru-8")]
