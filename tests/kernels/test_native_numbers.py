"""The native kernel's numbers: its functions, instruction sets, NaN, half precision, and what Python mirrors."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kernel_calls import MANY, UNEVEN, assert_kernels_agree, leaves_of, make_call, needs_native
from torch import Tensor

import mufuru.kernels
from mufuru import MuFuRU, ops
from mufuru.kernels import native, reference
from mufuru.kernels.call import INPUTS, OUTPUTS
from mufuru.kernels.problem import MAX_OPS, POINTERS, SAVED, SIZES, loaded
from mufuru.ops import CUSTOM
from mufuru.unit import ACTIVATIONS, RESETS

pytestmark = needs_native
SOURCE = Path(mufuru.kernels.__file__).parent / "csrc"
Array = np.ndarray[Any, Any]
FUNCTIONS = ("exp", "tanh", "sigmoid")
WIDE: dict[Any, Any] = {np.float32: np.float64, np.float64: np.longdouble}
"""To compute what the numbers should be: at least 11 bits more."""


def computed(name: str, x: Array) -> Array:
    y = np.full_like(x, np.nan)
    loaded().mufuru_function(x.dtype == np.float64, FUNCTIONS.index(name), x.size, x.ctypes.data, y.ctypes.data)
    return y


def exact(name: str, x: Array, wide: Any) -> Array:
    x = x.astype(wide)
    if name == "sigmoid":
        return np.asarray(np.where(x > 0, 1 / (1 + np.exp(-abs(x))), np.exp(-abs(x)) / (1 + np.exp(-abs(x)))))
    return np.asarray({"exp": np.exp, "tanh": np.tanh}[name](x))


def useful(name: str, dtype: Any) -> Array:
    """Dense where results change, and near 0 down to the smallest; no vector's size divides their number."""
    lowest = float(np.log(np.finfo(dtype).tiny))
    highest = {"exp": float(np.log(np.finfo(dtype).max)) - 0.4, "sigmoid": 40.0, "tanh": 40.0}[name]
    rng = np.random.default_rng(0)
    tiny = 10.0 ** rng.uniform(-37, 0, 50_001) * rng.choice([-1, 1], 50_001)
    around_one = rng.uniform(-1.5, 1.5, 150_000)
    wide = rng.uniform(-highest if name == "tanh" else lowest, highest, 200_000)
    return np.concatenate([tiny, around_one, wide]).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_two_units_in_the_last_place(instruction_set: str, name: str, dtype: Any) -> None:
    wide: Any = WIDE[dtype]
    if np.finfo(wide).nmant < np.finfo(dtype).nmant + 11:
        pytest.skip("NumPy has no wider numbers here")
    x = useful(name, dtype)
    wanted = exact(name, x, wide)
    unit = np.spacing(np.abs(wanted).astype(dtype)).astype(wide)
    error = np.abs(computed(name, x).astype(wide) - wanted) / unit
    worst = int(error.argmax())
    # 2 is what the kernel promises
    assert error[worst] <= 2, f"{name}({x[worst]!r}) is {float(error[worst]):.2f} units off"


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_functions_at_the_ends(instruction_set: str, dtype: Any) -> None:
    ends = np.array([-np.inf, -1e30, -0.0, 0.0, 1e30, np.inf, np.nan], dtype)
    assert computed("exp", ends).tolist()[:6] == [0, 0, 1, 1, np.inf, np.inf]
    assert computed("tanh", ends).tolist()[:6] == [-1, -1, 0, 0, 1, 1]
    assert computed("sigmoid", ends).tolist()[:6] == [0, 0, 0.5, 0.5, 1, 1]
    assert np.signbit(computed("tanh", ends)).tolist()[2:4] == [True, False]
    for name in FUNCTIONS:
        assert np.isnan(computed(name, ends)[-1]), name


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_functions_below_the_normal_numbers(instruction_set: str, dtype: Any) -> None:
    tiny = np.finfo(dtype).tiny
    x = (np.log(tiny) - np.linspace(1e-3, 40, 1001)).astype(dtype)
    for name in ("exp", "sigmoid"):
        y = computed(name, x)
        # subnormal results may be flushed to 0: the error is below the smallest normal number
        assert ((y >= 0) & (y < tiny)).all(), name


def test_a_short_vector_leaves_its_neighbours_alone(instruction_set: str) -> None:
    for n in range(1, 35):
        x, y = np.linspace(-1, 1, 40, dtype=np.float32), np.full(40, 7, np.float32)
        loaded().mufuru_function(0, 1, n, x.ctypes.data, y.ctypes.data)
        assert (y[n:] == 7).all()
        assert (y[:n] != 7).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("controller", [None, "tanh", "relu"])
@pytest.mark.parametrize("reset", ["before", "after", None])
def test_instruction_sets_agree_with_the_reference(
    instruction_set: str, reset: Any, controller: str | None, dtype: torch.dtype
) -> None:
    chooser: dict[str, Any] = {} if controller is None else {"controller": 7, "controller_activation": controller}
    masks = ("state", "zoneout", "allowed")
    names = tuple(op.name for op in ops.native())
    for hidden in (11, 35):
        call = make_call(names, reset=reset, hidden=hidden, dtype=dtype, masks=masks, **chooser)
        assert_kernels_agree(call)
        assert_kernels_agree(make_call(names, reset=reset, hidden=hidden, dtype=dtype, batch=MANY))
        shapes = {"batch_sizes": UNEVEN, "reverse": True, "activation": "sigmoid"}
        assert_kernels_agree(make_call(reset=reset, hidden=hidden, dtype=dtype, **shapes, **chooser))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("controller", [None, 7])
@pytest.mark.parametrize("where", ["x", "s0", "k0", "infinite x"])
@pytest.mark.parametrize("batch", [7, MANY])
def test_nan_stays_in_its_sequence(
    instruction_set: str, batch: int, where: str, controller: int | None, dtype: torch.dtype
) -> None:
    if where == "k0" and controller is None:
        pytest.skip("there is no k0")
    call = make_call(controller=controller, batch=batch, dtype=dtype)
    clean = native.sequence(call)
    with torch.no_grad():
        if where in ("s0", "k0"):
            getattr(call, where)[2, 5] = torch.nan
        else:
            # infinity times weights of both signs is NaN in the products
            call.x[2] = torch.nan if where == "x" else torch.inf
    result = native.sequence(call)
    others = torch.arange(batch) != 2
    steps, clean_steps = (r.output.view(4, batch, 11) for r in (result, clean))
    assert torch.equal(steps[:, others], clean_steps[:, others])
    if where != "infinite x":
        assert steps[-1, 2].isnan().all()
    grad = torch.autograd.grad(result.output.view(4, batch, 11)[:, others].sum(), call.x)[0].view(4, batch, 3)
    assert grad[:, others].isfinite().all()


@pytest.mark.parametrize("controller", [None, "tanh", "relu"])
@pytest.mark.parametrize("where", ["x", "s0", "k0"])
def test_gradients_are_nan_where_the_references_are(instruction_set: str, where: str, controller: str | None) -> None:
    if where == "k0" and controller is None:
        pytest.skip("there is no k0")
    call = make_call(**({} if controller is None else {"controller": 7, "controller_activation": controller}))
    with torch.no_grad():
        getattr(call, where)[-1] = torch.nan
    leaves = leaves_of(call)
    found, wanted = (
        torch.autograd.grad(kernel(call).output.sum(), list(leaves.values()))
        for kernel in (native.sequence, reference.sequence)
    )
    for name, gradient, expected in zip(leaves, found, wanted, strict=True):
        assert expected.isnan().any(), name
        assert torch.equal(gradient.isnan(), expected.isnan()), name


@pytest.mark.parametrize("infinity", [torch.inf, -torch.inf])
@pytest.mark.parametrize(
    ("where", "controller"), [("bias_ih", None), ("bias_hh", None), ("bias_op", 7), ("k0", 7), ("x", 7), ("s0", 7)]
)
def test_infinities_come_out_as_the_references(
    instruction_set: str, where: str, controller: int | None, infinity: float
) -> None:
    """Where no weights were subtracted from each other, as they are for the logits of a unit without controller."""
    for place in range(5):
        call = make_call(controller=controller)
        tensor = leaves_of(call)[where]
        with torch.no_grad():
            tensor.flatten()[place * tensor.numel() // 5] = infinity
            found, wanted = native.sequence(call), reference.sequence(call)
        torch.testing.assert_close(found[:2], wanted[:2], rtol=0, atol=1e-10, equal_nan=True)


def test_what_the_sanitizers_check_calls_is_there() -> None:
    """`make sanitize` is not part of the tests: a function that was renamed would show there only."""
    functions = [
        set(re.findall(r"^[\w ]+?\**(mufuru_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE))
        for file in (Path(__file__).with_name("native_check.cpp"), SOURCE / "entry.cpp")
    ]
    assert "mufuru_forward" in functions[0]
    assert functions[0] <= functions[1]


def test_operation_codes() -> None:
    body = re.search(r"enum class Op[^{]*\{(.*?)\};", (SOURCE / "ops.h").read_text(encoding="utf-8"), re.DOTALL)
    assert body is not None
    codes = {name: int(code) for name, code in re.findall(r"(\w+) = (\d+)", body[1])}
    assert codes == {op.name: op.native_code for op in ops.native()}
    assert sorted(codes.values()) == list(range(len(codes)))


def test_constants() -> None:
    text = (SOURCE / "problem.h").read_text(encoding="utf-8")
    constants = dict(re.findall(r"constexpr int64_t (\w+) = (\d+);", text))
    assert int(constants["kMaxOps"]) == MAX_OPS
    assert int(constants["kCustom"]) == CUSTOM


def enumeration(name: str) -> dict[str, int]:
    text = (SOURCE / "problem.h").read_text(encoding="utf-8")
    body = re.search(rf"enum {name} : int64_t \{{(.*?)\}};", text, re.DOTALL)
    assert body is not None
    return {word.lower(): int(code) for word, code in re.findall(r"k(\w+) = (\d+)", body[1])}


def test_options_as_numbers() -> None:
    assert enumeration("Reset") == {name or "noreset": code for name, code in RESETS.items()}
    assert enumeration("Activation") == ACTIVATIONS


def fields_in_c() -> dict[str, str]:
    """The fields of `struct Problem` with their types."""
    text = re.sub(r"//.*", "", (SOURCE / "problem.h").read_text(encoding="utf-8"))
    body = re.search(r"struct Problem \{(.*?)\n\};", text, re.DOTALL)
    assert body is not None
    fields: dict[str, str] = {}
    for declaration in body[1].split(";"):
        if words := re.match(r"\s*((?:const )?\w+)(.*)", declaration, re.DOTALL):
            fields |= {name: words[1] + star for star, name in re.findall(r"(\*?)\s*(\w+)", words[2])}
    return fields


def test_fields_of_the_problem() -> None:
    """They are the rows of the table of tensors: names, order and types."""
    fields = fields_in_c()
    assert list(fields) == [*SIZES, *POINTERS]
    assert {fields[name] for name in SIZES} == {"int64_t"}
    kinds = {None: "const void*", torch.int64: "const int64_t*", torch.bool: "const uint8_t*"}
    begin = POINTERS.index("x")
    for name, row in zip(POINTERS[begin:], (*INPUTS, *OUTPUTS, *SAVED), strict=False):
        assert fields[name] == ("void*" if row.role in ("output", "saved") else kinds[row.dtype]), name
    # every field has 64 bits, so the order is all there is to the layout
    assert loaded().mufuru_problem_size() == 8 * len(fields)


def layer_and_input(dtype: torch.dtype, **options: Any) -> tuple[MuFuRU, Tensor, Tensor]:
    layer = MuFuRU(3, 11, kernel="native", dtype=dtype, **options)
    return layer, torch.randn(4, 5, 3).to(dtype), torch.randn(1, 5, 11).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_float32_rounded(dtype: torch.dtype) -> None:
    layer, x, h = layer_and_input(dtype)
    single = copy.deepcopy(layer).float()
    output, wanted = layer(x, h)[0], single(x.float(), h.float())[0]
    assert torch.equal(output, wanted.to(dtype))
    grad = torch.randn(output.shape).to(dtype)
    output.backward(grad)
    wanted.backward(grad.float())
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert torch.equal(parameter.grad, single.get_parameter(name).grad.to(dtype)), name


def test_autocast_of_a_model_in_half_precision_rounds_once() -> None:
    """Between two kinds of half precision the result is in float32, and so are all steps to it."""
    half = MuFuRU(3, 4, 2).half()
    x, whole = torch.randn(5, 2, 3).half(), copy.deepcopy(half).float()
    with torch.autocast("cpu", torch.bfloat16):
        output, h_n = half(x)
    wanted, last = whole(x.float())
    assert torch.equal(output, wanted)
    assert torch.equal(h_n, last)


def test_autocast_computes_in_float32() -> None:
    layer, x, h = layer_and_input(torch.float32)
    wanted = layer(x, h)[0]
    wanted.sum().backward()
    grads = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, h_n = layer(x, h)
        rough = layer(x.bfloat16(), h.bfloat16())[0]
    assert torch.equal(output, wanted)
    assert h_n.dtype == torch.float32
    assert rough.dtype == torch.bfloat16
    output.sum().backward()
    for grad, parameter in zip(grads, layer.parameters(), strict=True):
        assert torch.equal(parameter.grad, grad)


@pytest.mark.parametrize("noise", ["zoneout", "state_dropout"])
def test_autocast_with_noise(noise: str) -> None:
    """The masks too are in the precision that is computed in."""
    layer, x, h = layer_and_input(torch.float32, **{noise: 0.5})
    found: list[Tensor] = []
    for half in (False, True):
        torch.manual_seed(3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found.append(layer(x.bfloat16() if half else x.bfloat16().float(), h)[0])
    assert torch.equal(found[0], found[1])


def test_float16_may_hold_what_float32_computes() -> None:
    """A sum beyond float16's largest number, on its way to a feature of 1."""
    layer, x, h = layer_and_input(torch.float16)
    with torch.no_grad():
        layer.weight_ih_l0.fill_(30000)
    assert layer(x.abs() + 1, h)[0].isfinite().all()


def test_runs_of_both_precisions_do_not_disturb_each_other() -> None:
    for dtype in (torch.float32, torch.float64, torch.float32):
        call = make_call(dtype=dtype)
        assert {leaf.dtype for leaf in leaves_of(call).values()} == {dtype}
        assert_kernels_agree(call)
