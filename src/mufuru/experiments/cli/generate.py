"""`mufuru generate`: text from a trained language model, printed token by token."""

import codecs
import io
import sys
from collections.abc import Iterable, Iterator
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
    """Let a trained language model write: the prompt, and its continuation."""

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
    for piece in pieces(written, " " if loaded.level == "word" else ""):
        print(piece, end="", flush=True)


def spelled(tokens: Iterable[int], vocabulary: BytePairs) -> Iterator[str]:
    """Yield the text of parts of words; a character whose bytes are in several waits for the last of them."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for token in tokens:
        if text := decoder.decode(vocabulary.spelled(token)):
            yield text
    if rest := decoder.decode(b"", final=True):
        yield rest


def pieces(words: Iterable[str], blank: str) -> Iterator[str]:
    """Return words as text: blanks between them, a new line for `<eos>` and at the end."""
    piece = "\n"
    for word in words:
        piece = "\n" if word == END else word if piece.endswith("\n") else blank + word
        yield piece
    if not piece.endswith("\n"):
        yield "\n"
