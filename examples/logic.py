"""Learn to evaluate Boolean formulae: torch.nn.GRU and mufuru.MuFuRU, the same training, side by side.

A formula is a truth value, then pairs of value and gate, read from the left: [1, 0, AND, 1, OR] is (1 AND 0) OR 1.
Both cells train on formulae of 5 to 10 gates and are tested on unseen ones of 11 to 20 gates. The last table shows
what MuFuRU did with its memory at each token. One run is an anecdote: try other seeds and learning rates.

    python examples/logic.py                      about a minute
    python examples/logic.py --lr 0.003           enough for the GRU to learn it too
    python examples/logic.py --seed 3             a start that is less lucky
    python examples/logic.py --hidden-size 32     more memory
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import mufuru

GATES: dict[str, Callable[[bool, bool], bool]] = {
    "NOR": lambda p, q: not (p or q),
    "Xq": lambda p, q: not p and q,
    "ABJ": lambda p, q: p and not q,
    "XOR": lambda p, q: p != q,
    "NAND": lambda p, q: not (p and q),
    "AND": lambda p, q: p and q,
    "XNOR": lambda p, q: p == q,
    "if/then": lambda p, q: not p or q,
    "then/if": lambda p, q: p or not q,
    "OR": lambda p, q: p or q,
}
TOKENS = ("0", "1", *GATES)


@dataclass(frozen=True)
class Formula:
    tokens: tuple[int, ...]
    value: bool


def sample(gates: int, rng: random.Random) -> Formula:
    """A random formula with that many gates."""
    value = rng.random() < 0.5
    tokens = [int(value)]
    for _ in range(gates):
        operand, gate = rng.random() < 0.5, rng.choice(list(GATES))
        tokens += [int(operand), TOKENS.index(gate)]
        value = GATES[gate](value, operand)
    return Formula(tuple(tokens), value)


def sample_unique(count: int, gates: range, rng: random.Random) -> list[Formula]:
    """Different formulae. Ranges that do not meet give data sets that do not meet."""
    found: dict[Formula, None] = {}
    while len(found) < count:
        found[sample(rng.choice(gates), rng)] = None
    return list(found)


def batches(formulae: list[Formula], size: int = 50) -> Iterator[tuple[PackedSequence, Tensor]]:
    for start in range(0, len(formulae), size):
        batch = formulae[start : start + size]
        tokens = pack_sequence([torch.tensor(formula.tokens) for formula in batch], enforce_sorted=False)
        yield tokens, torch.tensor([float(formula.value) for formula in batch])


class Evaluator(nn.Module):
    """Reads a formula with any recurrent layer; a logistic regression on the last state says whether it is true."""

    def __init__(self, rnn: nn.GRU | mufuru.MuFuRU) -> None:
        super().__init__()
        self.rnn = rnn
        self.output = nn.Linear(rnn.hidden_size, 1)

    def forward(self, tokens: PackedSequence) -> Tensor:
        _, h_n = self.rnn(tokens._replace(data=one_hot(tokens.data, len(TOKENS)).float()))
        logits: Tensor = self.output(h_n[-1]).squeeze(-1)
        return logits


def train(name: str, model: Evaluator, formulae: list[Formula], epochs: int, lr: float, rng: random.Random) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr, betas=(0.0, 0.999))
    start = time.monotonic()
    for epoch in range(1, epochs + 1):
        loss_sum = 0.0
        for tokens, values in batches(rng.sample(formulae, len(formulae))):
            loss = binary_cross_entropy_with_logits(model(tokens), values, reduction="sum")
            optimizer.zero_grad()
            (loss / len(values)).backward()
            optimizer.step()
            loss_sum += loss.item()
        if epoch % 10 == 0 or epoch == epochs:
            seconds = time.monotonic() - start
            mean = loss_sum / len(formulae)
            print(f"{name:6}  epoch {epoch:3}/{epochs}  loss {mean:.3f}  {seconds:4.0f} s", flush=True)


@torch.no_grad()
def accuracy(model: Evaluator, formulae: list[Formula]) -> float:
    right = sum(int(((model(tokens) > 0) == (values > 0.5)).sum()) for tokens, values in batches(formulae))
    return right / len(formulae)


@torch.no_grad()
def operation_use(model: Evaluator, formulae: list[Formula]) -> Tensor:
    """(tokens, operations): the mean weight of each operation where the step reads that token."""
    recorder = mufuru.Recorder(labels=len(TOKENS))
    for tokens, _ in batches(formulae):
        with mufuru.tracing(model) as traces:
            model(tokens)
        recorder.add(traces["rnn"][0], labels=tokens)
    return recorder.use().label_weight


def positive(kind: type[float]) -> Callable[[str], float]:
    """An argument's type: argparse turns the ValueError into a sentence."""

    def number(text: str) -> float:
        if not 0 < kind(text) < float("inf"):
            raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
        return kind(text)

    return number


class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """The text above as it stands, and the default of every option."""


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=Help)
    parser.add_argument("--epochs", type=positive(int), default=100, help="passes over the training formulae")
    parser.add_argument("--seed", type=int, default=1, help="of formulae, weights and their order in training")
    parser.add_argument("--hidden-size", type=positive(int), default=8, help="units of each cell")
    parser.add_argument("--lr", type=positive(float), default=0.001, help="Adam's learning rate")
    parser.add_argument("--formulae", type=positive(int), default=1000, help="how many to train on, and to test on")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    # products this small gain nothing from threads, which on a busy machine wait for each other
    torch.set_num_threads(1)
    rng = random.Random(options.seed)
    training = sample_unique(options.formulae, range(5, 11), rng)
    test = sample_unique(options.formulae, range(11, 21), rng)
    models: dict[str, Evaluator] = {}
    for name, layer in {"GRU": nn.GRU, "MuFuRU": mufuru.MuFuRU}.items():
        torch.manual_seed(options.seed)
        models[name] = Evaluator(layer(len(TOKENS), options.hidden_size))
        train(name, models[name], training, options.epochs, options.lr, random.Random(options.seed))

    print(f"\n{'accuracy':8}  {'5-10 gates (trained)':>20}  {'11-20 gates (unseen)':>20}")
    for name, model in models.items():
        print(f"{name:8}  {accuracy(model, training):20.3f}  {accuracy(model, test):20.3f}")

    print("\nMean weight of each MuFuRU operation by the token it reads, on the unseen formulae:\n")
    print(f"{'token':8}" + "".join(f"{op:>9}" for op in mufuru.PAPER))
    for token, weights in zip(TOKENS, operation_use(models["MuFuRU"], test).tolist(), strict=True):
        print(f"{token:8}" + "".join(f"{weight:9.2f}" for weight in weights))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        sys.exit(130)
