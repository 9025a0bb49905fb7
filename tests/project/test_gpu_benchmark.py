"""The benchmark for GPUs and the bounds on paper, without a GPU: what they record and say. No time is tested."""

from __future__ import annotations

import functools
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu")


@pytest.fixture
def roofline(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("roofline")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so() -> None:
    done = subprocess.run([sys.executable, BENCHMARKS / "gpu.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "torch finds no GPU here" in done.stderr


def test_a_shape_on_the_cpu(gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing, measuring and recording are the same on every device; here the native kernel takes Triton's place."""
    monkeypatch.setattr(gpu, "_CompiledStep", lambda layer: layer)  # compiling takes long
    record = gpu.Record(gpu.machine(torch.device("cpu")))
    gpu.run(record, gpu.Shape("tiny", 3, 2, 4, 5), torch.float32, torch.device("cpu"), 0.0, kernel="auto")
    assert len(record.agreement) == 2
    assert [row.mode for row in record.rows] == ["training", "inference"]
    for row in record.rows:
        assert not row.failed
        assert {gpu.GRU, gpu.LSTM, gpu.SEVEN, gpu.GATED, gpu.REFERENCE, gpu.COMPILED} <= set(row.samples)
        assert {f"{gpu.SEVEN}, {regime}" for regime in gpu.REGIMES} <= set(row.samples)
        assert all(samples and min(samples) > 0 for samples in row.samples.values())
        assert row.ratio(gpu.GRU) == 1.0
    record.save(tmp_path / "record.json")
    assert json.loads((tmp_path / "record.json").read_text())["rows"][0]["shape"] == "tiny"
    assert "| tiny | float32 | training |" in gpu.page(record)


def test_the_whole_of_it_on_the_cpu(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To its end, past a shape that the kernel cannot do."""
    compare = gpu.disagreement

    def comparison(layer: Any, shape: Any) -> float:
        if shape.name == "wide":
            raise RuntimeError("out of resource: shared memory\nsecond line")
        found: float = compare(layer, shape)
        return found

    monkeypatch.setattr(gpu, "_CompiledStep", lambda layer: layer)
    monkeypatch.setattr(gpu, "disagreement", comparison)
    monkeypatch.setattr(gpu, "find_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(gpu, "run", functools.partial(gpu.run, kernel="auto"))
    monkeypatch.setattr(gpu, "SHAPES", (gpu.Shape("wide", 3, 2, 4, 5), gpu.Shape("tiny", 3, 2, 4, 5)))
    path = tmp_path / "gpu.json"
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--seconds", "0", "--dtypes", "float32", "--output", str(path)])
    gpu.main()
    said = capsys.readouterr().out
    assert "not measured: wide, torch.float32: RuntimeError: out of resource: shared memory\nwrote" in said
    assert "| tiny | float32 | inference |" in path.with_suffix(".md").read_text()
    assert {row["shape"] for row in json.loads(path.read_text())["rows"]} == {"tiny"}


def test_a_wrong_kernel_is_not_measured(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "disagreement", lambda layer, shape: float("nan"))
    record = gpu.Record({})
    with pytest.raises(SystemExit, match="away from the reference"):
        gpu.run(record, gpu.Shape("tiny", 3, 2, 4, 5), torch.float32, torch.device("cpu"), 0.0, kernel="auto")
    assert not record.rows


def test_disagreement_sees_a_wrong_gradient(gpu: Any) -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return 1.01 * grad

    layer = gpu.mufuru.MuFuRU(4, 5)
    shape = gpu.Shape("tiny", 3, 2, 4, 5)
    assert gpu.disagreement(layer, shape) < 1e-5
    wrong: Any = Wrong
    layer.register_forward_hook(lambda module, args, result: (wrong.apply(result[0]), result[1]))
    assert gpu.disagreement(layer, shape) > 1e-3


def test_a_corner_on_the_other_side_is_no_disagreement(gpu: Any) -> None:
    """One of many gradients: two right kernels round a near tie of state and features to different sides."""
    wanted = gpu._everything(gpu.mufuru.MuFuRU(4, 5), torch.randn(50, 40, 4))
    found = [tensor.clone() for tensor in wanted]
    found[2][7, 3, 1] += 0.001 * found[2].abs().max()
    assert gpu.difference(found, wanted) < gpu.TOLERANCE[torch.float32]
    found[0][7, 3, 1] += 0.001
    assert gpu.difference(found, wanted) > gpu.TOLERANCE[torch.float32]
    found[3][0, 0] = torch.nan
    assert not gpu.difference(found, wanted) <= gpu.TOLERANCE[torch.float32]


def test_a_shape_without_enough_memory_is_passed_over(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(layer: Any, shape: Any) -> float:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

    monkeypatch.setattr(gpu, "disagreement", full)
    record = gpu.Record({})
    gpu.run(record, gpu.Shape("large", 3, 2, 4, 5), torch.float32, torch.device("cpu"), 0.0, kernel="auto")
    assert not record.rows
    said = "OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB"
    assert record.skipped == {"large, torch.float32": said}
    assert f"- large, torch.float32: {said}" in gpu.page(record)


def test_regimes_that_a_shape_can_have(gpu: Any) -> None:
    """A persistent program of 1,024 units fits on no chip."""
    assert gpu.regimes(gpu.Shape("small", 3, 2, 4, 64)) == ["persistent", "tiled", "stepwise"]
    assert gpu.regimes(gpu.Shape("wide", 3, 2, 4, 1024)) == ["tiled", "stepwise"]


def test_a_peer_that_fails_is_named(gpu: Any) -> None:
    def fails() -> None:
        raise RuntimeError("out of memory")

    row = gpu.Row("tiny", "float32", "training")
    gpu.measure({gpu.GRU: lambda: None, "other": fails}, row, torch.device("cpu"), 0.0)
    assert row.failed == {"other": "RuntimeError: out of memory"}
    assert row.ratio("other") is None
    assert "| – |" in gpu.table([row])


def test_a_bound_by_hand(roofline: Any) -> None:
    """64 sequences, 512 units, seven operations on an A100: 64 programs on 108 processors, and two launches."""
    a100 = roofline.GPUS[0]
    found = roofline.bound(a100, 64, 512, roofline.SEVEN)
    tile = 8 * 32 * 512 * 2  # bytes of weights for 32 units
    assert found.regime == "stepwise"
    assert found.seconds == pytest.approx(tile / (64 * 1.41e9) + 4e-6)
    assert found.intensity == pytest.approx(2 * 16 / 2)  # a weight of 2 bytes serves the 16 sequences of a tile
    assert roofline.gru(a100, 64, 512).seconds < found.seconds


def test_more_arithmetic_takes_no_less_time(roofline: Any) -> None:
    for gpu in roofline.GPUS:
        for batch, hidden in roofline.SIZES:
            one = roofline.bound(gpu, batch, hidden, roofline.SEVEN)
            assert one.seconds >= 2 * batch * 8 * hidden**2 / gpu.flops
            assert roofline.bound(gpu, 2 * batch, hidden, roofline.SEVEN).seconds >= one.seconds
