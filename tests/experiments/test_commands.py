"""The processes that tests start end with them."""

from __future__ import annotations

import os
from pathlib import Path

import commands
import pytest
from commands import family, start, wait_until


@pytest.mark.skipif(not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists(), reason="reads /proc")
def test_what_a_failed_test_has_left_running_ends(tmp_path: Path) -> None:
    figures = ("logic", "--part", "figures", "--cells", "mufuru", "--sizes", "1", "--jobs", "1", "--output", tmp_path)
    process = start("reproduce", *figures)
    wait_until(lambda: bool(list(tmp_path.rglob("metrics.jsonl"))), process)
    members = [*family(process.pid)]
    assert len(members) > 1
    commands.end_all()
    wait_until(lambda: not any(alive(member) for member in members))


def alive(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    return status.exists() and "\nState:\tZ" not in status.read_text()
