"""Labelled trees of the Stanford Sentiment Treebank: `(3 (2 It) (4 (2 's) (4 lovely)))`.

A tree is a label from 0 to 4 and a word, or a label and one or more trees. Blanks separate them: any of ASCII's, as a
word of the treebank may hold a no-break space. A file has one tree a line. What the format cannot hold in a word is
escaped there, and plain in a `Tree`: see `unescape`. No tree is too deep, since nothing here calls itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.lines import read_lines

LABELS = 5
"""From 0, very negative, over 2, neutral, to 4, very positive."""
_ESCAPED = {"(": "-LRB-", ")": "-RRB-", "/": r"\/", "*": r"\*"}
_BLANKS = " \t\n\r\f\v"
_BLANK = f"[{_BLANKS}]"
_WORD = f"[^{_BLANKS}()]+"
_TOKEN = re.compile(
    rf"(?P<leaf>\({_BLANK}*(?P<label>[0-4]){_BLANK}+(?P<word>{_WORD}){_BLANK}*\){_BLANK}*)"
    rf"|(?P<open>\({_BLANK}*(?P<above>[0-4]){_BLANK}*(?=\())"
    rf"|(?P<close>\){_BLANK}*)"
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tree:
    """A phrase: a label with a word, or with the phrases that it is made of."""

    label: int
    word: str | None = None
    children: tuple[Tree, ...] = ()

    def __post_init__(self) -> None:
        if (self.word is None) == (not self.children):
            raise DataError(f"a tree should have a word or children, got {self.word!r} and {len(self.children)} trees")
        if not 0 <= self.label < LABELS:
            raise DataError(f"a tree's label should be from 0 to {LABELS - 1}, got {self.label}")

    def nodes(self) -> list[Tree]:
        """All phrases, every one after those that it is made of, from left to right; the tree itself is the last."""
        found, open_ends = [], [self]
        while open_ends:
            node = open_ends.pop()
            found.append(node)
            open_ends.extend(node.children)
        # read backwards, "node, then its children from the right" is what is wanted
        return found[::-1]

    def leaves(self) -> list[Tree]:
        """The phrases of one word, from left to right."""
        return [node for node in self.nodes() if node.word is not None]

    def words(self) -> list[str]:
        """The words of the phrase."""
        return [node.word for node in self.nodes() if node.word is not None]

    def text(self) -> str:
        """The words, with a blank between them."""
        return " ".join(self.words())

    def spans(self) -> list[tuple[Tree, int, int]]:
        """All phrases in the order of `nodes`, each with its place: it is `words()[start:end]`."""
        found: list[tuple[Tree, int, int]] = []
        starts: list[int] = []
        end = 0
        for node in self.nodes():
            if node.word is not None:
                starts.append(end)
                end += 1
            else:
                # a phrase begins where the first of its children does
                del starts[len(starts) - len(node.children) + 1 :]
            found.append((node, starts[-1], end))
        return found

    def __eq__(self, other: object) -> bool:
        return self._parts() == other._parts() if isinstance(other, Tree) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"<Tree {render(self)}>"

    def _parts(self) -> tuple[tuple[int, str | None, int], ...]:
        """All there is to know of a tree, without depth."""
        return tuple((node.label, node.word, len(node.children)) for node in self.nodes())


def unescape(word: str) -> str:
    r"""A word as people write it: `-LRB-` is "(", `-RRB-` is ")", and `\/` and `\*` are "/" and "*".

    All else stands for itself, quotation marks as the treebank writes them, two backticks and two apostrophes, too:
    vectors for words, such as GloVe's, know them so.
    """
    for plain, escaped in _ESCAPED.items():
        word = word.replace(escaped, plain)
    return word


def escape(word: str) -> str:
    """A word as the treebank writes it; `unescape` gives it back, unless it spells a bracket's name itself."""
    for plain, escaped in _ESCAPED.items():
        word = word.replace(plain, escaped)
    return word


def parse(text: str) -> Tree:
    """One tree; an error names the column, the first being 1."""
    return _parse(text, "")


def read(path: Path) -> list[Tree]:
    """The trees of a file, one a line; empty lines are passed over. Errors name file, line and column."""
    return from_lines(read_lines(path), str(path))


def from_lines(lines: Iterable[str], name: str) -> list[Tree]:
    """The trees of a file that is read elsewhere, by a name for people."""
    trees = [_parse(line, f"{name}, line {number}, ") for number, line in enumerate(lines, 1) if line.strip()]
    if not trees:
        raise DataError(f"{name} is empty: expected a tree a line, such as (3 (2 It) (4 shines))")
    return trees


def render(tree: Tree) -> str:
    """The tree in one line, as the treebank's files have it."""
    return "".join(_pieces(tree)).removeprefix(" ")


def _pieces(tree: Tree) -> Iterator[str]:
    open_ends: list[Tree | None] = [tree]
    while open_ends:
        node = open_ends.pop()
        if node is None:
            yield ")"
        elif node.word is not None:
            yield f" ({node.label} {_written(node.word)})"
        else:
            yield f" ({node.label}"
            open_ends += [None, *reversed(node.children)]


def _written(word: str) -> str:
    found = escape(word)
    if not re.fullmatch(_WORD, found):
        raise DataError(f"a word of a tree should be text without blanks, got {word!r}: it cannot be written")
    return found


def _parse(text: str, where: str) -> Tree:
    text = text.rstrip(_BLANKS)
    place = len(text) - len(text.lstrip(_BLANKS))
    labels: list[int] = []
    # one list of children for each open tree, and one for the trees of the text
    children: list[list[Tree]] = [[]]
    while not children[0]:
        found = _TOKEN.match(text, place)
        if found is None:
            _refuse(text, place, where, labels, children)
        if found["leaf"]:
            children[-1].append(Tree(int(found["label"]), unescape(found["word"])))
        elif found["open"]:
            labels.append(int(found["above"]))
            children.append([])
        elif not labels or not children[-1]:
            _refuse(text, place, where, labels, children)
        else:
            inner = children.pop()
            children[-1].append(Tree(labels.pop(), children=tuple(inner)))
        place = found.end()
    if place < len(text):
        _fail(text, place, where, "the end of the line after a whole tree")
    return children[0][0]


def _refuse(text: str, place: int, where: str, labels: list[int], children: list[list[Tree]]) -> NoReturn:
    """Find out at which character the text stops being a tree, and what could have stood there."""
    if text[place : place + 1] != "(":
        inside = f"or ')' for the tree of label {labels[-1]}" if labels and children[-1] else "to begin a tree"
        _fail(text, place, where, f"'(' {inside}")
    # the token begins a tree: one part after the other is looked for
    parts = (
        (rf"\({_BLANK}*", "'('"),
        (rf"[0-4](?={_BLANK}|[()]|$)", f"a label from 0 to {LABELS - 1}"),
        (rf"{_BLANK}+|(?=\()", "a blank after the label"),
        (f"{_WORD}{_BLANK}*", "a word or '('"),
        (r"\)", "')' after the word"),
    )
    for pattern, expected in parts:
        found = re.compile(pattern).match(text, place)
        if found is None:
            _fail(text, place, where, expected)
        place = found.end()
    raise AssertionError("a tree was refused that is one")


def _fail(text: str, place: int, where: str, expected: str) -> NoReturn:
    word = re.match(f"{_WORD}|.", text[place:])
    got = "the end of the line" if word is None else repr(word[0][:40])
    raise DataError(f"{where}column {place + 1}: expected {expected}, got {got}")
