"""How a module runs and trains: precision, modes, other weights, threads; of `nn.GRU` first, then of `MuFuRU`."""

from __future__ import annotations

import copy
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader, Dataset

STEPS, BATCH, N, M = 6, 2, 3, 5


def make(layer_type: Any, **options: Any) -> Any:
    return layer_type(N, M, **({"num_layers": 2, "bidirectional": True} | options))


def assert_same(a: nn.Module, b: nn.Module) -> None:
    x = torch.randn(STEPS, BATCH, N)
    assert torch.equal(a(x)[0], b(x)[0])
    assert torch.equal(a(x)[1], b(x)[1])


@pytest.mark.parametrize(
    # half an ulp at 1 for each of the steps: 2^-9 and 2^-12
    ("dtype", "tolerance"),
    [(torch.float64, 1e-6), (torch.bfloat16, 0.05), (torch.float16, 0.01)],
    ids=["float64", "bfloat16", "float16"],
)
def test_other_precisions(layer_type: Any, dtype: torch.dtype, tolerance: float) -> None:
    module = make(layer_type)
    other = copy.deepcopy(module).to(dtype)
    x = torch.randn(STEPS, BATCH, N).to(dtype)
    output, h_n = other(x)
    assert output.dtype == h_n.dtype == dtype
    torch.testing.assert_close(output.float(), module(x.float())[0], rtol=0, atol=tolerance)
    output.float().sum().backward()
    assert other.weight_hh_l0.grad.dtype == dtype


def test_double_method(layer_type: Any) -> None:
    assert make(layer_type).double()(torch.randn(STEPS, BATCH, N).double())[0].dtype == torch.float64


def test_runs_under_autocast(layer_type: Any) -> None:
    module, x = make(layer_type), torch.randn(STEPS, BATCH, N)
    with torch.autocast("cpu", torch.bfloat16):
        from_float, _ = module(x)
        from_half, _ = module(x.bfloat16())
    # bfloat16 has 8 bits of mantissa
    torch.testing.assert_close(from_float.float(), module(x)[0], rtol=0, atol=0.05)
    torch.testing.assert_close(from_half.float(), module(x)[0], rtol=0, atol=0.05)


HALF = (torch.float16, torch.bfloat16)


@pytest.mark.parametrize("autocast", HALF)
@pytest.mark.parametrize("state", [*HALF, torch.float32, None])
@pytest.mark.parametrize("own", [*HALF, torch.float32])
def test_types_under_autocast(
    layer_type: Any, own: torch.dtype, state: torch.dtype | None, autocast: torch.dtype
) -> None:
    """The result has the type that state and autocast promote to: float32 for the two kinds of half precision."""
    module, x = make(layer_type).to(own), torch.randn(STEPS, BATCH, N).to(own)
    hx = None if state is None else torch.zeros(4, BATCH, M, dtype=state)
    with torch.autocast("cpu", autocast):
        output, h_n = module(x, hx)
    assert output.dtype == h_n.dtype == torch.promote_types(state or own, autocast)
    output.float().sum().backward()
    assert module.weight_hh_l0.grad.dtype == own
    # bfloat16 has 8 bits of mantissa
    torch.testing.assert_close(output.float(), module.float()(x.float())[0], rtol=0, atol=0.05)


def test_training_and_evaluation_agree_without_dropout(layer_type: Any) -> None:
    module, x = make(layer_type), torch.randn(STEPS, BATCH, N)
    assert torch.equal(module.train()(x)[0], module.eval()(x)[0])


def test_dropout_between_layers_only_in_training(layer_type: Any) -> None:
    module, x = make(layer_type, dropout=0.5), torch.randn(STEPS, BATCH, N)
    plain = make(layer_type)
    plain.load_state_dict(module.state_dict())
    first, second = module(x)[1], module(x)[1]
    assert torch.equal(first[:2], second[:2])
    assert not torch.equal(first[2:], second[2:])
    assert_same(module.eval(), plain)


def test_full_dropout_cuts_the_layers_apart(layer_type: Any) -> None:
    module = make(layer_type, dropout=1.0)
    outputs = [module(torch.randn(STEPS, BATCH, N))[0] for _ in range(2)]
    assert torch.equal(*outputs)


def test_no_grad_and_inference_mode(layer_type: Any) -> None:
    module, x = make(layer_type), torch.randn(STEPS, BATCH, N)
    expected = module(x)[0]
    with torch.no_grad():
        assert not module(x)[0].requires_grad
    with torch.inference_mode():
        output, h_n = module(x)
    assert output.is_inference()
    assert h_n.is_inference()
    assert torch.equal(output, expected)


def test_frozen_parameters_get_no_gradient(layer_type: Any) -> None:
    module = make(layer_type)
    module.weight_hh_l0.requires_grad_(False)
    module(torch.randn(STEPS, BATCH, N))[0].sum().backward()
    assert module.weight_hh_l0.grad is None
    assert module.weight_ih_l0.grad is not None


def test_functional_call(layer_type: Any) -> None:
    module, other, x = make(layer_type), make(layer_type), torch.randn(STEPS, BATCH, N)
    output, _ = functional_call(module, dict(other.named_parameters()), (x,))
    assert torch.equal(output, other(x)[0])


def test_functional_gradient(layer_type: Any) -> None:
    module, x = make(layer_type), torch.randn(STEPS, BATCH, N)
    functional = grad(lambda x: module(x)[0].square().sum())(x)
    x.requires_grad_()
    module(x)[0].square().sum().backward()
    assert x.grad is not None
    # the same derivative by the same formulas: float32 rounding
    torch.testing.assert_close(functional, x.grad, rtol=1e-5, atol=1e-6)


def test_parametrized_weights(layer_type: Any) -> None:
    module, x = make(layer_type), torch.randn(STEPS, BATCH, N)
    before = module(x)[0]
    weight_norm(module, "weight_hh_l0")
    # the norm is taken apart and put together again: float32 rounding
    torch.testing.assert_close(module(x)[0], before, rtol=0, atol=1e-6)
    with torch.no_grad():
        module.parametrizations.weight_hh_l0.original0.zero_()
    assert not torch.equal(module(x)[0], before)


def test_shared_weights(layer_type: Any) -> None:
    a, b, x = layer_type(N, M), layer_type(N, M), torch.randn(STEPS, BATCH, N)
    for name, parameter in a.named_parameters():
        setattr(b, name, parameter)
    assert_same(a, b)
    a(x)[0].sum().backward()
    alone = a.weight_hh_l0.grad.clone()
    b(x)[0].sum().backward()
    assert b.weight_hh_l0 is a.weight_hh_l0
    assert torch.equal(a.weight_hh_l0.grad, 2 * alone)


def test_a_new_parameter_is_used(layer_type: Any) -> None:
    module, x = layer_type(N, M), torch.randn(STEPS, BATCH, N)
    before = module(x)[0]
    module.weight_ih_l0 = nn.Parameter(torch.zeros_like(module.weight_ih_l0))
    assert not torch.equal(before, module(x)[0])
    module.weight_ih_l0.data.fill_(0.5)
    module(x)[0].sum().backward()
    assert module.weight_ih_l0.grad is not None


def test_training_lowers_the_loss(layer_type: Any) -> None:
    module, x = layer_type(N, M), torch.randn(STEPS, 8, N)
    target, losses = x.cumsum(0)[..., :1].tanh(), []
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        loss = (module(x)[0][..., :1] - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_threads(layer_type: Any) -> None:
    """Several threads run one module forward and backward; each must get what it gets alone."""
    module = make(layer_type)
    inputs = [torch.randn(STEPS, BATCH, N) for _ in range(4)]

    def gradient(x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(module(x)[0].square().sum(), x)[0]

    alone = [gradient(x) for x in inputs]
    wrong: list[int] = []

    def work(i: int) -> None:
        if not all(torch.equal(gradient(inputs[i]), alone[i]) for _ in range(3)):
            wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class Encoded(Dataset[Tensor]):
    """Items computed by a module inside the worker process."""

    def __init__(self, module: nn.Module, x: Tensor) -> None:
        self.module, self.x = module, x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Tensor:
        with torch.no_grad():
            output: Tensor = self.module(self.x[i])[0]
            return output


def test_data_loader_workers(layer_type: Any) -> None:
    module, x = make(layer_type), torch.randn(6, STEPS, N)
    module(x[0])[0].sum().backward()
    with warnings.catch_warnings():
        # Python warns of any fork beside threads; torch's own threads are what this test is about
        warnings.simplefilter("ignore", DeprecationWarning)
        loader = DataLoader(Encoded(module, x), batch_size=2, num_workers=2, multiprocessing_context="fork")
        batches = list(loader)
    # a worker has one thread, which may split a product otherwise: float32 rounding
    torch.testing.assert_close(torch.cat(batches), torch.stack([module(s)[0] for s in x]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"num_layers": 1, "bidirectional": False}], ids=["several", "one"])
def test_the_last_state_may_be_changed_in_place(layer_type: Any, options: Any) -> None:
    """As programs do that begin anew where an episode has ended."""
    module = make(layer_type, **options)
    output, h_n = module(torch.randn(STEPS, BATCH, N))
    h_n[:, 0] = 0
    (output.sum() + h_n.sum()).backward()
    changed = module.weight_hh_l0.grad.clone()
    assert changed.abs().sum() > 0


def test_symbolic_trace(layer_type: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = make(layer_type), nn.Linear(2 * M, 1)

        def forward(self, x: Tensor, h0: Tensor) -> Tensor:
            output, h_n = self.rnn(x, h0)
            result: Tensor = self.out(output) + self.rnn(x)[0].mean() + h_n.sum()
            return result

    model, x, h0 = Model(), torch.randn(STEPS, BATCH, N), torch.randn(4, BATCH, M)
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["rnn", "out", "rnn"]
    assert torch.equal(traced(x, h0), model(x, h0))


def test_symbolic_trace_never_takes_a_forward_twice(layer_type: Any) -> None:
    class Doubled(layer_type):  # type: ignore[misc]
        def forward(self, x: Tensor, h0: Any = None) -> Any:
            output, h_n = super().forward(x, h0)
            return 2 * output, h_n

    with pytest.raises((TypeError, torch.fx.proxy.TraceError)):
        torch.fx.symbolic_trace(nn.Sequential(Doubled(N, M)))
