"""Measure MuFuRU beside nn.GRU, nn.LSTM, onnxruntime, OpenVINO, TorchRL and the matrix products alone.

    python benchmarks/recurrent.py                                     all shapes, 1 and 2 threads
    python benchmarks/recurrent.py --quick                             a few seconds, to see that it runs
    python benchmarks/recurrent.py --shapes stream "logic 8" --threads 1
    python benchmarks/recurrent.py --from benchmarks/results/recurrent.json      tables and plots anew

Writes JSON after every row, then Markdown and plots. Stopped by Ctrl-C or SIGTERM, it is resumed by the same command
if machine, sources and settings are the same.
"""

from __future__ import annotations

import argparse
import datetime
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import agree
import draw
import measure
import memory
import peers
import scaling
import tables
import torch
from measure import Budget, Timing
from record import Record, machine
from shapes import GRU, MODES, SHAPES, Mode, Shape

from mufuru.kernels.problem import loaded

RESULTS = Path(__file__).parent / "results"
QUICK = ("logic 8", "sentiment", "stream", "single step")
COUNTED_IN = ("language model", "stream")
"""Shapes for which saved memory is counted."""


def main() -> None:
    options = parse()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    if options.read:
        write(Record.load(options.read), options.output)
        return
    settings: dict[str, str | float] = {
        "command": " ".join(["benchmarks/recurrent.py", *sys.argv[1:]]),
        "seconds per measurement": options.seconds,
        "least samples": options.samples,
        "at most seconds": options.limit,
    }
    record = Record(machine(options.date), settings)
    path = named(options.output, ".json")
    if record.resume(path):
        print(f"resuming {path}, which has {len({row_of(timing) for timing in record.timings})} rows")
    elif path.exists():
        print(f"{path} is of another machine, other sources or other settings: it will be replaced")
    signal.signal(signal.SIGTERM, _stop)
    try:
        run(record, options, path)
        record.complete = True
    except KeyboardInterrupt:
        print("\nstopped: the same command resumes")
    write(record, options.output)
    if not record.complete:
        sys.exit(130)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def row_of(timing: Timing) -> tuple[str, Mode, int]:
    return timing.shape, timing.mode, timing.threads


def run(record: Record, options: argparse.Namespace, path: Path) -> None:
    """Measure all that the record does not have, and write it after every row."""
    torch.manual_seed(0)
    budget = Budget(options.seconds, options.samples, options.limit)
    rows = missing(record, options, budget)
    start = time.monotonic()
    for done, (what, measured) in enumerate(rows):
        print(f"\n[{done + 1} of {len(rows)}, {time.monotonic() - start:.0f} s] {what}", flush=True)
        measured()
        record.save(path)


def missing(record: Record, options: argparse.Namespace, budget: Budget) -> list[tuple[str, Callable[[], None]]]:
    """The rows that the record does not have: what each is called, and how to add it."""
    rows: list[tuple[str, Callable[[], None]]] = []
    chosen = [shape for shape in SHAPES if shape.name in options.shapes]
    for shape in chosen:
        for threads in options.threads:
            for mode in MODES:
                if not record.has(shape, mode, threads):
                    name = f"{shape}, {mode}, threads: {threads}"
                    rows.append((name, partial(one, record, shape, mode, threads, budget, options.compile)))
    for shape in chosen:
        if shape.name in COUNTED_IN and shape.name not in record.memory:
            rows.append((f"memory: {shape}", partial(count, record, shape)))
    threads = options.threads[0]
    for shape in (*scaling.LENGTHS, *scaling.WIDTHS) if options.scaling else ():
        if not record.has(shape, MODES[0], threads, scaling=True):
            rows.append((f"scaling: {shape.name}", partial(scale, record, shape, threads, budget)))
    return rows


def one(record: Record, shape: Shape, mode: Mode, threads: int, budget: Budget, compiled: bool) -> None:
    """Measure all peers at one shape, and show what came out. Before that, once for every shape: do they agree?"""
    torch.set_num_threads(threads)
    if shape.name not in record.agreement:
        record.agreement[shape.name] = agree.check(shape)
    calls, left_out = peers.build(shape, mode, threads, compiled)
    timings = measure.measure(calls, shape.name, mode, threads, budget)
    timings += [Timing(shape.name, mode, threads, peer, left_out=why) for peer, why in left_out.items()]
    record.timings += timings
    for timing in timings:
        ratio = record.ratio(shape.name, mode, threads, timing.peer, GRU)
        shown = timing.left_out or f"{tables.text(ratio):>22}  {len(timing.samples)} samples"
        print(f"  {timing.peer:30}{shown}", flush=True)


def count(record: Record, shape: Shape) -> None:
    record.memory[shape.name] = memory.per_step_and_unit(shape)


def scale(record: Record, shape: Shape, threads: int, budget: Budget) -> None:
    record.scaling += scaling.timings(shape, threads, budget)


def write(record: Record, stem: Path) -> None:
    if not record.timings:
        print("nothing was measured, nothing is written")
        return
    record.save(named(stem, ".json"))
    plots = draw.draw(record, stem)
    page = tables.markdown(record, [path.name for path in plots])
    named(stem, ".md").write_text(page)
    print("\n" + page)
    print(f"written: {stem}.json, .md, .svg, .png")


def named(stem: Path, suffix: str) -> Path:
    """`with_suffix` would cut a name such as zen-3.2."""
    return stem.with_name(stem.name + suffix)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [shape.name for shape in SHAPES]
    parser.add_argument("--shapes", nargs="+", choices=names, metavar="SHAPE", help=f"of: {', '.join(names)}")
    parser.add_argument("--threads", nargs="+", type=int, help="thread counts (default: 1 2)")
    parser.add_argument("--seconds", type=float, help="for one measurement of all peers together (default: 1)")
    parser.add_argument("--limit", type=float, default=Budget.limit, help="seconds after which a measurement ends")
    parser.add_argument("--quick", action="store_true", help="few shapes, one thread, few samples, no scaling")
    parser.add_argument("--compile", action="store_true", help="also torch.compile the reference loop, at short shapes")
    parser.add_argument("--no-scaling", dest="scaling", action="store_false", help="leave out how time grows")
    place = "benchmarks/results/recurrent, or recurrent-avx512 on a machine that has it"
    parser.add_argument("--output", type=Path, help=f"path without suffix (default: {place})")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="for the record (default: today)")
    parser.add_argument("--from", dest="read", type=Path, metavar="JSON", help="measure nothing: read a record")
    options = parser.parse_args()
    quick = options.quick
    options.samples = 3 if quick else Budget.samples
    options.shapes = options.shapes or (QUICK if quick else names)
    options.threads = options.threads or ([1] if quick else [1, 2])
    options.seconds = options.seconds or (0.3 if quick else Budget.seconds)
    options.scaling = options.scaling and not quick
    # a record read again is written beside itself, and a quick run never over a real one
    options.output = (
        options.output
        or (options.read and options.read.with_suffix(""))
        or RESULTS / ("quick" if quick else record_name(loaded().mufuru_instruction_set().decode()))
    )
    return options


def record_name(instruction_set: str) -> str:
    """Name of the record that is committed: one for each instruction set of the kernel."""
    return "recurrent" if instruction_set == "avx2" else f"recurrent-{instruction_set}"


if __name__ == "__main__":
    main()
