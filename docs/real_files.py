"""Run the commands of the page Your own data that have real files, and keep what they found for the page.

    python docs/real_files.py          half a minute, then make docs

It writes results.json, forecast.svg and units.svg into docs/your-own-data. Other processors may give other last digits:
the page says what these runs gave.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

import mufuru
from mufuru.experiments.cli import main as command
from mufuru.experiments.data.examples import Examples
from mufuru.experiments.engine import load_run
from mufuru.experiments.record import read_run
from mufuru.experiments.report import inspection, plots
from mufuru.experiments.report.figures import GRID, look, style, svg
from mufuru.experiments.report.page import Table
from mufuru.experiments.report.render import markdown_table
from mufuru.experiments.tasks.cells import traced
from mufuru.experiments.tasks.regress.task import Predictor
from mufuru.experiments.tasks.tag import use as tag

DOCS = Path(__file__).parent
PAGE, FOLDER = DOCS / "your-own-data.md", DOCS / "your-own-data"
RESULTS = FOLDER / "results.json"


def main() -> None:
    lines = re.findall(
        r"^mufuru (train .*--(?:data|text) docs/your-own-data/.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        os.symlink(DOCS, "docs")
        for line in lines:
            if command([*shlex.split(line), "--quiet"]):
                sys.exit(f"mufuru {line} failed")
        folders = {name: Path("runs") / name for name in ("alice", "authors", "digits", "elnino", "news", "sunspots")}
        runs = {name: read_run(folder) for name, folder in folders.items()}
        found = {
            "alice": runs["alice"].result["test"] | {"text": written(folders["alice"])},
            "authors": inspection.labels_of(runs["authors"]),
            "digits": inspection.labels_of(runs["digits"]),
            "elnino": runs["elnino"].result["test"] | by_others(folders["elnino"]),
            "news": runs["news"].result["test"] | tagged(folders["news"]),
            "sunspots": runs["sunspots"].result["test"],
        }
        RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        with style():
            drawn = {
                "curves": plots.curves({"": {"MuFuRU": [runs["alice"]]}}, "perplexity", {"MuFuRU": look("mufuru")}),
                "sentence": words(folders["authors"]),
                "units": units(folders["digits"]),
                "december": december(folders["elnino"]),
                "forecast": plots.forecasts(inspection.forecasts_of(runs["sunspots"])),
            }
            for name, figure in drawn.items():
                (FOLDER / f"{name}.svg").write_bytes(svg(figure))


def written(run: Path) -> str:
    """Return what the language model writes, by the page's command."""
    (line,) = re.findall(r"^mufuru (generate runs/alice .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        command(shlex.split(line))
    return " ".join(out.getvalue().split())


def by_others(run: Path) -> dict[str, float]:
    """Return the test RMSE of the mean of the training years, and of November's temperature."""
    task: Any = load_run(run)[0]
    train, test = task.labelled.train, task.labelled.test
    wanted = test.targets
    guesses = {"mean": train.targets.mean(), "november": torch.stack([months[-1, 0] for months in test.sequences])}
    return {name: float((guess - wanted).square().mean().sqrt()) for name, guess in guesses.items()}


def tagged(run: Path) -> dict[str, Any]:
    """Return a short test sentence with its labels, true and predicted, and the accuracy of each word's usual label."""
    data: Any
    model: Any
    data, model = load_run(run)
    names, train, test = data.meaning.labels, data.labelled.train, data.labelled.test
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for word, label in zip(chain(*train.sequences), train.targets.tolist(), strict=True):
        counts[word][label] += 1
    usual = Counter(train.targets.tolist()).most_common(1)[0][0]
    guessed = [counts[word].most_common(1)[0][0] if word in counts else usual for word in chain(*test.sequences)]
    right = [guess == label for guess, label in zip(guessed, test.targets.tolist(), strict=True)]
    # the first of a length that fits into a table
    place = next(place for place, tokens in enumerate(test.sequences) if 8 <= len(tokens) <= 10)
    start = sum(map(len, test.sequences[:place]))
    tokens = test.sequences[place]
    answer: Any = tag.Predictor(model, data.config).predict([tokens])[0]
    truth = [names[label] for label in test.targets[start : start + len(tokens)].tolist()]
    return {"usual": sum(right) / len(right), "tokens": tokens, "truth": truth, "predicted": list(answer.labels)}


def december(run: Path) -> Any:
    """Draw predicted against true temperatures of the test years."""
    task, model = load_run(run)
    data: Any = task
    test = data.labelled.test
    answers = Predictor(model, data.config).predict(list(test.sequences))
    figure = Figure(figsize=(4.6, 4.2), layout="constrained")
    axes = figure.subplots()
    truth, values = test.targets.tolist(), [answer.value for answer in answers]
    low, high = min(truth + values) - 0.3, max(truth + values) + 0.3
    axes.plot([low, high], [low, high], color=GRID, zorder=0)
    ends = [[abs(answer.value - answer.quantiles[level]) for answer in answers] for level in ("0.1", "0.9")]
    axes.errorbar(truth, values, ends, fmt="o", color=look("mufuru").colour, elinewidth=1, markersize=5)
    axes.set(xlabel="December, °C", ylabel="predicted, with quantiles 0.1 and 0.9", aspect="equal")
    return figure


def words(run: Path) -> Any:
    """Draw the map of units by the words of the first test sentence of a length that fits."""
    task, model = load_run(run)
    data: Any = task
    tokens = next(tokens for tokens in data.labelled.test.sequences if 10 <= len(tokens) <= 14)
    steps = data.encode(Examples(torch.zeros(1, dtype=torch.int64), [tokens])).batch(torch.tensor([0]))
    trace, _ = traced(model, steps.inputs)
    return mufuru.plot.units(trace, tokens)


def units(run: Path) -> Any:
    """Draw the map of units by the rows of the first test image."""
    task, model = load_run(run)
    batch: Any = task.batches("test")[0]
    trace, _ = traced(model, batch.inputs)
    return mufuru.plot.units(trace, [f"row {row}" for row in range(1, len(batch.inputs.batch_sizes) + 1)])


def alice(found: dict[str, Any]) -> str:
    """Return the perplexity and what was written, for the page."""
    scores = found["alice"]
    # braces and the like of a model's text are text
    text = scores["text"].replace("<", "&lt;").replace("*", "\\*")
    return (
        f"\nThe perplexity of the test part is {scores['perplexity']:.0f}; after four epochs it writes:\n\n> {text}\n\n"
    )


def authors(found: dict[str, Any]) -> str:
    """Return the table of labels, for the page."""
    caption = "What `mufuru evaluate runs/authors` says of the test sentences; by chance a third would be right"
    return markdown_table(inspection.label_table(found["authors"], "")).replace("\n", f"{caption}:\n", 1)


def elnino(found: dict[str, Any]) -> str:
    """Return the errors of the model and of simple guesses, for the page."""
    scores = found["elnino"]
    rows = [
        ("MuFuRU", scores["rmse"]),
        ("as in November", scores["november"]),
        ("mean of the training years", scores["mean"]),
    ]
    r2 = f"{scores['r2']:.2f}".replace("-", "−")
    caption = f"Fifteen test years, which are few; the model's R² is {r2}"
    return markdown_table(Table(caption, ("", "RMSE, °C"), tuple((name, f"{value:.2f}") for name, value in rows)))


def news(found: dict[str, Any]) -> str:
    """Return the accuracy, and a sentence with its labels, for the page."""
    scores = found["news"]
    caption = (
        f"{100 * scores['accuracy']:.1f} % of the test tokens are right; the usual label of each word gives "
        f"{100 * scores['usual']:.1f} %. A test sentence"
    )
    rows = tuple(zip(scores["tokens"], scores["truth"], scores["predicted"], strict=True))
    return markdown_table(Table(caption, ("token", "label", "predicted"), rows))


def digits(found: dict[str, Any]) -> str:
    """Return the table of labels, for the page."""
    caption = "What `mufuru evaluate runs/digits` says of the test images"
    return markdown_table(inspection.label_table(found["digits"], "")).replace("\n", f"{caption}:\n", 1)


def sunspots(found: dict[str, Any]) -> str:
    """Return the metrics of the forecasts beside the seasonal-naive ones, for the page."""
    scores = found["sunspots"]
    rows = [
        ("MuFuRU", scores["mase"], scores["smape"]),
        ("seasonal-naive", scores["naive_mase"], scores["naive_smape"]),
    ]
    cells = tuple((name, f"{mase:.3f}", f"{smape:.1f}") for name, mase, smape in rows)
    inside = f"Test forecasts; {100 * scores['coverage']:.0f} % of the values lie between the quantiles 0.1 and 0.9"
    return markdown_table(Table(inside, ("", "MASE", "sMAPE"), cells))


if __name__ == "__main__":
    main()
