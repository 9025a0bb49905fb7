"""The Triton kernel compiled for GPUs that are not here: it fits, and nothing spills. Nothing runs.

Every regime and dtype is compiled for every architecture with `-m slow`; a part of it always.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from kernel_calls import make_call

# it knows the inside of Triton's compiler
pytest.importorskip("triton", minversion="3.9")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("Triton interprets its kernels in this process, and compiles none", allow_module_level=True)

from triton_compile import SHARED, Launch, compiled, recorded, resources

from mufuru.kernels import call_to
from mufuru.kernels.triton import passes, prepare
from mufuru.kernels.triton.plan import PRECISIONS, REGIMES, Chip, Layer, plan
from mufuru.ops import PAPER, native

UNITS = {"persistent": 64, "tiled": 128, "stepwise": 512}


def chip_of(target: str) -> Chip:
    return Chip(SHARED[target], target.startswith("gfx"))


def dtype_of(number: str) -> torch.dtype:
    return torch.float32 if number in PRECISIONS.values() else getattr(torch, number)


def units(regime: str, number: str, target: str, **options: Any) -> int:
    """As many as a layer with these options has at most in the regime, if that is the persistent one: 64 or 32."""
    if regime != "persistent":
        return UNITS[regime]
    operations = len(options.get("ops", PAPER))
    for size in (64, 32):
        controller = size if options.get("controller", 0) is None else options.get("controller", 0)
        layer = Layer(64, size, controller, operations, "before", dtype_of(number), options.get("trace", True))
        if plan(layer, chip_of(target)).regime == regime:
            return size
    raise AssertionError("no layer is planned so")


NUMBERS = ("bfloat16", "float16", *PRECISIONS.values())
"""The kinds of products: half precision, and float32 by how its products multiply."""
ALWAYS = {
    ("persistent", "bfloat16", "sm_100"), ("persistent", "ieee", "sm_80"), ("persistent", "float16", "gfx942"),
    ("tiled", "bfloat16", "sm_90"), ("tiled", "tf32", "sm_100"), ("tiled", "ieee", "gfx942"),
    ("stepwise", "tf32x3", "sm_80"), ("stepwise", "float16", "sm_90"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton 3.9 warns of another default of an option, which every launch here sets itself."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def launches(
    monkeypatch: pytest.MonkeyPatch, regime: str, number: str, target: str, hidden: int, **options: Any
) -> list[Launch]:
    """Both passes of a call as they would be launched on the GPU, each kernel once."""
    dtype, chip = dtype_of(number), chip_of(target)
    monkeypatch.setenv("MUFURU_TRITON_REGIME", regime)
    monkeypatch.setattr(prepare, "chip_of", lambda device: chip)
    if dtype == torch.float32:
        torch.set_float32_matmul_precision(next(key for key, value in PRECISIONS.items() if value == number))
    call = call_to(make_call(hidden=hidden, batch=64, inputs=16, steps=3, dtype=torch.float32, **options), dtype)
    with recorded() as found, torch.no_grad():
        out = passes.forward(call)
        grads = (out.output, out.s_n, *(out[2:5] if call.trace else (None, None, None)))
        passes.backward(grads, call, out.output, out.states_k, True)
    kinds = {(made.name, made.options.get("FIRST"), made.options.get("LAST")): made for made in found}
    return list(kinds.values())


def assert_fits(made: Launch, target: str) -> None:
    kernel = compiled(made, target)
    used = resources(kernel, target)
    assert used.spilled == 0, (made.name, used)
    assert used.shared <= SHARED[target], (made.name, used)
    assert "atomic" not in kernel.asm["ttir"], made.name  # results do not depend on the order of programs


def never_planned(regime: str, number: str, target: str) -> bool:
    """AMD's chips have matrix instructions for float32; TF32 leaves no registers for weights."""
    return number.startswith("tf32") and (target == "gfx942" or regime == "persistent")


def cases() -> list[Any]:
    """Every regime, kind of product and architecture; those that are not always compiled are marked slow."""
    found = []
    for regime in REGIMES:
        for number in NUMBERS:
            for target in SHARED:
                if never_planned(regime, number, target):
                    continue
                marks = () if (regime, number, target) in ALWAYS else pytest.mark.slow
                found.append(pytest.param(regime, number, target, marks=marks))
    return found


@pytest.mark.parametrize(("regime", "number", "target"), cases())
def test_fits_without_spilling(monkeypatch: pytest.MonkeyPatch, regime: str, number: str, target: str) -> None:
    made = launches(monkeypatch, regime, number, target, units(regime, number, target, trace=False), trace=False)
    assert len(made) == {"persistent": 3, "tiled": 3, "stepwise": 7}[regime]
    for one in made:
        assert_fits(one, target)


OPTIONS: dict[str, dict[str, Any]] = {
    "after": {"reset": "after", "trace": False},
    "no reset": {"reset": None, "bias": False, "trace": False},
    "no reset, with gradients of weights": {"reset": None, "bias": False, "trace": True},
    "controller": {"controller": 24, "masks": ("resets",)},
    "largest controller": {"controller": None, "trace": False},
    "all operations": {"ops": tuple(op.name for op in native()), "trace": False},
    "everything": {"masks": ("state", "zoneout", "allowed", "resets"), "batch_sizes": (64, 40, 3), "trace": True},
    "masks": {"masks": ("state", "zoneout", "allowed", "resets"), "batch_sizes": (64, 40, 3), "trace": False},
    "two operations": {"ops": ("keep", "replace"), "reverse": True, "trace": False},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("number", ["bfloat16", "ieee", "tf32"])
@pytest.mark.parametrize("target", SHARED)
def test_options_fit(monkeypatch: pytest.MonkeyPatch, regime: str, number: str, options: str, target: str) -> None:
    given = OPTIONS[options]
    if never_planned(regime, number, target) or ("controller" in given and (regime, number) == ("persistent", "ieee")):
        pytest.skip("no layer is planned so")
    hidden = units(regime, number, target, **given)
    if "controller" in given:
        given = given | {"controller": given["controller"] or hidden}
    for one in launches(monkeypatch, regime, number, target, hidden, **given):
        assert_fits(one, target)


def test_tiles_of_a_step_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Barriers that order global memory, where one tile reads another's writes; and no load that may be stale."""
    forward, _, backward = launches(monkeypatch, "tiled", "bfloat16", "sm_90", 128, trace=False)
    for made, barriers in ((forward, 2), (backward, 3)):
        kernel = compiled(made, "sm_90")
        assert kernel.asm["ttgir"].count("ttg.barrier all") == barriers
        assert "ld.global.nc" not in kernel.asm["ptx"]


LAYER = Layer(64, 64, 0, 7, "before", torch.bfloat16)


@pytest.mark.parametrize(
    ("changes", "chip", "regime"),
    [
        ({}, Chip(163 * 1024), "persistent"),
        ({}, Chip(64 * 1024, hip=True), "tiled"),
        ({"hidden": 32}, Chip(64 * 1024, hip=True), "persistent"),
        ({}, Chip(48 * 1024), "tiled"),
        ({"number": torch.float32}, Chip(227 * 1024), "tiled"),
        ({"number": torch.float32, "hidden": 32}, Chip(99 * 1024), "persistent"),
        ({"hidden": 65}, Chip(227 * 1024), "tiled"),
        ({"hidden": 128}, Chip(227 * 1024), "tiled"),
        ({"hidden": 256}, Chip(227 * 1024), "stepwise"),
        ({"hidden": 256, "operations": 2}, Chip(227 * 1024), "tiled"),
        ({"controller": 128}, Chip(227 * 1024), "tiled"),
        ({"controller": 16}, Chip(227 * 1024), "tiled"),
        ({"controller": 32, "hidden": 32}, Chip(227 * 1024), "persistent"),
        ({"operations": 8}, Chip(227 * 1024), "tiled"),
        ({"operations": 8, "hidden": 32}, Chip(227 * 1024), "persistent"),
        ({"trace": True}, Chip(227 * 1024), "tiled"),
        ({"trace": True, "hidden": 32}, Chip(227 * 1024), "persistent"),
        ({"controller": 32, "number": torch.float32, "hidden": 32}, Chip(227 * 1024), "tiled"),
    ],
)
def test_regime(changes: dict[str, Any], chip: Chip, regime: str) -> None:
    assert plan(LAYER._replace(**changes), chip).regime == regime


def test_regime_and_tiles_do_not_depend_on_the_number_of_steps_or_on_small_changes_of_the_batch() -> None:
    wide = LAYER._replace(hidden=512)
    assert len({str(plan(wide._replace(batch=batch), Chip(1 << 17))) for batch in range(17, 300)}) == 1


def test_tf32_is_not_persistent() -> None:
    torch.set_float32_matmul_precision("medium")
    assert plan(LAYER._replace(hidden=32, number=torch.float32), Chip(1 << 17)).regime == "tiled"


@pytest.mark.parametrize(("wanted", "precision"), [("highest", "ieee"), ("high", "tf32x3"), ("medium", "tf32")])
def test_precision_is_torchs(wanted: str, precision: str) -> None:
    """In float32 on NVIDIA's chips; half precision, and AMD's, know no TF32."""
    torch.set_float32_matmul_precision(wanted)
    whole = LAYER._replace(number=torch.float32)
    assert plan(whole, Chip(1 << 17)).precision == precision
    assert plan(whole, Chip(1 << 16, hip=True)).precision == plan(LAYER, Chip(1 << 17)).precision == "ieee"


def test_unknown_regime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUFURU_TRITON_REGIME", "fast")
    with pytest.raises(ValueError, match="should be one of persistent, tiled, stepwise, got 'fast'"):
        plan(LAYER, Chip(1 << 17))


def test_a_regime_that_no_chip_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUFURU_TRITON_REGIME", "persistent")
    for changes in ({"hidden": 65}, {"controller": 65}):
        with pytest.raises(ValueError, match=r"up to 64 units and controllers as large, got 6[45] and (0|65)"):
            plan(LAYER._replace(**changes), Chip(1 << 17))
