"""ONNX files in onnxruntime: every kind of unit, at sizes never seen, and with neither torch nor mufuru."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from mufuru import MuFuRU, MuFuRUCell, export, intervene, ops

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

UNSEEN = ((1, 1), (7, 2), (60, 9))
"""(steps, batch): none is the example's."""
TOLERANCE = 1e-5
"""Two implementations in float32, over 60 steps: some ten units in the last place. Relative beyond 1, which only the
state of a recurrent controller with relu reaches: it has no bound."""


def softer(s: Tensor, v: Tensor) -> Tensor:
    return torch.where(s > v, 0.5 * s, torch.sin(v)).clamp(-0.4, 0.9)


UNITS: dict[str, dict[str, Any]] = {
    "paper": {},
    "all built in": {"ops": ops.names(), "reset": "after", "activation": "sigmoid"},
    "no reset, no bias": {"reset": None, "bias": False, "bidirectional": True},
    "one operation": {"ops": ("replace",), "reset": None},
    "controller": {"controller_size": 3, "bidirectional": True, "num_layers": 2},
    "controller, relu": {"controller_size": 3, "controller_activation": "relu"},
    "controller, no bias": {"controller_size": 2, "bias": False, "ops": ("negate", "keep", "mul"), "reset": "after"},
    "noise and a learned state": {"zoneout": 0.3, "op_dropout": 0.5, "learn_initial_state": True},
    "own operations": {"ops": ("keep", softer, "replace"), "num_layers": 2},
    "gru": {"ops": ("keep", "replace"), "bidirectional": True},
    "gru, after": {"ops": ("replace", "keep"), "reset": "after", "bias": False},
}  # fmt: skip

GRUS = ("gru", "gru, after")


class Beside(nn.Module):
    """All units on the same input: one export tests them all."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self.units = nn.ModuleList(MuFuRU(3, 4, **UNITS[name]) for name in names)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5)  # biases and learned states too, so that none can be left out

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> list[Any]:
        return [unit(x, lengths=lengths) for unit in self.units]


def run(path: Path, *arguments: Tensor) -> list[Tensor]:
    session = runtime.InferenceSession(str(path))
    feed = {info.name: value.numpy() for info, value in zip(session.get_inputs(), arguments, strict=True)}
    return [torch.from_numpy(value) for value in session.run(None, feed)]


def assert_agree(path: Path, model: nn.Module, *arguments: Tensor, **options: Any) -> None:
    with torch.no_grad():
        wanted = pytree.tree_leaves(model(*arguments, **options))
    found = run(path, *arguments, *options.values())
    torch.testing.assert_close(found, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def kinds(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


@pytest.mark.parametrize(
    ("names", "lengths"),
    [
        (
            ("controller", "controller, relu", "own operations", "noise and a learned state", "one operation", *GRUS),
            False,
        ),
        (("paper", "all built in", "no reset, no bias", "controller, no bias", *GRUS), True),
    ],
    ids=["padded", "lengths"],
)
def test_unseen_sizes(names: tuple[str, ...], lengths: bool, tmp_path: Path) -> None:
    model, path = Beside(names), tmp_path / "beside.onnx"
    some = {"lengths": torch.tensor([5, 0, 2])} if lengths else {}
    export.onnx(model, path, (torch.randn(5, 3, 3),), some)
    for unit in model.units:
        assert unit.training  # exporting leaves a model as it was
    model.eval()
    for steps, batch in UNSEEN:
        some = {"lengths": torch.randint(0, steps + 1, (batch,))} if lengths else {}
        assert_agree(path, model, torch.randn(steps, batch, 3), **some)
    loops = {name: unit.num_layers * unit.num_directions for name, unit in zip(names, model.units, strict=True)}
    found, grus = kinds(path), sum(loops[name] for name in GRUS)
    assert (found["GRU"], found["Scan"]) == (grus, sum(loops.values()) - grus)
    assert {opset.domain for opset in onnx.load(path).opset_import} == {""}


def test_bare_layer_needs_no_example_and_names_its_sizes(tmp_path: Path) -> None:
    layer, path = MuFuRU(3, 4, batch_first=True), tmp_path / "layer.onnx"
    export.onnx(layer, path)
    session = runtime.InferenceSession(str(path))
    sizes = {info.name: info.shape for info in (*session.get_inputs(), *session.get_outputs())}
    assert sizes == {"input": ["batch", "time", 3], "output": ["batch", "time", 4], "h_n": [1, "batch", 4]}
    assert_agree(path, layer, torch.randn(2, 7, 3))


def test_state_as_an_input(tmp_path: Path) -> None:
    """In float64, which onnxruntime's GRU does not have: the same unit is a Scan then."""
    layer = MuFuRU(3, 4, ops=("keep", "replace"), controller_size=2, dtype=torch.float64)
    x, h, k = (torch.randn(*shape, dtype=torch.float64) for shape in ((5, 3, 3), (1, 3, 4), (1, 3, 2)))
    path = tmp_path / "layer.onnx"
    export.onnx(layer, path, (x, (h, k)))
    with torch.no_grad():
        wanted = pytree.tree_leaves(layer(x, (h, k)))
    torch.testing.assert_close(run(path, x, h, k), wanted, rtol=0, atol=TOLERANCE)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Embedding(11, 3), MuFuRU(3, 4, bidirectional=True, batch_first=True)
        self.cell, self.out = MuFuRUCell(8, 4), nn.Linear(8, 2)
        torch.nn.utils.parametrizations.weight_norm(self.rnn, "weight_hh_l0")

    def forward(self, tokens: Tensor) -> tuple[Any, Any]:
        output, _ = self.rnn(self.embed(tokens))
        return self.out(output).log_softmax(-1), self.cell(output.mean(1))


WITH_NOTHING_ELSE = """
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "mufuru", "onnx", "onnxscript", "onnx_ir"}:
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Refuse())
import numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
for call in sys.argv[2:]:
    data = numpy.load(call)
    for found, name in zip(session.run(None, {"tokens": data["tokens"]}), ("tags", "last"), strict=True):
        assert found.shape == data[name].shape and abs(found - data[name]).max() < 1e-5
assert not {"torch", "mufuru", "onnx"} & set(sys.modules)
print("agrees")
"""


def test_model_runs_with_numpy_and_onnxruntime_alone(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    model, path = Tagger(), tmp_path / "tagger.onnx"
    export.onnx(model, path, (torch.randint(11, (3, 5)),))
    calls = []
    for steps, batch in UNSEEN:
        tokens = torch.randint(11, (batch, steps))
        tags, last = (tensor.detach().numpy() for tensor in model(tokens))
        calls.append(tmp_path / f"{steps}.npz")
        numpy.savez(calls[-1], tokens=tokens.numpy(), tags=tags, last=last)
    command = [sys.executable, "-I", "-c", WITH_NOTHING_ELSE, str(path), *map(str, calls)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout == "agrees\n", done.stderr


def unknown_to_onnx(s: Tensor, v: Tensor) -> Any:
    return torch.special.bessel_j0(s) * v


def asks_for_a_number(s: Tensor, v: Tensor) -> Tensor:
    return s if s.sum() > 0 else v


@pytest.mark.parametrize(
    ("function", "reason"),
    [(unknown_to_onnx, "nothing for the call .*bessel_j0"), (asks_for_a_number, "data-dependent")],
)
def test_operations_that_cannot_be_exported(function: Any, reason: str, tmp_path: Path) -> None:
    layer = MuFuRU(3, 4, ops=("keep", function))
    with pytest.raises(NotImplementedError, match=f"operation '{function.__name__}' cannot be exported.*{reason}"):
        export.onnx(layer, tmp_path / "layer.onnx")
    assert not list(tmp_path.iterdir())


def test_interventions_are_refused(tmp_path: Path) -> None:
    layer = MuFuRU(3, 4)
    with intervene(layer, forbid="max"), pytest.raises(NotImplementedError, match="export outside of"):
        export.onnx(layer, tmp_path / "layer.onnx")


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"needs the package onnxscript: pip install 'mufuru\[onnx\]'"):
        export.onnx(MuFuRU(3, 4), tmp_path / "layer.onnx")


def test_zoneout_in_double_precision(tmp_path: Path) -> None:
    layer, path = MuFuRU(3, 4, zoneout=0.1, dtype=torch.float64).eval(), tmp_path / "layer.onnx"
    export.onnx(layer, path)
    x = torch.randn(30, 2, 3, dtype=torch.float64)
    with torch.no_grad():
        wanted = pytree.tree_leaves(layer(x))
    # 0.1 in single precision would be 1e-9 off
    torch.testing.assert_close(run(path, x), wanted, rtol=0, atol=1e-12)


def test_one_sequence_without_a_batch(tmp_path: Path) -> None:
    layer, path = MuFuRU(3, 4), tmp_path / "layer.onnx"
    export.onnx(layer, path, (torch.randn(5, 3),))
    assert_agree(path, layer, torch.randn(9, 3))


def test_empty_sequences_keep_their_state(tmp_path: Path) -> None:
    """onnxruntime's own `GRU` gives such a sequence another last state."""
    layer, path = MuFuRU(3, 4, ops=("keep", "replace"), reset="after", bidirectional=True), tmp_path / "gru.onnx"
    export.onnx(layer, path, (torch.randn(5, 3, 3), torch.randn(2, 3, 4), torch.tensor([5, 0, 2])))
    assert kinds(path)["GRU"] == 2
    x, state, lengths = torch.randn(6, 4, 3), torch.randn(2, 4, 4), torch.tensor([0, 6, 0, 3])
    with torch.no_grad():
        wanted = pytree.tree_leaves(layer(x, state, lengths))
    torch.testing.assert_close(run(path, x, state, lengths), wanted, rtol=0, atol=TOLERANCE)
