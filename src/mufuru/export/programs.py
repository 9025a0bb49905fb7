"""`program`: a model as one `torch.export` graph with free batch and time."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

from mufuru.kernels import scan
from mufuru.kernels.choice import use_sequence
from mufuru.layer import MuFuRU


def program(
    model: nn.Module,
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    portable: bool = False,
) -> ExportedProgram:
    """The model as a `torch.export` program; `torch.export.save` writes it to a file.

    `args` and `kwargs` are an example of the model's arguments: sizes of 2 or more, since 1 counts as fixed.
    `dynamic_shapes` is torch.export's; by default every size is free that the model does not fix. The model is taken
    as it is in evaluation mode.
    The program calls mufuru's own operator and needs `import mufuru` where it is loaded; with `portable=True` it is
    made of torch's operators alone: slower, and torch is enough.
    """
    with use_sequence(scan.sequence) if portable else nullcontext():
        return trace(model, args, kwargs, dynamic_shapes)


def trace(
    model: nn.Module, args: tuple[Any, ...] | None, kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> ExportedProgram:
    """`program` with the kernel in use."""
    if args is None and kwargs is None:
        args = example(model)
    args, kwargs = () if args is None else args, dict(kwargs or {})
    if not isinstance(args, tuple):
        raise TypeError(f"args should be a tuple of the model's arguments such as (x,), got {type(args).__name__}")
    if dynamic_shapes is None:
        dynamic_shapes = _free_sizes(model, args, kwargs)
    with evaluating(model), torch.no_grad():
        return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)


def example(model: nn.Module) -> tuple[Tensor]:
    """Return example arguments for a bare layer."""
    if not isinstance(model, MuFuRU):
        raise TypeError(
            f"args should be an example of what {type(model).__name__} is called with, such as (x,); "
            "only a bare MuFuRU layer can do without"
        )
    weight = model.all_weights[0][0]
    return (weight.new_zeros(3, 2, model.input_size),)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within this context the model is in evaluation mode; after it, each module is as it was."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


def _free_sizes(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """By argument: batch and time of a layer's; of another model's every size that it does not fix."""
    given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    if not isinstance(model, MuFuRU):
        return {name: _for_each(value, _every_size) for name, value in given.items()}
    time, batch = Dim("time"), Dim("batch")
    first = (batch, time) if model.batch_first else (time, batch)
    known: dict[str, Any] = {"input": dict(enumerate(first)), "hx": {1: batch}, "lengths": {0: batch}}
    known["resets"] = known["input"]
    if isinstance(given["input"], Tensor) and given["input"].dim() == 2:
        # one sequence has no batch
        known = {"input": {0: time}, "hx": {}, "lengths": {}, "resets": {0: time}}
    return {name: _for_each(value, _constantly(known[name])) for name, value in given.items()}


def _every_size(tensor: Tensor) -> dict[int, Any]:
    return dict.fromkeys(range(tensor.dim()), Dim.AUTO)


def _constantly(result: Any) -> Callable[[Tensor], Any]:
    return lambda _: result


def _for_each(arguments: Any, sizes: Callable[[Tensor], Any]) -> Any:
    """Return the sizes that stay free; `None` if the argument is not a tensor."""
    return pytree.tree_map(lambda leaf: sizes(leaf) if isinstance(leaf, Tensor) else None, arguments)
