"""Measure how the first logit of `keep` decides what MuFuRU learns, beside nn.GRU.

    python benchmarks/initialisation.py                     all runs that are not in the record yet
    python benchmarks/initialisation.py --seeds 10          more of them
    python benchmarks/initialisation.py --tables            no run: the tables anew from the record
    python benchmarks/initialisation.py --seeds 1 --distances 8 --updates 50 --epochs 1 --output /tmp/try

Recall of the first of T bits, parity of neighbouring bits, Boolean formulae. The record is written after every run;
stopped with Ctrl-C and started again, it goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import initialisation_tables as tables
import initialisation_tasks as tasks
import torch
from initialisation_tasks import Case

import mufuru
from mufuru.kernels import library

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    options = parse()
    path = options.output.with_suffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    cases = list(tasks.plan(options.seeds, options.distances, options.updates, options.epochs))
    stopped = False
    try:
        if not options.tables:
            check(runs, cases, path)
            run_missing(runs, cases, path)
    except KeyboardInterrupt:
        stopped = True
        print("\nstopped: the same command goes on from here", file=sys.stderr)
    write(path.with_suffix(".md"), tables.page(runs))
    sys.exit(130 if stopped else 0)


def check(runs: list[dict[str, Any]], cases: list[Case], path: Path) -> None:
    """Runs with other settings do not belong into the same tables."""
    planned = [case.config() for case in cases]
    if any(run["config"] not in planned for run in runs):
        sys.exit(f"{path} has runs with other settings than these: give the same settings, or another --output")


def run_missing(runs: list[dict[str, Any]], cases: list[Case], path: Path) -> None:
    # layers this small gain nothing from threads, and one thread always adds in the same order
    torch.set_num_threads(1)
    done = [(run["config"], run["seed"]) for run in runs]
    for number, case in enumerate(cases, 1):
        if (case.config(), case.seed) in done:
            continue
        print(f"{number}/{len(cases)}  {case}:  ", end="", flush=True)
        metrics = tasks.run(case)
        print(", ".join(f"{name} {'not' if value is None else f'{value:g}'}" for name, value in metrics.items()))
        runs.append({"config": case.config(), "seed": case.seed, "metrics": metrics, "versions": versions()})
        write(path, "[\n" + ",\n".join(map(json.dumps, runs)) + "\n]\n")


def versions() -> dict[str, str]:
    return {
        "mufuru": mufuru.__version__,
        "kernel": "native" if library.load() else "reference",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "instruction set": torch.backends.cpu.get_cpu_capability(),
    }


def write(path: Path, text: str) -> None:
    """To the side first: whenever it is stopped, a whole file is there."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=7, help="runs of every setting (7)")
    parser.add_argument("--distances", type=int, nargs="+", default=[8, 16, 32, 64], help="bits to recall the first of")
    parser.add_argument("--updates", type=int, default=1500, help="most updates on bits (1500)")
    parser.add_argument("--epochs", type=int, default=100, help="on Boolean formulae (100)")
    parser.add_argument("--tables", action="store_true", help="run nothing, write the tables anew")
    parser.add_argument("--output", type=Path, default=RESULTS / "initialisation", help="without suffix")
    return parser.parse_args()


if __name__ == "__main__":
    main()
