"""Forward without a backward pass to come: nothing is kept but the states, and packed weights serve many calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from weakref import ref

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from mufuru.kernels import native
from mufuru.kernels.native import Inputs, Options
from mufuru.kernels.problem import Problem
from mufuru.kernels.run import Result


class _Entry(NamedTuple):
    key: tuple[object, ...]
    weights: list[ref[Tensor]]
    """Not by their ids: a new tensor may get that of one that is gone."""
    packed: Tensor


_packed: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def sequence(inputs: Inputs, options: Options) -> Result:
    problem, out = native.describe(inputs, options, keep=False)
    _give_weights(problem, inputs, options)
    native.run(problem, inputs, options, out)
    k_n = None if inputs.k0 is None else out.k_n
    return Result(out.output, out.s_n, k_n, *((out.p, out.v) if options.trace else ()))


def _give_weights(problem: Problem, inputs: Inputs, options: Options) -> None:
    """From the cache, as long as the very same tensors hold the same numbers."""
    weights = [tensor for tensor in inputs[3:10] if tensor is not None]
    if any(weight.is_inference() for weight in weights):
        native.pack(problem, inputs)
        return
    # an edit through `.data` does not raise a tensor's version, but may change the sample of its numbers
    key = (options, problem.sample(), *(weight._version for weight in weights))
    entry: _Entry | None = _packed.get(inputs.hh)
    if (
        entry is not None
        and entry.key == key
        and all(known() is weight for known, weight in zip(entry.weights, weights, strict=True))
    ):
        problem.point("space", entry.packed)
    else:
        _packed[inputs.hh] = _Entry(key, [ref(weight) for weight in weights], native.pack(problem, inputs))


def forget(weights: Iterable[Tensor]) -> None:
    """Drop the packed copies of these weights."""
    for weight in weights:
        _packed.pop(weight, None)
