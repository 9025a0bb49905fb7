"""A classifier or tagger step by step: the states of layer and pooling in, the logits so far and new states out."""

from typing import Any

import torch
from torch import Tensor, nn

from mufuru.experiments.tasks.models import StepGraph, StepState, Tensors, exportable, layer_states

LOWEST = torch.finfo(torch.float32).min
"""Below all outputs and scores, and a number that JSON and C can write."""


class ClassifierStep(nn.Module):
    """One step: inputs (batch,) or (batch, channels), the layer's states, then those of the pooling."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = exportable(model)
        self.layers = len(layer_states(model.config.cell))

    def forward(self, inputs: Tensor, *states: Tensor) -> Tensors:
        model: Any = self.model
        hidden, pooled = states[: self.layers], states[self.layers :]
        outputs, state = model.reader(model.embedding(inputs).unsqueeze(0), hidden[0] if self.layers == 1 else hidden)
        vector, pooled = pool(getattr(model, "pooling", None), outputs.squeeze(0), pooled)
        return (model.logits(vector), *((state,) if isinstance(state, Tensor) else state), *pooled)


def pool(pooling: Any, output: Tensor, states: Tensors) -> tuple[Tensor, Tensors]:
    """Return the vector of all outputs so far, (batch, features), and the new state."""
    if pooling is None or pooling.name == "last":
        return output, ()
    if pooling.name == "max":
        best = torch.maximum(states[0], output)
        return best, (best,)
    if pooling.name == "mean":
        total, count = states[0] + output, states[1] + 1
        return total / count, (total, count)
    # the largest score so far is subtracted, so that no exponential overflows
    top, weight, total = states
    score = (output @ pooling.query).unsqueeze(-1)
    highest = torch.maximum(top, score)
    shrink, new = (top - highest).exp(), (score - highest).exp()
    weight, total = shrink * weight + new, shrink * total + new * output
    return total / weight, (highest, weight, total)


def pooling_states(name: str, features: int) -> tuple[StepState, ...]:
    vector, number = (None, features), (None, 1)
    return {
        "last": (),
        "max": (StepState("best", vector, LOWEST),),
        "mean": (StepState("total", vector), StepState("count", number)),
        "attention": (StepState("top", number, LOWEST), StepState("weight", number), StepState("total", vector)),
    }[name]


def step_graph(model: Any) -> StepGraph | None:
    """Return a single step; None for a model that reads in both directions."""
    if model.config.cell.bidirectional:
        return None
    pooling = getattr(model.config, "pooling", "last")
    states = layer_states(model.config.cell) + pooling_states(pooling, model.reader.output_size)
    return StepGraph(ClassifierStep(model), model.argument, states)
