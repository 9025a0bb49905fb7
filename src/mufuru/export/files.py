"""`onnx`: a model as an ONNX file."""

import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from mufuru.disk import write_atomically
from mufuru.export import programs
from mufuru.kernels import onnx as kernel
from mufuru.kernels.choice import use_sequence
from mufuru.layer import MuFuRU

MISSING = re.compile(r"No ONNX function found for .*?op='([\w.]+)'")
"""Message of torch's exporter for a call that ONNX does not have."""
TALKERS = ("torch.onnx._internal.exporter._registration", "onnxscript.optimizer._constant_folding")
"""Loggers with warnings that do not concern the user: torchvision's operators, constants that stay unfolded."""


def onnx(
    model: nn.Module,
    path: str | os.PathLike[str],
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    axes: Sequence[Sequence[str | None]] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the model to `path` as ONNX: one `Scan` per layer and direction, or one `GRU` where the unit is a GRU.

    `args` and `kwargs` are an example of the model's arguments, `dynamic_shapes` as in `program`. `axes` names the
    free sizes of each input, such as `[("batch", "steps"), ("batch",)]`, `None` for a fixed one; outputs of the same
    sizes have the same names. `metadata` goes into the file, where onnxruntime's `get_modelmeta` finds it. The model is
    written as it is in evaluation mode. Needs `pip install '.[onnx]'`.
    """
    _check_packages()
    with use_sequence(kernel.sequence):
        program = programs.trace(model, args, kwargs, dynamic_shapes)
    if isinstance(model, MuFuRU):
        output_names = output_names or (
            ["output", "h_n"] if model.controller_size is None else ["output", "h_n", "k_n"]
        )
    proto = _translate(program, input_names=input_names, output_names=output_names)
    if axes is None and isinstance(model, MuFuRU):
        axes = [("batch", "time") if model.batch_first else ("time", "batch")]
    _name_sizes(proto.graph, axes or ())
    for key, value in (metadata or {}).items():
        proto.metadata_props.add(key=key, value=value)
    _write(proto, Path(path))


def _translate(program: ExportedProgram, **options: Any) -> Any:
    """The program as an `onnx.ModelProto`."""
    try:
        with _quiet():
            exported: Any = torch.onnx.export(program, dynamo=True, verbose=False, **options)
    except torch.onnx.OnnxExporterError as error:
        if match := MISSING.search(str(error)):
            raise NotImplementedError(
                f"ONNX has nothing for the call {match[1]}: replace it in the model, or in an operation of its layers"
            ) from error
        raise
    model = exported.model_proto
    for value in [*model.graph.input, *model.graph.output]:
        for size in value.type.tensor_type.shape.dim:
            # torch names a size that turned out fixed by its digits
            if size.dim_param.isdecimal():
                size.dim_value = int(size.dim_param)
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in TALKERS}
    try:
        for name in TALKERS:
            logging.getLogger(name).setLevel(logging.ERROR)
        with warnings.catch_warnings():
            # torch copies its own trees, and warns itself of it
            warnings.filterwarnings("ignore", r".*LeafSpec.* is deprecated", FutureWarning)
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _name_sizes(graph: Any, axes: Sequence[Sequence[str | None]]) -> None:
    """Give the free sizes of the inputs, wherever they occur, names in place of torch's symbols."""
    known: dict[str, str] = {}
    for value, names in zip(graph.input, axes, strict=False):
        for size, name in zip(value.type.tensor_type.shape.dim, names, strict=False):
            if size.dim_param and name is not None:
                known[size.dim_param] = name
    for value in [*graph.input, *graph.output, *graph.value_info]:
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param in known:
                size.dim_param = known[size.dim_param]


def _check_packages() -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"ONNX export needs the package {error.name}: `pip install '.[onnx]'` in the folder of mufuru"
        ) from error
    del onnx


def _write(model: Any, path: Path) -> None:
    """Check the model, then write it."""
    import onnx

    onnx.checker.check_model(model, full_check=True)
    write_atomically(path, model.SerializeToString())
