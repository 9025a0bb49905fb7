"""Forward without a backward pass to come: nothing is kept but the states, and packed weights serve many calls."""

from __future__ import annotations

from mufuru.kernels import native
from mufuru.kernels.native import Inputs, Options
from mufuru.kernels.problem import Problem
from mufuru.kernels.run import Packed, Result


def sequence(inputs: Inputs, options: Options, packed: Packed | None = None) -> Result:
    problem, out = native.describe(inputs, options, keep=False)
    if problem.direct:
        pass  # products read the weights as they lie
    elif packed is None:
        native.pack(problem, inputs)
    else:
        _give_weights(problem, inputs, options, packed)
    native.run(problem, inputs, options, out)
    k_n = None if inputs.k0 is None else out.k_n
    return Result(out.output, out.s_n, k_n, *((out.p, out.v) if options.trace else ()))


def _give_weights(problem: Problem, inputs: Inputs, options: Options, packed: Packed) -> None:
    """Those that are kept, if they were made of the same numbers: no other sign of a change is sure."""
    shapes = tuple(None if weight is None else weight.shape for weight in inputs[3:10])
    key = (options, inputs.hh.dtype, shapes, problem.checksum())
    if (kept := packed.get("weights")) is not None and kept[0] == key:
        problem.point("space", kept[1])
    else:
        packed["weights"] = (key, native.pack(problem, inputs))
