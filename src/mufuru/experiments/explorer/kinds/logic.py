"""Boolean formulae: whether they are true so far, and whether the model knows."""

from __future__ import annotations

import re
from contextlib import suppress

import torch
from torch import Tensor

from mufuru.experiments.explorer.kinds.reader import Prediction, Reader, Steps, prefixes, ranked
from mufuru.experiments.tasks.logic.formulae import TOKENS, Formula, FormulaError, parse

LABELS = ("false", "true")


class LogicReader(Reader):
    takes = "formula"
    examples = (
        "1 0 AND 0 OR 1 if/then",
        "0 1 XOR 1 XOR 0 XOR 1 XOR 1 XOR",
        "1 1 NAND 0 NOR 1 XNOR 0 then/if 1 ABJ",
        "1 0 ∨ 1 ∧ 0 ⊕ 1 ⇒ 0 ⇔",
    )

    @property
    def labels(self) -> tuple[str, ...]:
        return LABELS

    def steps(self, text: str) -> Steps:
        tokens = unfinished(text)
        notes = [] if len(tokens) % 2 else ["The formula is not finished: a gate is missing after the last value."]
        return Steps([TOKENS[token] for token in tokens], torch.tensor(tokens), notes)

    def outputs(self, steps: Steps) -> Tensor:
        outputs, _ = self.layer(self.model.one_hot[steps.x].unsqueeze(1))
        rows: Tensor = outputs[:, 0]
        return rows

    def predict(self, steps: Steps, outputs: Tensor) -> list[Prediction]:
        logits = self.model(prefixes(steps.x)).flip(0) if self.both_ways else self.model.output(outputs).squeeze(1)
        true = logits.double().sigmoid()
        tops = ranked(torch.stack((1 - true, true), 1), LABELS)
        tokens = tuple(steps.x.tolist())
        return [Prediction(top, truth(tokens[: place + 1])) for place, top in enumerate(tops)]


def unfinished(text: str) -> tuple[int, ...]:
    """The tokens of a formula whose last gate may still be missing, or be half typed."""
    try:
        return parse(text).tokens
    except FormulaError:
        for known in (text, without_beginning(text)):
            with suppress(FormulaError):
                return parse(known + " AND").tokens[:-1]
        raise


def without_beginning(text: str) -> str:
    """The text without its last word, if that may become the name of a gate."""
    # begun only where a word does: from each of its letters, a long word would take the square of its length
    last = re.search(r"(?<![\w/])[\d_/]*([^\W\d_][\w/]*)$", text)
    typing = last is not None and any(name.lower().startswith(last[1].lower()) for name in TOKENS)
    return text[: last.start(1)] if last is not None and typing else text


def truth(tokens: tuple[int, ...]) -> str | None:
    """What a formula evaluates to; None where its last gate is missing."""
    return LABELS[Formula(tokens).value] if len(tokens) % 2 else None
