"""Words and their ids.

Two words are special. `<unk>` stands for every word that is not in the vocabulary; `<eos>` ends a line. Where a text
holds them as words, as the Penn Treebank does with `<unk>`, they mean just that: they are the special words, not
others that look the same. In a text of characters neither can occur, since no character looks like them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mufuru.experiments.data import DataError

Numbers = npt.NDArray[np.int64]
UNKNOWN = "<unk>"
END = "<eos>"


@dataclass(frozen=True)
class Vocabulary:
    """All words in the order of their ids; without `unknown` every other word is refused."""

    words: tuple[str, ...]
    unknown: str | None = UNKNOWN

    def __post_init__(self) -> None:
        if len(self._index) < len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise DataError(f"a vocabulary should hold every word once, got {twice!r} more than once")
        if self.unknown is not None and self.unknown not in self._index:
            raise DataError(f"a vocabulary should hold its word for unknown ones, {self.unknown!r}: it does not")

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        size: int | None = None,
        min_count: int = 1,
        extra: tuple[str, ...] = (END,),
        unknown: str | None = UNKNOWN,
    ) -> Vocabulary:
        """Return the most frequent words first, those of the same count in the order of `counts`.

        `extra` and `unknown` are always in, by their own count, 0 if they do not occur; `size` includes them.
        """
        special = tuple(dict.fromkeys(extra if unknown is None else (*extra, unknown)))
        ordinary = [word for word, count in counts.items() if count >= min_count and word not in special]
        ordinary.sort(key=lambda word: -counts[word])
        if size is not None:
            ordinary = ordinary[: max(size - len(special), 0)]
        if not ordinary:
            raise DataError(_nothing_left(counts, size, min_count, special))
        kept = {*ordinary, *special}
        words = [word for word in counts if word in kept] + [word for word in special if word not in counts]
        return cls(tuple(sorted(words, key=lambda word: -counts.get(word, 0))), unknown)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @property
    def end(self) -> int | None:
        """The id of `<eos>`; None in a vocabulary of characters."""
        return self._index.get(END)

    @property
    def unknown_index(self) -> int | None:
        """The id of the word for unknown ones."""
        return None if self.unknown is None else self._index[self.unknown]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._index

    def encode(self, tokens: Iterable[str]) -> Tensor:
        """Return the ids of tokens, (tokens,) int64."""
        # one pass without a line of Python per token: a million of them take a fraction of a second
        if self.unknown is not None:
            ids = map(self._index.get, tokens, repeat(self.unknown_index))
            return torch.from_numpy(np.fromiter(ids, np.int64))
        try:
            return torch.from_numpy(np.fromiter(map(self._index.__getitem__, tokens), np.int64))
        except KeyError as error:
            raise DataError(f"{error.args[0]!r} is not in the vocabulary, which has no word for unknown ones") from None

    def decode(self, numbers: Tensor | Iterable[int]) -> list[str]:
        """Return the words of ids."""
        ids = numbers.tolist() if isinstance(numbers, Tensor) else list(numbers)
        wrong = next((number for number in ids if not 0 <= number < len(self)), None)
        if wrong is not None:
            raise DataError(f"there is no word {wrong}: the vocabulary has 0 to {len(self) - 1}")
        return [self.words[number] for number in ids]

    def to_json(self) -> dict[str, Any]:
        """Return an object for `json.dumps`."""
        return {"words": list(self.words), "unknown": self.unknown}

    @classmethod
    def from_json(cls, data: Any) -> Vocabulary:
        """Return the vocabulary that `to_json` wrote."""
        known = isinstance(data, dict) and set(data) == {"words", "unknown"} and isinstance(data["words"], list)
        if not known or not all(isinstance(word, str) for word in (*data["words"], data["unknown"] or "")):
            raise DataError('a stored vocabulary should be an object of "words", a list of strings, and "unknown", '
                            "a string or null")  # fmt: skip
        return cls(tuple(data["words"]), data["unknown"])


def _nothing_left(counts: Mapping[str, int], size: int | None, min_count: int, special: tuple[str, ...]) -> str:
    """Return why no ordinary word is in a vocabulary."""
    only = f"the vocabulary would hold only {' and '.join(special) or 'nothing'}"
    most = max((count for word, count in counts.items() if word not in special), default=0)
    if not most:
        return f"{only}: the training text has no other words. Give another text"
    if most < min_count:
        return f"{only}: no word occurs {min_count} times, the most frequent one {most}. Choose a lower min_count"
    return f"{only}: a vocabulary_size of {size} has no place for more. Choose a larger one"


class Numbering:
    """Ids for the words of several texts, in one pass, before it is known which words the vocabulary will hold.

    Eight bytes per token stay in memory, and each word once; the texts themselves do not.
    """

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        # a new word's id is the number of words before it
        self._numbers.default_factory = self._numbers.__len__

    def read(self, tokens: Iterable[str]) -> Numbers:
        """Return the ids of the tokens."""
        return np.fromiter(map(self._numbers.__getitem__, tokens), np.int64)

    def counts(self, numbers: Numbers) -> dict[str, int]:
        """Return how often each word occurs, in the order in which the words first came."""
        counts = np.bincount(numbers, minlength=len(self._numbers)).tolist()
        return {word: count for word, count in zip(self._numbers, counts, strict=True) if count}

    def encode(self, numbers: Numbers, vocabulary: Vocabulary) -> Tensor:
        """Return the same tokens by the ids of a vocabulary."""
        return vocabulary.encode(self._numbers)[torch.from_numpy(numbers)]
