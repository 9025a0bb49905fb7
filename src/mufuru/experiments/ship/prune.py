"""Drop the operations that a trained model hardly uses, and keep the smaller model as a run of its own.

Leaving out the rows of an operation's logits is exact in this sense: the remaining weights are what the softmax gives
without it. Where the dropped weights were 0 nothing changes. Elsewhere, from the same state and input, a remaining
weight p becomes p / (1 - q), q being the sum of the dropped ones: with each of n operations under a threshold t at
every unit and step, as `largest` asks, that is a change by less than n t / (1 - n t) of itself. What it does to the
states of later steps, and to the loss, is measured. With `mean` a single step may change by more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

import mufuru
from mufuru.experiments.engine import RunError, evaluate, load_run, read_config
from mufuru.experiments.engine.checkpoint import Checkpoint
from mufuru.experiments.engine.evaluate import examining, rebuild
from mufuru.experiments.engine.store import open_store
from mufuru.experiments.record import config_document, read_run
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.task import Task
from mufuru.prune import kept_weights

Measure = Literal["largest", "mean"]


class Use(NamedTuple):
    """The weight of one operation in one direction of one layer, over all units and steps."""

    largest: float
    mean: float


class Uses(NamedTuple):
    """By place, such as "layer 0", and operation."""

    places: dict[str, dict[str, Use]]

    def of(self, measure: Measure) -> dict[str, float]:
        """Each operation where it is used most: all layers of a model have the same operations."""
        names = next(iter(self.places.values()))
        return {name: max(getattr(uses[name], measure) for uses in self.places.values()) for name in names}


class Pruned(NamedTuple):
    """A pruned run, and its metrics before and after."""

    folder: Path
    dropped: tuple[str, ...]
    parameters: tuple[int, int]
    """Before and after."""
    before: dict[str, dict[str, float]]
    """Metrics by data set."""
    after: dict[str, dict[str, float]]


def measure_use(task: Task, model: nn.Module, split: str) -> Uses:
    """Look at every unit of every step of a data set."""
    gathered: dict[str, _Gathered] = {}
    state = None
    with examining(model):
        for batch in task.batches(split):
            with mufuru.tracing(model) as traces:
                state = task.step(model, batch, state).state
            for layer, passes in traces.items():
                for trace in passes:
                    for index, part in enumerate(trace.parts):
                        place = _place(layer, *divmod(index, trace.directions), len(traces), trace.directions)
                        gathered.setdefault(place, _Gathered(trace.op_names)).add(part.p)
    if not gathered or not all(place.count for place in gathered.values()):
        raise RunError(f"the {split} data is empty: there is nothing to measure")
    return Uses({place: weights.uses() for place, weights in gathered.items()})


def choose(uses: Uses, measure: Measure, threshold: float) -> tuple[str, ...]:
    """The operations that stay under the threshold in every layer and direction."""
    weights = uses.of(measure)
    dropped = tuple(name for name, weight in weights.items() if weight < threshold)
    listed = _listed(weights)
    if not dropped:
        hint = "" if measure == "mean" else f". With --measure mean: {_listed(uses.of('mean'))}"
        raise RunError(f"no operation's {measure} weight stays under {threshold:g}, so none is dropped: {listed}{hint}")
    if len(dropped) == len(weights):
        raise RunError(
            f"all operations stay under {threshold:g}, and one must be left: {listed}. Choose a lower threshold"
        )
    return dropped


def load_prunable(folder: Path) -> tuple[Task, nn.Module]:
    """The task and model of a finished run of a cell that has operations to drop."""
    kind, config = read_config(folder)
    read_run(folder, curve=False)
    cell = getattr(config, "cell", None)
    if not isinstance(cell, CellConfig) or cell.cell != "mufuru":
        what = f"cell {cell.cell}" if isinstance(cell, CellConfig) else f"task {kind}"
        raise RunError(f"the run in {folder} is of the {what}: only layers of mufuru have operations to drop")
    return load_run(folder)


def write_pruned(
    folder: Path, task: Task, model: nn.Module, dropped: tuple[str, ...], output: Path, about: Mapping[str, Any]
) -> Pruned:
    """Measure before and after, and write the smaller model as a finished run."""
    splits = tuple(dict.fromkeys((str(about["split"]), "valid", "test")))
    kind, config = read_config(folder)
    smaller_config = without(config, dropped)
    weights = pruned_weights(model, dropped)
    smaller = rebuild(kind, smaller_config, weights, output)
    before, after = ({split: evaluate(task, which, split) for split in splits} for which in (model, smaller))
    sizes = (parameters(model), parameters(smaller))
    record = read_run(folder, curve=False)
    pruned = {**about, "dropped": list(dropped), "parameters": sizes[0], "before": before}
    result = {key: value for key, value in record.result.items() if key not in ("train", "inspection")}
    with examining(smaller):
        inspection = task.inspect(smaller)
    result |= {**after, "parameters": sizes[1], "inspection": inspection, "pruned": pruned}
    with open_store(output, config_document(kind, smaller_config), resume=False) as store:
        store.begin()
        store.save_best(Checkpoint(weights, {}))
        store.finish(result)
    return Pruned(output, dropped, sizes, before, after)


def without(config: Any, dropped: tuple[str, ...]) -> Any:
    """The settings of the smaller model. Its weights are in best.safetensors, whichever were selected before."""
    ops = tuple(name for name in config.cell.ops if name not in dropped)
    keep_bias = config.cell.keep_bias if "keep" in ops else None
    cell = dataclasses.replace(config.cell, ops=ops, keep_bias=keep_bias)
    return dataclasses.replace(config, cell=cell, training=dataclasses.replace(config.training, select="best"))


def pruned_weights(model: nn.Module, dropped: tuple[str, ...]) -> dict[str, Tensor]:
    """The model's weights without the rows of some operations."""
    weights: dict[str, Tensor] = dict(model.state_dict())
    for name, layer in model.named_modules():
        if isinstance(layer, mufuru.MuFuRU):
            kept = [place for place, op in enumerate(layer.ops) if op not in dropped]
            prefix = f"{name}." if name else ""
            weights |= {prefix + own: tensor for own, tensor in kept_weights(layer, kept).items()}
    return weights


def parameters(model: nn.Module) -> int:
    """Those that were trained, as a run counts them."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _listed(weights: Mapping[str, float]) -> str:
    """The smallest first."""
    return ", ".join(f"{name} {weight:.2g}" for name, weight in sorted(weights.items(), key=lambda item: item[1]))


class _Gathered:
    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.largest, self.total, self.count = [0.0] * len(names), [0.0] * len(names), 0

    def add(self, p: Tensor) -> None:
        """(rows, operations, hidden)"""
        if not p.numel():
            return
        self.largest = [max(pair) for pair in zip(self.largest, p.amax((0, 2)).tolist(), strict=True)]
        self.total = [sum(pair) for pair in zip(self.total, p.double().sum((0, 2)).tolist(), strict=True)]
        self.count += p.size(0) * p.size(2)

    def uses(self) -> dict[str, Use]:
        rows = zip(self.names, self.largest, self.total, strict=True)
        return {name: Use(largest, total / self.count) for name, largest, total in rows}


def _place(name: str, layer: int, direction: int, layers: int, directions: int) -> str:
    """Such as "layer 1, reverse"; with the name of the module where there are several."""
    named = f"{name}, " if layers > 1 else ""
    return f"{named}layer {layer}" + ((", forward", ", reverse")[direction] if directions > 1 else "")
