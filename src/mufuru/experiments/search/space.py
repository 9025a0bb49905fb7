"""The settings that a search varies: `--over learning_rate=log:1e-4:1e-2 hidden_size=100,200`."""

import dataclasses
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from mufuru.experiments.draws import Draws, permutation
from mufuru.experiments.settings import SettingError
from mufuru.ops import did_you_mean

T = TypeVar("T")
Values = dict[str, Any]
"""Settings by their dotted names, such as "training.learning_rate"."""
FORMS = "NAME=A,B,C, NAME=uniform:LOW:HIGH or NAME=log:LOW:HIGH"
DIGITS = 4
"""Significant digits of a drawn number: all that matter, and the same on every machine."""

COMBINATIONS = 1000
"""Maximum combinations of settings to look through for one that is allowed."""


PLAIN: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("a whole number", int),
    float: ("a number", float),
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
    str: ("a text", str),
}
"""How values of each type are described and read."""


@dataclass(frozen=True)
class Axis:
    """One or several settings that share their value, and the values to try."""

    names: tuple[str, ...]
    """Dotted names."""
    values: tuple[Any, ...] = ()
    """Listed values; empty for a range."""
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    """Whether the logarithm is uniform."""
    whole: bool = False
    """Whether the settings are whole numbers."""

    @property
    def title(self) -> str:
        """Name for readers."""
        return "+".join(name.rpartition(".")[2] for name in self.names)

    @property
    def samples(self) -> tuple[Any, ...]:
        """All listed values, or both ends of the range."""
        return self.values or (self.at(0.0), self.at(1.0))

    def at(self, share: float) -> Any:
        """Return the value at a share of the range, from 0 to 1."""
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        value = min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)
        return round(value) if self.whole else value

    def draw(self, draws: Draws) -> Any:
        if self.values:
            return self.values[draws.below(len(self.values))]
        return self.at(draws.bits(53) / 2**53)


@dataclass(frozen=True)
class Space:
    """All settings that a search varies."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int | None:
        """Number of combinations; None for infinitely many."""
        return math.prod(len(axis.values) for axis in self.axes) if all(axis.values for axis in self.axes) else None

    def grid(self, number: int) -> Values:
        """Return one of all combinations, the last setting changing the fastest."""
        chosen = []
        for axis in reversed(self.axes):
            number, place = divmod(number, len(axis.values))
            chosen.append(axis.values[place])
        return self.settings(chosen[::-1])

    def random(self, number: int, seed: int) -> Values:
        """Return the settings of a trial, set by its number and the seed; lists are drawn without repetition."""
        if self.size is not None:
            return self.grid(int(permutation(self.size, "sweep", seed)[number]))
        draws = Draws("sweep", seed, number)
        return self.settings([axis.draw(draws) for axis in self.axes])

    def settings(self, values: Sequence[Any]) -> Values:
        """Return settings by their names, given the value of every axis."""
        return {name: value for axis, value in zip(self.axes, values, strict=True) for name in axis.names}


def parse_space(texts: Sequence[str], config: Any) -> Space:
    """Return the space that the values of --over describe; a value that the settings `config` refuse is an error."""
    axes = [parse_axis(text, config) for text in texts]
    names = [name for axis in axes for name in axis.names]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise SettingError(f"--over has {repeated[0]} twice: give all its values after one name")
    for axis, text in zip(axes, texts, strict=True):
        for value in axis.samples:
            choices = ((value,) if one is axis else one.samples for one in axes)
            if reason := refusal(Space(tuple(axes)), islice(product(*choices), COMBINATIONS), config):
                raise SettingError(f"--over {text}: {reason}")
    return Space(tuple(axes))


def refusal(space: Space, combinations: Iterable[Sequence[Any]], config: Any) -> str:
    """Return why the settings allow none of some combinations of values; empty if they allow one."""
    reasons = []
    for values in combinations:
        try:
            changed(config, space.settings(values))
            return ""
        except SettingError as error:
            reasons.append(str(error))
    return reasons[0]


def parse_axis(text: str, config: Any) -> Axis:
    names, equals, values = text.partition("=")
    if not (names and equals and values):
        raise SettingError(f"--over should be {FORMS}, got {text!r}")
    known = leaves(config)
    paths = tuple(find(name.strip(), list(known)) for name in names.split("+"))
    return parse_values(paths, values, [known[path] for path in paths])


def leaves(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return the type of every setting by its dotted name."""
    hints, named = get_type_hints(type(config)), dict[str, Any]()
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            named |= leaves(value, f"{prefix}{field.name}.")
        else:
            named[prefix + field.name] = hints[field.name]
    return named


def find(name: str, known: Sequence[str]) -> str:
    """Return the dotted name of a setting, given by it or by its last part."""
    name = name.removeprefix("--").replace("-", "_")
    matches = [path for path in known if name in (path, path.rpartition(".")[2])]
    if not matches:
        short = [path.rpartition(".")[2] for path in known]
        raise SettingError(f"--over: unknown setting {name!r}: {did_you_mean(name, short)}")
    return matches[0]


def parse_values(names: tuple[str, ...], text: str, hints: Sequence[Any]) -> Axis:
    kind, _, rest = text.partition(":")
    if kind in ("log", "uniform"):
        return parse_range(names, text, kind == "log", rest.split(":"), hints)
    values = tuple(parse_value(names[0], part.strip(), hints[0]) for part in text.split(","))
    if len(set(values)) < len(values):
        raise SettingError(f"--over {names[0]}={text} has a value twice")
    return Axis(names, values)


def parse_range(names: tuple[str, ...], text: str, log: bool, parts: list[str], hints: Sequence[Any]) -> Axis:
    """Return a range, or a number of values from one: log:1e-4:1e-2:5."""
    plain = [set(allowed(hint)) - {None} for hint in hints]
    if any(kinds not in ({int}, {float}) for kinds in plain):
        raise SettingError(f"--over {names[0]}={text}: {names[0]} is not a number: list its values as A,B,C")
    try:
        low, high, count = float(parts[0]), float(parts[1]), [int(part) for part in parts[2:]]
    except (ValueError, IndexError):
        low, high, count = math.nan, math.nan, []
    if not (math.isfinite(low) and math.isfinite(high) and low < high and len(count) < 2):
        raise SettingError(f"--over {names[0]}={text}: expected LOW below HIGH, such as log:1e-4:1e-2 or uniform:0:0.5")
    if log and low <= 0:
        raise SettingError(f"--over {names[0]}={text}: a logarithmic range begins above 0")
    axis = Axis(names, (), low, high, log, whole={int} in plain)
    if not count:
        return axis
    if count[0] < 2:
        raise SettingError(f"--over {names[0]}={text}: expected at least 2 values in a range")
    values = (axis.at(place / (count[0] - 1)) for place in range(count[0]))
    return Axis(names, tuple(dict.fromkeys(values)), low, high, log, axis.whole)


def allowed(hint: Any) -> list[Any]:
    """Return the types and the values that a setting may have."""
    if get_origin(hint) in (Union, types.UnionType, Literal):
        return [one for part in get_args(hint) for one in allowed(part)]
    return [None if hint is type(None) else hint]


def parse_value(name: str, text: str, hint: Any) -> Any:
    """Return the value that a text stands for in a setting of this type."""
    kinds = allowed(hint)
    if None in kinds and text in ("None", "none"):
        return None
    for kind in kinds:
        if kind in PLAIN:
            with suppress(ValueError, KeyError):
                return PLAIN[kind][1](text)
        elif not isinstance(kind, type) and str(kind) == text:
            return kind
    words = [PLAIN[kind][0] if kind in PLAIN else str(kind) for kind in kinds if kind is not None]
    compound = any(kind not in PLAIN and (isinstance(kind, type) or get_origin(kind)) for kind in kinds)
    expected = "a setting with a single value" if compound else " or ".join(words)
    raise SettingError(f"--over {name}: expected {expected}, got {text!r}")


def changed(settings: T, changes: Mapping[str, Any]) -> T:
    """Return settings with some of them changed, all at once."""
    own = {name: value for name, value in changes.items() if "." not in name}
    for part in dict.fromkeys(name.partition(".")[0] for name in changes if "." in name):
        inner = {name.removeprefix(f"{part}."): value for name, value in changes.items() if name.startswith(f"{part}.")}
        own[part] = changed(getattr(settings, part), inner)
    outer: Any = settings
    result: T = dataclasses.replace(outer, **own)
    return result
