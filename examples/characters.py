"""A character language model of any text, small enough to read: train it, let it write, see what it did at each letter.

    python examples/characters.py                      this library's own source code, about a minute
    python examples/characters.py --file my-book.txt   a text of yours

The command `mufuru train lm --text FILE --level char` does the same with validation, checkpoints and a report.
"""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import mufuru

BATCH, WINDOW = 16, 64


class Writer(nn.Module):
    """Characters in, the logits of the next character out."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, 32)
        self.rnn = mufuru.MuFuRU(32, 128)
        self.output = nn.Linear(128, characters)

    def forward(self, tokens: Tensor, state: mufuru.State | None = None) -> tuple[Tensor, mufuru.State]:
        outputs, state = self.rnn(self.embedding(tokens), state)
        return self.output(outputs), state


def train(model: Writer, tokens: Tensor, epochs: int) -> None:
    """Read the text in 16 columns side by side; the state goes on from window to window."""
    rows = (len(tokens) - 1) // BATCH
    inputs, targets = (part[: rows * BATCH].view(BATCH, rows).T for part in (tokens, tokens[1:]))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(1, epochs + 1):
        state, total = None, 0.0
        for start in range(0, rows, WINDOW):
            window = slice(start, start + WINDOW)
            logits, state = model(inputs[window], state)
            loss = cross_entropy(logits.flatten(0, 1), targets[window].flatten(), reduction="sum")
            optimizer.zero_grad()
            (loss / inputs[window].numel()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            assert isinstance(state, Tensor)
            state = state.detach()
            total += loss.item()
        print(f"epoch {epoch}: {total / inputs.numel() / 0.6931:.2f} bits per character")


@torch.no_grad()
def write(model: Writer, first: int, length: int) -> list[int]:
    """Draw one character after another; the state is all the model remembers."""
    found, state = [first], None
    for _ in range(length):
        logits, state = model(torch.tensor([[found[-1]]]), state)
        found.append(int(torch.multinomial(logits[0, 0].softmax(-1), 1)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="a text in UTF-8 (default: source code of this library)")
    parser.add_argument("--epochs", type=int, default=15, help="times to read it (default: %(default)s)")
    options = parser.parse_args()
    if options.file and not options.file.is_file():
        parser.error(f"{options.file}: there is no such file, expected a text")
    torch.manual_seed(0)
    classes = (mufuru.MuFuRU, mufuru.MuFuRUCell, mufuru.Trace, mufuru.Op, mufuru.Recorder, mufuru.TreeMuFuRU)
    text = options.file.read_text("utf-8") if options.file else "\n".join(map(inspect.getsource, classes))
    alphabet = sorted(set(text))
    tokens = torch.tensor([alphabet.index(character) for character in text])
    model = Writer(len(alphabet))
    train(model, tokens, options.epochs)
    print("".join(alphabet[index] for index in write(model, int(tokens[0]), 300)))
    trace = model.rnn.trace(model.embedding(tokens[:24].unsqueeze(1)))
    for character, weights in zip(text, trace.weights().mean((1, 3)), strict=False):
        op, weight = max(zip(trace.op_names, weights.tolist(), strict=True), key=lambda pair: pair[1])
        print(f"{character!r:>5} {op:8} {weight:.2f}")


if __name__ == "__main__":
    main()
