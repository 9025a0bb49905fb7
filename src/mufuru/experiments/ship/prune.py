"""Drop the operations that a trained model hardly uses, and keep the smaller model as a new run.

Leaving out the rows of an operation's logits is exact in this sense: the remaining weights are what the softmax gives
without it. Where the dropped weights were 0 nothing changes. Elsewhere, from the same state and input, a remaining
weight p becomes p / (1 - q), q being the sum of the dropped ones: with each of n operations under a threshold t at
every unit and step, as `largest` asks, that is a change by less than n t / (1 - n t) of itself. What it does to the
states of later steps, and to the loss, is measured. With `mean` a single step may change by more.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
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


Uses = dict[str, dict[str, dict[str, float]]]
"""Place, such as "layer 0" -> measure -> operation -> its weight there, over all units and steps."""


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
    """Measure the weights of every unit at every step of a data set."""
    gathered: dict[str, list[Tensor]] = {}
    names: tuple[str, ...] = ()
    state = None
    with examining(model):
        for batch in task.batches(split):
            with mufuru.tracing(model) as traces:
                state = task.step(model, batch, state).state
            for layer, passes in traces.items():
                for trace in passes:
                    names = trace.op_names
                    for index, part in enumerate(trace.parts):
                        place = _place(layer, *divmod(index, trace.directions), len(traces), trace.directions)
                        if part.p.numel():
                            gathered.setdefault(place, []).append(_summed(part.p))
    if not gathered:
        raise RunError(f"the {split} data is empty: there is nothing to measure")
    uses: Uses = {}
    for place, rows in gathered.items():
        largest, total, count = torch.stack(rows).unbind(1)
        measured = {"largest": largest.amax(0), "mean": total.sum(0) / count.sum(0)}
        uses[place] = {name: dict(zip(names, weights.tolist(), strict=True)) for name, weights in measured.items()}
    return uses


def _summed(p: Tensor) -> Tensor:
    """Return (3, operations) of (rows, operations, hidden): the largest weight, the sum and the number of weights."""
    total = p.double().sum((0, 2))
    return torch.stack((p.amax((0, 2)).double(), total, torch.full_like(total, p.size(0) * p.size(2))))


def most(uses: Uses, measure: Measure) -> dict[str, float]:
    """Return the weight of each operation where it is used most: all layers of a model have the same operations."""
    tables = [measures[measure] for measures in uses.values()]
    return {name: max(table[name] for table in tables) for name in tables[0]}


def choose(uses: Uses, measure: Measure, threshold: float) -> tuple[str, ...]:
    """Return the operations that stay under the threshold in every layer and direction."""
    weights = most(uses, measure)
    dropped = tuple(name for name, weight in weights.items() if weight < threshold)
    listed = _listed(weights)
    if not dropped:
        hint = "" if measure == "mean" else f". With --measure mean: {_listed(most(uses, 'mean'))}"
        raise RunError(f"no operation's {measure} weight stays under {threshold:g}, so none is dropped: {listed}{hint}")
    if len(dropped) == len(weights):
        raise RunError(
            f"all operations stay under {threshold:g}, and one must be left: {listed}. Choose a lower threshold"
        )
    return dropped


def load_prunable(folder: Path) -> tuple[Task, nn.Module]:
    """Return task and model of a finished run of a cell that has operations to drop."""
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
    splits = dict.fromkeys((str(about["split"]), "valid", "test"))
    kind, config = read_config(folder)
    config, weights = without(config, dropped), pruned_weights(model, dropped)
    smaller = rebuild(kind, config, weights, output)
    before, after = ({split: evaluate(task, which, split) for split in splits} for which in (model, smaller))
    sizes = (parameters(model), parameters(smaller))
    pruned = {**about, "dropped": list(dropped), "parameters": sizes[0], "before": before}
    result = read_run(folder, curve=False).result
    result = {key: value for key, value in result.items() if key not in ("train", "inspection")}
    with examining(smaller):
        inspection = task.inspect(smaller)
    result |= {**after, "parameters": sizes[1], "inspection": inspection, "pruned": pruned}
    with open_store(output, config_document(kind, config), resume=False) as store:
        store.begin()
        store.save_best(Checkpoint(weights, {}))
        store.finish(result)
    return Pruned(output, dropped, sizes, before, after)


def without(config: Any, dropped: tuple[str, ...]) -> Any:
    """Return the settings of the smaller model. Its weights are in best.safetensors, whichever were selected before."""
    ops = tuple(name for name in config.cell.ops if name not in dropped)
    keep_bias = config.cell.keep_bias if "keep" in ops else None
    cell = replace(config.cell, ops=ops, keep_bias=keep_bias)
    return replace(config, cell=cell, training=replace(config.training, select="best"))


def pruned_weights(model: nn.Module, dropped: tuple[str, ...]) -> dict[str, Tensor]:
    """Return the model's weights without the rows of some operations."""
    weights: dict[str, Tensor] = dict(model.state_dict())
    for name, layer in model.named_modules():
        if isinstance(layer, mufuru.MuFuRU):
            kept = [place for place, op in enumerate(layer.ops) if op not in dropped]
            prefix = f"{name}." if name else ""
            weights |= {prefix + own: tensor for own, tensor in kept_weights(layer, kept).items()}
    return weights


def parameters(model: nn.Module) -> int:
    """Count the trainable parameters, as a run does."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _listed(weights: Mapping[str, float]) -> str:
    """Write the weights, the smallest first."""
    return ", ".join(f"{name} {weight:.2g}" for name, weight in sorted(weights.items(), key=lambda item: item[1]))


def _place(name: str, layer: int, direction: int, layers: int, directions: int) -> str:
    """Return a name such as "layer 1, reverse"; with the name of the module where there are several."""
    named = f"{name}, " if layers > 1 else ""
    return f"{named}layer {layer}" + ((", forward", ", reverse")[direction] if directions > 1 else "")
