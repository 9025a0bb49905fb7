"""One step of a cell without gradients: the shortest way gives what the long way gives, and leaves to it all else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_calls import needs_native
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrize

import mufuru
from mufuru import MuFuRUCell, ops, use_kernel
from mufuru.kernels import compute, reference

pytestmark = needs_native


def long_way(cell: MuFuRUCell, *args: Any) -> Any:
    """With gradients enabled, though nothing wants one."""
    with torch.enable_grad():
        result = cell.requires_grad_(False)(*args)
    return result


@pytest.fixture
def short_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, the long way ends the test."""

    def forbid() -> None:
        monkeypatch.setattr(compute, "inference", lambda _: pytest.fail("this went the long way"))

    return forbid


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("names", [ops.PAPER, ("keep", "replace"), ("sqr_diff", "negate", "add")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_bits_are_those_of_the_long_way(
    mode: Any, names: Any, dtype: torch.dtype, short_only: Callable[[], None]
) -> None:
    options: list[dict[str, Any]] = [
        {}, {"bias": False}, {"reset": "after"}, {"reset": None}, {"activation": "sigmoid"}, {"kernel": "native"},
    ]  # fmt: skip
    cells = [MuFuRUCell(5, size, ops=names, dtype=dtype, **option) for option in options for size in (1, 8, 19)]
    inputs = [
        (torch.randn(batch, 5, dtype=dtype), torch.randn(batch, cell.hidden_size, dtype=dtype))
        for cell in cells
        for batch in (1, 3, 17)
    ]
    pairs = [(cells[i // 3], x, s) for i, (x, s) in enumerate(inputs)]
    wanted = [(long_way(cell, x, s), long_way(cell, x)) for cell, x, s in pairs]
    short_only()
    with mode():
        for (cell, x, s), (from_state, from_zero) in zip(pairs, wanted, strict=True):
            before = s.clone()
            for found, expected in ((cell(x, s), from_state), (cell(x), from_zero)):
                assert torch.equal(found, expected)
                assert not found.requires_grad
            assert torch.equal(s, before)


def edit_in_place(cell: MuFuRUCell) -> None:
    with torch.no_grad():
        cell.weight_hh[3, 2] += 1


def edit_data(cell: MuFuRUCell) -> None:
    cell.weight_ih.data.mul_(-1)


def swap_data(cell: MuFuRUCell) -> None:
    cell.bias_hh.data = torch.randn_like(cell.bias_hh)


def negate_data(cell: MuFuRUCell) -> None:
    cell.weight_hh.data = torch._neg_view(cell.weight_hh.data)


def transpose_data(cell: MuFuRUCell) -> None:
    cell.weight_hh.data = cell.weight_hh.data.t().contiguous().t()


def another_parameter(cell: MuFuRUCell) -> None:
    cell.weight_hh = nn.Parameter(torch.randn_like(cell.weight_hh))


def assign_others(cell: MuFuRUCell) -> None:
    cell.load_state_dict(MuFuRUCell(5, 8).state_dict(), assign=True)


def step_of_an_optimiser(cell: MuFuRUCell) -> None:
    optimizer = torch.optim.Adam(cell.requires_grad_().parameters(), lr=0.1, fused=True)
    cell(torch.randn(2, 5)).sum().backward()
    optimizer.step()


def parametrized(cell: MuFuRUCell) -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

    parametrize.register_parametrization(cell, "weight_hh", Twice())


CHANGES = [
    edit_in_place, edit_data, swap_data, negate_data, transpose_data, another_parameter, assign_others,
    step_of_an_optimiser, parametrized,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_the_weights_is_seen(change: Callable[[MuFuRUCell], None]) -> None:
    cell, x, s = MuFuRUCell(5, 8), torch.randn(2, 5), torch.randn(2, 8)
    with torch.no_grad():
        first = cell(x, s)
    change(cell)
    with torch.no_grad():
        second = cell(x, s)
        with use_kernel("reference"):
            # float32 over one step
            torch.testing.assert_close(second, cell(x, s), atol=1e-6, rtol=1e-5)
    assert torch.equal(second, long_way(cell, x, s))
    assert torch.equal(first, second) == (change is transpose_data)


def test_a_functional_call_takes_its_own_weights() -> None:
    cell, other, x = MuFuRUCell(5, 8), MuFuRUCell(5, 8), torch.randn(2, 5)
    with torch.no_grad():
        cell(x)
        assert torch.equal(functional_call(cell, dict(other.named_parameters()), (x,)), other(x))
        assert torch.equal(cell(x), long_way(cell, x))


def freed(cell: MuFuRUCell) -> tuple[Any, ...]:
    cell.weight_hh.untyped_storage().resize_(0)
    return (torch.randn(2, 5),)


def of_another_shape(cell: MuFuRUCell) -> tuple[Any, ...]:
    cell.weight_hh.data = torch.randn(3, 4)
    return (torch.randn(2, 5),)


def of_another_dtype(cell: MuFuRUCell) -> tuple[Any, ...]:
    cell.bias_ih.data = cell.bias_ih.data.double()
    return (torch.randn(2, 5),)


REFUSED: list[Callable[[MuFuRUCell], tuple[Any, ...]]] = [
    freed,
    of_another_shape,
    of_another_dtype,
    lambda _: (torch.randn(2, 6),),
    lambda _: (torch.randn(2, 1, 5),),
    lambda _: (torch.randn(2, 5).double(),),
    lambda _: (torch.randn(2, 5).to_sparse(),),
    lambda _: ([[0.0] * 5],),
    lambda _: (torch.randn(2, 5), torch.randn(3, 8)),
    lambda _: (torch.randn(2, 5), torch.randn(2, 7)),
    lambda _: (torch.randn(2, 5), torch.randn(2, 8).double()),
    lambda _: (torch.randn(2, 5), (torch.randn(2, 8), torch.randn(2, 8))),
]


@pytest.mark.parametrize("spoil", REFUSED)
def test_refusals_are_those_of_the_long_way(spoil: Callable[[MuFuRUCell], tuple[Any, ...]]) -> None:
    cell = MuFuRUCell(5, 8)
    args = spoil(cell)
    with pytest.raises((RuntimeError, TypeError, ValueError)) as expected:
        long_way(cell, *args)
    with torch.no_grad(), pytest.raises(type(expected.value)) as found:
        cell(*args)
    assert str(found.value) == str(expected.value)


def test_unusual_tensors_go_the_long_way() -> None:
    cell, x, s = MuFuRUCell(5, 8), torch.randn(4, 5), torch.randn(4, 8)
    wanted = long_way(cell, x, s)
    with torch.no_grad():
        for again in (x.t().contiguous().t(), torch._neg_view(-x), torch.cat([x, x], 1)[:, :5], nn.Parameter(x)):
            assert torch.equal(cell(again, s), wanted)
        assert torch.equal(cell(x, s.t().contiguous().t()), wanted)
        assert torch.equal(cell(x, s[:1].expand(4, 8)), long_way(cell, x, s[:1].expand(4, 8)))
        assert torch.equal(cell(x[0], s[0]), long_way(cell, x[0], s[0]))
        assert cell(x[:0]).shape == (0, 8)
        assert torch.equal(torch.func.vmap(cell)(x.view(2, 2, 5)), cell(x).view(2, 2, 8))


def test_what_looks_inside_sees_the_step() -> None:
    cell, x = MuFuRUCell(5, 8), torch.randn(2, 5)
    with torch.no_grad():
        usual = cell(x)
        with mufuru.tracing(cell) as traces:
            cell(x)
        assert len(traces[""]) == 1
        with mufuru.intervene(cell, forbid=["replace"]):
            assert not torch.equal(cell(x), usual)
        with torch.autocast("cpu", torch.bfloat16):
            assert cell(x).dtype == long_way(cell, x).dtype
        assert torch.equal(cell(x), usual)


def test_another_kernel_is_another_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    step = reference.sequence

    def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return step(*args)

    monkeypatch.setattr(reference, "sequence", counted)
    cell, x = MuFuRUCell(5, 8), torch.randn(2, 5)
    with torch.no_grad():
        cell(x)
        assert calls == 0
        with use_kernel("reference"):
            cell(x)
        MuFuRUCell(5, 8, kernel="reference")(x)
        monkeypatch.setenv("MUFURU_KERNEL", "reference")
        cell(x)
    assert calls == 3
