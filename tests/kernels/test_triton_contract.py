"""Runs `triton_contract.py` in processes of its own: Triton interprets what is imported with TRITON_INTERPRET=1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import mufuru
from mufuru.kernels import triton as kernel

needs_triton = pytest.mark.skipif(not kernel.installed(), reason="needs triton: pip install triton")
TESTS = Path(__file__).parents[1]


def contract(*options: str, **variables: str) -> None:
    """Run the file with these options of pytest; a failure shows its output."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "MUFURU_TRITON"))}
    file = str(TESTS / "kernels" / "triton_contract.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", file, *options],
        cwd=TESTS.parent, env=environment | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@needs_triton
def test_in_the_interpreter() -> None:
    contract("-m", "not slow", TRITON_INTERPRET="1")


@needs_triton
@pytest.mark.slow
def test_many_combinations_in_the_interpreter() -> None:
    contract("-m", "", "-k", "combinations", TRITON_INTERPRET="1", COMBINATIONS="150")


@needs_triton
@pytest.mark.slow
def test_the_rest_in_the_interpreter() -> None:
    contract("-m", "slow", TRITON_INTERPRET="1")


@pytest.mark.gpu
@pytest.mark.timeout(6 * 3600)  # Triton compiles every combination of options anew
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, and a build of torch for it")
def test_on_a_gpu() -> None:
    contract("-m", "", TRITON_INTERPRET="0", COMBINATIONS="50")


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_gpu_and_interpreter() -> None:
    assert kernel.status() == "not available: torch finds no GPU"
    with pytest.raises(RuntimeError, match="it runs on a GPU, the tensors are on cpu"):
        mufuru.MuFuRU(3, 4, kernel="triton")(torch.randn(2, 3, 3))


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "installed", lambda: False)
    assert kernel.status().startswith("not available: triton is not installed")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(RuntimeError, match="triton is not installed, which CUDA and ROCm builds of torch bring along"):
        mufuru.MuFuRU(3, 4, kernel="triton")(torch.randn(2, 3, 3))


def test_a_call_on_the_cpu_imports_no_kernel_for_gpus() -> None:
    program = (
        "import sys, torch, mufuru; mufuru.MuFuRU(3, 4)(torch.randn(2, 3, 3)); mufuru.kernel_status();"
        "sys.exit('mufuru.kernels.triton.tiled' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
