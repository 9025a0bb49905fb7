"""The graph of a model with its sizes named, in either layout: steps first, as the models have it, or batch first."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from mufuru.experiments.tasks.models import TaskModel, Tensors

Answers = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""From arguments with the steps first to results with the steps first."""
Sizes = tuple[str | int, ...]
"""The sizes of a tensor: names of the free ones, numbers of the others."""

EXAMPLE, OTHER = (2, 5), (3, 7)
"""Batch and steps that a graph is made with, and others: sizes that differ between both are free."""
TIME_FIRST, BATCH_FIRST = ("steps", "batch"), ("batch", "steps")


class Layout(NamedTuple):
    """A graph, an example of its arguments, and the sizes of its inputs and outputs by name."""

    module: nn.Module
    example: Tensors
    open_sizes: Any
    inputs: dict[str, Sizes]
    outputs: dict[str, Sizes]

    def wrap(self, run: Answers) -> Answers:
        """Return a function with steps first from one in this layout."""
        inputs, outputs = tuple(self.inputs.values()), tuple(self.outputs.values())
        return lambda arguments: swap(run(swap(arguments, inputs, BATCH_FIRST)), outputs, BATCH_FIRST)


def lay_out(model: TaskModel, batch_first: bool) -> Layout:
    """Return the graph of a model."""
    graph = model.graph()
    example, other = (model.example(*size, seed=-1) for size in (EXAMPLE, OTHER))
    inputs = named_sizes(example, other)
    outputs = named_sizes(model.answers(*example), model.answers(*other))
    module: nn.Module = graph.module
    open_sizes: Any = graph.open_sizes
    if batch_first:
        module, example, open_sizes = BatchFirst(module, inputs, outputs), swap(example, inputs), (open_sizes,)
        inputs, outputs = (tuple(map(with_batch_first, sizes)) for sizes in (inputs, outputs))
    named = dict(zip(graph.inputs, inputs, strict=True)), dict(zip(graph.outputs, outputs, strict=True))
    return Layout(module, example, open_sizes, *named)


class BatchFirst(nn.Module):
    """A graph whose arguments and results have the batch before the steps; states stay as they are."""

    def __init__(self, module: nn.Module, inputs: Sequence[Sizes], outputs: Sequence[Sizes]) -> None:
        super().__init__()
        self.module, self.inputs, self.outputs = module, inputs, outputs

    def forward(self, *arguments: Tensor) -> Tensors:
        results: Any = self.module(*swap(arguments, self.inputs))
        return swap((results,) if isinstance(results, Tensor) else results, self.outputs)


def named_sizes(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> tuple[Sizes, ...]:
    """Return the sizes of tensors of `EXAMPLE`, given those of `OTHER`; a model may need more steps than asked for."""
    batch = EXAMPLE[0], OTHER[0]
    return tuple(
        tuple(
            one if one == two else "batch" if (one, two) == batch else "steps"
            for one, two in zip(tensor.shape, other.shape, strict=True)
        )
        for tensor, other in zip(tensors, others, strict=True)
    )


def with_batch_first(sizes: Sizes) -> Sizes:
    return (*BATCH_FIRST, *sizes[2:]) if sizes[:2] == TIME_FIRST else sizes


def swap(tensors: Sequence[Tensor], sizes: Sequence[Sizes], which: Sizes = TIME_FIRST) -> Tensors:
    """Swap the first two dimensions of tensors where these are `which`."""
    both = zip(tensors, sizes, strict=True)
    return tuple(tensor.transpose(0, 1) if own[:2] == which else tensor for tensor, own in both)
