"""Memory and time of training on texts of two sizes: generated, tokenised into a token file, trained on, deleted.

    python benchmarks/large_text.py                        hours; 10 GB of the temporary folder
    python benchmarks/large_text.py --quick                seconds, to see that it runs
    python benchmarks/large_text.py --add words 70000000   one more row of the record, or the same anew

Every text has a process of its own, whose largest memory the system counts, and so have the processes that tokenise.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import torch
from large_text_tables import large
from lm_profile import write
from record import machine

from mufuru.experiments.data import tokenise
from mufuru.experiments.engine.evaluate import make
from mufuru.experiments.tasks.lm.config import PRESETS

RESULTS = Path(__file__).parent / "results"
SIZES = {
    "words": (200_000_000, 3_000_000_000),
    "characters": (200_000_000, 3_000_000_000),
    "bpe": (20_000_000, 200_000_000),
}
"""Bytes of the texts by tokenizer."""
QUICK = {"words": (200_000, 2_000_000)}
DIFFERENT = 300_000
"""Different words of a text."""
DRAWN = 50_000_000
"""Bytes that are drawn; a larger text repeats them."""
UPDATES = 50


def generate(path: Path, size: int) -> None:
    """Write a text with words as frequent as in natural ones: a few very often, most of them rarely."""
    draw, drawn = numpy.random.default_rng(0), b""
    while len(drawn) < min(size, DRAWN):
        # the logarithm of the rank is uniform
        ranks = numpy.exp(draw.random(1_000_000) * numpy.log(DIFFERENT)).astype(int)
        ends = numpy.where(draw.random(len(ranks)) < 0.05, 10, 32).tolist()
        drawn += b"".join(b"%x%c" % pair for pair in zip(ranks.tolist(), ends, strict=True))
    with open(path, "wb") as file:
        while file.tell() < size:
            file.write(drawn[: size - file.tell()])


def measure(path: Path, tokenizer: Any) -> dict[str, Any]:
    """Tokenise a text and train on it; return numbers of this process, which does nothing else."""
    torch.set_num_threads(1)
    config = PRESETS["best"]
    data = replace(config.data, text=(str(path),), level=tokenizer, vocabulary_size=10_000, held_out=(0.001, 0.001))
    start = time.perf_counter()
    task, model = make("lm", replace(config, data=data))
    seconds = time.perf_counter() - start
    optimizer, batches, state = torch.optim.AdamW(model.parameters(), 1e-3), task.batches("train"), None
    for batch in (batches[index] for index in range(min(UPDATES, len(batches)))):
        step = task.step(model, batch, state)
        optimizer.zero_grad()
        (step.loss / step.count).backward()
        optimizer.step()
        state = step.state
    kilobytes = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    tokens: Any = task
    return {
        "tokenizer": tokenizer,
        "bytes": path.stat().st_size,
        "seconds": round(seconds, 1),
        "tokens": sum(len(getattr(tokens.corpus, part)) for part in ("train", "valid", "test")),
        "token_file": sum(file.stat().st_size for file in (Path(os.environ["MUFURU_DATA"]) / "tokens").iterdir()),
        "updates": min(UPDATES, len(batches)),
        "loss": round(float(step.loss.detach()) / step.count, 4),
        "peak": 1024 * kilobytes[0],
        "peak_of_a_helper": 1024 * kilobytes[1],
    }


def in_a_process(tokenizer: str, size: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="mufuru-large-text-") as folder:
        path = Path(folder) / "text.txt"
        generate(path, size)
        command = [sys.executable, __file__, "--child", str(path), "--tokenizer", tokenizer]
        command += ["--quick"] if options.quick else []
        environment = os.environ | {"MUFURU_DATA": folder}
        output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    row: dict[str, Any] = json.loads(output)
    return row


def main() -> None:
    options = parse()
    if options.quick:
        tokenise.LARGE = 0
    if options.child:
        print(json.dumps(measure(options.child, options.tokenizer)))
        return
    chosen = [(name, size) for name, some in (QUICK if options.quick else SIZES).items() for size in some]
    record: dict[str, Any] = {"rows": []}
    if options.add:
        record, chosen = json.loads(options.output.read_text()), [(options.add[0], int(options.add[1]))]
    record["machine"] = machine(options.date)
    for name, size in chosen:
        others = [row for row in record["rows"] if (row["tokenizer"], row["bytes"]) != (name, size)]
        rows = [*others, in_a_process(name, size, options)]
        record["rows"] = sorted(rows, key=lambda row: ([*SIZES].index(row["tokenizer"]), row["bytes"]))
        write(options.output, json.dumps(record, indent=1) + "\n")
    print(large(record))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="texts of some megabytes")
    parser.add_argument("--output", type=Path, help="benchmarks/results/large_text.json")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="for the record (today)")
    parser.add_argument("--add", nargs=2, metavar=("TOKENIZER", "BYTES"), help="measure this alone")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--tokenizer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.output = options.output or RESULTS / ("large_text_quick.json" if options.quick else "large_text.json")
    return options


if __name__ == "__main__":
    main()
