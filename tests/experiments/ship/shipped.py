"""Small finished runs to ship: trained once, by the command line."""

from __future__ import annotations

from pathlib import Path

import tree_data
from classify_data import write_csv, write_numbers
from commands import TINY

from mufuru.experiments.cli import main

TEXT = "the cat sat on the mat\nthe dog sat , and the cat ran\n\n" * 16
SMALL = ("--epochs", "1", "--quiet")
LM = ("--hidden-size", "8", "--batch-size", "4", "--bptt", "8", *SMALL)
CLASSIFY = ("--hidden-size", "6", "--min-count", "1", *SMALL)
TREES = ("--hidden-size", "6", "--embedding-size", "5", "--vectors", "None", *SMALL)


def make_runs(folder: Path, *names: str) -> Path:
    """Runs of these names, each in a folder of its name; the files that they were trained on are beside them."""
    (folder / "book.txt").write_text(TEXT)
    book, texts, numbers = (str(folder / name) for name in ("book.txt", "texts.csv", "bumps.tsv"))
    bank = str(tree_data.write(folder / "bank", tree_data.treebank()))
    write_csv(Path(texts))
    write_numbers(Path(numbers))
    lines = {
        "lm": ("lm", *LM, "--text", book, "--tied"),
        "lm-gru": ("lm", *LM, "--text", book, "--cell", "gru"),
        "lm-lstm": ("lm", *LM, "--text", book, "--cell", "lstm"),
        "lm-controller": ("lm", *LM, "--text", book, "--controller-size", "3", "--num-layers", "2", "--select", "last"),
        "texts": ("classify", *CLASSIFY, "--data", texts, "--pooling", "max", "--bidirectional"),
        "attention": ("classify", *CLASSIFY, "--data", texts, "--pooling", "attention"),
        "numbers": ("classify", *CLASSIFY, "--data", numbers, "--pooling", "mean", "--num-layers", "2"),
        "trees": ("trees", *TREES, "--treebank", bank),
        "trees-lstm": ("trees", *TREES, "--treebank", bank, "--cell", "lstm"),
        "logic": ("logic", *TINY, "--hidden-size", "4", "--keep-bias", "1", *SMALL),
    }
    for name in names:
        assert main(["train", *lines[name], "--output", str(folder / name)]) == 0
    return folder
