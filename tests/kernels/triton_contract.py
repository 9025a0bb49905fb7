"""The Triton kernel against the reference, in the interpreter or on a GPU: `test_triton_contract.py` runs this file
in a process of its own, for the interpreter with TRITON_INTERPRET=1 set before Triton is imported.

The interpreter runs a kernel's programs one after the other in NumPy: it shows wrong values, and no races.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_calls import (
    UNEVEN,
    assert_close,
    everything,
    gradients,
    leaves_of,
    make_call,
    outputs_of,
    replace_weights,
)  # fmt: skip
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional

import mufuru
from mufuru import ops
from mufuru.kernels import Call, Masks, call_to, reference
from mufuru.kernels import triton as kernel
from mufuru.kernels.call import MASKS, N_DIFFERENTIABLE, interpreted
from mufuru.ops import resolve
from mufuru.unit import ACTIVATIONS

if not interpreted() and not torch.cuda.is_available():
    pytest.skip("run by test_triton_contract.py, in Triton's interpreter or on a GPU", allow_module_level=True)

import triton
import triton.language as tl
from triton.runtime import interpreter

from mufuru.kernels.triton import operations, operators, own, persistent, pointwise, prepare, tiled
from mufuru.kernels.triton.operations import composed
from mufuru.kernels.triton.plan import REGIMES, Plan

DEVICE = "cpu" if interpreted() else "cuda"
BUILT_IN = tuple(op.name for op in ops.native())
THREE = ("keep", "max", "replace")
"""Enough where all operations are treated alike: the interpreter takes its time for each."""
# the interpreter computes in NumPy, which warns where a GPU goes on
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the interpreter's time goes into patching triton.language again for every function that a kernel calls,
    and into checks of integers for overflow, which `test_offsets_need_64_bits` makes."""
    if DEVICE != "cpu":
        return
    monkeypatch.setattr(
        interpreter.InterpretedFunction, "__call__", lambda self, *args, **options: self.rewrite()(*args, **options)
    )
    unchecked = interpreter.InterpreterOptions(sanitize_overflow=False)
    monkeypatch.setattr(interpreter.interpreter_builder, "options", unchecked)


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 16, so that small layers have several, and edges."""
    choose: Any = vars(prepare)["plan"]

    def small(*args: Any) -> Plan:
        how: Plan = choose(*args)
        if how.regime == "persistent":
            return how
        return how._replace(tile={"BLOCK_B": 16, "BLOCK_H": 16, "BLOCK_K": 16})

    monkeypatch.setattr(prepare, "plan", small)


@pytest.fixture(params=REGIMES)
def regime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MUFURU_TRITON_REGIME", request.param)
    return request.param


def agree(call: Call, tolerance: float | None = None) -> None:
    """All that comes out, with all gradients."""
    assert kernel.obstacle(call) == ""
    leaves = leaves_of(call)
    expected = everything(reference.sequence, call, leaves)
    assert_close(everything(kernel.sequence, call, leaves), expected, tolerance)


def single(*args: Any, **options: Any) -> Call:
    """A random call in float32 on the device; its lengths stay on the CPU."""
    call = make_call(*args, **{"dtype": torch.float32, "steps": 3} | options)
    tensors = [
        tensor if tensor is None or tensor is call.batch_sizes else tensor.detach().to(DEVICE)
        for tensor in call.tensors()
    ]
    for tensor in tensors[:N_DIFFERENTIABLE]:
        if tensor is not None:
            tensor.requires_grad_()
    return call.settings().call(tensors)


OPTIONS: dict[str, tuple[Any, ...]] = {
    "ops": (("keep", "replace"), ("replace",), ("forget", "max"), ops.PAPER, BUILT_IN[::-1]),
    "reset": ("before", "after", None),
    "activation": ("tanh", "sigmoid"),
    "controller": (None, 7, 18),
    "controller_activation": ("tanh", "relu"),
    "bias": (True, False),
    "batch_sizes": (None, UNEVEN, (5, 2)),
    "reverse": (False, True),
    "masks": ((), ("state",), ("zoneout",), ("allowed",), ("resets",), ("state", "zoneout", "allowed", "resets")),
    "trace": (False, True),
}
COUNT = int(os.environ.get("COMBINATIONS", "5"))


@pytest.mark.parametrize("combination", range(COUNT))
def test_combinations(regime: str, combination: int) -> None:
    rows = random.Random(REGIMES.index(regime)).sample(list(itertools.product(*OPTIONS.values())), COUNT)
    agree(single(hidden=19, **dict(zip(OPTIONS, rows[combination], strict=True))))


ONE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "reset after": {"reset": "after"},
    "no reset": {"reset": None},
    "sigmoid": {"activation": "sigmoid"},
    "controller": {"controller": 7},
    "controller with relu": {"controller": 7, "controller_activation": "relu"},
    "no bias": {"bias": False},
    "uneven": {"batch_sizes": UNEVEN},
    "backwards": {"batch_sizes": UNEVEN, "reverse": True},
    "everything": {"masks": ("state", "zoneout", "allowed", "resets"), "controller": 7, "batch_sizes": UNEVEN},
}


@pytest.mark.parametrize("option", ONE)
def test_one_option(regime: str, option: str) -> None:
    agree(single(THREE, hidden=11, trace=False, **ONE[option]))


def test_without_gradients(regime: str) -> None:
    call = single(THREE, controller=7)
    with torch.no_grad():
        found = outputs_of(kernel.sequence(call))
    assert_close(found, outputs_of(reference.sequence(call)))


@pytest.mark.skipif(DEVICE != "cpu", reason="a GPU runs programs in any order")
def test_the_order_of_programs_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last program of every launch first: none reads what another one writes in the same launch."""
    monkeypatch.setenv("MUFURU_TRITON_REGIME", "stepwise")
    call = single(THREE, hidden=19, controller=18, masks=("state", "resets"))
    wanted = everything(kernel.sequence, call, leaves_of(call))
    order: list[tuple[int, ...]] = []

    def backwards(self: Any, *place: int) -> None:
        self.grid_idx = tuple(size - 1 - at for size, at in zip(self.grid_dim, place, strict=True))
        order.append(self.grid_idx)

    monkeypatch.setattr(type(interpreter.interpreter_builder), "set_grid_idx", backwards)
    found = everything(kernel.sequence, call, leaves_of(call))
    assert (0, 3, 0) in order  # both units and controller have two tiles
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name


@triton.jit  # type: ignore[untyped-decorator]
def _composed(s, v, value, ds, dv, CODE: tl.constexpr, FUNCTIONS: tl.constexpr, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, COUNT)
    a, b, c = composed(CODE, FUNCTIONS, tl.load(s + at), tl.load(v + at))
    tl.store(value + at, a)
    tl.store(ds + at, b)
    tl.store(dv + at, c)


def composed_by_triton(code: int, s: Tensor, v: Tensor, function: Any = None) -> tuple[Tensor, ...]:
    found = tuple(torch.empty_like(s) for _ in range(3))
    functions = () if function is None else (function,)
    _composed[(1,)](s, v, *found, CODE=code, FUNCTIONS=functions, COUNT=len(s))
    return found


def composed_by_torch(function: Callable[[Tensor, Tensor], Tensor], s: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    s, v = s.clone().requires_grad_(), v.clone().requires_grad_()
    value = function(s, v)
    if not value.requires_grad:
        return value, torch.zeros_like(s), torch.zeros_like(s)
    ds, dv = torch.autograd.grad(value.sum(), (s, v), materialize_grads=True)
    return value.detach(), ds, dv


NAN = tuple(
    torch.tensor(row, device=DEVICE) for row in ([torch.nan, 1.0, torch.nan, 0.0], [0.5, torch.nan, torch.nan, 0.0])
)
EDGES = torch.tensor([-2.0, -0.5, -0.25, -0.0, 0.0, 0.25, 0.5, 2.0], device=DEVICE)
GRID = EDGES.repeat_interleave(8), EDGES.repeat(8)
"""All pairs: many are ties."""


@pytest.mark.parametrize("op", [ops.with_code(code) for code in operations.CODES], ids=lambda op: op.name)
def test_operation_beside_its_row(op: ops.Op) -> None:
    """Value and derivatives, at ties too; NaN comes through as in torch."""
    for s, v in (GRID, NAN):
        found, wanted = composed_by_triton(op.code, s, v), composed_by_torch(op.function, s, v)
        torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=0, equal_nan=True)
        if s is GRID[0]:
            torch.testing.assert_close(found[1:], wanted[1:], rtol=0, atol=0)


@triton.jit  # type: ignore[untyped-decorator]
def _activated(x, y, slope, KIND: tl.constexpr, COUNT: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, COUNT)
    value = pointwise.activate(tl.load(x + at), KIND)
    tl.store(y + at, value)
    tl.store(slope + at, pointwise.pull_back(tl.full((COUNT,), 1.0, tl.float32), value, KIND))


@pytest.mark.parametrize(("name", "kind"), ACTIVATIONS.items())
def test_activation(name: str, kind: int) -> None:
    """Few units in the last place everywhere: around 0, where a polynomial takes over, far out, and NaN."""
    near = torch.linspace(-0.6, 0.6, 4001)
    far = torch.tensor([0.0, -0.0, 1e-30, -1e-7, 9.0, -9.0, 88.0, -88.0, 1e30, -1e30, torch.inf, -torch.inf])
    x = torch.cat([near, 10 * near, far, torch.full((8192 - 2 * 4001 - 12,), torch.nan)]).to(DEVICE).requires_grad_()
    y, slope = torch.empty_like(x), torch.empty_like(x)
    _activated[(1,)](x.detach(), y, slope, KIND=kind, COUNT=8192)
    wanted = getattr(torch, name)(x)
    torch.testing.assert_close(y, wanted.detach(), rtol=5e-7, atol=1e-38, equal_nan=True)
    (expected,) = torch.autograd.grad(wanted.sum(), x)
    known = ~expected.isnan() & ~x.isnan()
    torch.testing.assert_close(slope[known], expected[known], rtol=1e-6, atol=3e-7)


@pytest.mark.parametrize("op", ops.native(), ids=lambda op: op.name)
def test_operation_made_of_its_row(op: ops.Op) -> None:
    """What an operation gets that nobody wrote in Triton."""
    assert op.native_code is not None
    made = own.translation(op.native_code).function
    for s, v in (GRID, NAN):
        found, wanted = composed_by_triton(ops.CUSTOM, s, v, made), composed_by_torch(op.function, s, v)
        torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=0, equal_nan=True)
        if s is GRID[0]:
            torch.testing.assert_close(found[1:], wanted[1:], rtol=0, atol=0)


def test_new_operations_need_no_triton(regime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "CODES", range(2))
    agree(single(("keep", "max", "replace", "diff"), hidden=11))


def soft(s: Tensor, v: Tensor) -> Tensor:
    return torch.tanh(s + 0.5 * v)


def gated(s: Tensor, v: Tensor) -> Tensor:
    return s * torch.sigmoid(3 * v) + torch.where(s > v, s, 0.1 * v)


def smooth(s: Tensor, v: Tensor) -> Tensor:
    return functional.softplus(s) - functional.gelu(v) + torch.lerp(s, v, 0.25) ** 2


def bounded(s: Tensor, v: Tensor) -> Tensor:
    return (s + v).clamp(-0.6, 0.6) + functional.relu(s) * torch.maximum(s, v) / (1 + v.abs())


def waves(s: Tensor, v: Tensor) -> Tensor:
    return torch.sin(s) * torch.cos(v) + torch.log1p(s * s) - torch.exp(-v) + functional.elu(s) + functional.silu(v)


def rooted(s: Tensor, v: Tensor) -> Tensor:
    return (s * s + v * v + 0.1).sqrt() + torch.erf(s) + torch.sign(v) * torch.minimum(s, v) + s * (v > 0)


def lowered(s: Tensor, v: Tensor) -> Tensor:
    return torch.minimum(s, v).clamp_max(0.3)


def raised(s: Tensor, v: Tensor) -> Tensor:
    return torch.maximum(s, v).clamp_min(-0.3)


@pytest.mark.parametrize("function", [soft, gated, smooth, bounded, waves, rooted, lowered, raised])
def test_python_operation_is_translated(function: Any) -> None:
    (op,) = resolve([function])
    found = own.translation(op.code)
    assert found.reason == ""
    random = torch.randn(64, device=DEVICE), torch.randn(64, device=DEVICE)
    for s, v in (random, GRID):
        translated = composed_by_triton(ops.CUSTOM, s, v, found.function)
        # Triton's exp, log and division are right to a few units in the last place
        torch.testing.assert_close(translated, composed_by_torch(function, s, v), rtol=1e-5, atol=1e-6)
    s, v = NAN
    found_nan = composed_by_triton(ops.CUSTOM, s, v, found.function)[0].isnan()
    assert torch.equal(found_nan, composed_by_torch(function, s, v)[0].isnan())


def test_python_operations_in_a_layer(regime: str) -> None:
    agree(single(("keep", soft, "max", gated), hidden=11))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda s, v: s if s.sum() > 0 else v, "not element-wise|cannot be traced to Triton"),
        (lambda s, v: s.roll(1, -1), "is not element-wise"),
        (lambda s, v: torch.hypot(s, v), "uses hypot, which has no translation to Triton"),
        (lambda s, v: s / s.size(-1), "uses sym_size, which has no translation|is not element-wise"),
        (lambda s, v: (1 + s.abs()) ** 1.7, "uses a power of"),
        (lambda s, v: s + torch.rand_like(v), "draws random numbers"),
    ],
)
def test_python_operation_that_has_no_translation(function: Any, reason: str) -> None:
    layer = mufuru.MuFuRU(3, 4, ops=("keep", function), kernel="triton", device=DEVICE)
    with pytest.raises(RuntimeError, match=reason):
        layer(torch.randn(2, 3, 3, device=DEVICE))


def test_a_python_operation_that_changes_is_translated_anew() -> None:
    factor = [0.5]
    layer = mufuru.MuFuRU(3, 4, ops=("keep", lambda s, v: factor[0] * s + v), kernel="triton", device=DEVICE)
    x = torch.randn(2, 3, 3, device=DEVICE)
    for factor[0] in (0.5, 0.25):
        with mufuru.use_kernel("reference"):
            expected = layer(x)[0]
        torch.testing.assert_close(layer(x)[0], expected)


def test_a_limit_far_from_0_that_changes_is_translated_anew() -> None:
    limit = [2.9]
    layer = mufuru.MuFuRU(3, 4, ops=("keep", lambda s, v: (3 * v).clamp(max=limit[0])), kernel="triton", device=DEVICE)
    x = 20 * torch.randn(2, 3, 3, device=DEVICE)
    for limit[0] in (2.9, 2.5):
        with mufuru.use_kernel("reference"):
            expected = layer(x)[0]
        torch.testing.assert_close(layer(x)[0], expected)


def test_a_python_operation_that_changes_before_the_backward_pass_is_noticed() -> None:
    factor = [0.5]
    layer = mufuru.MuFuRU(3, 4, ops=("keep", lambda s, v: factor[0] * s + v), kernel="triton", device=DEVICE)
    output = layer(torch.randn(2, 3, 3, device=DEVICE))[0]
    factor[0] = 0.25
    with pytest.raises(RuntimeError, match="gives other values than in the forward pass"):
        output.sum().backward()


def test_it_has_all_masks_of_a_call() -> None:
    """Masks go to the loops by their places."""
    names = [row.name for row in MASKS]
    for loop in (
        persistent.forward,
        persistent.backward,
        tiled.forward,
        tiled.backward,
        tiled.renew_step,
        tiled.return_step,
    ):
        begin = loop.arg_names.index("offsets") + 1
        assert loop.arg_names[begin : begin + len(names)] == names, loop.fn.__name__


def tied(call: Call) -> Call:
    """State and features both 0, where max, min and diff have a corner; the logits are random still."""

    def without_features(weight: Tensor) -> Tensor:
        changed = weight.detach().clone()
        changed[: call.unit.hidden_size] = 0
        return changed.requires_grad_()

    names = ("ih", "hh", "bias_ih", "bias_hh")
    weights = call.weights._replace(**{name: without_features(getattr(call.weights, name)) for name in names})
    return call._replace(weights=weights, s0=torch.zeros_like(call.s0, requires_grad=True))


def strided(tensor: Tensor) -> Tensor:
    """The same numbers, two apart in every direction, between NaN."""
    wide = torch.full([2 * size for size in tensor.shape], torch.nan, dtype=tensor.dtype, device=DEVICE)
    view = wide[tuple(slice(None, None, 2) for _ in tensor.shape)]
    return view.copy_(tensor.detach()).requires_grad_()


def with_strides(call: Call) -> Call:
    call = replace_weights(call, strided)
    masks = Masks(*(None if mask is None else mask.t().contiguous().t() for mask in call.masks))
    return call._replace(x=strided(call.x), s0=strided(call.s0), masks=masks)


EDGE_CASES: dict[str, Callable[[], Call]] = {
    "ties": lambda: tied(single(("max", "min", "diff", "keep"))),
    "one step": lambda: single(THREE, steps=1),
    "no step": lambda: single(THREE, steps=0),
    "no batch": lambda: single(THREE, batch=0),
    "no lengths": lambda: single(THREE, batch_sizes=()),
    "controller, no step": lambda: single(steps=0, controller=7),
    "two blocks of sequences": lambda: single(("keep", "replace"), batch=19, batch_sizes=(18, 17, 1), controller=7),
    "one unit": lambda: single(THREE, hidden=1),
    "a power of two": lambda: single(THREE, hidden=16, controller=16),
    "strided": lambda: with_strides(single(THREE, masks=("state", "zoneout", "allowed"))),
}


@pytest.mark.parametrize("case", EDGE_CASES)
def test_edges(regime: str, case: str) -> None:
    agree(EDGE_CASES[case]())


FAR = 50
"""Bits between the addresses of two pointers."""


class Pointer:
    """A tensor of which nothing but its address exists: far from all others, and of any size."""

    def __init__(self, place: int, dtype: torch.dtype) -> None:
        self.place, self.dtype = place, dtype

    def data_ptr(self) -> int:
        return (self.place + 1) << FAR


@pytest.fixture
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every address that a kernel loads from or stores to is one of the tensor that the pointer was made of."""
    tensors: dict[int, Tensor] = {}
    builder, executor = type(interpreter.interpreter_builder), interpreter.GridExecutor

    def placed(self: Any, args: Any, options: Any) -> Any:
        tensors.clear()

        def pointer(arg: Any) -> Any:
            if not isinstance(arg, Tensor):
                return arg
            tensors[len(tensors) + 1] = arg
            return Pointer(len(tensors) - 1, arg.dtype)

        return [pointer(arg) for arg in args], {name: pointer(arg) for name, arg in options.items()}

    def real(pointers: Any, mask: Any) -> Any:
        """The addresses in memory, after the check; where the mask has none, any."""
        wanted = pointers.data[mask.data]
        if not wanted.size:
            return interpreter.TensorHandle(pointers.data, pointers.dtype)
        (place,) = {int(place) for place in wanted >> FAR}
        tensor, first = tensors[place], place << FAR
        end = first + tensor.numel() * tensor.element_size()
        assert first <= wanted.min() <= wanted.max() < end, f"outside of a tensor of {list(tensor.shape)}"
        return interpreter.TensorHandle(pointers.data - first + tensor.data_ptr(), pointers.dtype)

    load, store = builder.create_masked_load, builder.create_masked_store
    monkeypatch.setattr(executor, "_init_args_hst", placed)
    monkeypatch.setattr(executor, "_restore_args_dev", lambda self, *args: None)
    monkeypatch.setattr(
        builder, "create_masked_load", lambda self, at, mask, *rest: load(self, real(at, mask), mask, *rest)
    )
    monkeypatch.setattr(
        builder,
        "create_masked_store",
        lambda self, at, value, mask, *rest: store(self, real(at, mask), value, mask, *rest),
    )


@pytest.mark.skipif(DEVICE != "cpu", reason="only the interpreter shows addresses")
@pytest.mark.usefixtures("_watched")
@pytest.mark.parametrize(
    "options",
    [
        {
            "controller": 7,
            "masks": ("state", "zoneout", "allowed", "resets"),
            "batch_sizes": (18, 17, 1),
            "batch": 19,
            "trace": True,
        },
        {"reset": "after", "masks": ("state", "resets"), "reverse": True, "batch": 17},
        {"reset": None, "bias": False, "controller": 18, "batch": 3},
        {"reset": None, "ops": ("replace",), "batch": 3},  # one block of weights: its last row is the memory's end
    ],
    ids=["before", "after", "none", "one operation"],
)
def test_no_address_is_outside_of_its_tensor(regime: str, options: dict[str, Any]) -> None:
    agree(single(hidden=19, **{"ops": THREE} | options))


def test_padding_is_never_read(regime: str) -> None:
    """A compiler gives a call rows beyond the last step's: NaN there stays there."""
    call = single(THREE, batch_sizes=UNEVEN, controller=7)
    padded = torch.cat([call.x.detach(), torch.full((3, 3), torch.nan, device=DEVICE)]).requires_grad_()
    agree(call._replace(x=padded))


@pytest.mark.parametrize("where", ["x", *(pytest.param(name, marks=pytest.mark.slow) for name in ("s0", "k0"))])
def test_nan_stays_in_its_row(regime: str, where: str) -> None:
    call = single(THREE, controller=7)
    clean = kernel.sequence(call)
    with torch.no_grad():
        getattr(call, where)[2] = torch.nan
    result = kernel.sequence(call)
    others = torch.arange(5, device=DEVICE) != 2
    steps, clean_steps = (r.output.view(3, 5, 11) for r in (result, clean))
    assert torch.equal(steps[:, others], clean_steps[:, others])
    assert steps[-1, 2].isnan().all()
    leaves = leaves_of(call)
    found, wanted = (
        torch.autograd.grad(sequence(call).output.sum(), list(leaves.values()))
        for sequence in (kernel.sequence, reference.sequence)
    )
    for name, gradient, expected in zip(leaves, found, wanted, strict=True):
        assert torch.equal(gradient.isnan(), expected.isnan()), name


def test_an_operation_whose_bias_is_minus_infinity() -> None:
    for forbidden in (0, 2):  # the last one's logit is the one that needs no product
        call = single(THREE)
        assert call.weights.bias_ih is not None
        with torch.no_grad():
            call.weights.bias_ih[-3 * 11 :].view(3, 11)[forbidden] = -torch.inf
        agree(call)


@pytest.mark.parametrize("larger", [slice(-33, None), slice(-22, -11)], ids=["all", "one"])
def test_large_logits(regime: str, larger: slice) -> None:
    """Their exponentials have no number in float32. Sums of some hundred are right to 1e-5."""
    call = single(THREE)
    assert call.weights.bias_ih is not None
    with torch.no_grad():
        call.weights.bias_ih[larger] += 100
    agree(call, 2e-4)


def test_gradients_of_some_outputs_only(regime: str) -> None:
    call = single(("keep", "max"), controller=7, batch_sizes=UNEVEN)
    for wanted in (("output",), ("s_n", "p"), ("k_n", "v")):
        found = []
        for sequence in (kernel.sequence, reference.sequence):
            result = sequence(call)._asdict()
            total = sum(result[name].square().sum() for name in wanted)
            found.append(torch.autograd.grad(total, list(leaves_of(call).values()), materialize_grads=True))
        assert_close(*(dict(zip(leaves_of(call), grads, strict=True)) for grads in found))


def weighted(call: Call, sequence: Any, leaves: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Outputs and gradients of a sum with fixed random weights, that are the same in every dtype."""
    outputs = outputs_of(sequence(call))
    generator = torch.Generator().manual_seed(7)
    weights = [torch.randn(tensor.shape, generator=generator).to(DEVICE, dtype) for tensor in outputs.values()]
    total = sum(
        (weight.float() * tensor.float()).sum() for weight, tensor in zip(weights, outputs.values(), strict=True)
    )
    found = torch.autograd.grad(total, list(leaves.values()))
    return {**outputs, **{f"gradient of {name}": grad for name, grad in zip(leaves, found, strict=True)}}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(regime: str, dtype: torch.dtype) -> None:
    """Products of rounded numbers: an error of a few units of the dtype, relative to the norm."""
    rounded = call_to(single(THREE, controller=7, trace=False), dtype)
    tensors = [None if tensor is None else tensor.detach().requires_grad_() for tensor in rounded.tensors()]
    call = rounded.settings().call(tensors)
    leaves = leaves_of(call)
    found = weighted(call, kernel.sequence, leaves, dtype)
    wanted = weighted(call_to(call, torch.float32), reference.sequence, leaves, dtype)
    limit = {torch.bfloat16: 2**-5, torch.float16: 2**-8}[dtype]
    for name, tensor in wanted.items():
        error = (found[name].detach().float() - tensor.detach()).norm() / tensor.detach().norm()
        assert found[name].dtype == dtype, name
        assert error < limit, (name, error)


def test_states_are_carried_in_float32(regime: str) -> None:
    """Forty changes of a two-thousandth, each of which bfloat16 would round away, of a state and of its gradient."""
    weights = single(("keep", "replace"), batch=2, trace=False).weights
    zero = weights._replace(
        **{name: None if w is None else torch.zeros_like(w) for name, w in weights._asdict().items()}
    )
    assert zero.bias_ih is not None
    zero.bias_ih[:11], zero.bias_ih[-22:-11] = 10.0, 7.6  # features of 1, and 1 / (1 + exp(7.6)) for replace
    call = single(("keep", "replace"), batch=2, steps=40, trace=False)
    call = call_to(call._replace(weights=zero, s0=torch.full_like(call.s0, 0.5)), torch.bfloat16)
    s0 = call.s0.detach().requires_grad_()
    result = kernel.sequence(call._replace(s0=s0))
    (grad,) = torch.autograd.grad(result.s_n.sum(), s0)
    kept = (1 - 5.0e-4) ** 40
    torch.testing.assert_close(
        result.s_n.float(), torch.full((2, 11), 1 - 0.5 * kept, device=DEVICE), rtol=2**-8, atol=0
    )
    torch.testing.assert_close(grad.float(), torch.full((2, 11), kept, device=DEVICE), rtol=2**-8, atol=0)


def test_autocast_multiplies_in_bfloat16(regime: str) -> None:
    """In float32, with products in bfloat16: `Call.bfloat16`."""
    call = single(THREE)._replace(bfloat16=True)
    leaves = leaves_of(call)
    found, wanted = everything(kernel.sequence, call, leaves), everything(reference.sequence, call, leaves)
    errors = {
        name: float((found[name] - tensor).detach().norm() / tensor.detach().norm()) for name, tensor in wanted.items()
    }
    assert all(found[name].dtype == torch.float32 for name in found)
    assert 1e-6 < max(errors.values()) < 2**-5, errors


SIZES = {
    "many sequences": {"steps": 3, "batch": 2**30, "hidden": 33, "controller": 17},
    "many units": {"steps": 2, "batch": 20, "hidden": 2**16, "controller": 2**16},
}
CHECKED = interpreter.InterpreterOptions(debug=True)
"""Every sum and product of integers is checked; without `debug` none is."""
LARGE: dict[str, dict[str, Any]] = {
    "controller": {"masks": ("state", "zoneout", "allowed", "resets"), "controller": 7},
    "after": {"reset": "after", "batch_sizes": (5, 5, 5)},
}


def launches_of(call: Call, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    """Every kernel that both passes launch, once, with its arguments by name."""
    found: dict[Any, dict[str, Any]] = {}
    run = interpreter.InterpretedFunction.run

    def record(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        given = {name: value for name, value in options.items() if name in self.arg_names}
        found[self, options.get("LAST")] = dict(zip(self.arg_names, args, strict=False)) | given
        run(self, *args, grid=grid, warmup=warmup, **options)

    with monkeypatch.context() as patch:
        patch.setattr(interpreter.InterpretedFunction, "run", record)
        everything(kernel.sequence, call, leaves_of(call))
    return [(function, given) for (function, _), given in found.items()]


@pytest.mark.skipif(DEVICE != "cpu", reason="the interpreter checks every sum and product of integers")
@pytest.mark.parametrize("size", ["many sequences", pytest.param("many units", marks=pytest.mark.slow)])
@pytest.mark.parametrize("option", LARGE)
def test_offsets_need_64_bits(regime: str, option: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last programs of every kernel, on tensors of far more than 2**31 elements: each of their integers fits into
    its bits, and each address is in its tensor. There is no memory behind them: whatever is read is 0."""
    wide = size == "many units"
    if wide and regime != "stepwise":
        pytest.skip("one program would have all the tiles of a step")
    kernels = launches_of(single(("keep", "max", "replace"), steps=3, **LARGE[option]), monkeypatch)
    sizes, reached = SIZES[size], [0]
    builder = type(interpreter.interpreter_builder)
    monkeypatch.setattr(interpreter.interpreter_builder, "options", CHECKED)
    monkeypatch.setattr(interpreter.GridExecutor, "_init_args_hst", lambda self, args, options: (args, options))
    monkeypatch.setattr(interpreter.GridExecutor, "_restore_args_dev", lambda self, *args: None)

    def touch(self: Any, at: Any, value: Any, mask: Any, *options: Any) -> None:
        if mask.data.any():
            far = int((at.data & ((1 << FAR) - 1))[mask.data].max())
            assert far < 1 << (FAR - 1), "an address in front of its tensor"
            reached.append(far)

    def load(self: Any, at: Any, mask: Any, *options: Any) -> Any:
        touch(self, at, None, mask)
        kind = at.get_element_ty()
        # whole numbers are offsets of packed rows: every step has all sequences
        numbers = (at.data & ((1 << FAR) - 1)) // 8 * sizes["batch"] if kind == tl.int64 else 0 * at.data
        return interpreter.TensorHandle(numbers.astype(interpreter._get_np_dtype(kind)), kind)

    monkeypatch.setattr(builder, "create_masked_load", load)
    monkeypatch.setattr(builder, "create_masked_store", touch)
    for function, given in kernels:
        large, reached = enlarged(given, sizes, wide), [0]
        for program in last_programs(large):
            place = lambda self, *zeros, program=program: setattr(self, "grid_idx", program)  # noqa: E731
            monkeypatch.setattr(builder, "set_grid_idx", place)
            function[(1,)](**large)
        assert max(reached) > 2**33 or (wide and "hh" not in given), function.fn.__name__


@triton.jit
def _multiplied(a, b, found):  # type: ignore[no-untyped-def]
    tl.store(found, a * b)


@pytest.mark.skipif(DEVICE != "cpu", reason="a GPU checks no integer")
def test_numbers_that_do_not_fit_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter.interpreter_builder, "options", CHECKED)
    found = torch.zeros(1, dtype=torch.int64)
    _multiplied[(1,)](2**15, 2**15, found)
    assert found == 2**30
    with pytest.raises(interpreter.InterpreterError, match="int32 overflow"):
        _multiplied[(1,)](2**30, 33, found)


def enlarged(given: dict[str, Any], sizes: dict[str, int], wide: bool) -> dict[str, Any]:
    """The arguments of a launch with these sizes in place of its own, and pointers in place of its tensors."""
    hidden, controlled = sizes["hidden"], given.get("controller", 0) > 0
    controller = sizes["controller"] if controlled else 0
    numbers = sizes | {
        "controller": controller, "size": hidden, "i": sizes["steps"] - 1,
        "width": 2 * hidden + (controller or 2 * hidden), "logits_at": 0 if controlled else 2 * hidden,
        "logits_width": (2 if controlled else 4) * hidden,
    }  # fmt: skip
    if given.get("tiles"):
        numbers["tiles"] = -(-hidden // given["BLOCK_H"])
    if "BLOCK_C" in given:  # one tile has all units
        numbers |= {"BLOCK_H": 64, "BLOCK_C": 32}
    if wide:
        numbers["BLOCK_K"] = 4096
    large = {name: numbers.get(name, value) for name, value in given.items()}
    tensors = [name for name, value in given.items() if isinstance(value, Tensor)]
    return large | {name: Pointer(place, given[name].dtype) for place, name in enumerate(tensors)}


def last_programs(given: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Those with the last sequences: of them, with the last units, and with the last cells of the controller."""
    rows = (given["batch"] - 1) // given["BLOCK_B"]
    if "size" in given:
        return [(given["steps"] - 1, rows, (given["size"] - 1) // given["BLOCK_H"])]
    units, cells = ((given[name] - 1) // given["BLOCK_H"] for name in ("hidden", "controller"))
    return [(rows, units, 0), (rows, units + 1 + cells, 0)] if "tiles" in given and cells >= 0 else [(rows, units, 0)]


def test_offsets_of_packed_rows_are_64_bit() -> None:
    call = single(batch_sizes=UNEVEN)
    offsets = prepare._offsets(call)
    assert offsets is not None
    assert offsets.dtype == torch.int64
    assert offsets.tolist() == [0, 4, 8, 11, 12]


def test_a_graph_may_be_walked_twice() -> None:
    call = single(THREE, reset="after", controller=7)
    result = kernel.sequence(call)
    first = gradients(result, leaves_of(call), retain_graph=True)
    for name, grad in gradients(result, leaves_of(call)).items():
        assert torch.equal(first[name], grad), name


def test_changing_the_output_in_place_is_noticed() -> None:
    result = kernel.sequence(single())
    with torch.no_grad():
        result.output.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.output.sum().backward()


def layers(**options: Any) -> tuple[Any, Any]:
    """The same layer on both kernels."""
    torch.manual_seed(3)
    made = mufuru.MuFuRU(3, 5, device=DEVICE, **options)
    other = mufuru.MuFuRU(3, 5, device=DEVICE, **options)
    other.load_state_dict(made.state_dict())
    made.kernel, other.kernel = "triton", "reference"
    return made, other


def assert_layers_agree(made: Any, other: Any, call: Callable[[Any], Tensor]) -> None:
    found, wanted = call(made), call(other)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    for model, value in ((made, found), (other, wanted)):
        model.zero_grad()
        value.square().sum().backward()
    for (name, one), another in zip(made.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, another.grad, rtol=1e-4, atol=1e-4, msg=name)


LAYERS: dict[str, dict[str, Any]] = {
    "two layers, two directions": {"num_layers": 2, "bidirectional": True},
    "controller": {"controller_size": 4},
    "learned state": {"learn_initial_state": True},
}


@pytest.mark.parametrize("options", LAYERS)
def test_through_the_layer(options: str) -> None:
    made, other = layers(**LAYERS[options])
    x = torch.randn(4, 3, 3, device=DEVICE)
    lengths = torch.tensor([2, 4, 3])
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    assert_layers_agree(made, other, lambda model: model(packed)[0].data)


def test_resets_and_trace_through_the_layer() -> None:
    made, other = layers()
    x, resets = torch.randn(4, 3, 3, device=DEVICE), torch.rand(4, 3, device=DEVICE) < 0.4
    assert_layers_agree(made, other, lambda model: model(x, resets=resets)[0])
    torch.testing.assert_close(made.trace(x).weights(), other.trace(x).weights(), rtol=1e-4, atol=1e-5)


def test_half_precision_and_autocast_through_the_layer() -> None:
    made, other = layers()
    x = torch.randn(4, 3, 3, device=DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        output = made(x)[0]
    torch.testing.assert_close(output.float(), other(x)[0], rtol=0, atol=0.05)
    half = made.bfloat16()(x.bfloat16())[0]
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), other(x)[0], rtol=0, atol=0.05)


@pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_as_one_graph(backend: str) -> None:
    made, other = layers(num_layers=2, ops=THREE)
    x = torch.randn(2, 3, 3, device=DEVICE)
    run = torch.compile(lambda model: model(x)[0] * 2, backend=backend, fullgraph=True)
    found = run(made)
    torch.testing.assert_close(found, other(x)[0] * 2, rtol=1e-4, atol=1e-5)
    assert_layers_agree(made, other, lambda model: run(model) if model is made else model(x)[0] * 2)


def test_per_sample_gradients_by_vmap() -> None:
    made, other = layers(ops=THREE)
    x = torch.randn(2, 3, 3, device=DEVICE)
    found = []
    for model in (made, other):
        parameters = dict(model.named_parameters())

        def loss(weights: Any, one: Tensor, model: Any = model) -> Tensor:
            total: Tensor = torch.func.functional_call(model, weights, (one,))[0].square().sum()
            return total

        found.append(torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x))
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name], rtol=1e-4, atol=1e-4, msg=name)


def test_float16_autocast_multiplies_in_float32() -> None:
    """As the reference without autocast, of numbers that float16 does not have."""
    made, other = layers(ops=THREE)
    x = 1e5 * torch.randn(4, 3, 3, device=DEVICE)
    found = []
    for model in (made, other):
        with torch.autocast(DEVICE, torch.float16, enabled=model is made):
            output = model(x)[0]
            grads = torch.autograd.grad(output.float().square().sum(), [*model.parameters()])
        found.append((output.float(), *grads))
    assert all(tensor.isfinite().all() for tensor in found[1])
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)


def test_second_derivatives() -> None:
    made, other = layers(controller_size=3)
    x = torch.randn(3, 2, 3, requires_grad=True, device=DEVICE)
    found = []
    for model in (made, other):
        (grad,) = torch.autograd.grad(model(x)[0].square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(grad.square().sum(), [x, *model.parameters()], materialize_grads=True))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


def test_checkpointing() -> None:
    made, other = layers(checkpoint_every=2)
    x = torch.randn(5, 3, 3, device=DEVICE)
    assert_layers_agree(made, other, lambda model: model(x)[0])


def test_the_operators_are_as_torch_wants_them() -> None:
    from mufuru.kernels.operators import options_of

    call = single(("keep", "max"), controller=7, batch_sizes=UNEVEN)
    arguments = (*call.tensors(), *options_of(call))
    checked = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.mufuru.triton_forward.default, arguments, test_utils=checked)


def arguments_of(call: Call) -> tuple[dict[str, Any], Any]:
    from mufuru.kernels.call import INPUTS
    from mufuru.kernels.operators import options_of

    tensors = (None if tensor is None else tensor.detach() for tensor in call.tensors())
    return {row.name: tensor for row, tensor in zip(INPUTS, tensors, strict=True)}, options_of(call)


def by_operator(call: Call, **changes: Any) -> tuple[Tensor, ...]:
    given, options = arguments_of(call)
    found: tuple[Tensor, ...] = operators._forward_op(*(given | changes).values(), *options)
    return found


def freed(tensor: Tensor) -> Tensor:
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


SPECIAL: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "negative": ("hh", lambda t: torch._neg_view(-t)),
    "zeros without memory": ("s0", lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype, device=t.device)),
    "strided": ("x", lambda t: strided(t).detach()),
    "expanded": ("zoneout", lambda t: t[:1].expand_as(t)),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_the_operator_takes_tensors_that_are_more_than_their_memory(kind: str) -> None:
    """Also as gradients of the outputs."""
    call = single(("keep", "max"), masks=("zoneout",), trace=False, steps=2)
    given, options = arguments_of(call)
    name, change = SPECIAL[kind]
    special = change(given[name])
    plain = special.clone() if special._is_zerotensor() else special.resolve_neg().contiguous()
    found, wanted = by_operator(call, **{name: special}), by_operator(call, **{name: plain})
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    grad = torch.randn_like(found[0])
    grads = []
    for one in (torch._neg_view(-grad), grad):
        args = (one, None, None, None, None, *given.values(), *options, found[0], found[-1], True)
        grads.append(operators._backward_op(*args))
    torch.testing.assert_close(grads[0], grads[1], rtol=0, atol=0)


WRONG: dict[str, tuple[dict[str, Callable[[Any], Any]], str]] = {
    "freed": ({"hh": freed}, "hh has the shape .* memory was freed or cut"),
    "a row short": ({"hh": lambda t: t[:-1]}, r"hh should be .* of shape \[44, 11\] on .*, got .* \[43, 11\]"),
    "another dtype": ({"bias_ih": Tensor.double}, "bias_ih should be torch.float32 .*, got torch.float64"),
    "sparse": ({"x": Tensor.to_sparse}, "x should be a dense tensor, got one that is sparse"),
    "three dimensions": ({"x": lambda t: t[None]}, r"x should have two dimensions, got \[1, 12, 3\]"),
    "one bias": ({"bias_hh": lambda t: None}, "bias_hh should be there"),
    "a mask of numbers": ({"resets": Tensor.float}, "resets should be torch.bool"),
    "rows missing": ({"x": lambda t: t[:-1], "resets": lambda t: t[:-1]}, "x should have 12 rows, .* got 11"),
    "a step that grows": ({"batch_sizes": lambda t: t.flip(0)}, "batch_sizes should fall from at most 5"),
    "rows of no step": ({"batch_sizes": lambda t: None}, "each of the 5 sequences in every step, got 12 rows"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_the_operator_refuses_in_a_sentence(kind: str) -> None:
    call, (changes, message) = single(("keep", "max"), batch_sizes=UNEVEN, masks=("resets",)), WRONG[kind]
    given, _ = arguments_of(call)
    with pytest.raises((RuntimeError, TypeError), match=message):
        by_operator(call, **{name: change(given[name]) for name, change in changes.items()})


def test_the_operator_refuses_another_device() -> None:
    """Called directly: the dispatcher has a kernel of its own for the only other device that is always there."""
    from mufuru.kernels.triton.checks import checked_call

    given, options = arguments_of(single())
    with pytest.raises(RuntimeError, match=r"ih should be .*, got .* on meta"):
        checked_call([*(given | {"ih": given["ih"].to("meta")}).values()], options)


def test_the_backward_operator_refuses_wrong_gradients() -> None:
    call = single(("keep", "max"), trace=False)
    given, options = arguments_of(call)
    out = by_operator(call)
    for grad in (out[0][:-1], out[0].double()):
        with pytest.raises(RuntimeError, match=r"output should be torch.float32 of shape \[15, 11\]"):
            operators._backward_op(
                grad, None, None, None, None, *given.values(), *options, out[0], out[-1], True
            )  # fmt: skip


def test_what_it_cannot_do() -> None:
    x = torch.randn(2, 3, 3, dtype=torch.float64, device=DEVICE)
    with pytest.raises(RuntimeError, match="it computes in float32, bfloat16 and float16"):
        mufuru.MuFuRU(3, 4, kernel="triton", dtype=torch.float64, device=DEVICE)(x)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="no forward-mode derivatives"):
        mufuru.MuFuRU(3, 4, kernel="triton", device=DEVICE)(torch.randn(2, 3, 3, device=DEVICE))
    assert ("interpreted" if DEVICE == "cpu" else torch.cuda.get_device_name()) in kernel.status()


needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")


@needs_gpu
def test_captured_in_a_graph(regime: str) -> None:
    """No launch depends on a number on the device, so that both passes can be captured and replayed."""
    layer, _ = layers(num_layers=2)
    x = torch.randn(6, 20, 3, device=DEVICE)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            layer(x)[0].sum().backward()
    torch.cuda.current_stream().wait_stream(stream)
    layer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = layer(x)[0]
        output.sum().backward()
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(output, layer(x)[0])


@needs_gpu
def test_two_streams_at_once(regime: str) -> None:
    layer, other = layers()
    inputs = [torch.randn(50, 40, 3, device=DEVICE) for _ in range(4)]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    found = []
    for x, stream in zip(inputs, streams, strict=True):
        with torch.cuda.stream(stream):
            found.append(layer(x)[0])
    torch.cuda.synchronize()
    for x, output in zip(inputs, found, strict=True):
        torch.testing.assert_close(output, other(x)[0], rtol=1e-4, atol=1e-5)


@needs_gpu
def test_no_step_waits_for_the_device(regime: str) -> None:
    layer, _ = layers()
    x = torch.randn(6, 20, 3, device=DEVICE)
    layer(x)[0].sum().backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        layer(x)[0].sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_gpu
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
@pytest.mark.parametrize("hidden", [64, 128, 300])
def test_large_layers_by_the_regime_of_their_size(hidden: int, precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        call = single(hidden=hidden, batch=70, steps=12, inputs=40)
        leaves = leaves_of(call)
        found = everything(kernel.sequence, call, leaves)
    finally:
        torch.set_float32_matmul_precision(before)
    limit = {"highest": 1e-4, "high": 1e-3, "medium": 3e-2}[precision]
    assert_close(found, everything(reference.sequence, call, leaves), limit)
