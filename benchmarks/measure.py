"""Interleaved measuring: the peers take turns, so that whatever else the machine does meets all of them alike."""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from peers import Call
from shapes import REFERENCE, TORCHRL, Mode

SAMPLE_SECONDS = 0.01
"""A sample repeats short calls for about this long."""
SETTLE_SECONDS = 0.005
"""Calls before a sample that are not timed: caches fill, and the threads of the peer before go to sleep."""
SLOW_SECONDS = 2.0
"""The reference kernel and TorchRL are left out where one call takes longer."""
FEWEST = 2
"""Rounds that quartiles need."""


@dataclass(frozen=True)
class Budget:
    seconds: float = 1.0
    """For one measurement of all peers together."""
    samples: int = 5
    """Minimum samples of every peer, unless `limit` is over before."""
    limit: float = 15.0
    """Seconds after which a measurement ends with as many samples as there are, but two of every peer."""


@dataclass(frozen=True)
class Timing:
    """Times of a peer, in seconds per call. Sample i of all peers of a measurement is from the same round."""

    shape: str
    mode: Mode
    threads: int
    peer: str
    samples: list[float] = field(default_factory=list)
    calls_per_sample: int = 0
    left_out: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


@dataclass(frozen=True)
class Ratio:
    """Ratio of the medians, and the quartiles of the ratios round by round."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, timing: Timing, base: Timing) -> Ratio:
        rounds = [a / b for a, b in zip(timing.samples, base.samples, strict=True)]
        low, _, high = statistics.quantiles(rounds, n=4, method="inclusive")
        return cls(timing.median / base.median, low, high)


def measure(calls: Mapping[str, Call], shape: str, mode: Mode, threads: int, budget: Budget) -> list[Timing]:
    """Rounds in which every peer gives one sample, in random order, until the budget is spent."""
    torch.set_num_threads(threads)
    with torch.inference_mode(mode == "inference"):
        limits = {REFERENCE: SLOW_SECONDS, TORCHRL: SLOW_SECONDS}
        if TORCHRL in calls:
            calls[TORCHRL]()  # compiles
        once = {peer: _warm_up(call, limits.get(peer, math.inf)) for peer, call in calls.items()}
        slow = {peer for peer, seconds in once.items() if seconds > limits.get(peer, math.inf)}
        repeats = {peer: max(1, round(SAMPLE_SECONDS / once[peer])) for peer in calls if peer not in slow}
        samples = _rounds(calls, repeats, budget)
    why = f"one call takes over {SLOW_SECONDS:g} s"
    return [
        Timing(shape, mode, threads, peer, left_out=why)
        if peer in slow
        else Timing(shape, mode, threads, peer, samples[peer], repeats[peer])
        for peer in calls
    ]


def _rounds(calls: Mapping[str, Call], repeats: dict[str, int], budget: Budget) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {peer: [] for peer in repeats}
    order, shuffle = list(repeats), random.Random(0).shuffle
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        done = 0
        while done < FEWEST or _goes_on(done, time.perf_counter() - start, budget):
            shuffle(order)
            for peer in order:
                samples[peer].append(_sample(calls[peer], repeats[peer]))
            done += 1
    finally:
        gc.enable()
    return samples


def _goes_on(done: int, seconds: float, budget: Budget) -> bool:
    """Return whether there is another round, after this number of rounds and seconds."""
    return seconds < budget.limit and (done < budget.samples or seconds < budget.seconds)


def _sample(call: Call, repeats: int) -> float:
    """Seconds per call."""
    start = time.perf_counter()
    while repeats > 1 and time.perf_counter() - start < SETTLE_SECONDS:
        call()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _warm_up(call: Call, give_up: float = math.inf) -> float:
    """Seconds of a call. The first, which builds and allocates, counts only if it takes longer than `give_up`."""
    seconds = _sample(call, 1)
    if seconds > give_up:
        return seconds
    for _ in range(3):
        seconds = _sample(call, 1)
        if seconds > 0.5:
            break
    return seconds
