"""Cut a text into tokens.

"words" cuts English and its like as the treebanks and GloVe do, so that their words are found again:

- A word is letters, digits and the marks on them; it may have hyphens, slashes and apostrophes inside, as
  `well-made`, `and/or` and `o'clock` do. `'s 'm 'd 're 've 'll` and `n't` are words of their own: `it 's`, `do n't`.
- A number may have points, commas and colons inside: `3.5`, `1,000`, `10:30`.
- Any other character is a token, or several of it in a row are one: `...`, `--`, `!!!`.

Nothing but white space is lost; a typographic apostrophe becomes a plain one. "blanks" cuts at white space only, for
texts that are in tokens already; "characters" takes every character, for languages that write no blanks.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Literal

from mufuru.experiments.settings import choose

Cut = Literal["words", "blanks", "characters"]


def tokenise(text: str, cut: Cut = "words", lower: bool = True) -> list[str]:
    """Return the tokens of a text.

    >>> tokenise("It's a well-made film... isn't it?")
    ['it', "'s", 'a', 'well-made', 'film', '...', 'is', "n't", 'it', '?']
    """
    tokens = choose("way to cut a text", cut, CUTS)(text)
    return [token.lower() for token in tokens] if lower else tokens


def words(text: str) -> list[str]:
    """Return words, numbers and punctuation."""
    return [match[0] for match in _pattern().finditer(text.replace("\u2019", "'"))]


CUTS: dict[str, Callable[[str], list[str]]] = {"words": words, "blanks": str.split, "characters": list}


@cache
def _pattern() -> re.Pattern[str]:
    marks = _marks()
    letter = rf"[\w{marks}]"
    ending = rf"(?:[sSmMdD]|[rR][eE]|[vV][eE]|[lL][lL])(?!{letter})"
    negation = rf"[nN]'[tT](?!{letter})"
    inside = rf"(?:[-/]|'(?!{ending}))"
    return re.compile(
        # most words are followed by nothing that makes it difficult, and are found several times as fast
        rf"\d+(?:[.,:]\d+)+|\w++(?!['/{marks}-])|{negation}|'{ending}"
        rf"|{letter}+(?:{inside}{letter}+)*?(?={negation})|{letter}+(?:{inside}{letter}+)*|(\S)\1*"
    )


def _marks() -> str:
    """Return what a word may hold beside Python's letters: vowel signs, accents on their own, and joiners."""
    marks = (chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code)).startswith("M"))
    return "".join(marks) + "\u200c\u200d"
