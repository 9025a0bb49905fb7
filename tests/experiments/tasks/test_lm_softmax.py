"""The softmax of language models against torch's own, natively and in torch: values and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from mufuru import use_kernel
from mufuru.experiments.tasks.lm.model import ROWS, log_probabilities, loss_sum
from mufuru.kernels import library


@pytest.fixture(autouse=True, params=["native", "reference"])
def _kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "native" and library.status().state == "unavailable":
        pytest.skip("needs the native library")
    with use_kernel(request.param):
        yield


def draw(rows: int, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    hidden, weight, bias = torch.randn(rows, 5), scale * torch.randn(11, 5), torch.randn(11)
    leaves = (tensor.to(dtype).requires_grad_() for tensor in (hidden, weight, bias))
    return (*leaves, torch.randint(11, (rows,)))  # type: ignore[return-value]


@pytest.mark.parametrize("scale", [1.0, 300.0], ids=["plain", "large logits"])
def test_the_same_as_torch(scale: float) -> None:
    hidden, weight, bias, targets = draw(7, scale=scale)
    expected = cross_entropy(linear(hidden, weight, bias), targets, reduction="sum")
    found = loss_sum(hidden, weight, bias, targets)
    # double precision, sums in another order
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    leaves = (hidden, weight, bias)
    pairs = zip(torch.autograd.grad(0.3 * found, leaves), torch.autograd.grad(0.3 * expected, leaves), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_gradients_are_those_of_the_values() -> None:
    hidden, weight, bias, targets = draw(5)
    assert torch.autograd.gradcheck(lambda h, w, b: loss_sum(h, w, b, targets), (hidden, weight, bias))


def test_single_precision() -> None:
    hidden, weight, bias, targets = draw(400, torch.float32)
    expected = cross_entropy(linear(hidden, weight, bias), targets, reduction="sum")
    found = loss_sum(hidden, weight, bias, targets)
    # sums of 400 numbers in single precision
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    leaves = (hidden, weight, bias)
    for one, other in zip(torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_weight_that_is_used_twice_gets_both_gradients() -> None:
    """As tied embeddings are."""
    _, weight, bias, targets = draw(7)
    words = torch.randint(11, (7,))
    found = torch.autograd.grad(loss_sum(weight[words], weight, bias, targets), weight)
    expected = torch.autograd.grad(cross_entropy(linear(weight[words], weight, bias), targets, reduction="sum"), weight)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rows", [1, 3, ROWS])
def test_log_probabilities_add_up_to_the_loss(rows: int) -> None:
    hidden, weight, bias, targets = draw(7)
    found = log_probabilities(lambda h: linear(h, weight, bias), hidden, targets, rows)
    expected = linear(hidden, weight, bias).log_softmax(1)[torch.arange(7), targets]
    # double precision, sums in another order
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        loss = loss_sum(hidden, weight, bias, targets)
    torch.testing.assert_close(loss, -expected.detach().sum(), rtol=1e-12, atol=0)


def test_nothing_to_predict() -> None:
    hidden, weight, bias, _ = draw(3)
    nothing: Any = torch.zeros(0, dtype=torch.int64)
    assert loss_sum(hidden[:0], weight, bias, nothing) == 0
    with torch.no_grad():
        assert loss_sum(hidden[:0], weight, bias, nothing) == 0


def test_the_arguments_are_left_alone() -> None:
    hidden, weight, bias, targets = draw(7)
    before = [tensor.detach().clone() for tensor in (hidden, weight, bias, targets)]
    loss_sum(hidden, weight, bias, targets).backward()
    for tensor, copy in zip((hidden, weight, bias, targets), before, strict=True):
        assert torch.equal(tensor, copy)
