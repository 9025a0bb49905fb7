"""Give the unit an operation of your own, and see whether it is used.

The task is to count: the input is a stream of 0 and 1, the target at every step is the number of ones so far. `count`
adds the positive part of the features to the state, which none of the paper's operations can do.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

import mufuru

Operations: TypeAlias = tuple[str | Callable[[Tensor, Tensor], Tensor], ...]


def count(s: Tensor, v: Tensor) -> Tensor:
    """Grow by what is new and positive."""
    return s + v.relu()


def ones_so_far(batch: int, steps: int) -> tuple[Tensor, Tensor]:
    bits = torch.randint(2, (steps, batch, 1)).float()
    return bits, bits.cumsum(0)


def train(ops: Operations, updates: int) -> tuple[mufuru.MuFuRU, float]:
    """A trained layer, and its mean error on sequences twice as long."""
    torch.manual_seed(0)
    rnn, output = mufuru.MuFuRU(1, 8, ops=ops), nn.Linear(8, 1)
    optimizer = torch.optim.Adam([*rnn.parameters(), *output.parameters()], lr=0.01)
    for _ in range(updates):
        bits, target = ones_so_far(batch=32, steps=20)
        loss = (output(rnn(bits)[0]) - target).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    bits, target = ones_so_far(batch=200, steps=40)
    with torch.no_grad():
        return rnn, (output(rnn(bits)[0]) - target).abs().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=300, help="training steps (default: %(default)s)")
    updates = parser.parse_args().updates
    # products this small gain nothing from threads
    torch.set_num_threads(1)

    choices: list[Operations] = [mufuru.PAPER, (*mufuru.PAPER, count)]
    for ops in choices:
        rnn, error = train(ops, updates)
        print(f"{len(ops)} operations: mean error {error:.2f} on sequences twice as long as in training")
    recorder = mufuru.Recorder()
    recorder.add(rnn.trace(ones_so_far(batch=200, steps=40)[0]))
    print("mean weights:", ", ".join(f"{op} {weight:.2f}" for op, weight in recorder.use().mean().items()))


if __name__ == "__main__":
    main()
