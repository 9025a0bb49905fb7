"""Words and their numbers.

Two words are special. `<unk>` stands for every word that is not in the vocabulary; `<eos>` ends a line. Where a text
holds them as words, as the Penn Treebank does with `<unk>`, they mean just that: they are the special words, not
others that look the same. In a text of characters neither can occur, since no character looks like them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mufuru.experiments.data.errors import DataError

UNKNOWN = "<unk>"
END = "<eos>"


@dataclass(frozen=True)
class Vocabulary:
    """All words in the order of their numbers; without `unknown` every other word is refused."""

    words: tuple[str, ...]
    unknown: str | None = UNKNOWN

    def __post_init__(self) -> None:
        if len(self._index) < len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise DataError(f"a vocabulary should hold every word once, got {twice!r} more than once")
        if self.unknown is not None and self.unknown not in self._index:
            raise DataError(f"a vocabulary should hold its word for unknown ones, {self.unknown!r}: it does not")

    @classmethod
    def build(
        cls,
        tokens: Iterable[str],
        size: int | None = None,
        min_count: int = 1,
        extra: tuple[str, ...] = (END,),
        unknown: str | None = UNKNOWN,
    ) -> Vocabulary:
        """The words of a text; see `from_counts`."""
        return cls.from_counts(Counter(tokens), size, min_count, extra, unknown)

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        size: int | None = None,
        min_count: int = 1,
        extra: tuple[str, ...] = (END,),
        unknown: str | None = UNKNOWN,
    ) -> Vocabulary:
        """The most frequent words first, those of the same count in the order of `counts`.

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
        """The number of `<eos>`; None in a vocabulary of characters."""
        return self._index.get(END)

    @property
    def unknown_index(self) -> int | None:
        """The number of the word for unknown ones."""
        return None if self.unknown is None else self._index[self.unknown]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._index

    def encode(self, tokens: Iterable[str]) -> Tensor:
        """(tokens,): their numbers, int64."""
        # one pass without a line of Python per token: a million of them take a fraction of a second
        if self.unknown is not None:
            found = map(self._index.get, tokens, repeat(self.unknown_index))
            return torch.from_numpy(np.fromiter(found, np.int64))
        try:
            return torch.from_numpy(np.fromiter(map(self._index.__getitem__, tokens), np.int64))
        except KeyError as error:
            raise DataError(f"{error.args[0]!r} is not in the vocabulary, which has no word for unknown ones") from None

    def decode(self, numbers: Tensor | Iterable[int]) -> list[str]:
        """The words of the numbers."""
        found = numbers.tolist() if isinstance(numbers, Tensor) else list(numbers)
        wrong = next((number for number in found if not 0 <= number < len(self)), None)
        if wrong is not None:
            raise DataError(f"there is no word {wrong}: the vocabulary has 0 to {len(self) - 1}")
        return [self.words[number] for number in found]

    def to_json(self) -> dict[str, Any]:
        """What `json.dumps` takes."""
        return {"words": list(self.words), "unknown": self.unknown}

    @classmethod
    def from_json(cls, data: Any) -> Vocabulary:
        """The vocabulary that `to_json` gave."""
        if not isinstance(data, dict) or set(data) != {"words", "unknown"}:
            raise DataError('a stored vocabulary should be an object of "words" and "unknown"')
        words, unknown = data["words"], data["unknown"]
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise DataError("the words of a stored vocabulary should be a list of strings")
        if not isinstance(unknown, str | None):
            raise DataError(f"the unknown word of a stored vocabulary should be a string or null, got {unknown!r}")
        return cls(tuple(words), unknown)


def _nothing_left(counts: Mapping[str, int], size: int | None, min_count: int, special: tuple[str, ...]) -> str:
    """Why no ordinary word is in a vocabulary."""
    only = f"the vocabulary would hold only {' and '.join(special) or 'nothing'}"
    most = max((count for word, count in counts.items() if word not in special), default=0)
    if not most:
        return f"{only}: the training text has no other words. Give another text"
    if most < min_count:
        return f"{only}: no word occurs {min_count} times, the most frequent one {most}. Choose a lower min_count"
    return f"{only}: a vocabulary_size of {size} has no place for more. Choose a larger one"
