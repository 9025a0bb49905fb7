"""`onnx`: a model as an ONNX file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from mufuru.export import programs, scans
from mufuru.export.nodes import Exporter
from mufuru.export.translate import translate
from mufuru.kernels.choice import use_sequence
from mufuru.layer import MuFuRU


def onnx(
    model: nn.Module,
    path: str | os.PathLike[str],
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> None:
    """Write the model to `path` as ONNX: one `Scan` per layer and direction, or one `GRU` where the unit is a GRU.

    `args` and `kwargs` are an example of the model's arguments, `dynamic_shapes` as in `program`. The model is written
    as it is in evaluation mode. Needs `pip install mufuru[onnx]`.
    """
    _check_packages()
    exporter = Exporter()
    with use_sequence(exporter.sequence):
        program = programs.trace(model, args, kwargs, dynamic_shapes)
    if isinstance(model, MuFuRU):
        output_names = output_names or (
            ["output", "h_n"] if model.controller_size is None else ["output", "h_n", "k_n"]
        )
    proto = translate(program, input_names=input_names, output_names=output_names)
    if isinstance(model, MuFuRU):
        _name_sizes(proto.graph, ("batch", "time") if model.batch_first else ("time", "batch"))
    scans.expand(proto, exporter.ops)
    _write(proto, Path(path))


def _name_sizes(graph: Any, names: tuple[str, str]) -> None:
    """The first sizes of a layer's input, wherever they occur, by names in place of torch's symbols."""
    symbols = [size.dim_param for size in graph.input[0].type.tensor_type.shape.dim]
    known = {symbol: name for symbol, name in zip(symbols, names, strict=False) if symbol}
    for value in [*graph.input, *graph.output, *graph.value_info]:
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param in known:
                size.dim_param = known[size.dim_param]


def _check_packages() -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(f"ONNX export needs the package {error.name}: pip install 'mufuru[onnx]'") from error
    del onnx


def _write(model: Any, path: Path) -> None:
    """To the side first: a failure leaves no half a file, and an older one as it was."""
    import onnx

    onnx.checker.check_model(model, full_check=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(model.SerializeToString())
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
