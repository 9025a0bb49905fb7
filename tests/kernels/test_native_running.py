"""The native kernel in a busy process: threads of torch and of Python, forks, default devices, memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from kernel_calls import MANY, everything, leaves_of, make_call, needs_native

from mufuru import MuFuRU
from mufuru import ops as operations
from mufuru.kernels import native
from mufuru.kernels.call import Call
from mufuru.kernels.problem import loaded

pytestmark = needs_native


@pytest.fixture(params=["small batch", "large batch", "one sequence", "few steps"])
def big(request: pytest.FixtureRequest) -> Call:
    """Enough work for three threads; the last two are shared out by units."""
    if request.param == "one sequence":
        return make_call(batch=1, steps=40, inputs=21, hidden=52, controller=9, dtype=torch.float32)
    if request.param == "few steps":
        return make_call(batch=7, steps=3, inputs=21, hidden=52, dtype=torch.float32, batch_sizes=[7, 6, 2])
    batch, controller = (7, 9) if request.param == "small batch" else (MANY, None)
    sizes = [batch] * 20 + [3] * 20
    return make_call(batch=batch, steps=40, hidden=21, controller=controller, dtype=torch.float32, batch_sizes=sizes)


@pytest.mark.usefixtures("_threads")
def test_threads_do_not_change_a_bit(big: Call) -> None:
    leaves = leaves_of(big)
    torch.set_num_threads(1)
    wanted = everything(native.sequence, big, leaves)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found, again = (everything(native.sequence, big, leaves) for _ in range(2))
        for name, tensor in found.items():
            assert torch.equal(tensor, again[name]), f"{name} differs between repeats"
            assert torch.equal(tensor, wanted[name]), f"{name} with {threads} threads"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("controller", [None, 7])
@pytest.mark.parametrize("reset", ["before", "after", None])
def test_a_sequence_is_the_same_bits_alone_and_among_others(
    reset: Any, controller: int | None, dtype: torch.dtype
) -> None:
    layer = MuFuRU(3, 21, reset=reset, controller_size=controller, kernel="native", dtype=dtype)
    x = torch.randn(6, MANY, 3, dtype=dtype)
    for mode in (torch.no_grad, torch.enable_grad):
        with mode():
            together = layer(x)[0]
            for some in (slice(0, 1), slice(3, 5), slice(7, 14), slice(2, 27)):
                assert torch.equal(layer(x[:, some])[0], together[:, some]), (some, mode)


@pytest.mark.parametrize("hidden", [1, 8, 24, 37, 100])
def test_vectors_of_8_and_of_16_give_the_same_bits(hidden: int) -> None:
    """With the paper's operations, in sizes of which the last vector is not full."""
    if not loaded().mufuru_choose(b"avx512"):
        pytest.skip("the processor has no AVX-512")
    call = make_call(operations.PAPER, dtype=torch.float32, hidden=hidden, inputs=13, batch=9)
    leaves = leaves_of(call)
    try:
        wide = everything(native.sequence, call, leaves)
        loaded().mufuru_choose(b"avx2")
        narrow = everything(native.sequence, call, leaves)
    finally:
        loaded().mufuru_choose(b"")
    assert all(torch.equal(wide[name], narrow[name]) for name in wide)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("threads", [1, 2])
def test_several_python_threads(big: Call, threads: int) -> None:
    torch.set_num_threads(threads)
    runs = [big, make_call(reset="after"), make_call(("keep", lambda s, v: s * v - v))]
    wanted = [everything(native.sequence, call, leaves_of(call)) for call in runs]

    def work(worker: int) -> bool:
        for i in range(20):
            which = (worker + i) % len(runs)
            found = everything(native.sequence, runs[which], leaves_of(runs[which]))
            with torch.no_grad():
                native.sequence(runs[which])
            if not all(torch.equal(found[name], tensor) for name, tensor in wanted[which].items()):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def run_script(script: str, *arguments: str, threads: int = 2) -> str:
    """In a process of its own, where a hang or a crash is a failure and not the end of the tests."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(sys.modules["mufuru"].__file__ or "").parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


FORK = """
import os, signal, torch
from kernel_calls import everything, leaves_of, make_call, outputs_of
from mufuru.kernels import native

def work():
    return everything(native.sequence, call, leaves_of(call))

def forward():
    with torch.no_grad():
        return outputs_of(native.sequence(call))

def in_child(call, wanted):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0, "the child failed"
        return
    signal.alarm(20)
    found = call()
    os._exit(0 if all(torch.equal(tensor, wanted[name]) for name, tensor in found.items()) else 1)

def alone():
    # as the workers of a DataLoader do: torch's own products hang in a child that wants several threads
    torch.set_num_threads(1)
    return work()

torch.set_num_threads(1)
# work for two threads, whose products with the inputs are so small that torch does not share them out
call = make_call(("keep", "max"), batch=6, steps=30, hidden=21, inputs=1, trace=False, dtype=torch.float32)
wanted = work()
torch.set_num_threads(2)
work()
in_child(forward, wanted)
in_child(alone, wanted)
in_child(lambda: in_child(alone, wanted) or {}, wanted)
alone()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_and_their_children_after_a_fork() -> None:
    run_script(FORK)


DEVICE = """
import torch
from kernel_calls import make_call
from mufuru.kernels import native
for options in ({}, {"batch_sizes": (4, 4, 3, 1)}, {"ops": ("keep", lambda s, v: s * v)}):
    call = make_call(**options, masks=("state",))
    with torch.device("meta"):
        found = native.sequence(call).output
        found.sum().backward()
        with torch.no_grad():
            native.sequence(call)
    grad, call.x.grad = call.x.grad, None
    wanted = native.sequence(call).output
    wanted.sum().backward()
    assert torch.equal(found, wanted) and torch.equal(grad, call.x.grad)
"""


def test_another_default_device_does_not_matter() -> None:
    run_script(DEVICE)


FAULTS = """
import resource, torch
from mufuru import MuFuRU
layer, x = MuFuRU(256, 256, kernel="native"), torch.randn(1, 1, 256)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        layer.zero_grad()
        layer(x)[0].sum().backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20
faults()
faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_pages_of_gradients_are_not_made_anew_in_every_update() -> None:
    # the gradients have 1156 pages; without a hint to glibc 588 to 1120 of them were made anew, with it 0 to 114
    assert float(run_script(FAULTS, threads=1)) < 300


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("ops", [("keep", "max"), ("keep", lambda s, v: s * v)], ids=["native", "python"])
def test_two_thousand_steps_of_training_take_no_more_memory(ops: Any) -> None:
    layer = MuFuRU(7, 19, ops=ops, kernel="native")
    optimiser = torch.optim.SGD(layer.parameters(), lr=1e-3)
    x = torch.randn(2, 6, 7)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimiser.zero_grad()
            layer(x)[0].square().mean().backward()
            optimiser.step()
            with torch.no_grad():
                layer(x)

    train(200)
    before = resident_bytes()
    train(2000)
    # the smallest tensor of a step, a state, would add up to 900 kB, and its gates to 5 MB
    assert resident_bytes() - before < 700_000
