"""`mufuru doctor`: what is installed, which kernel is live and why, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console

import mufuru
from mufuru.experiments.cli.usage import parse
from mufuru.experiments.engine.store import kernel as live_kernel
from mufuru.experiments.engine.store import processor
from mufuru.experiments.engine.sweep import usable_cores
from mufuru.kernels import half, library

EXAMPLES = """\
  mufuru doctor
  mufuru doctor --json
"""
EXTRAS = {
    "experiments": ("cattrs", "matplotlib", "numpy", "rich", "safetensors", "tyro"),
    "explore": ("starlette", "uvicorn"),
    "hub": ("huggingface_hub", "safetensors"),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "tensorboard": ("tensorboard",),
}
"""Packages that `pip install mufuru[NAME]` adds."""
VARIABLES = ("MUFURU_BFLOAT16", "MUFURU_BUILD", "MUFURU_CACHE", "MUFURU_KERNEL", "CXX", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Doctor:
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON."""


def main(arguments: list[str]) -> int:
    description = "Show what is installed and which kernel runs, and what to do if it is the slow one."
    chosen = parse(Doctor, arguments, prog="mufuru doctor", description=description, examples=EXAMPLES)
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
        "machine": machine(),
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


def machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
    }


def kernel() -> dict[str, Any]:
    """The kernel of a layer with `kernel="auto"`, and why."""
    status = library.status()
    asked = os.environ.get("MUFURU_KERNEL") == "reference"
    reason = "MUFURU_KERNEL=reference asks for it; unset MUFURU_KERNEL" if asked else status.reason
    live = live_kernel()["kernel"]
    return {
        "live": live,
        "library": status.state,
        "path": str(status.path) if status.path else None,
        "compiler": status.compiler,
        "reason": reason,
        "bfloat16": half.described() if live == "native" else None,
    }


def show(findings: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for part in ("versions", "machine", "kernel", "places", "variables"):
        rows = {name: value for name, value in findings[part].items() if value not in (None, "")}
        if rows:
            console.print(f"[bold]{part}[/bold]")
            for name, value in rows.items():
                console.print(f"  {name:<16}{value}", markup=False)
    console.print("[bold]extras[/bold]")
    for extra, packages in findings["extras"].items():
        console.print(f"  {extra:<16}{describe(extra, packages)}", markup=False)
    console.print(verdict(findings["kernel"]), markup=False)


def describe(extra: str, packages: dict[str, str | None]) -> str:
    """List the packages of an extra, or say how to install it."""
    if missing := [name for name, version in packages.items() if version is None]:
        return f"missing {', '.join(missing)}: pip install 'mufuru[{extra}]'"
    return ", ".join(f"{name} {version}" for name, version in packages.items())


def verdict(kernel: dict[str, Any]) -> str:
    if kernel["live"] == "native":
        return "The native kernel is live."
    return f"Degraded: the slower reference kernel is live. {kernel['reason']}"
