"""torch's own translation of a program to ONNX, without its talk."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram

TALKERS = ("torch.onnx._internal.exporter._registration", "onnxscript.optimizer._constant_folding")
"""Loggers that warn of what does not concern the user: torchvision's operators, constants that stay unfolded."""


def translate(program: ExportedProgram, **options: Any) -> Any:
    """The program as an `onnx.ModelProto`."""
    with _quiet():
        exported: Any = torch.onnx.export(program, dynamo=True, verbose=False, **options)
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
