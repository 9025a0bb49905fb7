"""`torch.compile` with its default backend: values and every gradient as in eager mode, whatever the layer's options.

Inductor takes seconds for a graph, so a part of the cases runs always and the others are marked slow.
"""

from __future__ import annotations

import copy
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor import config as inductor
from torch.func import functional_call, grad, vmap
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from mufuru import MuFuRU, MuFuRUCell
from mufuru.kernels import library

# torch's own, once, when its compiler is first used
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated:DeprecationWarning")
SIZES = ((5, 3), (6, 4), (40, 2), (7, 9))
"""(steps, batch): the first compiles, the second compiles for free sizes, the others must find that graph."""
GRAPHS = 2
NOISE = {"zoneout": 0.1, "state_dropout": 0.1, "op_dropout": 0.1, "weight_dropout": 0.1, "input_dropout": 0.1}


def own(s: Tensor, v: Tensor) -> Tensor:
    return s * torch.sin(v)


def other(s: Tensor, v: Tensor) -> Tensor:
    return torch.sigmoid(s) - v


def rowwise(s: Tensor, v: Tensor) -> Tensor:
    """Not element-wise: the native kernel does not take it."""
    return s - v.mean(-1, keepdim=True)


OPERATIONS: dict[str, Any] = {
    "native": {},
    "reference": {"kernel": "reference"},
    "own": {"ops": ("keep", own, "replace", other)},
    "own, reference": {"ops": ("keep", own, "replace", other), "kernel": "reference"},
    "own, by rows": {"ops": ("keep", "replace", rowwise)},
}
STACKS = {
    f"{layers} {'both ways' if both else 'one way'}": {"num_layers": layers, "bidirectional": both}
    for layers in (1, 2, 3)
    for both in (False, True)
}
LAYERS: dict[str, dict[str, Any]] = {
    **{f"{ops}, {name}": OPERATIONS[ops] | stack for ops in OPERATIONS for name, stack in STACKS.items()},
    "batch first": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "controller": {"controller_size": 3, "reset": "after", "learn_initial_state": True, "num_layers": 2},
    "controller, reference": {
        "controller_size": 3,
        "learn_initial_state": True,
        "num_layers": 2,
        "kernel": "reference",
    },
    "controller, relu": {"controller_size": 3, "controller_activation": "relu"},
    "noise": {**NOISE, "num_layers": 2, "dropout": 0.2},
    "noise, reference": {**NOISE, "num_layers": 2, "dropout": 0.2, "kernel": "reference"},
    "segments": {"checkpoint_every": 3},
    "half precision": {"dtype": torch.bfloat16, "num_layers": 2},
    "double precision": {"dtype": torch.float64, "num_layers": 2},
}
ALWAYS = {"native, 2 both ways", "reference, 2 one way"}


def some(cases: Any, always: Any) -> Any:
    return [pytest.param(case, marks=() if case in always else pytest.mark.slow) for case in cases]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> None:
    torch.compiler.reset()


def compiled(module: Any, backend: str = "inductor") -> tuple[Any, Any]:
    """The module in one graph, and what counts the graphs. Where only the graph matters, `aot_eager` is quick."""
    counter = CompileCounterWithBackend(backend)
    return torch.compile(module, fullgraph=True, backend=counter), counter


def inputs(layer: MuFuRU, steps: int, batch: int) -> Tensor:
    shape = (batch, steps, 3) if layer.batch_first else (steps, batch, 3)
    return torch.randn(shape, dtype=layer.weight_ih_l0.dtype, requires_grad=True)


def outcome(module: Any, layer: nn.Module, x: Tensor, **options: Any) -> list[Tensor]:
    """Output, final state, and the gradients of input and parameters."""
    torch.manual_seed(1)
    output, state = module(x, **options)
    parts = [output, *(state if isinstance(state, tuple) else (state,))]
    loss = torch.stack([part.square().sum() for part in parts]).sum()
    return [*parts, *torch.autograd.grad(loss, [x, *layer.parameters()], materialize_grads=True)]


def assert_same(found: list[Tensor], wanted: list[Tensor]) -> None:
    """The same kernel runs, so values are the same; sums of gradients may be taken in another order. In half precision
    inductor rounds less often than eager mode."""
    tolerance = {"rtol": 5e-2, "atol": 5e-2} if wanted[0].dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(found, wanted, **tolerance)


@pytest.mark.parametrize("options", some(LAYERS, ALWAYS))
def test_one_graph_for_all_sizes(options: str) -> None:
    layer = MuFuRU(3, 4, **LAYERS[options])
    module, counter = compiled(layer)
    with inductor.patch(fallback_random=True):  # a seed then means the same as in eager mode
        for steps, batch in SIZES:
            x = inputs(layer, steps, batch)
            assert_same(outcome(module, layer, x), outcome(layer, layer, x))
    assert counter.frame_count == GRAPHS


def cut(layer: MuFuRU, steps: int, batch: int) -> tuple[Tensor, Tensor]:
    """Padded sequences and their lengths, one of them 0; what stands in the padding must never be read."""
    x, lengths = inputs(layer, steps, batch), torch.randint(0, steps + 1, (batch,))
    lengths[0] = 0
    with torch.no_grad():
        x[int(lengths[1]) :, 1] = torch.nan
    return x, lengths


@pytest.mark.parametrize("bidirectional", some([True, False], [True]))
@pytest.mark.parametrize("options", some(OPERATIONS, {"own"}))  # for inductor every kernel is one operator
def test_lengths(options: str, bidirectional: bool) -> None:
    layer = MuFuRU(3, 4, 2, bidirectional=bidirectional, controller_size=2, **OPERATIONS[options])
    module, counter = compiled(layer)
    for steps, batch in SIZES:
        x, lengths = cut(layer, steps, batch)
        assert_same(outcome(module, layer, x, lengths=lengths), outcome(layer, layer, x, lengths=lengths))
    assert counter.frame_count == GRAPHS


@pytest.mark.parametrize("options", some(OPERATIONS, {"reference"}))
@pytest.mark.parametrize("how", some(({"dynamic": True}, {"mode": "reduce-overhead"}, {"mode": "max-autotune"}), ()))
def test_other_ways_to_compile(how: dict[str, Any], options: str) -> None:
    layer = MuFuRU(3, 4, 2, bidirectional=True, **OPERATIONS[options])
    module = torch.compile(layer, fullgraph=True, **how)
    for steps, batch in SIZES:
        x = inputs(layer, steps, batch)
        assert_same(outcome(module, layer, x), outcome(layer, layer, x))


@pytest.mark.parametrize("options", ["native, 2 one way", "noise"])
def test_free_sizes_from_the_first_call(options: str) -> None:
    """What `dynamic=True` makes of Python's numbers shows without inductor, which takes its time."""
    layer = MuFuRU(3, 4, **LAYERS[options])
    module = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for steps, batch in SIZES:
        x = inputs(layer, steps, batch)
        assert_same(outcome(module, layer, x), outcome(layer, layer, x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_lengths_of_few_bits(dtype: torch.dtype) -> None:
    """The number of steps is more than such a type can hold."""
    module, _ = compiled(layer := MuFuRU(3, 4), "aot_eager")
    x, lengths = inputs(layer, 300, 2), torch.tensor([100, 3], dtype=dtype)
    assert_same(outcome(module, layer, x, lengths=lengths), outcome(layer, layer, x, lengths=lengths))


@pytest.mark.parametrize("change", [nn.Module.half, nn.Module.double, "released"], ids=["half", "double", "released"])
def test_parameters_get_other_data_before_the_backward_pass(change: Any) -> None:
    """A graph keeps the parameters themselves: memory of another size must not be read."""
    module, _ = compiled(layer := MuFuRU(3, 40, controller_size=2), "aot_eager")
    output, _ = module(torch.randn(5, 2, 3, requires_grad=True))
    if change == "released":
        layer.weight_hh_l0.data = torch.zeros(1)
    else:
        change(layer)
    with pytest.raises(RuntimeError, match="call backward before parameters get other data"):
        output.sum().backward()


@pytest.mark.slow
@pytest.mark.parametrize("options", ["native", "reference", "own"])
def test_without_gradients(options: str) -> None:
    layer = MuFuRU(3, 4, 2, bidirectional=True, **OPERATIONS[options])
    module, _ = compiled(layer)
    with torch.no_grad():
        for steps, batch in SIZES:
            x = inputs(layer, steps, batch)
            torch.testing.assert_close(module(x), layer(x), rtol=1e-5, atol=1e-6)


class Summed(nn.Module):
    """A model that takes a PackedSequence."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.rnn, self.out = MuFuRU(3, 4, 2, **options), nn.Linear(4, 2)

    def forward(self, packed: PackedSequence) -> Tensor:
        output, state = self.rnn(packed)
        result: Tensor = self.out(output.data).sin().sum() + state.square().sum()
        return result


# dynamo looks at the .grad of all it meets, and torch warns of that
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("options", some(OPERATIONS, ()))
def test_packed_sequences_break_the_graph(options: str) -> None:
    model = Summed(**OPERATIONS[options])
    packed = pack_sequence([torch.randn(3, 3), torch.randn(2, 3)])
    found = torch.autograd.grad(torch.compile(model)(packed), list(model.parameters()))
    assert_same(list(found), list(torch.autograd.grad(model(packed), list(model.parameters()))))


@pytest.mark.parametrize("options", some(OPERATIONS, {"reference"}))
def test_a_step_of_training_inside_the_graph(options: str) -> None:
    """Forward, backward and the optimiser, compiled together."""
    model = nn.ModuleDict({"rnn": MuFuRU(3, 4, 2, **OPERATIONS[options]), "out": nn.Linear(4, 2)})
    x, target = torch.randn(5, 3, 3), torch.randn(5, 3, 2)

    def train(model: Any, optimiser: Any) -> None:
        optimiser.zero_grad()
        nn.functional.mse_loss(model["out"](model["rnn"](x)[0]), target).backward()
        optimiser.step()

    found = []
    for step in (train, torch.compile(train)):
        copied = copy.deepcopy(model)
        optimiser = torch.optim.Adam(copied.parameters(), lr=0.01)
        for _ in range(3):
            step(copied, optimiser)
        found.append([parameter.detach() for parameter in copied.parameters()])
    assert_same(found[1], found[0])


def scaled(factor: Tensor) -> Any:
    return lambda s, v: v * factor


# dynamo looks at the .grad of all it meets, and torch warns of that
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_an_operation_with_parameters_breaks_the_graph() -> None:
    """Its gradient could not be right inside: the layer runs outside, and says so where that is forbidden."""
    factor = torch.tensor(0.7, requires_grad=True)
    layer, x = MuFuRU(3, 4, 2, ops=("keep", scaled(factor))), torch.randn(5, 2, 3)
    wanted = torch.autograd.grad(layer(x)[0].sum(), [factor, *layer.parameters()])
    found = torch.autograd.grad(torch.compile(layer, backend="aot_eager")(x)[0].sum(), [factor, *layer.parameters()])
    assert_same(list(found), list(wanted))
    torch.compiler.reset()
    with pytest.raises(Exception, match="parameters of its own or draws random numbers"):
        torch.compile(layer, fullgraph=True)(x)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_an_operation_that_draws_breaks_the_graph() -> None:
    layer, x = MuFuRU(3, 4, ops=("keep", lambda s, v: nn.functional.dropout(v))), torch.randn(5, 2, 3)
    assert_same(outcome(torch.compile(layer, backend="aot_eager"), layer, x.requires_grad_()), outcome(layer, layer, x))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("kernel", ["auto", "reference"])
@pytest.mark.parametrize("change", ["thaw", "train"])
def test_an_operation_that_has_changed_since_the_graph_was_made(change: str, kernel: Any) -> None:
    factor, dropout, x = torch.tensor(0.7), nn.Dropout(0.5).eval(), torch.randn(5, 2, 3)
    layer = MuFuRU(3, 4, ops=("keep", lambda s, v: dropout(v) * factor), kernel=kernel)
    module, _ = compiled(layer, "aot_eager")
    output, _ = module(x)
    _ = factor.requires_grad_() if change == "thaw" else dropout.train()
    with pytest.raises(RuntimeError, match="has changed since the graph was made"):
        module(x)
    with pytest.raises(RuntimeError, match="has changed since the graph was made"):
        output.sum().backward()


def test_a_graph_outlives_its_layer() -> None:
    layer, x = MuFuRU(3, 4, ops=("keep", lambda s, v: s * torch.sin(v))), torch.randn(5, 2, 3, requires_grad=True)
    wanted = outcome(layer, layer, x)
    weights = list(layer.parameters())
    output, state = torch.compile(layer, backend="aot_eager")(x)
    del layer
    torch.compiler.reset()
    gc.collect()
    loss = output.square().sum() + state.square().sum()
    assert_same([output, state, *torch.autograd.grad(loss, [x, *weights])], wanted)


@pytest.mark.parametrize("options", some(("native", "reference", "own"), {"native"}))
def test_transforms_inside_the_graph(options: str) -> None:
    layer, x = MuFuRU(3, 4, 2, **OPERATIONS[options]), torch.randn(3, 5, 2, 3)
    weights = {name: parameter.detach() for name, parameter in layer.named_parameters()}

    def slope(x: Tensor) -> Any:
        return grad(lambda weights: functional_call(layer, weights, (x,))[0].square().sum())(weights)

    for function in (slope, vmap(slope)):
        given = x[0] if function is slope else x
        found, wanted = torch.compile(function, backend="aot_eager")(given), function(given)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_lengths_out_of_range() -> None:
    module, _ = compiled(MuFuRU(3, 4), "aot_eager")
    with pytest.raises(RuntimeError, match="between 0 and the padded length"):
        module(torch.randn(5, 2, 3), lengths=torch.tensor([6, 1]))


def test_packed_sequences_are_refused_in_words() -> None:
    module, _ = compiled(MuFuRU(3, 4), "aot_eager")
    with pytest.raises(Exception, match="give a padded batch with lengths="):
        module(pack_sequence([torch.randn(3, 3), torch.randn(2, 3)]))


@pytest.mark.parametrize("ops", [("keep", "replace", "mul"), ("keep", own)], ids=["built-in", "own"])
def test_without_the_native_library(ops: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = library.Found(None, library.Status("unavailable", reason="a test"))
    monkeypatch.setattr(library, "_found", nothing)
    monkeypatch.setattr(library, "_warned", True)
    layer = MuFuRU(3, 4, ops=ops, bidirectional=True)
    module, counter = compiled(layer, "aot_eager")
    for steps, batch in SIZES:
        x = inputs(layer, steps, batch)
        # float32 sums of a few dozen steps in another order
        torch.testing.assert_close(outcome(module, layer, x), outcome(layer, layer, x), rtol=1e-4, atol=1e-5)
    assert counter.frame_count == GRAPHS


def test_graph_does_not_grow_with_time() -> None:
    sizes = []
    for steps in (10, 1000):
        torch.compiler.reset()
        module, counter = compiled(MuFuRU(3, 4, 2), "aot_eager")
        output, _ = module(torch.randn(steps, 2, 3))
        output.sum().backward()
        sizes.append(counter.op_count)
    assert sizes[0] == sizes[1]


def test_gru_breaks_the_graph() -> None:
    """What the page on production says of `nn.GRU`: if this fails, torch has learnt it, and the page is out of date."""
    module, _ = compiled(nn.GRU(3, 4), "aot_eager")
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
