"""Compile the native kernel into the wheel; without a working compiler the wheel is pure Python and still installs.

Everything else about the package stands in pyproject.toml.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

from setuptools import setup  # type: ignore[import-untyped]
from setuptools.command.bdist_wheel import bdist_wheel  # type: ignore[import-untyped]
from setuptools.command.build_py import build_py  # type: ignore[import-untyped]

KERNELS = Path("mufuru", "kernels")
SOURCES = Path(__file__).parent / "src" / KERNELS
LIBRARY = "_native.abi.so"


class BuildWithKernel(build_py):  # type: ignore[misc]
    """Copy the package, then put the compiled library beside it. An editable install builds at first use instead."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            compile_kernel(self.library)

    @property
    def library(self) -> Path:
        return Path(self.build_lib) / KERNELS / LIBRARY

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        built = [str(self.library)] if not self.editable_mode and self.library.exists() else []
        return [*super().get_outputs(include_bytecode), *built]


class WheelForPlatform(bdist_wheel):  # type: ignore[misc]
    """One wheel per platform for every Python: the library does not know of Python. Without it, one wheel for all."""

    def run(self) -> None:
        self.run_command("build_py")
        native = self.get_finalized_command("build_py").library.exists()
        self.root_is_pure = not native
        # what setuptools asks to decide where the files of the wheel belong
        self.distribution.has_ext_modules = lambda: native
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", "any" if self.root_is_pure else super().get_tag()[2])


def compile_kernel(output: Path) -> None:
    """Compile, or say why not and leave no library behind, not even one of an earlier build."""
    output.unlink(missing_ok=True)
    build = load_build()
    try:
        if os.environ.get("MUFURU_BUILD") == "0":
            raise build.BuildError("MUFURU_BUILD=0 forbids building it")
        output.parent.mkdir(parents=True, exist_ok=True)
        build.compile_library(SOURCES / "csrc", output, build.find_compiler())
    except (build.BuildError, OSError) as error:
        print(f"warning: the package is built without its native kernel, which is built at first use: {error}")


def load_build() -> ModuleType:
    """The package's own build.py, without importing the package: that needs torch."""
    spec = importlib.util.spec_from_file_location("mufuru_build", SOURCES / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


setup(cmdclass={"build_py": BuildWithKernel, "bdist_wheel": WheelForPlatform})
