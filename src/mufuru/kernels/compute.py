"""The native kernel on tensors: memory for `csrc/` to read and write, and the calls of its library.

The softmax does not change when one logit is subtracted from all: the last operation is the reference, its weights are
taken off the others' beforehand, and it needs no product of its own. Biases stay as they are, since one may be -inf.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mufuru.kernels import custom, half
from mufuru.kernels.call import GIVEN, INPUTS, N_DIFFERENTIABLE, OUTPUTS, Call, Packed, Result, previous_states
from mufuru.kernels.problem import SAVED, Problem, loaded, plain
from mufuru.tensors import exists

N_OUTPUTS = len(OUTPUTS)
TRAINING_STEPS, INFERENCE_STEPS = 4, 1
"""Up to this many steps use each weight too seldom for packing all of them: products then pack a little at a time.
Inference keeps packed weights from call to call, which pays from two steps on."""


def forward_of_any(call: Call) -> list[Any]:
    """`forward` of tensors that may be anything that torch's dispatcher gives."""
    return forward(call.settings().call(plain(call.tensors())))


def forward(call: Call) -> list[Any]:
    """Run all steps and return the outputs, then the tensors for the backward pass: the rows of `OUTPUTS` and `SAVED`.

    The layer has validated the tensors: nothing is checked again.
    """
    problem, out = _describe(call, keep=True)
    if not problem.direct:
        pack(problem, call.weights.hh.dtype)
    _run(problem, call, out)
    return out


def inference(call: Call) -> Result:
    """Run all steps without a backward pass: only the states are kept, and packed weights serve many calls."""
    problem, out = _describe(call, keep=False)
    if not problem.direct:
        if call.packed is None:
            pack(problem, call.weights.hh.dtype)
        else:
            _give_weights(problem, call, call.packed)
    _run(problem, call, out)
    return Result(*out[:N_OUTPUTS])


def _give_weights(problem: Problem, call: Call, packed: Packed) -> None:
    """Use the packed weights if they were made of the same numbers: no other sign of a change is sure."""
    dtype = call.weights.hh.dtype
    key = (call.unit, call.bfloat16, dtype, problem.checksum())
    known, kept = packed.get("weights", (None, None))  # at once: another thread may put others in their place
    if known == key and kept is not None:
        problem.point("space", kept)
    else:
        packed["weights"] = (key, pack(problem, dtype))


def _describe(call: Call, keep: bool) -> tuple[Problem, list[Any]]:
    """The arguments of a forward pass but for the packed weights, and memory for its results."""
    tensors = [None if tensor is None else tensor.contiguous() for tensor in call.tensors()]
    sizes = {**call.unit.sizes, "total": call.x.size(0), "batch": call.s0.size(0)}
    out = empty_outputs(call.s0, sizes, call.unit.facts, call.trace, keep or bool(call.unit.python_ops))
    return _problem(call, tensors, TRAINING_STEPS if keep else INFERENCE_STEPS, out), out


def pack(problem: Problem, dtype: torch.dtype) -> Tensor:
    """Return the weights as panels."""
    space = problem.take_space(False, dtype)
    loaded().mufuru_pack(problem.address)
    return space


def _run(problem: Problem, call: Call, out: list[Any]) -> None:
    """Run all steps of a fully described forward pass."""
    if call.unit.python_ops:
        custom.forward(problem, call, Result(*out[:N_OUTPUTS]), out[N_OUTPUTS])
    else:
        loaded().mufuru_forward(problem.address)
    if call.batch_sizes is not None:
        _clear_padding(call.batch_sizes, out[0], *out[3:N_OUTPUTS])


def empty_outputs(
    like: Tensor, sizes: Mapping[str, int], facts: frozenset[str], trace: bool, keep: bool
) -> list[Tensor | None]:
    """Return memory for the rows of `OUTPUTS` and `SAVED`, the latter if `keep`; `None` for those that do not exist."""
    shapes = _shapes_of_outputs(facts, trace, keep)
    return [None if shape is None else like.new_empty([sizes[name] for name in shape]) for shape in shapes]


@lru_cache
def _shapes_of_outputs(facts: frozenset[str], trace: bool, keep: bool) -> list[tuple[str, ...] | None]:
    facts = facts | {"trace"} if trace else facts
    saved = SAVED if keep else ()
    shapes = [row.shape if exists(row, facts) else None for row in (*OUTPUTS, *saved)]
    return shapes if keep else [*shapes, *[None] * len(SAVED)]


def backward(
    grads: Sequence[Tensor | None], call: Call, saved: Iterable[Tensor | None], needs_x: bool
) -> list[Tensor | None]:
    """Return the gradients of inputs and weights from those of the outputs; `saved` is the output and the rows of
    `SAVED`. Tensors may be anything that torch's dispatcher gives."""
    tensors = plain(call.tensors())
    output, *kept = plain(saved)
    grads = plain(grads)
    _check_kept(call, (*tensors, output, *kept), grads)
    _expect(sum(tensor.nbytes for tensor in tensors[3:N_DIFFERENTIABLE] if tensor is not None))
    gradients: list[Any] = [
        None if tensor is None else torch.empty_like(tensor) for tensor in tensors[:N_DIFFERENTIABLE]
    ]
    if not needs_x:
        gradients[0] = None
    out = (output, *[None] * (N_OUTPUTS - 1), *kept)
    problem = _problem(call, tensors, TRAINING_STEPS, (*out, *grads, *gradients))
    problem.take_space(True, tensors[1].dtype)
    if call.unit.python_ops:
        call = call.settings().call(tensors)
        states = previous_states(output, call.s0, call.batch_sizes, call.reverse, call.masks.resets)
        features = kept[0][: len(states), : call.unit.hidden_size]
        problem.point("custom", *plain(custom.derivatives(call.unit.codes, states, features)))
    loaded().mufuru_backward(problem.address)
    if call.batch_sizes is not None:
        _clear_padding(call.batch_sizes, gradients[0])
    return gradients


_expected = 0
_LARGEST = (1 << 25) - (1 << 16)
"""Just below the largest block whose size glibc remembers."""


def _expect(size: int) -> None:
    """Let the C library keep as much freed memory as gradients of this many bytes need from one update to the next.

    glibc gives memory back once twice the largest block freed so far lies free: that is exactly what `zero_grad` frees
    where two matrices are all the gradients, and in each update every page of them would be made anew. So one block as
    large as all of them is taken once, untouched, and freed.
    """
    global _expected
    if size > _expected:
        _expected = size
        torch.empty(min(size, _LARGEST), dtype=torch.uint8, device="cpu")


_KEPT = (*INPUTS, OUTPUTS[0], *SAVED)
_NAMES = (*GIVEN, *(f"the saved tensor {row.name!r}" for row in _KEPT[N_DIFFERENTIABLE:]))
_OF_STEPS = [row.shape for row in _KEPT].index(("steps",))


def _check_kept(call: Call, tensors: Sequence[Any], grads: Iterable[Tensor | None]) -> None:
    """Check the inputs, then the saved tensors, as the backward pass gets them, before C reads their memory.

    A program can exchange them: a parameter gets other data, or a hook on saved tensors returns something else.
    """
    output, steps = tensors[len(INPUTS)], tensors[_OF_STEPS]
    number, count = output.dtype, None if steps is None else tuple(steps.shape[:1])
    shapes = _shapes_of_kept((*call.unit.sizes.items(), ("total", output.size(0)), ("batch", call.s0.size(0))),
                             call.unit.facts, count)  # fmt: skip
    for tensor, shape, row in zip(tensors, shapes, _KEPT, strict=True):
        if tensor is None or shape is None or (tensor.shape == shape and tensor.dtype == (row.dtype or number)):
            continue
        raise RuntimeError(
            f"{_NAMES[_KEPT.index(row)]} was {row.dtype or number} of shape {list(shape)} in the forward pass, and is "
            f"{tensor.dtype} of shape {list(tensor.shape)} now: call backward before parameters get other data, and "
            "let hooks on saved tensors return what they were given"
        )
    dtypes = {number, *(grad.dtype for grad in grads if grad is not None)}
    if dtypes not in ({torch.float32}, {torch.float64}):
        raise RuntimeError(
            f"all saved tensors are {number} now, and were not in the forward pass: let hooks on saved tensors return "
            "what they were given"
        )


@lru_cache(maxsize=256)
def _shapes_of_kept(
    sizes: tuple[tuple[str, int], ...], facts: frozenset[str], steps: tuple[int, ...] | None
) -> list[tuple[int, ...] | None]:
    """Shapes of `_KEPT`, `None` for those that a unit with these facts lacks."""
    named = dict(sizes)
    return [None if not exists(row, facts) else steps if row.shape == ("steps",) else row.sized(named) for row in _KEPT]


def _clear_padding(batch_sizes: Tensor, *packed: Tensor | None) -> None:
    """The kernel leaves the rows beyond the last step's as they were."""
    rows = int(batch_sizes.sum())
    for tensor in packed:
        if tensor is not None and tensor.size(0) > rows:
            tensor[rows:] = 0


def problem_of_a_step(numbers: tuple[int, ...], codes: tuple[int, ...], batch: int, dtype: torch.dtype) -> Problem:
    """Return the arguments of one step that packs nothing, without its tensors, from a unit's `numbers` and `codes`."""
    sizes = (1, batch, *numbers, False, dtype == torch.float64, half.WHOLE, True)
    problem = Problem(sizes, (_codes(codes),))
    problem.point("offsets", _even_offsets(batch, batch))
    return problem


def _problem(call: Call, tensors: list[Any], direct_steps: int, others: Iterable[Tensor | None]) -> Problem:
    """The arguments of one call: its tensors are `plain`, and `others` follow them in the order of `POINTERS`."""
    steps, offsets = _offsets(call.batch_sizes, call.x.size(0), call.s0.size(0))
    sizes = (
        steps, call.s0.size(0), *call.unit.numbers, call.reverse,
        tensors[1].dtype == torch.float64, half.way() if call.bfloat16 else half.WHOLE, steps <= direct_steps,
    )  # fmt: skip
    masks = tensors[N_DIFFERENTIABLE + 1 :]
    pointers = (_codes(call.unit.codes), None, *tensors[:N_DIFFERENTIABLE], offsets, *masks, *others)
    return Problem(sizes, pointers)


@lru_cache(maxsize=64)
def _codes(codes: tuple[int, ...]) -> Tensor:
    return torch.tensor(custom.local_codes(codes), device="cpu")


def _offsets(batch_sizes: Tensor | None, total: int, batch: int) -> tuple[int, Tensor]:
    """The number of steps, and where the rows of each begin."""
    if batch_sizes is None:
        return (total // batch if batch else 0), _even_offsets(total, batch)
    offsets = torch.zeros(len(batch_sizes) + 1, dtype=torch.int64, device="cpu")
    torch.cumsum(batch_sizes, 0, out=offsets[1:])
    return len(batch_sizes), offsets


@lru_cache(maxsize=64)
def _even_offsets(total: int, batch: int) -> Tensor:
    return torch.arange(0, total + 1, batch or 1, device="cpu")
