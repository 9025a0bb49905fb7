"""Time of the parts of a language model's update, and tokens per second, for MuFuRU, nn.GRU and nn.LSTM side by side.

    python benchmarks/lm_profile.py                    1 and 2 threads, about two minutes
    python benchmarks/lm_profile.py --quick            a few seconds, to see that it runs
    python benchmarks/lm_profile.py --from benchmarks/results/lm_profile.json      the table anew

One update of the preset `paper`: 200 units, 10,000 words, 35 steps of 10 columns. The models take turns, and tokens are
drawn: what they are makes no difference to the time. Writes JSON and Markdown; stopped with Ctrl-C it writes nothing.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import random
import time
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from lm_profile_plain import PlainUpdates
from lm_profile_tables import GRU, LEAN, LSTM, MUFURU, PLAIN, Profile, page
from record import machine
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from mufuru.experiments.data.text import Corpus
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.engine.fit import keep_freed
from mufuru.experiments.tasks.cells import detach
from mufuru.experiments.tasks.lm.config import PRESETS, LMConfig
from mufuru.experiments.tasks.lm.model import loss_sum
from mufuru.experiments.tasks.lm.task import LMTask

RESULTS = Path(__file__).parent / "results"


class Updates:
    """A model in training, update by update, as the engine does it, with a clock between the stages."""

    def __init__(self, config: LMConfig, corpus: Corpus) -> None:
        torch.manual_seed(config.seed)
        self.task = LMTask(config, corpus)
        self.model: Any = self.task.build()
        self.training = config.training
        self.windows = self.task.batches("train")
        self.parameters = list(self.model.parameters())
        betas = self.training.beta1, self.training.beta2
        decay = self.training.weight_decay
        self.optimizer = torch.optim.AdamW(
            self.parameters, self.training.learning_rate, betas, weight_decay=decay, fused=True
        )
        self.state: Any = None
        self.done = 0

    def update(self) -> list[float]:
        """One update; the seconds of its stages."""
        window = self.windows[self.done % len(self.windows)]
        clock = [time.perf_counter()]
        outputs, state = self.model(window.inputs, self.state)
        clock.append(time.perf_counter())
        output = self.model.output
        total = loss_sum(outputs.flatten(0, 1), output.weight, output.bias, window.targets.flatten())
        loss = total / window.targets.numel()
        clock.append(time.perf_counter())
        self.optimizer.zero_grad()
        loss.backward()
        clock.append(time.perf_counter())
        self._clip()
        clock.append(time.perf_counter())
        self.optimizer.step()
        clock.append(time.perf_counter())
        self.state, self.done = detach(state), self.done + 1
        return [end - start for start, end in pairwise(clock)]

    def _clip(self) -> None:
        norm = get_total_norm([parameter.grad for parameter in self.parameters if parameter.grad is not None])
        if self.training.clip is not None and float(norm) > self.training.clip:
            clip_grads_with_norm_(self.parameters, self.training.clip, norm)


def corpus(words: int, config: LMConfig) -> Corpus:
    """Some windows of drawn tokens."""
    length = config.training.batch_size * config.bptt * 4
    tokens = torch.randint(words, (length,), generator=torch.Generator().manual_seed(0))
    vocabulary = Vocabulary(("<unk>", *(f"word{number}" for number in range(words - 1))))
    return Corpus(tokens, tokens[:100], tokens[:100], vocabulary, "drawn tokens")


def models(config: LMConfig) -> dict[str, LMConfig]:
    """The same setting for every cell."""
    cell = config.cell
    cells = {
        MUFURU: cell.for_cell("mufuru"),
        LEAN: replace(cell.for_cell("mufuru"), controller_size=50),
        GRU: cell.for_cell("gru"),
        LSTM: cell.for_cell("lstm"),
    }
    return {name: replace(config, cell=chosen) for name, chosen in cells.items()}


def measure(config: LMConfig, words: int, threads: int, seconds: float, least: int) -> dict[str, list[list[float]]]:
    """Rounds in which every model makes one update, in random order, until the time is spent."""
    torch.set_num_threads(threads)
    # as in a run
    keep_freed()
    text = corpus(words, config)
    peers: dict[str, Updates | PlainUpdates] = {name: Updates(chosen, text) for name, chosen in models(config).items()}
    peers[PLAIN] = PlainUpdates(config, text)
    found: dict[str, list[list[float]]] = {name: [] for name in peers}
    # the first updates build and allocate
    for peer in peers.values():
        for _ in range(2):
            peer.update()
    order, shuffle = list(peers), random.Random(0).shuffle
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        while len(found[GRU]) < least or time.perf_counter() < end:
            shuffle(order)
            for name in order:
                found[name].append(peers[name].update())
    finally:
        gc.enable()
    return found


def main() -> None:
    options = parse()
    if options.read:
        profile = Profile(**json.loads(options.read.read_text(encoding="utf-8")))
    else:
        profile = run(options)
        write(options.output.with_suffix(".json"), json.dumps(asdict(profile), indent=1) + "\n")
    write(options.output.with_suffix(".md"), page(profile))
    print(page(profile))


def run(options: argparse.Namespace) -> Profile:
    config = PRESETS["paper"]
    if options.quick:
        config = replace(config, cell=replace(config.cell, hidden_size=20), bptt=7)
    words = 500 if options.quick else 10_000
    settings: dict[str, str | float] = {"units": config.cell.hidden_size, "words": words, "steps": config.bptt}
    settings |= {"columns": config.training.batch_size, "seconds": options.seconds}
    profile = Profile(machine(options.date), settings)
    for threads in options.threads:
        print(f"threads: {threads}", flush=True)
        profile.stages[str(threads)] = measure(config, words, threads, options.seconds, options.samples)
    return profile


def write(path: Path, text: str) -> None:
    """To the side first: whenever it is stopped, a whole file is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="+", type=int, help="thread counts (1 2)")
    parser.add_argument("--seconds", type=float, help="for all models together, by thread count (60)")
    parser.add_argument("--quick", action="store_true", help="a small model, one thread, few updates")
    parser.add_argument("--output", type=Path, help="without suffix (benchmarks/results/lm_profile)")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="for the record (today)")
    parser.add_argument("--from", dest="read", type=Path, metavar="JSON", help="measure nothing: read a record")
    options = parser.parse_args()
    options.samples = 3 if options.quick else 20
    options.threads = options.threads or ([1] if options.quick else [1, 2])
    options.seconds = options.seconds or (0.3 if options.quick else 60.0)
    # a record read again is written beside itself, and a quick run never over a real one
    own = RESULTS / ("lm_profile_quick" if options.quick else "lm_profile")
    options.output = options.output or (options.read and options.read.with_suffix("")) or own
    return options


if __name__ == "__main__":
    main()
