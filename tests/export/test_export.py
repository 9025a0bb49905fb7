"""`torch.export` with free batch and time: the program runs at sizes that it never saw."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from mufuru import MuFuRU, export

UNSEEN = ((1, 1), (7, 2), (60, 9))
"""(steps, batch): none is the example's."""
LAYERS: dict[str, dict[str, Any]] = {
    "paper": {},
    "both directions": {"bidirectional": True, "batch_first": True},
    "layers": {"num_layers": 2, "bidirectional": True, "reset": "after"},
    "controller": {"num_layers": 2, "controller_size": 3, "learn_initial_state": True},
    "controller, relu": {"controller_size": 3, "controller_activation": "relu"},
}


def call(layer: MuFuRU, steps: int, batch: int, lengths: bool, state: bool = False) -> tuple[Any, Any]:
    """Arguments for the layer."""
    x = torch.randn((batch, steps, 3) if layer.batch_first else (steps, batch, 3))
    units = layer.num_layers * layer.num_directions
    args = (x, torch.randn(units, batch, 4)) if state else (x,)
    return args, {"lengths": torch.randint(0, steps + 1, (batch,))} if lengths else {}


def assert_agree(found: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(pytree.tree_leaves(found), pytree.tree_leaves(wanted), rtol=0, atol=tolerance)


@pytest.mark.parametrize("lengths", [False, True], ids=["padded", "lengths"])
@pytest.mark.parametrize("options", LAYERS)
def test_unseen_sizes(options: str, lengths: bool) -> None:
    layer = MuFuRU(3, 4, **LAYERS[options])
    program = export.program(layer, *call(layer, 5, 3, lengths)).module()
    for steps, batch in UNSEEN:
        args, kwargs = call(layer, steps, batch, lengths)
        assert_agree(program(*args, **kwargs), layer(*args, **kwargs))


def test_gru_freezes_the_length() -> None:
    """If this fails, torch has learnt it, and the page on production is out of date."""
    free = {0: torch.export.Dim("time"), 1: torch.export.Dim("batch")}
    with pytest.raises(Exception, match=r"specialized it to be a constant|assigned during export"):
        torch.export.export(nn.GRU(3, 4), (torch.randn(5, 3, 3),), dynamic_shapes={"input": free})


def test_bare_layer_needs_no_example_and_takes_a_state() -> None:
    layer = MuFuRU(3, 4)
    x = torch.randn(8, 5, 3)
    assert_agree(export.program(layer).module()(x), layer(x))
    args, _ = call(layer, 5, 3, lengths=False, state=True)
    program = export.program(layer, args).module()
    args, _ = call(layer, 9, 2, lengths=False, state=True)
    assert_agree(program(*args), layer(*args))


@pytest.mark.parametrize("batch_first", [False, True])
def test_one_sequence_without_a_batch(batch_first: bool) -> None:
    layer = MuFuRU(3, 4, batch_first=batch_first)
    for args in ((torch.randn(5, 3),), (torch.randn(5, 3), torch.randn(1, 4))):
        program = export.program(layer, args).module()
        longer = (torch.randn(9, 3), *args[1:])
        assert_agree(program(*longer), layer(*longer))


class Model(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(11, 3), MuFuRU(3, 4, batch_first=True, **options), nn.Linear(4, 2)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Any:
        output, _ = self.rnn(self.embed(tokens), lengths=lengths)
        return self.out(output.sum(1))


def sentences(batch: int, steps: int) -> tuple[Tensor, Tensor]:
    return torch.randint(11, (batch, steps)), torch.randint(0, steps + 1, (batch,))


def test_model_in_evaluation_mode() -> None:
    model = Model(zoneout=0.3)
    model.out.eval()
    program = export.program(model, sentences(3, 5)).module()
    assert [module.training for module in (model, model.rnn, model.out)] == [True, True, False]
    model.eval()
    for steps, batch in UNSEEN:
        args = sentences(batch, steps)
        assert_agree(program(*args), model(*args))


WITHOUT_MUFURU = """
import sys
import torch
program = torch.export.load(sys.argv[1]).module()
x, lengths, wanted = torch.load(sys.argv[2])
torch.testing.assert_close(program(x, lengths=lengths), wanted, rtol=0, atol=1e-6)
assert "mufuru" not in sys.modules
"""


def test_portable_program_runs_without_mufuru(tmp_path: Path) -> None:
    layer = MuFuRU(3, 4, ops=("keep", "replace", own), controller_size=2, bidirectional=True)
    args, kwargs = call(layer, 5, 3, lengths=True)
    torch.export.save(export.program(layer, args, kwargs, portable=True), tmp_path / "layer.pt2")
    args, kwargs = call(layer, 8, 2, lengths=True)
    with torch.no_grad():
        torch.save((*args, kwargs["lengths"], layer(*args, **kwargs)), tmp_path / "call.pt")
    command = [sys.executable, "-c", WITHOUT_MUFURU, str(tmp_path / "layer.pt2"), str(tmp_path / "call.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env={"PATH": ""})
    assert done.returncode == 0, done.stderr


def own(s: Tensor, v: Tensor) -> Tensor:
    return torch.where(s > v, s, v.sin())


def test_saved_and_loaded() -> None:
    layer, file = MuFuRU(3, 4), io.BytesIO()
    torch.export.save(export.program(layer), file)
    file.seek(0)
    x = torch.randn(6, 4, 3)
    assert_agree(torch.export.load(file).module()(x), layer(x))


def test_decompositions_leave_the_operator() -> None:
    """Only the exporter to ONNX takes it apart."""
    program = torch.export.export(MuFuRU(3, 4), (torch.randn(5, 2, 3),))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*LeafSpec.* is deprecated", FutureWarning)  # torch warns of itself
        program = program.run_decompositions()
    assert torch.ops.mufuru.forward.default in {node.target for node in program.graph.nodes}


def test_mistakes_are_told() -> None:
    with pytest.raises(TypeError, match="example of what Model is called with"):
        export.program(Model())
    wrong: Any = torch.randn(5, 3, 3)
    with pytest.raises(TypeError, match=r"tuple of the model's arguments such as \(x,\), got Tensor"):
        export.program(MuFuRU(3, 4), wrong)


@pytest.mark.parametrize("options", [{"num_layers": 2}, {"bidirectional": True, "controller_size": 2}])
@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.filterwarnings("ignore:You are calling torch.compile inside torch.export:UserWarning")  # torch 2.10
# torch's own, once, when its scan is first traced
@pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated:DeprecationWarning")
def test_a_program_can_be_trained(options: dict[str, Any], portable: bool) -> None:
    """torch before 2.13 loses gradients in its loop if the first state has none."""
    layer, x = MuFuRU(3, 4, **options).eval(), torch.randn(6, 4, 3)
    module = export.program(layer, portable=portable).module()
    found = []
    for run in (module, layer):
        weights = dict(run.named_parameters())
        output, state = run(x)
        loss = output.square().sum() + (state if isinstance(state, Tensor) else state[1]).sum()
        found.append(torch.autograd.grad(loss, [weights[name] for name, _ in layer.named_parameters()]))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)  # the loop adds up in another order than the kernel
