"""Layout of a file of labelled sequences, by which other files are read the same way."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

Format = Literal["csv", "tsv", "jsonl", "numeric", "wide", "ts", "fasttext", "lines", "folder"]
FORMATS = "csv, tsv, jsonl, numeric, wide, ts, fasttext, lines or folder"


@dataclass(frozen=True)
class Layout:
    """The layout of the training file, guesses included, as a run folder keeps it."""

    format: Format | None = None
    """None where it is not known: the run is older than this file, or was not trained on a file."""
    ending: str = ""
    """Ending of the file's name, without .gz."""
    text: str | None = None
    """Column of texts or sequences, by its name, or its place in a table without names."""
    label: str | None = None
    split: str | None = None
    header: bool = True
    """Whether the first row of a table has the names of its columns."""
    width: int = 0
    """Columns of a table without names."""
    length: int | None = None
    """Steps of every series, where all have the same number."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Undo `to_json`; fields that a later version added are ignored."""
        return cls(**{name: value for name, value in data.items() if name in cls.__dataclass_fields__})
