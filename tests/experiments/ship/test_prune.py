"""`mufuru prune`: what is dropped, that the rest is exact, and that the new run is a run like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import assert_refused, command
from shipped import make_runs

import mufuru
from mufuru.experiments.engine import RunError, checkpoint, evaluate, load_model, load_run
from mufuru.experiments.engine.evaluate import examining, read_weights, rebuild
from mufuru.experiments.record import RunFolder, read_run
from mufuru.experiments.ship import prune
from mufuru.experiments.tasks import KINDS

SPLITS = ("valid", "test")
UNUSED = ("mul", "diff")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), "lm", "lm-controller", "lm-gru", "texts", "logic")


@pytest.fixture(scope="module")
def runs(trained: Path) -> Path:
    """Runs that hardly use some operations: their biases are lowered in the files of the runs."""
    for name in ("lm", "lm-controller", "texts", "logic"):
        folder = RunFolder(trained / name)
        for path, prefix in ((folder.best, ""), (folder.last, "model/")):
            content = checkpoint.load(path)
            lower_unused(content.tensors, prefix)
            checkpoint.save(path, content)
    return trained


def lower_unused(tensors: dict[str, Any], prefix: str) -> None:
    ops = list(mufuru.PAPER)
    for name, tensor in tensors.items():
        stem = name.removeprefix(f"{prefix}reader.rnn.")
        controller = any("bias_op" in other for other in tensors)
        if name.startswith(prefix) and stem.startswith("bias_op" if controller else "bias_ih"):
            size = len(tensor) // 7 if controller else len(tensor) // 9
            for op in UNUSED:
                start = (ops.index(op) + (0 if controller else 2)) * size
                # e^-9 is about 0.0001
                tensor[start : start + size] = -9.0


def inspected(task: Any, model: Any) -> Any:
    """Without dropout."""
    with examining(model):
        return task.inspect(model)


@pytest.mark.parametrize("name", ["lm", "lm-controller", "texts", "logic"])
def test_the_pruned_run_is_the_model_that_may_not_use_them(
    name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = command(capsys, "prune", runs / name, "--threshold", "0.02", "-o", tmp_path / "small")
    assert (said.code, said.err) == (0, "")
    assert "Dropped mul, diff: " in said.out
    task, model = load_run(runs / name)
    small_task, small = load_run(tmp_path / "small")
    assert small_task.config.cell.ops == ("keep", "replace", "max", "min", "forget")
    record = read_run(tmp_path / "small")
    assert record.result["inspection"] == json.loads(json.dumps(inspected(small_task, small)))
    for split in SPLITS:
        before = evaluate(task, model, split)
        with mufuru.intervene(model, forbid=UNUSED):
            expected = evaluate(task, model, split)
        # the same sums in another order, in float32
        assert evaluate(small_task, small, split) == pytest.approx(expected, rel=1e-5)
        assert record.result[split] == pytest.approx(expected, rel=1e-5)
        assert record.result["pruned"]["before"][split] == pytest.approx(before, rel=1e-6)
        assert f"{record.result[split]['loss'] - before['loss']:+.6f} on {split}" in said.out
    # on some processors one of the two losses rounds to the same number
    changed = [record.result[split]["loss"] != record.result["pruned"]["before"][split]["loss"] for split in SPLITS]
    assert any(changed)
    sizes = [sum(p.numel() for p in each.parameters()) for each in (model, small)]
    assert f"{sizes[0]:,} parameters became {sizes[1]:,}" in said.out
    assert (record.result["parameters"], record.result["pruned"]["parameters"]) == (sizes[1], sizes[0])
    layers = [module for module in small.modules() if isinstance(module, mufuru.MuFuRU)]
    assert {layer.ops for layer in layers} == {("keep", "replace", "max", "min", "forget")}


def test_the_new_run_is_a_run(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("lm", "texts"):
        assert command(capsys, "prune", runs / name, "--threshold", "0.02", "-o", tmp_path / name).code == 0
        assert command(capsys, "evaluate", tmp_path / name).code == 0
    assert command(capsys, "generate", tmp_path / "lm", "--length", "5").code == 0
    (tmp_path / "new.txt").write_text("good\n")
    assert "probabilities" in command(capsys, "predict", tmp_path / "texts", tmp_path / "new.txt").out
    assert command(capsys, "report", tmp_path / "lm", "-o", tmp_path / "report.html").code == 0
    assert command(capsys, "export", tmp_path / "lm", "--to", "safetensors", "-o", tmp_path / "files").code == 0
    card = (tmp_path / "files" / "README.md").read_text()
    assert "Without the operations mul, diff, which were dropped after training" in card
    again = command(capsys, "prune", tmp_path / "lm", "--threshold", "0.5", "--measure", "mean")
    assert again.code == 0, "a pruned run can be pruned"
    assert (tmp_path / "lm-pruned" / "result.json").exists()


def test_where_there_is_nothing_to_lose_nothing_changes(runs: Path) -> None:
    """Weights of exactly 0: the states are the same up to rounding."""
    task, model = load_run(runs / "lm")
    layer: Any = next(module for module in model.modules() if isinstance(module, mufuru.MuFuRU))
    with torch.no_grad():
        for op in UNUSED:
            start = (layer.ops.index(op) + 2) * layer.hidden_size
            layer.bias_ih_l0[start : start + layer.hidden_size] = -300.0
    assert prune.most(prune.measure_use(task, model, "valid"), "largest")["mul"] == 0.0
    small = rebuild("lm", prune.without(task.config, UNUSED), prune.pruned_weights(model, UNUSED), runs)
    # float32 sums in another order
    assert evaluate(task, small, "test") == pytest.approx(evaluate(task, model, "test"), rel=1e-6)


@pytest.mark.parametrize("name", ["lm-controller", "texts", "logic"])
def test_use_is_that_of_every_unit_at_every_step(name: str, runs: Path) -> None:
    task, model = load_run(runs / name)
    uses = prune.measure_use(task, model, "valid")
    gathered: dict[tuple[int, int], list[Any]] = {}
    state = None
    with torch.no_grad():
        for batch in task.batches("valid"):
            with mufuru.tracing(model) as traces:
                state = task.step(model, batch, state).state
            ((trace,),) = traces.values()
            for index, part in enumerate(trace.parts):
                gathered.setdefault(divmod(index, trace.directions), []).append(part.p)
    both_ways = len({direction for _, direction in gathered}) == 2
    assert len(uses) == len(gathered)
    for (layer, direction), parts in gathered.items():
        p = torch.cat(parts)
        place = f"layer {layer}" + ((", forward", ", reverse")[direction] if both_ways else "")
        assert list(uses[place]["largest"].values()) == p.amax((0, 2)).tolist()
        # sums in double precision against float32
        assert list(uses[place]["mean"].values()) == pytest.approx(p.mean((0, 2)).tolist(), rel=1e-4)


def test_an_operation_must_stay_under_in_every_layer() -> None:
    uses = {
        "layer 0": {
            "largest": {"keep": 0.9, "max": 0.05, "mul": 0.2},
            "mean": {"keep": 0.5, "max": 0.01, "mul": 0.001},
        },
        "layer 1": {
            "largest": {"keep": 0.9, "max": 0.3, "mul": 0.1},
            "mean": {"keep": 0.6, "max": 0.02, "mul": 0.002},
        },
    }
    assert prune.most(uses, "largest") == {"keep": 0.9, "max": 0.3, "mul": 0.2}
    assert prune.choose(uses, "largest", 0.25) == ("mul",)
    assert prune.choose(uses, "mean", 0.02) == ("mul",)
    assert prune.choose(uses, "mean", 0.021) == ("max", "mul")
    with pytest.raises(RunError, match=r"none is dropped: mul 0.2, max 0.3, keep 0.9. With --measure mean: mul"):
        prune.choose(uses, "largest", 0.2)
    with pytest.raises(RunError, match=r"all operations stay under 0.95, and one must be left"):
        prune.choose(uses, "largest", 0.95)


def test_settings_without_keep() -> None:
    config = KINDS["logic"].presets["short"]
    cell = type(config.cell)(keep_bias=2.0)
    config = type(config)(**{**vars(config), "cell": cell})
    assert prune.without(config, ("max",)).cell.keep_bias == 2.0
    without = prune.without(config, ("keep",))
    assert without.cell.keep_bias is None
    assert "keep" not in without.cell.ops


def test_weights_that_were_not_selected_are_left_out(runs: Path, tmp_path: Path) -> None:
    """A run that selects its last weights: those are pruned, and the new run has them as its best."""
    task, model = load_run(runs / "lm-controller")
    assert task.config.training.select == "last"
    about = {"from": "x", "threshold": 0.1, "measure": "mean", "split": "valid"}
    prune.write_pruned(runs / "lm-controller", task, model, ("mul",), tmp_path / "small", about)
    kept = read_weights(tmp_path / "small", "best")
    assert torch.equal(kept["output.weight"], read_weights(runs / "lm-controller", "last")["output.weight"])
    assert load_model(tmp_path / "small") is not None


def test_what_is_refused(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "prune", runs / "lm", "--threshold", "1e-9", "-o", tmp_path / "small")
    assert_refused(said, 2, "no operation's largest weight stays under 1e-09", "With --measure mean")
    assert not (tmp_path / "small").exists()
    assert_refused(command(capsys, "prune", runs / "lm-gru"), 2, "is of the cell gru: only layers of mufuru")
    assert_refused(command(capsys, "prune", tmp_path / "none"), 2, "config.json is missing")
    assert_refused(command(capsys, "prune", runs / "lm", "--threshold", "1"), 2, "above 0 and below 1, got 1.0")
    assert_refused(command(capsys, "prune", runs / "lm", "--measure", "most"), 2, "largest", "mean")
    said = command(capsys, "prune", runs / "lm", "--threshold", "0.02", "-o", runs / "texts")
    assert_refused(said, 2, "holds a finished run: choose another folder")
    (tmp_path / "unfinished").mkdir()
    for name in ("config.json", "best.safetensors"):
        (tmp_path / "unfinished" / name).write_bytes((runs / "lm" / name).read_bytes())
    assert_refused(command(capsys, "prune", tmp_path / "unfinished"), 2, "is not finished")


def test_the_record_says_what_was_done(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("--threshold", "0.02", "--split", "train", "-o", tmp_path / "small")
    assert command(capsys, "prune", runs / "logic", *line).code == 0
    told = json.loads((tmp_path / "small" / "result.json").read_text())["pruned"]
    assert (told["from"], told["threshold"], told["measure"], told["split"]) == ("logic", 0.02, "largest", "train")
    assert told["dropped"] == ["mul", "diff"]
    assert set(told["before"]) == {"train", "valid", "test"}
    environment = json.loads((tmp_path / "small" / "environment.json").read_text())
    assert environment["torch"] == torch.__version__
