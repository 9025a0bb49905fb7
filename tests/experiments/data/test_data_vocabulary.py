"""Vocabularies, written down by hand or made again in the plainest way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from mufuru.experiments.data import DataError
from mufuru.experiments.data.vocabulary import Numbering, Vocabulary

TOKENS = ["b", "a", "c", "a", "b", "a", "<eos>", "d", "c", "<eos>"]
some_tokens = st.lists(st.sampled_from(["a", "b", "c", "d", "<unk>", "<eos>"]), max_size=30)


def build(tokens: Iterable[str], *options: Any, **more: Any) -> Vocabulary:
    return Vocabulary.from_counts(Counter(tokens), *options, **more)


def test_the_most_frequent_first_and_ties_as_they_come() -> None:
    assert build(TOKENS).words == ("a", "b", "c", "<eos>", "d", "<unk>")


def test_the_size_counts_the_special_words() -> None:
    assert build(TOKENS, size=4).words == ("a", "b", "<eos>", "<unk>")


def test_the_smallest_count_spares_the_special_words() -> None:
    assert build([*TOKENS, "<unk>"], min_count=3).words == ("a", "<eos>", "<unk>")


def test_both_limits() -> None:
    assert build(TOKENS, size=4, min_count=3).words == ("a", "<eos>", "<unk>")


def test_characters_have_no_end_of_line() -> None:
    made = build("hello\n", extra=())
    assert made.words == ("l", "h", "e", "o", "\n", "<unk>")
    assert made.end is None


def naive_words(tokens: list[str], size: int | None, min_count: int) -> list[str]:
    """Take the best remaining word, again and again."""
    rest = {word: tokens.count(word) for word in tokens if tokens.count(word) >= min_count}
    for special in ("<eos>", "<unk>"):
        rest.pop(special, None)
    kept = {"<eos>", "<unk>"}
    while rest and (size is None or len(kept) < size):
        best = max(rest, key=lambda word: (rest[word], -tokens.index(word)))
        kept.add(best)
        del rest[best]
    places = [*tokens, "<eos>", "<unk>"]
    return sorted(kept, key=lambda word: (-tokens.count(word), places.index(word)))


@given(some_tokens, st.none() | st.integers(1, 7), st.integers(1, 4))
def test_build_does_what_the_plainest_way_does(tokens: list[str], size: int | None, min_count: int) -> None:
    expected = naive_words(tokens, size, min_count)
    if len(expected) == 2:
        with pytest.raises(DataError, match="would hold only <eos> and <unk>"):
            build(tokens, size, min_count)
    else:
        assert list(build(tokens, size, min_count).words) == expected


@given(some_tokens)
def test_numbers_in_one_pass_are_those_of_the_vocabulary(tokens: list[str]) -> None:
    vocabulary = Vocabulary(("c", "<unk>", "a", "<eos>"))
    numbering = Numbering()
    numbers = numbering.read(tokens)
    assert numbering.encode(numbers, vocabulary).equal(vocabulary.encode(tokens))
    assert list(numbering.counts(numbers).items()) == [(w, tokens.count(w)) for w in dict.fromkeys(tokens)]


@given(some_tokens)
def test_encode_and_decode(tokens: list[str]) -> None:
    vocabulary = Vocabulary(("c", "<unk>", "a", "<eos>"))
    words = list(vocabulary.words)
    encoded = vocabulary.encode(iter(tokens))
    assert encoded.dtype == torch.int64
    assert encoded.tolist() == [words.index(word) if word in words else 1 for word in tokens]
    read = [word if word in words else "<unk>" for word in tokens]
    assert vocabulary.decode(encoded) == vocabulary.decode(encoded.tolist()) == read


def test_the_special_numbers() -> None:
    vocabulary = Vocabulary(("c", "<unk>", "a", "<eos>"))
    assert (vocabulary.unknown, vocabulary.end, len(vocabulary)) == (1, 3, 4)
    assert "a" in vocabulary
    assert "b" not in vocabulary


class Calls(TorchFunctionMode):
    """Counts the calls of torch."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_torch_is_not_called_for_every_token() -> None:
    """That would make a million of them slow."""
    vocabulary = Vocabulary(("a", "<unk>"))
    counts = []
    for length in (10, 1000):
        with Calls() as calls:
            vocabulary.decode(vocabulary.encode(["a", "b"] * length))
        counts.append(calls.count)
    assert counts[0] == counts[1]


def test_json_and_back() -> None:
    made = Vocabulary(("ä", "<unk>", '"', "\n"))
    assert made.to_json() == {"words": ["ä", "<unk>", '"', "\n"], "unknown": "<unk>"}
    assert Vocabulary.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        (["<unk>", "<eos>"], {}, "the training text has no other words"),
        ([], {}, "the training text has no other words"),
        (TOKENS, {"min_count": 4}, "no word occurs 4 times, the most frequent one 3. Choose a lower min_count"),
        (TOKENS, {"size": 2}, "a vocabulary_size of 2 has no place for more. Choose a larger one"),
    ],
)
def test_a_vocabulary_of_only_unknown(tokens: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=f"the vocabulary would hold only <eos> and <unk>: {message}"):
        build(tokens, **options)
