"""Gradient checkpointing along time: keep the states between segments, recompute the rest in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mufuru.door import check_all
from mufuru.kernels.run import Masks, Result, Run, sequence_of_rows
from mufuru.unit import STEMS


def run_in_segments(run: Run, every: int, sequence: Callable[[Run], Result]) -> Result:
    """As `sequence(run)`, with what the backward pass needs kept for one segment of `every` steps at a time."""
    if run.masks.resets is not None:
        return _by_documents(run, run.masks.resets, every, sequence)
    parts = segments(run, every)
    results: list[Result] = []
    s, k = run.s0, run.k0
    for part in parts:
        tensors = checkpoint(_call, sequence, part._replace(s0=s, k0=k), use_reentrant=False)
        result = Result(*tensors)
        s, k = result.s_n, result.k_n
        results.append(result)
    if run.reverse:
        results.reverse()
    output = torch.cat([result.output for result in results])
    return Result(output, s, k, _cat([result.p for result in results]), _cat([result.v for result in results]))


def _by_documents(run: Run, resets: Tensor, every: int, sequence: Callable[[Run], Result]) -> Result:
    """A segment knows the state that it begins with, not the one that resets lead to: what lies between two resets
    becomes a sequence of its own."""
    found = _documents(run, resets)
    rows, owners, last = (tensor.to(run.x.device) for tensor in (found.rows, found.owners, found.last))

    def select(tensor: Tensor | None, index: Tensor) -> Any:
        return None if tensor is None else tensor.index_select(0, index)

    masks = Masks(select(run.masks.state, owners), select(run.masks.zoneout, rows), select(run.masks.allowed, owners))
    x, s0, k0 = run.x.index_select(0, rows), run.s0.index_select(0, owners), select(run.k0, owners)
    apart = run._replace(x=x, s0=s0, k0=k0, batch_sizes=found.batch_sizes, masks=masks)
    result, back = run_in_segments(apart, every, sequence), rows.argsort()
    parts = (select(result.output, back), select(result.s_n, last), select(result.k_n, last))
    return Result(*parts, select(result.p, back), select(result.v, back))


class _Documents(NamedTuple):
    """The parts of all sequences between two resets, longest first."""

    batch_sizes: Tensor
    rows: Tensor
    """(total,): which row of the run each of their packed rows is."""
    owners: Tensor
    """(documents,): which sequence each is a part of."""
    last: Tensor
    """(batch,): the part of each sequence that its last state comes from."""


def _documents(run: Run, resets: Tensor) -> _Documents:
    steps, batch, total = len(run.sizes()), len(run.s0), len(resets)
    sequence = sequence_of_rows(run.batch_sizes, total, batch)
    sizes = torch.full((steps,), batch) if run.batch_sizes is None else run.batch_sizes
    step = torch.repeat_interleave(sizes)
    before = torch.zeros(steps, batch, dtype=torch.int64)
    before[step, sequence] = resets.long().cpu()
    before = before.flip(0).cumsum(0).flip(0) if run.reverse else before.cumsum(0)
    counts = before.amax(0) + 1
    document = (counts.cumsum(0) - counts)[sequence] + before[step, sequence]
    lengths = document.bincount(minlength=int(counts.sum()))
    begins = torch.full_like(lengths, steps).scatter_reduce(0, document, step, "amin")
    lengths, longest_first = lengths.sort(descending=True, stable=True)
    place = longest_first.argsort()
    rows = ((step - begins[document]) * len(lengths) + place[document]).argsort()
    batch_sizes = (lengths.unsqueeze(1) > torch.arange(int(lengths[0]))).sum(0)
    return _Documents(batch_sizes, rows, torch.repeat_interleave(counts)[longest_first], place[counts.cumsum(0) - 1])


def segments(run: Run, every: int) -> list[Run]:
    """The run cut along time, in the order in which the parts are to be run; their first states are yet to be set."""
    sizes = run.sizes()
    starts = [0, *accumulate(sizes)]
    parts: list[Run] = []
    for begin in range(0, len(sizes), every):
        end = min(begin + every, len(sizes))
        rows = slice(starts[begin], starts[end])
        batch_sizes = None if run.batch_sizes is None else run.batch_sizes[begin:end]
        zoneout = None if run.masks.zoneout is None else run.masks.zoneout[rows]
        masks = run.masks._replace(zoneout=zoneout)
        parts.append(run._replace(x=run.x[rows], batch_sizes=batch_sizes, masks=masks))
    return parts[::-1] if run.reverse else parts


def _call(sequence: Callable[[Run], Result], run: Run) -> tuple[Tensor | None, ...]:
    # the backward pass comes here again, and what the layer's door has seen may not be there any more
    check_all(("input", "h_0", "k_0", *STEMS), (run.x, run.s0, run.k0, *run.weights))
    result = sequence(run)
    return result.output, result.s_n, result.k_n, result.p, result.v


def _cat(parts: list[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None
