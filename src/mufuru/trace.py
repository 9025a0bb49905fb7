r"""Looking inside: which operation was used where, summaries over a data set, and interventions.

A new state is exactly $\sum_j p_j \odot \mathrm{op}_j(s, v)$. A `Trace` holds $p$, $s$ and $v$ of one forward pass, so
it can name every operation's weight and its exact contribution.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from mufuru.kernels.call import known_when_traced
from mufuru.ops import Op, did_you_mean
from mufuru.sequences import Sequences

T = TypeVar("T")
ByThread: TypeAlias = dict[int, T]
"""Values set for a layer, by thread: as with `torch.no_grad`, a context belongs to the thread that entered it."""


@dataclass(frozen=True)
class Steps:
    """The intermediate values of one direction of one layer, packed as in `Sequences`."""

    p: Tensor
    s: Tensor
    v: Tensor
    output: Tensor


@dataclass(frozen=True)
class Trace:
    """The inside of one forward pass of a `MuFuRU` layer.

    Tensors are laid out as the layer's output, with its last dimension replaced: (steps, batch, operations, hidden) or,
    with `batch_first`, (batch, steps, operations, hidden); zero past the end of a sequence. A `PackedSequence` comes
    back padded. `layer` counts from 0; `direction` is 0 for forward and 1 for reverse.
    """

    ops: tuple[Op, ...]
    sequences: Sequences
    directions: int
    parts: tuple[Steps, ...]

    @property
    def op_names(self) -> tuple[str, ...]:
        return tuple(op.name for op in self.ops)

    @property
    def lengths(self) -> Tensor:
        """(batch,): the number of steps of each sequence."""
        return self.sequences.lengths()

    def weights(self, layer: int = 0, direction: int = 0) -> Tensor:
        """Operation weights, (steps, batch, operations, hidden)."""
        return self.sequences.padded(self.part(layer, direction).p)

    def weight(self, op: str, layer: int = 0, direction: int = 0) -> Tensor:
        """The weights of the operation of that name, (steps, batch, hidden)."""
        if op not in self.op_names:
            raise ValueError(f"this layer has no operation {op!r}: {did_you_mean(op, self.op_names)}")
        return self.weights(layer, direction).select(-2, self.op_names.index(op))

    def states(self, layer: int = 0, direction: int = 0) -> Tensor:
        """The state that each step started from, (steps, batch, hidden)."""
        return self.sequences.padded(self.part(layer, direction).s)

    def features(self, layer: int = 0, direction: int = 0) -> Tensor:
        """The new features of each step, (steps, batch, hidden)."""
        return self.sequences.padded(self.part(layer, direction).v)

    def outputs(self, layer: int = 0, direction: int = 0) -> Tensor:
        """The state after each step, (steps, batch, hidden)."""
        return self.sequences.padded(self.part(layer, direction).output)

    def contributions(self, layer: int = 0, direction: int = 0) -> Tensor:
        """Each operation's share of the new state, (steps, batch, operations, hidden).

        They add up to the new state. With zoneout, to the new state before old and new are mixed.
        """
        part = self.part(layer, direction)
        return self.sequences.padded(part.p * torch.stack([op(part.s, part.v) for op in self.ops], -2))

    def part(self, layer: int, direction: int) -> Steps:
        layers = len(self.parts) // self.directions
        if not (0 <= layer < layers and 0 <= direction < self.directions):
            raise IndexError(
                f"this layer has layers 0..{layers - 1} and directions 0..{self.directions - 1}, "
                f"got layer={layer}, direction={direction}"
            )
        return self.parts[layer * self.directions + direction]


@contextmanager
def tracing(module: nn.Module) -> Iterator[dict[str, list[Trace]]]:
    """Collect a `Trace` for every forward pass of every `MuFuRU` layer inside `module`, by the layer's name.

    Gradients flow through the traced weights unless the passes run under `torch.no_grad()`. Passes of other threads are
    left out.
    """
    layers = _layers(module)
    traces: dict[str, list[Trace]] = {name: [] for name in layers}
    with _set("_traces", [(layer, traces[name]) for name, layer in layers.items()]):
        yield traces


@contextmanager
def intervene(module: nn.Module, *, forbid: Sequence[str] | str = (), force: str | None = None) -> Iterator[None]:
    """Within this context every `MuFuRU` layer inside `module` goes without the forbidden operations, or has only the
    forced one. The other operations' weights are renormalised, as if the forbidden logits were minus infinity. Other
    threads notice nothing.
    """
    forbidden = (forbid,) if isinstance(forbid, str) else tuple(forbid)
    layers = _layers(module)
    with _set("_allowed", [(layer, _allowed(layer.ops, forbidden, force)) for layer in layers.values()]):
        yield


def of_this_thread(values: Mapping[int, T]) -> T | None:
    if values and _thread() not in values and _is_autograds():
        # a backward pass that computes the forward pass again is on behalf of whoever is within a context
        return next(iter(values.values())) if len(values) == 1 else None
    return values.get(_thread()) if values else None


@known_when_traced
def _thread() -> int:
    return threading.get_ident()


@known_when_traced
def _is_autograds() -> bool:
    """Return whether this thread was not started by Python, as that of a backward pass on a GPU."""
    return isinstance(threading.current_thread(), threading._DummyThread)


@contextmanager
def _set(attribute: str, pairs: Sequence[tuple[Any, Any]]) -> Iterator[None]:
    """Set values of this thread for layers, and then the ones before again.

    The attribute is looked up again at the end: torch.export, run in between, leaves a copy of it with the layer.
    """
    thread = _thread()
    before = [getattr(layer, attribute).get(thread) for layer, _ in pairs]
    try:
        for layer, value in pairs:
            getattr(layer, attribute)[thread] = value
        yield
    finally:
        for (layer, _), value in zip(pairs, before, strict=True):
            values: ByThread[Any] = getattr(layer, attribute)
            if value is None:
                values.pop(thread, None)
            else:
                values[thread] = value


def _layers(module: nn.Module) -> dict[str, Any]:
    """The layers inside a module that keep traces, by name: all that build on `Recurrent`."""
    layers = {name: layer for name, layer in module.named_modules() if "_traces" in vars(layer)}
    if not layers:
        raise ValueError(f"{type(module).__name__} contains no MuFuRU or MuFuRUCell")
    return layers


def _allowed(names: tuple[str, ...], forbid: tuple[str, ...], force: str | None) -> tuple[bool, ...]:
    for name in (*forbid, *(() if force is None else (force,))):
        if name not in names:
            raise ValueError(f"cannot forbid or force {name!r}: {did_you_mean(name, names)}")
    allowed = tuple(name not in forbid and force in (None, name) for name in names)
    if not any(allowed):
        raise ValueError(f"nothing is left of the operations {', '.join(names)}: allow at least one")
    return allowed
