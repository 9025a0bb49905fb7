"""The benchmark of recurrent layers: what it records and shows. How long anything takes is not tested."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install '.[onnx]'")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MODULES = (
    "shapes",
    "floor",
    "engines",
    "peers",
    "agree",
    "measure",
    "record",
    "memory",
    "scaling",
    "tables",
    "recurrent",
)
HERE: dict[str, str | int] = {"cpu": "a processor", "commit": "c0ffee", "date": "today", "sources": "1"}


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark's modules."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    # the records of the experiments have a module of that name
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})


def timing(parts: Any, peer: str, *samples: float, shape: str = "large", threads: int = 1, left_out: str = "") -> Any:
    return parts.measure.Timing(shape, "training", threads, peer, list(samples), 1, left_out)


class Stub:
    """In place of measuring: writes down what is asked for, and stops the program at one of the rows."""

    def __init__(self, parts: Any, monkeypatch: pytest.MonkeyPatch, stop_at: int = -1) -> None:
        self.rows: list[tuple[str, str, int]] = []
        self.stop_at = stop_at
        monkeypatch.setattr(parts.recurrent.measure, "measure", self.measure)
        monkeypatch.setattr(parts.recurrent.peers, "build", lambda *_: ({}, {"nn.LSTM": "it is only a test"}))
        monkeypatch.setattr(parts.recurrent.agree, "check", lambda _: {"a and b": 0.0})
        monkeypatch.setattr(parts.recurrent.draw, "draw", lambda *_: [])
        monkeypatch.setattr(parts.recurrent, "machine", lambda date: HERE | {"date": date})
        self.Timing = parts.measure.Timing

    def measure(self, calls: object, shape: str, mode: str, threads: int, budget: object) -> list[Any]:
        if len(self.rows) == self.stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        self.rows.append((shape, mode, threads))
        return [self.Timing(shape, mode, threads, peer, [1.0, 2.0], 1) for peer in ("nn.GRU", "seven ops")]


def run(parts: Any, monkeypatch: pytest.MonkeyPatch, output: Path, *options: str) -> None:
    shapes = ["--shapes", "logic 8", "single step", "--no-scaling"]
    monkeypatch.setattr(sys, "argv", ["recurrent.py", *shapes, "--output", str(output), *options])
    before = signal.getsignal(signal.SIGTERM)
    try:
        parts.recurrent.main()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_run_that_was_ended_is_resumed(parts: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended = Stub(parts, monkeypatch, stop_at=3)
    with pytest.raises(SystemExit):
        run(parts, monkeypatch, tmp_path / "found")
    written = parts.record.Record.load(tmp_path / "found.json")
    assert not written.complete
    assert "Interrupted" in (tmp_path / "found.md").read_text()
    assert {(t.shape, t.mode, t.threads) for t in written.timings} == set(ended.rows[:3])
    resumed = Stub(parts, monkeypatch)
    run(parts, monkeypatch, tmp_path / "found")
    whole = parts.record.Record.load(tmp_path / "found.json")
    assert whole.complete
    everything = [
        (shape, mode, n) for shape in ("logic 8", "single step") for n in (1, 2) for mode in parts.shapes.MODES
    ]
    assert ended.rows[:3] + resumed.rows == everything
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []
    nothing = Stub(parts, monkeypatch)
    run(parts, monkeypatch, tmp_path / "found")
    assert nothing.rows == []


@pytest.mark.parametrize("change", ["machine", "sources", "settings", "damage"])
def test_rows_of_another_run_are_not_kept(
    parts: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: str
) -> None:
    Stub(parts, monkeypatch)
    run(parts, monkeypatch, tmp_path / "found")
    path = tmp_path / "found.json"
    data = json.loads(path.read_text())
    keys = {"machine": ("machine", "cpu"), "sources": ("machine", "sources"), "settings": ("settings", "least samples")}
    if change == "damage":
        path.write_text(path.read_text()[:-30])
    else:
        data[keys[change][0]][keys[change][1]] = 77
        path.write_text(json.dumps(data))
    anew = Stub(parts, monkeypatch)
    run(parts, monkeypatch, tmp_path / "found")
    assert len(anew.rows) == 8


def test_another_commit_with_the_same_sources_resumes(parts: Any, tmp_path: Path) -> None:
    first = parts.record.Record(HERE, {}, timings=[timing(parts, "nn.GRU", 1.0, 1.0)])
    first.save(tmp_path / "found.json")
    second = parts.record.Record(HERE | {"commit": "decaf", "date": "tomorrow"}, {})
    assert second.resume(tmp_path / "found.json")
    assert second.timings == first.timings


def test_a_measurement_ends(parts: Any) -> None:
    """After `seconds` and enough samples, or after the limit with those there are."""
    goes_on, budget = parts.measure._goes_on, parts.measure.Budget(seconds=3.0, samples=5, limit=60.0)
    assert goes_on(5, 2.9, budget)
    assert goes_on(4, 3.1, budget)
    assert not goes_on(5, 3.1, budget)
    assert not goes_on(4, 60.0, budget)


def weights(module: nn.Module) -> int:
    return sum(parameter.numel() for name, parameter in module.named_parameters() if "weight" in name)


def test_multiplications_are_the_weights_but_for_those_of_the_reference_operation(parts: Any) -> None:
    shape = parts.shapes.Shape("language model", 1, 1, 7, 60)
    layers = parts.peers.layers(shape)
    saved = {"seven ops": 60 * 67, "keep + replace": 60 * 67, "controller 50": 60 * 50, "nn.GRU": 0, "nn.LSTM": 0}
    for peer, less in saved.items():
        assert parts.shapes.multiplications(peer, shape) == weights(layers[peer]) - less, peer
    assert parts.record.more_work("seven ops", "large") == pytest.approx(8 / 3)


def test_ratios_per_multiplication(parts: Any) -> None:
    record = parts.record.Record(HERE, {}, True, timings=[
        timing(parts, "seven ops", 8.0, 8.0), timing(parts, "nn.GRU", 3.0, 3.0), timing(parts, "nn.LSTM", 3.0, 3.0),
    ])  # fmt: skip
    table = parts.tables.per_multiplication(record, "training", 1)
    assert [cell.strip() for cell in table.splitlines()[0].split("|")[2:-1]] == ["seven ops (8/3)", "nn.LSTM (4/3)"]
    assert [cell.strip() for cell in table.splitlines()[2].split("|")[1:-1]] == ["large", "1.00", "0.75"]
    assert record._ratios()[0]["per multiplication"] == pytest.approx(1)


def test_what_is_left_out_has_its_reason_below(parts: Any) -> None:
    slow, missing = "one call takes over 2 s", "not measured: no instruction for it"
    half = parts.shapes.HALF_SEVEN
    record = parts.record.Record(HERE, {}, True, timings=[
        timing(parts, "seven ops", 8.0, 8.0), timing(parts, "nn.GRU", 3.0, 3.0),
        timing(parts, "reference", left_out=slow), timing(parts, half, left_out=missing),
    ])  # fmt: skip
    page = parts.tables.markdown(record)
    assert f"¹ {slow}." in page
    assert f"² {missing}." in page
    (bar,) = [line for line in parts.tables.bars(record).splitlines() if f"{half} / seven ops" in line]
    assert "– ²" in bar
    assert "met" not in bar
    assert "missed" not in bar


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("results/recurrent*.json")), ids=lambda path: path.stem)
def test_the_page_is_that_of_the_record(parts: Any, path: Path) -> None:
    record = parts.record.Record.load(path)
    assert parts.recurrent.record_name(record.machine["instruction set of the kernel"]) == path.stem
    if "sources" not in record.machine:
        pytest.skip("the record, and the page with it, is of an earlier benchmark, which had other bars")
    plots = [f"{path.stem}.svg", *([f"{path.stem}-scaling.svg"] if record.scaling else [])]
    assert path.with_suffix(".md").read_text(encoding="utf-8") == parts.tables.markdown(record, plots)


def test_every_peer_has_a_colour(parts: Any) -> None:
    """The plot is drawn after all rows: too late to find out."""
    assert set(parts.recurrent.draw.STYLE) == set(parts.shapes.PEERS)


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_every_peer_runs(parts: Any, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """In bfloat16 too, which any processor can do slowly."""
    monkeypatch.setattr(parts.peers, "has_bfloat16", lambda: True)
    shapes = parts.shapes
    # of these two, every kind of peer but TorchRL's, which takes long to compile, has its turn
    monkeypatch.setattr(shapes, "TORCHRL_IN", ())
    shape = shapes.Shape("language model", 3, 2, 4, 5)
    calls, left_out = parts.peers.build(shape, mode, 1)
    with torch.inference_mode(mode == "inference"):
        for call in calls.values():
            call()
    expected = {
        shapes.SEVEN,
        shapes.GATED,
        shapes.RESETS,
        shapes.HALF_SEVEN,
        shapes.HALF_GRU,
        shapes.LSTM,
        shapes.FLOOR,
    }
    assert expected <= set(calls)
    small = shapes.Shape("single step", 1, 2, 4, 5)
    parts.peers.build(small, mode, 1)[0][shapes.EMPTY]()
    engines = {shapes.ONNX, shapes.OPENVINO} if mode == "inference" else set()
    assert engines <= set(calls) | set(left_out)
    assert set(left_out) <= {shapes.OPENVINO, shapes.HALF_OPENVINO}


def test_peers_that_cannot_be_measured_say_why(parts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.peers, "has_bfloat16", lambda: False)
    monkeypatch.setattr(parts.engines, "openvino", None)
    monkeypatch.setattr(parts.shapes, "TORCHRL_IN", ())
    shapes, shape = parts.shapes, parts.shapes.Shape("stream", 3, 1, 4, 5)
    _, alone = parts.peers.build(shape, "inference", 1)
    assert "pip install openvino" in alone[shapes.OPENVINO]
    assert "bfloat16" in alone[shapes.HALF_GRU]
    _, together = parts.peers.build(shape, "inference", 2)
    assert {together[peer] for peer in shapes.ENGINES} == {parts.engines.ONE_THREAD}


def test_engines_agree_with_torch(parts: Any) -> None:
    gru, x = nn.GRU(4, 5), torch.randn(3, 2, 4)
    calls = [parts.engines.onnx_call(gru, x)]
    if parts.engines.has_openvino():
        calls.append(parts.engines.openvino_call(gru, x))
    for call in calls:
        states, last = call()
        # float32, and sums in another order
        torch.testing.assert_close(torch.from_numpy(states)[:, 0], gru(x)[0].detach(), rtol=0, atol=1e-6)
        torch.testing.assert_close(torch.from_numpy(last), gru(x)[1].detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("ties", [0, 2, 3])
def test_a_tie_is_drawn_again(parts: Any, monkeypatch: pytest.MonkeyPatch, ties: int) -> None:
    """Two right kernels can differ where state and feature are equal within the rounding; a wrong one always does."""
    drawn = iter([float("nan")] * ties + [1e-6] * (parts.agree.DRAWS - ties))
    monkeypatch.setattr(parts.agree, "_differences", lambda _: {"native and reference": next(drawn)})
    shape = parts.shapes.Shape("stream", 3, 1, 4, 5)
    if ties == parts.agree.DRAWS:
        with pytest.raises(SystemExit, match="native and reference differ by nan"):
            parts.agree.check(shape)
    else:
        assert parts.agree.check(shape) == {"native and reference": 1e-6}


def test_all_peers_agree(parts: Any) -> None:
    for shape in (parts.shapes.Shape("stream", 3, 2, 4, 5), parts.shapes.Shape("cell", 1, 2, 4, 5, cell=True)):
        assert parts.agree.check(shape)
