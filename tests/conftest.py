"""What holds in every test: a fixed seed, and fresh memory full of NaN, so that a forgotten write shows."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
import torch
from libraries import TOY, write_sources
from torch import nn

from mufuru import MuFuRU, MuFuRUCell
from mufuru.kernels import library
from mufuru.kernels.problem import loaded


def _without_broken_instructions() -> None:
    """Some virtual machines name AMX among their instructions and die of it, in torch's own products of half precision
    and of 8 bits. There, and only there, oneDNN does without, in all processes that the tests start."""
    cpu = Path("/proc/cpuinfo")
    if "ONEDNN_MAX_CPU_ISA" in os.environ or not cpu.exists() or "amx_tile" not in cpu.read_text(encoding="utf-8"):
        return
    product = "import torch; torch.ones(64, 64, dtype=torch.bfloat16) @ torch.ones(64, 64, dtype=torch.bfloat16)"
    if subprocess.run([sys.executable, "-c", product], capture_output=True, check=False).returncode < 0:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"


# ignored under nohup and by shells' jobs in the background, and so it would be by all that the tests start
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# before oneDNN is first used, which is when it looks
_without_broken_instructions()

# kernels are compared in float32, on any processor; tests/kernels/test_bfloat16.py is about the rest
os.environ.setdefault("MUFURU_BFLOAT16", "never")

# on a GPU torch's products refuse deterministic mode, see `_fresh_memory_is_nan`, unless this is set beforehand
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

# no test asserts a time, and a busy machine must not either; the same examples every time
hypothesis.settings.register_profile("mufuru", deadline=None, derandomize=True)
hypothesis.settings.load_profile("mufuru")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20160610)


@pytest.fixture(autouse=True)
def _no_swapping_left_behind() -> Iterator[None]:
    """A program that asks torch to swap parameters asks for the whole process."""
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.fixture(autouse=True)
def _fresh_memory_is_nan() -> Iterator[None]:
    deterministic: Any = importlib.import_module("torch.utils.deterministic")
    before = torch.are_deterministic_algorithms_enabled(), deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before[0])
    deterministic.fill_uninitialized_memory = before[1]


@pytest.fixture(scope="session")
def torchlib_once() -> Iterator[None]:
    """Parse the functions of onnxscript once: torch does so again in every export, which takes a third of its time."""
    registration: Any = importlib.import_module("torch.onnx._internal.exporter._registration")
    known = cache(registration.onnxscript_apis.get_torchlib_ops)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration, "onnxscript_apis", SimpleNamespace(get_torchlib_ops=known))
        yield


@pytest.fixture(params=[nn.GRU, MuFuRU], ids=["GRU", "MuFuRU"])
def layer_type(request: pytest.FixtureRequest) -> Any:
    """A contract is asked of `nn.GRU` first: what it does not keep is not asked of `MuFuRU`."""
    return request.param


@pytest.fixture(params=[nn.GRUCell, MuFuRUCell], ids=["GRUCell", "MuFuRUCell"])
def cell_type(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["plain", "avx2", "avx512"])
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run on this instruction set, if the machine has it."""
    if not loaded().mufuru_choose(request.param.encode()):
        pytest.skip(f"this machine has no {request.param}")
    yield request.param
    loaded().mufuru_choose(b"")


@pytest.fixture
def _threads() -> Iterator[None]:
    """The number of threads is afterwards as it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the user's, no native library found yet, and temporary files where a test can see them."""
    for name in ("MUFURU_BUILD", "MUFURU_CACHE", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(library, "_found", None)
    monkeypatch.setattr(library, "_warned", False)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Sources of a library that is quickly built."""
    return write_sources(tmp_path / "csrc", TOY)


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    """End the commands that a test of the experiments has started."""
    yield
    if started := sys.modules.get("commands"):
        started.end_all()
