"""`mufuru generate`: text from a trained language model, as it comes."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import tyro

from mufuru.experiments.cli.usage import UsageError, parse
from mufuru.experiments.data.lines import decoded
from mufuru.experiments.data.vocabulary import END
from mufuru.experiments.settings import SettingError
from mufuru.experiments.ship import load_as
from mufuru.experiments.tasks.lm.use import Sampler, TextModel, unfinished

EXAMPLES = """\
  mufuru generate runs/lm
  mufuru generate runs/lm --prompt "the company said" --length 50 --temperature 0.8 --top-k 40 --seed 3
"""


@dataclass(frozen=True)
class Generate:
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of a run of `mufuru train lm`."""
    prompt: str = ""
    """Text to continue; without one the model begins a line."""
    length: int = 100
    """Tokens to generate."""
    temperature: float = 1.0
    """Below 1 sharpens the distribution; 0 is greedy."""
    top_k: int | None = None
    """Draw among this many of the likeliest tokens; None for all."""
    seed: int = 0
    """The same seed gives the same text."""
    allow_unknown: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Let the model write <unk>, which stands for words that it does not know."""


def main(arguments: list[str]) -> int:
    description = "Let a trained language model write: the prompt, and what it makes of it."
    chosen = parse(Generate, arguments, prog="mufuru generate", description=description, examples=EXAMPLES)
    if chosen.length < 1:
        raise UsageError(f"--length should be at least 1, got {chosen.length}. See mufuru generate --help")
    try:
        sampler = Sampler(chosen.temperature, chosen.top_k)
    except SettingError as error:
        raise UsageError(f"{error}. See mufuru generate --help") from None
    if not 0 <= chosen.seed < 2**32:
        raise UsageError(f"--seed should be from 0 to 2**32 - 1, got {chosen.seed}. See mufuru generate --help")
    torch.set_num_threads(1)
    write(load_as("text_model", chosen.run), chosen, sampler)
    return 0


def write(loaded: TextModel, chosen: Generate, sampler: Sampler) -> None:
    """Print the prompt as the model reads it, then every token as soon as it is drawn."""
    vocabulary = loaded.vocabulary
    words = prompt_words(chosen.prompt, loaded)
    tell_unknown(words, loaded)
    printer = Printer(" " if loaded.level == "word" else "")
    prompt = vocabulary.encode(words)
    for word in vocabulary.decode(prompt):
        printer.print(word)
    unknown = vocabulary.unknown_index
    forbidden = [] if unknown is None or chosen.allow_unknown else [unknown]
    for token in islice(loaded.generate(prompt, sampler, chosen.seed, forbidden), chosen.length):
        printer.print(vocabulary.words[token])
    printer.end()


def prompt_words(prompt: str, loaded: TextModel) -> list[str]:
    """The tokens of the prompt."""
    # as a file would be read; a prompt may hold what no UTF-8 can
    lines = decoded(io.BytesIO(prompt.encode(errors="replace")), Path("the prompt"))
    return unfinished(prompt, lines, loaded.level)


def tell_unknown(words: list[str], loaded: TextModel) -> None:
    """Say which words of the prompt the model does not know."""
    if missing := list(dict.fromkeys(word for word in words if word not in loaded.vocabulary)):
        names = ", ".join(map(repr, missing))
        print(f"mufuru: not in the model's vocabulary, read as {loaded.vocabulary.unknown}: {names}", file=sys.stderr)


class Printer:
    """Tokens as text: blanks between words, none between characters, and a new line for `<eos>`."""

    def __init__(self, blank: str) -> None:
        self.blank = blank
        self.line = ""

    def print(self, word: str) -> None:
        piece = "\n" if word == END else f"{self.blank if self.line else ''}{word}"
        self.line = "" if piece.endswith("\n") else piece
        print(piece, end="", flush=True)

    def end(self) -> None:
        if self.line:
            print()
