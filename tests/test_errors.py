"""Wrong calls, each with the error expected; where `nn.GRU` refuses the same call, with the same type of error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from mufuru import MuFuRU, MuFuRUCell

STEPS, BATCH, N, M = 5, 2, 3, 4


def error_of(call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def assert_refused(ours: Callable[[], Any], peers: Callable[[], Any] | None, error: type[Exception], text: str) -> None:
    """Ours raises the error with the text; the peer, if it raises at all, an error of the same type."""
    caught = error_of(ours)
    assert caught is not None, "the call was accepted"
    assert type(caught) is error, f"{type(caught).__name__}: {caught}"
    assert text in str(caught)
    theirs = error_of(peers) if peers is not None else None
    if theirs is not None:
        assert type(caught) is type(theirs), f"nn raises {type(theirs).__name__}: {theirs}"


def x(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    return torch.zeros(*shape, dtype=dtype, device=device)


GRU_ARGUMENTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "hidden float": ({"hidden_size": 4.5}, TypeError, "hidden_size should be of type int, got: float"),
    "hidden zero": ({"hidden_size": 0}, ValueError, "hidden_size must be greater than zero"),
    "hidden negative": ({"hidden_size": -1}, ValueError, "hidden_size must be greater than zero"),
    "input text": ({"input_size": "3"}, TypeError, "input_size should be of type int, got: str"),
    "input zero": ({"input_size": 0}, ValueError, "input_size must be greater than zero"),
    "no layers": ({"num_layers": 0}, ValueError, "num_layers must be greater than zero"),
    "part of a layer": ({"num_layers": 1.5}, TypeError, "num_layers should be of type int, got: float"),
    "layers text": ({"num_layers": "two"}, TypeError, "num_layers should be of type int, got: str"),
    "bias text": ({"bias": "no"}, TypeError, "bias should be of type bool, got: str"),
    "bias int": ({"bias": 1}, TypeError, "bias should be of type bool, got: int"),
    "batch_first int": ({"batch_first": 1}, TypeError, "batch_first should be of type bool, got: int"),
    "dropout above": ({"dropout": 1.5}, ValueError, "dropout should be a number in range [0, 1]"),
    "dropout below": ({"dropout": -0.1}, ValueError, "dropout should be a number in range [0, 1]"),
    "dropout bool": ({"dropout": True}, ValueError, "dropout should be a number in range [0, 1]"),
    "dropout text": ({"dropout": "much"}, ValueError, "dropout should be a number in range [0, 1]"),
    "unknown": ({"hidden": 3}, TypeError, "unexpected keyword argument 'hidden'"),
    "whole dtype": ({"dtype": torch.int64}, RuntimeError, "floating point"),
}

OWN_ARGUMENTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "reset": (
        {"reset": "behind"},
        ValueError,
        "reset should be 'before', 'after' or None (no reset gate), got 'behind'",
    ),
    "activation": ({"activation": "relu"}, ValueError, "activation should be 'tanh' or 'sigmoid', got 'relu'"),
    "controller activation": (
        {"controller_activation": "sigmoid"},
        ValueError,
        "controller_activation should be 'tanh' or 'relu', got 'sigmoid'",
    ),
    "controller zero": ({"controller_size": 0}, ValueError, "controller_size must be greater than zero"),
    "controller float": ({"controller_size": 2.0}, TypeError, "controller_size should be of type int, got: float"),
    "kernel": ({"kernel": "fast"}, ValueError, "kernel should be one of 'auto', 'native', 'reference', got 'fast'"),
    "op_bias unknown": ({"op_bias": {"kep": 1.0}}, ValueError, "Did you mean 'keep'?"),
    "op_bias of another": ({"op_bias": {"sqr_diff": 1.0}}, ValueError, "op_bias names 'sqr_diff', which is not among"),
    "op_bias count": (
        {"op_bias": [1.0, 2.0]},
        ValueError,
        "op_bias needs one number for each of the 7 operations, got 2",
    ),
    "op_bias, no bias": ({"op_bias": {"keep": 1.0}, "bias": False}, ValueError, "op_bias needs bias=True"),
    "ops by position": ({"ops": "keep"}, TypeError, "ops is a sequence of names or callables"),
}

LAYER_ARGUMENTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "segment zero": ({"checkpoint_every": 0}, ValueError, "checkpoint_every should be a positive number of steps"),
    "segment negative": ({"checkpoint_every": -3}, ValueError, "checkpoint_every should be a positive number of steps"),
}


@pytest.mark.parametrize("case", GRU_ARGUMENTS)
def test_constructor_arguments_of_gru(case: str) -> None:
    changed, error, text = GRU_ARGUMENTS[case]
    arguments = {"input_size": N, "hidden_size": M, "num_layers": 2} | changed
    assert_refused(lambda: MuFuRU(**arguments), lambda: nn.GRU(**arguments), error, text)


@pytest.mark.parametrize("case", [*OWN_ARGUMENTS, *LAYER_ARGUMENTS])
def test_constructor_arguments_of_the_unit(case: str) -> None:
    changed, error, text = (OWN_ARGUMENTS | LAYER_ARGUMENTS)[case]
    assert_refused(lambda: MuFuRU(N, M, **changed), None, error, text)


@pytest.mark.parametrize("case", OWN_ARGUMENTS)
def test_constructor_arguments_of_the_cell(case: str) -> None:
    changed, error, text = OWN_ARGUMENTS[case]
    assert_refused(lambda: MuFuRUCell(N, M, **changed), None, error, text)


def test_options_are_not_positional() -> None:
    with pytest.raises(TypeError, match="positional arguments"):
        MuFuRU(N, M, 1, True, False, 0.0, False, ("keep",))  # type: ignore[call-arg]


GOOD = x(STEPS, BATCH, N)
PACKED = pack_padded_sequence(GOOD, [5, 3])
FORWARD: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "rank 4": ((x(1, STEPS, BATCH, N),), ValueError, "Expected input to be 2D or 3D, got 4D instead"),
    "rank 1": ((x(N),), ValueError, "Expected input to be 2D or 3D, got 1D instead"),
    "width": ((x(STEPS, BATCH, 7),), RuntimeError, "input.size(-1) must be equal to input_size. Expected 3, got 7"),
    "width, one": ((x(STEPS, 7),), RuntimeError, "input.size(-1) must be equal to input_size. Expected 3, got 7"),
    "width, packed": (
        (pack_padded_sequence(x(STEPS, BATCH, 7), [5, 3]),), RuntimeError, "Expected 3, got 7"
    ),
    "state rank": ((GOOD, x(BATCH, M)), RuntimeError, "For batched 3-D input, hx should also be 3-D but got 2-D"),
    "state rank, one": ((x(STEPS, N), x(1, 1, M)), RuntimeError, "For unbatched 2-D input, hx should also be 2-D"),
    "state batch": ((GOOD, x(1, 3, M)), RuntimeError, "Expected hidden size (1, 2, 4), got [1, 3, 4]"),
    "state units": ((GOOD, x(2, BATCH, M)), RuntimeError, "Expected hidden size (1, 2, 4), got [2, 2, 4]"),
    "state width": ((GOOD, x(1, BATCH, 9)), RuntimeError, "Expected hidden size (1, 2, 4), got [1, 2, 9]"),
    "state width, one": ((x(STEPS, N), x(1, 9)), RuntimeError, "Expected hidden size"),
    "state batch, packed": ((PACKED, x(1, 3, M)), RuntimeError, "Expected hidden size (1, 2, 4), got [1, 3, 4]"),
    "state rank, packed": ((PACKED, x(BATCH, M)), RuntimeError, "2-D"),
    "dtype": ((GOOD.double(),), ValueError, "input dtype (torch.float64) does not match weight dtype (torch.float32)"),
    "dtype, whole": ((GOOD.long(),), ValueError, "Convert input: input.to(torch.float32)"),
    "dtype, packed": ((pack_padded_sequence(GOOD.double(), [5, 3]),), ValueError, "does not match weight dtype"),
    "state dtype": ((GOOD, x(1, BATCH, M, dtype=torch.float64)), RuntimeError, "torch.float64"),
    "device": ((x(STEPS, BATCH, N, device="meta"),), RuntimeError, "not on the same device: input on meta"),
    "state device": ((GOOD, x(1, BATCH, M, device="meta")), RuntimeError, "not on the same device"),
    "packed, too few rows": ((PackedSequence(x(3, N), torch.tensor([5, 5])),), RuntimeError, "sum to that, got [5, 5]"),
    "packed, growing": ((PackedSequence(x(3, N), torch.tensor([1, 2])),), RuntimeError, "never grow"),
    "too many": ((GOOD, None, None, None), TypeError, "positional arguments"),
}  # fmt: skip


@pytest.mark.parametrize("case", FORWARD)
def test_forward_of_the_layer(case: str) -> None:
    arguments, error, text = FORWARD[case]
    assert_refused(lambda: MuFuRU(N, M)(*arguments), lambda: nn.GRU(N, M)(*arguments), error, text)


CELL: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "rank 3": ((GOOD,), ValueError, "MuFuRUCell: Expected input to be 1D or 2D, got 3D instead"),
    "rank 0": ((torch.tensor(1.0),), ValueError, "MuFuRUCell: Expected input to be 1D or 2D, got 0D instead"),
    "width": ((x(BATCH, 7),), RuntimeError, "Expected 3, got 7"),
    "state rank": ((x(BATCH, N), x(1, BATCH, M)), ValueError, "Expected hidden to be 1D or 2D, got 3D instead"),
    "state batch": ((x(BATCH, N), x(3, M)), RuntimeError, "got [3, 4], expected [2, 4]"),
    "state of one": ((x(BATCH, N), x(M)), RuntimeError, "got [4], expected [2, 4]"),
    "state width": ((x(BATCH, N), x(BATCH, 9)), RuntimeError, "got [2, 9], expected [2, 4]"),
    "state of many": ((x(N), x(1, M)), RuntimeError, "got [1, 4], expected [4]"),
    "dtype": ((x(BATCH, N, dtype=torch.float64),), RuntimeError, "does not match weight dtype"),
    "state dtype": ((x(BATCH, N), x(BATCH, M, dtype=torch.float64)), RuntimeError, "dtype"),
    "device": ((x(BATCH, N, device="meta"),), RuntimeError, "not on the same device"),
    "state device": ((x(BATCH, N), x(BATCH, M, device="meta")), RuntimeError, "device"),
}


@pytest.mark.parametrize("case", CELL)
def test_forward_of_the_cell(case: str) -> None:
    arguments, error, text = CELL[case]
    assert_refused(lambda: MuFuRUCell(N, M)(*arguments), lambda: nn.GRUCell(N, M)(*arguments), error, text)


PAIR = (x(1, BATCH, M), x(1, BATCH, 6))
STATES: dict[str, tuple[int | None, Any, type[Exception], str]] = {
    "pair, no controller": (
        None,
        PAIR,
        TypeError,
        "hx should be a tensor (pairs are for controller_size=...), got tuple",
    ),
    "text": (None, "zeros", TypeError, "hx should be a tensor"),
    "no pair": (6, PAIR[0], TypeError, "with a recurrent controller hx is a pair (h, k), got Tensor"),
    "three": (6, (*PAIR, PAIR[0]), TypeError, "with a recurrent controller hx is a pair (h, k)"),
    "controller width": (6, (PAIR[0], x(1, BATCH, 5)), RuntimeError, "Expected hidden size (1, 2, 6), got [1, 2, 5]"),
    "swapped": (6, PAIR[::-1], RuntimeError, "Expected hidden size (1, 2, 4), got [1, 2, 6]"),
}


@pytest.mark.parametrize("case", STATES)
def test_states_with_and_without_a_controller(case: str) -> None:
    controller, hx, error, text = STATES[case]
    assert_refused(lambda: MuFuRU(N, M, controller_size=controller)(GOOD, hx), None, error, text)


LENGTHS: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "too long": (GOOD, [6, 2], ValueError, "lengths should lie between 0 and the padded length 5, got 2..6"),
    "negative": (GOOD, [5, -1], ValueError, "lengths should lie between 0 and the padded length 5, got -1..5"),
    "count": (GOOD, [5], ValueError, "lengths should have one number for each of the 2 sequences, got [1]"),
    "rank": (GOOD, [[5, 2]], ValueError, "lengths should have one number for each of the 2 sequences, got [1, 2]"),
    "floats": (GOOD, [5.0, 2.0], TypeError, "lengths should be whole numbers, got torch.float32"),
    "a mask": (GOOD, torch.tensor([True, False]), TypeError, "lengths should be whole numbers, got torch.bool"),
    "unbatched": (GOOD[:, 0], [5], ValueError, "lengths= is for a padded batch (3-D input)"),
    "packed": (PACKED, [5, 3], ValueError, "a PackedSequence carries its own lengths"),
}


@pytest.mark.parametrize("case", LENGTHS)
def test_lengths(case: str) -> None:
    given, lengths, error, text = LENGTHS[case]
    assert_refused(lambda: MuFuRU(N, M)(given, lengths=lengths), None, error, text)


REPLACED: dict[str, tuple[str, Tensor, str]] = {
    "shape": ("weight_hh_l0", torch.zeros(1, M), "weight_hh should have the shape [36, 4], got [1, 4]"),
    "bias shape": ("bias_ih_l0", torch.zeros(35), "bias_ih should have the shape [36], got [35]"),
    "dtype": ("weight_hh_l0", torch.zeros(36, M, dtype=torch.float64), "weight_hh should be torch.float32 on cpu"),
    "device": ("weight_hh_l0", torch.zeros(36, M, device="meta"), "got torch.float32 on meta"),
}


@pytest.mark.parametrize("kernel", ["native", "reference"])
@pytest.mark.parametrize("case", REPLACED)
def test_a_parameter_replaced_by_another_kind(case: str, kernel: Any) -> None:
    name, tensor, text = REPLACED[case]
    layer = MuFuRU(N, M, kernel=kernel)
    setattr(layer, name, nn.Parameter(tensor))
    with pytest.raises(RuntimeError) as caught:
        layer(GOOD)
    assert text in str(caught.value)


@pytest.mark.parametrize("kernel", ["native", "reference"])
@pytest.mark.parametrize("name", ["bias_ih_l0", "bias_hh_l0"])
def test_one_bias_without_the_other(name: str, kernel: Any) -> None:
    layer = MuFuRU(N, M, kernel=kernel)
    setattr(layer, name, None)
    with pytest.raises(RuntimeError, match=f"{name[:7]} should be there: layers have both biases or none"):
        layer(GOOD)


@pytest.mark.parametrize("kernel", ["native", "reference"])
def test_a_learned_state_of_another_precision(kernel: Any) -> None:
    layer = MuFuRU(N, M, kernel=kernel, learn_initial_state=True)
    layer.h_0 = nn.Parameter(layer.h_0.double())
    with pytest.raises(RuntimeError, match=r"h_0 should be torch\.float32 as the input, got torch\.float64"):
        layer(GOOD)
