"""Words and their ids.

Two words are special. `<unk>` stands for every word that is not in the vocabulary; `<eos>` ends a line. Where a text
holds them as words, as the Penn Treebank does with `<unk>`, they mean just that: they are the special words, not
others that look the same. In a text of characters neither can occur, since no character looks like them.

Words and bytes of a text can be counted by its tokens, so that models of words, characters and byte pairs can be
compared: by their perplexity per word, where the end of a line counts as a word, and by their bits per byte.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mufuru.experiments.data import DataError

Numbers = npt.NDArray[np.int64]
UNKNOWN = "<unk>"
END = "<eos>"
BLANK = b" \t\n\r\v\f"


@dataclass(frozen=True)
class Vocabulary:
    """All words in the order of their ids, `<unk>` among them."""

    words: tuple[str, ...]

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, int], size: int | None = None, min_count: int = 1, extra: tuple[str, ...] = (END,)
    ) -> Self:
        """Return the most frequent words first, those of the same count in the order of `counts`.

        `extra` and `<unk>` are always in, by their own count, 0 if they do not occur; `size` includes them.
        """
        special = (*extra, UNKNOWN)
        ordinary = [word for word, count in counts.items() if count >= min_count and word not in special]
        ordinary.sort(key=lambda word: -counts[word])
        if size is not None:
            ordinary = ordinary[: max(size - len(special), 0)]
        if not ordinary:
            most = max((count for word, count in counts.items() if word not in special), default=0)
            why = f"a vocabulary_size of {size} has no place for more. Choose a larger one"
            if most < min_count:
                why = f"no word occurs {min_count} times, the most frequent one {most}. Choose a lower min_count"
            if not most:
                why = "the training text has no other words. Give another text"
            raise DataError(f"the vocabulary would hold only {' and '.join(special)}: {why}")
        kept = {*ordinary, *special}
        words = [word for word in counts if word in kept] + [word for word in special if word not in counts]
        return cls(tuple(sorted(words, key=lambda word: -counts.get(word, 0))))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    @property
    def end(self) -> int | None:
        """The id of `<eos>`; None in a vocabulary of characters."""
        return self._index.get(END)

    @property
    def unknown(self) -> int:
        return self._index[UNKNOWN]

    @property
    def line_end(self) -> int | None:
        """The id of the token that ends a line, `<eos>` or the character; None if there is no such token."""
        return self.end if self.end is not None else self._index.get("\n")

    @property
    def labels(self) -> tuple[str, ...]:
        """The tokens for readers."""
        return self.words

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._index

    def number(self, token: str) -> int:
        """Return the id of a token."""
        return self._index.get(token, self.unknown)

    def encode(self, tokens: Iterable[str]) -> Tensor:
        """Return the ids of tokens, (tokens,) int64."""
        # one pass without a line of Python per token: a million of them take a fraction of a second
        return torch.from_numpy(np.fromiter(map(self._index.get, tokens, repeat(self.unknown)), np.int64))

    def decode(self, numbers: Tensor | Iterable[int]) -> list[str]:
        return [self.words[number] for number in (numbers.tolist() if isinstance(numbers, Tensor) else numbers)]

    def labelled(self, tokens: list[str]) -> list[str]:
        """Return tokens for readers, also those that are not in the vocabulary."""
        return tokens

    def spelled(self, number: int) -> bytes:
        """Return the bytes of a token; an unknown character, whose bytes are not known, counts as one."""
        if number == self.end:
            return b"\n"
        return b"?" if self.end is None and number == self.unknown else self.words[number].encode()

    def written(self, numbers: Iterable[int]) -> str:
        """Return tokens as a text, with a blank between words."""
        spelled = [self.spelled(number) for number in numbers]
        if self.end is None:
            # a part of a character at either end is lost
            return b"".join(spelled).decode(errors="ignore")
        return re.sub(" ?\n ?", "\n", b" ".join(spelled).decode()).strip("\n")

    @cached_property
    def _spans(self) -> Tensor:
        """(tokens, 4): bytes; words and line ends that begin after the first byte; 1 if the first byte can begin a
        word; 1 if the last is a blank."""
        return torch.tensor([_span(self.spelled(number)) for number in range(len(self))])

    def spans(self, before: Tensor, tokens: Tensor) -> dict[str, float]:
        """Return the numbers of bytes and of words, line ends included, of tokens; `before` precedes each of them."""
        before, tokens = before.cpu(), tokens.cpu()
        spans = self._spans[tokens]
        if self.end is not None:
            # every token is a word, with a blank between those of a line
            blanks = (before != self.end) & (tokens != self.end)
            return {"bytes": float(spans[..., 0].sum() + blanks.sum()), "words": float(tokens.numel())}
        begins = spans[..., 2] * self._spans[before][..., 3]
        return {"bytes": float(spans[..., 0].sum()), "words": float((spans[..., 1] + begins).sum())}

    def to_json(self) -> dict[str, Any]:
        return {"words": list(self.words), "unknown": UNKNOWN}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        return cls(tuple(data["words"]))


class Numbering:
    """Ids for the words of several texts, in one pass, before the vocabulary is known: eight bytes per token stay in
    memory, and each word once."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        # a new word's id is the number of words before it
        self._numbers.default_factory = self._numbers.__len__

    def read(self, tokens: Iterable[str]) -> Numbers:
        return np.fromiter(map(self._numbers.__getitem__, tokens), np.int64)

    def counts(self, numbers: Numbers) -> dict[str, int]:
        """Return how often each word occurs, in the order of first occurrence."""
        counts = np.bincount(numbers, minlength=len(self._numbers)).tolist()
        return {word: count for word, count in zip(self._numbers, counts, strict=True) if count}

    def encode(self, numbers: Numbers, vocabulary: Vocabulary) -> Tensor:
        """Return the same tokens by the ids of a vocabulary."""
        return vocabulary.encode(self._numbers)[torch.from_numpy(numbers)]


def _span(data: bytes) -> tuple[int, int, int, int]:
    blank = [byte in BLANK for byte in data]
    inside = sum(one and not other for one, other in pairwise(blank)) + data.count(b"\n")
    return len(data), inside, not blank[0], blank[-1]
