"""Settings of training, and every setting to JSON and back."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

import cattrs

from mufuru.ops import did_you_mean

T = TypeVar("T")
Schedule = Literal["constant", "linear", "cosine", "plateau"]
LARGEST = 2**31 - 1
"""Largest whole number that a setting may have."""


class UserError(Exception):
    """An error in what was asked for: the message is a sentence for the user, and says what to do. Exit code 2, unless
    it has a `code` of its own."""


class SettingError(UserError, ValueError):
    """An invalid setting: the message names it, what was expected and what came."""


@dataclass(frozen=True)
class Training:
    """Settings of training; the same for every task and every cell."""

    epochs: int = 100
    """Passes over the training data."""
    updates: int | None = None
    """Updates in all, however many passes that takes, for a training set of any size; None for `epochs` passes."""
    batch_size: int = 50
    """Sequences per update."""
    learning_rate: float = 1e-3
    """Adam's learning rate."""
    beta1: float = 0.0
    """Adam's decay of the mean gradient; 0 is the paper's."""
    beta2: float = 0.999
    """Adam's decay of the squared gradient."""
    weight_decay: float = 0.0
    """Decoupled weight decay (AdamW's)."""
    clip: float | None = None
    """Largest norm of the gradient; None for no limit."""
    schedule: Schedule = "constant"
    """Learning rate over time: constant, linear or cosine down to 0, or plateau: times `decay` when the validation
    metric does not improve, see decay_patience."""
    warmup: int = 0
    """Updates over which the learning rate rises from 0."""
    decay: float = 0.5
    """Factor of the plateau schedule."""
    decay_patience: int = 1
    """Validations without a better metric before the plateau schedule decays, and again before each further decay."""
    evaluate_every: int | None = None
    """Updates between two validations; None for once an epoch."""
    select: Literal["best", "last"] = "best"
    """Weights to test: those of the best validation metric, or the last."""
    ties: Literal["earliest", "loss"] = "earliest"
    """Which of several validations with the same best metric: the earliest, or the one with the lowest validation loss,
    and of those the latest."""
    smoothing: int = 1
    """Number of validations whose mean metric decides which weights are the best: a single one on little data is
    noisy."""
    patience: int | None = None
    """Stop after this many validations without a better metric; None for never."""
    average: float | None = None
    """Decay of the average of the weights, such as 0.999; the averaged weights are validated, kept as best and tested;
    None for no averaging."""

    def __post_init__(self) -> None:
        check_positive(self, "epochs", "updates", "batch_size", "learning_rate", "clip", "evaluate_every", "smoothing")
        check_positive(self, "patience", "decay_patience")
        check_fraction(self, "beta1", "beta2", "decay", "average")
        if self.warmup < 0 or not 0 <= self.weight_decay < math.inf:
            raise SettingError(f"warmup and weight_decay cannot be negative, got {self.warmup} and {self.weight_decay}")


def check_positive(settings: Any, *names: str) -> None:
    """Refuse a number that is not above 0; None passes."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 < value < math.inf:
            raise SettingError(f"{name} should be a number above 0, got {value}")
        if isinstance(value, int) and value > LARGEST:
            raise SettingError(f"{name} should be at most {LARGEST}, got {value}")


def check_fraction(settings: Any, *names: str) -> None:
    """Refuse a number outside of [0, 1); None passes."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 <= value < 1:
            raise SettingError(f"{name} should be at least 0 and below 1, got {value}")


def check_held_out(held_out: tuple[float, float]) -> None:
    """Refuse shares of validation and test that leave nothing to train on."""
    if not (min(held_out) > 0 and sum(held_out) < 1):
        raise SettingError(f"held_out should be two shares above 0 and below 1 together, got {held_out}")


def check_default(settings: Any, names: Iterable[str], reason: str) -> None:
    """Refuse settings that were changed from their defaults; `reason` follows their name."""
    for name in names:
        if getattr(settings, name) != getattr(type(settings), name):
            raise SettingError(f"{name} {reason}")


def to_json(settings: Any) -> dict[str, Any]:
    """Turn a dataclass of settings into what JSON gives back: tuples become lists."""
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(settings)))
    return values


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted names such as cell.hidden_size."""
    named: dict[str, Any] = {}
    for name, value in settings.items():
        named |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return named


def from_json(kind: type[T], data: Any) -> T:
    """Undo `to_json`; an unknown, missing or mistyped setting is refused by name."""
    try:
        return _converter().structure(data, kind)
    except cattrs.BaseValidationError as error:
        messages = cattrs.transform_error(error, path="settings", format_exception=_message)
        raise SettingError("; ".join(messages)) from None
    except (AttributeError, TypeError, ValueError, KeyError) as error:
        raise SettingError(f"settings should be those of {kind.__name__}: {error}") from None


@cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    for plain in (bool, int, float, str):
        converter.register_structure_hook(plain, _plain)
    return converter


def _plain(value: Any, kind: type[Any]) -> Any:
    """Return a value of exactly this type: cattrs alone would turn 1.9 into 1, and "false" into True."""
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise SettingError(f"expected {kind.__name__}, got {value!r}")
    return value


def _message(error: BaseException, kind: type[Any] | None) -> str:
    """Return the message of an error in settings; our own errors already have one."""
    return str(error) if isinstance(error, SettingError) else str(cattrs.v.format_exception(error, kind))


def choose(kind: str, name: str, known: Mapping[str, T]) -> T:
    """Return an entry by its name, or raise an error that suggests the nearest."""
    if name not in known:
        raise SettingError(f"unknown {kind} {name!r}: {did_you_mean(name, list(known))}")
    return known[name]
