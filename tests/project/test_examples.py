"""The examples run, as a user runs them, in a short form."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = {
    "characters.py": ["--epochs", "1", "--file", str(EXAMPLES / "characters.py")],
    "distributed.py": ["--updates", "5"],
    "logic.py": ["--epochs", "1", "--formulae", "60"],
    "policy.py": ["--updates", "3"],
    "replace_gru.py": [],
    "own_operation.py": ["--updates", "3"],
    "series.py": ["--updates", "3"],
    "streaming.py": ["--updates", "3"],
}

NEEDS = {"darts_forecast.py": "darts"}
"""Examples with a package that is too heavy for those who work on this one."""


@cache
def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example, once however many tests look at it."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_example_is_run() -> None:
    assert sorted([*SHORT, *NEEDS]) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", SHORT)
def test_example_runs(name: str) -> None:
    done = run(name, *SHORT[name])
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr
    if name == "logic.py":
        assert_both_tables(done.stdout.splitlines())
    if name == "streaming.py":
        # a stream gives what the whole pass gives: float32, and sums in another order
        assert float(done.stdout.splitlines()[-1].rpartition(" ")[2]) < 1e-5


def test_darts_forecasts_with_our_layer() -> None:
    pytest.importorskip("darts", reason="darts is not installed (pip install '.[darts]'): its example was not run")
    # warnings of darts and Lightning are theirs
    command = [sys.executable, str(EXAMPLES / "darts_forecast.py"), "--epochs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, *rows = done.stdout.splitlines()
    found = {name: float(error) for name, error in (row.rsplit(maxsplit=1) for row in rows)}
    assert found.keys() == {"season before", "GRU", "MuFuRU"}
    assert all(0 < error < 10 for error in found.values())


def assert_both_tables(lines: list[str]) -> None:
    for cell in ("GRU", "MuFuRU"):
        assert any(re.fullmatch(rf"{cell} +[01]\.\d{{3}} +[01]\.\d{{3}}", line) for line in lines), lines
    rows = [line.split() for line in lines[-12:]]
    assert " ".join(row[0] for row in rows) == "0 1 NOR Xq ABJ XOR NAND AND XNOR if/then then/if OR"
    for row in rows:
        # seven weights that add up to 1, each printed with an error of up to 0.005
        assert abs(sum(map(float, row[1:])) - 1) <= 7 * 0.005 + 1e-9


def test_logic_says_what_is_wrong_with_an_argument() -> None:
    done = run("logic.py", "--epochs", "0")
    assert done.returncode == 2
    assert "argument --epochs: expected a number above 0, got 0" in done.stderr


def test_characters_say_that_there_is_no_such_file() -> None:
    done = run("characters.py", "--file", "none.txt")
    assert done.returncode == 2
    assert "none.txt: there is no such file" in done.stderr


@pytest.mark.parametrize("shard", [(), ("--shard",)], ids=["copies", "shards"])
def test_two_processes_learn_what_one_learns(shard: tuple[str, ...]) -> None:
    alone = run("distributed.py", *SHORT["distributed.py"])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, str(EXAMPLES / "distributed.py"), *SHORT["distributed.py"], *shard],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    errors = [[float(line.rpartition(" ")[2]) for line in text.splitlines()] for text in (alone.stdout, done.stdout)]
    assert len(errors[0]) == 5
    # printed to 1e-6, and sums in another order
    assert errors[1] == pytest.approx(errors[0], abs=2e-6)


def test_sharding_needs_several_processes() -> None:
    done = run("distributed.py", "--shard")
    assert done.returncode == 2
    assert "torchrun --nproc-per-node 2" in done.stderr


@pytest.mark.slow
def test_a_policy_learns_to_remember() -> None:
    *_, told, same = run("policy.py").stdout.splitlines()
    assert float(told.rpartition(" ")[2]) > 0.95
    # float32, and rows of other batches
    assert float(same.rpartition(" ")[2]) < 1e-5


def test_logic_stops_cleanly() -> None:
    command = [sys.executable, str(EXAMPLES / "logic.py"), "--epochs", "100000", "--formulae", "10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.strip() == "Stopped."
