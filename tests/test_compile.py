"""`torch.compile(fullgraph=True)`: one graph for all lengths and batch sizes, whatever the layer's options."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.utils.rnn import pack_sequence

from mufuru import MuFuRU, MuFuRUCell
from mufuru.kernels import library

SIZES = ((5, 3), (6, 4), (40, 2), (7, 9))
"""(steps, batch): the first compiles, the second compiles for free sizes, the others must find that graph."""
GRAPHS = 2
LAYERS: dict[str, dict[str, Any]] = {
    "paper": {},
    "layers and directions": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "controller": {"controller_size": 3, "reset": "after", "learn_initial_state": True},
    "controller, relu": {"controller_size": 3, "controller_activation": "relu"},
    "noise": {"zoneout": 0.1, "state_dropout": 0.1, "op_dropout": 0.1, "weight_dropout": 0.1, "input_dropout": 0.1},
    "segments": {"checkpoint_every": 3},
}


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()


def compiled(module: nn.Module) -> tuple[Any, Any]:
    """The module in one graph, and what counts the graphs. `aot_eager` traces forward and backward as inductor does,
    and then runs them without the minutes of its C++ compiler."""
    counter = CompileCounterWithBackend("aot_eager")
    return torch.compile(module, fullgraph=True, backend=counter), counter


def inputs(layer: MuFuRU, steps: int, batch: int) -> Tensor:
    shape = (batch, steps, 3) if layer.batch_first else (steps, batch, 3)
    return torch.randn(shape, requires_grad=True)


def outcome(module: Any, layer: nn.Module, x: Tensor, **options: Any) -> list[Tensor]:
    """Output, final state, and the gradients of input and parameters."""
    torch.manual_seed(1)
    output, state = module(x, **options)
    parts = [output, *(state if isinstance(state, tuple) else (state,))]
    loss = torch.stack([part.square().sum() for part in parts]).sum()
    return [*parts, *torch.autograd.grad(loss, [x, *layer.parameters()], materialize_grads=True)]


def assert_same(found: list[Tensor], wanted: list[Tensor]) -> None:
    """The same kernel runs, so values are the same; sums of gradients may be taken in another order."""
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", LAYERS)
def test_one_graph_for_all_sizes(options: str) -> None:
    layer = MuFuRU(3, 4, **LAYERS[options])
    module, counter = compiled(layer)
    for steps, batch in SIZES:
        x = inputs(layer, steps, batch)
        assert_same(outcome(module, layer, x), outcome(layer, layer, x))
    assert counter.frame_count == GRAPHS


@pytest.mark.parametrize("bidirectional", [False, True])
def test_lengths(bidirectional: bool) -> None:
    layer = MuFuRU(3, 4, 2, bidirectional=bidirectional, controller_size=2)
    module, counter = compiled(layer)
    for steps, batch in SIZES:
        x = inputs(layer, steps, batch)
        lengths = torch.randint(0, steps + 1, (batch,))
        lengths[0] = 0
        with torch.no_grad():
            x[int(lengths[1]) :, 1] = torch.nan  # what stands in the padding is never read
        assert_same(outcome(module, layer, x, lengths=lengths), outcome(layer, layer, x, lengths=lengths))
    assert counter.frame_count == GRAPHS


def test_lengths_out_of_range() -> None:
    module, _ = compiled(MuFuRU(3, 4))
    with pytest.raises(RuntimeError, match="between 0 and the padded length"):
        module(torch.randn(5, 2, 3), lengths=torch.tensor([6, 1]))


def test_packed_sequences_are_refused_in_words() -> None:
    module, _ = compiled(MuFuRU(3, 4))
    with pytest.raises(Exception, match="give a padded batch with lengths="):
        module(pack_sequence([torch.randn(3, 3), torch.randn(2, 3)]))


# torch's own, once, when its scan is first traced
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("missing", [False, True], ids=["own operation", "no native library"])
def test_without_the_native_kernel(missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One loop in the graph, not one copy of the step for every step."""
    if missing:
        nothing = library.Found(None, library.Status("unavailable", reason="a test"))
        monkeypatch.setattr(library, "_found", nothing)
        monkeypatch.setattr(library, "_warned", True)
    layer = MuFuRU(3, 4, ops=("keep", "replace", "mul") if missing else ("keep", own), bidirectional=not missing)
    module, counter = compiled(layer)
    for steps, batch in SIZES:
        x = inputs(layer, steps, batch)
        # float32 sums of a few dozen steps in another order
        torch.testing.assert_close(outcome(module, layer, x), outcome(layer, layer, x), rtol=1e-4, atol=1e-5)
    assert counter.frame_count == GRAPHS


def own(s: Tensor, v: Tensor) -> Tensor:
    return s * torch.sin(v)


def test_graph_does_not_grow_with_time() -> None:
    sizes = []
    for steps in (10, 1000):
        torch.compiler.reset()
        module, counter = compiled(MuFuRU(3, 4, 2))
        output, _ = module(torch.randn(steps, 2, 3))
        output.sum().backward()
        sizes.append(counter.op_count)
    assert sizes[0] == sizes[1]


def test_gru_breaks_the_graph() -> None:
    """What the page on production says of `nn.GRU`: if this fails, torch has learnt it, and the page is out of date."""
    module, _ = compiled(nn.GRU(3, 4))
    with pytest.raises(Exception, match=r"allow_rnn|GRU"):
        module(torch.randn(5, 2, 3))


def test_model_around_the_layer_and_the_cell() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn = nn.Embedding(11, 3), MuFuRU(3, 4, batch_first=True)
            self.cell, self.out = MuFuRUCell(4, 4), nn.Linear(4, 2)

        def forward(self, tokens: Tensor) -> Any:
            return self.out(self.cell(self.rnn(self.embed(tokens))[0][:, -1]))

    model = Model()
    module, counter = compiled(model)
    for steps, batch in SIZES:
        tokens = torch.randint(11, (batch, steps))
        loss = module(tokens).square().sum()
        found = torch.autograd.grad(loss, list(model.parameters()))
        wanted = torch.autograd.grad(model(tokens).square().sum(), list(model.parameters()))
        assert_same(list(found), list(wanted))
    assert counter.frame_count == GRAPHS


def test_benchmark_of_compile_time(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "benchmarks" / "compile_time.py"
    record = tmp_path / "compile_time.json"
    command = [
        sys.executable,
        str(script),
        "--backend",
        "eager",
        "--steps",
        "3",
        "4",
        "--repeats",
        "1",
        "--output",
        str(record),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(record.read_text(encoding="utf-8"))
    assert [row["steps"] for row in found["MuFuRU"]] == [3, 4]
    assert "GRU" in found["nn.GRU"]
