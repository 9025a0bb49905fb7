"""Labelled trees of the Stanford Sentiment Treebank: `(3 (2 It) (4 (2 's) (4 lovely)))`.

A tree is a label from 0 to 4 and a word, or a label and one or more trees. Blanks separate them: any of ASCII's, as a
word of the treebank may hold a no-break space. A file has one tree a line. Characters that the format cannot hold in a
word are escaped there, and plain in a `Tree`: see `unescape`. No tree is too deep, since nothing here calls itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from mufuru.experiments.data import DataError

LABELS = 5
"""Number of labels: from 0, very negative, over 2, neutral, to 4, very positive."""
_ESCAPED = {"(": "-LRB-", ")": "-RRB-", "/": r"\/", "*": r"\*"}
_BLANKS = " \t\n\r\f\v"
_WORD = f"[^{_BLANKS}()]+"
_TOKEN = re.compile(f"[()]|{_WORD}")
_LABELS = tuple(map(str, range(LABELS)))


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
        """Return all phrases, every one after those that it is made of, from left to right; the tree itself is last."""
        nodes, open_ends = [], [self]
        while open_ends:
            node = open_ends.pop()
            nodes.append(node)
            open_ends.extend(node.children)
        # read backwards, "node, then its children from the right" is what is wanted
        return nodes[::-1]

    def words(self) -> list[str]:
        """Return the words of the phrase."""
        return [node.word for node in self.nodes() if node.word is not None]

    def spans(self) -> list[tuple[Tree, int, int]]:
        """Return all phrases in the order of `nodes`, each with its place: it is `words()[start:end]`."""
        spans: list[tuple[Tree, int, int]] = []
        starts: list[int] = []
        end = 0
        for node in self.nodes():
            if node.word is not None:
                starts.append(end)
                end += 1
            else:
                # a phrase begins where the first of its children does
                del starts[len(starts) - len(node.children) + 1 :]
            spans.append((node, starts[-1], end))
        return spans

    def __eq__(self, other: object) -> bool:
        return self._parts() == other._parts() if isinstance(other, Tree) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"<Tree {render(self)}>"

    def _parts(self) -> tuple[tuple[int, str | None, int], ...]:
        """Return all that a tree holds, without depth."""
        return tuple((node.label, node.word, len(node.children)) for node in self.nodes())


def unescape(word: str) -> str:
    r"""Return a word as people write it: `-LRB-` is "(", `-RRB-` is ")", and `\/` and `\*` are "/" and "*".

    All else stands for itself, quotation marks as the treebank writes them, two backticks and two apostrophes, too:
    vectors for words, such as GloVe's, know them so.
    """
    for plain, escaped in _ESCAPED.items():
        word = word.replace(escaped, plain)
    return word


def escape(word: str) -> str:
    """Return a word as the treebank writes it; `unescape` gives it back, unless it spells a bracket's name itself."""
    for plain, escaped in _ESCAPED.items():
        word = word.replace(plain, escaped)
    return word


def parse(text: str) -> Tree:
    """Return one tree; an error names the column, the first being 1."""
    return _parse(text, "")


def from_lines(lines: Iterable[str], name: str) -> list[Tree]:
    """Return the trees of lines; errors call their file by the name."""
    trees = [_parse(line, f"{name}, line {number}, ") for number, line in enumerate(lines, 1) if line.strip()]
    if not trees:
        raise DataError(f"{name} is empty: expected a tree a line, such as (3 (2 It) (4 shines))")
    return trees


def render(tree: Tree) -> str:
    """Return the tree in one line, as the treebank's files have it."""
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
    escaped = escape(word)
    if not re.fullmatch(_WORD, escaped):
        raise DataError(f"a word of a tree should be text without blanks, got {word!r}: it cannot be written")
    return escaped


def _parse(text: str, where: str) -> Tree:
    tokens = [(match[0], match.start()) for match in _TOKEN.finditer(text)]
    # so that four tokens can be looked at wherever the text ends
    tokens += [("", len(text.rstrip(_BLANKS)))] * 4
    labels: list[int] = []
    # one list of children for each open tree, and one for the trees of the text
    children: list[list[Tree]] = [[]]
    place = 0
    while not children[0]:
        token, label, word, end = (part for part, _ in tokens[place : place + 4])
        if token == ")" and labels and children[-1]:
            inner = children.pop()
            children[-1].append(Tree(labels.pop(), children=tuple(inner)))
            place += 1
        elif token != "(":
            close = f"or ')' for the tree of label {labels[-1]}" if labels and children[-1] else "to begin a tree"
            _fail(tokens[place], where, f"'(' {close}")
        elif label not in _LABELS:
            _fail(tokens[place + 1], where, f"a label from 0 to {LABELS - 1}")
        elif word == "(":
            labels.append(int(label))
            children.append([])
            place += 2
        elif word in ("", ")"):
            _fail(tokens[place + 2], where, "a word or '('")
        elif end != ")":
            _fail(tokens[place + 3], where, "')' after the word")
        else:
            children[-1].append(Tree(int(label), unescape(word)))
            place += 4
    if tokens[place][0]:
        _fail(tokens[place], where, "the end of the line after a whole tree")
    return children[0][0]


def _fail(token: tuple[str, int], where: str, expected: str) -> NoReturn:
    got = repr(token[0][:40]) if token[0] else "the end of the line"
    raise DataError(f"{where}column {token[1] + 1}: expected {expected}, got {got}")
