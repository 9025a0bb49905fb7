"""Small finished runs to ship: trained once, by the command line."""

from __future__ import annotations

from pathlib import Path

import tree_data
from classify_data import write_csv, write_numbers
from commands import TINY
from number_data import write_names, write_rooms, write_waves

from mufuru.experiments.cli import main

TEXT = "the cat sat on the mat\nthe dog sat , and the cat ran\n\n" * 16
SMALL = ("--epochs", "1", "--quiet")
LM = ("--hidden-size", "8", "--batch-size", "4", "--bptt", "8", *SMALL)
CLASSIFY = ("--hidden-size", "6", "--min-count", "1", *SMALL)
OWN = ("--hidden-size", "6", "--updates", "6", "--quiet")
TREES = ("--hidden-size", "6", "--embedding-size", "5", "--vectors", "None", *SMALL)


def make_runs(folder: Path, *names: str) -> Path:
    """Runs of these names, each in a folder of its name; the files that they were trained on are beside them."""
    (folder / "book.txt").write_text(TEXT)
    book, texts, numbers = (str(folder / name) for name in ("book.txt", "texts.csv", "bumps.tsv"))
    bank = str(tree_data.write(folder / "bank", tree_data.treebank()))
    write_csv(Path(texts))
    write_numbers(Path(numbers))
    rooms, sentences, waves = (
        str(write(folder / name))
        for write, name in ((write_rooms, "rooms.csv"), (write_names, "names.conll"), (write_waves, "waves.csv"))
    )
    lines = {
        "lm": ("lm", *LM, "--text", book, "--tied"),
        "lm-gru": ("lm", *LM, "--text", book, "--cell", "gru"),
        "lm-lstm": ("lm", *LM, "--text", book, "--cell", "lstm"),
        "lm-controller": ("lm", *LM, "--text", book, "--controller-size", "3", "--num-layers", "2", "--select", "last"),
        "texts": ("classify", *CLASSIFY, "--data", texts, "--pooling", "max", "--bidirectional"),
        "attention": ("classify", *CLASSIFY, "--data", texts, "--pooling", "attention"),
        "numbers": ("classify", *CLASSIFY, "--data", numbers, "--pooling", "mean", "--num-layers", "2"),
        "rooms": ("regress", *OWN, "--data", rooms, "--quantiles", "0.1", "0.9"),
        "names": ("tag", *OWN, "--data", sentences),
        "waves": (
            "forecast",
            *OWN,
            "--data",
            waves,
            "--value-columns",
            "rising",
            "--covariate-columns",
            "warm",
            "--horizon",
            "3",
            "--season",
            "6",
        ),
        "trees": ("trees", *TREES, "--treebank", bank),
        "trees-lstm": ("trees", *TREES, "--treebank", bank, "--cell", "lstm"),
        "logic": ("logic", *TINY, "--hidden-size", "4", "--keep-bias", "1", *SMALL),
    }
    for name in names:
        assert main(["train", *lines[name], "--output", str(folder / name)]) == 0
    return folder
