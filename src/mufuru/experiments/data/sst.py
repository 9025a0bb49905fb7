"""The Stanford Sentiment Treebank: sentences of film reviews as trees whose every phrase has a label.

It states no licence and is customarily used for research; it is not part of this project. It is read from a folder of
yours, or downloaded and kept in the data folder. Your own treebank in the same format is read too.

A file has one tree a line, such as `(3 (2 It) (4 (2 's) (4 lovely)))`: a label from 0 to 4 and a word, or a label and
one or more trees. Blanks separate them: any of ASCII's, as a word of the treebank may hold a no-break space. No tree is
too deep to be read.
"""

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

import torch

from mufuru.experiments.data import DataError
from mufuru.experiments.data.download import Remote, check_published, data_folder, fetch, first_file, own_file
from mufuru.experiments.data.examples import Examples, Labelled
from mufuru.experiments.data.lines import decoded, zip_contents

ARCHIVE = Remote(
    "trainDevTestTrees_PTB.zip",
    "sha256:5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc",
    ("https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip",),
    789_539,
)
FILES = ("train.txt", "dev.txt", "test.txt")
CHECKSUMS = (
    "sha256:e2f3f41b0b1e6d4dddc0effe3bfc2d27ed8928079aa9a03d652311614fc5feb7",
    "sha256:0e9336aed6e4730e19f58d00a77b3f0297efdb755f7b5e598c98a05e3f97ea40",
    "sha256:6e54806dee95cf80cd918e7dfb3f6770f6df24bf826f289a4d1f709e1c8f6761",
)
SENTENCES = (8_544, 1_101, 2_210)
"""Sentences of each file."""
INSIDE = "trees"
"""The folder of the files in the archive."""
NEUTRAL = 2
LABELS = {2: ("negative", "positive"), 5: ("very negative", "negative", "neutral", "positive", "very positive")}
"""The labels by the number of classes. With two, neutral phrases are left out, and "very" makes no difference."""
GRADES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Positive share of each of the five labels: the middle of the fifth of human scores that it stands for."""
LARGEST = 1 << 30
"""Largest file in a user's archive, in bytes; a larger one is no treebank."""
ESCAPED = {"(": "-LRB-", ")": "-RRB-", "/": r"\/", "*": r"\*"}
_BLANKS = " \t\n\r\f\v"
_TOKEN = re.compile(f"[()]|[^{_BLANKS}()]+")


@dataclass(frozen=True, slots=True)
class Tree:
    """A phrase: a label and a word, or a label and the phrases that it is made of."""

    label: int
    word: str | None = None
    children: tuple["Tree", ...] = ()

    def nodes(self) -> list["Tree"]:
        """Return all phrases, every one after those that it is made of, from left to right; the tree itself is last."""
        nodes, open_ends = [], [self]
        while open_ends:
            node = open_ends.pop()
            nodes.append(node)
            open_ends.extend(node.children)
        # reversed, since the stack visits a node before its children, the rightmost first
        return nodes[::-1]

    def words(self) -> list[str]:
        return [node.word for node in self.nodes() if node.word is not None]

    def spans(self) -> list[tuple["Tree", int, int]]:
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


@dataclass(frozen=True)
class Treebank:
    """The sentences of training, validation and test."""

    train: list[Tree]
    valid: list[Tree]
    test: list[Tree]
    name: str
    """Name of the treebank in messages."""


def load(folder: str | Path | None = None) -> Treebank:
    """Read the treebank from a folder, or from the data folder, to which it is downloaded if it is not there.

    The folder has the archive or the files `FILES`, in itself, in its folder `sst` or in `trees`. Every file is checked
    by its sha256, and sentences are counted.
    """
    if folder is not None:
        files = _given(Path(folder), ARCHIVE.name, "Leave the folder out to have them downloaded")
    else:
        files = _from_zip(fetch(ARCHIVE, data_folder() / "sst"))
    for (path, data), checksum in zip(files, CHECKSUMS, strict=True):
        check_published(
            data, checksum, path, "the Stanford Sentiment Treebank", ", or read it as a treebank of your own"
        )
    treebank = _parsed(files, "Stanford Sentiment Treebank")
    if (counts := (len(treebank.train), len(treebank.valid), len(treebank.test))) != SENTENCES:
        raise DataError(f"the Stanford Sentiment Treebank was read as {counts} sentences, expected {SENTENCES}: "
                        "please report this")  # fmt: skip
    return treebank


def load_own(folder: str | Path) -> Treebank:
    """Read a user's own treebank: `FILES`, or a zip archive with them in its folder `trees`, without other checks."""
    return _parsed(_given(Path(folder), None, "Name your files so"), Path(folder).name)


def examples(
    treebank: Treebank, classes: Literal[2, 5] = 2, phrases: bool = True, distinct: bool = False, graded: bool = False
) -> Labelled:
    """Return labelled texts: for training all phrases of all trees, or whole sentences only, otherwise sentences.

    A phrase is included as often as it occurs, in the order of the treebank, every one after those that it is made of;
    with `distinct` once for each class it is labelled with, where two that differ in upper and lower case are two.
    `graded` is for two classes: a phrase of training is positive by its share in `GRADES`, neutral ones among them.
    """
    train = _examples(treebank.train, 5 if graded else classes, phrases, distinct)
    if graded:
        positive = torch.tensor(GRADES)[train.targets]
        train = Examples(torch.stack((1 - positive, positive), 1), train.sequences)
    valid, test = (_examples(part, classes) for part in (treebank.valid, treebank.test))
    what = f"{'distinct ' if distinct else ''}{'graded ' if graded else ''}{'phrases' if phrases else 'sentences'}"
    description = (f"{treebank.name}, {classes} classes: {len(train):,} {what} to train on, {len(valid):,} sentences "
                   f"for validation and {len(test):,} for the test")  # fmt: skip
    return Labelled("text", LABELS[classes], train, valid, test, description)


def _examples(trees: Sequence[Tree], classes: int, phrases: bool = False, distinct: bool = False) -> Examples:
    pairs: list[tuple[tuple[str, ...], int]] = []
    for tree in trees:
        words = tuple(tree.words())
        for node, start, end in tree.spans() if phrases else [(tree, 0, len(words))]:
            if classes == 5:
                pairs.append((words[start:end], node.label))
            elif node.label != NEUTRAL:
                pairs.append((words[start:end], int(node.label > NEUTRAL)))
    pairs = list(dict.fromkeys(pairs)) if distinct else pairs
    return Examples(torch.tensor([label for _, label in pairs], dtype=torch.int64), [list(words) for words, _ in pairs])


def _parsed(files: Sequence[tuple[Path, bytes]], name: str) -> Treebank:
    train, valid, test = (from_lines(decoded(io.BytesIO(data), path), str(path)) for path, data in files)
    return Treebank(train, valid, test, name)


def _given(folder: Path, archive: str | None, advice: str) -> list[tuple[Path, bytes]]:
    """Return the files in a user's folder, or in its archive of this name or, without a name, its only one."""
    if folder.is_file():
        return _from_zip(folder)
    wanted = f"expected {', '.join(FILES)} or {archive or 'a zip archive with them'} there. {advice}"
    for place in (folder, folder / "sst", folder / INSIDE):
        paths = [place / name for name in FILES]
        if all(path.is_file() for path in paths):
            return [(path, path.read_bytes()) for path in paths]
        # a train.txt beside the archive may be that of other data
        if zipped := first_file(place, [archive or "*.zip"]):
            return _from_zip(zipped)
    there = own_file(folder, ["sst", INSIDE], FILES[:1], wanted).parent
    missing = [name for name in FILES if not (there / name).is_file()]
    raise DataError(f"{there} has no {missing[0]}: {wanted}")


def _from_zip(archive: Path) -> list[tuple[Path, bytes]]:
    inside = [f"{INSIDE}/{name}" for name in FILES]
    return [(archive / name, data) for name, data in zip(inside, zip_contents(archive, inside, LARGEST), strict=True)]


def unescape(word: str) -> str:
    r"""Return a word in its plain form: `-LRB-` is "(", `-RRB-` is ")", and `\/` and `\*` are "/" and "*".

    All else stands for itself, quotation marks as the treebank writes them, two backticks and two apostrophes, too:
    vectors for words, such as GloVe's, know them so.
    """
    for plain, escaped in ESCAPED.items():
        word = word.replace(escaped, plain)
    return word


def from_lines(lines: Iterable[str], name: str) -> list[Tree]:
    """Return the trees of lines; errors name the file so."""
    trees = [parse(line, f"{name}, line {number}, ") for number, line in enumerate(lines, 1) if line.strip()]
    if not trees:
        raise DataError(f"{name} is empty: expected a tree a line, such as (3 (2 It) (4 shines))")
    return trees


def parse(text: str, where: str = "") -> Tree:
    """Return one tree; an error begins with `where` and the column, counted from 1."""
    tokens = [(match[0], match.start()) for match in _TOKEN.finditer(text)]
    # padding, so that four tokens can be read at any place
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
        elif label not in ("0", "1", "2", "3", "4"):
            _fail(tokens[place + 1], where, "a label from 0 to 4")
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
