"""The tagger: words embedded, a recurrent layer, a linear classifier of every step; and how rare words are read."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from mufuru.experiments.data.vocabulary import UNKNOWN, Vocabulary
from mufuru.experiments.tasks.cells import SequenceLayer, per_step
from mufuru.experiments.tasks.classify import stream
from mufuru.experiments.tasks.classify.model import raw_sequences
from mufuru.experiments.tasks.models import Metadata, SequenceModel, StepGraph, Tensors
from mufuru.experiments.tasks.tag.config import TagConfig
from mufuru.experiments.tasks.words import Meaning, embedding


class Tagger(SequenceModel):
    """Classifier of tokens."""

    settings, metadata = TagConfig, Meaning

    def __init__(self, config: TagConfig, meaning: Meaning, fingerprint: str = "") -> None:
        super().__init__()
        assert meaning.vocabulary is not None
        self.config, self.meaning = config, meaning
        self.carried = Metadata(meaning.to_json(), fingerprint)
        self.embedding = embedding(len(meaning.vocabulary), config)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.reader = SequenceLayer(config.cell, config.embedding_size)
        self.output_dropout = nn.Dropout(config.output_dropout)
        self.output = nn.Linear(self.reader.output_size, len(meaning.labels))

    def forward(self, inputs: PackedSequence | Tensor, lengths: Tensor | None = None) -> Any:
        """Return the logits of every step: packed as the inputs, or (steps, batch, labels) of padded ones."""
        return per_step(self.logits, self.outputs(inputs, lengths))

    def logits(self, rows: Tensor) -> Tensor:
        """Return the logits of outputs of the layer."""
        logits: Tensor = self.output(self.output_dropout(rows))
        return logits

    def outputs(self, inputs: PackedSequence | Tensor, lengths: Tensor | None = None) -> PackedSequence | Tensor:
        """Return the outputs of the recurrent layer."""
        x = per_step(lambda steps: self.embedding_dropout(self.embedding(steps)), inputs)
        outputs: PackedSequence | Tensor = self.reader(x, None, lengths)[0]
        return outputs

    def draw(self, steps: int, batch: int, generator: torch.Generator) -> Tensor:
        return torch.randint(self.embedding.num_embeddings, (steps, batch), generator=generator)

    @torch.no_grad()
    def answers(self, *arguments: Tensor) -> Tensors:
        """Return the logits of packed sentences; the layer's outputs past the end of one are 0."""
        inputs, lengths = arguments
        packed: Any = self.outputs(pack_padded_sequence(inputs, lengths, enforce_sorted=False))
        padded, _ = pad_packed_sequence(packed, total_length=len(inputs))
        return (self.output(padded),)

    def raw(self) -> dict[str, Any]:
        return {"kind": "tagger", **raw_sequences(self.meaning, self.config)}

    def step_graph(self) -> StepGraph | None:
        return stream.step_graph(self)

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
