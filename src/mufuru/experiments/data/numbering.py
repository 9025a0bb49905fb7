"""Number the tokens of several texts in one pass, before it is known which words the vocabulary will hold.

Eight bytes per token stay in memory, and each word once; the texts themselves do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mufuru.experiments.data.vocabulary import Vocabulary

Numbers = npt.NDArray[np.int64]


class Numbering:
    """Gives every word a number when it first occurs."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict()
        # an unknown word's number is that of the words before it
        self._numbers.default_factory = self._numbers.__len__

    def read(self, tokens: Iterable[str]) -> Numbers:
        """The numbers of the tokens."""
        return np.fromiter(map(self._numbers.__getitem__, tokens), np.int64)

    def counts(self, numbers: Numbers) -> dict[str, int]:
        """How often each word occurs, in the order in which words first came to be numbered."""
        found = np.bincount(numbers, minlength=len(self._numbers)).tolist()
        return {word: count for word, count in zip(self._numbers, found, strict=True) if count}

    def encode(self, numbers: Numbers, vocabulary: Vocabulary) -> Tensor:
        """The same tokens by the numbers of a vocabulary."""
        return vocabulary.encode(self._numbers)[torch.from_numpy(numbers)]
