"""The tagger: settings and presets, how rare words are read, and the model, which classifies every step."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from mufuru.experiments.data.tagged import Format
from mufuru.experiments.data.text import Cut
from mufuru.experiments.data.vocabulary import UNKNOWN, Vocabulary
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig, per_step
from mufuru.experiments.tasks.classify.config import FEW, Files
from mufuru.experiments.tasks.classify.model import LabelledModel
from mufuru.experiments.tasks.models import Tensors
from mufuru.experiments.tasks.words import Meaning, WordsConfig


@dataclass(frozen=True)
class TaggedFiles(Files):
    """The files of labelled tokens. Paths are kept as given: a run that was started with relative paths is resumed in
    the same folder."""

    data: str | None = None
    """File of sentences with a label for each token: CoNLL columns, CoNLL-U, or JSON lines; required."""
    format: Format | None = None
    """Format of the files: conll, conllu or jsonl; None to guess it from the name's ending."""
    token_column: str | None = None
    """Number of the column of tokens, from 1, or name of the list of tokens in JSON lines; None for the first, for
    the second in CoNLL-U."""
    label_column: str | None = None
    """Number of the column of labels, or name of their list; None for the last, for the fourth in CoNLL-U."""
    cut: Cut = "words"
    """Tokens of a line of plain text for `predict`: words, with punctuation apart; blanks, split at white space; or
    characters."""
    data_dir: str | None = None
    """Folder with named word vectors; None to download them once."""


@dataclass(frozen=True)
class TagConfig(WordsConfig):
    """Label each token of a sentence.

    A word that is rarer than min_count is read as its signature, such as <unk-title-er>: its case, digits and ending.
    The seed decides initial weights, dropout and the order of training.
    """

    cell: CellConfig = field(default_factory=lambda: CellConfig(hidden_size=64, bidirectional=True))
    training: Training = field(default_factory=lambda: Training(batch_size=25))
    data: TaggedFiles = field(default_factory=TaggedFiles)
    bucketing: bool = True
    """Train on batches of similar length, which take fewer steps; off for random batches."""
    metric: Literal["accuracy", "span_f1"] | None = None
    """Validation metric that selects the best weights; None for span_f1, which needs seqeval, if the labels are BIO,
    else accuracy."""

    @property
    def max_length(self) -> None:
        """Every token has its label: nothing is cut."""
        return None

    @property
    def pooling(self) -> Literal["last"]:
        """A token is labelled from the output of its own step."""
        return "last"

    def forms(self, words: Iterable[str], vocabulary: Vocabulary) -> list[str]:
        """Return each word as the vocabulary has it: itself, or the longest of its signatures, or <unk>."""
        forms = ((word.lower() if self.lowercase else word, *signatures(word), UNKNOWN) for word in words)
        return [next(form for form in some if form in vocabulary) for some in forms]


PRESETS: dict[str, TagConfig] = {
    "short": TagConfig(
        CellConfig(hidden_size=64, bidirectional=True), FEW,
        embedding_size=64, lowercase=False, min_count=2, embedding_dropout=0.3, output_dropout=0.3,
    ),
}  # fmt: skip


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
