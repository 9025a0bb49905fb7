"""Runs to look into, for the tests of the explorer: those that come with it, tiny trained ones, and untrained ones."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import classify_data
import lm_texts
import torch
from torch import nn

from mufuru.experiments import tasks
from mufuru.experiments.cli import main
from mufuru.experiments.cli.explore import load
from mufuru.experiments.explorer import ExploredRun, explored, shipped
from mufuru.experiments.explorer.runs import View
from mufuru.experiments.tasks.logic.config import PRESETS
from mufuru.experiments.tasks.logic.model import FormulaReader

TEXT = "the cat sat on the mat\nthe dog sat , and the cat ran\n\n" * 16
FORMULA = "1 0 AND 0 OR 1 if/then"
SMALL = ("--hidden-size", "8", "--epochs", "2", "--quiet")


@cache
def shipped_runs() -> tuple[ExploredRun, ...]:
    return tuple(load(shipped()))


@cache
def trained_folders() -> dict[str, Path]:
    """Run folders of a language model of words, one of characters, and classifiers of texts and of series."""
    folder = Path(tempfile.mkdtemp(prefix="explored"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    book, texts, numbers = folder / "book.txt", folder / "texts.csv", folder / "bumps.tsv"
    book.write_text(TEXT)
    classify_data.write_csv(texts)
    classify_data.write_numbers(numbers)
    lm, classify = ("train", "lm", "--batch-size", "4", "--bptt", "8"), ("train", "classify", "--min-count", "1")
    lines = {
        "words": (*lm, "--text", str(book)),
        "letters": (*lm, "--text", str(book), "--level", "char"),
        "texts": (*classify, "--data", str(texts)),
        "series": (*classify, "--data", str(numbers)),
    }
    for name, line in lines.items():
        assert main([*line, *SMALL, "--output", str(folder / name)]) == 0
    return {name: folder / name for name in lines}


def trained(*names: str) -> list[ExploredRun]:
    """Some of them, loaded as the command does."""
    return load([trained_folders()[name] for name in names])


def untrained(kind: str, name: str = "fresh", **settings: Any) -> ExploredRun:
    """A run with its first weights, made larger so that they say something."""
    config, model = _fresh(kind, settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return explored(name, kind, tasks.hook(kind, "reader", Path(name))(model, config))


def _fresh(kind: str, settings: dict[str, Any]) -> tuple[Any, nn.Module]:
    if kind == "logic":
        config: Any = replace(PRESETS["short"], cell=classify_data.config(**settings).cell)
        return config, FormulaReader(config.cell)
    task: Any = lm_texts.task(**settings) if kind == "lm" else classify_data.task(**settings)
    return task.config, task.build()


def view(text: str = FORMULA, run: str = "fresh", **fields: Any) -> View:
    return View(run, text, **fields)
