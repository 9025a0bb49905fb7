"""ONNX files in onnxruntime: every kind of unit, at sizes never seen, and with neither torch nor mufuru.

Three roads lead there: `torch.onnx.export` of a model, of a program that `torch.export` made, and `mufuru.export.onnx`.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

from mufuru import MuFuRU, MuFuRUCell, export, intervene, ops, tracing

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.usefixtures("torchlib_once")
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

TALK = pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning")
"""torch's exporter copies its own trees, and warns itself of it."""
SOME = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}


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


def plain(model: nn.Module, path: Path, args: Any, kwargs: Any = None, shapes: Any = None, **options: Any) -> None:
    """The call that a user's script has."""
    torch.onnx.export(
        model, args, path, kwargs=kwargs, dynamo=True, verbose=False, dynamic_shapes=shapes, **options
    )  # fmt: skip


def as_program(model: nn.Module, path: Path, args: Any, kwargs: Any = None, shapes: Any = None) -> None:
    program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes)
    torch.onnx.export(program, (), path, dynamo=True, verbose=False)


def ours(model: nn.Module, path: Path, args: Any, kwargs: Any = None, shapes: Any = None) -> None:
    export.onnx(model, path, args, kwargs, dynamic_shapes=shapes)


@TALK
@pytest.mark.parametrize(
    ("road", "names", "lengths"),
    [
        (
            plain,
            ("controller", "controller, relu", "own operations", "noise and a learned state", "one operation", *GRUS),
            False,
        ),
        (plain, ("paper", "all built in", "no reset, no bias", "controller, no bias", *GRUS), True),
        (as_program, ("paper", "controller", "noise and a learned state", "gru"), True),
    ],
    ids=["padded", "lengths", "program"],
)
def test_unseen_sizes(road: Callable[..., None], names: tuple[str, ...], lengths: bool, tmp_path: Path) -> None:
    model, path = Beside(names).eval(), tmp_path / "beside.onnx"
    some = {"lengths": torch.tensor([5, 0, 2])} if lengths else {}
    shapes = {"x": SOME} | ({"lengths": {0: Dim.DYNAMIC}} if lengths else {})
    road(model, path, (torch.randn(5, 3, 3),), some, shapes)
    for steps, batch in UNSEEN:
        some = {"lengths": torch.randint(0, steps + 1, (batch,))} if lengths else {}
        assert_agree(path, model, torch.randn(steps, batch, 3), **some)
    loops = {name: unit.num_layers * unit.num_directions for name, unit in zip(names, model.units, strict=True)}
    found, grus = kinds(path), sum(loops[name] for name in GRUS if name in loops)
    assert (found["GRU"], found["Scan"]) == (grus, sum(loops.values()) - grus)
    assert {opset.domain for opset in onnx.load(path).opset_import} == {""}


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.both, self.cell = MuFuRU(3, 6, bidirectional=True), MuFuRUCell(5, 3)
        self.gru = MuFuRU(12, 5, ops=("keep", "replace"), kernel="reference")

    def forward(self, x: Tensor) -> Any:
        output, h_n = self.gru(self.both(x)[0])
        return output, self.cell(h_n[0])


def nodes(path: Path) -> Counter[str]:
    """Those in the bodies of loops too."""
    found, graphs = Counter[str](), [onnx.load(path).graph]
    while graphs:
        for node in graphs.pop().node:
            found[node.op_type] += 1
            graphs += [attribute.g for attribute in node.attribute if attribute.name == "body"]
    return found


@TALK
def test_all_roads_give_the_same_graph(tmp_path: Path) -> None:
    model, x = Mixed().eval(), torch.randn(5, 3, 3)
    found = []
    for road in (ours, plain):
        path = tmp_path / f"{road.__name__}.onnx"
        road(model, path, (x,), None, {"x": SOME})
        assert_agree(path, model, torch.randn(7, 2, 3))
        found.append(nodes(path))
    assert found[0] == found[1]
    # the single step of the cell needs no loop
    assert (found[0]["Scan"], found[0]["GRU"]) == (2, 1)
    model.gru.kernel = "auto"  # the reference kernel is no operator
    as_program(model, path, (x,), None, {"x": SOME})
    assert nodes(path) == found[0]


@TALK
@torch.no_grad()
def test_program_with_an_own_operation(tmp_path: Path) -> None:
    """torch's exporter does not prepare a loop of free length that has gradients: the page on production says so."""
    layer, path = MuFuRU(3, 4, ops=("keep", softer, "replace")).eval(), tmp_path / "layer.onnx"
    as_program(layer, path, (torch.randn(5, 3, 3),), None, (SOME,))
    assert_agree(path, layer, torch.randn(7, 2, 3))


@TALK
@pytest.mark.parametrize(
    ("layer_type", "options"),
    [
        # torch warns of its own loop
        pytest.param(nn.GRU, {}, marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore")]),
        pytest.param(nn.GRUCell, {}, marks=pytest.mark.slow),
        (MuFuRUCell, {}),
        (MuFuRU, {}),
        pytest.param(MuFuRU, {"optimize": False, "external_data": False}, marks=pytest.mark.slow),
    ],
)
def test_the_plain_call(layer_type: Any, options: dict[str, Any], tmp_path: Path) -> None:
    """A free batch, though the example has a batch of one."""
    layer, path = layer_type(3, 4).eval(), tmp_path / "layer.onnx"
    steps, names = ([5], ["output", "h_n"]) if layer_type in (nn.GRU, MuFuRU) else ([], ["h"])
    shapes = ({len(steps): Dim.DYNAMIC},)
    plain(layer, path, (torch.randn(*steps, 1, 3),), None, shapes, input_names=["x"], output_names=names, **options)
    session = runtime.InferenceSession(str(path))
    assert [info.name for info in (*session.get_inputs(), *session.get_outputs())] == ["x", *names]
    assert_agree(path, layer, torch.randn(*steps, 6, 3))
    assert (tmp_path / "layer.onnx.data").exists() == options.get("external_data", True)


@TALK
@pytest.mark.filterwarnings("ignore:Exporting a model while it is in training mode:UserWarning")
@pytest.mark.parametrize(
    "noise", ["zoneout", *(pytest.param(name, marks=pytest.mark.slow) for name in ("input_dropout", "weight_dropout"))]
)
def test_training_noise_is_refused(noise: str, tmp_path: Path) -> None:
    """Exporters and runtimes fold it into a constant, without a word."""
    layer = MuFuRU(3, 4, **{noise: 0.5})
    with pytest.raises(torch.onnx.OnnxExporterError, match=r"call model.eval\(\) before the export"):
        plain(layer, tmp_path / "layer.onnx", (torch.randn(5, 3, 3),))
    assert not list(tmp_path.iterdir())


@TALK
@pytest.mark.filterwarnings("ignore:Exporting a model while it is in training mode:UserWarning")
def test_training_mode_without_noise(tmp_path: Path) -> None:
    layer, path = MuFuRU(3, 4), tmp_path / "layer.onnx"
    plain(layer, path, (torch.randn(5, 3, 3),), None, (SOME,))
    assert_agree(path, layer, torch.randn(7, 2, 3))


def test_the_model_stays_as_it_was(tmp_path: Path) -> None:
    """`mufuru.export.onnx` writes a model in evaluation mode; nothing here has noise then."""
    layer, path = MuFuRU(3, 4, op_dropout=0.5), tmp_path / "layer.onnx"
    export.onnx(layer, path)
    assert layer.training
    assert_agree(path, layer.eval(), torch.randn(7, 2, 3))


@TALK
def test_traces_are_refused(tmp_path: Path) -> None:
    layer, x = MuFuRU(3, 4).eval(), torch.randn(5, 3, 3)
    with tracing(layer), pytest.raises(torch.onnx.OnnxExporterError, match=r"export outside of tracing\(\)"):
        plain(layer, tmp_path / "layer.onnx", (x,))
    with tracing(layer), pytest.raises(NotImplementedError, match=r"export outside of tracing\(\)"):
        export.onnx(layer, tmp_path / "layer.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_the_exporter_without_dynamo_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match=r"leave dynamo=False out, or use mufuru\.export\.onnx"):
        torch.onnx.export(MuFuRU(3, 4).eval(), (torch.randn(5, 3, 3),), tmp_path / "layer.onnx", dynamo=False)


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
    ("function", "error", "reason"),
    [
        (unknown_to_onnx, NotImplementedError, "ONNX has nothing for the call .*bessel_j0"),
        (asks_for_a_number, RuntimeError, "data-dependent"),
    ],
)
def test_operations_that_cannot_be_exported(function: Any, error: Any, reason: str, tmp_path: Path) -> None:
    layer = MuFuRU(3, 4, ops=("keep", function))
    with pytest.raises(error, match=reason):
        export.onnx(layer, tmp_path / "layer.onnx")
    assert not list(tmp_path.iterdir())


def test_interventions_are_part_of_the_file(tmp_path: Path) -> None:
    layer, path, x = MuFuRU(3, 4, ops=("keep", "replace")), tmp_path / "layer.onnx", torch.randn(7, 2, 3)
    with intervene(layer, forbid="keep"):
        export.onnx(layer, path)
        assert_agree(path, layer, x)
    assert (run(path, x)[0] - layer(x)[0]).abs().max() > 0.01


def test_half_precision(tmp_path: Path) -> None:
    layer, path = MuFuRU(3, 4, dtype=torch.float16), tmp_path / "layer.onnx"
    export.onnx(layer, path)
    x = torch.randn(7, 2, 3, dtype=torch.float16)
    with torch.no_grad():
        wanted = pytree.tree_leaves(layer(x))
    # both compute in single precision: the last rounding may differ by one unit of half precision
    torch.testing.assert_close(run(path, x), wanted, rtol=0, atol=2**-11)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"needs the package onnxscript: `pip install '\.\[onnx\]'` in the folder"):
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


def test_names_metadata_and_a_single_step(tmp_path: Path) -> None:
    """Sizes have the names that are given, outputs too; one step needs no loop."""

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = MuFuRU(3, 4, num_layers=2, controller_size=2)

        def forward(self, x: Tensor, h: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            output, (h, k) = self.rnn(x.unsqueeze(0), (h, k))
            return output.squeeze(0), h, k

    step, path = Step().eval(), tmp_path / "step.onnx"
    args = torch.randn(2, 3), torch.randn(2, 2, 4), torch.randn(2, 2, 2)
    free = ({0: Dim.AUTO}, {1: Dim.AUTO}, {1: Dim.AUTO})
    axes = [("rows",), (None, "rows"), (None, "rows")]
    export.onnx(step, path, args, dynamic_shapes=free, axes=axes, metadata={"made": "here"})
    assert not {"Scan", "Loop"} & {node.op_type for node in onnx.load(path).graph.node}
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map == {"made": "here"}
    places = [*session.get_inputs(), *session.get_outputs()]
    assert [place.shape for place in places] == [
        ["rows", 3], [2, "rows", 4], [2, "rows", 2], ["rows", 4], [2, "rows", 4], [2, "rows", 2]
    ]  # fmt: skip
    more = torch.randn(5, 3), torch.randn(2, 5, 4), torch.randn(2, 5, 2)
    found = session.run(None, {place.name: t.numpy() for place, t in zip(session.get_inputs(), more, strict=True)})
    for want, got in zip(step(*more), found, strict=True):
        torch.testing.assert_close(torch.from_numpy(got), want.detach(), rtol=TOLERANCE, atol=TOLERANCE)
