"""The cost of training, predicted and measured: time per token, bytes kept, and one update shared by two processes.

    python benchmarks/cost.py                    some minutes; alone on the machine
    python benchmarks/cost.py --quick            seconds, to see that it runs
    python benchmarks/cost.py --part shared      one part anew, into the record that is there
    python benchmarks/cost.py --from benchmarks/results/cost.json      tables and figure anew

Writes JSON, Markdown and a figure. Every process has one thread. Times are in the JSON only; the tables have ratios of
the fastest of many samples, taken in turns: of the processor's time for a layer, of the clock's where ranks wait.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import cost_tables
import lm_profile
import memory
import torch
from cost_model import Cost
from record import machine
from torch import distributed

import mufuru
from mufuru.experiments.engine.fit import keep_freed
from mufuru.experiments.engine.ranks import Alone, Ranks, Requests
from mufuru.experiments.engine.torchrun import joined
from mufuru.experiments.tasks.lm.config import PRESETS
from mufuru.experiments.tasks.lm.task import LMTask

RESULTS = Path(__file__).parent / "results"
BASE = Cost()
SHAPES = (
    BASE,
    *(replace(BASE, units=units) for units in (50, 100, 400, 800)),
    *(replace(BASE, inputs=inputs) for inputs in (50, 800)),
    *(replace(BASE, layers=layers) for layers in (2, 4)),
    *(replace(BASE, steps=steps) for steps in (5, 140)),
    *(replace(BASE, batch=batch) for batch in (1, 5, 80)),
    *(replace(BASE, operations=operations) for operations in (2, 4)),
    Cost(inputs=2000, units=2000, steps=10),
)
SHARED = tuple(Cost(batch=batch, words=10_000) for batch in (20, 80))
"""Language models whose updates two ranks share."""
WORDS = ("keep", "replace", "max", "min", "mul", "diff", "forget")


def layer(cost: Cost) -> mufuru.MuFuRU:
    return mufuru.MuFuRU(cost.inputs, cost.units, cost.layers, ops=WORDS[: cost.operations])


def training_step(cost: Cost) -> Callable[[], None]:
    rnn, x = layer(cost), torch.randn(cost.steps, cost.batch, cost.inputs, requires_grad=True)

    def step() -> None:
        rnn.zero_grad()
        x.grad = None
        rnn(x)[0].sum().backward()

    return step


def fastest(calls: dict[Any, Callable[[], None]], rounds: int) -> dict[Any, float]:
    """Processor's seconds of the fastest call of each, in rounds of random order; the first round is not counted."""
    best, order = dict.fromkeys(calls, float("inf")), list(calls)
    for number in range(rounds + 1):
        random.Random(number).shuffle(order)
        for name in order:
            start = time.process_time()
            calls[name]()
            if number:
                best[name] = min(best[name], time.process_time() - start)
    return best


def measure_layers(shapes: tuple[Cost, ...], rounds: int) -> list[dict[str, Any]]:
    """Time and bytes of a layer at each shape."""
    torch.set_num_threads(1)
    keep_freed()
    seconds = fastest({shape: training_step(shape) for shape in shapes}, rounds)
    rows = []
    for shape in shapes:
        rnn, x = layer(shape), torch.randn(shape.steps, shape.batch, shape.inputs, requires_grad=True)
        parameters = sum(parameter.numel() for parameter in rnn.parameters())
        counted = {"saved_bytes": memory.saved_bytes(rnn, x), "parameters": parameters}
        rows.append({"shape": asdict(shape), "seconds": seconds[shape], **counted})
    return rows


class Update:
    """An update as the engine makes it, alone or as one of several ranks, with all of the batch or a share of it."""

    def __init__(self, ranks: Alone, task: LMTask) -> None:
        torch.manual_seed(0)
        self.ranks, self.model, self.batch = ranks, task.build(), task.batches("train")[0]
        ranks.adopt(task, self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)

    def make(self) -> None:
        step = self.ranks.step(self.batch, None, Requests())
        self.optimizer.zero_grad()
        (step.loss / step.count).backward()
        self.optimizer.step()


def measure_shared(cost: Cost, rounds: int, ranks: Ranks) -> dict[str, Any]:
    """Fastest times on rank 0: a whole update alone, its optimiser, the gradients' way, and the same update shared."""
    settings = PRESETS["paper"]
    cell, training = replace(settings.cell, hidden_size=cost.units), replace(settings.training, batch_size=cost.batch)
    config = replace(settings, cell=cell, training=training, bptt=cost.steps)
    torch.manual_seed(0)
    task = LMTask(config, lm_profile.corpus(cost.words, config))
    alone, shared = Update(Alone(), task), Update(ranks, task)
    gradients = torch.zeros(sum(parameter.numel() for parameter in shared.model.parameters()))
    # rank 1 leaves the machine to rank 0 where that works alone
    calls: dict[Any, Callable[[], None]] = {
        "alone": alone.make if ranks.first else lambda: None,
        "optimiser": alone.optimizer.step if ranks.first else lambda: None,
        "sending": lambda: distributed.all_reduce(gradients),
        "shared": shared.make,
    }

    def together(call: Callable[[], None]) -> float:
        distributed.barrier()
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    best = dict.fromkeys(calls, float("inf"))
    for number in range(rounds + 1):
        for name, call in calls.items():
            seconds = together(call)
            best[name] = min(best[name], seconds if number else float("inf"))
    return {"shape": asdict(cost), "ranks": ranks.size, "seconds": best, "parameters": len(gradients)}


def start_ranks(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Let two processes measure shared updates."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "shared.json"
        line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
        line += ["--rank-output", str(output), *(["--quick"] if options.quick else [])]
        subprocess.run(line, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        rows: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))
        return rows


def be_a_rank(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    keep_freed()
    with joined() as ranks:
        assert isinstance(ranks, Ranks)
        shapes = (Cost(50, 50, steps=5, batch=4, words=100),) if options.quick else SHARED
        rows = [measure_shared(shape, options.rounds, ranks) for shape in shapes]
        if ranks.first:
            options.rank_output.write_text(json.dumps(rows), encoding="utf-8")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    path = options.output.with_suffix(".json")
    record = json.loads(path.read_text(encoding="utf-8")) if options.part else {}
    record["machine"] = machine(options.date)
    if options.part in (None, "layers"):
        shapes = (Cost(20, 20, steps=5), Cost(20, 40, steps=5)) if options.quick else SHAPES
        record["layers"] = measure_layers(shapes, options.rounds)
    if options.part in (None, "shared"):
        record["shared"] = start_ranks(options)
    return record


def main() -> None:
    options = parse()
    if options.rank_output:
        be_a_rank(options)
        return
    if options.read:
        record = json.loads(options.read.read_text(encoding="utf-8"))
    else:
        record = measure(options)
        lm_profile.write(options.output.with_suffix(".json"), json.dumps(record, indent=1) + "\n")
    lm_profile.write(options.output.with_suffix(".md"), cost_tables.page(record))
    cost_tables.draw(record, options.output)
    print(cost_tables.page(record))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small shapes, few rounds")
    parser.add_argument("--part", choices=("layers", "shared"), help="measure this part alone (both)")
    parser.add_argument("--output", type=Path, help="without suffix (benchmarks/results/cost)")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="for the record (today)")
    parser.add_argument("--from", dest="read", type=Path, metavar="JSON", help="measure nothing: read a record")
    parser.add_argument("--rank-output", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = 2 if options.quick else 20
    own = RESULTS / ("cost_quick" if options.quick else "cost")
    options.output = options.output or (options.read and options.read.with_suffix("")) or own
    return options


if __name__ == "__main__":
    main()
