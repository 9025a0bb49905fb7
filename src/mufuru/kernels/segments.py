"""Gradient checkpointing along time: keep the states between segments, recompute the rest in the backward pass."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mufuru.kernels.call import GIVEN, Call, Result, sequence_of_rows
from mufuru.validate import check_all


def run_in_segments(call: Call, every: int, sequence: Callable[[Call], Result]) -> Result:
    """Run `sequence(call)`, keeping activations for one segment of `every` steps at a time."""
    if call.masks.resets is not None:
        return _by_documents(call, call.masks.resets, every, sequence)
    parts = segments(call, every)
    results: list[Result] = []
    s, k = call.s0, call.k0
    for part in parts:
        tensors = checkpoint(_call, sequence, part._replace(s0=s, k0=k), use_reentrant=False)
        result = Result(*tensors)
        s, k = result.s_n, result.k_n
        results.append(result)
    if call.reverse:
        results.reverse()
    output = torch.cat([result.output for result in results])
    return Result(output, s, k, _cat([result.p for result in results]), _cat([result.v for result in results]))


def _by_documents(call: Call, resets: Tensor, every: int, sequence: Callable[[Call], Result]) -> Result:
    """A segment has the state that it starts with, not the one that resets lead to: the steps between two resets become
    a sequence of their own."""
    documents = _documents(call, resets)
    rows, owners, last = (tensor.to(call.x.device) for tensor in documents[1:])

    def select(tensor: Tensor | None, index: Tensor) -> Any:
        return None if tensor is None else tensor.index_select(0, index)

    masks = call.masks.map(lambda mask: mask.index_select(0, rows), lambda mask: mask.index_select(0, owners))
    x, s0, k0 = call.x.index_select(0, rows), call.s0.index_select(0, owners), select(call.k0, owners)
    apart = call._replace(x=x, s0=s0, k0=k0, batch_sizes=documents.batch_sizes, masks=masks._replace(resets=None))
    result, back = run_in_segments(apart, every, sequence), rows.argsort()
    parts = (select(result.output, back), select(result.s_n, last), select(result.k_n, last))
    return Result(*parts, select(result.p, back), select(result.v, back))


class _Documents(NamedTuple):
    """All parts of sequences between two resets, longest first."""

    batch_sizes: Tensor
    rows: Tensor
    """(total,): for each of their packed rows, the row of the call."""
    owners: Tensor
    """(documents,): the sequence that each belongs to."""
    last: Tensor
    """(batch,): the segment of each sequence that holds its last state."""


def _documents(call: Call, resets: Tensor) -> _Documents:
    steps, batch, total = len(call.sizes()), len(call.s0), len(resets)
    sequence = sequence_of_rows(call.batch_sizes, total, batch)
    sizes = torch.full((steps,), batch, device="cpu") if call.batch_sizes is None else call.batch_sizes
    step = torch.repeat_interleave(sizes)
    before = torch.zeros(steps, batch, dtype=torch.int64, device="cpu")
    before[step, sequence] = resets.long().cpu()
    before = before.flip(0).cumsum(0).flip(0) if call.reverse else before.cumsum(0)
    counts = before.amax(0) + 1
    document = (counts.cumsum(0) - counts)[sequence] + before[step, sequence]
    lengths = document.bincount(minlength=int(counts.sum()))
    begins = torch.full_like(lengths, steps).scatter_reduce(0, document, step, "amin")
    lengths, longest_first = lengths.sort(descending=True, stable=True)
    place = longest_first.argsort()
    rows = ((step - begins[document]) * len(lengths) + place[document]).argsort()
    batch_sizes = (lengths.unsqueeze(1) > torch.arange(int(lengths[0]), device="cpu")).sum(0)
    return _Documents(batch_sizes, rows, torch.repeat_interleave(counts)[longest_first], place[counts.cumsum(0) - 1])


def segments(call: Call, every: int) -> list[Call]:
    """Return the parts of the call along time, in the order in which they run; their initial states are not yet set."""
    sizes = call.sizes()
    starts = [0, *accumulate(sizes)]
    parts: list[Call] = []
    for begin in range(0, len(sizes), every):
        end = min(begin + every, len(sizes))
        rows = slice(starts[begin], starts[end])
        batch_sizes = None if call.batch_sizes is None else call.batch_sizes[begin:end]
        parts.append(call._replace(x=call.x[rows], batch_sizes=batch_sizes, masks=call.masks.of(rows)))
    return parts[::-1] if call.reverse else parts


def _call(sequence: Callable[[Call], Result], call: Call) -> tuple[Tensor | None, ...]:
    # the backward pass calls this again, when the tensors checked by the layer may have been freed
    check_all(GIVEN, call.tensors()[: len(GIVEN)])
    return tuple(sequence(call))


def _cat(parts: list[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None
