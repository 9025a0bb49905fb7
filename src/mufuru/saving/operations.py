"""The operations of a saved model: names for all, and a few values to recognise custom ones."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from mufuru import ops as operations
from mufuru.ops import Op

SAMPLE = (-1.5, -0.6, 0.0, 0.25, 1.0)
"""An operation is sampled at all pairs of these."""
CLOSE = 1e-5
"""Two machines may differ in the last bits of an exponential."""


def custom_operations(model: nn.Module) -> dict[str, list[float | None]]:
    """Return samples of a model's custom operations, by name."""
    samples: dict[str, list[float | None]] = {}
    for op in _operations(model):
        row = operations.get(op.name) if op.name in operations.names() else op
        if row is not op:
            raise ValueError(
                f"this model's operation {op.name!r} is not the registered one of that name: a model that is saved "
                "names its operations, so give it a name of its own with mufuru.register"
            )
        if op.native_code is None:
            samples[op.name] = sample(op)
    return samples


def require_operations(saved: Any) -> None:
    """Check that custom operations are registered and give the same values as when the model was saved."""
    if not isinstance(saved, dict) or not all(isinstance(values, list) for values in saved.values()):
        raise ValueError("custom_operations should be samples of operations by name")
    if missing := [name for name in saved if name not in operations.names()]:
        calls = ", ".join(f"mufuru.register({name!r}, function)" for name in missing)
        raise ValueError(f"the model uses operations that are not built in: provide them first, with {calls}")
    for name, values in saved.items():
        if not _close(sample(operations.get(name)), values):
            raise ValueError(
                f"the operation {name!r} that is registered here gives other values than the one that the model was "
                "saved with: register that one"
            )


def sample(op: Op) -> list[float | None]:
    """Return the operation's values, None where there is no number."""
    numbers = torch.tensor(SAMPLE, device="cpu")
    s, v = torch.cartesian_prod(numbers, numbers).unbind(1)
    with torch.no_grad():
        values: list[float] = op(s, v).double().tolist()
    return [value if math.isfinite(value) else None for value in values]


def _close(values: list[float | None], saved: list[Any]) -> bool:
    if len(values) != len(saved):
        return False
    for one, other in zip(values, saved, strict=True):
        if one is None or not isinstance(other, int | float):
            if one is not other:
                return False
        elif not math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE):
            return False
    return True


def _operations(model: nn.Module) -> Iterator[Op]:
    for module in model.modules():
        # every model of this library has it
        if callable(operations := getattr(module, "_operations", None)):
            yield from operations()
