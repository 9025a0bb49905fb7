"""GloVe: vectors for words, made from six billion words of English, or from 840 billion of the web.

They are in the public domain (PDDL 1.0). They are read from a file or a folder of yours, or downloaded and kept in the
data folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mufuru.experiments.data import vectors
from mufuru.experiments.data.download import Remote, data_folder, fetch
from mufuru.experiments.data.errors import DataError
from mufuru.experiments.data.vectors import Vectors, read
from mufuru.experiments.settings import SettingError, choose

__all__ = ["SOURCES", "Source", "Vectors", "load", "read"]


@dataclass(frozen=True)
class Source:
    """An archive with a file of vectors for each dimension."""

    archive: Remote
    dimensions: tuple[int, ...]
    lower_case: bool
    """Whether all words are in lower case."""

    def member(self, dimension: int) -> str:
        """The file of a dimension."""
        return f"{'.'.join(self.archive.name.split('.')[:2])}.{dimension}d.txt"


SOURCES = {
    "6B": Source(
        Remote(
            "glove.6B.zip",
            "sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            (
                "https://nlp.stanford.edu/data/glove.6B.zip",
                "https://huggingface.co/stanfordnlp/glove/resolve/main/glove.6B.zip",
            ),
            862_182_613,
        ),
        (50, 100, 200, 300),
        lower_case=True,
    ),
    "840B": Source(
        Remote(
            "glove.840B.300d.zip",
            "sha256:c06db255e65095393609f19a4cfca20bf3a71e20cc53e892aafa490347e3849f",
            ("https://nlp.stanford.edu/data/glove.840B.300d.zip",),
            2_176_768_927,
        ),
        (300,),
        lower_case=False,
    ),
}
"""GloVe's vectors by the number of words they were made from."""


def load(
    words: Iterable[str],
    folder: Path | None = None,
    *,
    name: str = "6B",
    dimension: int = 100,
    download: bool = True,
) -> Vectors:
    """The vectors of some words from a file or folder, or from the data folder, to which they are downloaded.

    A folder has the file, such as `glove.6B.100d.txt`, or the archive, in itself or in its folder `glove`; the file may
    be a part of it with a longer name, such as `glove.6B.100d.short.txt`. Such a file is taken from the data folder
    too. It is not compared with a checksum, so it can be any vectors in that format that have the dimension.
    """
    source = choose("set of vectors", name, SOURCES)
    if dimension not in source.dimensions:
        there = " or ".join(map(str, source.dimensions))
        raise SettingError(f"GloVe {name} has vectors of dimension {there}, got {dimension}")
    if folder is not None:
        path = _given(Path(folder), source, dimension)
    else:
        own = data_folder() / "glove"
        path = _file(own, source.member(dimension)) or fetch(source.archive, own, download)
    # in an archive of one file it does not matter what its name is
    member = source.member(dimension) if path.suffix == ".zip" and len(source.dimensions) > 1 else None
    found = vectors.read(path, words, member=member)
    if found.dimension != dimension:
        raise DataError(f"{path} has vectors of dimension {found.dimension}, expected {dimension}: ask for those, or "
                        "give another file")  # fmt: skip
    return found


def _given(folder: Path, source: Source, dimension: int) -> Path:
    """The file or archive that a user means."""
    if folder.is_file():
        return folder
    name = source.member(dimension)
    wanted = f"expected {name} or {source.archive.name} there. Leave the folder out to have it downloaded"
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such file or folder, {wanted}")
    for place in (folder, folder / "glove"):
        archive = place / source.archive.name
        if path := _file(place, name) or (archive if archive.is_file() else None):
            return path
    raise DataError(f"{folder} has no {name}: {wanted}")


def _file(place: Path, name: str) -> Path | None:
    """The file of that name in a folder, or a part of it with a longer name."""
    if (place / name).is_file():
        return place / name
    parts = sorted(place.glob(f"{name.removesuffix('.txt')}.*.txt"))
    if len(parts) > 1:
        raise DataError(f"{place} has {' and '.join(path.name for path in parts)}: give one of them as the file")
    return parts[0] if parts else None
