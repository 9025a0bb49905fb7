"""Forward without a backward pass to come: nothing is kept but the states, and packed weights serve many calls."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from mufuru.kernels import native, problem
from mufuru.kernels.native import Inputs, Options, Prepared, Shape
from mufuru.kernels.run import Result


class _Entry(NamedTuple):
    key: tuple[object, ...]
    prepared: Prepared


_packed: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def sequence(inputs: Inputs, options: Options) -> Result:
    out = native.forward(inputs, options, _prepared(inputs, options), keep=False)
    k_n = None if inputs.k0 is None else out.k_n
    return Result(out.output, out.s_n, k_n, *((out.p, out.v) if options.trace else ()))


def _prepared(inputs: Inputs, options: Options) -> Prepared:
    """From the cache, as long as the very same tensors hold the same numbers."""
    weights = [tensor for tensor in inputs[3:10] if tensor is not None]
    if any(tensor.is_inference() for tensor in weights):
        return _prepare(inputs, options)
    key = (options, *((id(w), w._version, w.data_ptr(), _sample(w)) for w in weights))
    entry: _Entry | None = _packed.get(inputs.hh)
    if entry is None or entry.key != key:
        entry = _Entry(key, _prepare(inputs, options))
        _packed[inputs.hh] = entry
    return entry.prepared


def _prepare(inputs: Inputs, options: Options) -> Prepared:
    inputs = native.contiguous(inputs)
    return native.prepare(Shape.of(inputs, options), inputs, options)


def _sample(weight: Tensor) -> int:
    """A few of its numbers, mixed: an edit through `.data` does not raise a tensor's version, but changes these."""
    if not weight.is_contiguous():
        weight = weight.contiguous()
    sample: int = problem.native().mufuru_sample(weight.data_ptr(), weight.nbytes)
    return sample


def forget(parameters: list[nn.Parameter]) -> None:
    """Drop the packed copies of these parameters."""
    for parameter in parameters:
        _packed.pop(parameter, None)
