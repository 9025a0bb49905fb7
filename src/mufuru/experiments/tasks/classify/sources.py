"""Where the data of a classifier comes from: labelled sequences, and word vectors."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from mufuru.experiments.data import glove, labelled, sst
from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.examples import Labelled
from mufuru.experiments.data.vectors import Vectors
from mufuru.experiments.tasks.classify.config import NAMED_VECTORS, DataConfig


def load(data: DataConfig) -> Labelled:
    """The labelled sequences that the settings name."""
    if data.data is None:
        treebank = sst.load(None if data.data_dir is None else Path(data.data_dir))
        return sst.examples(treebank, data.classes, data.phrases, distinct=data.distinct_phrases, lower=False)
    return labelled.load(
        Path(data.data),
        valid=None if data.valid_data is None else Path(data.valid_data),
        test=None if data.test_data is None else Path(data.test_data),
        text=data.text_column,
        label=data.label_column,
        split=data.split_column,
        format=data.format,
        cut=data.cut,
        lower=False,
        held_out=data.held_out,
        seed=data.split_seed,
    )


def word_vectors(vectors: str, data_dir: str | None, features: int, words: Collection[str]) -> Vectors:
    """The vectors of those of the words that have one, from where the settings say."""
    found = _read_vectors(vectors, data_dir, features, words)
    if not found.found:
        raise DataError(f"{vectors} has a vector for none of the {len(words):,} words of the texts: expected "
                        "vectors of their language, and in their case if lowercase is off")  # fmt: skip
    return found


def _read_vectors(vectors: str, data_dir: str | None, features: int, words: Collection[str]) -> Vectors:
    if vectors in NAMED_VECTORS:
        folder = None if data_dir is None else Path(data_dir)
        return glove.load(words, folder, name=NAMED_VECTORS[vectors], dimension=features)
    path = Path(vectors)
    if path.is_dir():
        return glove.load(words, path, dimension=features)
    found = glove.read(path, words)
    if found.dimension != features:
        raise DataError(f"{path} has vectors of {found.dimension} features, expected {features}: give another file, or "
                        f"an embedding_size of {found.dimension}")  # fmt: skip
    return found
