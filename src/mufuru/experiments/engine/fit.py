"""The only training loop."""

import ctypes
import math
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from mufuru.experiments.engine import checkpoint
from mufuru.experiments.engine.checkpoint import Checkpoint
from mufuru.experiments.engine.errors import Failure, Interrupted, RunError, Stop
from mufuru.experiments.engine.evaluate import evaluate, examining, load_weights, make, moved, operation_use
from mufuru.experiments.engine.progress import Progress, TensorBoard
from mufuru.experiments.engine.ranks import Alone, LostRank, Requests, answered, counted, ranks_of
from mufuru.experiments.engine.status import Average, Status, learning_rate
from mufuru.experiments.engine.store import Follower, Store, open_store
from mufuru.experiments.record import config_document
from mufuru.experiments.tasks.task import Batch, State, Task, Totals

M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -3, -1
"""glibc's numbers of two options of `mallopt`."""
LARGEST = (1 << 30, 32 << 20)
"""Largest block that comes from the heap, in bytes; the second is the limit of an old glibc."""


def fit(
    kind: str,
    config: Any,
    folder: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    checkpoint_seconds: float = 60.0,
    tensorboard: bool = False,
    ranks: Alone | None = None,
    data: Path | None = None,
) -> dict[str, Any]:
    """Train, test and record one run in a folder; return the content of its result.json.

    With `resume` the run in the folder continues where it was stopped or killed, to the same numbers as if it had not
    been; `data` is the folder that has the files of its data now, if they were moved. Without `progress` nothing is
    printed. With `ranks` this process is one of several that make the run together. Raises `RunError` where the user
    can do something about it.
    """
    folder, ranks = Path(folder), ranks or Alone()
    watchers = [progress or Progress(), *([TensorBoard(folder)] if tensorboard else [])]
    document = config_document(kind, config)
    opened: AbstractContextManager[Store] = nullcontext(Follower(folder, document))
    if ranks.first:
        opened = open_store(folder, document, resume)
    with opened as store, checkpoint.undisturbed():
        if ranks.same(lambda: store.files.finished):
            return ranks.same(store.result)
        if resume:
            store.note_environment()
        keep_freed()
        task, model = make(kind, config if data is None else moved(config, data), folder if resume else None)
        ranks.adopt(task, model)
        run = Fit(task, model, config.training, store, watchers, checkpoint_seconds, ranks)
        with run.stop:
            if not resume:
                if check := getattr(task, "check_new", None):
                    check()
                # only now: settings whose data cannot be loaded leave nothing behind
                store.begin()
            store.note_layout(getattr(task, "layout", None))
            if description := getattr(task, "description", ""):
                watchers[0].describe(description)
            run.restore(ranks.same(store.latest))
            for watcher in watchers:
                watcher.start(f"{kind} in {folder}", run.total, run.status.update, task.metric)
            try:
                run.train()
                return run.finish()
            except LostRank as error:
                raise run.without(error) from None
            finally:
                for watcher in watchers:
                    watcher.stop()


class Fit:
    """One run: model, optimiser and status."""

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        training: Any,
        store: Store,
        watchers: list[Progress],
        every: float,
        ranks: Alone,
    ) -> None:
        self.task, self.model, self.training, self.store, self.watchers = task, model, training, store, watchers
        self.checkpoint_seconds, self.ranks = every, ranks
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        rate, betas, decay = training.learning_rate, (training.beta1, training.beta2), training.weight_decay
        self.optimizer = torch.optim.AdamW(self.parameters, rate, betas, weight_decay=decay, fused=True)
        self.average = None if training.average is None else Average(model, training.average)
        batches = len(task.batches("train", 0))
        if not batches:
            raise RunError("the train data is empty: there is nothing to learn from")
        self.total = training.updates or training.epochs * batches
        self.status = Status()
        self.state: State = None
        self.stop = Stop()
        self.started = self.saved = time.monotonic()
        self.saved_update = 0
        self.best: Checkpoint | None = None

    @property
    def trained(self) -> bool:
        patience, updates = self.training.patience, self.training.updates
        over = self.status.epoch >= self.training.epochs if updates is None else self.status.update >= updates
        return over or (patience is not None and self.status.waited >= patience)

    def train(self) -> None:
        """Update until the end, or until asked to stop."""
        self.model.train()
        while not self.trained:
            batches = self.task.batches("train", self.status.epoch)
            for index in range(self.status.batch, len(batches)):
                loss = self.update(batches[index])
                self.close_update(loss, last=index + 1 == len(batches))
                if self.trained:
                    break
        if self.status.update > self.saved_update:
            self.save()

    def update(self, batch: Batch) -> float:
        """Make one step of the optimiser; return the mean loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(self.status.update)
        step = self.ranks.step(batch, self.state, self.requests)
        loss = step.loss / step.count
        if step.penalty is not None:
            loss = loss + step.penalty
        value = float(loss.detach())
        self.check_finite("loss", value, self.status.update + 1)
        self.optimizer.zero_grad()
        with answered():
            loss.backward()
        self.clip()
        self.optimizer.step()
        if self.average:
            self.average.update(self.status.update)
        self.state = step.state
        self.status.totals.add(step)
        return value

    def learning_rate(self, update: int) -> float:
        return learning_rate(self.training, update, self.total, self.status.factor)

    def clip(self) -> None:
        """Stop at a gradient that is not finite; clip its norm."""
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        norm = get_total_norm(gradients)
        length = float(norm)
        self.check_finite("norm of the gradient", length, self.status.update + 1)
        if self.training.clip is not None and length > self.training.clip:
            clip_grads_with_norm_(self.parameters, self.training.clip, norm)

    def close_update(self, loss: float, last: bool) -> None:
        """Count the update; then validate, stop and save where due."""
        status = self.status
        status.update += 1
        self.watchers[0].step(status.update, loss)
        every = self.training.evaluate_every
        updates = self.training.updates
        end = last and status.epoch + 1 == self.training.epochs if updates is None else status.update == updates
        if end or (last if every is None else status.update % every == 0):
            with self.average.in_place() if self.average else nullcontext():
                self.validate()
        status.batch += 1
        if last:
            status.epoch, status.batch, self.state = status.epoch + 1, 0, None
        requests = self.ranks.granted(self.requests)
        if requests.stop:
            self.save()
            self.interrupt(requests.stop)
        if requests.save:
            self.save()

    @property
    def requests(self) -> Requests:
        return Requests(self.stop.number, time.monotonic() - self.saved >= self.checkpoint_seconds)

    def validate(self) -> None:
        """Validate, log the metrics, and save the weights if they are the best."""
        status, valid = self.status, evaluate(self.task, self.model, "valid", self.ranks.step)
        for name, value in valid.items():
            self.check_finite(f"validation {name}", value, status.update)
        metric, loss = status.smoothed(valid[self.task.metric], valid["loss"], self.training.smoothing)
        reason = status.rank(metric, loss, self.task.higher_is_better, self.training.ties)
        improved = reason == "metric"
        line = {
            "update": status.update,
            "epoch": status.epoch + 1,
            "train": self.task.metrics(status.totals),
            "valid": valid,
            "learning_rate": self.learning_rate(status.update - 1),
        }
        if self.ranks.first and (use := operation_use(self.task, self.ranks.inspected())):
            line["operations"] = use
        status.tied = 1 if improved else status.tied + (metric == status.best)
        if reason:
            status.best, status.best_loss, status.best_update, status.chosen_by = metric, loss, status.update, reason
            weights = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
            self.best = Checkpoint(weights, {"update": status.update, "valid": valid})
            self.store.save_best(self.best)
        status.waited = 0 if improved else status.waited + 1
        if self.training.schedule == "plateau" and not improved and not status.waited % self.training.decay_patience:
            status.factor *= self.training.decay
        status.totals = Totals()
        status.log_bytes = self.store.log(line)
        for watcher in self.watchers:
            watcher.validated(line)

    def save(self) -> None:
        """Write a checkpoint of everything that the rest of the run depends on."""
        now = time.monotonic()
        self.status.seconds = now - self.started
        state, drawn = self.ranks.collect(self.state, checkpoint.capture_randomness())
        tensors = {f"model/{name}": tensor for name, tensor in self.model.state_dict().items()}
        if self.average:
            tensors |= {f"average/{name}": tensor for name, tensor in self.average.state().items()}
        if self.best:
            tensors |= {f"best/{name}": tensor for name, tensor in self.best.tensors.items()}
        tensors |= {f"random/{name}": tensor for name, tensor in drawn.tensors.items()}
        values = {
            "status": asdict(self.status),
            "random": drawn.values,
            "state": checkpoint.pack(state, "state", tensors),
            "optimizer": checkpoint.pack(self.optimizer.state_dict()["state"], "optimizer", tensors),
            "best": self.best and self.best.values,
        }
        self.store.save(Checkpoint(tensors, values))
        self.saved, self.saved_update = time.monotonic(), self.status.update

    def restore(self, latest: Checkpoint | None) -> None:
        """Restore a checkpoint; without one, start from the beginning."""
        if latest is not None:
            tensors, values = latest.tensors, latest.values
            self.status = Status.from_values(values["status"])
            load_weights(self.model, latest.part("model"), self.store.files.path)
            if self.average:
                self.average.restore(latest.part("average"))
            optimizer = checkpoint.unpack(values["optimizer"], tensors)
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": optimizer})
            drawn = Checkpoint(latest.part("random"), values["random"])
            self.state, own = self.ranks.deal(checkpoint.unpack(values["state"], tensors), drawn, self.status.update)
            checkpoint.restore_randomness(own)
            if (before := ranks_of(drawn)) != self.ranks.size:
                self.watchers[0].describe(
                    f"The checkpoint is of {counted(before)}, now there {'is' if self.ranks.size == 1 else 'are'} "
                    f"{counted(self.ranks.size)}: from here on sums are rounded in another order, and dropout draws "
                    "other masks."
                )
            self.started -= self.status.seconds
            self.saved_update = self.status.update
            if values.get("best"):
                # what is in the folder may be of a later update
                self.best = Checkpoint(latest.part("best"), values["best"])
                self.store.save_best(self.best)
        self.store.cut_log(self.status.log_bytes)

    def finish(self) -> dict[str, Any]:
        """Test the selected weights and write the result: with it the run is finished."""
        status, seconds = self.status, time.monotonic() - self.started
        if self.training.select == "best":
            load_weights(self.model, self.ranks.same(self.best_weights), self.store.files.path)
            self.complete()
        elif self.average:
            load_weights(self.model, self.average.state(), self.store.files.path)
        result: dict[str, Any] = {
            "updates": status.update,
            "epochs": status.epoch + (status.batch > 0),
            "parameters": sum(parameter.numel() for parameter in self.parameters),
            "best_update": status.best_update,
            "seconds": round(seconds, 3),
        }
        if self.training.smoothing > 1:
            result["smoothed"] = status.best
        result["selection"] = self.selection()
        for split in ("train", "valid", "test"):
            if number := self.ranks.agree(self.requests).stop:
                self.interrupt(number)
            result[split] = evaluate(self.task, self.model, split, self.ranks.step)
        if self.ranks.first:
            model = self.ranks.inspected()
            with examining(model):
                result["inspection"] = self.task.inspect(model)
        self.store.finish(result, getattr(self.task, "examples", tuple)())
        return result

    def complete(self) -> None:
        """Let the task change the selected model before it is tested, as by calibration, and keep what it changed."""
        change = getattr(self.task, "complete", None)
        with examining(self.model):
            changed = change is not None and change(self.model)
        if changed:
            valid = evaluate(self.task, self.model, "valid", self.ranks.step)
            best = {"update": self.status.best_update, "valid": valid}
            self.store.save_best(Checkpoint(dict(self.model.state_dict()), best))

    def selection(self) -> dict[str, Any]:
        """Return the rule that chose the weights to test."""
        if self.training.select == "last":
            return {"by": "last"}
        by = "metric" if self.status.tied <= 1 else self.training.ties
        by = "later" if self.status.chosen_by == "later" else by
        return {"metric": self.task.metric, "value": self.status.best, "tied": self.status.tied, "by": by}

    def best_weights(self) -> dict[str, Tensor]:
        best = self.store.best()
        if best.values["update"] != self.status.best_update:
            raise RunError(f"{self.store.files.best} is of update {best.values['update']}, expected the one of update "
                           f"{self.status.best_update}: it was exchanged. Start a new run")  # fmt: skip
        return best.tensors

    def interrupt(self, number: int) -> None:
        done = f"stopped after update {self.status.update} of {self.total}, everything is saved"
        raise Interrupted(f"{done}: resume with {self.ranks.resume_command(self.store.files.path)}", number)

    def without(self, error: LostRank) -> Failure:
        """Return the error of a run that has lost another of its processes."""
        kept = f"its last checkpoint, of update {self.saved_update}" if self.saved_update else "its beginning"
        return Failure(f"{error} at update {self.status.update + 1} of {self.total}: resume the run from {kept}, with "
                        f"{self.ranks.resume_command(self.store.files.path)}")  # fmt: skip

    def check_finite(self, name: str, value: float, update: int) -> None:
        """Stop at NaN or infinity; the last checkpoint is left as it is."""
        if math.isfinite(value):
            return
        folder = self.store.files.path
        kept = f"The last good checkpoint, of update {self.saved_update}, stays in {folder}"
        raise Failure(
            f"the {name} is {value} at update {update}, with learning rate {self.learning_rate(update - 1):g}: the run "
            "stops here. Try a lower --learning-rate, a --clip of the gradient such as 1, or a longer --warmup. "
            + (kept if self.saved_update else f"There is no checkpoint in {folder} yet")
        )


def keep_freed() -> bool:
    """Ask glibc not to give large freed blocks back to the system; return whether it agreed.

    Every update needs the same blocks. Once returned, they are allocated as fresh pages, with a page fault and 4 KB of
    zeros each: thousands in an update of a language model. The price is a process that never shrinks.
    """
    # only glibc has this function
    set_option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_option is None or not any(set_option(M_MMAP_THRESHOLD, size) for size in LARGEST):
        return False
    return bool(set_option(M_TRIM_THRESHOLD, 2**31 - 1))
