"""Freed memory is kept from update to update."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from toy import toy

from mufuru.experiments.engine import fit
from mufuru.experiments.engine.fit import keep_freed

FAULTS = """
import resource, sys
import torch
from mufuru.experiments.engine.fit import keep_freed

if sys.argv[1] == "kept":
    assert keep_freed()

def update():
    # larger than what glibc keeps on its own
    torch.ones(10_000_000)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

# the heap grows to its size first
for _ in range(5):
    update()
before = faults()
for _ in range(10):
    update()
print(faults() - before)
"""


GLIBC, VERSION = platform.libc_ver()


# an older one takes no block of this size from the heap
@pytest.mark.skipif(GLIBC != "glibc" or tuple(map(int, VERSION.split("."))) < (2, 35), reason="needs glibc 2.35")
def test_large_blocks_come_back_without_page_faults() -> None:
    """Left alone, every page of every block is a new one."""
    found = {}
    for how in ("left", "kept"):
        command = [sys.executable, "-c", FAULTS, how]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        found[how] = int(done.stdout)
    # how large a page is depends on the system
    assert found["kept"] * 10 < found["left"]


def test_a_run_asks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(import_module("mufuru.experiments.engine.fit"), "keep_freed", lambda: asked.append(True))
    fit("toy", toy(), tmp_path / "run")
    assert asked == [True]


def test_another_system_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not keep_freed()
