"""Classify time series of different lengths: did the spike come before the dip, or after it?

Every series is noise with one spike and one dip; the class is their order. The layer reads each series to its own end
(`lengths=`), so padding is never seen. The last lines show which operations a trained layer uses where it matters.

    python examples/series.py                  a few seconds
    python examples/series.py --noise 0.6      harder

The command `mufuru train classify --data FILE` does this for a file of yours, a label and values in each line.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

import mufuru


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = mufuru.MuFuRU(1, 16, batch_first=True)
        self.output = nn.Linear(16, 2)

    def forward(self, series: Tensor, lengths: Tensor) -> Tensor:
        _, last = self.rnn(series, lengths=lengths)
        logits: Tensor = self.output(last[-1])
        return logits


def draw(count: int, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """Padded series (count, steps, 1), their lengths, and the class: 1 where the spike comes first."""
    lengths = torch.randint(20, 60, (count,))
    series, labels = [], []
    for length in lengths.tolist():
        values = noise * torch.randn(length, 1)
        spike, dip = torch.randperm(length)[:2].tolist()
        values[spike] += 2
        values[dip] -= 2
        series.append(values)
        labels.append(int(spike < dip))
    return pad_sequence(series, batch_first=True), lengths, torch.tensor(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise", type=float, default=0.3, help="deviation of the noise (default: %(default)s)")
    parser.add_argument("--updates", type=int, default=400, help="training steps (default: %(default)s)")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for update in range(1, options.updates + 1):
        series, lengths, labels = draw(32, options.noise)
        loss = cross_entropy(model(series, lengths), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 100 == 0:
            print(f"update {update}: loss {loss.item():.3f}")
    series, lengths, labels = draw(1000, options.noise)
    with torch.no_grad():
        right = (model(series, lengths).argmax(1) == labels).float().mean()
        trace = model.rnn.trace(series, lengths=lengths)
    print(f"right on 1,000 new series: {right.item():.3f}")
    weights = trace.weights().mean(-1)
    for name, where in {
        "spike": series[..., 0] > 1.5,
        "dip": series[..., 0] < -1.5,
        "noise": series[..., 0].abs() < 1,
    }.items():
        # steps past a series' end are padding
        inside = where & (torch.arange(series.shape[1]) < lengths.unsqueeze(1))
        shown = ", ".join(
            f"{op} {w:.2f}" for op, w in zip(trace.op_names, weights[inside].mean(0).tolist(), strict=True)
        )
        print(f"at {name:5} {shown}")


if __name__ == "__main__":
    main()
