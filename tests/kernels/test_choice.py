"""Which kernel runs: the argument, the context, the variable, and what happens where the native one cannot."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from kernel_calls import make_call, needs_native
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call

from mufuru import MuFuRU, MuFuRUCell, kernel_status, use_kernel
from mufuru.kernels import choice, library, native, problem, reference
from mufuru.kernels.library import MuFuRUKernelWarning

NAMES = {"native": native, "reference": reference}


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUFURU_KERNEL", raising=False)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that have run."""
    names: list[str] = []
    for name, module in NAMES.items():
        original = module.sequence

        def note(call: Any, name: str = name, original: Any = original) -> Any:
            names.append(name)
            return original(call)

        monkeypatch.setattr(module, "sequence", note)
    return names


@pytest.fixture
def _no_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    status = library.Status("unavailable", reason="no C++ compiler found")
    monkeypatch.setattr(library, "load", lambda: None)
    monkeypatch.setattr(library, "status", lambda: status)
    problem.loaded.cache_clear()
    yield
    problem.loaded.cache_clear()


def layer(**options: Any) -> MuFuRU:
    return MuFuRU(3, 5, **options)


def forward(module: Any, dtype: torch.dtype = torch.float32) -> Tensor:
    return module(torch.randn(4, 2, 3, dtype=dtype))[0]  # type: ignore[no-any-return]


@needs_native
class TestArgument:
    @pytest.mark.parametrize("kernel", NAMES)
    def test_of_a_layer(self, kernel: Any, ran: list[str]) -> None:
        forward(MuFuRU(3, 5, num_layers=2, bidirectional=True, kernel=kernel)).sum().backward()
        assert ran == 4 * [kernel]

    @pytest.mark.parametrize("kernel", NAMES)
    def test_of_a_cell(self, kernel: Any, ran: list[str]) -> None:
        MuFuRUCell(3, 5, kernel=kernel)(torch.randn(2, 3))
        assert ran == [kernel]

    def test_auto_is_native(self, ran: list[str]) -> None:
        forward(layer())
        assert ran == ["native"]

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
    def test_other_dtypes_are_native_too(self, dtype: torch.dtype, ran: list[str]) -> None:
        assert forward(layer(dtype=dtype, kernel="native"), dtype).dtype == dtype
        assert ran == ["native"]


@needs_native
class TestContext:
    def test_comes_before_the_argument(self, ran: list[str]) -> None:
        for kernel, other in (("native", "reference"), ("reference", "native")):
            with use_kernel(kernel):
                forward(layer(kernel=other))
        assert ran == ["native", "reference"]

    def test_the_innermost_counts_and_ends(self, ran: list[str]) -> None:
        module = layer()
        with use_kernel("reference"):
            with use_kernel("native"):
                forward(module)
            forward(module)
            with use_kernel("auto"):
                forward(module)
        forward(module)
        assert ran == ["native", "reference", "native", "native"]

    def test_ends_with_an_error(self, ran: list[str]) -> None:
        with pytest.raises(KeyError), use_kernel("reference"):
            raise KeyError
        forward(layer())
        assert ran == ["native"]

    def test_may_be_used_again(self, ran: list[str]) -> None:
        for _ in range(2):
            with use_kernel("reference"):
                forward(layer())
        assert ran == ["reference", "reference"]

    def test_refuses_other_names(self) -> None:
        with pytest.raises(
            ValueError, match="kernel should be one of 'auto', 'native', 'triton', 'reference', got 'fast'"
        ):
            use_kernel("fast").__enter__()


@needs_native
class TestVariable:
    @pytest.mark.parametrize("kernel", NAMES)
    def test_decides_for_auto(self, kernel: str, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MUFURU_KERNEL", kernel)
        forward(layer())
        with use_kernel("auto"):
            forward(layer(kernel="native"))
        assert ran == [kernel, kernel]

    def test_comes_after_argument_and_context(self, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MUFURU_KERNEL", "reference")
        forward(layer(kernel="native"))
        with use_kernel("native"):
            forward(layer())
        assert ran == ["native", "native"]

    def test_refuses_other_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MUFURU_KERNEL", "fast")
        with pytest.raises(ValueError, match="got 'fast'"):
            forward(layer())

    def test_native_is_as_strict_as_the_argument(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MUFURU_KERNEL", "native")
        with pytest.raises(RuntimeError, match="not element-wise"):
            forward(layer(ops=("keep", lambda s, v: s.flip(-1))))


# torch itself uses torch.jit at the first forward-mode derivative
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@needs_native
class TestRefusal:
    def test_another_device(self, ran: list[str]) -> None:
        x = torch.randn(4, 2, 3, device="meta")
        assert layer(device="meta")(x)[0].shape == (4, 2, 5)
        assert ran == ["reference"]
        with pytest.raises(RuntimeError, match=r"runs on the CPU, the tensors are on meta.*Use kernel='auto'"):
            layer(device="meta", kernel="native")(x)

    def test_a_kernel_for_gpus_on_the_cpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
        with pytest.raises(RuntimeError, match=r"kernel='triton' cannot run this: it runs on a GPU, .* on cpu\. Use "):
            forward(layer(kernel="triton"))

    def test_too_many_operations(self, ran: list[str]) -> None:
        many = [lambda s, v, i=i: s * i for i in range(33)]
        given = [named(f"times{i}", function) for i, function in enumerate(many)]
        forward(layer(ops=given))
        assert ran == ["reference"]
        with pytest.raises(RuntimeError, match="up to 32 operations, got 33"):
            forward(layer(ops=given, kernel="native"))
        forward(layer(ops=given[:32], kernel="native"))

    def test_forward_derivatives(self, ran: list[str]) -> None:
        module = layer(dtype=torch.float64)
        x, direction = (torch.randn(4, 2, 3, dtype=torch.float64) for _ in range(2))
        found = torch.func.jvp(lambda x: module(x)[0], (x,), (direction,))[1]
        assert ran == ["reference"]
        step = 1e-6
        difference = (module(x + step * direction)[0] - module(x - step * direction)[0]) / (2 * step)
        # central differences: about the square of the step, and rounding divided by it
        torch.testing.assert_close(found, difference, atol=1e-8, rtol=0)
        with pytest.raises(RuntimeError, match=r"cannot run this: .*Use kernel='auto'"):
            torch.func.jvp(lambda x: layer(dtype=torch.float64, kernel="native")(x)[0], (x,), (direction,))

    def test_forward_derivatives_with_dual_numbers(self, ran: list[str]) -> None:
        x, direction = (torch.randn(4, 2, 3) for _ in range(2))
        module = layer()
        with torch.autograd.forward_ad.dual_level():
            output = module(torch.autograd.forward_ad.make_dual(x, direction))[0]
            assert torch.autograd.forward_ad.unpack_dual(output).tangent is not None
        forward(module)
        assert ran == ["reference", "native"]

    def test_gradients_by_torch_func(self) -> None:
        """Gradients of a loss, and of each sequence's own loss."""
        module = layer(dtype=torch.float64)
        weights = dict(module.named_parameters())
        x = torch.randn(4, 2, 3, dtype=torch.float64)

        def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
            return functional_call(module, weights, (x,))[0].square().sum()  # type: ignore[no-any-return]

        found = torch.func.grad(loss)(weights, x)
        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 1))(weights, x)
        loss(weights, x).backward()
        for name, parameter in weights.items():
            # sums of float64 in another order
            torch.testing.assert_close(found[name], parameter.grad, atol=1e-10, rtol=0)
            torch.testing.assert_close(each[name].sum(0), parameter.grad, atol=1e-10, rtol=0)

    def test_hessian_by_torch_func(self) -> None:
        module = layer(ops=("keep", "mul", "replace"), dtype=torch.float64)
        x = torch.randn(2, 1, 3, dtype=torch.float64)
        found = torch.func.hessian(lambda x: module(x)[0].square().sum())(x)
        wanted = torch.autograd.functional.hessian(lambda x: module(x)[0].square().sum(), x)
        # sums of float64 in another order
        torch.testing.assert_close(found, wanted, atol=1e-10, rtol=0)


def named(name: str, function: Any) -> Any:
    function.__name__ = name
    return function


@pytest.mark.usefixtures("_no_library")
class TestNoLibrary:
    def test_auto_runs_the_reference(self, ran: list[str]) -> None:
        forward(layer()).sum().backward()
        with use_kernel("auto"), torch.no_grad():
            forward(layer(kernel="native"))
        assert ran == ["reference", "reference"]

    def test_native_says_what_is_missing(self) -> None:
        with pytest.raises(RuntimeError, match="kernel='native' cannot run this: no C\\+\\+ compiler found"):
            forward(layer(kernel="native"))

    def test_the_door_says_what_is_missing(self) -> None:
        with pytest.raises(RuntimeError, match="not available: no C\\+\\+ compiler found"):
            problem.loaded()

    def test_choosing_tells_no_lies(self) -> None:
        assert choice.choose(make_call(), "auto") is reference.sequence


@needs_native
def test_the_reference_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for by name, it runs without a search for the native library, which might build one."""

    def search() -> None:
        raise AssertionError("the library was looked for")

    monkeypatch.setattr(library, "load", search)
    monkeypatch.setattr(library, "status", search)
    forward(layer(kernel="reference"))


@needs_native
def test_an_unknown_kernel_set_later_is_refused() -> None:
    layer = MuFuRU(3, 4)
    layer.kernel = "cuda"
    with pytest.raises(ValueError, match="kernel should be one of 'auto', 'native', 'triton', 'reference', got 'cuda'"):
        layer(torch.randn(2, 1, 3))


def test_threads_have_contexts_of_their_own() -> None:
    """A context in one thread does not reach into another, nor end there."""
    call = make_call()
    with use_kernel("reference"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(choice.choose, call, "native").result() is native.sequence
        assert choice.choose(call, "native") is reference.sequence


class OnlyTanh:
    """A kernel for another device that cannot do everything."""

    @staticmethod
    def obstacle(call: Any) -> str:
        return "" if call.unit.activation == "tanh" else "it has no sigmoid"

    @staticmethod
    def sequence(call: Any) -> Any:
        raise NotImplementedError

    @staticmethod
    def status() -> str:
        return "for tests"


@pytest.fixture
def _other_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is not there: its tensors have shapes and no memory."""
    row = choice.Kernel(("cuda",), "a GPU", lambda: OnlyTanh)
    monkeypatch.setitem(choice.KERNELS, "triton", row)
    monkeypatch.setitem(choice._BY_DEVICE, "cuda", row)
    monkeypatch.setattr(choice, "_warned", set())


def call_on(device: str, **options: Any) -> Any:
    call = make_call(**options)
    with FakeTensorMode(allow_non_fake_inputs=True):
        return call._replace(x=torch.empty(call.x.shape, device=device))


@pytest.mark.usefixtures("_other_device")
class TestDevices:
    def test_every_device_has_its_kernel(self) -> None:
        call = call_on("cuda")
        assert choice.choose(call, "auto") is OnlyTanh.sequence
        assert choice.choose(call, "triton") is OnlyTanh.sequence
        with pytest.raises(RuntimeError, match=r"kernel='native' cannot run this: it runs on the CPU, .* on cuda"):
            choice.choose(call, "native")

    def test_the_reference_warns_once_per_reason(self) -> None:
        sigmoid = call_on("cuda", activation="sigmoid")
        with pytest.warns(
            MuFuRUKernelWarning, match="runs on cuda, step by step, .*: it has no sigmoid. Change that, "
        ):
            assert choice.choose(sigmoid, "auto") is reference.sequence
        assert choice.choose(sigmoid, "auto") is reference.sequence
        with pytest.warns(MuFuRUKernelWarning, match="no other kernel runs on xpu"):
            assert choice.choose(call_on("xpu"), "auto") is reference.sequence

    def test_the_reference_by_name_does_not_warn(self) -> None:
        assert choice.choose(call_on("cuda", activation="sigmoid"), "reference") is reference.sequence

    def test_a_name_runs_or_refuses(self) -> None:
        with pytest.raises(
            RuntimeError, match=r"kernel='triton' cannot run this: it has no sigmoid\. Use kernel='auto'"
        ):
            choice.choose(call_on("cuda", activation="sigmoid"), "triton")

    def test_status_tells_of_all(self) -> None:
        kernels = kernel_status().kernels
        assert list(kernels) == ["native", "triton", "reference"]
        assert kernels["triton"] == "for tests"
