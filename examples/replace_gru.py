"""Swap the GRU in a script you have: one line changes, and trained weights come along if you want them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import mufuru


class Tagger(nn.Module):
    """Words in, a tag for each word out: an ordinary model around `nn.GRU`."""

    def __init__(self, words: int, tags: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 16)
        self.rnn: nn.GRU | mufuru.MuFuRU = nn.GRU(16, 32, num_layers=2, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * 32, tags)

    def forward(self, words: Tensor) -> Tensor:
        states, _ = self.rnn(self.embedding(words))
        logits: Tensor = self.output(states)
        return logits


def main() -> None:
    torch.manual_seed(0)
    words = torch.randint(100, (4, 7))

    model = Tagger(words=100, tags=5)
    model.rnn = mufuru.MuFuRU(16, 32, num_layers=2, batch_first=True, bidirectional=True)
    print("fresh:     ", model.rnn)
    print("output:    ", tuple(model(words).shape))

    model = Tagger(words=100, tags=5)
    before = model(words)
    assert isinstance(model.rnn, nn.GRU)
    model.rnn = mufuru.MuFuRU.from_gru(model.rnn)
    print("converted: ", model.rnn)
    print(f"difference: {(model(words) - before).abs().max().item():.0e}")

    model.rnn = mufuru.MuFuRU.from_gru(model.rnn.to_gru(), ops=mufuru.PAPER)
    print("warm start:", model.rnn)
    print(f"difference: {(model(words) - before).abs().max().item():.0e}, until training uses the new operations")


if __name__ == "__main__":
    main()
