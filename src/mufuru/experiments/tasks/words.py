"""Words as vectors: the settings, the vectors to start from, and the embedding."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from mufuru.experiments.data import DataError, glove
from mufuru.experiments.data.glove import Vectors
from mufuru.experiments.settings import SettingError, check_fraction, check_positive

NAMED_VECTORS = {f"glove.{name}": name for name in glove.SOURCES}
"""Word vectors that can be downloaded, by the name that settings give them."""
UNKNOWN_SCALE = 0.05
"""Largest first feature of a word without a vector, drawn uniformly; the paper's."""


@dataclass(frozen=True, kw_only=True)
class WordsConfig:
    """What is done with words, and dropout on both sides of the layer that reads them."""

    vectors: str | None = None
    """Word vectors to start from: a text file as GloVe's are, a folder with glove.6B's, or the name glove.6B or
    glove.840B, of data_dir or else downloaded once; None to draw them."""
    vector_scale: float = 1.0
    """Factor of the word vectors."""
    embedding_size: int = 100
    """Features of an embedded word."""
    tune_embeddings: bool = True
    """Train the embeddings with the rest."""
    lowercase: bool = True
    """Read all words in lower case, as most word vectors do."""
    min_count: int = 1
    """Fewest appearances in the training texts of a word that has no vector; rarer ones become <unk>."""
    embedding_dropout: float = 0.0
    """Dropout of features of the embedded words, or of numbers."""
    output_dropout: float = 0.0
    """Dropout of what the classifier sees."""

    def __post_init__(self) -> None:
        check_positive(self, "vector_scale", "embedding_size", "min_count")
        check_fraction(self, "embedding_dropout", "output_dropout")
        if not self.tune_embeddings and self.vectors is None:
            raise SettingError("tune_embeddings can be off only with vectors: untrained random embeddings say nothing")
        if self.vector_scale != 1 and self.vectors is None:
            raise SettingError("vector_scale needs vectors: give some, or leave it out")


def embedding(words: int, config: WordsConfig) -> nn.Embedding:
    """All words drawn as the paper draws unknown ones; vectors are put over them."""
    made = nn.Embedding(words, config.embedding_size)
    nn.init.uniform_(made.weight, -UNKNOWN_SCALE, UNKNOWN_SCALE)
    made.weight.requires_grad_(config.tune_embeddings)
    return made


def word_vectors(config: WordsConfig, data_dir: str | None, words: Collection[str]) -> Vectors | None:
    """The vectors of those of the words that have one, from where the settings say; None if they name none."""
    if config.vectors is None:
        return None
    found = _read_vectors(config.vectors, data_dir, config.embedding_size, words)
    if not found.found:
        raise DataError(f"{config.vectors} has a vector for none of the {len(words):,} words of the texts: expected "
                        "vectors of their language, and in their case if lowercase is off")  # fmt: skip
    return found if config.vector_scale == 1 else replace(found, matrix=config.vector_scale * found.matrix)


def _read_vectors(vectors: str, data_dir: str | None, features: int, words: Collection[str]) -> Vectors:
    if vectors in NAMED_VECTORS:
        folder = None if data_dir is None else Path(data_dir)
        return glove.load(words, folder, name=NAMED_VECTORS[vectors], dimension=features)
    path = Path(vectors)
    if path.is_dir():
        return glove.load(words, path, dimension=features)
    return glove.read(path, words, features)
