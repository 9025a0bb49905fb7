"""A text that may be larger than memory: tokenised once into a file of the data folder, then mapped.

The text is cut into pieces, which processes tokenise side by side. What is done is kept in a folder beside the file: a
process that is killed, or a full disk, costs the pieces under way, and the next start continues. The file gets its
name when it is complete. It is found again by the paths, sizes and times of the text's files and the settings.
"""

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from mufuru.disk import locked
from mufuru.experiments.data import PARTS, DataError, TokenError, token_file
from mufuru.experiments.data import pieces as planned
from mufuru.experiments.data.bpe import AnyVocabulary, BytePairs, tokenizers
from mufuru.experiments.data.download import data_folder
from mufuru.experiments.data.pieces import Piece, plan
from mufuru.experiments.data.tally import Tally, database
from mufuru.experiments.data.text import IN_WORDS, LEVELS, Corpus, Level, Request, apart, check_apart, name_of
from mufuru.experiments.data.vocabulary import END, Vocabulary

LARGE = 64 << 20
"""Bytes of a text from which on its tokens are in a file; its tokens are the same in either case."""
SAMPLE = 16
"""Maximum pieces that byte pairs are learned from, spread over the training text."""
DONE = """
CREATE TABLE IF NOT EXISTS counted (tokens INTEGER, counts TEXT);
CREATE TABLE IF NOT EXISTS encoded (tokens INTEGER, crc INTEGER);
CREATE TABLE IF NOT EXISTS vocabulary (json TEXT);
"""
"""Progress, a row for each piece in its order, from which the next start continues."""
CONTEXT = multiprocessing.get_context("spawn")
MOST_PROCESSES = 32
REMEMBERED = 500_000
"""Different words whose ids a process keeps at hand, some 200 bytes each."""


def load(request: Request) -> Corpus:
    """Return the tokens of a text, mapped from a file that is made now unless it is there."""
    check_apart(request.parts)
    if request.level == "bpe":
        tokenizers()
    folder = data_folder() / "tokens"
    path = folder / f"{key_of(request)}.tokens"
    with kept_in(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # the ranks of a run wait here for the one that makes the file
        with locked(path.with_suffix(".lock")):
            if not path.exists():
                Build(request, path).make()
    file = token_file.read(path)
    train, valid, test = (file.part(part) for part in PARTS)
    return Corpus(train, valid, test, file.vocabulary, name_of(request.files), file.fingerprint)


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Turn the system's refusal to write into a sentence."""
    try:
        # some builds of Python lack it, and only these texts need it
        import sqlite3
    except ImportError as error:
        raise TokenError(f"this Python has no sqlite3 ({error}), which large texts and byte pairs need: take one that "
                         "has it") from None  # fmt: skip
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TokenError(f"cannot write the token file of the text into {folder} ({reason}): what is done so far is "
                         "kept. Make room there, or set MUFURU_DATA to another folder, and start again"
                         ) from error  # fmt: skip
    except sqlite3.Error as error:
        raise TokenError(f"what was kept of a text that is not yet tokenised is damaged ({error}): delete the folders "
                         f"that end in .part in {folder}, and start again") from None  # fmt: skip
    except BrokenProcessPool:
        raise TokenError("a process that tokenised the text was ended, perhaps by the system for lack of memory: what "
                         "is done so far is kept. Start again") from None  # fmt: skip


def key_of(request: Request) -> str:
    """Return the name of a text's token file: it follows from the text's files and the way to tokenise them."""
    content = [token_file.FORMAT, asdict(request), request.state()]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


class Build:
    """Makes one token file."""

    def __init__(self, request: Request, path: Path) -> None:
        self.request, self.path, self.work = request, path, path.with_suffix(".part")
        self.state = request.state()
        in_words, (valid, test) = request.level in IN_WORDS, request.held_out_shares
        shares = (1 - valid - test, 1 - test) if request.level == "bpe" else ()
        self.text, self.borders = plan(request.files, in_words=in_words, shares=shares)
        others = [plan(files, in_words=in_words)[0] for files in (request.valid_files, request.test_files)]
        self.held_out, self.others = (valid, test), others
        self.pieces = [*self.text, *others[0], *others[1]]

    def make(self) -> None:
        if self.request.level in IN_WORDS:
            self.check_words()
        self.work.mkdir(exist_ok=True)
        data = self.work / "tokens"
        with closing(database(self.work / "done.sqlite")) as self.done:
            self.done.executescript(DONE)
            vocabulary = self.vocabulary()
            counts, crc = self.encode(vocabulary, data)
        token_file.complete(data, sum(counts), crc, vocabulary, self.parts(counts))
        if self.request.state() != self.state:
            shutil.rmtree(self.work)
            raise TokenError(f"{name_of(self.request.files)} changed while it was read: nothing is kept of it. Start "
                             "again")  # fmt: skip
        os.replace(data, self.path)
        shutil.rmtree(self.work)

    def vocabulary(self) -> Vocabulary:
        """Return the vocabulary of the training part, which is kept for the next start."""
        if kept := self.done.execute("SELECT * FROM vocabulary").fetchone():
            return AnyVocabulary.from_json(json.loads(kept[0]))
        made = self.learn() if self.request.level == "bpe" else self.count()
        with self.done:
            self.done.execute("INSERT INTO vocabulary VALUES (?)", (json.dumps(made.to_json()),))
        return made

    def learn(self) -> Vocabulary:
        """Learn byte pairs from the training part; of a large one, from pieces spread evenly over it."""
        train = self.text[: self.borders[0]]
        some = [train[place * len(train) // SAMPLE] for place in range(SAMPLE)] if len(train) > SAMPLE else train
        lines = (line for piece in some for line in piece.lines())
        return BytePairs.learned(lines, self.request.vocabulary_size, self.request.min_count)

    def count(self) -> Vocabulary:
        """Count the words or characters of the training part, the first tokens of the text."""
        level, tally = self.request.level, Tally(self.work)
        done = len(self.done.execute("SELECT tokens FROM counted").fetchall())
        todo = self.text[done:]
        for row in self.shown("counting", todo, done, in_order(counts_of, todo, level)):
            with self.done:
                self.done.execute("INSERT INTO counted VALUES (?, ?)", row)
        total = sum(tokens for (tokens,) in self.done.execute("SELECT tokens FROM counted"))
        left = total - sum(int(total * share) for share in self.held_out)
        rows = self.done.execute("SELECT tokens, counts FROM counted ORDER BY rowid")
        for piece, (tokens, counts) in zip(self.text, rows, strict=True):
            # the part may end inside of this piece
            tally.add(json.loads(counts) if tokens <= left else Counter(tokens_of(piece, level)[:left]))
            left -= min(tokens, left)
        return tally.vocabulary(self.request.vocabulary_size, self.request.min_count, LEVELS[level])

    def check_words(self) -> None:
        """Refuse a file without words, before anything is written."""
        for path in chain(*self.request.parts.values()):
            if all(piece.text().isspace() for piece in self.pieces if piece.path == str(Path(path))):
                raise DataError(f"{path} has no words: expected text. Leave it out, or give another file")

    def encode(self, vocabulary: Vocabulary, data: Path) -> tuple[list[int], int]:
        """Write the tokens of all pieces; return the number in each, and their CRC-32."""
        done = self.done.execute("SELECT tokens, crc FROM encoded ORDER BY rowid").fetchall()
        size = np.dtype(token_file.type_of(vocabulary)).itemsize
        with open(data, "r+b" if data.exists() else "w+b") as file:
            place = token_file.HEADER + size * sum(count for count, _ in done)
            if done and os.fstat(file.fileno()).st_size < place:
                raise TokenError(f"{data} is shorter than what was written to it: delete the folder {self.work} and "
                                 "start again")  # fmt: skip
            file.truncate(place)
            file.seek(place)
            todo = self.pieces[len(done) :]
            ids = vocabulary if isinstance(vocabulary, BytePairs) else Ids(self.request.level, vocabulary)
            made = in_order(ids_of, todo, ids)
            for tokens in self.shown("tokenising", todo, len(done), made):
                file.write(tokens)
                file.flush()
                os.fsync(file.fileno())
                done.append((len(tokens) // size, zlib.crc32(tokens, done[-1][1] if done else 0)))
                with self.done:
                    self.done.execute("INSERT INTO encoded VALUES (?, ?)", done[-1])
        return [count for count, _ in done], done[-1][1]

    def parts(self, counts: Sequence[int]) -> dict[str, tuple[int, int]]:
        """Return where each part begins and ends, by the number of tokens in each piece."""
        first, second = (len(pieces) for pieces in self.others)
        text = sum(counts[: len(self.text)])
        if self.request.level == "bpe":
            borders = [sum(counts[:border]) for border in self.borders]
        else:
            valid, test = (int(text * share) for share in self.held_out)
            borders = [text - valid - test, text - test]
        held = {"train": (0, borders[0]), "valid": (borders[0], borders[1]), "test": (borders[1], text)}
        after = text + sum(counts[len(self.text) : len(self.text) + first])
        own = ({"valid": (text, after)} if first else {}) | ({"test": (after, sum(counts))} if second else {})
        return held | own

    def shown(self, what: str, todo: list[Piece], done: int, made: Iterator[Any]) -> Iterator[Any]:
        """Yield results; show progress, of a large text only."""
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        console, total = Console(stderr=True), sum(piece.stop - piece.start for piece in todo)
        title = f"{what} {name_of(self.request.files)}"
        if total > LARGE and not console.is_terminal:
            print(f"{title}: {total / 1e9:.1f} GB" + (f", {done} pieces are done" if done else ""), file=sys.stderr)
        columns = (TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, disable=not console.is_terminal or total <= LARGE) as bar:
            task = bar.add_task(title, total=total)
            for piece, result in zip(todo, made, strict=True):
                yield result
                bar.advance(task, piece.stop - piece.start)


def blanks_of(piece: Piece, level: Level) -> Sequence[str]:
    """Return the characters of a piece, or its parts between blanks, with the special word for the end of a line."""
    text = piece.text()
    if level == "char":
        return text
    if piece.last and not text.endswith("\n"):
        text += "\n"
    return text.replace("\n", f" {END} ").split()


def tokens_of(piece: Piece, level: Level) -> Sequence[str]:
    """Return the words or characters of a piece."""
    blanks = blanks_of(piece, level)
    return [word for blank in blanks for word in apart(blank)] if level == "words" else blanks


def counts_of(piece: Piece, level: Level) -> tuple[int, str]:
    """Return the number of tokens, and their counts, in the order of their first occurrences, as JSON, which all
    processes write side by side."""
    counts = Counter(blanks_of(piece, level))
    if level == "words":
        # no word reaches over a blank: what comes many times is cut once
        several, counts = counts, Counter()
        for blank, count in several.items():
            for word in apart(blank):
                counts[word] += count
    return counts.total(), json.dumps(counts)


class Ids(dict[str, bytes]):
    """The ids of a stretch without blanks, or of a character, as in a token file: encoded once, however often
    it occurs in the pieces of a process."""

    def __init__(self, level: Level, vocabulary: Vocabulary) -> None:
        self.level, self.vocabulary = level, vocabulary
        self.size = np.dtype(token_file.type_of(vocabulary)).itemsize

    def __missing__(self, key: str) -> bytes:
        tokens = apart(key) if self.level == "words" else [key]
        ids = b"".join(self.vocabulary.number(token).to_bytes(self.size, "little") for token in tokens)
        if len(self) >= REMEMBERED:
            self.clear()
        self[key] = ids
        return ids


def ids_of(piece: Piece, ids: Ids | BytePairs) -> bytes:
    """Return the ids of the tokens of a piece as a token file has them."""
    if isinstance(ids, BytePairs):
        return np.array(ids.numbers(piece.lines()), token_file.type_of(ids)).tobytes()
    return b"".join(map(ids.__getitem__, blanks_of(piece, ids.level)))


def in_order(make: Callable[[Piece, Any], Any], pieces: Sequence[Piece], given: Any) -> Iterator[Any]:
    """Yield `make(piece, given)` of all pieces in their order, made by as many processes as there are cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = min(cores, len(pieces), MOST_PROCESSES)
    # a short text is done before a process has started
    if processes < 2 or sum(piece.stop - piece.start for piece in pieces) <= planned.PIECE:
        yield from (make(piece, given) for piece in pieces)
        return
    waiting: deque[Future[Any]] = deque()
    with ProcessPoolExecutor(processes, CONTEXT, _enter, (make, given)) as pool:
        try:
            for piece in pieces:
                waiting.append(pool.submit(_make, piece))
                # no more than this is in memory, however slow the disk is
                if len(waiting) > 2 * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


_given: list[Any] = []


def _enter(make: Callable[[Piece, Any], Any], given: Any) -> None:
    """Prepare a process of the pool: Ctrl-C is left to the parent, with which it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _given[:] = [make, given]
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _make(piece: Piece) -> Any:
    make, given = _given
    return make(piece, given)
