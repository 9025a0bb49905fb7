"""Transforms and the rest of what torch offers: tried on `nn.GRU` and on `MuFuRU`, as the table in the docs says."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from mufuru import MuFuRU

# torch's own, once, when forward mode is first used
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated:DeprecationWarning")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))
features: Any = importlib.import_module("features")
RECORD = json.loads(features.RECORD.read_text(encoding="utf-8"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("feature", features.FEATURES)
def test_works_with_mufuru(feature: str) -> None:
    features.FEATURES[feature](MuFuRU)
    assert RECORD["features"][feature]["MuFuRU"] == ""


@pytest.mark.parametrize("feature", features.FEATURES)
def test_gru_as_the_table_says(feature: str) -> None:
    """A new torch may do what the table denies it: then the record is to be made anew."""
    assert bool(features.attempt(feature, "nn.GRU")) == bool(RECORD["features"][feature]["nn.GRU"])


def own(s: Tensor, v: Tensor) -> Tensor:
    return s * torch.sin(v)


QUICK = ["`vmap` over models", "per-sample gradients, `vmap(grad)`", "forward mode, `jvp`", "double backward"]


@pytest.mark.parametrize("feature", [*QUICK, "`torch.utils.checkpoint`", "`torch.nn.utils.prune`"])
def test_own_operations(feature: str) -> None:
    """A new operation each time: its trial by the native kernel then happens inside the transform."""
    new = ("keep", "replace", lambda s, v: own(s, v))
    features.FEATURES[feature](lambda *args, **options: MuFuRU(*args, ops=new, **options))


@pytest.mark.parametrize("feature", QUICK)
def test_with_a_controller_and_both_directions(feature: str) -> None:
    features.FEATURES[feature](
        lambda *args: MuFuRU(args[0], args[1], controller_size=3, bidirectional=True, reset="after")
    )


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_own_operation_first_met_without_gradients(context: Any) -> None:
    layer = MuFuRU(3, 4, ops=("replace", lambda s, v: own(s, v)), kernel="native")
    x = torch.randn(5, 2, 3)
    with context():
        found = layer(x)[0]
    assert_close(found.clone(), layer(x)[0].detach())


def test_checkpoint_around_a_model() -> None:
    model = nn.Sequential(nn.Linear(3, 3), MuFuRU(3, 4, 2, dropout=0.5))
    x = torch.randn(5, 2, 3)
    found = []
    for around in (False, True):
        torch.manual_seed(1)
        model.zero_grad()
        output, _ = checkpoint(model, x, use_reentrant=False) if around else model(x)
        output.square().sum().backward()
        found.append([parameter.grad.clone() for parameter in model.parameters()])
    assert_close(found[1], found[0])


def test_transforms_of_transforms() -> None:
    """Hessian-vector products for several vectors: `vmap` of forward mode over reverse mode."""
    layer = MuFuRU(2, 3, dtype=torch.float64)
    weights = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    x, vectors = torch.randn(3, 2, 2, dtype=torch.float64), torch.randn(4, 3, 2, 2, dtype=torch.float64)

    def slope(x: Tensor) -> Any:
        return grad(lambda x: functional_call(layer, weights, (x,))[0].square().sum())(x)

    found = vmap(lambda vector: jvp(slope, (x,), (vector,))[1])(vectors)
    for product, vector in zip(found, vectors, strict=True):
        # differences of gradients: their error is of the order of the step squared
        assert_close(product, (slope(x + 1e-4 * vector) - slope(x - 1e-4 * vector)) / 2e-4, rtol=0, atol=1e-5)


def test_vmap_over_lengths_is_refused_in_words() -> None:
    layer = MuFuRU(3, 4)
    with pytest.raises(RuntimeError, match="vmap cannot map over lengths"):
        vmap(lambda x, lengths: layer(x, lengths=lengths)[0])(torch.randn(6, 5, 2, 3), torch.ones(6, 2).long())
    x, lengths = torch.randn(6, 5, 2, 3), torch.tensor([5, 0])
    found = vmap(lambda x: layer(x, lengths=lengths)[0])(x)
    assert_close(found, torch.stack([layer(one, lengths=lengths)[0] for one in x]))
