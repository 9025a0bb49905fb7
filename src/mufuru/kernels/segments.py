"""Gradient checkpointing along time: keep the states between segments, recompute the rest in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from mufuru.kernels.run import Result, Run


def run_in_segments(run: Run, every: int, sequence: Callable[[Run], Result]) -> Result:
    """As `sequence(run)`, with what the backward pass needs kept for one segment of `every` steps at a time."""
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
    result = sequence(run)
    return result.output, result.s_n, result.k_n, result.p, result.v


def _cat(parts: list[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present) if present else None
