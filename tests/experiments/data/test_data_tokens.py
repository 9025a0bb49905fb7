"""Texts cut into tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mufuru.experiments.data.text import CUTS, words


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("A lovely film.", "A lovely film ."),
        ("It's good, isn't it?", "It 's good , is n't it ?"),
        ("DON'T! we'll, they've, I'd, you're, I'm", "DO N'T ! we 'll , they 've , I 'd , you 're , I 'm"),
        ("can't won’t it’s", "ca n't wo n't it 's"),
        ("the cats' tails", "the cats ' tails"),
        ("five o'clock, rock'n'roll", "five o'clock , rock'n'roll"),
        ("a well-made writer/director film-- so", "a well-made writer/director film -- so"),
        ("Wait... what?! no!!!", "Wait ... what ? ! no !!!"),
        ("3.5 of 1,000 at 10:30. 2nd", "3.5 of 1,000 at 10:30 . 2nd"),
        ('say "yes" (or no)', 'say " yes " ( or no )'),
        ("snake_case #tag @name $5 50%", "snake_case # tag @ name $ 5 50 %"),
        ("naïve nai\u0308ve हिन्दी मे", "naïve nai\u0308ve हिन्दी मे"),
        ("it 's n't", "it 's n't"),
        (" \t\n", ""),
    ],
)
def test_words(text: str, tokens: str) -> None:
    assert words(text) == tokens.split(" ") if tokens else words(text) == []


@given(st.text(st.sampled_from("abnNtTs'’-/.,:!01 \n\u00a0é\u0308😀_")) | st.text())
def test_nothing_but_white_space_is_lost(text: str) -> None:
    tokens = words(text)
    assert "".join(tokens) == "".join(text.replace("’", "'").split())
    assert all(tokens)


@given(st.lists(st.sampled_from(["It", "'s", "n't", "do", "well-made", "3.5", "...", "--", "o'clock", "(", "."])))
def test_tokens_are_cut_into_themselves(tokens: list[str]) -> None:
    """So a text that is cut already, such as a treebank's, stays as it is."""
    assert words(" ".join(tokens)) == tokens


def test_ways_to_cut() -> None:
    text = "It's  FUN."
    assert CUTS["words"](text) == ["It", "'s", "FUN", "."]
    assert CUTS["blanks"](text) == ["It's", "FUN."]
    assert CUTS["characters"]("电影 a") == ["电", "影", " ", "a"]


@pytest.mark.parametrize("text", ["a" * 300_000, "a-" * 150_000, "'" * 300_000, "n't" * 100_000, "1," * 150_000])
def test_long_texts_take_no_longer_than_they_are(text: str) -> None:
    """A pattern that tried every way to divide these would not come back."""
    assert "".join(words(text)) == text
