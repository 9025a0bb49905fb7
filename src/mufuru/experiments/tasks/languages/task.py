"""The task of formal languages: strings in, whether they are in the language, or the state they end in, out."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from mufuru.experiments.data import flare
from mufuru.experiments.draws import Draws, permutation
from mufuru.experiments.tasks.languages import tracking
from mufuru.experiments.tasks.languages.config import LanguageConfig, LanguagesConfig
from mufuru.experiments.tasks.languages.model import Batch, Encoded, Recogniser
from mufuru.experiments.tasks.task import Batches, State, Step, Totals, by_length

EVALUATION_TOKENS = 4096
"""Symbols at a time where nothing is trained; no metric depends on it."""

Labelled = list[tuple[tuple[str, ...], int]]


class LanguagesTask:
    """Strings, model and metrics of one run."""

    metric = "loss"
    higher_is_better = False

    def __init__(self, config: LanguagesConfig) -> None:
        self.config = config
        splits, self.classes = strings(config.data, config.seed)
        self.symbols = sorted({symbol for string, _ in splits["train"] for symbol in string})
        numbers = {symbol: number for number, symbol in enumerate(self.symbols)}
        self._encoded = {
            split: Encoded([[numbers[symbol] for symbol in string] for string, _ in some], [label for _, label in some])
            for split, some in splits.items()
        }
        self._sizes = self._encoded["train"].sizes(config.batch_tokens)

    def build(self) -> nn.Module:
        return Recogniser(self.config, len(self.symbols), self.classes)

    def batches(self, split: str, epoch: int = 0) -> Batches:
        """Return all batches, each of strings of about the same length; those of "train" in the order of the epoch,
        which also decides which strings of equal length share a batch."""
        encoded, seed = self._encoded[split], self.config.seed
        if split != "train":
            by_length = encoded.lengths.argsort(stable=True)
            return Batches(encoded.batch, by_length.split(encoded.sizes(EVALUATION_TOKENS)))
        order = permutation(len(encoded.targets), "languages", "strings", seed, epoch)
        by_length = order[encoded.lengths[order].argsort(stable=True)]
        groups = by_length.split(self._sizes)
        places = permutation(len(groups), "languages", "batches", seed, epoch)
        return Batches(encoded.batch, [groups[place] for place in places.tolist()])

    def step(self, model: nn.Module, batch: Batch, state: State) -> Step:
        logits: Tensor = model(batch)
        if self.classes == 2:
            loss = binary_cross_entropy_with_logits(logits.squeeze(1), batch.targets.float(), reduction="sum")
        else:
            loss = cross_entropy(logits, batch.targets, reduction="sum")
        return Step(loss, len(batch.targets), sums={"right": self.right(logits.detach(), batch).sum()})

    def right(self, logits: Tensor, batch: Batch) -> Tensor:
        answers = (logits.squeeze(1) >= 0).long() if self.classes == 2 else logits.argmax(1)
        return answers == batch.targets

    def metrics(self, totals: Totals) -> dict[str, float]:
        return {"loss": totals.mean("loss"), "accuracy": totals.mean("right")}

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """Return test accuracy by length: `{"lengths": ...}`, see `task.by_length`."""
        lengths, right = [], []
        for batch in self.batches("test"):
            sizes = torch.zeros(0, dtype=torch.int64) if batch.tokens is None else batch.tokens.batch_sizes
            lengths.append((sizes.unsqueeze(1) > torch.arange(len(batch.targets))).sum(0))
            right.append(self.right(model(batch), batch))
        return {"lengths": by_length(torch.cat(lengths), torch.cat(right))}


def strings(config: LanguageConfig, seed: int) -> tuple[dict[str, Labelled], int]:
    """Return the strings and classes of every split, and the number of classes."""
    if config.language not in tracking.LANGUAGES:
        splits = flare.load(config.language, config.data_dir)
        return {split: [(string, int(inside)) for string, inside in some] for split, some in splits.items()}, 2
    language = tracking.LANGUAGES[config.language]
    drawn: dict[str, Labelled] = {}
    for split, (count, (low, high)) in config.splits.items():
        draws = Draws("languages", config.language, split, seed)
        every = [language.draw(low + draws.below(high - low + 1), draws) for _ in range(count)]
        drawn[split] = [(string, language.state(string)) for string in every]
    return drawn, language.classes
