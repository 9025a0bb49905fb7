"""Random draws that are the same on every platform and in every version of Python and torch.

Data sets and their order are part of an experiment's definition. The generators of Python, NumPy and torch promise
the same numbers for the same release at most, so draws come from SHAKE-256, a published standard: a stream has a name
such as ("logic", "train", 3), and names that differ give streams that have nothing to do with each other.
"""

import hashlib

import torch
from torch import Tensor

_BLOCK = 4096
"""Bytes made at a time; a part of the definition, as a counter of blocks goes into the hash."""


class Draws:
    """A stream of random bits."""

    def __init__(self, *name: str | int) -> None:
        self._name = "/".join(map(str, name))
        self._blocks = 0
        self._bits = self._count = 0

    def bits(self, count: int) -> int:
        """Return a number of `count` random bits."""
        while self._count < count:
            block = _hash(f"{self._name}#{self._blocks}", _BLOCK)
            self._bits |= int.from_bytes(block, "little") << self._count
            self._count += 8 * _BLOCK
            self._blocks += 1
        value = self._bits & ((1 << count) - 1)
        self._bits >>= count
        self._count -= count
        return value

    def below(self, limit: int) -> int:
        """Return a uniform integer from 0 to limit - 1: a draw beyond the limit is drawn again."""
        while (value := self.bits((limit - 1).bit_length())) >= limit:
            pass
        return value


def permutation(count: int, *name: str | int) -> Tensor:
    """Return the numbers from 0 to count - 1 in random order, sorted by random 64-bit keys."""
    keys = torch.frombuffer(bytearray(_hash("/".join(map(str, name)), 8 * count)), dtype=torch.uint8)
    # put together by hand, so that the order of a machine's bytes does not matter
    keys = (keys.view(count, 8).long() << torch.arange(0, 64, 8)).sum(1)
    return keys.argsort(stable=True)


def _hash(name: str, size: int) -> bytes:
    return hashlib.shake_256(name.encode()).digest(size)
