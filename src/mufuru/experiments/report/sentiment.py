"""The report on the sentiment experiment."""

from __future__ import annotations

from itertools import pairwise

from mufuru.experiments.record import Record
from mufuru.experiments.report import models, operation_use, paper, results, runs, tables, verdicts, walked
from mufuru.experiments.report.experiment import Part, Report, View, lines, of
from mufuru.experiments.report.models import ACCURACY
from mufuru.experiments.report.page import Block
from mufuru.experiments.report.results import INTERVAL, Lines
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.verdicts import Rule

COMMAND = "mufuru reproduce sentiment"
PUBLISHED = {number.model: number.value for number in paper.numbers("sentiment")}
OWN = {name: PUBLISHED[name] for name in ("GRU", "MuFuRU", "LSTM")}
"""Of the cells; the paper's LSTM is that of Tai et al. (2015)."""
TREES = {"Tree-LSTM": PUBLISHED["CT-LSTM"]}
STATE_OF_THE_ART = PUBLISHED["CNN-MC"]
SLACK = 0.5
"""An accuracy that misses the paper's by at most this many percent reproduces it in part; 9 of 1,821 sentences."""
NEAR = 0.5
"""The paper's own distance to the state of the art."""
CHOICES = {
    "training.learning_rate": "learning rate",
    "embedding_dropout": "dropout of words",
    "output_dropout": "of the last state",
}
"""What the paper leaves open, in the order of the table."""
SEARCHED = {
    "data.graded": "graded labels",
    "pooling": "pooling",
    "embedding_dropout": "dropout of words",
    "training.weight_decay": "weight decay",
}
"""What was tried for the best setting, in the order of the table."""
RULES: dict[str, Rule] = {
    "gru": verdicts.reaches("GRU", PUBLISHED["GRU"], SLACK, ACCURACY),
    "mufuru": verdicts.reaches("MuFuRU", PUBLISHED["MuFuRU"], SLACK, ACCURACY),
    "ahead": verdicts.ahead("MuFuRU", "GRU", ACCURACY),
    "near": verdicts.reaches("MuFuRU", STATE_OF_THE_ART - NEAR, SLACK, ACCURACY),
    "trees": verdicts.as_good("TreeMuFuRU", "Tree-LSTM", ACCURACY),
}
BAR = 88.1
"""What we hold ourselves to in the best setting."""


def about(records: Runs) -> str:
    """The experiment in two sentences."""
    names = ", ".join(models.by_model(records))
    return (
        "Recurrent layers learn to tell positive phrases of the Stanford Sentiment Treebank from negative ones and are "
        f"tested on whole sentences. {tables.count(len(records), 'finished run')} of {names}."
    )


def beside(records: Runs) -> list[Block]:
    """The paper's claims, measured in its setting."""
    found = of(records, "paper")
    if not found:
        return [REPORT.missing("paper")]
    said = f"What the paper says ({paper.AUTHORS}) beside {tables.count(len(found), 'run')} in its setting"
    compared = {**lines(records, "paper"), **tree_lines(records)}
    return [verdicts.table(paper.SENTIMENT_CLAIMS, RULES, compared, f"{said}, as far as it is known")]


def in_papers_setting(records: Runs) -> list[Block]:
    found = lines(records, "paper")
    return [
        results.dots("sentiment-paper", found, OWN),
        results.table(found, f"The paper's setting, GloVe of 100 dimensions: {INTERVAL}", "GRU", OWN),
    ]


def dimensions(records: Runs) -> list[Block]:
    """What larger word vectors are worth."""
    compared = [record for record in of(records, "paper") if models.cell_of(record) in ("gru", "mufuru")]
    found: dict[str, list[Record]] = {}
    for model, some in models.by_model([*compared, *of(records, "dimensions")]).items():
        for size in runs.values(some, "embedding_size"):
            found[f"{model} ({size})"] = runs.where(some, embedding_size=size)
    caption = f"Word vectors of several dimensions (in brackets), all else as in the paper's setting: {INTERVAL}"
    return [_worth(found), results.dots("sentiment-dimensions", found), results.table(found, caption)]


def _worth(found: Lines) -> str:
    """Each step up in dimensions, seed by seed."""
    told = []
    for small, large in pairwise(found):
        (model, low), (other, high) = small.split(" ("), large.split(" (")
        if model == other and (change := models.difference(found[large], found[small])):
            told.append(f"{model} from {low[:-1]} to {high[:-1]} dimensions: {ACCURACY.change(change)}.")
    return " ".join(told) or "There is one size of word vectors only."


def best(records: Runs) -> list[Block]:
    found = lines(records, "best")
    caption = f"Both directions, 100 units each, well regularised: {INTERVAL}"
    return [
        results.bar(found, "MuFuRU", BAR),
        results.dots("sentiment-best", found),
        results.table(found, caption, "GRU"),
    ]


def search(records: Runs) -> list[Block]:
    """What was tried for the best setting, with the GRU."""
    base = lines(records, "best").get("GRU")
    if base is None:
        return [REPORT.missing("best")]
    caption = "GRU in the best setting, one thing changed at a time. A positive change is for the better"
    return [results.change_table(results.changes(base, of(records, "search"), SEARCHED), caption)]


def tree_lines(records: Runs) -> dict[str, list[Record]]:
    """The runs of each unit; one with fewer units than the widest of its kind is named by them."""
    found: dict[str, list[Record]] = {}
    for model, some in lines(records, "trees").items():
        widest, *fewer = sorted(runs.values(some, "cell.hidden_size"), reverse=True)
        for size in (widest, *fewer):
            name = model if size == widest else f"{model} ({size} units)"
            found[name] = runs.where(some, cell__hidden_size=size)
    return found


def trees(records: Runs) -> list[Block]:
    found = tree_lines(records)
    caption = f"Units that compose phrases along the parse tree: {INTERVAL}"
    blocks: list[Block] = [
        results.dots("sentiment-trees", found, TREES),
        results.table(found, caption, "Tree-LSTM", TREES),
    ]
    panels = {"TreeMuFuRU": found["TreeMuFuRU"]} if "TreeMuFuRU" in found else {}
    where = "inner nodes of the development trees, by the left child"
    return blocks + (operation_use.blocks("sentiment-tree-operations", panels, where) if panels else [])


def choices(records: Runs) -> list[Block]:
    """What each choice that the paper leaves open is worth, by cell."""
    return results.choice_tables(lines(records, "paper"), lines(records, "choices"), CHOICES, REPORT.missing("paper"))


def short(records: Runs) -> list[Block]:
    return [results.table(lines(records, "short"), f"Once through the sentences: {INTERVAL}", "GRU")]


def main(records: Runs) -> list[Record]:
    """MuFuRU's runs that are looked into: the paper's setting, or the short form where that is all there is."""
    return lines(records, "paper").get("MuFuRU") or lines(records, "short").get("MuFuRU") or []


def operations(records: Runs) -> list[Block]:
    """Weights by class of word, over the development sentences."""
    found = main(records)
    panels = {"MuFuRU": found} if found else {}
    return operation_use.blocks("sentiment-operations", panels, "the words of the development sentences")


def sentences(records: Runs) -> list[Block]:
    return walked.blocks("sentiment-sentence", main(records))


def curves(records: Runs) -> list[Block]:
    titles = {"paper": "Paper's setting", "best": "Well regularised", "trees": "Trees", "short": "Short form"}
    found = {
        part: (title, tree_lines(records) if part == "trees" else lines(records, part))
        for part, title in titles.items()
    }
    used = {title: some for title, of_part in found.values() if (some := of_part.get("MuFuRU"))}
    return [*results.learning("sentiment-curves", found), *operation_use.over_training("sentiment-use", used)]


REPORT = Report(
    "sentiment",
    "Sentiment of phrases and sentences",
    ("classify", "trees"),
    about,
    "paper",
    {
        "paper": Part("The paper's setting", f"{COMMAND} --part paper", models.AXES, in_papers_setting),
        "dimensions": Part(
            "Larger word vectors", f"{COMMAND} --part dimensions", (*models.AXES, "embedding_size"), dimensions
        ),
        "choices": Part("What the paper left open", f"{COMMAND} --part choices", (*models.AXES, *CHOICES), choices),
        "best": Part("Well regularised", f"{COMMAND} --part best", models.AXES, best),
        "search": Part("What was tried for it", f"{COMMAND} --part search", (*models.AXES, *SEARCHED), search),
        "trees": Part("Along the parse trees", f"{COMMAND} --part trees", (*models.AXES, "cell.hidden_size"), trees),
        "short": Part("The short form", f"{COMMAND} --short", models.AXES, short),
    },
    {"claims": View("Beside the paper", beside)},
    {
        "operations": View("Operations by kind of word", operations),
        "sentences": View("Sentences word by word", sentences),
        "curves": View("Learning curves", curves),
    },
)
