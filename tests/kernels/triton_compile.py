"""Launches as a call makes them, compiled ahead of time for GPUs that need not be there.

No launch runs: it is recorded where Triton would run it, so arguments and their specialisation are those of a device.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
SHARED = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024, "gfx942": 64 * 1024}
"""Bytes of shared memory that one program may have."""


class Launch(NamedTuple):
    function: Any
    args: tuple[Any, ...]
    options: dict[str, Any]
    grid: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.function.fn.__module__.rpartition('.')[2]}.{self.function.fn.__name__}"


class Resources(NamedTuple):
    shared: int
    registers: int
    spilled: int
    """Bytes of local memory, or scratch registers."""


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Within this context launches are recorded, and none runs."""
    launches: list[Launch] = []

    def record(self: Any, *args: Any, grid: tuple[int, ...], warmup: bool, **options: Any) -> None:
        assert not warmup
        launches.append(Launch(self, args, options, grid))

    run = JITFunction.run
    JITFunction.run = record
    try:
        yield launches
    finally:
        JITFunction.run = run


def compiled(launch: Launch, target: str) -> Any:
    """The launch's kernel for a GPU, with the signature and specialisation that the launch would have."""
    function, backend = launch.function, make_backend(TARGETS[target])
    binder = create_function_from_signature(function.signature, function.params, backend)
    options = {"debug": False, "instrumentation_mode": "", "fpsan_homomorphic_casts": False, **launch.options}
    bound, specialization, rest = binder(*launch.args, **options)
    parsed, signature, constants, attributes = function._pack_args(backend, options, bound, specialization, rest)
    source = ASTSource(function, signature, constants, attributes)
    return triton.compile(source, target=TARGETS[target], options=parsed.__dict__)


def resources(kernel: Any, target: str) -> Resources:
    """What the compiled kernel takes of a processor."""
    if target.startswith("gfx"):
        text = kernel.asm["amdgcn"]
        number = {key: int(re.search(rf"\.{key}:\s*(\d+)", text)[1]) for key in
                  ("vgpr_count", "vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size")}  # fmt: skip
        spilled = number["vgpr_spill_count"] + number["private_segment_fixed_size"]
        return Resources(kernel.metadata.shared, number["vgpr_count"], spilled)
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", text)
    assert found is not None, text
    registers, stack, local = map(int, found.groups())
    return Resources(kernel.metadata.shared, registers, stack + local)
