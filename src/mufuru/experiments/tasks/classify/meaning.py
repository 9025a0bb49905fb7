"""What the numbers that go into a classifier and come out of it mean: words or channels, and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mufuru.experiments.data import DataError
from mufuru.experiments.data.vocabulary import UNKNOWN, Vocabulary


@dataclass(frozen=True)
class Meaning:
    """The labels in the order of the outputs, and what is read: words of a vocabulary, or so many numbers a step."""

    labels: tuple[str, ...]
    vocabulary: Vocabulary | None
    channels: int = 0
    """Numbers in a step; 0 for words."""

    def to_json(self) -> dict[str, Any]:
        vocabulary = None if self.vocabulary is None else self.vocabulary.to_json()
        return {**vars(self), "labels": list(self.labels), "vocabulary": vocabulary}

    @classmethod
    def from_json(cls, data: Any) -> Meaning:
        vocabulary = None if data["vocabulary"] is None else Vocabulary.from_json(data["vocabulary"])
        return cls(**{**data, "labels": tuple(data["labels"]), "vocabulary": vocabulary})


def build_vocabulary(counts: Counter[str], known: Iterable[str], min_count: int) -> Vocabulary:
    """The words of the training texts that are frequent enough or have a vector, and all others that have one.

    So a word of validation or test that training lacks is not unknown where the vectors have it, as if the model had
    all vectors: with those that no text needs it would only be larger.
    """
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
