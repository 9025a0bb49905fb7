"""Operation weights, contributions and states of a forward pass, in the caller's layout."""

from __future__ import annotations

import _thread
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from mufuru import PAPER, MuFuRU, MuFuRUCell, Trace, intervene, tracing

STEPS, BATCH, N, M, L = 6, 3, 4, 5, 7
LENGTHS = [2, 6, 3]
# float64: the trace and the kernel do the same sums, perhaps in another order
CLOSE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-12}

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "after": {"reset": "after"},
    "controller": {"controller_size": 2},
    "stack, both ways": {"num_layers": 2, "bidirectional": True},
    "segments": {"bidirectional": True, "checkpoint_every": 2},
    "own operation": {"ops": ("keep", "replace", lambda s, v: torch.sin(s * v))},
}


def make(**options: Any) -> Any:
    return MuFuRU(N, M, dtype=torch.float64, **options)


def inputs() -> Tensor:
    return torch.randn(STEPS, BATCH, N, dtype=torch.float64)


def units(layer: MuFuRU) -> list[tuple[int, int]]:
    return [(i, d) for i in range(layer.num_layers) for d in range(layer.num_directions)]


@pytest.mark.parametrize("case", OPTIONS)
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["equal", "lengths"])
def test_weights_sum_to_one_and_contributions_to_the_outputs(case: str, lengths: Any) -> None:
    layer, x = make(**OPTIONS[case]), inputs()
    trace = layer.trace(x, lengths=lengths)
    output, _ = layer(x, lengths=lengths)
    ends = torch.full((BATCH,), STEPS) if lengths is None else torch.tensor(lengths)
    assert torch.equal(trace.lengths, ends)
    valid = (torch.arange(STEPS)[:, None] < ends).double()[..., None]
    for i, d in units(layer):
        p = trace.weights(i, d)
        assert p.shape == (STEPS, BATCH, len(layer.ops), M)
        assert bool((p >= 0).all())
        torch.testing.assert_close(p.sum(2), valid.expand(-1, -1, M), **CLOSE)
        torch.testing.assert_close(trace.contributions(i, d).sum(2), trace.outputs(i, d), **CLOSE)
    top = torch.cat([trace.outputs(layer.num_layers - 1, d) for d in range(layer.num_directions)], -1)
    torch.testing.assert_close(top, output, **CLOSE)


def test_of_half_precision_under_autocast_of_the_other_kind() -> None:
    layer, x = MuFuRU(N, M, 2).half(), torch.randn(STEPS, BATCH, N).half()
    with torch.autocast("cpu", torch.bfloat16):
        trace = layer.trace(x, lengths=LENGTHS)
    assert trace.states(1).dtype == trace.outputs(1).dtype == torch.float32


@pytest.mark.parametrize("reset", ["before", "after", None])
@pytest.mark.parametrize("controller", [None, 2], ids=["full", "controller"])
def test_weights_and_features_are_the_oracles(reset: Any, controller: int | None) -> None:
    layer, x = make(reset=reset, controller_size=controller), inputs()
    trace = layer.trace(x)
    options = oracle.Options(M, layer.ops, reset, "tanh", controller, layer.controller_activation)
    w = {name.removesuffix("_l0"): p.detach().numpy() for name, p in layer.named_parameters()}
    for i in range(BATCH):
        s, k = np.zeros(M), None if controller is None else np.zeros(controller)
        for t in range(STEPS):
            np.testing.assert_allclose(trace.states()[t, i].detach().numpy(), s, rtol=0, atol=1e-12)
            s, k, p, v = oracle.step(options, w, x[t, i].numpy(), s, k)
            np.testing.assert_allclose(trace.weights()[t, i].detach().numpy(), p, rtol=0, atol=1e-12)
            np.testing.assert_allclose(trace.features()[t, i].detach().numpy(), v, rtol=0, atol=1e-12)


@pytest.mark.parametrize("direction", [0, 1], ids=["forward", "reverse"])
def test_states_are_the_outputs_one_step_earlier(direction: int) -> None:
    layer, x = make(bidirectional=True), inputs()
    h0 = torch.randn(2, BATCH, M, dtype=torch.float64)
    trace = layer.trace(x, h0, LENGTHS)
    states, outputs = trace.states(0, direction), trace.outputs(0, direction)
    for i, length in enumerate(LENGTHS):
        s, y = states[:length, i], outputs[:length, i]
        s, y = (s, y) if direction == 0 else (s.flip(0), y.flip(0))
        assert torch.equal(s, torch.cat([h0[direction, i : i + 1], y[:-1]]))


def test_names() -> None:
    layer, x = make(ops=("keep", "mul", torch.maximum)), inputs()
    trace = layer.trace(x)
    assert trace.op_names == layer.ops == ("keep", "mul", "maximum")
    for j, name in enumerate(trace.op_names):
        assert torch.equal(trace.weight(name), trace.weights()[:, :, j])
    with pytest.raises(ValueError, match="this layer has no operation 'max': expected one of keep, mul, maximum"):
        trace.weight("max")


@pytest.mark.parametrize(("layer", "direction"), [(2, 0), (0, 1), (-1, 0)])
def test_layers_and_directions_that_are_not_there(layer: int, direction: int) -> None:
    with pytest.raises(IndexError, match=r"layers 0\.\.1 and directions 0\.\.0"):
        make(num_layers=2).trace(inputs()).weights(layer, direction)


def test_layouts() -> None:
    time_first, batch_first, x = make(bidirectional=True), make(bidirectional=True, batch_first=True), inputs()
    batch_first.load_state_dict(time_first.state_dict())
    p = time_first.trace(x, lengths=LENGTHS).weights(0, 1)
    assert torch.equal(batch_first.trace(x.transpose(0, 1), lengths=LENGTHS).weights(0, 1), p.transpose(0, 1))
    packed = pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    assert torch.equal(time_first.trace(packed).weights(0, 1), p)
    assert torch.equal(batch_first.trace(packed).weights(0, 1), p.transpose(0, 1))
    assert torch.equal(time_first.trace(packed).lengths, torch.tensor(LENGTHS))
    for i, length in enumerate(LENGTHS):
        alone = time_first.trace(x[:length, i]).weights(0, 1)
        assert alone.shape == (length, L, M)
        torch.testing.assert_close(alone, p[:length, i], **CLOSE)


def test_no_steps_and_no_sequences() -> None:
    layer = make(bidirectional=True)
    assert layer.trace(inputs()[:0]).weights(0, 1).shape == (0, BATCH, L, M)
    assert layer.trace(inputs()[:, :0]).contributions().shape == (STEPS, 0, L, M)
    assert layer.trace(inputs(), lengths=[0] * BATCH).states().shape == (STEPS, BATCH, M)


def test_gradients_flow_through_the_weights() -> None:
    layer, x = make(num_layers=2), inputs().requires_grad_()
    layer.trace(x).weight("mul", layer=1).sum().backward()
    assert x.grad is not None
    assert x.grad.any()
    assert layer.weight_hh_l0.grad.any()
    with torch.no_grad():
        assert not layer.trace(x).weights().requires_grad


def test_contributions_carry_the_outputs_gradient() -> None:
    layer, x = make(), inputs()
    ours = torch.autograd.grad(layer.trace(x).contributions().square().sum(2).sum(), layer.weight_ih_l0)[0]
    assert ours.any()
    by_parts = torch.autograd.grad(layer.trace(x).contributions().sum(2).square().sum(), layer.weight_ih_l0)[0]
    whole = torch.autograd.grad(layer(x)[0].square().sum(), layer.weight_ih_l0)[0]
    torch.testing.assert_close(by_parts, whole, **CLOSE)


class Tagger(nn.Module):
    """A model around two recurrent layers and a cell."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleDict({"words": MuFuRU(N, M), "tags": MuFuRU(M, 2, ops=("keep", "replace"))})
        self.cell = MuFuRUCell(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        tags = self.encoder["tags"](self.encoder["words"](x)[0])[0]
        state: Tensor = self.cell(tags[0])
        state = self.cell(tags[1], state)
        return state


def test_tracing_reaches_all_layers_of_a_model() -> None:
    model, x = Tagger(), torch.randn(STEPS, BATCH, N)
    with tracing(model) as traces:
        model(x)
        model(x[:2])
    model(x)
    assert {name: len(found) for name, found in traces.items()} == {"encoder.words": 2, "encoder.tags": 2, "cell": 4}
    assert traces["encoder.words"][1].weights().shape == (2, BATCH, L, M)
    assert traces["encoder.tags"][0].op_names == ("keep", "replace")
    assert traces["cell"][0].weights().shape == (1, BATCH, L, 3)


def test_tracing_nests_and_ends_with_an_exception() -> None:
    layer, x = make(), inputs()
    with tracing(layer) as outer:
        layer(x)
        with pytest.raises(RuntimeError, match="Expected 4, got 1"), tracing(layer) as inner:
            layer(x[..., :1])
        with tracing(layer) as inner:
            layer(x)
        layer(x)
    layer(x)
    assert (len(outer[""]), len(inner[""])) == (2, 1)


def test_contexts_of_several_threads_do_not_meet() -> None:
    """Each enters before the others leave, and one thread has no context."""
    layer, x = make(), inputs()
    plain = layer(x)[0]
    together = threading.Barrier(4, timeout=60)

    def look(forced: str) -> Tensor:
        with intervene(layer, force=forced) if forced else nullcontext():
            together.wait()
            trace = layer.trace(x) if forced else None
            output: Tensor = layer(x)[0]
            together.wait()
        return output if trace is None else trace.weight(forced)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(look, ["keep", "replace", "", "max"]))
    assert torch.equal(found.pop(2), plain)
    assert all(bool((weight == 1).all()) for weight in found)
    assert torch.equal(layer(x)[0], plain)
    assert (layer._traces, layer._allowed) == ({}, {})


def test_a_thread_that_python_did_not_start_belongs_to_the_only_context() -> None:
    """As the one in which a GPU's backward pass computes a forward pass again."""
    layer, x = make(), inputs()
    found: queue.Queue[Tensor] = queue.Queue()
    with intervene(layer, force="forget"):
        _thread.start_new_thread(lambda: found.put(layer(x)[0]), ())
        assert not found.get(timeout=60).any()


def test_tracing_a_model_without_a_layer() -> None:
    with pytest.raises(ValueError, match="Linear contains no MuFuRU or MuFuRUCell"), tracing(nn.Linear(2, 3)):
        pass


@pytest.mark.parametrize("batched", [True, False], ids=["batch", "one"])
def test_cell(batched: bool) -> None:
    cell = MuFuRUCell(N, M, dtype=torch.float64)
    x, s = inputs()[0], torch.randn(BATCH, M, dtype=torch.float64)
    x, s = (x, s) if batched else (x[0], s[0])
    with tracing(cell) as traces:
        new = cell(x, s)
    trace: Trace = traces[""][0]
    assert trace.op_names == PAPER
    assert trace.weights().shape == (1, *s.shape[:-1], L, M)
    assert torch.equal(trace.states()[0], s)
    torch.testing.assert_close(trace.contributions()[0].sum(-2), new, **CLOSE)


def test_tracing_changes_nothing() -> None:
    layer, x = make(num_layers=2, bidirectional=True), inputs()
    expected = layer(x, lengths=LENGTHS)
    with tracing(layer):
        output, h_n = layer(x, lengths=LENGTHS)
    assert torch.equal(output, expected[0])
    assert torch.equal(h_n, expected[1])
