"""How much is taken from whom: sizes, steps and rate. What is beyond them is refused with a sentence."""

from __future__ import annotations

import time
from collections.abc import Callable

BODY = 64 * 1024
"""Bytes of a request."""
CHARACTERS = 8_000
"""Of a text."""
STEPS = 300
"""Tokens of a text."""
STEPS_BOTH_WAYS = 100
"""Tokens where the model reads from both ends: each prediction needs a pass of its own."""
RATE = 100.0
"""Requests a second that are answered over a longer time, for all clients together."""
BURST = 200
"""Requests that may come at once."""
WAITING = 64
"""Requests that may wait for their turn."""


class Refused(Exception):
    """A request that is not answered: the HTTP status and a sentence for the user."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class Bucket:
    """A token bucket: `rate` a second flow in, up to `size`; every request takes one."""

    def __init__(self, rate: float = RATE, size: int = BURST, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.size, self.clock = rate, size, clock
        self.level, self.then = float(size), clock()

    def take(self) -> bool:
        """Whether there was one left."""
        now = self.clock()
        self.level = min(self.size, self.level + (now - self.then) * self.rate)
        self.then = now
        if self.level < 1:
            return False
        self.level -= 1
        return True


def check_length(text: str) -> None:
    """Refuse a text that is too long, before anything is made of it."""
    if len(text) > CHARACTERS:
        raise Refused(413, f"the text has {len(text):,} characters, at most {CHARACTERS:,} are read: shorten it")


def check_steps(steps: int, both_ways: bool) -> None:
    """Refuse a text of too many tokens."""
    most = STEPS_BOTH_WAYS if both_ways else STEPS
    if steps > most:
        why = " by a model that reads from both ends" if both_ways else ""
        raise Refused(413, f"the text has {steps} tokens, at most {most} are read{why}: shorten it")
