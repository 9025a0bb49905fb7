"""A request to read a text: a JSON object with a run, a text and a view of it, every field and size checked."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields
from typing import Any

from mufuru.ops import did_you_mean

BODY = 64 * 1024
"""Most bytes of a request."""
CHARACTERS = 8_000
"""Most characters of a text."""
STEPS = 300
"""Most tokens of a text."""
STEPS_BOTH_WAYS = 100
"""Most tokens for a bidirectional model: each prediction needs a pass of its own."""


class Refused(Exception):
    """A request that is not answered: the HTTP status and a sentence for the user."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


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

    def __post_init__(self) -> None:
        for name in ("run", "text"):
            _check_text(name, getattr(self, name))
        for name in ("layer", "direction", "unit"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise Refused(400, f"{name} should be a whole number, got {_short(value)}")
        for value in self.forbid:
            _check_text("forbid", value)
        if self.force is not None:
            _check_text("force", self.force)


def parse(body: bytes) -> View:
    """Return the view that a request's body asks for."""
    try:
        data = json.loads(body.decode())
    except UnicodeDecodeError:
        raise Refused(400, "the request should be JSON in UTF-8, got bytes that are not text") from None
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the request should be JSON: {str(error)[:200]}") from None
    if not isinstance(data, dict):
        raise Refused(400, f"the request should be a JSON object, got {_short(data)}")
    known = {field.name: field for field in fields(View)}
    for name in data:
        if name not in known:
            raise Refused(400, f"unknown field {_short(name)}: {did_you_mean(name, list(known))}")
    for name, field in known.items():
        if field.default is MISSING and name not in data:
            raise Refused(400, f"the field {name!r} is missing from the request")
    forbid = data.get("forbid", [])
    if not isinstance(forbid, list) or len(forbid) > 100:
        raise Refused(400, f"forbid should be a list of operations, got {_short(forbid)}")
    return View(**{**data, "forbid": tuple(forbid)})


def check_length(text: str) -> None:
    """Refuse a text that is too long, before it is cut into tokens."""
    if len(text) > CHARACTERS:
        raise Refused(413, f"the text has {len(text):,} characters, at most {CHARACTERS:,} are read: shorten it")


def check_steps(steps: int, both_ways: bool) -> None:
    """Refuse a text of too many tokens."""
    most = STEPS_BOTH_WAYS if both_ways else STEPS
    if steps > most:
        why = " by a model that reads from both ends" if both_ways else ""
        raise Refused(413, f"the text has {steps} tokens, at most {most} are read{why}: shorten it")


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise Refused(400, f"{name} should be text, got {_short(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(400, f"{name} should be text, got half of a character (a lone surrogate)") from None


def _short(value: Any) -> str:
    """A value in an error message; ASCII, since it may hold anything."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
