"""Module hooks see a `MuFuRU` as they see an `nn.GRU`: the arguments as given, the results as returned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

STEPS, BATCH, N, M = 4, 2, 3, 5


def seen_by_pre_hook(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append((args, kwargs))

    with_kwargs = module.register_forward_pre_hook(hook, with_kwargs=True)
    module(*args, **kwargs)
    with_kwargs.remove()
    assert len(seen) == 1
    return seen[0]


def test_layer_pre_hook_sees_the_arguments_as_given(layer_type: Any) -> None:
    module, x, h0 = layer_type(N, M), torch.randn(STEPS, BATCH, N), torch.zeros(1, BATCH, M)
    args, kwargs = seen_by_pre_hook(module, x)
    assert len(args) == 1
    assert args[0] is x
    assert not kwargs
    args, kwargs = seen_by_pre_hook(module, x, hx=h0)
    assert len(args) == 1
    assert list(kwargs) == ["hx"]


def test_cell_pre_hook_sees_the_arguments_as_given(cell_type: Any) -> None:
    module, x = cell_type(N, M), torch.randn(BATCH, N)
    args, kwargs = seen_by_pre_hook(module, x)
    assert len(args) == 1
    assert args[0] is x
    assert not kwargs


def test_layer_pre_hook_can_change_the_input(layer_type: Any) -> None:
    module, x = layer_type(N, M), torch.randn(STEPS, BATCH, N)
    expected = module(2 * x)[0]
    module.register_forward_pre_hook(lambda module, args: (2 * args[0], *args[1:]))
    assert torch.equal(module(x)[0], expected)


def test_layer_hook_sees_and_changes_the_result(layer_type: Any) -> None:
    module, x = layer_type(N, M), torch.randn(STEPS, BATCH, N)
    expected = module(x)
    seen: list[Any] = []

    def hook(module: nn.Module, args: Any, result: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        seen.append(result)
        return -result[0], result[1]

    handle = module.register_forward_hook(hook)
    output, h_n = module(x)
    handle.remove()
    assert torch.equal(seen[0][0], expected[0])
    assert torch.equal(output, -expected[0])
    assert torch.equal(h_n, expected[1])
    assert torch.equal(module(x)[0], expected[0])


def test_layer_backward_hook_sees_the_gradients(layer_type: Any) -> None:
    module = layer_type(N, M)
    seen: list[tuple[Any, Any]] = []
    module.register_full_backward_hook(lambda module, grad_in, grad_out: seen.append((grad_in, grad_out)))
    x = torch.randn(STEPS, BATCH, N, requires_grad=True)
    output, _ = module(x)
    output.sum().backward()
    (grad_in, grad_out) = seen[0]
    assert len(grad_in) == 1
    assert x.grad is not None
    assert torch.equal(grad_in[0], x.grad)
    assert torch.equal(grad_out[0], torch.ones_like(output))


def test_parameter_hook(layer_type: Any) -> None:
    module = layer_type(N, M)
    module.weight_hh_l0.register_hook(torch.zeros_like)
    module(torch.randn(STEPS, BATCH, N))[0].sum().backward()
    assert not module.weight_hh_l0.grad.any()
    assert module.weight_ih_l0.grad.any()
