"""What holds for all weights and inputs, not only for the examples one thinks of."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import torch
from hypothesis import HealthCheck, given, settings

from mufuru import PAPER, MuFuRU, intervene, ops

# the fixtures of conftest hold for all examples of a test alike
modest = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
sizes = st.integers(1, 6)
seeds = st.integers(0, 2**32 - 1)
names = st.lists(st.sampled_from(ops.names()), min_size=1, unique=True)
options = st.fixed_dictionaries(
    {
        "reset": st.sampled_from(["before", "after", None]),
        "controller_size": st.none() | sizes,
        "controller_activation": st.sampled_from(["tanh", "relu"]),
        "num_layers": st.integers(1, 2),
        "bidirectional": st.booleans(),
    }
)


def random_layer(seed: int, scale: float, input_size: int, hidden_size: int, **more: Any) -> MuFuRU:
    torch.manual_seed(seed)
    layer = MuFuRU(input_size, hidden_size, dtype=torch.float64, **more)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, scale)
    return layer


def random_input(layer: MuFuRU, steps: int, batch: int) -> torch.Tensor:
    return torch.randn(steps, batch, layer.input_size, dtype=torch.float64)


@modest
@given(
    seeds,
    st.floats(0.01, 100),
    sizes,
    sizes,
    sizes,
    sizes,
    st.lists(st.sampled_from(PAPER), min_size=1, unique=True),
    options,
)
def test_the_papers_operations_keep_the_state_bounded(
    seed: int, scale: float, n: int, m: int, steps: int, batch: int, chosen: list[str], more: dict[str, Any]
) -> None:
    layer = random_layer(seed, scale, n, m, ops=chosen, **more)
    x = 10 * random_input(layer, steps, batch)
    h0 = torch.rand(layer.num_layers * layer.num_directions, batch, m, dtype=torch.float64) * 2 - 1
    k = layer.controller_size
    hx = h0 if k is None else (h0, torch.rand(*h0.shape[:2], k, dtype=torch.float64))
    output, last = layer(x, hx)
    # softmax weights add up to one within float64 rounding
    assert output.abs().max().item() <= 1 + 1e-12
    if k is not None and layer.controller_activation == "tanh":
        assert last[1].abs().max().item() <= 1


def permuted(tensor: torch.Tensor, before: int, order: list[int], m: int) -> torch.Tensor:
    """The blocks of the operations, which stand after `before` rows, in another order."""
    blocks = tensor[before:].unflatten(0, (len(order), m))
    return torch.cat([tensor[:before], blocks[order].flatten(0, 1)])


@modest
@given(seeds, sizes, names, options, st.randoms(use_true_random=False))
def test_the_order_of_operations_does_not_matter(
    seed: int, m: int, chosen: list[str], more: dict[str, Any], random: Any
) -> None:
    layer = random_layer(seed, 0.5, 3, m, ops=chosen, **more)
    order = random.sample(range(len(chosen)), len(chosen))
    other = MuFuRU(3, m, dtype=torch.float64, ops=[chosen[j] for j in order], **more)
    gates = m if layer.reset is None else 2 * m
    for name, value in layer.state_dict().items():
        by_op = name.startswith(("weight_op", "bias_op"))
        if not by_op and layer.controller_size is not None:
            other.state_dict()[name].copy_(value)
        else:
            other.state_dict()[name].copy_(permuted(value, 0 if by_op else gates, order, m))
    x = random_input(layer, 4, 2)
    # the same sum in another order; `add` may grow beyond one
    torch.testing.assert_close(other(x)[0], layer(x)[0], rtol=1e-9, atol=1e-12)


@modest
@given(seeds, sizes, st.lists(st.sampled_from(ops.names()), min_size=2, unique=True), options, st.data())
def test_forbidding_is_a_bias_of_minus_infinity(
    seed: int, m: int, chosen: list[str], more: dict[str, Any], data: Any
) -> None:
    layer = random_layer(seed, 0.5, 3, m, ops=chosen, **more)
    forbidden = data.draw(st.lists(st.sampled_from(chosen), min_size=1, max_size=len(chosen) - 1, unique=True))
    x = random_input(layer, 4, 2)
    with intervene(layer, forbid=forbidden):
        expected, _ = layer(x)
    first = 0 if layer.controller_size is not None else m if layer.reset is None else 2 * m
    stem = "bias_ih" if layer.controller_size is None else "bias_op"
    with torch.no_grad():
        for name, bias in layer.named_parameters():
            if name.startswith(stem):
                for op in forbidden:
                    start = first + chosen.index(op) * m
                    bias[start : start + m] = -torch.inf
    assert torch.equal(layer(x)[0], expected)


@modest
@given(seeds, sizes, st.integers(2, 6), names, options, st.data())
def test_rows_of_a_batch_never_meet(
    seed: int, m: int, batch: int, chosen: list[str], more: dict[str, Any], data: Any
) -> None:
    layer = random_layer(seed, 0.5, 3, m, ops=chosen, **more)
    x, other = random_input(layer, 5, batch), random_input(layer, 5, batch)
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=batch, max_size=batch))
    own = data.draw(st.integers(0, batch - 1))
    other[:, own] = x[:, own]
    other_lengths = data.draw(st.lists(st.integers(0, 5), min_size=batch, max_size=batch))
    other_lengths[own] = lengths[own]
    a, b = layer(x, lengths=lengths)[0][:, own], layer(other, lengths=other_lengths)[0][:, own]
    # matrix products of another height may add in another order
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
