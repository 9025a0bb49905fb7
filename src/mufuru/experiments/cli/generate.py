"""`mufuru generate`: text from a trained language model, printed token by token."""

import codecs
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import torch

from mufuru.experiments.cli.usage import Flag, Run, check_range, parse
from mufuru.experiments.data.bpe import BytePairs
from mufuru.experiments.data.lines import decoded
from mufuru.experiments.data.vocabulary import END, UNKNOWN
from mufuru.experiments.ship import load_as
from mufuru.experiments.tasks.lm.use import Sampler, TextModel, unfinished

EXAMPLES = """\
  mufuru generate runs/lm
  mufuru generate runs/lm --prompt "the company said" --length 50 --temperature 0.8 --top-k 40 --seed 3
  mufuru generate runs/lm --prompt="- a dash first"
"""


@dataclass(frozen=True)
class Generate:
    """Generate text with a trained language model: print the prompt and its continuation."""

    run: Run
    """Folder of a run of `mufuru train lm`."""
    prompt: str = ""
    """Text to continue; without one the model begins a line. A text that begins with a dash is written
    --prompt=VALUE."""
    length: int = 100
    """Tokens to generate."""
    temperature: float = 1.0
    """Below 1 sharpens the distribution; 0 is greedy."""
    top_k: int | None = None
    """Draw among this many of the likeliest tokens; None for all."""
    seed: int = 0
    """The same seed gives the same text."""
    allow_unknown: Flag = False
    """Let the model write <unk>, which stands for words that it does not know."""

    def __post_init__(self) -> None:
        check_range("--length", self.length, 1)
        check_range("--seed", self.seed, 0, 2**32 - 1)
        _ = self.sampler  # refuses invalid settings

    @property
    def sampler(self) -> Sampler:
        return Sampler(self.temperature, self.top_k)


def main(arguments: list[str]) -> int:
    chosen = parse(Generate, arguments, EXAMPLES)
    torch.set_num_threads(1)
    write(load_as("text_model", chosen.run), chosen)
    return 0


def write(loaded: TextModel, chosen: Generate) -> None:
    """Print the prompt as the model reads it, then every token as soon as it is drawn."""
    vocabulary = loaded.vocabulary
    # as a file would be read; a prompt may hold what no UTF-8 can
    lines = decoded(io.BytesIO(chosen.prompt.encode(errors="replace")), Path("the prompt"))
    words = unfinished(chosen.prompt, lines, loaded.level, vocabulary)
    if missing := list(dict.fromkeys(word for word in words if word not in vocabulary)):
        names = ", ".join(map(repr, missing))
        print(f"mufuru: not in the model's vocabulary, read as {UNKNOWN}: {names}", file=sys.stderr)
    prompt = vocabulary.encode(words)
    forbidden = [] if chosen.allow_unknown or UNKNOWN not in vocabulary else [vocabulary.unknown]
    tokens = islice(loaded.generate(prompt, chosen.sampler, chosen.seed, forbidden), chosen.length)
    drawn = chain(prompt.tolist(), tokens)
    written = (
        spelled(drawn, vocabulary)
        if isinstance(vocabulary, BytePairs)
        else (vocabulary.words[token] for token in drawn)
    )
    between = spacing() if loaded.level == "words" else lambda word: " " if loaded.level == "word" else ""
    for piece in pieces(written, between):
        print(piece, end="", flush=True)


CLOSING = re.compile(r"[,.;:!?)\]}%…]+|'(?:s|m|d|re|ve|ll)|n't", re.IGNORECASE)
"""Tokens that stand right behind the word before them."""
OPENING = ("(", "[", "{", "$", "£", "#")


def spacing() -> Callable[[str], str]:
    """Return a function that gives the blank before each of the words of a text, whose punctuation is apart."""
    last, quoted = END, False

    def before(word: str) -> str:
        nonlocal last, quoted
        behind = bool(CLOSING.fullmatch(word)) or last in OPENING or (last == '"' and quoted)
        if word == '"':
            behind, quoted = quoted, not quoted
        elif word == END:
            quoted = False
        last = word
        return "" if behind else " "

    return before


def spelled(tokens: Iterable[int], vocabulary: BytePairs) -> Iterator[str]:
    """Yield the text of parts of words; a character whose bytes are in several waits for the last of them."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for token in tokens:
        if text := decoder.decode(vocabulary.spelled(token)):
            yield text
    if rest := decoder.decode(b"", final=True):
        yield rest


def pieces(words: Iterable[str], before: Callable[[str], str]) -> Iterator[str]:
    """Return words as text: `before` gives the blank before each, a new line stands for `<eos>` and at the end."""
    piece = "\n"
    for word in words:
        blank = before(word)
        piece = "\n" if word == END else word if piece.endswith("\n") else blank + word
        yield piece
    if not piece.endswith("\n"):
        yield "\n"
