"""Byte-level byte-pair encoding, by the package `tokenizers`: parts of words, learned from the text.

Every byte is a token, so no text is unknown. A line is cut by itself, its newline included.
"""

import importlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from mufuru.experiments.data import TokenError
from mufuru.experiments.data.vocabulary import Vocabulary

SIZE = 8192
"""Tokens of a vocabulary for which no size is given."""


@dataclass(frozen=True)
class BytePairs(Vocabulary):
    """Tokens as `tokenizers` writes them, one printable character for each byte, and the merges that make them."""

    merges: tuple[str, ...] = ()

    @classmethod
    def learned(cls, lines: Iterable[str], size: int | None, min_count: int) -> Self:
        """Learn the tokens of a text."""
        library = tokenizers()
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = library.trainers.BpeTrainer(
            vocab_size=size or SIZE,
            min_frequency=min_count,
            initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator(lines, trainer)
        return cls.from_tokenizer(tokenizer)

    @classmethod
    def from_tokenizer(cls, tokenizer: Any) -> Self:
        model = json.loads(tokenizer.to_str())["model"]
        words = sorted(model["vocab"], key=model["vocab"].__getitem__)
        merges = (merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
        return cls(tuple(words), tuple(merges))

    @cached_property
    def _tokenizer(self) -> Any:
        library = tokenizers()
        merges = [tuple(merge.split(" ")) for merge in self.merges]
        tokenizer = library.Tokenizer(library.models.BPE(vocab=self._index, merges=merges))
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        return tokenizer

    def saved(self) -> str:
        """Return the tokenizer as the package `tokenizers` saves it, with a decoder for people to read."""
        tokenizer = tokenizers().Tokenizer.from_str(self._tokenizer.to_str())
        tokenizer.decoder = importlib.import_module("tokenizers.decoders").ByteLevel()
        return str(tokenizer.to_str())

    @property
    def line_end(self) -> int | None:
        return self._index[_CHARACTERS[10]]

    def cut(self, lines: Iterable[str]) -> list[str]:
        """Return the tokens of lines."""
        return [self.words[number] for number in self.numbers(lines)]

    def numbers(self, lines: Iterable[str]) -> list[int]:
        """Return the ids of the tokens of lines."""
        encoded = self._tokenizer.encode_batch_fast(list(lines), add_special_tokens=False)
        return [number for line in encoded for number in line.ids]

    def encode(self, tokens: Iterable[str]) -> Tensor:
        return torch.tensor([self._index[token] for token in tokens], dtype=torch.int64)

    def spelled(self, number: int) -> bytes:
        return bytes(_BYTES[character] for character in self.words[number])

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Tokens for readers; a part of a character is shown as a replacement character."""
        return tuple(self.spelled(number).decode(errors="replace") for number in range(len(self)))

    def labelled(self, tokens: list[str]) -> list[str]:
        return [self.labels[self._index[token]] for token in tokens]

    def to_json(self) -> dict[str, Any]:
        return {"words": list(self.words), "merges": list(self.merges)}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        return cls(tuple(data["words"]), tuple(data["merges"]))


class AnyVocabulary:
    """Restore either kind of vocabulary from its `to_json`."""

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Vocabulary:
        return (BytePairs if "merges" in data else Vocabulary).from_json(data)


def tokenizers() -> Any:
    """Import the package."""
    try:
        library = importlib.import_module("tokenizers")
        for part in ("models", "pre_tokenizers", "trainers"):
            importlib.import_module(f"tokenizers.{part}")
    except ImportError as error:
        message = "--tokenizer bpe needs the package tokenizers, which is not installed: `pip install '.[bpe]'` in the "
        raise TokenError(message + "folder of mufuru, or use --tokenizer words or characters") from error
    return library


def _characters() -> dict[int, str]:
    """Return the character that stands for each byte: itself where it is printable, else one from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}


_CHARACTERS = _characters()
_BYTES = {character: byte for byte, character in _CHARACTERS.items()}
