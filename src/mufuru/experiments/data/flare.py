"""FLaRe (Butoi et al., ICLR 2025): strings of formal languages, and strings like them that are not in the language.

Training strings have up to 40 symbols, those of validation up to 80 and those of the test up to 500. The data state no
licence; they are not part of this project. They are read from a folder of yours, or downloaded and kept in the data
folder.
"""

from functools import cache
from pathlib import Path

from mufuru.experiments.data.download import Remote, check_published, data_folder, fetch, own_file

REGULAR = ("even-pairs", "repeat-01", "parity", "cycle-navigation", "modular-arithmetic-simple", "dyck-2-3", "first")
OTHERS = (
    "majority",
    "marked-reversal",
    "unmarked-reversal",
    "marked-copy",
    "missing-duplicate-string",
    "odds-first",
    "binary-addition",
    "binary-multiplication",
    "compute-sqrt",
    "bucket-sort",
)
LANGUAGES = (*REGULAR, *OTHERS)
"""Every language of FLaRe except stack-manipulation."""
FOLDERS = {"train": "", "valid": "datasets/validation-long/", "test": "datasets/test/"}
FILES = ("main.tok", "labels.txt")
"""The strings, one a line, their symbols separated by blanks; and 1 for each that is in the language, 0 for others."""
SUMS = Path(__file__).with_name("flare.sha256")
"""Checksums of all files, as `sha256sum` writes them."""
ADDRESS = "https://raw.githubusercontent.com/rycolab/flare/6d8ac3cec2db1114f51275c7a88365a969b514d7/"

Strings = list[tuple[tuple[str, ...], bool]]
"""Strings, and whether each is in the language."""


@cache
def checksums() -> dict[str, str]:
    """Return the checksum of each file by its path."""
    lines = (line.split("  ") for line in SUMS.read_text(encoding="ascii").splitlines())
    return {path: f"sha256:{value}" for value, path in lines}


def load(language: str, folder: str | Path | None = None) -> dict[str, Strings]:
    """Read a language from a folder, or from the data folder, to which it is downloaded if it is not there.

    Every file is verified by its sha256.
    """
    return {split: _strings(language, place, folder) for split, place in FOLDERS.items()}


def _strings(language: str, place: str, folder: str | Path | None) -> Strings:
    files = (_file(f"{language}/{place}{name}", folder) for name in FILES)
    texts, labels = (file.read_text(encoding="utf-8").splitlines() for file in files)
    return [(tuple(text.split()), label == "1") for text, label in zip(texts, labels, strict=True)]


def _file(path: str, folder: str | Path | None) -> Path:
    """Return a file in a user's folder, or in its folder `flare`; or a downloaded one."""
    if folder is None:
        inside, _, name = path.rpartition("/")
        return fetch(Remote(name, checksums()[path], (ADDRESS + path,)), data_folder() / "flare" / inside)
    wanted = "expected the files of FLaRe there. Leave the folder out to have them downloaded"
    file = own_file(Path(folder), ["flare"], [path], wanted)
    check_published(file, checksums()[path], file, "FLaRe")
    return file
