"""Inference on a stream: one value comes in, one answer goes out, and the state is all that is kept between them.

A layer is trained to smooth a noisy wave. Then values arrive one at a time, as from a sensor. The answers are those of
a pass over the whole series; the state can be written to disk and taken up again by another process.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

import mufuru


def sensor(steps: int) -> tuple[Tensor, Tensor]:
    """A slow wave of unknown phase, and what a noisy sensor says of it."""
    wave = torch.sin(torch.arange(steps) / 5 + 6 * torch.rand(())).unsqueeze(1)
    return wave + 0.4 * torch.randn(steps, 1), wave


def train(rnn: mufuru.MuFuRU, output: nn.Linear, updates: int) -> None:
    optimizer = torch.optim.Adam([*rnn.parameters(), *output.parameters()], lr=0.01)
    for _ in range(updates):
        seen, wave = (torch.stack(parts, 1) for parts in zip(*(sensor(60) for _ in range(16)), strict=True))
        loss = (output(rnn(seen)[0]) - wave).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.inference_mode()
def smooth(rnn: mufuru.MuFuRU, output: nn.Linear, values: Iterator[float], state: Path) -> Iterator[float]:
    """One answer for each value; the state lies in a file between one value and the next."""
    for value in values:
        h = torch.load(state, weights_only=True) if state.exists() else None
        out, h = rnn(torch.tensor([[value]]), h)
        torch.save(h, state)
        yield output(out).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=150, help="training steps (default: %(default)s)")
    updates = parser.parse_args().updates
    torch.manual_seed(0)
    rnn, output = mufuru.MuFuRU(1, 16), nn.Linear(16, 1)
    train(rnn, output, updates)
    seen, wave = sensor(60)
    with tempfile.TemporaryDirectory() as folder:
        streamed = list(smooth(rnn, output, iter(seen.squeeze(1).tolist()), Path(folder) / "state.pt"))
    with torch.inference_mode():
        whole = output(rnn(seen)[0]).squeeze(1)
    print(f"error of the sensor:           {(seen - wave).square().mean().sqrt().item():.3f}")
    print(
        f"error of the stream's answers: {(torch.tensor(streamed) - wave.squeeze(1)).square().mean().sqrt().item():.3f}"
    )
    print(f"stream and whole pass differ by at most {(torch.tensor(streamed) - whole).abs().max().item():.0e}")


if __name__ == "__main__":
    main()
