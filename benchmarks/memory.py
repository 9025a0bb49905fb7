"""Memory that a forward pass keeps for its backward pass."""

from __future__ import annotations

import peers
import shapes
import torch
from shapes import Shape
from torch import Tensor, nn

HOW = (
    "Counted with `torch.autograd.graph.saved_tensors_hooks`: the whole storage behind every tensor that the graph of "
    "one forward pass keeps, each storage once, without those of the parameters and of the input; divided by steps, "
    "batch and units."
)
COUNTED = (shapes.SEVEN, shapes.GATED, shapes.CONTROLLER, shapes.REFERENCE, shapes.GRU, shapes.LSTM)


def saved_bytes(module: nn.Module, x: Tensor) -> int:
    """Bytes that the graph of `module(x)` keeps, beyond parameters and input."""
    storages: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        # the result holds the graph, so that no address is used twice while we count
        result = module(x)
    for known in (x, *module.parameters()):
        storages.pop(known.untyped_storage().data_ptr(), None)
    del result
    return sum(storages.values())


def per_step_and_unit(shape: Shape) -> dict[str, float]:
    x = torch.randn(shape.steps, shape.batch, shape.input_size, requires_grad=True)
    values = shape.steps * shape.batch * shape.hidden_size
    modules = peers.layers(shape)
    return {peer: saved_bytes(modules[peer], x) / values for peer in COUNTED}
