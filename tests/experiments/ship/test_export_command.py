"""`mufuru export`: what is written answers as the original does, and where it does not nothing is left."""

from __future__ import annotations

import copy
import errno
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import assert_refused, command
from folders import contents
from shipped import make_runs

from mufuru import export
from mufuru.experiments.engine import evaluate, load_model, load_run
from mufuru.experiments.ship.export import UNSEEN, compare, time_ratio
from mufuru.experiments.tasks.classify.model import Classifier
from mufuru.experiments.tasks.lm.model import LanguageModel
from mufuru.int8 import Int8Linear, dynamic

RUNS = ("lm", "lm-gru", "lm-lstm", "texts", "attention", "numbers", "logic", "trees")
PROGRAMS = ("lm", "lm-gru", "attention")
"""Between them and those of ONNX every task, pooling and kind of state; each export takes some seconds."""
SHAPES = ((1, 3), (4, 1), (6, 21))
"""Batches and steps that no export was made or checked with."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), *RUNS)


def told_error(out: str) -> float:
    found = re.search(r"Largest difference from .*?: (\S+), at batches x steps of 1 x 1, 3 x 4, 2 x 9, 7 x 33\.", out)
    assert found, out
    return float(found[1])


@pytest.mark.parametrize("name", RUNS)
def test_safetensors(name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "export", runs / name, "--to", "safetensors", "-o", tmp_path / "out")
    assert (said.code, said.err) == (0, "")
    assert told_error(said.out) == 0.0
    layout = {"layout.json"} if name in ("texts", "attention", "numbers") else set()
    assert set(contents(tmp_path / "out")) == {"config.json", "model.safetensors", "README.md"} | layout
    assert {path.name for path in tmp_path.iterdir()} == {"out"}, "nothing else is left"
    model: Any = load_model(runs / name)
    loaded = type(model).from_pretrained(tmp_path / "out")
    for one, other in zip(model.state_dict().values(), loaded.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    assert f"# {name}\n" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_torch_export(name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.pt2"
    said = command(capsys, "export", runs / name, "--to", "torch-export", "-o", path)
    assert (said.code, said.err) == (0, "")
    assert told_error(said.out) < 1e-6
    module = torch.export.load(path).module()
    model = load_model(runs / name)
    for batch, steps in SHAPES:
        arguments = model.example(batch, steps, seed=9)
        found: Any = module(*arguments)
        found = (found,) if isinstance(found, torch.Tensor) else found
        for want, got in zip(model.answers(*arguments), found, strict=True):
            # float32 in another order
            torch.testing.assert_close(got.detach(), want, rtol=1e-5, atol=1e-6)


def test_batch_first(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.pt2"
    assert command(capsys, "export", runs / "lm", "--to", "torch-export", "--batch-first", "-o", path).code == 0
    model = load_model(runs / "lm")
    tokens, state = model.example(3, 7, seed=5)
    (want, want_state), (got, got_state) = (
        model.answers(tokens, state),
        torch.export.load(path).module()(tokens.T, state),
    )
    # float32 in another order
    torch.testing.assert_close(got.detach().transpose(0, 1), want, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got_state.detach(), want_state, rtol=1e-5, atol=1e-6)
    said = command(capsys, "export", runs / "lm", "--to", "safetensors", "--batch-first", "-o", tmp_path / "out")
    assert_refused(said, 2, "--batch-first is for onnx and torch-export, got --to safetensors: leave it out")


@pytest.mark.parametrize("target", ["safetensors", "torch-export"])
def test_a_full_disk(
    target: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    said = command(capsys, "export", runs / "lm", "--to", target, "-o", tmp_path / "out.pt2")
    assert_refused(
        said, 1, "no space left on the disk for", "out.pt2: nothing was kept", "choose a path on another disk"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "kind"), [("lm", LanguageModel), ("texts", Classifier)])
def test_int8(name: str, kind: Any, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "export", runs / name, "--to", "int8", "--split", "valid", "-o", tmp_path / "out")
    assert (said.code, said.err) == (0, "")
    assert told_error(said.out) == 0.0
    task, model = load_run(runs / name)
    small = dynamic(kind.from_pretrained(tmp_path / "out"))
    assert isinstance(small.output, Int8Linear)
    before, after = evaluate(task, model, "valid"), evaluate(task, small, "valid")
    first, second = (line.split() for line in said.out.splitlines() if line.split()[:1] in (["original"], ["int8"]))
    for metrics, row in ((before, first), (after, second)):
        assert row[1 : 1 + len(metrics)] == [f"{value:.4f}" for value in metrics.values()]
    assert float(second[-2]) < float(first[-2]), "megabytes"
    assert first[-1] == "1.0000"
    assert float(second[-1]) > 0
    # 8 bits change a loss a little, and do change it
    assert after["loss"] == pytest.approx(before["loss"], abs=0.01)
    assert after["loss"] != before["loss"]


def test_time_is_a_ratio_of_turns(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves on by how much a model is said to take, and stands still otherwise."""
    task, model = load_run(runs / "logic")
    other = load_model(runs / "logic")
    clock = [0.0]
    step = type(task).step

    def slow(self: Any, which: Any, batch: Any, state: Any) -> Any:
        clock[0] += 3.0 if which is other else 2.0
        return step(self, which, batch, state)

    monkeypatch.setattr(type(task), "step", slow)
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    assert time_ratio(task, model, other, "test") == 1.5


def spoil(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """What is written gets other weights than the original, by a little."""

    def other_weights(write: Any) -> Any:
        def wrong(model: Any, *rest: Any, **named: Any) -> Any:
            spoilt = copy.deepcopy(model)
            with torch.no_grad():
                for name, parameter in spoilt.named_parameters():
                    if name.endswith("output.bias"):
                        parameter += 2e-3
            return write(spoilt, *rest, **named)

        return wrong

    if target in ("safetensors", "int8"):
        monkeypatch.setattr(LanguageModel, "save_pretrained", other_weights(LanguageModel.save_pretrained))
    else:
        name = "onnx" if target == "onnx" else "program"
        monkeypatch.setattr(export, name, other_weights(getattr(export, name)))


@pytest.mark.parametrize("target", ["safetensors", "int8", "onnx", "torch-export"])
def test_a_failed_self_check_leaves_nothing(
    target: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, target)
    said = command(capsys, "export", runs / "lm", "--to", target, "-o", tmp_path / "out.pt2")
    assert_refused(said, 1, f"written as {target} differs from the original by 0.00", "nothing is kept")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [torch.full((2, 3), torch.nan), torch.zeros(2, 4)], ids=["NaN", "another shape"])
def test_what_no_comparison_would_notice_by_itself(wrong: torch.Tensor, runs: Path) -> None:
    model = load_model(runs / "logic")
    with pytest.raises(RuntimeError, match=r"differs from the original by (nan|inf)"):
        compare(model, lambda arguments: [wrong], UNSEEN, "onnx")


def test_what_is_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for target in ("onnx", "torch-export"):
        said = command(capsys, "export", runs / "trees", "--to", target, "-o", tmp_path / "out.pt2")
        assert_refused(said, 2, "a TreeClassifier cannot be written as a graph: export it with --to safetensors")
        said = command(capsys, "export", runs / "lm-lstm", "--to", target, "-o", tmp_path / "out.pt2")
        assert_refused(said, 2, "a run of the cell lstm cannot be written with open batch and time")
    said = command(capsys, "export", runs / "lm", "--to", "torch-export", "-o", tmp_path / "out")
    assert_refused(said, 2, "out should end in .pt2")
    (tmp_path / "there").write_text("mine")
    said = command(capsys, "export", runs / "lm", "--to", "safetensors", "-o", tmp_path / "there")
    assert_refused(said, 2, "exists already: choose another path with -o")
    assert (tmp_path / "there").read_text() == "mine"
    assert_refused(command(capsys, "export", tmp_path / "none", "--to", "onnx"), 2, "is not a folder")
    assert_refused(command(capsys, "export", runs / "lm", "--to", "onx"), 2, "onnx")
    assert_refused(command(capsys, "export", runs / "lm"), 2, "--to")
    assert {path.name for path in tmp_path.iterdir()} == {"there"}


def test_int8_needs_the_data_before_it_writes(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book = (runs / "book.txt").read_bytes()
    (runs / "book.txt").unlink()
    try:
        said = command(capsys, "export", runs / "lm", "--to", "int8", "-o", tmp_path / "out")
        assert_refused(said, 2, "book.txt")
        assert command(capsys, "export", runs / "lm", "--to", "safetensors", "-o", tmp_path / "files").code == 0
    finally:
        (runs / "book.txt").write_bytes(book)
    assert {path.name for path in tmp_path.iterdir()} == {"files"}


def test_names_where_none_is_given(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for target, name in (("safetensors", "logic-safetensors"), ("torch-export", "logic.pt2")):
        assert f"Wrote {runs / name}." in command(capsys, "export", runs / "logic", "--to", target).out
        assert (runs / name).exists()
