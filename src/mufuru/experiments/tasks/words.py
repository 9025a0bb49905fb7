"""Shared by tasks of words: settings, word vectors, the meaning of ids, unknown words, and classes of English words."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from mufuru.experiments.data import DataError, glove
from mufuru.experiments.data.glove import Vectors
from mufuru.experiments.data.vocabulary import UNKNOWN, Vocabulary
from mufuru.experiments.settings import SettingError, check_fraction, check_positive

NAMED_VECTORS = {f"glove.{name}": name for name in glove.SOURCES}
"""Word vectors that can be downloaded, by the name that settings give them."""
UNKNOWN_SCALE = 0.05
"""Largest initial feature of a word without a vector, drawn uniformly; the paper's."""


@dataclass(frozen=True, kw_only=True)
class WordsConfig:
    """Settings of words, and dropout on both sides of the layer that reads them."""

    seed: int = 0
    """Seed of initial weights, dropout and the order of training."""
    vectors: str | None = None
    """Pretrained word vectors: a text file in GloVe's format, a folder with glove.6B's, or the name glove.6B or
    glove.840B, from data_dir or else downloaded once; None for random ones."""
    vector_scale: float = 1.0
    """Factor of the word vectors."""
    embedding_size: int = 100
    """Features of an embedded word."""
    tune_embeddings: bool = True
    """Train the embeddings with the rest."""
    lowercase: bool = True
    """Read all words in lower case, as most word vectors do."""
    min_count: int = 1
    """Minimum count in the training texts of a word without a vector; rarer ones become <unk>."""
    embedding_dropout: float = 0.0
    """Dropout of features of the embedded words, or of numbers."""
    output_dropout: float = 0.0
    """Dropout of the classifier's input."""

    def __post_init__(self) -> None:
        check_positive(self, "vector_scale", "embedding_size", "min_count")
        check_fraction(self, "embedding_dropout", "output_dropout")
        if not self.tune_embeddings and self.vectors is None:
            raise SettingError("tune_embeddings can be off only with vectors: untrained random embeddings say nothing")
        if self.vector_scale != 1 and self.vectors is None:
            raise SettingError("vector_scale needs vectors: give some, or leave it out")

    def forms(self, words: Iterable[str], vocabulary: Vocabulary) -> Iterable[str]:
        """Return words as the vocabulary has them, where it has them."""
        return map(str.lower, words) if self.lowercase else words


def embedding(words: int, config: WordsConfig) -> nn.Embedding:
    """Return random vectors for all words, as the paper draws unknown ones; pretrained ones replace them later."""
    made = nn.Embedding(words, config.embedding_size)
    nn.init.uniform_(made.weight, -UNKNOWN_SCALE, UNKNOWN_SCALE)
    made.weight.requires_grad_(config.tune_embeddings)
    return made


@torch.no_grad()
def set_vectors(embedding: nn.Embedding, vocabulary: Vocabulary, vectors: Vectors) -> None:
    """Set the embeddings of the words that have a vector."""
    embedding.weight[vocabulary.encode(vectors.words)] = vectors.matrix


def read_words(
    config: WordsConfig, data_dir: str | None, texts: Mapping[str, Iterable[Sequence[str]]]
) -> tuple[Vocabulary, Vectors | None]:
    """Return the vocabulary of texts by split, and pretrained vectors of its words if the settings name any."""

    def words(split: str) -> Iterator[str]:
        return (word.lower() if config.lowercase else word for text in texts[split] for word in text)

    vectors = word_vectors(config, data_dir, {word: None for split in texts for word in words(split)})
    known = vectors.words if vectors else ()
    return build_vocabulary(Counter(words("train")), known, config.min_count), vectors


def word_vectors(config: WordsConfig, data_dir: str | None, words: Collection[str]) -> Vectors | None:
    """Return the vectors of those words that have one; None if the settings name none."""
    if config.vectors is None:
        return None
    if config.vectors in NAMED_VECTORS:
        name = NAMED_VECTORS[config.vectors]
        vectors = glove.load(words, data_dir, name=name, dimension=config.embedding_size)
    elif (path := Path(config.vectors)).is_dir():
        vectors = glove.load(words, path, dimension=config.embedding_size)
    else:
        vectors = glove.read(path, words, config.embedding_size)
    if not vectors.words:
        raise DataError(f"{config.vectors} has a vector for none of the {len(words):,} words of the texts: expected "
                        "vectors of their language, and in their case if lowercase is off")  # fmt: skip
    return vectors if config.vector_scale == 1 else replace(vectors, matrix=config.vector_scale * vectors.matrix)


def class_logits(logits: Tensor) -> Tensor:
    """Return (n, classes) logits: of two classes there is one, the second's; beside 0 its softmax is the sigmoid."""
    return logits if logits.size(1) > 1 else torch.cat((torch.zeros_like(logits), logits), 1)


@dataclass(frozen=True)
class Meaning:
    """The meaning of a model's numbers: labels in the order of the outputs; words of a vocabulary, or `channels`."""

    labels: tuple[str, ...]
    vocabulary: Vocabulary | None
    channels: int = 0
    """Numbers in a step; 0 for words."""

    def to_json(self) -> dict[str, Any]:
        vocabulary = None if self.vocabulary is None else self.vocabulary.to_json()
        return {**vars(self), "labels": list(self.labels), "vocabulary": vocabulary}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        vocabulary = None if data["vocabulary"] is None else Vocabulary.from_json(data["vocabulary"])
        return cls(**{**data, "labels": tuple(data["labels"]), "vocabulary": vocabulary})


def build_vocabulary(counts: Counter[str], known: Iterable[str], min_count: int) -> Vocabulary:
    """Return the words of the training texts that are frequent enough or have a vector, and all others that have one,
    so that a word of validation or test is known where it has a vector, as if the model had all vectors."""
    known = dict.fromkeys(known)
    frequent = [word for word, count in counts.items() if count >= min_count or word in known]
    words = dict.fromkeys((UNKNOWN, *frequent, *known))
    if len(words) == 1:
        most = max(counts.values(), default=0)
        raise DataError(
            f"no word of the training texts occurs {min_count} times, the most frequent one {most}. Choose a lower "
            "min_count, or give more texts"
        )
    return Vocabulary(tuple(words))


def unknown_note(missing: Iterable[str]) -> list[str]:
    """Return a note of the words that the vocabulary lacks, each once."""
    words = ", ".join(dict.fromkeys(missing))
    return [f"Not in the vocabulary, read as <unk>: {words}."] if words else []


# A word is listed where that is its usual work in a review: "all", "such", "even", "ever", "simply" (not of degree),
# "lack", "fail" (which name a fault rather than turn one around), "still", "except", "unless" (more often of time or
# condition) are not. Contracted forms stand as the treebank splits them ("does n't") and as other texts do not
# ("doesn't").
NEGATION = (
    "not n't no never neither nor none nobody nothing nowhere without hardly barely scarcely rarely seldom cannot "
    "ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't mustn't shouldn't wasn't weren't "
    "won't wouldn't"
)
INTENSIFIER = (
    "very so too really truly extremely incredibly absolutely completely totally utterly thoroughly highly deeply most "
    "more much quite rather pretty fairly especially particularly remarkably surprisingly terribly awfully enormously "
    "hugely vastly greatly immensely intensely exceptionally extraordinarily unusually perfectly entirely wholly fully "
    "overly downright wildly supremely"
)
CONTRAST = (
    "but although though however yet despite while whereas nevertheless nonetheless instead notwithstanding albeit "
    "otherwise regardless"
)
BRACKETS = "-lrb- -rrb- -lsb- -rsb- -lcb- -rcb-"
"""Brackets of treebanks."""

CLASSES = ("negation", "intensifier", "contrast", "punctuation", "other")
_LISTS = {"negation": NEGATION, "intensifier": INTENSIFIER, "contrast": CONTRAST, "punctuation": BRACKETS}
_CLASS_OF = {word: name for name, words in _LISTS.items() for word in words.split()}


def word_class(word: str) -> str:
    """Return the class of a word in any case; a word without letter or digit is punctuation."""
    listed = _CLASS_OF.get(word.lower())
    return listed or ("other" if re.search(r"[^\W_]", word) else "punctuation")
