"""The loop: what it computes, what it records, when it stops, what it refuses."""

from __future__ import annotations

import json
import math
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from folders import assert_same_run, contents, names
from torch import Tensor, nn
from toy import ToyTask, intrude, pretend, toy

from mufuru.experiments.engine import (
    Interrupted,
    RunError,
    checkpoint,
    evaluate,
    fit,
    load_run,
    read_config,
)
from mufuru.experiments.engine.checkpoint import Checkpoint
from mufuru.experiments.engine.fit import Fit
from mufuru.experiments.engine.store import Store
from mufuru.experiments.record import RunFolder, read_run
from mufuru.experiments.settings import SettingError


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def plain_training(config: Any, clip: float | None = None) -> nn.Module:
    """The loop once more, as one writes it in a script."""
    checkpoint.seed_everything(config.seed)
    task = ToyTask(config)
    checkpoint.seed_everything(config.seed)
    model = task.build()
    settings = config.training
    optimizer = torch.optim.AdamW(
        model.parameters(), settings.learning_rate, (settings.beta1, settings.beta2), weight_decay=settings.weight_decay
    )
    for epoch in range(settings.epochs):
        state = None
        for batch in task.batches("train", epoch):
            step = task.step(model, batch, state)
            state = step.state
            optimizer.zero_grad()
            assert step.penalty is not None
            (step.loss / step.count + step.penalty).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    return model


@pytest.mark.parametrize("clip", [None, 0.3])
def test_trains_like_a_plain_loop(tmp_path: Path, clip: float | None) -> None:
    """Gradients here are longer than 0.3 in some updates and shorter in others."""
    config = toy(select="last", clip=clip, weight_decay=0.01, beta1=0.9, scale=2.0)
    fit("toy", config, tmp_path / "run")
    _, model = load_run(tmp_path / "run")
    expected = plain_training(config, clip).state_dict()
    for name, weight in model.state_dict().items():
        # fused Adam rounds otherwise than the plain one; fifteen updates pass it on
        torch.testing.assert_close(weight, expected[name], rtol=1e-4, atol=1e-6)


def test_clipping_bounds_the_gradient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    step = torch.optim.AdamW.step

    def observed(self: Any, *args: Any) -> Any:
        parameters = self.param_groups[0]["params"]
        norms.append(math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in parameters)))
        return step(self, *args)

    monkeypatch.setattr(torch.optim.AdamW, "step", observed)
    fit("toy", toy(scale=100.0), tmp_path / "free")
    assert min(norms) > 1
    norms.clear()
    fit("toy", toy(scale=100.0, clip=0.5), tmp_path / "clipped")
    # torch divides by the norm plus 1e-6
    assert norms == pytest.approx([0.5] * 15, rel=1e-5)


def test_the_record_of_a_run(tmp_path: Path) -> None:
    result = fit("toy", toy(), tmp_path / "run")
    record = read_run(tmp_path / "run")
    assert record.result == result
    assert (record.task, record.config["training"]["epochs"]) == ("toy", 3)
    keys = {"updates", "epochs", "parameters", "best_update", "seconds", "train", "valid", "test", "inspection"}
    assert result.keys() == keys | {"selection"}
    assert (result["updates"], result["epochs"]) == (15, 3)
    assert result["parameters"] == sum(weight.numel() for weight in ToyTask(toy()).build().parameters())
    assert [line["update"] for line in record.curve] == [3, 6, 9, 12, 15]
    assert [line["epoch"] for line in record.curve] == [1, 2, 2, 3, 3]
    assert result["inspection"]["training"] is False


def test_once_an_epoch_and_at_the_end(tmp_path: Path) -> None:
    fit("toy", toy(evaluate_every=None), tmp_path / "epochs")
    assert [(line["update"], line["epoch"]) for line in lines(tmp_path / "epochs")] == [(5, 1), (10, 2), (15, 3)]
    fit("toy", toy(evaluate_every=7), tmp_path / "seven")
    assert [line["update"] for line in lines(tmp_path / "seven")] == [7, 14, 15]


def test_a_number_of_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many passes they take; the last is always looked at, and stopping in between changes nothing."""
    config = toy(updates=17, evaluate_every=5, schedule="cosine")
    whole = fit("toy", config, tmp_path / "run")
    assert (whole["updates"], whole["epochs"]) == (17, 4)
    assert [line["update"] for line in lines(tmp_path / "run")] == [5, 10, 15, 17]
    with monkeypatch.context() as patch:
        intrude(patch, 16, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Interrupted, match="update 16 of 17"):
            fit("toy", config, tmp_path / "stopped")
    assert {**fit("toy", config, tmp_path / "stopped", resume=True), "seconds": 0} == {**whole, "seconds": 0}
    assert fit("toy", toy(updates=3), tmp_path / "few")["updates"] == 3


def test_training_metrics_are_those_since_the_last_look(tmp_path: Path) -> None:
    """Without dropout and with a vanishing rate the model stands still, so that an epoch's metrics are the data's."""
    config = toy(evaluate_every=None, learning_rate=1e-30, dropout=0.0, carry=False)
    result = fit("toy", config, tmp_path / "run")
    for line in lines(tmp_path / "run"):
        # float32 sums in another order
        assert line["train"] == pytest.approx(result["train"], rel=1e-6)
        assert line["valid"] == result["valid"]


def test_selection(tmp_path: Path) -> None:
    """The best weights are those of the best line, the last those of the last."""
    config = toy(evaluate_every=1, learning_rate=0.5)
    result = fit("toy", config, tmp_path / "best")
    curve = lines(tmp_path / "best")
    best = max(curve, key=lambda line: line["valid"]["accuracy"])
    assert best["update"] < 15, "the test needs a run whose last weights are not its best"
    assert result["best_update"] == best["update"]
    assert result["valid"] == best["valid"]
    last = fit("toy", toy(evaluate_every=1, learning_rate=0.5, select="last"), tmp_path / "last")
    assert last["valid"] == curve[-1]["valid"]
    assert last["best_update"] == best["update"]


LOOKS = [(0.5, 9.0), (0.9, 0.7), (0.9, 0.2), (0.8, 0.1), (0.9, 0.2), (0.9, 0.3)]


@pytest.mark.parametrize(
    ("ties", "looks", "update", "by"),
    [("earliest", LOOKS, 2, "earliest"), ("loss", LOOKS, 5, "later"), ("loss", LOOKS[:4], 3, "loss"),
     ("loss", LOOKS[:2], 2, "metric"), ("loss", [LOOKS[0], LOOKS[2], LOOKS[1]], 2, "loss")],
)  # fmt: skip
def test_ties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ties: str, looks: list[tuple[float, float]], update: int, by: str
) -> None:
    """By the loss, then the later; the result says which rule chose, and stopping and resuming change nothing."""
    config, seen = toy(evaluate_every=1, ties=ties, select="best"), {"looks": 0}

    def look() -> dict[str, float]:
        accuracy, loss = [*looks, *[(0.0, 0.0)] * 99][seen["looks"]]
        seen["looks"] += 1
        return {"loss": loss, "accuracy": accuracy}

    pretend(monkeypatch, look)
    whole = fit("toy", config, tmp_path / "whole")
    tied = sum(accuracy == 0.9 for accuracy, _ in looks)
    assert whole["selection"] == {"metric": "accuracy", "value": 0.9, "tied": tied, "by": by}
    assert whole["best_update"] == update
    seen["looks"] = 0
    with monkeypatch.context() as patch:
        intrude(patch, 4, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Interrupted):
            fit("toy", config, tmp_path / "run")
    assert {**fit("toy", config, tmp_path / "run", resume=True), "seconds": 0} == {**whole, "seconds": 0}


def test_ties_do_not_prolong_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience is for a better metric: lower losses at the same one choose other weights and no more."""
    losses = iter(range(99, 0, -1))
    pretend(monkeypatch, lambda: {"loss": float(next(losses)), "accuracy": 0.5})
    result = fit("toy", toy(patience=2, evaluate_every=1, ties="loss"), tmp_path / "run")
    assert (result["updates"], result["best_update"], result["selection"]["by"]) == (3, 3, "loss")


@pytest.mark.parametrize("better", [True, False])
def test_the_mean_of_several_looks_selects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, better: bool) -> None:
    """One lucky look does not: the highest of all is the second, the best three end with the sixth."""
    sign = 1 if better else -1
    looks = [sign * value for value in (0.1, 0.9, 0.1, 0.8, 0.7, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5)]
    monkeypatch.setattr(ToyTask, "higher_is_better", better)
    metrics = iter(looks)
    pretend(monkeypatch, lambda: {"loss": 1.0, "accuracy": next(metrics)})
    result = fit("toy", toy(smoothing=3, patience=2, evaluate_every=2), tmp_path / "run")
    assert [line["valid"]["accuracy"] for line in lines(tmp_path / "run")] == looks[:8]
    # the means: 0.1, 0.5, 0.37, 0.6, 0.53, 0.7, 0.6, 0.53
    assert (result["best_update"], result["updates"]) == (12, 15)
    assert result["smoothed"] == pytest.approx(sign * 0.7)


def test_smoothing_outlives_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy(smoothing=3, evaluate_every=1, learning_rate=0.5)
    whole = fit("toy", config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        intrude(patch, 7, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Interrupted):
            fit("toy", config, tmp_path / "run")
    resumed = fit("toy", config, tmp_path / "run", resume=True)
    assert {**resumed, "seconds": 0} == {**whole, "seconds": 0}


@pytest.mark.parametrize("select", ["best", "last"])
def test_a_run_comes_back(tmp_path: Path, select: str) -> None:
    config = toy(evaluate_every=1, learning_rate=0.5, select=select)
    result = fit("toy", config, tmp_path / "run")
    before = torch.get_rng_state()
    task, model = load_run(tmp_path / "run")
    assert torch.equal(before, torch.get_rng_state())
    assert not model.training
    assert (lines(tmp_path / "run")[-1]["valid"] == result["valid"]) == (select == "last")
    assert evaluate(task, model, "valid") == result["valid"]
    assert read_config(tmp_path / "run") == ("toy", config)


@pytest.mark.parametrize("better", [True, False])
def test_early_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, better: bool) -> None:
    """The best look is the second; two more without a better one, a tie among them, end the run."""
    sign = 1 if better else -1
    metrics = iter([sign * value for value in (0.1, 0.3, 0.3, 0.2, 0.9, 0.9, 0.9)])
    monkeypatch.setattr(ToyTask, "higher_is_better", better)
    pretend(monkeypatch, lambda: {"loss": 1.0, "accuracy": next(metrics)})
    result = fit("toy", toy(patience=2, evaluate_every=3), tmp_path / "run")
    assert (result["updates"], result["epochs"], result["best_update"]) == (12, 3, 6)
    assert [line["update"] for line in lines(tmp_path / "run")] == [3, 6, 9, 12]


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path: Path, seconds: float) -> None:
    """The last good checkpoint stays, and going on from it meets the same loss."""
    folder = tmp_path / "run"
    with pytest.raises(RunError, match=r"the loss is nan at update 8, with learning rate 0.05.*Try a lower") as caught:
        fit("toy", toy(nan_at=8), folder, checkpoint_seconds=seconds)
    assert ("last good checkpoint, of update 7, stays in" if seconds == 0 else "no checkpoint in") in str(caught.value)
    assert not (folder / "result.json").exists()
    assert checkpoint.load(folder / "best.safetensors").values["update"] <= 6
    if seconds == 0:
        saved = checkpoint.load(folder / "last.safetensors")
        assert saved.values["status"]["update"] == 7
        assert all(tensor.isfinite().all() for tensor in saved.tensors.values())


def test_an_infinite_gradient_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finite loss with an infinite gradient must not reach the weights."""
    build = ToyTask.build

    def with_hook(self: ToyTask) -> nn.Module:
        model = build(self)
        model.get_parameter("write.bias").register_hook(lambda gradient: gradient * math.inf)
        return model

    monkeypatch.setattr(ToyTask, "build", with_hook)
    with pytest.raises(RunError, match=r"the norm of the gradient is (inf|nan) at update 1,"):
        fit("toy", toy(), tmp_path / "run", checkpoint_seconds=0)
    assert not (tmp_path / "run" / "last.safetensors").exists()


def test_a_validation_loss_that_is_not_a_number_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, lambda: {"loss": math.nan, "accuracy": 0.5})
    with pytest.raises(RunError, match="the validation loss is nan at update 3"):
        fit("toy", toy(), tmp_path / "run")


@pytest.mark.parametrize("split", ["train", "valid"])
def test_empty_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str) -> None:
    batches = ToyTask.batches
    monkeypatch.setattr(ToyTask, "batches", lambda self, s, epoch=0: () if s == split else batches(self, s, epoch))
    with pytest.raises(RunError, match=f"the {split} data is empty"):
        fit("toy", toy(), tmp_path / "run")


def test_metrics_do_not_depend_on_the_batch_size() -> None:
    found = []
    for size in (1, 5, 12, 100):
        config = toy(batch_size=size, carry=False)
        checkpoint.seed_everything(0)
        task = ToyTask(config)
        found.append(evaluate(task, task.build(), "valid"))
    for metrics in found:
        assert metrics["accuracy"] == found[0]["accuracy"]
        # float32 sums in another order
        assert metrics["loss"] == pytest.approx(found[0]["loss"], rel=1e-6)


def test_evaluation_leaves_no_trace() -> None:
    """Neither in the random numbers, nor in the model, whatever mode it is in."""
    task = ToyTask(toy())
    model = task.build()
    step = ToyTask.step

    class Gambler(ToyTask):
        def step(self, *args: Any) -> Any:
            random.random(), np.random.rand(), torch.rand(1)
            return step(self, *args)

    gambler = Gambler(toy())
    for training in (True, False):
        model.train(training)
        before = checkpoint.capture_randomness()
        evaluate(gambler, model, "valid")
        after = checkpoint.capture_randomness()
        assert model.training is training
        assert before.values == after.values
        assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in before.tensors)
        assert all(parameter.grad is None for parameter in model.parameters())


def test_how_often_is_looked_does_not_change_the_weights(tmp_path: Path) -> None:
    for every in (1, 4, None):
        fit("toy", toy(select="last", evaluate_every=every), tmp_path / str(every))
    weights = [load_run(tmp_path / str(every))[1].state_dict() for every in (1, 4, None)]
    for other in weights[1:]:
        assert all(torch.equal(weights[0][name], other[name]) for name in other)


def test_a_seed_makes_a_run_and_leaves_the_caller_alone(tmp_path: Path) -> None:
    torch.manual_seed(1)
    fit("toy", toy(), tmp_path / "one")
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(1))
    fit("toy", toy(), tmp_path / "two", checkpoint_seconds=0)
    (tmp_path / "two" / "previous.safetensors").unlink()
    assert_same_run(tmp_path / "one", tmp_path / "two")
    fit("toy", toy(seed=1), tmp_path / "three")
    assert (tmp_path / "one" / "metrics.jsonl").read_bytes() != (tmp_path / "three" / "metrics.jsonl").read_bytes()


def test_a_folder_holds_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my run"

    def fail() -> None:
        raise KeyError("the task's own mistake")

    with monkeypatch.context() as patch:
        intrude(patch, 4, fail)
        with pytest.raises(KeyError, match="own mistake"):
            fit("toy", toy(), folder)
    before = contents(folder)
    with pytest.raises(
        RunError, match=r"my run holds a run already: resume it with `mufuru train --resume '.*my run'`, or"
    ):
        fit("toy", toy(), folder)
    assert contents(folder) == before
    fit("toy", toy(), folder, resume=True)
    with pytest.raises(RunError, match="holds a finished run: choose another folder"):
        fit("toy", toy(), folder)


def test_a_finished_run_gives_its_result_at_once(tmp_path: Path) -> None:
    result = fit("toy", toy(), tmp_path / "run")
    before = contents(tmp_path / "run")
    assert fit("toy", toy(), tmp_path / "run", resume=True) == result
    assert contents(tmp_path / "run") == before


def test_other_settings_are_named(tmp_path: Path) -> None:
    fit("toy", toy(), tmp_path / "run")
    expected = "training.learning_rate is 0.05 there and 0.1 here; size is 3 there and 4 here"
    with pytest.raises(
        RunError, match=f"has other settings: {expected}. Resume it with its own, or choose another folder"
    ):
        fit("toy", toy(size=4, learning_rate=0.1), tmp_path / "run", resume=True)


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("change", "resume", "message"),
    [
        (without("config.json"), True, "there is no run in .*run to resume: start it without --resume"),
        (without("config.json"), False, "choose another folder"),
        (lambda folder: (folder / "config.json").write_text("{"), True, "config.json is damaged"),
        (lambda folder: (folder / "result.json").write_text("{"), True, "result.json is damaged.*Delete it and resume"),
    ],
)
def test_a_folder_in_disorder(tmp_path: Path, change: Any, resume: bool, message: str) -> None:
    fit("toy", toy(), tmp_path / "run")
    change(tmp_path / "run")
    with pytest.raises(RunError, match=message):
        fit("toy", toy(), tmp_path / "run", resume=resume)


def test_places_where_no_run_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match=r"file is a file: expected a folder for the run"):
        fit("toy", toy(), tmp_path / "file")
    with pytest.raises(RunError, match="there is no run in"):
        fit("toy", toy(), tmp_path / "nothing", resume=True)
    assert names(tmp_path) == {"file"}
    with pytest.raises(RunError, match=r"config.json is missing"):
        load_run(tmp_path)
    with pytest.raises(SettingError, match="unknown task 'tyo'"):
        fit("tyo", toy(), tmp_path / "run")


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    fit("toy", toy(), tmp_path / "small")
    fit("toy", toy(size=4), tmp_path / "large")
    (tmp_path / "small" / "best.safetensors").write_bytes((tmp_path / "large" / "best.safetensors").read_bytes())
    with pytest.raises(RunError, match="are not those of the model that its config"):
        load_run(tmp_path / "small")


def test_a_run_without_weights_says_how_to_get_some(tmp_path: Path) -> None:
    fit("toy", toy(), tmp_path / "run")
    (tmp_path / "run" / "best.safetensors").unlink()
    with pytest.raises(RunError, match=r"has no best.safetensors yet: train on with `mufuru train --resume"):
        load_run(tmp_path / "run")


def test_stopped_before_the_first_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a run, Ctrl-C says how to resume it."""
    begin = Store.begin

    def begin_and_stop(store: Store) -> None:
        begin(store)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Store, "begin", begin_and_stop)
    with pytest.raises(Interrupted, match=r"stopped after update 1 of \d+, everything is saved: resume with"):
        fit("toy", toy(), tmp_path / "run")
    fit("toy", toy(), tmp_path / "run", resume=True)
    monkeypatch.undo()
    fit("toy", toy(), tmp_path / "other")
    assert_same_run(tmp_path / "run", tmp_path / "other")


def test_runs_outside_of_the_main_thread(tmp_path: Path) -> None:
    """Signals are Python's main thread's: elsewhere the run goes without."""
    thread = threading.Thread(target=fit, args=("toy", toy(), tmp_path / "run"))
    thread.start()
    thread.join()
    assert (tmp_path / "run" / "result.json").exists()


def test_best_weights_load_as_plain_safetensors(tmp_path: Path) -> None:
    """Anyone can take them: the names are those of the model's own state."""
    fit("toy", toy(), tmp_path / "run")
    weights = safetensors.torch.load_file(tmp_path / "run" / "best.safetensors")
    ToyTask(toy()).build().load_state_dict(weights)


def assert_same_tensors(some: dict[str, Tensor], others: dict[str, Tensor]) -> None:
    assert some.keys() == others.keys()
    assert all(torch.equal(tensor, others[name]) for name, tensor in some.items())


def as_version_0_1(files: RunFolder) -> None:
    """Make the best weights of an unfinished run those of two files, and leave none in its checkpoint."""
    last = checkpoint.load(files.last)
    best = Checkpoint(last.part("best"), last.values["best"] | {"run": last.values["run"]})
    checkpoint.save(files.best_before, best)
    tensors = {name: tensor for name, tensor in last.tensors.items() if not name.startswith("best/")}
    values = {name: value for name, value in last.values.items() if name != "best"}
    checkpoint.save(files.last, Checkpoint(tensors, values))


@pytest.mark.parametrize("change", [lambda files: None, lambda files: files.best.unlink(), as_version_0_1])
def test_the_best_weights_that_a_checkpoint_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[RunFolder], None]
) -> None:
    """A resumed run may compute other numbers: on another machine, or with other threads."""
    files, found, save = RunFolder(tmp_path), iter((0.5, 0.7)), Fit.save
    with monkeypatch.context() as patch:
        patch.setattr(Fit, "save", lambda run: save(run) if run.status.update == 4 else None)
        pretend(patch, lambda: {"loss": 1.0, "accuracy": next(found)})
        intrude(patch, 8, lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fit("toy", toy(), tmp_path, checkpoint_seconds=0)
    assert checkpoint.load(files.best).values["update"] == 6
    expected = checkpoint.load(files.last).part("best")
    change(files)
    with monkeypatch.context() as patch:
        pretend(patch, lambda: {"loss": 1.0, "accuracy": 0.0})
        assert fit("toy", toy(), tmp_path, resume=True)["best_update"] == 3
    best = checkpoint.load(files.best)
    assert best.values["update"] == 3
    assert_same_tensors(best.tensors, expected)
    assert_same_tensors(checkpoint.load(files.last).part("best"), expected)
    assert not files.best_before.exists()
