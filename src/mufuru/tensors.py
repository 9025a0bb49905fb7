"""Rows of the table of all tensors that a kernel reads and writes.

A tensor is declared once, as an annotated field of `Weights`, `Call`, `Masks`, `Result` or `Saved`. `rows` reads the
fields; operators, shapes for tracing, gradients and the pointers for C are made of its rows.
"""

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args, get_type_hints

import torch

Role: TypeAlias = Literal["input", "weight", "mask", "output", "saved"]


class Shape(NamedTuple):
    """The part of a tensor's row beside its type."""

    sizes: str
    """Names of its sizes: `total` rows, `steps`, `batch`, or of the unit, as in `named_sizes`."""
    dtype: torch.dtype | None = None
    """Default: the dtype of the input."""
    when: str = ""
    """The tensor exists if a call has all of these: `bias`, `controller`, `after` (the reset gate's place), `trace`."""
    name: str = ""
    """Name in operators and in C, where it is not the field's."""


class Row(NamedTuple):
    """One tensor."""

    name: str
    role: Role
    shape: tuple[str, ...]
    dtype: torch.dtype | None
    """`None` for the dtype of the input."""
    optional: bool
    when: frozenset[str]

    @property
    def differentiable(self) -> bool:
        """Whether it has a gradient: every input and weight made of real numbers."""
        return self.role in ("input", "weight") and self.dtype is None

    def sized(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape in numbers."""
        return tuple(sizes[name] for name in self.shape)


def rows(kind: type, role: Role) -> tuple[Row, ...]:
    """Return a row for each field of the class that is annotated with a `Shape`."""
    table = []
    for field, hint in get_type_hints(kind, include_extras=True).items():
        for shape in getattr(hint, "__metadata__", ()):
            optional = type(None) in get_args(hint.__origin__)
            words = tuple(shape.sizes.split()), shape.dtype, optional, frozenset(shape.when.split())
            table.append(Row(shape.name or field, role, *words))
    return tuple(table)


def named_sizes(inputs: int, hidden: int, controller: int, ops: int, blocks: int) -> dict[str, int]:
    """Return the sizes of a unit by the names that shapes use; `blocks` of `hidden` rows precede the operations'."""
    logits = ops * hidden
    return {
        "inputs": inputs,
        "hidden": hidden,
        "controller": controller,
        "ops": ops,
        "logits": logits,
        "others": logits - hidden,  # without the last operation, to which the others are relative
        "rows": blocks * hidden + (controller or logits),
        "width": blocks * hidden + (controller or logits - hidden),
    }


def exists(row: Row, facts: Collection[str]) -> bool:
    return row.when.issubset(facts)
