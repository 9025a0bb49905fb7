"""The reference as captured graphs. A stand-in captures on the CPU: as a CUDA graph does, it reads its inputs where
they were and writes the results of every replay to the same memory. Tests marked `gpu` capture on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from kernel_calls import UNEVEN, assert_close, everything, gradients, leaves_of
from kernel_calls import make_call as any_call
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import mufuru
from mufuru.kernels import Call, Masks, choice, graphed, reference
from mufuru.kernels.graphed import Tensors
from mufuru.kernels.library import MuFuRUKernelWarning
from mufuru.kernels.operators import opaque_reference


class StandIn:
    """Captures on the CPU and counts."""

    captured = replayed = 0

    def __call__(self, function: Callable[[], Tensors]) -> tuple[Tensors, Callable[[], object]]:
        outputs = [None if output is None else output.detach().clone() for output in function()]
        self.captured += 1

        def replay() -> None:
            self.replayed += 1
            for output, value in zip(outputs, function(), strict=True):
                if output is not None and value is not None:
                    output.copy_(value.detach())

        return outputs, replay


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MUFURU_GRAPHS", "1")
    yield
    graphed.clear()


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setitem(graphed.CAPTURES, "cpu", made)
    return made


def make_call(ops: Any = ("keep", "max", "replace"), **options: Any) -> Call:
    return any_call(ops, **{"hidden": 5, "steps": 3} | options)


CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "masks": {"masks": Masks._fields, "batch_sizes": UNEVEN},
    "controller": {"controller": 7, "reset": "after", "reverse": True},
    "no bias": {"bias": False, "reset": None, "trace": False},
}


def agree(call: Call) -> None:
    leaves = leaves_of(call)
    assert_close(everything(opaque_reference, call, leaves), everything(reference.sequence, call, leaves), 1e-12)


@pytest.mark.parametrize("name", CALLS)
def test_other_numbers_of_the_same_shapes(stand_in: StandIn, name: str) -> None:
    """Once plainly, once captured, then replayed with other inputs, parameters and masks."""
    for _ in range(4):
        agree(make_call(**CALLS[name]))
    assert stand_in.captured == 2  # forward and backward
    assert stand_in.replayed == 6


def test_two_forward_passes_before_their_backward_passes(stand_in: StandIn) -> None:
    agree(call := make_call())
    calls = [call, make_call(), make_call()]
    results = [opaque_reference(one) for one in calls]
    for one, result in (*zip(calls, results, strict=True),):
        wanted = reference.sequence(one)
        torch.testing.assert_close(result.output, wanted.output)
        found, expected = (gradients(part, leaves_of(one)) for part in (result, wanted))
        assert_close(found, expected, 1e-12)
    assert stand_in.replayed > 3


def test_results_are_not_the_memory_of_a_graph(stand_in: StandIn) -> None:
    call = make_call()
    for _ in range(3):
        result = opaque_reference(call)
        grads = gradients(result, leaves_of(call))
    static = {
        tensor.data_ptr()
        for graph in graphed._graphs.values()
        for tensor in (*graph.inputs, *graph.outputs)
        if tensor is not None
    }
    given = (tensor for tensor in (*call.tensors(), *result, *grads.values()) if tensor is not None)
    assert static.isdisjoint(tensor.data_ptr() for tensor in given)


def test_parameters_change_in_place_and_by_other_data(stand_in: StandIn) -> None:
    call = make_call()
    for change in (lambda w: None, lambda w: w.mul_(2), lambda w: setattr(w, "data", w.data.clone() + 1)):
        for weight in call.weights:
            if weight is not None:
                with torch.no_grad():
                    change(weight)
        agree(call)
    assert stand_in.captured == 2


def test_a_parameter_that_changes_in_place_before_the_backward_pass_is_noticed(stand_in: StandIn) -> None:
    agree(call := make_call())
    result = opaque_reference(call)
    with torch.no_grad():
        call.weights.hh.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradients(result, leaves_of(call))


def test_everything_that_is_fixed_in_a_graph_is_in_its_key(stand_in: StandIn) -> None:
    """Each of them twice, so that a wrong graph would be replayed."""
    variants: list[dict[str, Any]] = [
        {}, {"reverse": True}, {"reset": "after"}, {"activation": "sigmoid"}, {"dtype": torch.float32},
        {"ops": ("keep", "max")}, {"ops": ("max", "keep")}, {"batch": 3, "steps": 5}, {"trace": False},
        {"masks": ("zoneout",)}, {"masks": ("resets",)}, {"batch_sizes": (4, 4, 3, 1)}, {"batch_sizes": (5, 3, 3, 1)},
    ]  # fmt: skip
    with torch.no_grad():
        for options in variants * 2:
            call = make_call(**options)
            torch.testing.assert_close(opaque_reference(call).output, reference.sequence(call).output)
    assert stand_in.captured == len(variants)


def test_which_gradients_are_wanted(stand_in: StandIn) -> None:
    call = make_call()
    fixed = call._replace(x=call.x.detach())
    for one, of in [(call, "output"), (fixed, "output"), (call, "s_n")] * 2:
        leaves = [tensor for tensor in (one.x, one.weights.hh) if tensor.requires_grad]
        found, wanted = (
            torch.autograd.grad(getattr(kernel(one), of).square().sum(), leaves)
            for kernel in (opaque_reference, reference.sequence)
        )
        torch.testing.assert_close(found, wanted)


def test_second_derivatives(stand_in: StandIn) -> None:
    agree(call := make_call())
    found = []
    for kernel in (opaque_reference, reference.sequence):
        (grad,) = torch.autograd.grad(kernel(call).output.square().sum(), call.x, create_graph=True)
        found.append(torch.autograd.grad(grad.square().sum(), [call.x, call.weights.hh]))
    torch.testing.assert_close(found[0], found[1])


def test_inference_and_training_share_a_graph(stand_in: StandIn) -> None:
    call = make_call()
    for _ in range(2):
        with torch.inference_mode():
            opaque_reference(call)
    agree(call)
    with torch.inference_mode():
        opaque_reference(call)
    assert stand_in.captured == 1


def test_few_graphs_are_kept(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphed, "GRAPHS", 2)
    monkeypatch.setattr(graphed, "MET", 3)
    with torch.no_grad():
        for steps in (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8):
            opaque_reference(make_call(steps=steps))
        assert len(graphed._graphs) == 2
        assert len(graphed._met) == 3
        before = stand_in.captured
        opaque_reference(make_call(steps=3))
        assert stand_in.captured == before
        opaque_reference(make_call(steps=1))  # forgotten: as if it came for the first time
        assert stand_in.captured == before


def test_no_graph_inside_another_nor_of_python(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        agree(make_call(("keep", lambda s, v: torch.hypot(s, v))))
    monkeypatch.setattr(graphed, "_capturing", lambda: True)
    for _ in range(3):
        agree(make_call())
    monkeypatch.undo()
    monkeypatch.setenv("MUFURU_GRAPHS", "0")
    agree(make_call())
    assert stand_in.captured == 0
    monkeypatch.setenv("MUFURU_GRAPHS", "yes")
    with pytest.raises(ValueError, match="MUFURU_GRAPHS should be 0 or 1, got 'yes'"):
        graphed.wanted()


def test_the_choice(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device whose kernel cannot do a call, and not where Python must be seen."""
    monkeypatch.setattr(choice, "_BY_DEVICE", {"cpu": choice.KERNELS["triton"]})
    call = make_call()
    assert choice.choose(call, "auto") is opaque_reference
    assert choice.choose(call, "reference") is reference.sequence
    assert choice.choose(make_call(("keep", torch.hypot)), "auto") is reference.sequence
    with forward_ad.dual_level():
        assert choice.choose(call, "auto") is reference.sequence
    chosen = []

    def note(x: torch.Tensor) -> torch.Tensor:
        chosen.append(choice.choose(call._replace(x=x), "auto"))
        return x

    torch.func.vmap(note)(torch.ones(2, 3))
    assert chosen == [reference.sequence]
    monkeypatch.setenv("MUFURU_GRAPHS", "0")
    assert choice.choose(call, "auto") is reference.sequence


def test_the_warning_names_graphs_where_they_are_a_way_out(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[bool, bool]] = []
    monkeypatch.setattr(choice, "_warn_of_reference", lambda device, reason, *given: told.append(given))
    monkeypatch.setitem(graphed.CAPTURES, "cuda", stand_in)
    with FakeTensorMode(allow_non_fake_inputs=True):
        call = make_call()._replace(x=torch.empty(15, 3, dtype=torch.float64, device="cuda"))
    for wanted in ("1", "0"):
        monkeypatch.setenv("MUFURU_GRAPHS", wanted)
        choice.choose(call, "auto")
    choice.choose(call._replace(unit=make_call(("keep", torch.hypot)).unit), "auto")
    with forward_ad.dual_level():
        choice.choose(call, "auto")
    assert told == [(True, True), (False, True), (False, False), (False, False)]


@pytest.mark.parametrize(
    ("wanted", "given", "words"),
    [
        ("0", (False, True), "cuda, step by step, .*: a reason. Change that, set MUFURU_GRAPHS=1 to capture it, move"),
        ("0", (False, False), "cuda, step by step, .*: a reason. Change that, move model and input"),
        ("1", (True, True), "cuda, as a captured graph .*: a reason. Change that, move model and input"),
        ("1", (False, False), "cuda, step by step, .*: a reason. Change that, move model and input"),
    ],
)
def test_the_warning_says_which_way_it_is(
    wanted: str, given: tuple[bool, bool], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_warned", set())
    monkeypatch.setenv("MUFURU_GRAPHS", wanted)
    with pytest.warns(MuFuRUKernelWarning, match=words):
        choice._warn_of_reference("cuda", "a reason", *given)


on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, and a build of torch for it")


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.filterwarnings("ignore::mufuru.kernels.library.MuFuRUKernelWarning")
@pytest.mark.parametrize("options", [{}, {"controller_size": 4, "bidirectional": True}], ids=["plain", "controller"])
def test_on_a_gpu(options: dict[str, Any]) -> None:
    """float64, which Triton does not do: several training steps, each with two forward passes before the backward."""
    layer = mufuru.MuFuRU(3, 5, dtype=torch.float64, device="cuda", **options)
    for _ in range(4):
        inputs = [torch.randn(6, 4, 3, dtype=torch.float64, device="cuda") for _ in range(2)]
        found = []
        for kernel in ("auto", "reference"):
            with mufuru.use_kernel(kernel):
                outputs = [layer(x)[0] for x in inputs]
            loss = torch.stack([output.square().sum() for output in outputs]).sum()
            found.append((outputs, torch.autograd.grad(loss, list(layer.parameters()))))
        torch.testing.assert_close(found[0], found[1])
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.add_(0.1)
    assert len(graphed._graphs) >= 2
