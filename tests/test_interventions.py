"""Forcing and forbidding operations for a while."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from mufuru import PAPER, MuFuRU, MuFuRUCell, intervene, tracing

N, M = 3, 4
X = torch.linspace(-1, 1, 5 * 2 * N).view(5, 2, N)


@pytest.mark.parametrize("op", PAPER)
def test_a_forced_operation_is_the_only_one(op: str) -> None:
    layer, alone = MuFuRU(N, M, 2, bidirectional=True), MuFuRU(N, M, 2, bidirectional=True, ops=(op,))
    with torch.no_grad():
        for name, parameter in alone.named_parameters():
            # feature and reset gate stand first; one operation's logit plays no part
            parameter.copy_(getattr(layer, name)[: len(parameter)])
    with intervene(layer, force=op):
        assert bool((layer.trace(X).weight(op, 1, 1) == 1).all())
        # matrix products of another height may add in another order: float32 rounding
        torch.testing.assert_close(layer(X)[0], alone(X)[0], rtol=0, atol=1e-6)


def test_forbidden_operations_get_nothing_and_the_rest_is_renormalised() -> None:
    layer = MuFuRU(N, M)
    full = layer.trace(X).weights()[0]
    with intervene(layer, forbid=("keep", "mul")):
        p = layer.trace(X).weights()
    gone = torch.tensor([name in ("keep", "mul") for name in PAPER])
    assert not p[:, :, gone].any()
    # at the first step the states still agree; float32 softmax over fewer terms
    expected = full[:, ~gone] / full[:, ~gone].sum(1, keepdim=True)
    torch.testing.assert_close(p[0][:, ~gone], expected, rtol=0, atol=1e-6)


def test_one_name_or_several() -> None:
    layer = MuFuRU(N, M)
    with intervene(layer, forbid="max"):
        one = layer(X)[0]
    with intervene(layer, forbid=["max"]):
        assert torch.equal(layer(X)[0], one)


def test_with_lengths_and_packed_rows() -> None:
    layer = MuFuRU(N, M, bidirectional=True)
    with intervene(layer, forbid="keep"):
        output, _ = layer(X, lengths=[2, 5])
        alone, _ = layer(X[:2, :1])
    torch.testing.assert_close(output[:2, :1], alone, rtol=0, atol=1e-6)


def test_nothing_remains_afterwards_even_after_an_exception() -> None:
    layer = MuFuRU(N, M)
    before = layer(X)[0]
    with intervene(layer, force="keep"):
        assert not layer(X)[0].any()
    assert torch.equal(layer(X)[0], before)
    with pytest.raises(KeyError), intervene(layer, force="keep"):
        raise KeyError
    assert torch.equal(layer(X)[0], before)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_made_inside_are_free(copied: Any) -> None:
    layer = MuFuRU(N, M)
    before = layer(X)[0]
    with intervene(layer, force="keep"), tracing(layer) as traces:
        other = copied(layer)
        assert not layer(X)[0].any()
        assert torch.equal(other(X)[0], before)
    assert len(traces[""]) == 1
    assert not other._traces


def test_the_inner_intervention_holds_then_the_outer() -> None:
    layer = MuFuRU(N, M)
    with intervene(layer, force="replace"):
        outer = layer(X)[0]
        with intervene(layer, force="keep"):
            assert not layer(X)[0].any()
        assert torch.equal(layer(X)[0], outer)


def test_reaches_layers_and_cells_inside_a_model() -> None:
    model = nn.ModuleDict({"layer": MuFuRU(N, M), "cell": MuFuRUCell(N, M)})
    with intervene(model, force="forget"), tracing(model) as traces:
        assert not model["layer"](X)[0].any()
        assert not model["cell"](X[0], torch.ones(2, M)).any()
    assert bool((traces["cell"][0].weight("forget") == 1).all())
    assert model["cell"](X[0], torch.ones(2, M)).any()


def test_gradients_pass_only_through_what_is_allowed() -> None:
    layer: Any = MuFuRU(N, M)
    with intervene(layer, forbid="mul"):
        layer(X)[0].sum().backward()
    blocks = layer.weight_ih_l0.grad.view(2 + len(PAPER), M, N)
    assert layer.weight_ih_l0.grad.isfinite().all()
    assert not blocks[2 + PAPER.index("mul")].any()
    assert blocks[2 + PAPER.index("max")].any()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown to forbid": ({"forbid": "maximum"}, "cannot forbid or force 'maximum': expected one of keep"),
    "unknown to force": ({"force": "sqr_diff"}, "cannot forbid or force 'sqr_diff'"),
    "all forbidden": ({"forbid": PAPER}, "nothing is left of the operations"),
    "forced and forbidden": ({"force": "keep", "forbid": "keep"}, "nothing is left of the operations"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_interventions(case: str) -> None:
    layer = MuFuRU(N, M)
    before = layer(X)[0]
    call, text = WRONG[case]
    with pytest.raises(ValueError, match=text), intervene(layer, **call):
        pass
    assert torch.equal(layer(X)[0], before)


def test_a_model_without_a_layer() -> None:
    with pytest.raises(ValueError, match="GRU contains no MuFuRU"), intervene(nn.GRU(2, 3), force="keep"):
        pass
