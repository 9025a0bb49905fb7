"""Wrong calls, each with the error expected; where `nn.GRU` refuses the same call, with its type and its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from mufuru import MuFuRU, MuFuRUCell

STEPS, BATCH, N, M = 5, 2, 3, 4


class Own(str):
    """Words of ours alone: `nn.GRU` takes the call, or fails in the middle of its work and says nothing of it."""


def error_of(call: Callable[[], Any]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def assert_refused(ours: Callable[[], Any], peers: Callable[[], Any] | None, error: type[Exception], text: str) -> None:
    """The peer raises the error with the text, and then ours."""
    theirs = error_of(peers) if peers is not None else None
    if peers is not None and not isinstance(text, Own):
        assert text in str(theirs)
    # these two are accidents: None has no .dim
    if theirs is not None and not isinstance(theirs, AttributeError | IndexError):
        assert type(theirs) is error, f"nn raises {type(theirs).__name__}: {theirs}"
    caught = error_of(ours)
    assert caught is not None, "the call was accepted"
    assert type(caught) is error, f"{type(caught).__name__}: {caught}"
    assert text in str(caught)


def x(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)


GRU_ARGUMENTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "hidden float": ({"hidden_size": 4.5}, TypeError, "hidden_size should be of type int, got: float"),
    "hidden zero": ({"hidden_size": 0}, ValueError, "hidden_size must be greater than zero"),
    "hidden negative": ({"hidden_size": -1}, ValueError, "hidden_size must be greater than zero"),
    "input text": ({"input_size": "3"}, TypeError, "input_size should be of type int, got: str"),
    "input zero": ({"input_size": 0}, ValueError, "input_size must be greater than zero"),
    "no layers": ({"num_layers": 0}, ValueError, "num_layers must be greater than zero"),
    "part of a layer": ({"num_layers": 1.5}, TypeError, Own("num_layers should be of type int, got: float")),
    "layers text": ({"num_layers": "two"}, TypeError, Own("num_layers should be of type int, got: str")),
    "hidden bool": ({"hidden_size": True}, TypeError, Own("hidden_size should be of type int, got: bool")),
    "input of NumPy": ({"input_size": np.int64(3)}, TypeError, "input_size should be of type int, got: int64"),
    "bias text": ({"bias": "no"}, TypeError, "bias should be of type bool, got: str"),
    "bias int": ({"bias": 1}, TypeError, "bias should be of type bool, got: int"),
    "batch_first int": ({"batch_first": 1}, TypeError, "batch_first should be of type bool, got: int"),
    "dropout above": ({"dropout": 1.5}, ValueError, "dropout should be a number in range [0, 1]"),
    "dropout below": ({"dropout": -0.1}, ValueError, "dropout should be a number in range [0, 1]"),
    "dropout bool": ({"dropout": True}, ValueError, "dropout should be a number in range [0, 1]"),
    "dropout text": ({"dropout": "much"}, ValueError, Own("dropout should be a number in range [0, 1]")),
    "projection": ({"proj_size": 2}, ValueError, "proj_size argument is only supported for LSTM, not RNN or GRU"),
    "no projection": ({"proj_size": 0}, ValueError, "proj_size argument is only supported for LSTM, not RNN or GRU"),
    # of several faults the first
    "projection, input zero": ({"proj_size": 2, "input_size": 0}, ValueError, "proj_size"),
    "dropout, bias": ({"dropout": 2.0, "bias": 1}, ValueError, "dropout should be a number"),
    "bias, batch_first": ({"bias": 1, "batch_first": 1}, TypeError, "bias should be of type bool"),
    "batch_first, input zero": ({"batch_first": 1, "input_size": 0}, TypeError, "batch_first should be"),
    "input zero, hidden float": ({"input_size": 0, "hidden_size": 4.5}, ValueError, "input_size must be"),
    "hidden zero, no layers": ({"hidden_size": 0, "num_layers": 0}, ValueError, "hidden_size must be"),
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
    "kernel": (
        {"kernel": "fast"},
        ValueError,
        "kernel should be one of 'auto', 'native', 'triton', 'reference', got 'fast'",
    ),
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


GRU_CELL_ARGUMENTS: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "hidden missing": ((N,), TypeError, "missing 1 required positional argument: 'hidden_size'"),
    "input float": ((3.0, M), TypeError, Own("input_size should be of type int, got: float")),
    "hidden float": ((N, 4.0), TypeError, Own("hidden_size should be of type int, got: float")),
    "input text": (("3", M), TypeError, Own("input_size should be of type int, got: str")),
    "no input": ((None, M), TypeError, Own("input_size should be of type int, got: NoneType")),
    "input negative": ((-1, M), RuntimeError, "Trying to create tensor with negative dimension -1"),
    "hidden negative": ((N, -1), RuntimeError, Own("hidden_size should be 0 or more")),
    "device": ((N, M, True, "nowhere"), RuntimeError, "at start of device string: nowhere"),
    "whole dtype": ((N, M, True, "cpu", torch.int64), RuntimeError, "floating point"),
    "too many": ((N, M, True, "cpu", torch.float32, 1), TypeError, "takes from 3 to 6 positional arguments"),
}


@pytest.mark.parametrize("case", GRU_CELL_ARGUMENTS)
def test_constructor_arguments_of_gru_cell(case: str) -> None:
    arguments, error, text = GRU_CELL_ARGUMENTS[case]
    assert_refused(lambda: MuFuRUCell(*arguments), lambda: nn.GRUCell(*arguments), error, text)


def test_options_are_not_positional() -> None:
    with pytest.raises(TypeError, match="positional arguments"):
        MuFuRU(N, M, 1, True, False, 0.0, False, ("keep",))  # type: ignore[call-arg]


GOOD = x(STEPS, BATCH, N)
PACKED = pack_padded_sequence(GOOD, [5, 3])
UNSORTED = pack_padded_sequence(GOOD, [3, 5], enforce_sorted=False)


def packed(*shape: int, sizes: Any = (5, 3), order: Any = None) -> PackedSequence:
    return PackedSequence(x(*shape), torch.as_tensor(sizes), None if order is None else torch.tensor(order))


NO_INPUT = Own("input should be a tensor or a PackedSequence, got ")
NO_STATE = Own("hx should be a tensor (pairs are for controller_size=...), got ")
SIZES = Own("batch_sizes should be one int64 for each of 1 or more steps, got ")
FORWARD: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "none": ((None,), TypeError, Own(NO_INPUT + "NoneType")),
    "list": (([[1.0, 2.0, 3.0]],), TypeError, Own(NO_INPUT + "list: torch.as_tensor makes a tensor")),
    "tensors": (([x(3, N), x(2, N)],), TypeError, Own("pack_sequence packs a list of tensors")),
    "text": (("abc",), TypeError, Own(NO_INPUT + "str")),
    "NumPy": ((GOOD.numpy(),), TypeError, Own(NO_INPUT + "ndarray")),
    "rank 4": ((x(1, STEPS, BATCH, N),), ValueError, "RU: Expected input to be 2D or 3D, got 4D instead"),
    "rank 1": ((x(N),), ValueError, "Expected input to be 2D or 3D, got 1D instead"),
    "rank 0": ((x(),), ValueError, "Expected input to be 2D or 3D, got 0D instead"),
    "width": ((x(STEPS, BATCH, 7),), RuntimeError, "input.size(-1) must be equal to input_size. Expected 3, got 7"),
    "width, one": ((x(STEPS, 7),), RuntimeError, "input.size(-1) must be equal to input_size. Expected 3, got 7"),
    "width, packed": (
        (pack_padded_sequence(x(STEPS, BATCH, 7), [5, 3]),), RuntimeError, "Expected 3, got 7"
    ),
    "state, pair": ((GOOD, (x(1, BATCH, M), x(1, BATCH, M))), TypeError, Own(NO_STATE + "tuple")),
    "state, list": ((GOOD, [x(1, BATCH, M)]), TypeError, Own(NO_STATE + "list")),
    "state, text": ((GOOD, "zeros"), TypeError, Own(NO_STATE + "str")),
    "state, number": ((GOOD, 0), TypeError, Own(NO_STATE + "int")),
    "state, NumPy": ((GOOD, x(1, BATCH, M).numpy()), TypeError, Own(NO_STATE + "ndarray")),
    "state, packed": ((GOOD, PACKED), TypeError, Own(NO_STATE + "PackedSequence")),
    "state rank": ((GOOD, x(BATCH, M)), RuntimeError, "For batched 3-D input, hx should also be 3-D but got 2-D"),
    "state rank, one": ((x(STEPS, N), x(1, 1, M)), RuntimeError, "For unbatched 2-D input, hx should also be 2-D"),
    "state batch": ((GOOD, x(1, 3, M)), RuntimeError, "Expected hidden size (1, 2, 4), got [1, 3, 4]"),
    "state units": ((GOOD, x(2, BATCH, M)), RuntimeError, "Expected hidden size (1, 2, 4), got [2, 2, 4]"),
    "state width": ((GOOD, x(1, BATCH, 9)), RuntimeError, "Expected hidden size (1, 2, 4), got [1, 2, 9]"),
    "state width, one": ((x(STEPS, N), x(1, 9)), RuntimeError, "Expected hidden size (1, 1, 4), got [1, 1, 9]"),
    "state batch, packed": ((PACKED, x(1, 3, M)), RuntimeError, "Expected hidden size (1, 2, 4), got [1, 3, 4]"),
    "state batch, unsorted": ((UNSORTED, x(1, 3, M)), RuntimeError, Own("Expected hidden size (1, 2, 4), got")),
    "state rank, packed": ((PACKED, x(BATCH, M)), RuntimeError, "Expected hidden size (1, 2, 4), got [2, 4]"),
    "dtype": (
        (GOOD.double(),), ValueError, "RNN input dtype (torch.float64) does not match weight dtype (torch.float32). "
        "Convert input: input.to(torch.float32), or convert model: model.to(torch.float64)",
    ),
    "dtype, whole": ((GOOD.long(),), ValueError, "Convert input: input.to(torch.float32)"),
    "dtype, packed": ((pack_padded_sequence(GOOD.double(), [5, 3]),), ValueError, "RNN input dtype (torch.float64)"),
    "state dtype": ((GOOD, x(1, BATCH, M, dtype=torch.float64)), RuntimeError, Own("hx dtype (torch.float64)")),
    "device": (
        (x(STEPS, BATCH, N, device="meta"),), RuntimeError, "Input and parameter tensors are not at the same device, "
        "found input tensor at meta and parameter tensor at cpu",
    ),
    "state device": (
        (GOOD, x(1, BATCH, M, device="meta")), RuntimeError, "Input and hidden tensors are not at the same device, "
        "found input tensor at cpu and hidden tensor at meta",
    ),
    "packed, rank 3": ((packed(8, 1, N),), RuntimeError, "input must have 2 dimensions, got 3"),
    "packed, rank 1": ((packed(8),), RuntimeError, "input must have 2 dimensions, got 1"),
    "packed, no steps": ((packed(0, N, sizes=torch.zeros(0, dtype=torch.int64)),), RuntimeError, SIZES),
    "packed, int32": ((packed(8, N, sizes=torch.tensor([5, 3], dtype=torch.int32)),), RuntimeError, SIZES),
    "packed, too few rows": ((packed(3, N, sizes=[5, 5]),), RuntimeError, Own("sum to that, got [5, 5]")),
    "packed, too many rows": ((packed(11, N, sizes=[5, 5]),), RuntimeError, Own("sum to that, got [5, 5]")),
    "packed, growing": ((packed(3, N, sizes=[1, 2]),), RuntimeError, Own("never grow")),
    "packed, negative": ((packed(2, N, sizes=[3, -1]),), RuntimeError, Own("sum to that, got [3, -1]")),
    "packed, few indices": (
        (packed(8, N, order=[1, 0]), x(1, 5, M)), RuntimeError, Own("should have as many sorted_indices, got [2]")
    ),
    "too many": ((GOOD, None, None, None, None), TypeError, "positional arguments"),
    # of several faults the first
    "rank, state rank": ((x(N), x(M)), ValueError, "Expected input to be 2D or 3D"),
    "rank, dtype": ((x(N).double(),), ValueError, "Expected input to be 2D or 3D"),
    "state rank, dtype": ((GOOD.double(), x(BATCH, M)), RuntimeError, "hx should also be 3-D"),
    "state rank, width": ((x(STEPS, BATCH, 7), x(BATCH, M)), RuntimeError, "hx should also be 3-D"),
    "dtype, width": ((x(STEPS, BATCH, 7).double(),), ValueError, "RNN input dtype"),
    "dtype, packed rank": ((PackedSequence(x(8, 1, N).double(), torch.tensor([5, 3])),), ValueError, "RNN input dtype"),
    "width, state width": ((x(STEPS, BATCH, 7), x(1, BATCH, 9)), RuntimeError, "input.size(-1) must be equal"),
    "width, device": ((x(STEPS, BATCH, 7, device="meta"),), RuntimeError, "input.size(-1) must be equal"),
    "state width, state dtype": ((GOOD, x(1, BATCH, 9).double()), RuntimeError, "Expected hidden size"),
}  # fmt: skip


@pytest.mark.parametrize("case", FORWARD)
def test_forward_of_the_layer(case: str) -> None:
    arguments, error, text = FORWARD[case]
    assert_refused(lambda: MuFuRU(N, M)(*arguments), lambda: nn.GRU(N, M)(*arguments), error, text)


def test_packed_data_that_are_no_tensor() -> None:
    rows: Any = x(8, N).numpy()
    with pytest.raises(TypeError, match="the data of a PackedSequence should be a tensor, got ndarray"):
        MuFuRU(N, M)(PackedSequence(rows, torch.tensor([5, 3])))


NO_STEP = Own("input should be a tensor, one step of a batch of sequences, got ")
ROWS = x(BATCH, N)
CELL: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "none": ((None,), TypeError, Own(NO_STEP + "NoneType")),
    "list": (([1.0, 2.0, 3.0],), TypeError, Own(NO_STEP + "list: torch.as_tensor makes a tensor")),
    "text": (("abc",), TypeError, Own(NO_STEP + "str")),
    "NumPy": ((ROWS.numpy(),), TypeError, Own(NO_STEP + "ndarray")),
    "packed": (
        (PACKED,),
        TypeError,
        Own("got PackedSequence: torch.as_tensor makes a tensor of numbers, MuFuRU takes"),
    ),
    "rank 3": ((GOOD,), ValueError, "Cell: Expected input to be 1D or 2D, got 3D instead"),
    "rank 0": ((x(),), ValueError, "Cell: Expected input to be 1D or 2D, got 0D instead"),
    "width": ((x(BATCH, 7),), RuntimeError, "input has inconsistent input_size: got 7 expected 3"),
    "width, one": ((x(7),), RuntimeError, "input has inconsistent input_size: got 7 expected 3"),
    "state, pair": ((ROWS, (x(BATCH, M), x(BATCH, M))), TypeError, Own(NO_STATE + "tuple")),
    "state, list": ((ROWS, [x(BATCH, M)]), TypeError, Own(NO_STATE + "list")),
    "state, text": ((ROWS, "zeros"), TypeError, Own(NO_STATE + "str")),
    "state, NumPy": ((ROWS, x(BATCH, M).numpy()), TypeError, Own(NO_STATE + "ndarray")),
    "state, packed": ((ROWS, PACKED), TypeError, Own(NO_STATE + "PackedSequence")),
    "state rank": ((ROWS, x(1, BATCH, M)), ValueError, "Cell: Expected hidden to be 1D or 2D, got 3D instead"),
    "state batch": ((ROWS, x(3, M)), RuntimeError, "Input batch size 2 doesn't match hidden0 batch size 3"),
    "state batch, in full": ((ROWS, x(3, M)), RuntimeError, Own("hx should have the shape [2, 4], got [3, 4]")),
    "state of one": ((ROWS, x(M)), RuntimeError, "Input batch size 2 doesn't match hidden0 batch size 4"),
    "state of one, as wide": ((x(M, N), x(M)), RuntimeError, Own("hx should have the shape [4, 4], got [4]")),
    "state width": ((ROWS, x(BATCH, 9)), RuntimeError, "hidden0 has inconsistent hidden_size: got 9, expected 4"),
    "state width, one": ((x(N), x(9)), RuntimeError, "hidden0 has inconsistent hidden_size: got 9, expected 4"),
    "state of many": ((x(N), x(1, M)), RuntimeError, "hidden0 has inconsistent hidden_size: got 1, expected 4"),
    "dtype": ((ROWS.double(),), RuntimeError, Own("input dtype (torch.float64) does not match weight dtype")),
    "state dtype": ((ROWS, x(BATCH, M).double()), RuntimeError, Own("hx dtype (torch.float64)")),
    "device": ((x(BATCH, N, device="meta"),), RuntimeError, Own("not at the same device")),
    "state device": ((ROWS, x(BATCH, M, device="meta")), RuntimeError, Own("not at the same device")),
    "too many": ((ROWS, None, None), TypeError, "takes from 2 to 3 positional arguments"),
    # of several faults the first
    "rank, state rank": ((GOOD, x(1, BATCH, M)), ValueError, "Expected input to be 1D or 2D"),
    "state rank, width": ((x(BATCH, 7), x(1, BATCH, M)), ValueError, "Expected hidden to be 1D or 2D"),
    "width, dtype": ((x(BATCH, 7).double(),), RuntimeError, "input has inconsistent input_size"),
    "width, state width": ((x(BATCH, 7), x(BATCH, 9)), RuntimeError, "input has inconsistent input_size"),
    "state batch, state width": ((ROWS, x(3, 9)), RuntimeError, "Input batch size 2 doesn't match"),
    "state width, dtype": ((ROWS.double(), x(BATCH, 9)), RuntimeError, "hidden0 has inconsistent hidden_size"),
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
    "packed": (6, PACKED, TypeError, "with a recurrent controller hx is a pair (h, k), got PackedSequence"),
    "NumPy": (6, PAIR[0].numpy(), TypeError, "with a recurrent controller hx is a pair (h, k), got ndarray"),
    "half a pair": (6, (PAIR[0], None), TypeError, "a pair (h, k) of tensors, got (Tensor, NoneType)"),
    "pair of NumPy": (6, (PAIR[0].numpy(), PAIR[1]), TypeError, "a pair (h, k) of tensors, got (ndarray, Tensor)"),
    "controller rank": (6, (PAIR[0], PAIR[1][0]), RuntimeError, "hx should also be 3-D but got 2-D tensor"),
    "controller width": (6, (PAIR[0], x(1, BATCH, 5)), RuntimeError, "Expected hidden size (1, 2, 6), got [1, 2, 5]"),
    "swapped": (6, PAIR[::-1], RuntimeError, "Expected hidden size (1, 2, 4), got [1, 2, 6]"),
}


@pytest.mark.parametrize("case", STATES)
def test_states_with_and_without_a_controller(case: str) -> None:
    controller, hx, error, text = STATES[case]
    assert_refused(lambda: MuFuRU(N, M, controller_size=controller)(GOOD, hx), None, error, text)


CELL_STATES: dict[str, tuple[Any, type[Exception], str]] = {
    "no pair": (x(BATCH, M), TypeError, "with a recurrent controller hx is a pair (h, k), got Tensor"),
    "half a pair": ((x(BATCH, M), None), TypeError, "a pair (h, k) of tensors, got (Tensor, NoneType)"),
    "rank": ((x(BATCH, M), x(1, BATCH, 6)), ValueError, "Expected controller to be 1D or 2D, got 3D instead"),
    "width": (
        (x(BATCH, M), x(BATCH, 5)),
        RuntimeError,
        "controller0 has inconsistent controller_size: got 5, expected 6",
    ),
    "batch": ((x(BATCH, M), x(3, 6)), RuntimeError, "Input batch size 2 doesn't match controller0 batch size 3"),
    "dtype": ((x(BATCH, M), x(BATCH, 6).double()), RuntimeError, "hx dtype (torch.float64)"),
}


@pytest.mark.parametrize("case", CELL_STATES)
def test_states_of_a_cell_with_a_controller(case: str) -> None:
    hx, error, text = CELL_STATES[case]
    assert_refused(lambda: MuFuRUCell(N, M, controller_size=6)(ROWS, hx), None, error, text)


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
    with pytest.raises(RuntimeError, match=r"hx dtype \(torch\.float64\) does not match weight dtype"):
        layer(GOOD)
