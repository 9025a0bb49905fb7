"""The native kernel against the reference: every option, and the edges that random numbers never meet."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from kernel_calls import (
    MANY,
    UNEVEN,
    assert_close,
    assert_kernels_agree,
    everything,
    gradients,
    leaves_of,
    make_call,
    needs_native,
    replace_weights,
)
from torch import Tensor

from mufuru import ops
from mufuru.kernels import native, reference
from mufuru.kernels.call import Call, Masks
from mufuru.unit import Weights

pytestmark = needs_native
NATIVE = tuple(op.name for op in ops.native())
OPTIONS: dict[str, tuple[Any, ...]] = {
    "ops": (("keep", "replace"), ("replace",), ("forget", "max"), ops.PAPER, ops.PAPER[::-1], NATIVE, NATIVE[::-1]),
    "reset": ("before", "after", None),
    "activation": ("tanh", "sigmoid"),
    "controller": (None, 7),
    "controller_activation": ("tanh", "relu"),
    "bias": (True, False),
    "batch_sizes": (None, UNEVEN, (5, 2)),
    "reverse": (False, True),
    "masks": ((), *((mask,) for mask in Masks._fields), Masks._fields),
    "trace": (False, True),
    "dtype": (torch.float64, torch.float32),
}
LARGE = OPTIONS | {"batch": (MANY,), "batch_sizes": (None, UNEVEN, (MANY, 26, 2))}


def combinations(options: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    rows = random.Random(5).sample(list(itertools.product(*options.values())), 250)
    return [dict(zip(options, row, strict=True)) for row in rows]


COMBINATIONS = {"small": combinations(OPTIONS), "large": combinations(LARGE)}


@pytest.mark.parametrize("batch", COMBINATIONS)
def test_every_two_options_meet(batch: str) -> None:
    options = {"small": OPTIONS, "large": LARGE}[batch]
    for one, other in itertools.combinations(options, 2):
        met = {(chosen[one], chosen[other]) for chosen in COMBINATIONS[batch]}
        assert met == set(itertools.product(options[one], options[other]))


@pytest.mark.parametrize("combination", range(250))
@pytest.mark.parametrize("batch", COMBINATIONS)
def test_combinations(batch: str, combination: int) -> None:
    assert_kernels_agree(make_call(**COMBINATIONS[batch][combination]))


RARER: dict[str, dict[str, Any]] = {
    "none": {},
    "reset after": {"reset": "after"},
    "no reset": {"reset": None},
    "no bias": {"bias": False},
    "sigmoid": {"activation": "sigmoid"},
    "controller": {"controller": 7},
    "controller with relu": {"controller": 7, "controller_activation": "relu"},
    "controller without bias": {"controller": 7, "bias": False},
    "trace": {"trace": True},
    **{mask: {"masks": (mask,)} for mask in Masks._fields},
}


@pytest.mark.parametrize("names", [ops.PAPER, ("keep", "replace")], ids=str)
@pytest.mark.parametrize("rarer", RARER)
@pytest.mark.parametrize("batch", [5, MANY])
def test_one_option_beside_the_code_for_none(batch: int, rarer: str, names: tuple[str, ...]) -> None:
    """These operations have code of their own for whole vectors in float32 and no rarer option."""
    settings = {"trace": False, "batch": batch} | RARER[rarer]
    assert_kernels_agree(make_call(names, hidden=43, dtype=torch.float32, **settings))


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
    wide = torch.full([2 * size for size in tensor.shape], torch.nan, dtype=tensor.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in tensor.shape)]
    return view.copy_(tensor.detach()).requires_grad_()


def with_strides(call: Call) -> Call:
    call = replace_weights(call, strided)
    masks = Masks(*(None if mask is None else mask.t().contiguous().t() for mask in call.masks))
    k0 = None if call.k0 is None else strided(call.k0)
    return call._replace(x=strided(call.x), s0=strided(call.s0), k0=k0, masks=masks)


CASES: dict[str, Any] = {
    "noise": lambda names: make_call(names),
    "float32": lambda names: make_call(names, dtype=torch.float32),
    "ties": lambda names: tied(make_call(names)),
    "many": lambda names: make_call(names, batch=MANY),
    "one step": lambda names: make_call(names, steps=1),
    "no step": lambda names: make_call(names, steps=0),
    "empty batch": lambda names: make_call(names, batch=0),
    "strided": lambda names: with_strides(make_call(names)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NATIVE)
def test_each_operation(name: str, case: str) -> None:
    assert_kernels_agree(CASES[case](("keep", name) if name != "keep" else ("keep",)))


@pytest.mark.parametrize("reset", ["before", "after", None])
@pytest.mark.parametrize("controller", [None, 7])
class TestSizes:
    @pytest.mark.parametrize("batch", [1, 2, 3, 5, 6, 7, 13, 23, 24, 25])
    def test_batch(self, reset: Any, controller: int | None, batch: int) -> None:
        assert_kernels_agree(make_call(reset=reset, controller=controller, batch=batch, steps=2))

    @pytest.mark.parametrize("hidden", [1, 2, 4, 8, 16, 17, 33])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_hidden(self, reset: Any, controller: int | None, hidden: int, dtype: torch.dtype) -> None:
        # 33 is more than any instruction set has in a panel
        sizes = {"hidden": hidden, "dtype": dtype, "steps": 2}
        for batch in (5, MANY):
            assert_kernels_agree(make_call(reset=reset, controller=controller, batch=batch, **sizes))

    @pytest.mark.parametrize("size", [1, 8, 17, 33])
    def test_inputs_and_controller(self, reset: Any, controller: int | None, size: int) -> None:
        sizes = {"controller": controller and size, "inputs": size, "steps": 2}
        for batch in (5, MANY):
            assert_kernels_agree(make_call(reset=reset, batch=batch, **sizes))

    def test_no_rows(self, reset: Any, controller: int | None) -> None:
        for shape in ({"batch": 0}, {"steps": 0}, {"batch_sizes": ()}, {"batch": 0, "steps": 0, "batch_sizes": ()}):
            assert_kernels_agree(make_call(reset=reset, controller=controller, **shape))

    def test_strided(self, reset: Any, controller: int | None) -> None:
        masks = ("state", "zoneout", "allowed")
        for batch in (5, MANY):
            assert_kernels_agree(with_strides(make_call(reset=reset, controller=controller, masks=masks, batch=batch)))

    @pytest.mark.parametrize("batch", [1, 3, 4, 130])
    def test_whole_panels(self, reset: Any, controller: int | None, batch: int) -> None:
        """More columns than a panel has, a depth that is packed in parts, too few rows to pack, and several blocks."""
        sizes = {"inputs": 270, "hidden": 40, "controller": controller and 36, "steps": 2, "dtype": torch.float32}
        for names in (ops.PAPER, ("keep", "replace")):
            assert_kernels_agree(make_call(names, reset=reset, batch=batch, **sizes))

    @pytest.mark.parametrize(("batch", "inputs", "hidden"), [(1, 520, 40), (9, 520, 40), (420, 7, 330)])
    def test_long_rows(self, reset: Any, controller: int | None, batch: int, inputs: int, hidden: int) -> None:
        """Rows of weights that are fetched beforehand, and more sums than stay in the cache beside them."""
        sizes = {"inputs": inputs, "hidden": hidden, "steps": 1, "dtype": torch.float32, "trace": False}
        for names in (ops.PAPER, ("keep", "replace")):
            assert_kernels_agree(make_call(names, reset=reset, controller=controller, batch=batch, **sizes))

    def test_many_steps(self, reset: Any, controller: int | None) -> None:
        assert_kernels_agree(make_call(reset=reset, controller=controller, steps=150, batch=2, hidden=5))


@pytest.mark.parametrize(("names", "size"), [(ops.PAPER, 512), (("keep", "replace"), 768)])
@pytest.mark.parametrize("batch", [1, 9])
def test_gradients_that_no_cache_holds(names: tuple[str, ...], size: int, batch: int) -> None:
    """They are written past the caches, and read again by the same thread."""
    call = make_call(names, batch=batch, inputs=size, hidden=size, steps=1, dtype=torch.float32, trace=False)
    assert_kernels_agree(call)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("controller", [None, 7])
def test_huge_logits(controller: int | None, dtype: torch.dtype) -> None:
    call = make_call(controller=controller, dtype=dtype)
    place = 6 if controller else 2
    bias = call.weights[place]
    assert bias is not None
    with torch.no_grad():
        bias[-7 * 11 :] = 1e4 * torch.randn(7 * 11).sign()
    # in float32 a logit of 1e4 is rounded to 1e-3, and the weights of tied operations with it
    leaves = leaves_of(call)
    tolerance = 1e-10 if dtype == torch.float64 else 5e-3
    assert_close(everything(native.sequence, call, leaves), everything(reference.sequence, call, leaves), tolerance)


@pytest.mark.parametrize("forbidden", [0, 3, 6])
@pytest.mark.parametrize("controller", [None, 7])
def test_an_operation_whose_bias_is_minus_infinity(controller: int | None, forbidden: int) -> None:
    call = make_call(controller=controller)
    bias = call.weights[6 if controller else 2]
    assert bias is not None
    with torch.no_grad():
        bias[-7 * 11 :].view(7, 11)[forbidden] = -torch.inf
    assert_kernels_agree(call)
    p = native.sequence(call).p
    assert p is not None
    assert not p[:, forbidden].any()


def test_one_allowed_operation_has_all_the_weight() -> None:
    for only in range(7):
        call = make_call(masks=("allowed",))
        assert call.masks.allowed is not None
        call.masks.allowed[:] = torch.arange(7) == only
        assert_kernels_agree(call)


def test_expanded() -> None:
    """One input for all steps, one learned state for all sequences, one row for all weights."""
    call = make_call(controller=7)
    assert call.k0 is not None
    leaves = {
        "x": call.x[:1],
        "s0": call.s0[:1],
        "k0": call.k0[:1],
        "hh": call.weights.hh[:1],
        "ih": call.weights.ih[:, :1],
    }
    leaves = {name: leaf.detach().clone().requires_grad_() for name, leaf in leaves.items()}
    wide = {
        "ih": leaves["ih"].expand_as(call.weights.ih),
        "hh": leaves["hh"].expand_as(call.weights.hh),
    }
    states = {"s0": leaves["s0"].expand_as(call.s0), "k0": leaves["k0"].expand_as(call.k0)}
    call = call._replace(x=leaves["x"].expand_as(call.x), weights=call.weights._replace(**wide), **states)
    assert_kernels_agree(call, leaves)


LEAVES = ("x", "s0", "k0", *Weights._fields)


@pytest.mark.parametrize("wanted", [*[(name,) for name in LEAVES], ("x", "s0"), Weights._fields, ()], ids="+".join)
def test_gradients_of_some_inputs_only(wanted: tuple[str, ...]) -> None:
    for reset in ("before", "after", None):
        call = make_call(reset=reset, controller=7, batch_sizes=UNEVEN)
        for name, leaf in leaves_of(call).items():
            leaf.requires_grad_(name in wanted)
        assert_kernels_agree(call)


@pytest.mark.parametrize("masks", [("zoneout",), ()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("wanted", [("output",), ("s_n",), ("k_n",), ("p",), ("v",), ("s_n", "v")], ids="+".join)
def test_gradients_of_some_outputs_only(wanted: tuple[str, ...], dtype: torch.dtype, masks: tuple[str, ...]) -> None:
    call = make_call(controller=7, batch_sizes=UNEVEN, masks=masks, dtype=dtype)
    found = []
    for sequence in (native.sequence, reference.sequence):
        result = sequence(call)._asdict()
        outputs = [result[name] for name in wanted]
        found.append(
            torch.autograd.grad(sum(output.square().sum() for output in outputs), list(leaves_of(call).values()),
                                materialize_grads=True)
        )  # fmt: skip
    assert_close(*(dict(zip(leaves_of(call), grads, strict=True)) for grads in found))


def test_a_graph_may_be_walked_twice() -> None:
    call = make_call(reset="after", controller=7)
    result = native.sequence(call)
    first = gradients(result, leaves_of(call), retain_graph=True)
    for name, grad in gradients(result, leaves_of(call)).items():
        assert torch.equal(first[name], grad), name


def test_one_unit_twice_in_a_graph() -> None:
    call = make_call(controller=7, batch_sizes=UNEVEN)

    def twice(sequence: Any) -> dict[str, Tensor]:
        once = sequence(call)
        again = sequence(call._replace(s0=once.s_n, k0=once.k_n, reverse=True))
        return {"s_n": again.s_n, **gradients(again, leaves_of(call))}

    assert_close(twice(native.sequence), twice(reference.sequence))


def test_changing_the_output_in_place_is_noticed() -> None:
    call = make_call()
    result = native.sequence(call)
    with torch.no_grad():
        result.output.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.output.sum().backward()
