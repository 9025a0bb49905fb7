"""Measure MuFuRU beside nn.GRU, nn.LSTM, onnxruntime and the matrix products alone.

    python benchmarks/recurrent.py                                     all shapes, 1 and 2 threads
    python benchmarks/recurrent.py --quick                             a few seconds, to see that it runs
    python benchmarks/recurrent.py --shapes stream "logic 8" --threads 1
    python benchmarks/recurrent.py --from benchmarks/results/recurrent.json      tables and plots anew

Writes JSON, Markdown and plots; stopped with Ctrl-C it writes what it has.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

import agree
import draw
import measure
import memory
import peers
import scaling
import tables
import torch
from measure import Budget
from record import Record, machine
from shapes import GRU, MODES, SHAPES, Mode, Shape

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
    }
    record = Record(machine(options.date), settings)
    try:
        run(record, options)
        record.complete = True
    except KeyboardInterrupt:
        print("\nstopped: writing what there is")
    finally:
        write(record, options.output)


def run(record: Record, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    chosen = [shape for shape in SHAPES if shape.name in options.shapes]
    budget = Budget(options.seconds, options.samples)
    for shape in chosen:
        print(f"do all agree? {shape}", flush=True)
        record.agreement[shape.name] = agree.check(shape)
    for shape in chosen:
        for threads in options.threads:
            for mode in MODES:
                one(record, shape, mode, threads, budget, options.compile)
    for shape in chosen:
        if shape.name in COUNTED_IN:
            record.memory[shape.name] = memory.per_step_and_unit(shape)
    if options.scaling:
        for shape in (*scaling.LENGTHS, *scaling.WIDTHS):
            print(f"scaling: {shape.name}", flush=True)
            record.scaling += scaling.timings(shape, options.threads[0], budget)


def one(record: Record, shape: Shape, mode: Mode, threads: int, budget: Budget, compiled: bool) -> None:
    """Measure all peers at one shape, and show what came out."""
    print(f"\n{shape}, {mode}, threads: {threads}", flush=True)
    torch.set_num_threads(threads)
    calls = peers.build(shape, mode, threads, compiled)
    record.timings += measure.measure(calls, shape.name, mode, threads, budget)
    for peer in calls:
        timing = record.find(shape.name, mode, threads, peer)
        ratio = record.ratio(shape.name, mode, threads, peer, GRU)
        if timing is not None:
            print(
                f"  {peer:30}{timing.left_out or f'{tables.text(ratio):>22}  {len(timing.samples)} samples'}",
                flush=True,
            )


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
    parser.add_argument("--seconds", type=float, help="for one measurement of all peers together (default: 3)")
    parser.add_argument("--quick", action="store_true", help="few shapes, one thread, few samples, no scaling")
    parser.add_argument("--compile", action="store_true", help="also torch.compile the reference loop, at short shapes")
    parser.add_argument("--no-scaling", dest="scaling", action="store_false", help="leave out how time grows")
    parser.add_argument("--output", type=Path, help="path without suffix (default: benchmarks/results/recurrent)")
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
        or RESULTS / ("quick" if quick else "recurrent")
    )
    return options


if __name__ == "__main__":
    main()
