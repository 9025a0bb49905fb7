"""Memory that is freed after one update is kept for the next."""

from __future__ import annotations

import ctypes
import sys

M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1
"""glibc's numbers for what `mallopt` sets."""
LARGEST = (1 << 30, 32 << 20)
"""Bytes up to which a block comes from the heap: as large as may be, or what an old glibc allows at most."""


def keep_freed() -> bool:
    """Ask glibc not to give large freed blocks back to the system; whether it agreed.

    Every update needs the same blocks. Given back, they come as fresh pages, one fault and 4 KB of zeros at a time:
    thousands in an update of a language model. A process then stays as large as it has ever been.
    """
    # other systems, and other C libraries for Linux, have no such thing
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is None or not any(set_option(M_MMAP_THRESHOLD, size) for size in LARGEST):
        return False
    return bool(set_option(M_TRIM_THRESHOLD, 2**31 - 1))
