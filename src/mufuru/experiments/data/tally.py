"""Word counts in bounded memory: exact, however many different words there are.

Counts that outgrow memory are added to a database of SQLite; only the most frequent words are read from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from mufuru.experiments.data import TokenError
from mufuru.experiments.data.vocabulary import UNKNOWN, Vocabulary

if TYPE_CHECKING:
    import sqlite3

IN_MEMORY = 1_000_000
"""Different words that are counted in memory, some 150 bytes each."""
MOST = 5_000_000
"""Largest vocabulary."""


def database(path: Path) -> sqlite3.Connection:
    """Open a file without SQLite's own locks, which some file systems refuse: the token file's is held."""
    import sqlite3

    return sqlite3.connect(f"{path.absolute().as_uri()}?nolock=1", uri=True)


class Tally:
    """Counts of words, and the order of their first occurrences."""

    def __init__(self, folder: Path) -> None:
        self._path, self._counts, self._written = folder / "counts.sqlite", Counter[str](), 0
        # what a killed process left is counted again
        self._path.unlink(missing_ok=True)
        with closing(database(self._path)) as words:
            words.execute("CREATE TABLE words (word TEXT PRIMARY KEY, count INTEGER, first INTEGER) WITHOUT ROWID")

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of the next part of a text, its words in order of occurrence."""
        self._counts.update(counts)
        if len(self._counts) > IN_MEMORY:
            self._write()

    def vocabulary(self, size: int | None, min_count: int, extra: tuple[str, ...]) -> Vocabulary:
        """Return `Vocabulary.from_counts` of all counts, without holding them in memory."""
        self._write()
        special = (*extra, UNKNOWN)
        among = f"word IN ({', '.join('?' * len(special))})"
        # without any word that is frequent enough, the most frequent ones are for the error's sentence
        least = f"min(?, (SELECT max(count) FROM words WHERE NOT {among}))"
        kept = f"SELECT * FROM words WHERE {among} OR count >= {least} ORDER BY {among} DESC, count DESC, first LIMIT ?"
        most = len(special) + min(size or MOST + 1, MOST + 1)
        with closing(database(self._path)) as words:
            entries = words.execute(kept, (*special, min_count, *special, *special, most)).fetchall()
        if sum(word not in special for word, _, _ in entries) > MOST:
            raise TokenError(f"the text has more than {MOST:,} different words, too many for a model: give "
                             "--vocabulary-size or --min-count, or --tokenizer bpe")  # fmt: skip
        counts = {word: number for word, number, _ in sorted(entries, key=itemgetter(2))}
        return Vocabulary.from_counts(counts, size, min_count, extra)

    def _write(self) -> None:
        """Move the counts from memory to the database, sorted as its pages are."""
        rows = sorted(zip(self._counts, self._counts.values(), count(self._written)))
        with closing(database(self._path)) as words, words:
            words.executemany(
                "INSERT INTO words VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count", rows
            )
        self._written += len(self._counts)
        self._counts.clear()
