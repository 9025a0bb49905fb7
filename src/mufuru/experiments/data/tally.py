"""Word counts in bounded memory: exact, however many different words there are.

Counts that outgrow memory go to files, sorted by word; at the end the files are merged, and only the most frequent
words are kept.
"""

import heapq
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TextIO

from mufuru.experiments.data import TokenError
from mufuru.experiments.data.vocabulary import Vocabulary

IN_MEMORY = 1_000_000
"""Different words that are counted in memory, some 200 bytes each."""
MOST = 5_000_000
"""Largest vocabulary."""
FILES = 64
"""Files that are merged at a time."""
Entry = tuple[str, int, int]
"""A word, its count and the position of its first occurrence."""


class Tally:
    """Counts of words, and the order of their first occurrences."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._counts, self._first = folder, dict[str, int](), dict[str, int]()
        self._files: list[Path] = []
        self._seen = self._written = 0

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the counts of the next part of a text, its words in order of occurrence."""
        for word, count in counts.items():
            self._counts[word] = self._counts.get(word, 0) + count
            self._first.setdefault(word, self._seen)
            self._seen += 1
        if len(self._counts) > IN_MEMORY:
            self._files.append(self._write(self._sorted()))
            self._counts, self._first = {}, {}

    def vocabulary(self, size: int | None, min_count: int, extra: tuple[str, ...]) -> Vocabulary:
        """Return `Vocabulary.from_counts` of all counts, without holding them in memory."""
        special: list[Entry] = []
        most: list[Entry] = []

        def frequent() -> Iterator[Entry]:
            for entry in self._entries():
                if entry[0] in (*extra, "<unk>"):
                    special.append(entry)
                elif entry[1] >= min_count:
                    yield entry
                elif not most or entry[1] > most[0][1]:
                    most[:] = [entry]

        kept = heapq.nsmallest(min(size or MOST + 1, MOST + 1), frequent(), key=lambda entry: (-entry[1], entry[2]))
        if len(kept) > MOST:
            raise TokenError(f"the text has more than {MOST:,} different words, too many for a model: give "
                             "--vocabulary-size or --min-count, or --tokenizer bpe")  # fmt: skip
        # without any word that is frequent enough, the most frequent one is for the error's sentence
        counts = sorted([*special, *(kept or most)], key=itemgetter(2))
        return Vocabulary.from_counts({word: count for word, count, _ in counts}, size, min_count, extra)

    def _sorted(self) -> Iterator[Entry]:
        return ((word, self._counts[word], self._first[word]) for word in sorted(self._counts))

    def _entries(self) -> Iterator[Entry]:
        """Yield each word once, in any order."""
        files = self._files
        while len(files) > FILES:
            files = [*files[FILES:], self._merged(files[:FILES])]
        with ExitStack() as stack:
            opened = [stack.enter_context(open(path, encoding="utf-8")) for path in files]
            yield from _joined(*map(_read, opened), self._sorted())

    def _merged(self, files: list[Path]) -> Path:
        with ExitStack() as stack:
            path = self._write(_joined(*(_read(stack.enter_context(open(one, encoding="utf-8"))) for one in files)))
        for one in files:
            one.unlink()
        return path

    def _write(self, entries: Iterator[Entry]) -> Path:
        self._written += 1
        path = self._folder / f"sorted-{self._written}"
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
        return path


def _read(file: TextIO) -> Iterator[Entry]:
    return ((word, count, first) for word, count, first in map(json.loads, file))


def _joined(*sources: Iterator[Entry]) -> Iterator[Entry]:
    """Yield each word of sorted sources once."""
    for word, group in groupby(heapq.merge(*sources), key=itemgetter(0)):
        entries = list(group)
        yield word, sum(entry[1] for entry in entries), min(entry[2] for entry in entries)
