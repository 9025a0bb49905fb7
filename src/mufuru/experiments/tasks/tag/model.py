"""The tagger: words embedded, a recurrent layer, a linear classifier of every step; and how rare words are read."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from mufuru.experiments.data.vocabulary import UNKNOWN, Vocabulary
from mufuru.experiments.tasks.cells import per_step
from mufuru.experiments.tasks.classify.model import LabelledModel
from mufuru.experiments.tasks.models import Tensors
from mufuru.experiments.tasks.tag.config import TagConfig
from mufuru.experiments.tasks.words import Meaning


class Tagger(LabelledModel):
    """Classifier of tokens."""

    settings, metadata, kind = TagConfig, Meaning, "tagger"

    def __init__(self, config: TagConfig, meaning: Meaning, fingerprint: str = "") -> None:
        super().__init__(config, meaning, fingerprint, len(meaning.labels))

    def forward(self, inputs: PackedSequence | Tensor, lengths: Tensor | None = None) -> Any:
        """Return the logits of every step: packed as the inputs, or (steps, batch, labels) of padded ones."""
        return per_step(self.logits, self.outputs(inputs, lengths)[0])

    @torch.no_grad()
    def answers(self, *arguments: Tensor) -> Tensors:
        """Return the logits of packed sentences; the layer's outputs past the end of one are 0."""
        inputs, lengths = arguments
        outputs, _ = self.outputs(pack_padded_sequence(inputs, lengths, enforce_sorted=False))
        padded, _ = pad_packed_sequence(outputs, total_length=len(inputs))
        return (self.output(padded),)

    def by_steps(self, inputs: Tensor) -> list[Tensor]:
        return list(self.answers(inputs, torch.full((inputs.size(1),), len(inputs)))[0])


def signatures(word: str) -> tuple[str, str]:
    """Return a word's kind and ending as a word, and its kind alone.

    >>> signatures("Frankfurter")
    ('<unk-title-er>', '<unk-title>')
    """
    kind = "digit" if any(map(str.isdigit, word)) else "lower"
    if word[0].isupper():
        kind = "upper" if word.isupper() and len(word) > 1 else "title"
    kind += "-hyphen" if "-" in word.strip("-") else ""
    ending = word[-2:].lower() if len(word) > 3 and word[-2:].isalpha() else ""
    return f"<unk-{kind}-{ending}>" if ending else f"<unk-{kind}>", f"<unk-{kind}>"


def known_forms(words: Iterable[str], vocabulary: Vocabulary, lowercase: bool) -> list[str]:
    """Return each word as the vocabulary has it: itself, or the longest of its signatures, or <unk>."""
    forms = ((word.lower() if lowercase else word, *signatures(word), UNKNOWN) for word in words)
    return [next(form for form in some if form in vocabulary) for some in forms]
