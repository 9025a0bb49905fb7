"""The table of operations: the paper's definitions, gradients at ties, names of one's own, and wrong operations."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import mufuru
from mufuru import PAPER, MuFuRU, Op, ops, register, unregister

S = (-0.5, 0.0, 0.25, 1.0, 0.75)
V = (0.5, 0.0, 0.25, -1.0, -0.25)
# by hand, from the paper's table of operations
BY_HAND: dict[str, tuple[float, ...]] = {
    "keep": S,
    "replace": V,
    "max": (0.5, 0.0, 0.25, 1.0, 0.75),
    "min": (-0.5, 0.0, 0.25, -1.0, -0.25),
    "mul": (-0.25, 0.0, 0.0625, -1.0, -0.1875),
    "diff": (0.5, 0.0, 0.0, 1.0, 0.5),
    "forget": (0.0, 0.0, 0.0, 0.0, 0.0),
}
SQR_DIFF = (0.25, 0.0, 0.0, 1.0, 0.25)
# at s == v: torch's rule, half to each side of max and min, none for abs
TIE_GRADIENTS: dict[str, tuple[float, float]] = {
    "keep": (1, 0), "replace": (0, 1), "max": (0.5, 0.5), "min": (0.5, 0.5), "diff": (0, 0), "forget": (0, 0),
    "sqr_diff": (0, 0), "negate": (-1, 0), "add": (1, 1),
}  # fmt: skip


def soft(s: Tensor, v: Tensor) -> Tensor:
    return torch.logaddexp(s, v)


class Blend:
    """A callable without a `__name__`."""

    def __call__(self, s: Tensor, v: Tensor) -> Tensor:
        return 0.5 * (s + v)


@pytest.fixture
def named() -> Iterator[Op]:
    op = register("tested_op", soft, formula=r"\log(e^s + e^v)", meaning="A soft maximum")
    yield op
    if "tested_op" in ops.names():
        unregister("tested_op")


def test_the_papers_seven_in_its_order() -> None:
    assert PAPER == ("keep", "replace", "max", "min", "mul", "diff", "forget")
    assert ops.names()[:7] == PAPER
    assert MuFuRU(2, 3).ops == PAPER


@pytest.mark.parametrize("name", [*BY_HAND, "sqr_diff"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_by_hand(name: str, dtype: torch.dtype) -> None:
    expected = (BY_HAND | {"sqr_diff": SQR_DIFF})[name]
    result = ops.get(name)(torch.tensor(S, dtype=dtype), torch.tensor(V, dtype=dtype))
    # all these numbers are exact in binary
    assert torch.equal(result, torch.tensor(expected, dtype=dtype))


@pytest.mark.parametrize("name", ops.names())
def test_rows_are_complete(name: str) -> None:
    op = ops.get(name)
    assert op.name == name
    assert op.formula
    assert op.formula.count("{") == op.formula.count("}")
    assert op.meaning
    assert "\n" not in op.meaning
    assert set(op.formula.replace("\\", " ")) <= set("\\ abcdefghijklmnopqrstuvwxyz0123456789{}()|^+-,_")


def test_meanings_formulas_and_codes_are_each_rows_own() -> None:
    rows = [ops.get(name) for name in ops.names()]
    codes = [op.native_code for op in ops.native()]
    assert len({op.formula for op in rows}) == len({op.meaning for op in rows}) == len(rows)
    assert sorted(code for code in codes if code is not None) == list(range(len(codes)))


@pytest.mark.parametrize("name", ops.names())
@pytest.mark.parametrize("at", [0.0, 0.3])
def test_gradients_at_a_tie(name: str, at: float) -> None:
    s, v = (torch.full((4,), at, dtype=torch.float64, requires_grad=True) for _ in range(2))
    result = ops.get(name)(s, v)
    grads = torch.autograd.grad(result.sum() + 0.0 * (s + v).sum(), (s, v))
    by_s, by_v = (TIE_GRADIENTS | {"mul": (at, at)})[name]
    assert grads[0].tolist() == [by_s] * 4
    assert grads[1].tolist() == [by_v] * 4


def test_first_step_from_zero_meets_a_tie() -> None:
    """A zero state and zero features are where training starts; the rule must reach the layer's own gradient."""
    layer: Any = MuFuRU(1, 1, ops=("max",), reset=None, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    h0 = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    layer(torch.zeros(1, 1, dtype=torch.float64), h0)[0].sum().backward()
    assert h0.grad is not None
    assert h0.grad.item() == 0.5
    assert layer.bias_ih_l0.grad[0].item() == 0.5


def test_registered_name_is_found(named: Op) -> None:
    layer = MuFuRU(2, 3, ops=("keep", "tested_op"))
    assert layer.ops == ("keep", "tested_op")
    assert layer.unit.ops[1] is named
    assert named.formula == r"\log(e^s + e^v)"
    assert named.meaning == "A soft maximum"
    assert named.native_code is None
    unregister("tested_op")
    with pytest.raises(ValueError, match="unknown operation 'tested_op'"):
        MuFuRU(2, 3, ops=("keep", "tested_op"))


def test_register_takes_a_row_too() -> None:
    row = Op("tested_row", "s", lambda s, v: s, "Keep, by another name")
    try:
        assert register(row) is row
        assert ops.get("tested_row") is row
    finally:
        unregister("tested_row")


def test_callables_without_registering() -> None:
    layer = MuFuRU(2, 3, ops=("keep", soft, Blend(), lambda s, v: s - v, torch.maximum))
    assert layer.ops == ("keep", "soft", "Blend", "op3", "maximum")
    assert "soft" not in ops.names()
    assert layer(torch.randn(4, 2))[0].shape == (4, 3)


def test_callable_computes_what_the_name_does() -> None:
    by_name = MuFuRU(2, 3, ops=("keep", "mul"))
    by_callable = MuFuRU(2, 3, ops=("keep", lambda s, v: s * v))
    by_callable.load_state_dict(by_name.state_dict())
    x = torch.randn(5, 4, 2)
    assert torch.equal(by_name(x)[0], by_callable(x)[0])


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "unknown": (("keep", "maximun"), ValueError, "unknown operation 'maximun': expected one of keep, replace, max"),
    "spelling": (("replce",), ValueError, "Did you mean 'replace'?"),
    "duplicate": (("keep", "replace", "keep"), ValueError, "operation 'keep' is given twice"),
    "duplicate callable": ((soft, soft), ValueError, "operation 'soft' is given twice"),
    "empty": ((), ValueError, "ops is empty: a unit needs at least one operation of keep, replace"),
    "one string": ("keep", TypeError, "ops is a sequence of names or callables"),
    "no sequence": ({"keep"}, TypeError, "ops is a sequence of names or callables"),
    "none": (None, TypeError, "ops is a sequence of names or callables"),
    "a number": (("keep", 3), TypeError, "ops[1] is neither a name nor a callable"),
    "wrong shape": ((lambda s, v: s.sum(-1),), ValueError, "must return a tensor of its arguments' shape and dtype"),
    "wrong rank": ((lambda s, v: s[None],), ValueError, "expected (2, 3) torch.float32, got (1, 2, 3)"),
    "wrong dtype": ((lambda s, v: s.double(),), ValueError, "got (2, 3) torch.float64"),
    "boolean": ((lambda s, v: s > v,), ValueError, "torch.bool"),
    "a float": ((lambda s, v: 0.0,), TypeError, "operation 'op0' must return a tensor, got float"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_operations(case: str) -> None:
    given, error, text = WRONG[case]
    with pytest.raises(error) as caught:
        MuFuRU(2, 3, ops=given)
    assert text in str(caught.value)


REGISTRATIONS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "taken": (lambda: register("keep", soft), ValueError, "operation 'keep' is registered already"),
    "no identifier": (lambda: register("soft max", soft), ValueError, "Python identifier"),
    "no function": (lambda: register("lonely"), TypeError, "needs the operation's function"),
    "wrong shape": (lambda: register("flat", lambda s, v: s.sum()), ValueError, "shape and dtype"),
    "built in": (lambda: unregister("keep"), ValueError, "built in and cannot be unregistered"),
    "never there": (lambda: unregister("sofd"), ValueError, "unknown operation 'sofd'"),
}


@pytest.mark.parametrize("case", REGISTRATIONS)
def test_wrong_registrations(case: str) -> None:
    call, error, text = REGISTRATIONS[case]
    before = ops.names()
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert ops.names() == before


@pytest.mark.parametrize("name", ops.names())
def test_rows_travel_by_name(name: str) -> None:
    op = ops.get(name)
    assert pickle.loads(pickle.dumps(op)) is op
    assert copy.deepcopy(op) is op


def test_callables_travel_if_pickle_can_find_them() -> None:
    layer = MuFuRU(2, 3, ops=("keep", soft))
    again = pickle.loads(pickle.dumps(layer))
    x = torch.randn(4, 2)
    assert torch.equal(again(x)[0], layer(x)[0])
    lonely = MuFuRU(2, 3, ops=("keep", lambda s, v: s - v))
    assert torch.equal(copy.deepcopy(lonely)(x)[0], lonely(x)[0])


def test_the_package_offers_what_it_lists() -> None:
    assert all(hasattr(mufuru, name) for name in mufuru.__all__)
