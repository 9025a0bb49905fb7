"""Products in bfloat16: lowered code on every machine, the processor's instruction where it is.

The tests that need the instruction say so when they are skipped; its code is compiled and compared everywhere, with the
instruction emulated.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from kernel_calls import (
    PACKED,
    UNEVEN,
    assert_close,
    direct_steps,
    everything,
    leaves_of,
    make_call,
    needs_native,
    outputs_of,
    replace_weights,
)
from libraries import REAL, needs_compiler
from torch import Tensor
from torch.nn.functional import linear

import mufuru
from mufuru import MuFuRU, MuFuRUCell
from mufuru.experiments.cli import doctor
from mufuru.kernels import half, native, reference
from mufuru.kernels.call import Call, Masks, Result
from mufuru.kernels.problem import loaded

pytestmark = needs_native
CSRC = Path(mufuru.__file__).parent / "kernels" / "csrc"
SIMDE = Path("/usr/include/simde/x86/avx512/dpbf16.h")

SAME_ROUNDINGS = 2e-3
"""Relative to the largest number, for what rounds the same operands. Sums differ as in float32, by 3e-5; but an operand
that close to the middle between two numbers of bfloat16 may go to the other one, which is 1/128 of it away at most. A
quarter of that is what one such operand among a few does to the result."""
VALUES, GRADIENTS = 2**-6, 2**-5
"""The stated error against float32, relative to the norm of a tensor, or to 1 if that is less. bfloat16 has 8
significant bits, so that an operand is off by 2^-8 at most; the errors of a sum's terms mostly cancel, those of a few
steps add up. Gradients have been through several such products in a row, forward and back."""
SMOOTH = ("keep", "replace", "mul", "forget", "sqr_diff", "negate", "add")
"""Gradients of max, min and diff jump where state and feature are equal: rounding may end on the other side."""


def wave(s: Tensor, v: Tensor) -> Tensor:
    return torch.sin(s + 2 * v)


CASES: dict[str, dict[str, Any]] = {
    "no reset": {"reset": None},
    "before": {},
    "after": {"reset": "after"},
    "reverse": {"reverse": True},
    "lengths": {"batch_sizes": UNEVEN, "masks": ("resets",)},
    "lengths, reverse": {"batch_sizes": UNEVEN, "masks": ("resets",), "reverse": True},
    "all masks": {"masks": Masks._fields},
    "controller": {"controller": 7},
    "controller, relu": {"controller": 6, "controller_activation": "relu", "reset": "after", "masks": ("resets",)},
    "gated": {"ops": ("keep", "replace"), "bias": False},
    "one operation": {"ops": ("replace",)},
    "own operation": {"ops": ("keep", "replace", wave)},
    "even sizes": {"inputs": 32, "hidden": 64, "batch": 6},
    "wide": {"inputs": 45, "hidden": 67, "batch": 13},
    "one unit": {"inputs": 1, "hidden": 1, "batch": 1},
    "no inputs": {"inputs": 0},
    "many rows": {"batch": 29, "steps": 19},
}


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MUFURU_BFLOAT16", "always")
    with direct_steps(PACKED):
        yield


class _Rounding(torch.autograd.Function):
    """A product whose operands are rounded to bfloat16, forward and backward, and whose sums are not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return linear(_rounded(x), _rounded(weight))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = map(_rounded, ctx.saved_tensors)
        grad = _rounded(grads[0])
        return grad @ weight, grad.mT @ x


def _rounded(tensor: Tensor) -> Tensor:
    return tensor.bfloat16().to(tensor.dtype)


def rounding_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product: Tensor = _Rounding.apply(x, weight)  # type: ignore[no-untyped-call]
    return product if bias is None else product + bias


def relative(call: Call) -> Call:
    """The same run with the last operation's weights taken off the others', as the native kernel multiplies them."""
    hidden, ops = call.unit.hidden_size, len(call.unit.ops)

    def take_off(weight: Tensor) -> Tensor:
        rest = len(weight) - ops * hidden
        logits = weight[rest:].unflatten(0, (ops, hidden))
        others = (logits[:-1] - logits[-1]).flatten(0, 1)
        return torch.cat([weight[:rest], others, torch.zeros_like(logits[-1])])

    weights = call.weights
    if weights.op is not None:
        return call._replace(weights=weights._replace(op=take_off(weights.op)))
    return call._replace(weights=weights._replace(ih=take_off(weights.ih), hh=take_off(weights.hh)))


def natively(call: Call) -> Result:
    return native.sequence(call._replace(bfloat16=True))


def by_formula(call: Call) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "linear", rounding_linear)
        return reference.sequence(relative(call))


@pytest.mark.parametrize("case", CASES)
def test_as_the_equations_with_rounded_products(instruction_set: str, case: str) -> None:
    call = make_call(dtype=torch.float32, **CASES[case])
    leaves = leaves_of(call)
    assert_close(everything(natively, call, leaves), everything(by_formula, call, leaves), SAME_ROUNDINGS)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_near_float32(case: str, seed: int) -> None:
    torch.manual_seed(seed)
    call = make_call(dtype=torch.float32, **{"ops": SMOOTH, **CASES[case]})
    leaves = leaves_of(call)
    found, wanted = (everything(kernel, call, leaves) for kernel in (natively, reference.sequence))
    for name, tensor in wanted.items():
        limit = GRADIENTS if name.startswith("gradient") else VALUES
        assert (found[name] - tensor).norm() <= limit * tensor.norm().clamp(min=1), name


def test_not_in_float32() -> None:
    call = make_call(dtype=torch.float32)
    assert not torch.allclose(natively(call).output, native.sequence(call).output, rtol=0, atol=3e-5)


def test_instruction_sets_give_the_same_sums() -> None:
    """A step whose features are all of the state: the same products, added up in the same order."""
    call = make_call(("replace",), reset=None, dtype=torch.float32, steps=1, hidden=67, inputs=45, batch=13)
    found = []
    for name in ("plain", "avx2", "avx512"):
        if loaded().mufuru_choose(name.encode()):
            found.append(natively(call).v)
    loaded().mufuru_choose(b"")
    assert found[0] is not None
    for other in found[1:]:
        # tanh may end in another bit, by whether the machine has fused instructions
        torch.testing.assert_close(other, found[0], rtol=0, atol=5e-7)


def test_exact_where_no_operand_is_rounded() -> None:
    call = make_call(dtype=torch.float32, reset="after", steps=1, batch=13, hidden=35, inputs=21)

    def coarse(tensor: Tensor) -> Tensor:
        return (tensor.detach() * 16).round() / 16

    call = replace_weights(call, coarse)._replace(x=coarse(call.x), s0=coarse(call.s0))
    # numbers of up to 7 bits: nothing is lost, and only sums in another order differ
    assert_close(outputs_of(natively(call)), outputs_of(reference.sequence(call)))


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("case", ["before", "controller", "lengths", "wide"])
def test_the_same_alone_and_on_any_number_of_threads(case: str) -> None:
    call = make_call(dtype=torch.float32, **{**CASES[case], "trace": False, "hidden": 130, "steps": 9})
    torch.set_num_threads(1)
    one = everything(natively, call, leaves_of(call))
    torch.set_num_threads(3)
    more = everything(natively, call, leaves_of(call))
    for name, tensor in one.items():
        assert torch.equal(tensor, more[name]), name
    if call.batch_sizes is None:
        first = call._replace(x=call.x[:: len(call.s0)], s0=call.s0[:1], k0=None if call.k0 is None else call.k0[:1])
        assert torch.equal(natively(first).output, one["output"][:: len(call.s0)])


def test_nan_and_infinity_stay_in_their_rows() -> None:
    call = make_call(dtype=torch.float32, batch=13)
    x = call.x.detach().clone()
    clean = natively(call._replace(x=x))
    x[13 + 4, 1], x[2 * 13 + 6, 2] = torch.nan, torch.inf
    dirty = natively(call._replace(x=x))
    rows = torch.ones(4 * 13, dtype=torch.bool)
    rows[13 + 4 :: 13] = rows[2 * 13 + 6 :: 13] = False
    assert torch.equal(dirty.output[rows], clean.output[rows])
    assert dirty.output[13 + 4 :: 13].isnan().all()
    # two infinite logits of one sign: the native kernel never forms their difference
    assert torch.equal(dirty.output.isnan(), native.sequence(call._replace(x=x)).output.isnan())


def test_numbers_below_the_normal_ones_count_as_zero() -> None:
    call = make_call(("replace",), reset=None, dtype=torch.float32, bias=False, steps=1)
    tiny = call._replace(x=torch.full_like(call.x, 1e-39), s0=torch.zeros_like(call.s0))
    large = replace_weights(tiny, lambda weight: torch.full_like(weight, 1e38))
    assert natively(large).output.count_nonzero() == 0
    assert native.sequence(large).output.count_nonzero() > 0


@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (4, 0), (0, 0)])
def test_nothing(steps: int, batch: int) -> None:
    call = make_call(dtype=torch.float32, steps=steps, batch=batch)
    assert_close(everything(natively, call, leaves_of(call)), everything(reference.sequence, call, leaves_of(call)))


def layer_and_input(**options: Any) -> tuple[MuFuRU, Tensor]:
    return MuFuRU(13, 27, 2, bidirectional=True, ops=SMOOTH, **options), torch.randn(9, 5, 13)


def in_and_out(layer: MuFuRU, x: Tensor, monkeypatch: pytest.MonkeyPatch, wanted: str) -> list[Tensor]:
    monkeypatch.setenv("MUFURU_BFLOAT16", wanted)
    with torch.autocast("cpu", torch.bfloat16, enabled=layer.weight_ih_l0.dtype == torch.float32):
        output, _ = layer(x.to(layer.weight_ih_l0.dtype))
    grads = torch.autograd.grad(output.float().square().mean(), list(layer.parameters()))
    return [output.detach().float(), *(grad.float() for grad in grads)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["autocast", "a bfloat16 layer"])
def test_layers_take_it(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = layer_and_input(dtype=dtype)
    rough, fine = (in_and_out(layer, x, monkeypatch, wanted) for wanted in ("always", "never"))
    assert not torch.equal(rough[1], fine[1])
    for limit, found, wanted in zip((VALUES, *[GRADIENTS] * 99), rough, fine, strict=False):
        assert (found - wanted).norm() <= limit * wanted.norm()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_precisions_do_not(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = layer_and_input(dtype=dtype)
    found = {}
    for wanted in ("always", "never"):
        monkeypatch.setenv("MUFURU_BFLOAT16", wanted)
        found[wanted] = layer(x.to(dtype))[0]
        if dtype == torch.float64:
            with torch.autocast("cpu", torch.bfloat16):
                found[wanted] = layer(x.to(dtype))[0]
    assert torch.equal(found["always"], found["never"])


def test_float16_autocast_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = layer_and_input()
    with torch.autocast("cpu", torch.float16):
        always = layer(x)[0]
        monkeypatch.setenv("MUFURU_BFLOAT16", "never")
        assert torch.equal(always, layer(x)[0])


def test_packed_weights_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = layer_and_input()
    with torch.no_grad():
        whole = layer(x)[0]
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                rough = layer(x)[0]
            assert not torch.equal(rough.float(), whole)
            assert torch.equal(layer(x)[0], whole)
            monkeypatch.setenv("MUFURU_BFLOAT16", "never")
            with torch.autocast("cpu", torch.bfloat16):
                assert torch.equal(layer(x)[0], whole)
            monkeypatch.setenv("MUFURU_BFLOAT16", "always")


def test_few_steps_are_computed_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, x = MuFuRUCell(5, 7), torch.randn(3, 5)
    with direct_steps(4), torch.autocast("cpu", torch.bfloat16):
        found = cell(x)
    assert torch.equal(found.detach(), cell(x).detach().to(found.dtype))


def test_a_single_step_does_not_depend_on_the_calls_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32 weights that are met again are packed, with the same results; in bfloat16 they would differ."""
    monkeypatch.setenv("MUFURU_BFLOAT16", "always")
    layer, x = MuFuRU(13, 27), torch.randn(1, 5, 13)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        first, *others = [layer(x)[0] for _ in range(4)]
    for output in others:
        assert torch.equal(output, first)


def test_an_unknown_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = layer_and_input()
    monkeypatch.setenv("MUFURU_BFLOAT16", "yes")
    with pytest.raises(ValueError, match="MUFURU_BFLOAT16 should be one of auto, always, never, got 'yes'"):
        layer.bfloat16()(x.bfloat16())


def test_doctor_names_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = "AVX512_BF16" if loaded().mufuru_has_bfloat16() else "no AVX512_BF16"
    assert offered in doctor.kernel()["bfloat16"]
    monkeypatch.setenv("MUFURU_BFLOAT16", "never")
    assert doctor.kernel()["bfloat16"].startswith("products in float32")
    monkeypatch.setenv("MUFURU_BFLOAT16", "yes")
    assert "should be one of" in doctor.kernel()["bfloat16"]


def test_the_instruction_is_taken_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux says itself what the processor has."""
    cpu = Path("/proc/cpuinfo")
    if not cpu.exists():
        pytest.skip("needs /proc/cpuinfo")
    there = "avx512_bf16" in cpu.read_text(encoding="utf-8")
    monkeypatch.setenv("MUFURU_BFLOAT16", "auto")
    assert half.way() == (half.INSTRUCTED if there else half.WHOLE)
    assert bool(loaded().mufuru_has_bfloat16()) == there


@pytest.mark.parametrize("case", CASES)
def test_instruction_as_lowered(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if half.way() != half.INSTRUCTED:
        pytest.skip("needs a processor with AVX512_BF16")
    call = make_call(dtype=torch.float32, **CASES[case])
    leaves = leaves_of(call)
    found = everything(natively, call, leaves)
    monkeypatch.setattr(half, "way", lambda: half.LOWERED)
    assert_close(found, everything(natively, call, leaves), SAME_ROUNDINGS)


@needs_compiler
def test_code_for_the_instruction_as_lowered(tmp_path: Path) -> None:
    """Bit for bit, with the instruction emulated by Intel's pseudo-code and, in whole numbers, by SIMDe."""
    if os.uname().machine != "x86_64":
        pytest.skip("needs an x86-64 machine")
    simde = ["-DMUFURU_SIMDE"] if SIMDE.exists() else []
    ways: dict[str, list[str]] = {"lowered": [], "fused": ["-mavx2", "-mfma"], "emulated": ["-DMUFURU_DOT"]}
    if simde:
        ways["simde"] = ["-DMUFURU_DOT", *simde]
    compiler = [str(REAL), "-std=c++17", "-O1", "-Wall", "-Wextra", "-Wno-psabi", f"-I{CSRC}"]
    tests = Path(__file__).parent
    for name, flags in ways.items():
        if name == "fused" and not loaded().mufuru_choose(b"avx2"):
            pytest.skip("needs AVX2")
        loaded().mufuru_choose(b"")
        source = tests / "bfloat16_products.cpp"
        subprocess.run([*compiler, *flags, f"-DNAME={name}", "-c", source, "-o", tmp_path / f"{name}.o"], check=True)
    objects = [tmp_path / f"{name}.o" for name in ways]
    subprocess.run([*compiler, *simde, tests / "bfloat16_check.cpp", *objects, "-o", tmp_path / "check"], check=True)
    checked = subprocess.run([tmp_path / "check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "numbers are the same" in checked.stdout
    if not simde:
        pytest.skip("compared with Intel's pseudo-code; SIMDe is missing: apt install libsimde-dev")
