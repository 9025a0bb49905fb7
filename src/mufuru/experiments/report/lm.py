"""The report on the language-model experiment."""

from __future__ import annotations

from mufuru.experiments.report import dynamic, models, operation_use, paper, results, runs, tables, verdicts
from mufuru.experiments.report.experiment import Part, Report, View, lines, of
from mufuru.experiments.report.models import PERPLEXITY
from mufuru.experiments.report.page import Block
from mufuru.experiments.report.results import INTERVAL, Lines
from mufuru.experiments.report.runs import Runs
from mufuru.experiments.report.verdicts import Rule

COMMAND = "mufuru reproduce lm"
PUBLISHED = {number.model: number.value for number in paper.numbers("lm")}
SLACK = 2.5
"""A perplexity that misses the paper's by at most this, about 2 %, reproduces it in part."""
CHOICES = {
    "training.learning_rate": "learning rate",
    "training.batch_size": "batch size",
    "bptt": "window",
    "training.clip": "clipping",
    "cell.initialisation": "first weights",
    "cell.keep_bias": "keep's first bias",
}
"""What the paper leaves open, in the order of the table."""
CHANGES = CHOICES | {"cell.controller_size": "controller of"}
"""All that runs beside the paper's setting change."""
RULES: dict[str, Rule] = {
    "gru": verdicts.reaches("GRU", PUBLISHED["GRU"], SLACK, PERPLEXITY),
    "mufuru": verdicts.reaches("MuFuRU", PUBLISHED["MuFuRU"], SLACK, PERPLEXITY),
    "ahead": verdicts.ahead("MuFuRU", "GRU", PERPLEXITY),
    "as good": verdicts.as_good("MuFuRU", "GRU", PERPLEXITY),
}
BAR = 95.0
"""What we hold ourselves to with the same units well regularised."""


def about(records: Runs) -> str:
    """The experiment in two sentences."""
    sizes = ", ".join(map(str, runs.values(records, "cell.hidden_size")))
    names = ", ".join(models.by_model(records))
    return (
        f"Language models of one recurrent layer with {sizes} units learn to predict the next word of a text."
        f" {tables.count(len(records), 'finished run')} of {names}; lower perplexity is better."
    )


def beside(records: Runs) -> list[Block]:
    """The paper's claims, measured in its setting."""
    found = of(records, "paper")
    if not found:
        return [REPORT.missing("paper")]
    said = f"What the paper says ({paper.AUTHORS}) beside {tables.count(len(found), 'run')} in its setting"
    return [verdicts.table(paper.LM_CLAIMS, RULES, lines(records, "paper"), f"{said}, as far as it is known")]


def in_papers_setting(records: Runs) -> list[Block]:
    found = lines(records, "paper")
    return [
        results.dots("lm-paper", found, PUBLISHED),
        results.table(found, f"The paper's setting: {INTERVAL}", "GRU", PUBLISHED),
    ]


def lean(records: Runs) -> list[Block]:
    """The unit with a recurrent controller beside the full one and the GRU."""
    return _beside_paper(models.by_model([*of(records, "paper"), *of(records, "lean")]), "lean")


def keep(records: Runs) -> list[Block]:
    """Other first biases of what keeps the state."""
    found: dict[str, Runs] = {name: some for name, some in lines(records, "paper").items() if name != "LSTM"}
    for name, some in lines(records, "keep").items():
        for value in runs.values(some, "cell.keep_bias"):
            found[f"{name} (keep at {value:g})"] = runs.where(some, cell__keep_bias=value)
    return _beside_paper(found, "keep")


def _beside_paper(found: Lines, part: str) -> list[Block]:
    what = {"lean": "A recurrent controller", "keep": "Another start of keep"}[part]
    return [
        results.dots(f"lm-{part}", found),
        results.table(found, f"{what}, all else as in the paper's setting: {INTERVAL}", "MuFuRU"),
    ]


def batch20(records: Runs) -> list[Block]:
    """The setting with which the search for the paper's began."""
    return [results.table(lines(records, "batch20"), f"With batches of 20: {INTERVAL}", "GRU")]


def choices(records: Runs) -> list[Block]:
    """What each choice that the paper leaves open is worth, by cell, the paper's setting among them."""
    changed = of(records, "choices")
    seeds = runs.values(changed, "seed")
    changed += [record for record in of(records, "paper") if runs.setting(record, "seed") in seeds]
    base, missing = lines(records, "batch20"), REPORT.missing("batch20")
    return results.choice_tables(
        base, models.by_model(changed), CHOICES, missing, "with batches of 20, and with changes"
    )


def negative(records: Runs) -> list[Block]:
    """What was tried in vain; nothing where nothing was tried."""
    settings = {"paper": ("", ("keep", "lean")), "batch20": (", batches of 20", ("batch20", "choices"))}
    tried = {}
    for part, (where, others) in settings.items():
        changed = [record for other in others for record in of(records, other)]
        for name, base in models.by_model(runs.where(of(records, part), cell__controller_size=None)).items():
            cell = models.cell_of(base[0])
            same = [r for r in changed if models.cell_of(r) == cell and results.differing(base[0], r)]
            tried[f"{name}{where}"] = results.changes(base, same, CHANGES)
    return results.no_gain(tried)


def best(records: Runs) -> list[Block]:
    found = lines(records, "best")
    return [
        results.bar(found, "MuFuRU", BAR),
        results.dots("lm-best", found),
        results.table(found, f"The same 200 units, well regularised: {INTERVAL}", "GRU"),
        *dynamic.blocks(found),
    ]


def wide(records: Runs) -> list[Block]:
    """A GRU with as many parameters as MuFuRU beside both, for each setting that it was trained in."""
    blocks: list[Block] = []
    for part, title in {"batch20": "With batches of 20", "best": "Well regularised"}.items():
        wider = runs.where(of(records, "wide"), tied=part == "best")
        found: dict[str, Runs] = {n: some for n, some in lines(records, part).items() if n in ("MuFuRU", "GRU")}
        for units in runs.values(wider, "cell.hidden_size"):
            found[f"GRU ({units} units)"] = runs.where(wider, cell__hidden_size=units)
        if wider:
            blocks.append(results.table(found, f"{title}, and a GRU with more units: {INTERVAL}", "MuFuRU"))
    return blocks


def short(records: Runs) -> list[Block]:
    found = lines(records, "short")
    return [results.table(found, f"Few units, once through the text: {INTERVAL}", "GRU")]


def operations(records: Runs) -> list[Block]:
    """Weights by kind of token and by its frequency, over the validation text."""
    titles = {"paper": "Paper's setting", "best": "Well regularised", "short": "Short form"}
    panels = {title: found for part, title in titles.items() if (found := lines(records, part).get("MuFuRU"))}
    return operation_use.blocks(
        "lm-operations", panels, "the validation text, by kind of word and by its frequency rank"
    )


def curves(records: Runs) -> list[Block]:
    titles = {"paper": "Paper's setting", "best": "Well regularised", "short": "Short form"}
    found = {part: (title, lines(records, part)) for part, title in titles.items()}
    used = {title: some for title, of_part in found.values() if (some := of_part.get("MuFuRU"))}
    return [*results.learning("lm-curves", found), *operation_use.over_training("lm-use", used)]


REPORT = Report(
    "lm",
    "Language models on the Penn Treebank",
    ("lm",),
    about,
    "paper",
    {
        "paper": Part("The paper's setting", f"{COMMAND} --part paper", models.AXES, in_papers_setting),
        "lean": Part("The lean unit", f"{COMMAND} --part lean", models.AXES, lean),
        "keep": Part("Where keep starts", f"{COMMAND} --part keep", (*models.AXES, "cell.keep_bias"), keep),
        "batch20": Part("Larger batches", f"{COMMAND} --part batch20", models.AXES, batch20),
        "choices": Part("What the paper left open", f"{COMMAND} --part choices", (*models.AXES, *CHOICES), choices),
        "best": Part("Well regularised", f"{COMMAND} --part best", models.AXES, best),
        "wide": Part("As many parameters", f"{COMMAND} --part wide", (*models.AXES, "cell.hidden_size", "tied"), wide),
        "short": Part("The short form", f"{COMMAND} --short", models.AXES, short),
    },
    {"claims": View("Beside the paper", beside)},
    {
        "operations": View("Operations by kind of token", operations),
        "curves": View("Learning curves", curves),
        "negative": View("What did not help", negative),
    },
)
