"""The Stanford Sentiment Treebank: sentences of film reviews as trees whose every phrase has a label.

It states no licence and is customarily used for research; it is not part of this project. It is read from a folder of
yours, or downloaded and kept in the data folder. Your own treebank in the same format is read too.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from mufuru.experiments.data import DataError, trees
from mufuru.experiments.data.download import Remote, data_folder, fetch, mismatch
from mufuru.experiments.data.examples import Examples, Labelled
from mufuru.experiments.data.lines import decoded, zip_contents
from mufuru.experiments.data.trees import Tree

FILES = ("train.txt", "dev.txt", "test.txt")
INSIDE = "trees"
"""The folder of the files in the archive."""
NEUTRAL = 2
LABELS = {
    2: ("negative", "positive"),
    5: ("very negative", "negative", "neutral", "positive", "very positive"),
}
"""The labels by the number of classes. With two, neutral phrases are left out, and "very" makes no difference."""
GRADES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""How positive each of the five labels is: the middle of the fifth of people's scores that it stands for."""
LARGEST = 1 << 30
"""Most bytes of a file in a user's archive; more would not be a treebank but an accident."""


@dataclass(frozen=True)
class Treebank:
    """The sentences of training, validation and test."""

    train: list[Tree]
    valid: list[Tree]
    test: list[Tree]
    name: str
    """Its name for people."""


@dataclass(frozen=True)
class Release:
    """Where the treebank is, its checksums and its counts."""

    archive: Remote
    checksums: tuple[str, str, str]
    """Checksums of `FILES`."""
    sentences: tuple[int, int, int]
    """Sentences of training, validation and test."""


SST = Release(
    Remote(
        "trainDevTestTrees_PTB.zip",
        "sha256:5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc",
        ("https://nlp.stanford.edu/sentiment/trainDevTestTrees_PTB.zip",),
        789_539,
    ),
    (
        "sha256:e2f3f41b0b1e6d4dddc0effe3bfc2d27ed8928079aa9a03d652311614fc5feb7",
        "sha256:0e9336aed6e4730e19f58d00a77b3f0297efdb755f7b5e598c98a05e3f97ea40",
        "sha256:6e54806dee95cf80cd918e7dfb3f6770f6df24bf826f289a4d1f709e1c8f6761",
    ),
    (8_544, 1_101, 2_210),
)


def load(folder: Path | None = None, *, download: bool = True, release: Release = SST) -> Treebank:
    """Read the treebank from a folder, or from the data folder, to which it is downloaded if it is not there.

    The folder has the archive or the files `FILES`, in itself, in its folder `sst` or in `trees`. Every file is checked
    by its sha256, and sentences are counted.
    """
    if folder is not None:
        files = _given(Path(folder), release.archive.name, "Leave the folder out to have them downloaded")
    else:
        files = _from_zip(fetch(release.archive, data_folder() / "sst", download))
    for (path, data), checksum in zip(files, release.checksums, strict=True):
        if wrong := mismatch(data, checksum):
            raise DataError(f"{path} is not that file of the Stanford Sentiment Treebank: {wrong}. Leave the folder "
                            "out to have the right one downloaded, or read it as a treebank of your own")  # fmt: skip
    treebank = _parsed(files, "Stanford Sentiment Treebank")
    if (counts := (len(treebank.train), len(treebank.valid), len(treebank.test))) != release.sentences:
        raise DataError(f"the Stanford Sentiment Treebank was read as {counts} sentences, expected "
                        f"{release.sentences}: please report this")  # fmt: skip
    return treebank


def load_own(folder: Path) -> Treebank:
    """Read a user's own treebank: `FILES`, or a zip archive with them in its folder `trees`, without other checks."""
    return _parsed(_given(Path(folder), None, "Name your files so"), Path(folder).name)


def examples(
    treebank: Treebank,
    classes: Literal[2, 5] = 2,
    phrases: bool = True,
    *,
    distinct: bool = False,
    graded: bool = False,
    lower: bool = True,
) -> Labelled:
    """Return labelled texts: for training all phrases of all trees, or whole sentences only, otherwise sentences.

    A phrase is as often there as it occurs, in the order of the treebank, every one after those that it is made of;
    with `distinct` once for each class it is labelled with, where two that differ in upper and lower case are two.
    `graded` is for two classes: a phrase of training is positive by its share in `GRADES`, neutral ones among them.
    `lower` makes words lower-case: GloVe's 6B vectors know no others, those of 840B do.
    """
    pairs = [pair for tree in treebank.train for pair in (_phrases(tree) if phrases else [_sentence(tree)])]
    pairs = _classed(pairs, 5 if graded else classes)
    train = _examples(list(dict.fromkeys(pairs)) if distinct else pairs, lower)
    if graded:
        positive = torch.tensor(GRADES)[train.targets]
        train = Examples(torch.stack((1 - positive, positive), 1), train.tokens)
    valid, test = (
        _examples(_classed(list(map(_sentence, part)), classes), lower) for part in (treebank.valid, treebank.test)
    )
    what = f"{'distinct ' if distinct else ''}{'graded ' if graded else ''}{'phrases' if phrases else 'sentences'}"
    description = (
        f"{treebank.name}, {classes} classes: {len(train):,} {what} to train on, {len(valid):,} sentences for "
        f"validation and {len(test):,} for the test{', in lower case' if lower else ''}"
    )
    return Labelled("text", LABELS[classes], train, valid, test, description)


Pair = tuple[tuple[str, ...], int]
"""The words of a phrase and its label, or the id of its class."""


def _phrases(tree: Tree) -> list[Pair]:
    words = tuple(tree.words())
    return [(words[start:end], node.label) for node, start, end in tree.spans()]


def _sentence(tree: Tree) -> Pair:
    return tuple(tree.words()), tree.label


def _classed(pairs: Sequence[Pair], classes: int) -> list[Pair]:
    if classes == 5:
        return list(pairs)
    return [(words, int(label > NEUTRAL)) for words, label in pairs if label != NEUTRAL]


def _examples(pairs: Sequence[Pair], lower: bool) -> Examples:
    tokens = [[word.lower() for word in words] if lower else list(words) for words, _ in pairs]
    return Examples(torch.tensor([label for _, label in pairs], dtype=torch.int64), tokens)


def _parsed(files: Sequence[tuple[Path, bytes]], name: str) -> Treebank:
    train, valid, test = (trees.from_lines(decoded(io.BytesIO(data), path), str(path)) for path, data in files)
    return Treebank(train, valid, test, name)


def _given(folder: Path, archive: str | None, advice: str) -> list[tuple[Path, bytes]]:
    """Return the files in a user's folder, or in its archive of this name or, without a name, its only one."""
    if folder.is_file():
        return _from_zip(folder)
    wanted = f"expected {', '.join(FILES)} or {archive or 'a zip archive with them'} there. {advice}"
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder, {wanted}")
    for place in (folder, folder / "sst", folder / INSIDE):
        there = [name for name in FILES if (place / name).is_file()]
        if len(there) == len(FILES):
            return [(place / name, (place / name).read_bytes()) for name in FILES]
        zipped = sorted(place.glob(archive or "*.zip"))
        if len(zipped) == 1:
            return _from_zip(zipped[0])
        if there or zipped:
            raise DataError(f"{place} has {', '.join(there + [path.name for path in zipped])}: {wanted}")
    raise DataError(f"{folder} has no {FILES[0]}: {wanted}")


def _from_zip(archive: Path) -> list[tuple[Path, bytes]]:
    inside = [f"{INSIDE}/{name}" for name in FILES]
    return [(archive / name, data) for name, data in zip(inside, zip_contents(archive, inside, LARGEST), strict=True)]
