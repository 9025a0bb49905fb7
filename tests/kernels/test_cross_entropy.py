"""The native loss of a softmax over many words against torch's: values, gradients, edges, threads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from kernel_calls import needs_native
from torch import Tensor
from torch.nn.functional import linear

import mufuru.kernels
from mufuru import use_kernel
from mufuru.kernels import cross_entropy
from mufuru.kernels.cross_entropy import SPACE, Losses, losses, runs

pytestmark = needs_native
SHAPES = [(1, 1, 1), (1, 3, 2), (7, 5, 11), (16, 6, 126), (17, 7, 127), (40, 33, 300), (353, 4, 20), (710, 19, 131)]
"""Rows, features and words: at the edges of panels, of groups of six, of a chunk of words and of rows at a time."""
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}
"""Share of the largest number: sums of some hundred terms have another order."""


def draw(rows: int, features: int, words: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    given = torch.randn(rows, features), torch.randn(words, features), torch.randn(words)
    return *(tensor.to(dtype) for tensor in given), torch.randint(words, (rows,))


def expected(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Losses:
    """By torch, in double precision."""
    leaves = [tensor.detach().double().requires_grad_() for tensor in (hidden, weight, bias)]
    found = torch.nn.functional.cross_entropy(linear(*leaves), targets, reduction="none")
    return Losses(found.detach(), *torch.autograd.grad(found.sum(), leaves))


def assert_same(found: Losses, wanted: Losses, dtype: torch.dtype) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert (one.dtype, one.shape) == (dtype, other.shape)
        largest = float(other.abs().max()) if other.numel() else 0.0
        torch.testing.assert_close(one.double(), other, rtol=0, atol=TOLERANCE[dtype] * max(1.0, largest))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_same_as_torch(instruction_set: str, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    given = draw(*shape, dtype)
    assert_same(losses(*given), expected(*given), dtype)


def test_so_many_words_that_fewer_rows_are_taken_at_a_time() -> None:
    given = draw(150, 2, 300_000)
    assert_same(losses(*given), expected(*given), torch.float64)


@pytest.mark.usefixtures("_threads")
def test_no_bit_depends_on_the_number_of_threads() -> None:
    given = draw(400, 30, 1000, torch.float32)
    torch.set_num_threads(1)
    alone = losses(*given)
    for threads in (2, 3, 8):
        torch.set_num_threads(threads)
        for one, other in zip(losses(*given), alone, strict=True):
            assert torch.equal(one, other)


def test_a_prediction_has_the_same_bits_in_any_company() -> None:
    hidden, weight, bias, targets = draw(400, 30, 300, torch.float32)
    together = losses(hidden, weight, bias, targets)
    for rows in (slice(0, 1), slice(3, 20), slice(390, 400)):
        found = losses(hidden[rows], weight, bias, targets[rows])
        assert torch.equal(found.losses, together.losses[rows])
        assert torch.equal(found.d_hidden, together.d_hidden[rows])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_large_logits(dtype: torch.dtype) -> None:
    """Probabilities of 0 and 1, and losses of thousands."""
    hidden, weight, bias, targets = draw(20, 5, 300, dtype)
    given = hidden, 300 * weight, bias, targets
    found, wanted = losses(*given), expected(*given)
    # a logit of thousands is off by what rounding it loses
    torch.testing.assert_close(
        found.losses.double(), wanted.losses, rtol=1e-5, atol=1e-3 if dtype.itemsize == 4 else 1e-9
    )
    assert all(bool(tensor.isfinite().all()) for tensor in found)


def test_forbidden_words(instruction_set: str) -> None:
    """A bias of -inf: of single words, and of all words that are worked on together."""
    hidden, weight, bias, targets = draw(20, 5, 400)
    bias[:130] = bias[200] = -torch.inf
    targets = 300 + targets % 100
    found = losses(hidden, weight, bias, targets)
    assert_same(found, expected(hidden, weight, bias, targets), torch.float64)
    assert not found.d_bias[:130].any()
    assert found.d_bias[130] > 0


def test_a_forbidden_target_has_an_infinite_loss() -> None:
    hidden, weight, bias, targets = draw(3, 5, 11)
    bias[4], targets[:] = -torch.inf, torch.tensor([4, 5, 6])
    assert losses(hidden, weight, bias, targets).losses.isinf().tolist() == [True, False, False]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_in_its_row(instruction_set: str, value: float) -> None:
    hidden, weight, bias, targets = draw(20, 5, 300)
    clean = losses(hidden, weight, bias, targets)
    hidden[7, 2] = value
    found = losses(hidden, weight, bias, targets)
    others = torch.arange(20) != 7
    assert found.losses[7].isnan()
    assert found.d_hidden[7].isnan().all()
    assert torch.equal(found.losses[others], clean.losses[others])
    assert torch.equal(found.d_hidden[others], clean.d_hidden[others])
    assert found.d_weight.isnan().all()


def test_nothing_to_predict() -> None:
    hidden, weight, bias, targets = draw(0, 5, 11)
    found = losses(hidden, weight, bias, targets)
    assert [list(tensor.shape) for tensor in found] == [[0], [0, 5], [11, 5], [11]]
    assert not found.d_weight.any()
    assert not found.d_bias.any()


def test_strided_tensors() -> None:
    hidden, weight, bias, targets = draw(21, 8, 60)
    given = hidden[::3, ::2], weight.T.contiguous().T[::2, 4:], bias[::2], targets[::3] % 30
    assert_same(losses(*given), expected(*given), torch.float64)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"targets": torch.tensor([0, 11, 2])}, IndexError, "targets should be 0 to 10, got 0 to 11"),
        ({"targets": torch.tensor([0, -1, 2])}, IndexError, "targets should be 0 to 10, got -1 to 2"),
        ({"targets": torch.tensor([0.0, 1.0, 2.0])}, TypeError, "int64 on the CPU, got torch.float32 on cpu"),
        ({"targets": torch.zeros(3, dtype=torch.int64, device="meta")}, TypeError, "got torch.int64 on meta"),
        ({"bias": torch.zeros(11, device="meta")}, TypeError, "it runs on the CPU, tensors are on meta"),
        ({"bias": torch.zeros(11, dtype=torch.float64)}, TypeError, "it computes in float32 or in float64"),
        ({"targets": torch.tensor([0, 1])}, ValueError, r"\[3, 5\], \[11, 5\], \[11\], \[2\]"),
        ({"bias": torch.zeros(10)}, ValueError, r"\[3, 5\], \[11, 5\], \[10\], \[3\]"),
        ({"weight": torch.zeros(11, 4)}, ValueError, r"\[3, 5\], \[11, 4\], \[11\], \[3\]"),
        ({"hidden": torch.zeros(3)}, ValueError, r"\[3\], \[11, 5\], \[11\], \[3\]"),
        ({"weight": torch.zeros(0, 5), "bias": torch.zeros(0)}, ValueError, r"\[0, 5\], \[0\], \[3\]"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], error: type[Exception], text: str) -> None:
    given = dict(zip(("hidden", "weight", "bias", "targets"), draw(3, 5, 11, torch.float32), strict=True))
    with pytest.raises(error, match=text):
        losses(**(given | change))


def test_where_it_runs() -> None:
    hidden, weight, bias, _ = draw(3, 5, 11)
    assert runs(hidden, weight, bias)
    assert not runs(hidden.bfloat16(), weight.bfloat16(), bias.bfloat16())
    assert not runs(hidden, weight.float(), bias)
    assert not runs(hidden.to("meta"), weight, bias)
    with use_kernel("reference"):
        assert not runs(hidden, weight, bias)
    with use_kernel("native"):
        assert runs(hidden, weight, bias)
        with pytest.raises(RuntimeError, match=r"float32 or in float64, got torch\.float32, torch\.float64"):
            runs(hidden, weight.float(), bias)
        with pytest.raises(RuntimeError, match="tensors are on meta"):
            runs(hidden, weight, bias.to("meta"))


def test_what_is_compiled_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the layers are asked to run natively."""
    hidden, weight, bias, _ = draw(3, 5, 11)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with use_kernel("native"):
        assert not runs(hidden, weight, bias)


def test_without_a_library_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, bias, _ = draw(3, 5, 11)
    monkeypatch.setattr(cross_entropy, "missing_library", lambda: "there is no compiler")
    assert not runs(hidden, weight, bias)
    with use_kernel("native"), pytest.raises(RuntimeError, match="there is no compiler"):
        runs(hidden, weight, bias)


def test_the_fields_are_in_order() -> None:
    """Those of the C++ struct, as `losses` fills them."""
    header = (Path(mufuru.kernels.__file__).parent / "csrc" / "problem.h").read_text(encoding="utf-8")
    body = re.sub("//.*", "", header.split("struct Predictions {")[1].split("};")[0])
    fields = re.findall(r"\b(\w+)\s*[,;]", body)
    assert fields == [
        "rows", "features", "words", "is_double", "hidden", "weight", "bias", "targets", "space", *Losses._fields,
    ]  # fmt: skip
    assert fields[SPACE] == "space"
