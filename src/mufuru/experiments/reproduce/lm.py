"""The language-model experiment: its runs, the paper's claims and numbers, and its page."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from mufuru import PAPER
from mufuru.experiments.report import claims, inspection, results, runs
from mufuru.experiments.report.claims import Claim
from mufuru.experiments.report.experiment import Headline, View
from mufuru.experiments.report.experiment import Part as Section
from mufuru.experiments.report.measure import PERPLEXITY, paired, summarise, welch
from mufuru.experiments.report.page import Block, Table
from mufuru.experiments.report.runs import MODEL, Lines, Runs, by_model, lines, mufuru, of_part
from mufuru.experiments.reproduce.grid import Experiment, Flag, Grid, Setting, with_cell, with_training
from mufuru.experiments.tasks.cells import CellName
from mufuru.experiments.tasks.lm.config import PRESETS, LMConfig

CELLS: tuple[CellName, ...] = ("gru", "mufuru", "lstm")
CONTROLLER = 50
"""Units of the lean unit's recurrent controller: with 200 units it has a GRU's arithmetic."""
KEEPS: tuple[tuple[CellName, float], ...] = (("mufuru", 0.0), ("mufuru", 3.0), ("gru", 1.0))
"""Other initial biases of keep. MuFuRU's own is 2, the GRU's 0: each then keeps about half of the state."""
WIDE = {"batch20": 240, "best": 238}
"""Units with which a GRU has as many parameters as MuFuRU with 200, by the part that has both."""
QUARTER = 664
"""Updates between two evaluations on the validation text in the part operations: a quarter of an epoch."""
HALF = 1e-3
"""Half the learning rate of the paper's setting."""
SEEDS = {"paper": 6, "lean": 3, "batch20": 3, "operations": 6, "reset": 6, "rate": 6, "best-seeds": 2}
"""Runs of each setting, by part; 1 for the others, and for the LSTM, which is there for comparison alone."""
FIRST_SEED = {"best-seeds": 1}
"""First seed of a part whose earlier seeds are runs of other parts; 0 for the others."""
EPOCH_SECONDS = 300.0
"""About the time of one core for an epoch of the Penn Treebank with 200 units; most of it is the softmax."""
Part = Literal[
    "paper", "lean", "keep", "batch20", "choices", "best", "wide", "operations", "reset", "rate", "best-seeds"
]

SHORT = with_training(
    with_cell(PRESETS["paper"], hidden_size=50), epochs=1, batch_size=100, learning_rate=1e-2, evaluate_every=100
)
"""A quarter of the units, once through the text."""


@dataclass(frozen=True)
class LMGrid(Grid):
    """The runs of the language-model experiment on the Penn Treebank."""

    part: Part | Literal["all"] = "all"
    """paper: the paper's setting, as far as it is known. lean: MuFuRU with a recurrent controller. keep: other initial
    biases of what keeps the state. batch20: larger batches, with which the search for the paper's setting began.
    choices: settings that the paper does not state, mostly for the GRU, one change at a time. best: the same units well
    regularised. wide: a GRU with as many parameters as MuFuRU, beside batch20 and best. operations: whether operations,
    initial bias or parameters decide: seven and two operations with the same biases of keep, and both GRUs, with four
    validations an epoch. reset: the same with the reset gate after the product, as in `nn.GRU`. rate: MuFuRU and
    both GRUs with half the learning rate, which was chosen for `nn.GRU`. best-seeds: more runs of MuFuRU and both GRUs
    in best."""
    cells: tuple[CellName, ...] = CELLS
    """Cells of the parts paper, batch20 and best."""
    seeds: int | None = None
    """Runs of each setting; None for as many as a part has: 6 of paper, operations, reset and rate, 3 of lean and
    batch20, 2 of best-seeds, 1 of the others and of the LSTM."""
    short: Flag = False
    """Only GRU and MuFuRU with 50 units, once through the text: minutes on two cores."""

    def settings(self) -> Iterator[Setting]:
        for group, what, config in every_setting(self.cells):
            several = 1 if config.cell.cell == "lstm" else SEEDS.get(group, 1)
            first = FIRST_SEED.get(group, 0)
            yield Setting(group, what, "lm", config, range(first, first + (self.seeds or several)))

    @staticmethod
    def cost(config: LMConfig) -> float:
        """Return about how many seconds a run takes at most: it may stop earlier."""
        return EPOCH_SECONDS * config.training.epochs * config.cell.hidden_size / 200


def every_setting(cells: tuple[CellName, ...]) -> Iterator[tuple[str, str, LMConfig]]:
    """Return the group, the difference within it, and the settings."""
    paper, best = PRESETS["paper"], PRESETS["best"]
    larger = with_training(paper, batch_size=20)
    lean = f"mufuru-controller{CONTROLLER}"
    yield "short", "gru", with_cell(SHORT, "gru")
    yield "short", "mufuru", with_cell(SHORT, "mufuru")
    for group, base in {"paper": paper, "batch20": larger, "best": best}.items():
        for cell in cells:
            yield group, cell, with_cell(base, cell)
        if "mufuru" in cells and group != "paper":
            yield group, lean, with_cell(base, "mufuru", controller_size=CONTROLLER)
    yield "lean", lean, with_cell(paper, "mufuru", controller_size=CONTROLLER)
    for cell, value in KEEPS:
        yield "keep", f"{cell}-keep{value:g}", with_cell(paper, cell, keep_bias=value)
        yield "choices", f"{cell}-keep{value:g}", with_cell(larger, cell, keep_bias=value)
    for what, config in with_choices(with_cell(larger, "gru")):
        yield "choices", f"gru-{what}", config
    yield "choices", "gru-batch10-lr0.001", with_training(with_cell(paper, "gru"), learning_rate=1e-3)
    yield "choices", "mufuru-lr0.001", with_training(with_cell(larger, "mufuru"), learning_rate=1e-3)
    if "mufuru" in cells:
        # not without regularisation: with batches of 20 all seeds diverge
        with_relu = with_cell(best, "mufuru", controller_size=CONTROLLER, controller_activation="relu")
        yield "best", f"{lean}-relu", with_relu
    for part, config in {"batch20": larger, "best": best}.items():
        yield "wide", f"gru-{part}", wider(with_cell(config, "gru"), WIDE[part])
    # two epochs of patience, as in the paper's setting
    often = with_training(paper, evaluate_every=QUARTER, patience=8)
    for what, config in with_operations(often):
        yield "operations", what, config
    for what, config in with_reset(often):
        yield "reset", what, config
    for what, config in with_operations(with_training(often, learning_rate=HALF)):
        if what in ("mufuru-keep2", "paper-gru-keep0", "gru"):
            yield "rate", what, config
    yield "best-seeds", "mufuru", with_cell(best, "mufuru")
    yield "best-seeds", "gru", with_cell(best, "gru")
    yield "best-seeds", f"gru-{WIDE['best']}", wider(with_cell(best, "gru"), WIDE["best"])


def with_operations(config: LMConfig) -> Iterator[tuple[str, LMConfig]]:
    """Return seven operations and two (the paper's GRU) from each start of keep, `nn.GRU`, and one of MuFuRU's size."""
    for keep in (2.0, 0.0):
        yield f"mufuru-keep{keep:g}", with_cell(config, "mufuru", keep_bias=keep)
        yield f"paper-gru-keep{keep:g}", with_cell(config, "mufuru", keep_bias=keep, ops=("keep", "replace"))
    units = WIDE["batch20"]
    yield "gru", with_cell(config, "gru")
    yield f"gru-{units}", wider(with_cell(config, "gru"), units)


def with_reset(config: LMConfig) -> Iterator[tuple[str, LMConfig]]:
    """Return MuFuRU and the paper's GRU with the reset gate after the product, and that GRU with a first bias of 0 too:
    but for a redundant logit and first biases of at most 0.1 it is `nn.GRU`."""
    two: dict[str, Any] = {"ops": ("keep", "replace"), "keep_bias": 0.0, "reset": "after"}
    yield "mufuru-after", with_cell(config, "mufuru", keep_bias=2.0, reset="after")
    yield "paper-gru-after", with_cell(config, "mufuru", **two)
    yield "paper-gru-after-bias0", with_cell(config, "mufuru", **two, reset_bias=0.0)


def wider(config: LMConfig, units: int) -> LMConfig:
    """Return a setting with more units, and embeddings as before unless the softmax uses them too."""
    kept = None if config.tied else config.features
    return replace(config, cell=replace(config.cell, hidden_size=units), embedding_size=kept)


def with_choices(config: LMConfig) -> Iterator[tuple[str, LMConfig]]:
    """Return one change at a time of the choices that the paper leaves open. Batches of 10 are the paper's setting."""
    for rate in (5e-4, 1e-3, 4e-3):
        yield f"lr{rate:g}", with_training(config, learning_rate=rate)
    for batch in (5, 40):
        yield f"batch{batch}", with_training(config, batch_size=batch)
    yield "window70", replace(config, bptt=70)
    yield "clip1", with_training(config, clip=1.0)
    yield "clip-none", with_training(config, clip=None)
    yield "start-default", with_cell(config, initialisation="default")


SIZES = (200, WIDE["batch20"])
"""Units of the GRUs in the part operations."""
NARROW, LARGE = (f"nn.GRU, {units} units" for units in SIZES)
CHANGED = {
    "seven operations instead of two": ("seven operations, keep at 2", "two operations, keep at 2"),
    "the same where all start alike": ("seven operations, keep at 0", "two operations, keep at 0"),
    "keep at 2 instead of 0, seven operations": ("seven operations, keep at 2", "seven operations, keep at 0"),
    "keep at 2 instead of 0, two operations": ("two operations, keep at 2", "two operations, keep at 0"),
    "the paper's GRU instead of nn.GRU": ("two operations, keep at 0", NARROW),
    "a GRU of MuFuRU's size": (LARGE, NARROW),
    "MuFuRU instead of a GRU of its size": ("seven operations, keep at 2", LARGE),
}
"""Comparisons in the part operations, by the two models. The first four differ in one thing; the paper's GRU differs
from `nn.GRU` in the place of the reset gate, the first biases and a logit to spare."""
MOVED = {
    "two operations, the reset gate after the product": ("two operations, after", "two operations, keep at 0"),
    "then its first bias at 0": ("two operations, after, bias 0", "two operations, after"),
    "a redundant logit": ("two operations, after, bias 0", NARROW),
    "seven operations, the reset gate after the product": ("seven operations, after", "seven operations, keep at 2"),
    "this instead of a GRU of its size": ("seven operations, after", LARGE),
}
"""Comparisons in the part reset, of which each of the first four differs in one thing."""
SLOWED = {
    "half the rate, seven operations": ("seven operations, 0.001", "seven operations, keep at 2"),
    "half the rate, two operations": ("two operations, 0.001", "two operations, keep at 0"),
    "half the rate, nn.GRU": ("nn.GRU, 0.001", NARROW),
    "seven operations instead of two, half the rate": ("seven operations, 0.001", "two operations, 0.001"),
    "MuFuRU instead of nn.GRU, half the rate": ("seven operations, 0.001", "nn.GRU, 0.001"),
}
"""Comparisons in the part rate."""
PUBLISHED = {"GRU": 123.0, "MuFuRU": 119.7}
SLACK = 2.5
"""A perplexity that misses the paper's by at most this, about 2 %, reproduces it in part."""
BAR = 95.0
"""Our own bar for the same units well regularised."""
CHOICES = {
    "training.learning_rate": "learning rate",
    "training.batch_size": "batch size",
    "bptt": "window",
    "training.clip": "clipping",
    "cell.initialisation": "first weights",
    "cell.keep_bias": "keep's first bias",
}
"""Settings that the paper leaves open, in the order of the table."""
CHANGES = CHOICES | {"cell.controller_size": "controller of"}
"""Settings that runs beside the paper's setting change."""
TITLES = {"paper": "Paper's setting", "best": "Well regularised", "short": "Short form"}
"""Parts whose operations and learning curves are shown."""
reaches = partial(claims.reaches, slack=SLACK, measure=PERPLEXITY)
CLAIMS: tuple[Claim[Lines], ...] = (
    Claim("The GRU with a testset perplexity of 123.0", "4.2", *reaches("GRU", PUBLISHED["GRU"])),
    Claim("the MuFuRU with a perplexity of 119.7", "4.2", *reaches("MuFuRU", PUBLISHED["MuFuRU"])),
    Claim("The GRU […] was outperformed by the MuFuRU", "4.2", *claims.ahead("MuFuRU", "GRU", PERPLEXITY)),
    Claim(
        "the MuFuRU should be at least as good at modeling sequences as the GRU",
        "4.2",
        *claims.as_good("MuFuRU", "GRU", PERPLEXITY),
    ),
)


in_papers_setting = results.section("paper", PERPLEXITY, "The paper's setting", "lm-paper", PUBLISHED)


def batch20(records: Runs) -> list[Block]:
    """Return the setting with which the search for the paper's began, and both together."""
    return [*results.section("batch20", PERPLEXITY, "With batches of 20")(records), pooled(records)]


def pooled(records: Runs) -> str:
    """Describe MuFuRU minus GRU over both batch sizes: pairs share the batch size, and no more than that."""
    values = [
        difference
        for part in ("paper", "batch20")
        if (pair := paired(*(PERPLEXITY.by_seed(lines(records, part).get(name, ())) for name in ("MuFuRU", "GRU"))))
        for difference in pair.values
    ]
    if len(values) < 2:
        return ""
    change = PERPLEXITY.change(summarise(values))
    return f"Both batch sizes together, MuFuRU minus GRU in {len(values)} pairs of the same batch size: {change}."


short = results.section("short", PERPLEXITY, "Few units, once through the text")


def lean(records: Runs) -> list[Block]:
    """Return the unit with a recurrent controller beside the full one and the GRU."""
    models = by_model([*of_part(records, "paper"), *of_part(records, "lean")])
    caption = "A recurrent controller, all else as in the paper's setting"
    return results.models(models, PERPLEXITY, caption, "lm-lean", "MuFuRU")


def keep(records: Runs) -> list[Block]:
    """Return other initial biases of keep."""
    models = {name: some for name, some in lines(records, "paper").items() if name != "LSTM"}
    models |= runs.split(lines(records, "keep"), "cell.keep_bias", "keep at {:g}")
    caption = "Another start of keep, all else as in the paper's setting"
    return results.models(models, PERPLEXITY, caption, "lm-keep", "MuFuRU")


def choices(records: Runs) -> list[Block]:
    """Return the effect of each choice that the paper leaves open, by cell, the paper's setting among them."""
    changed = of_part(records, "choices")
    seeds = runs.values(changed, "seed")
    changed += [record for record in of_part(records, "paper") if runs.setting(record, "seed") in seeds]
    setting = "with batches of 20, and with changes"
    return EXPERIMENT.effects(records, "batch20", by_model(changed), CHOICES, setting)


def negative(records: Runs) -> list[Block]:
    """Return the changes that did not help; nothing where nothing was tried."""
    tried = {}
    for part, where, others in (
        ("paper", "", ("keep", "lean")),
        ("batch20", ", batches of 20", ("batch20", "choices")),
    ):
        changed = [record for other in others for record in of_part(records, other)]
        for name, base in by_model(runs.where(of_part(records, part), cell__controller_size=None)).items():
            cell = runs.cell_of(base[0])
            same = [r for r in changed if runs.cell_of(r) == cell and runs.differing(base[0], r)]
            tried[f"{name}{where}"] = results.changes(base, same, CHANGES)
    return results.no_gain(tried, PERPLEXITY)


def best(records: Runs) -> list[Block]:
    models = lines(records, "best")
    section = results.section("best", PERPLEXITY, "The same 200 units, well regularised", "lm-best")
    return [results.bar(models, PERPLEXITY, BAR), *section(records), *results.dynamic(models)]


def wide(records: Runs) -> list[Block]:
    """Return a GRU with as many parameters as MuFuRU beside both, for each setting that it was trained in."""
    blocks: list[Block] = []
    for part, title in {"batch20": "With batches of 20", "best": "Well regularised"}.items():
        wider = runs.where(of_part(records, "wide"), tied=part == "best")
        models = {name: some for name, some in lines(records, part).items() if name in ("MuFuRU", "GRU")}
        models |= runs.split({"GRU": wider}, "cell.hidden_size", "{} units")
        if wider:
            blocks += results.models(models, PERPLEXITY, f"{title}, and a GRU with more units", against="MuFuRU")
    return blocks


def more_seeds(records: Runs) -> list[Block]:
    """Return every run of MuFuRU, the GRU of its units and the GRU of its size, well regularised."""
    made = [r for part in ("best", "wide", "best-seeds") for r in runs.where(of_part(records, part), tied=True)]
    models = by_model(r for r in runs.where(made, cell__controller_size=None) if runs.cell_of(r) in ("mufuru", "gru"))
    models |= runs.split({"GRU": models.pop("GRU", [])}, "cell.hidden_size", "{} units")
    return results.models(models, PERPLEXITY, "Three seeds, well regularised", "lm-best-seeds", "MuFuRU")


def sources(records: Runs) -> Lines:
    """Return the runs of the part operations by model."""
    made = of_part(records, "operations")
    sets = {"seven operations": [*PAPER], "two operations": ["keep", "replace"]}
    models = {
        f"{name}, keep at {keep}": runs.where(made, cell__cell="mufuru", cell__ops=ops, cell__keep_bias=keep)
        for name, ops in sets.items()
        for keep in (2, 0)
    }
    for name, units in zip((NARROW, LARGE), SIZES, strict=True):
        models[name] = runs.where(made, cell__cell="gru", cell__hidden_size=units)
    return present(models)


def deciding(records: Runs) -> list[Block]:
    """Return the models that tell operations, start and parameters apart, and how they differ."""
    models = sources(records)
    setting = "The paper's setting with four validations an epoch"
    return [*results.models(models, PERPLEXITY, setting, "lm-deciding", NARROW), compared(models, CHANGED)]


def moved(records: Runs) -> list[Block]:
    """Return the models whose reset gate is after the product beside those of the part operations."""
    made = of_part(records, "reset")
    models = {
        "seven operations, after": runs.where(made, cell__ops=[*PAPER]),
        "two operations, after": runs.where(made, cell__ops=["keep", "replace"], cell__reset_bias=None),
        "two operations, after, bias 0": runs.where(made, cell__reset_bias=0),
    }
    beside = ("seven operations, keep at 2", "two operations, keep at 0", NARROW, LARGE)
    lines = present(models | {name: sources(records).get(name, ()) for name in beside})
    setting = "The reset gate after the product, with four validations an epoch"
    return [*results.models(lines, PERPLEXITY, setting, "lm-reset", NARROW), compared(lines, MOVED)]


def slowed(records: Runs) -> list[Block]:
    """Return MuFuRU, the paper's GRU and `nn.GRU` with half the learning rate beside those of the part operations."""
    made = of_part(records, "rate")
    models = {
        "seven operations, 0.001": runs.where(made, cell__cell="mufuru", cell__ops=[*PAPER]),
        "two operations, 0.001": runs.where(made, cell__cell="mufuru", cell__ops=["keep", "replace"]),
        "nn.GRU, 0.001": runs.where(made, cell__cell="gru"),
    }
    beside = ("seven operations, keep at 2", "two operations, keep at 0", NARROW)
    lines = present(models | {name: sources(records).get(name, ()) for name in beside})
    setting = "A learning rate of 0.001 and, below, of 0.002, with four validations an epoch"
    return [*results.models(lines, PERPLEXITY, setting, "lm-rate", NARROW), compared(lines, SLOWED)]


def present(lines: Lines) -> Lines:
    return {name: some for name, some in lines.items() if some}


def compared(models: Lines, changes: Mapping[str, tuple[str, str]]) -> Table:
    """Return how the two models of each change differ, and whether that is sure."""
    rows = []
    for change, (one, other) in changes.items():
        pair = models.get(one, ()), models.get(other, ())
        splits = (PERPLEXITY.change(PERPLEXITY.difference(*pair, split)) for split in ("test", "valid"))
        rows.append((change, f"{one} minus {other}", *splits, conclusion(*pair, len(changes))))
    caption = (
        "Change of perplexity and its 95 % interval (Welch's t). Better or worse on the test text: with "
        f"{claims.FEWEST} runs of each or more, and surely so among {len(changes)} comparisons (Bonferroni)"
    )
    head = ("change", "models", f"test {PERPLEXITY.name}", f"validation {PERPLEXITY.name}", "this is")
    return Table(caption, head, tuple(rows))


def conclusion(one: Runs, other: Runs, comparisons: int) -> str:
    """Return whether the first is surely better or worse, also as one of several comparisons."""
    here, there = ([*PERPLEXITY.by_seed(some).values()] for some in (one, other))
    if min(len(here), len(there)) < claims.FEWEST:
        return "too few runs"
    bounds = welch(here, there, 1 - 0.05 / comparisons).interval()
    return "not sure" if bounds is None or bounds[0] <= 0 <= bounds[1] else "better" if bounds[1] < 0 else "worse"


def operations(records: Runs) -> list[Block]:
    """Return weights by kind of token and by its frequency, over the validation text."""
    where = "the validation text, by kind of word and by its frequency rank"
    return inspection.use("lm-operations", mufuru(records, TITLES), where)


def curves(records: Runs) -> list[Block]:
    parts = {part: (title, lines(records, part)) for part, title in TITLES.items()}
    used = inspection.over_training("lm-use", mufuru(records, TITLES))
    return [*results.learning("lm-curves", parts, PERPLEXITY), *used]


EXPERIMENT: Experiment = Experiment(
    "lm",
    "Language models on the Penn Treebank",
    ("lm",),
    PERPLEXITY,
    MODEL,
    "Language models of one recurrent layer learn to predict the next word of a text; lower perplexity is better.",
    "paper",
    {
        "claims": View("Compared with the paper", lambda r: EXPERIMENT.beside(r, CLAIMS, lines(r, "paper"))),
        "paper": Section("The paper's setting", in_papers_setting, heading="The paper's setting"),
        "lean": Section("The lean unit", lean, heading="With a recurrent controller"),
        "keep": Section("Where keep starts", keep, varies=("cell.keep_bias",), heading="Another start of keep"),
        "batch20": Section("Larger batches", batch20, heading="With batches of 20"),
        "choices": Section("What the paper left open", choices, varies=(*CHOICES,)),
        "best": Section("Well regularised", best, heading="Well regularised"),
        "wide": Section("As many parameters", wide, varies=("cell.hidden_size", "tied")),
        "best-seeds": Section(
            "Three seeds, well regularised",
            more_seeds,
            varies=("cell.hidden_size",),
            heading="Three seeds, well regularised",
        ),
        "operations": Section(
            "Operations, start or size",
            deciding,
            varies=("cell.ops", "cell.keep_bias", "cell.hidden_size", "embedding_size"),
            heading="Operations, start or size",
        ),
        "reset": Section(
            "Place of the reset gate",
            moved,
            varies=("cell.ops", "cell.keep_bias", "cell.reset_bias"),
            heading="The reset gate after the product",
        ),
        "rate": Section(
            "Half the learning rate",
            slowed,
            varies=("cell.ops", "cell.keep_bias"),
            heading="Half the learning rate",
        ),
        "short": Section("The short form", short, heading="Once through the text"),
        "use": View("Operations by kind of token", operations),
        "curves": View("Learning curves", curves),
        "negative": View("What did not help", negative),
    },
    # not the part best: it has one run of each, and the GRU of MuFuRU's size is nearer than the GRU of its units
    (Headline("Penn Treebank, 200 units", PERPLEXITY, "paper"),),
    PUBLISHED,
    "4.2",
    grid=LMGrid,
    example="paper --cells mufuru gru --record results/lm",
    unfinished=frozenset({"reset", "rate", "best-seeds"}),
)
