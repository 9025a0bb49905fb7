"""A request to read a text, and the trained model that answers it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from starlette.exceptions import HTTPException
from torch import Tensor, nn

import mufuru
from mufuru import MuFuRU, Trace
from mufuru.experiments.data import DataError
from mufuru.experiments.explorer import numbers
from mufuru.experiments.settings import SettingError, from_json
from mufuru.experiments.tasks.task import Reader, StepPrediction, Steps
from mufuru.ops import did_you_mean

T = TypeVar("T")
BODY = 64 * 1024
"""Maximum bytes of a request."""
EXAMPLES = 5
"""Texts that the page offers to begin with."""
NEAREST, CONTEXT = 8, 3
"""Tokens that a search finds, and tokens on either side of each."""
CHARACTERS = 8_000
"""Maximum characters of a text."""
STEPS = 300
"""Maximum tokens of a text."""
STEPS_BOTH_WAYS = 100
"""Maximum tokens for a bidirectional model: each prediction needs a separate pass."""


class Refused(HTTPException):
    """A request that is not answered: the HTTP status and a sentence for the user."""


def check_range(name: str, value: int, least: int, most: int, where: str = "") -> None:
    if not least <= value <= most:
        raise Refused(422, f"{name} should be from {least} to {most}{where}, got {value}")


@dataclass(frozen=True)
class View:
    """A text to read, and the part of the model to show."""

    run: str
    text: str
    layer: int = 0
    direction: int = 0
    unit: int = 0
    forbid: tuple[str, ...] = ()
    force: str | None = None

    @property
    def changes(self) -> tuple[str, ...]:
        """The operations that are forbidden or forced."""
        return (*self.forbid, *(() if self.force is None else (self.force,)))


def parse(body: bytes, kind: type[T], fields: str) -> T:
    """Parse the body of a request; `fields` names the required ones in messages."""
    try:
        data: Any = json.loads(body.decode())
        # half of a character, a lone surrogate, is no text
        json.dumps(data, ensure_ascii=False).encode()
        return from_json(kind, data)
    except UnicodeError:
        raise Refused(400, "the request should be JSON in UTF-8, got bytes or characters that are not text") from None
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the request should be a JSON object with {fields}: {str(error)[:200]}") from None


@dataclass(frozen=True)
class Place(View):
    """A token of a text; the view's unit is examined there."""

    token: int = 0


@dataclass(frozen=True)
class ExploredRun:
    """A run by its name on the page. Not thread-safe: an intervention changes the layer while it lasts."""

    name: str
    kind: str
    reader: Reader
    parameters: int
    scores: dict[str, float]
    """Test metrics, where the run is finished."""
    examples: tuple[str, ...]
    """Texts to begin with, and further ones to search, as far as the run has kept any."""

    @property
    def rnn(self) -> MuFuRU | None:
        """The layer, where it has operations to show."""
        rnn = self.reader.layer.rnn
        return rnn if isinstance(rnn, MuFuRU) else None

    @property
    def layers(self) -> int:
        """Number of layers to show: other cells expose only the states of the top one."""
        return int(self.reader.config.cell.num_layers) if self.rnn else 1

    def info(self) -> dict[str, Any]:
        """Facts that the page needs before its first request."""
        reader, cell, rnn = self.reader, self.reader.config.cell, self.rnn
        return {
            "name": self.name, "kind": self.kind, "takes": reader.takes,
            "examples": list((self.examples or reader.examples)[:EXAMPLES]),
            "labels": list(reader.labels), "estimates": reader.estimates, "cell": cell.cell, "units": cell.hidden_size,
            "layers": self.layers, "directions": reader.layer.directions,
            "parameters": self.parameters,
            "ops": [numbers.described(op) for op in rnn.unit.ops] if rnn else [], "scores": self.scores,
        }  # fmt: skip

    @torch.no_grad()
    def answer(self, view: View) -> dict[str, Any]:
        """Return every number that the page draws of this view."""
        steps = self._steps(view)
        shown, outputs = self._look(steps, view)
        predictions = [{key: value for key, value in vars(p).items() if value is not None} for p in outputs]
        predicted = {"predictions": predictions, "scale": self.reader.scale(steps)}
        return {"run": self.name, "tokens": steps.tokens, "notes": steps.notes} | predicted | shown

    @torch.no_grad()
    def alike(self, place: Place) -> dict[str, Any]:
        """Return the tokens of kept texts at which the unit's contributions were nearest to those at a place: of each
        text the nearest, and how much they differ in all."""
        steps = self._steps(place)
        if self.rnn is None:
            raise Refused(422, f"{self.name} is of the cell {self.reader.config.cell.cell}, which has no operations")
        check_range("token", place.token, 0, len(steps.tokens) - 1, " in this text")
        here = self._contributions(steps, place)[place.token]
        near: list[dict[str, Any]] = []
        texts = self.examples or self.reader.corpus
        for text in texts:
            read = self._read(text)
            if len(read.tokens) > self.most:
                continue
            differences = (self._contributions(read, place) - here).abs().sum(1)
            if text == place.text:
                differences[place.token] = torch.inf
            difference, token = differences.min(0)
            if difference.isfinite():
                near.append({"text": text, "token": int(token), "difference": round(float(difference), 4)}
                             | around(read.tokens, int(token)))  # fmt: skip
        # texts may share a passage, such as windows of a series
        nearest = {(*one["around"], one["at"]): one for one in sorted(near, key=lambda one: -one["difference"])}
        return {"found": list(reversed(nearest.values()))[:NEAREST], "texts": len(texts)}

    def _contributions(self, steps: Steps, view: View) -> Tensor:
        """Return (steps, operations): the parts of every new state of the view's unit."""
        with self._traced(steps, view) as (_, trace):
            return numbers.parts(trace, view.layer, view.direction, view.unit)["contributions"]

    @contextmanager
    def _traced(self, steps: Steps, view: View) -> Iterator[tuple[Tensor, Trace]]:
        """Read everything once, without the forbidden operations; within this context they remain forbidden."""
        assert self.rnn is not None
        change = mufuru.intervene(self.rnn, forbid=view.forbid, force=view.force) if view.changes else nullcontext()
        with change:
            with mufuru.tracing(self.rnn) as traces:
                outputs = finite(self.reader.outputs(steps))
            yield outputs, traces[""][0]

    @property
    def most(self) -> int:
        """Maximum tokens of a text."""
        return STEPS_BOTH_WAYS if self.reader.both_ways else STEPS

    def _steps(self, view: View) -> Steps:
        """Return the steps of the view's text, or refuse what cannot be read or shown."""
        self._check(view)
        if len(view.text) > CHARACTERS:
            raise Refused(
                413, f"the text has {len(view.text):,} characters, at most {CHARACTERS:,} are read: shorten it"
            )
        steps = self._read(view.text)
        if len(steps.tokens) > self.most:
            why = " by a model that reads from both ends" if self.reader.both_ways else ""
            raise Refused(
                413, f"the text has {len(steps.tokens)} tokens, at most {self.most} are read{why}: shorten it"
            )
        return steps

    def _read(self, text: str) -> Steps:
        try:
            return self.reader.steps(text)
        except (DataError, SettingError) as error:
            raise Refused(422, str(error)) from None

    def _look(self, steps: Steps, view: View) -> tuple[dict[str, Any], list[StepPrediction]]:
        """Read everything once, and return the layer's numbers and the predictions."""
        if self.rnn is None:
            outputs = finite(self.reader.outputs(steps))
            hidden = self.reader.config.cell.hidden_size
            states = numbers.in_units(outputs[:, view.direction * hidden :][:, :hidden])
            return {"states": states}, self.reader.predict(steps, outputs)
        with self._traced(steps, view) as (outputs, trace):
            shown = numbers.of_trace(trace, view.layer, view.direction, view.unit)
            # of a model that reads from both ends, predictions need passes of their own
            return shown, self.reader.predict(steps, outputs)

    def _check(self, view: View) -> None:
        directions, units = self.reader.layer.directions, self.reader.config.cell.hidden_size
        for name, count in {"layer": self.layers, "direction": directions, "unit": units}.items():
            check_range(name, getattr(view, name), 0, count - 1, f" in {self.name}")
        ops = self.rnn.ops if self.rnn else ()
        if view.changes and not ops:
            cell = self.reader.config.cell.cell
            raise Refused(422, f"{self.name} is of the cell {cell}, which has no operations: allow all of them")
        for name in view.changes:
            if name not in ops:
                raise Refused(422, f"{self.name} has no operation {name[:60]!r}: {did_you_mean(name[:60], ops)}")
        if view.changes and not {view.force or name for name in ops} - set(view.forbid):
            raise Refused(422, f"nothing is left of the operations {', '.join(ops)}: allow at least one")


def around(tokens: list[str], token: int) -> dict[str, Any]:
    """Return a token with those beside it, and its place among them."""
    first = max(0, token - CONTEXT)
    return {"around": tokens[first : token + CONTEXT + 1], "at": token - first}


def finite(outputs: Tensor) -> Tensor:
    """Return the layer's outputs; refuse a text of numbers so large that they overflow inside the model."""
    if not outputs.isfinite().all():
        raise Refused(422, "the model computes infinities or NaN for this text: give it smaller numbers")
    return outputs


def explored(
    name: str, kind: str, reader: Reader, scores: dict[str, float] | None = None, examples: tuple[str, ...] = ()
) -> ExploredRun:
    """Return a run to explore, by its task's reader, with the texts that it kept. A GRU is shown as the MuFuRU
    that computes the same with keep and replace, so that its update gate can be shown and forbidden like theirs."""
    # of the GRU itself: as a MuFuRU it has weights that are all 0
    parameters = sum(parameter.numel() for parameter in reader.model.parameters())
    if isinstance(reader.layer.rnn, nn.GRU):
        reader.layer.rnn = MuFuRU.from_gru(reader.layer.rnn).eval()
    return ExploredRun(name, kind, reader, parameters, scores or {}, examples)


def shipped() -> list[Path]:
    """Run folders of the two small models that come with the package, a MuFuRU and a GRU of 8 units that evaluate
    Boolean formulae. They lack the files that only training needs. Made by, with `--cell gru` for the other one:

        mufuru train logic --preset solved --cell mufuru --select best --evaluate-every 2000 --output mufuru-8

    The preset has 2000 updates, so the only evaluation is the last: the best weights are the last ones.
    """
    return [Path(__file__).parent / "models" / name for name in ("mufuru-8", "gru-8")]
