"""Random programs at the boundary of the layer: `python tests/programs/fuzz.py --cases 20000`.

Cases run in a child process. If it dies, its last case is a finding, and another child goes on with the next.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()
PER_SEED = 1_000_000
"""Cases of one seed; the first of seed 7 has the number 7000000."""
PER_CHILD = 2000
"""Cases after which a child makes room for a new one."""
PATIENCE = 120
"""Seconds after which a case counts as hanging, on a machine however busy."""
LINES = 8
"""How many to show of what a child wrote that died."""
SHOWN = 40
"""Findings that are reported in full."""


class Finding(NamedTuple):
    """What a case came to."""

    case: int
    kind: str
    lines: Sequence[str] = ()
    good: bool = False

    def __str__(self) -> str:
        again = f"again: python tests/programs/fuzz.py --case {self.case}"
        return "\n    ".join([f"case {self.case}: {self.kind}", *self.lines, again])


def work(first: int, last: int) -> None:
    """In the child: say each case before it begins, and what came of it."""
    cases, judge = _prepared()
    for number in range(first, last):
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        _say(number, "drawing")
        case = cases.draw(number)
        verdict = judge.run(case, lambda kernel, case=case: _say(case.number, kernel, str(case)))
        lines = [line for line in (verdict.detail, str(case)) if line]
        _say(number, Finding(number, verdict.kind, lines, verdict.good))


def _say(number: int, message: str | Finding, case: str = "") -> None:
    print(json.dumps([number, message, case]), flush=True)


def _prepared() -> tuple[Any, Any]:
    """The modules that import torch, and what the tests' fixtures see to: fresh memory is NaN, a warning an error."""
    torch: Any = importlib.import_module("torch")
    deterministic: Any = importlib.import_module("torch.utils.deterministic")
    cases, judge = (importlib.import_module(name) for name in ("fuzz_cases", "fuzz_judge"))
    library: Any = importlib.import_module("mufuru.kernels.library")
    if library.status().state == "unavailable":
        sys.exit(f"the fuzz needs the native kernel beside the reference: {library.status().reason}")
    torch.use_deterministic_algorithms(True)
    deterministic.fill_uninitialized_memory = True
    warnings.simplefilter("error")
    # torch's own: of what it has no fast way for, and what forward mode uses
    warnings.filterwarnings("ignore", "There is a performance drop")
    warnings.filterwarnings("ignore", ".torch.jit.script", DeprecationWarning)
    faulthandler.enable()
    return cases, judge


def child(first: int, last: int) -> list[str]:
    """The command of a child that runs these cases."""
    return [sys.executable, str(HERE), "--child", str(first), str(last)]


def run(first: int, count: int, command: Callable[[int, int], list[str]] = child) -> Iterator[Finding]:
    """What each case came to, in order, whatever it does to its process."""
    last = first + count
    while first < last:
        for finding in _one_child(command(first, min(first + PER_CHILD, last))):
            yield finding
            first = finding.case + 1


def _one_child(command: Sequence[str]) -> Iterator[Finding]:
    """What its cases came to; the last may be its death."""
    begun: tuple[int, str, str] | None = None
    with (
        tempfile.TemporaryFile("w+") as errors,
        # in a session of its own: Ctrl-C is for the parent, which ends it
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True) as process,
    ):
        try:
            for line in process.stdout or ():
                number, message, case = json.loads(line)
                begun = number, message, case
                if not isinstance(message, str):
                    yield Finding(*message)
        except BaseException:
            process.kill()
            raise
        if process.wait():
            errors.seek(0)
            yield _death(begun, process.returncode, errors.read())


def _death(begun: tuple[int, str, str] | None, code: int, wrote: str) -> Finding:
    if begun is None:
        raise RuntimeError(f"the child could not begin and ended with exit code {code}:\n{wrote}")
    number, kernel, case = begun
    written = [line for line in wrote.splitlines() if line.strip()]
    # a signal's traceback begins with the innermost call, an exception's ends with it
    where = written[:LINES] if code < 0 else written[-LINES:]
    return Finding(number, f"dies in {kernel}", [f"exit code {code}", *where, case])


def report(counts: Counter[str], findings: Sequence[Finding]) -> None:
    print(f"\n{counts.total()} cases: " + ", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    print(f"{len(findings)} findings" + (f", the first {SHOWN}:" if len(findings) > SHOWN else ":" if findings else ""))
    for finding in findings[:SHOWN]:
        print(finding)


def fuzz(first: int, count: int) -> int:
    """Run and report; the exit code."""
    counts: Counter[str] = Counter()
    findings: list[Finding] = []
    code = 0
    try:
        for finding in run(first, count):
            counts[finding.kind] += 1
            if not finding.good:
                findings.append(finding)
            done = counts.total()
            if sys.stderr.isatty() or done % 500 == 0:
                end = "\r" if sys.stderr.isatty() else "\n"
                print(f"{done} of {count} cases, {len(findings)} findings", end=end, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        code = 130
    report(counts, findings)
    return code or bool(findings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000, help="how many (2000)")
    parser.add_argument("--seed", type=int, default=0, help=f"which: the first is number seed * {PER_SEED} (0)")
    parser.add_argument("--case", type=int, help="run this one alone, and say what it is")
    parser.add_argument("--child", type=int, nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        work(*chosen.child)
        return 0
    if chosen.case is not None:
        print(_prepared()[0].draw(chosen.case), flush=True)
        return fuzz(chosen.case, 1)
    return fuzz(chosen.seed * PER_SEED, chosen.cases)


if __name__ == "__main__":
    sys.path.append(str(HERE.parents[1]))  # kernel_calls lies beside this folder
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait leave the core to others
    os.environ.setdefault("MUFURU_BFLOAT16", "never")  # the reference has no products in bfloat16
    sys.exit(main())
