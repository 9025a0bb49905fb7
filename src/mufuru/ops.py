r"""The composition operations: functions of a unit's state $s$ and its new features $v$.

A row of the table is an `Op`: name, formula, function and meaning. Documentation and tests walk the table, so a new
row brings its own. A row with a `native_code` also has its value and derivative in `kernels/csrc/ops.h`.
"""

from __future__ import annotations

import difflib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import torch
from torch import Tensor

Function: TypeAlias = Callable[[Tensor, Tensor], Tensor]

CUSTOM = 1000
"""Codes from here on stand for operations written in Python."""
_custom_codes = count(CUSTOM)
_custom: weakref.WeakValueDictionary[int, Op] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Op:
    """One composition operation: a function of the state `s` and the new features `v`, both of one shape."""

    name: str
    formula: str
    """LaTeX, in the letters s and v."""
    function: Function = field(repr=False)
    meaning: str
    """One line, as in the paper's table."""
    native_code: int | None = None
    """The operation's number in the native kernel; `None` for a Python callable."""
    code: int = field(init=False, compare=False, repr=False)
    """Its number in a graph: `native_code`, or one from `CUSTOM` on, which is valid in this process only."""

    def __post_init__(self) -> None:
        # here and not at first use: a compiler cannot trace a change of a global table
        code = next(_custom_codes) if self.native_code is None else self.native_code
        object.__setattr__(self, "code", code)
        if code >= CUSTOM:
            _custom[code] = self

    def __call__(self, s: Tensor, v: Tensor) -> Tensor:
        return self.function(s, v)

    def __reduce__(self) -> Any:
        # a table row travels by name: its function may be a lambda, which pickle refuses
        if _TABLE.get(self.name) is self:
            return get, (self.name,)
        return Op, (self.name, self.formula, self.function, self.meaning, self.native_code)


OpLike: TypeAlias = str | Op | Function

_TABLE: dict[str, Op] = {}


def register(op: Op | str, function: Function | None = None, *, formula: str = "", meaning: str = "") -> Op:
    r"""Give an operation a name, so that `ops=("keep", "your_name")` finds it.

    Examples:
        >>> import mufuru
        >>> mine = mufuru.register("half", lambda s, v: 0.5 * s, formula=r"\tfrac12 s", meaning="Halve the state")
        >>> mufuru.MuFuRU(3, 4, ops=("keep", "replace", "half")).ops
        ('keep', 'replace', 'half')
        >>> mufuru.unregister("half")
    """
    if isinstance(op, str):
        if function is None:
            raise TypeError(f"register({op!r}) needs the operation's function (s, v) -> tensor as its second argument")
        op = Op(op, formula or rf"\mathrm{{{op}}}(s, v)", function, meaning or "User-defined operation")
    if not op.name.isidentifier():
        raise ValueError(f"an operation's name is a Python identifier such as 'soft_max', got {op.name!r}")
    if op.name in _TABLE:
        raise ValueError(f"operation {op.name!r} is registered already: choose another name or unregister it first")
    _check_result(op)
    _TABLE[op.name] = op
    return op


def unregister(name: str) -> None:
    """Remove a name given by `register`. The built-in operations stay."""
    if get(name).native_code is not None:
        raise ValueError(f"operation {name!r} is built in and cannot be unregistered")
    del _TABLE[name]


def get(name: str) -> Op:
    """Return the registered operation of that name."""
    if name not in _TABLE:
        raise ValueError(f"unknown operation {name!r}: {did_you_mean(name, names())}")
    return _TABLE[name]


def did_you_mean(name: str, choices: Sequence[str]) -> str:
    """The end of an error message: the choices, and the nearest spelling."""
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.4)
    return f"expected one of {', '.join(choices)}." + (f" Did you mean {close[0]!r}?" if close else "")


def names() -> tuple[str, ...]:
    """Return all registered names, the paper's seven first."""
    return tuple(_TABLE)


def native() -> tuple[Op, ...]:
    """Return the operations of the native kernel."""
    return tuple(op for op in _TABLE.values() if op.native_code is not None)


def with_code(code: int) -> Op:
    """Return the operation with this code."""
    if code < CUSTOM:
        return next(op for op in native() if op.native_code == code)
    if code not in _custom:
        raise RuntimeError(
            f"the graph calls operation {code - CUSTOM} written in Python, which this process does not have: make the "
            "graph again from the layer"
        )
    return _custom[code]


def resolve(ops: Sequence[OpLike]) -> tuple[Op, ...]:
    """Return names, rows and plain callables as rows of the table, in the user's order."""
    if isinstance(ops, str) or not isinstance(ops, Sequence):
        raise TypeError(f'ops is a sequence of names or callables such as ("keep", "replace"), got {ops!r}')
    if not ops:
        raise ValueError(f"ops is empty: a unit needs at least one operation of {', '.join(_TABLE)} or a callable")
    rows = tuple(_row(op, position) for position, op in enumerate(ops))
    seen: set[str] = set()
    for op in rows:
        if op.name in seen:
            raise ValueError(f"operation {op.name!r} is given twice: each operation of a unit has a name of its own")
        seen.add(op.name)
    return rows


def _row(op: OpLike, position: int) -> Op:
    if isinstance(op, str):
        return get(op)
    if not isinstance(op, Op):
        if not callable(op):
            raise TypeError(f"ops[{position}] is neither a name nor a callable (s, v) -> tensor: {op!r}")
        op = Op(_name_of(op, position), r"f(s, v)", op, "User-defined operation")
    if _TABLE.get(op.name) is not op:
        _check_result(op)
    return op


def _name_of(function: Function, position: int) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else f"op{position}"


def _check_result(op: Op) -> None:
    """Call the operation once: a result of another shape or dtype would fail far from here."""
    s, v = (torch.linspace(first, -first, 6, device="cpu").view(2, 3) for first in (-0.9, 0.8))
    try:
        with torch.no_grad():
            result = op.function(s, v)
    except TypeError as error:
        raise TypeError(f"operation {op.name!r} must be callable as (s, v) -> tensor: {error}") from error
    if not isinstance(result, Tensor):
        raise TypeError(f"operation {op.name!r} must return a tensor, got {type(result).__name__}")
    if result.shape != s.shape or result.dtype != s.dtype:
        raise ValueError(
            f"operation {op.name!r} must return a tensor of its arguments' shape and dtype: "
            f"expected {tuple(s.shape)} {s.dtype}, got {tuple(result.shape)} {result.dtype}"
        )


keep = register(Op("keep", "s", lambda s, v: s, "Keep previous hidden state", 0))
replace = register(Op("replace", "v", lambda s, v: v, "Replace state with new features", 1))
max = register(Op("max", r"\max(s, v)", torch.maximum, "Maximum in every dimension", 2))
min = register(Op("min", r"\min(s, v)", torch.minimum, "Minimum in every dimension", 3))
mul = register(Op("mul", r"s \odot v", lambda s, v: s * v, "Element-wise multiplication", 4))
diff = register(
    Op("diff", r"\tfrac12 |s - v|", lambda s, v: 0.5 * (s - v).abs(), "Element-wise absolute difference", 5)
)
forget = register(Op("forget", "0", lambda s, v: torch.zeros_like(s), "Reset current state to zero", 6))

PAPER = names()
"""The seven operations of the paper's table, in its order."""

sqr_diff = register(
    Op("sqr_diff", r"\tfrac14 (s - v)^2", lambda s, v: 0.25 * (s - v).square(), "Squared difference, scaled", 7)
)
negate = register(Op("negate", "-s", lambda s, v: -s, "Flip the sign of the state", 8))
add = register(Op("add", "s + v", lambda s, v: s + v, "Add features to the state, as LSTM; not bounded by 1", 9))
