"""`mufuru doctor`: what is installed, which kernel is live and why, and what to do about it."""

import importlib.metadata
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import mufuru
from mufuru.experiments.cli.usage import AsJson, parse
from mufuru.experiments.engine.store import kernel as live_kernel
from mufuru.experiments.engine.store import processor
from mufuru.experiments.engine.sweep import usable_cores
from mufuru.kernels import half, library
from mufuru_command import NEEDED

EXAMPLES = """\
  mufuru doctor
  mufuru doctor --json
"""
EXTRAS = {
    "experiments": NEEDED,
    "bpe": ("tokenizers",),
    "cluster": ("fsspec", "ray"),
    "explore": ("starlette", "uvicorn"),
    "hub": ("huggingface_hub", "safetensors"),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "search": ("optuna",),
    "sklearn": ("scikit-learn",),
    "tag": ("seqeval",),
    "tensorboard": ("tensorboard",),
    "torchrl": ("torchrl",),
}
"""Packages that `pip install '.[NAME]'` adds."""
VARIABLES = (
    "MUFURU_BFLOAT16",
    "MUFURU_BUILD",
    "MUFURU_CACHE",
    "MUFURU_GRAPHS",
    "MUFURU_KERNEL",
    "MUFURU_TRITON_REGIME",
    "CXX",
    "OMP_NUM_THREADS",
)


@dataclass(frozen=True)
class Doctor:
    """Show what is installed and which kernel runs, and what to do if it is the slow one."""

    json: AsJson = False


def main(arguments: list[str]) -> int:
    chosen = parse(Doctor, arguments, EXAMPLES)
    findings = examine()
    if chosen.json:
        print(json.dumps(findings, indent=2))
    else:
        show(findings)
    return 0


def examine() -> dict[str, Any]:
    """Return all findings, ready for JSON."""
    return {
        "versions": {"mufuru": mufuru.__version__, "python": platform.python_version(), "torch": torch.__version__},
        "machine": {
            "system": platform.platform(),
            "processor": processor(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "cores": usable_cores(),
            "threads": torch.get_num_threads(),
        },
        "kernel": kernel(),
        "places": {"cache": str(library.default_cache()), "package": str(Path(mufuru.__file__).parent)},
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "extras": {extra: {name: version(name) for name in names} for extra, names in EXTRAS.items()},
    }


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def kernel() -> dict[str, Any]:
    """The kernel of a layer with `kernel="auto"`, and why."""
    status, live = library.status(), live_kernel()["kernel"]
    asked = os.environ.get("MUFURU_KERNEL") == "reference"
    return {
        "live": live,
        "library": status.state,
        "path": str(status.path) if status.path else None,
        "compiler": status.compiler,
        "reason": "MUFURU_KERNEL=reference asks for it; unset MUFURU_KERNEL" if asked else status.reason,
        "bfloat16": half.described() if live == "native" else None,
        **{name: line for name, line in mufuru.kernel_status().kernels.items() if name != "native"},
    }


def show(findings: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    extras = {extra: describe(extra, packages) for extra, packages in findings["extras"].items()}
    for title, part in {**findings, "extras": extras}.items():
        if rows := {name: value for name, value in part.items() if value not in (None, "")}:
            console.print(f"[bold]{title}[/bold]")
            for name, value in rows.items():
                console.print(f"  {name:<16}{value}", markup=False)
    live, reason = findings["kernel"]["live"], findings["kernel"]["reason"]
    degraded = f"Degraded: the slower reference kernel is live. {reason}"
    console.print(degraded if live == "reference" else f"The {live} kernel is live.", markup=False)


def describe(extra: str, packages: dict[str, str | None]) -> str:
    """List the packages of an extra, or how to install it."""
    if missing := [name for name, version in packages.items() if version is None]:
        return f"missing {', '.join(missing)}: `pip install '.[{extra}]'` in the folder of mufuru"
    return ", ".join(f"{name} {version}" for name, version in packages.items())
