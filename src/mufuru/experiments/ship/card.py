"""The model card of a run, written from its record: the model, its metrics, how it was made and how to use it."""

from collections.abc import Mapping
from typing import Any

from mufuru.experiments.record import Record
from mufuru.experiments.tasks import KINDS
from mufuru.experiments.tasks.models import TaskModel, head, settings_table, use, without_paths
from mufuru.experiments.tasks.words import CLASSES
from mufuru.saving.card import PAPER, page, table

SPLITS = ("train", "valid", "test")
MADE_WITH = ("mufuru", "commit", "torch", "python", "platform", "kernel")
ROWS = 20
"""Maximum classes of tokens in the table of operations."""


def card(record: Record, model: TaskModel, name: str) -> str:
    """Return the README.md of a run's model."""
    parts = [f"# {name}", summary(record), use(model), metrics(record), operations(record), pruned(record)]
    parts += [settings_table(without_paths(record.config)), made_with(record)]
    return page(machine_head(record, name), *filter(None, parts))


def machine_head(record: Record, name: str) -> dict[str, Any]:
    """Return the part for machines: the Hub lists the test metrics."""
    more: dict[str, Any] = {}
    if tag := KINDS[record.task].card.pipeline(record.config):
        more["pipeline_tag"] = tag
    if test := record.result.get("test"):
        results = {
            "task": {"type": tag or "other"},
            "dataset": {"type": record.task, "name": data_of(record), "split": "test"},
            "metrics": [{"type": metric, "value": value} for metric, value in test.items()],
        }
        more["model-index"] = [{"name": name, "results": [results]}]
    return head(**more)


def summary(record: Record) -> str:
    cell = record.config["cell"]
    what = KINDS[record.task].card.noun or f"model of the task {record.task}"
    size = f"{record.result['parameters']:,} parameters, " if "parameters" in record.result else ""
    ops = f", operations {', '.join(cell['ops'])}" if cell["cell"] == "mufuru" else ""
    layer = f"{cell.get('num_layers', 1)} layer(s) of {cell['hidden_size']} {cell['cell']} units{ops}"
    return f"A {what}: {size}{layer}. Trained on {data_of(record)}.\n\nThe unit: {PAPER}."


def data_of(record: Record) -> str:
    """Name the training data, without folders of the machine."""
    if description := record.result.get("inspection", {}).get("data"):
        return str(description)
    data = without_paths(record.config.get("data", {}))
    files = data.get("text") or data.get("data")
    if files:
        return ", ".join(files) if isinstance(files, list) else str(files)
    return KINDS[record.task].card.data or f"the data of the task {record.task}"


def metrics(record: Record) -> str:
    splits = {split: record.result[split] for split in SPLITS if record.result.get(split)}
    return f"## Metrics\n\n{by_split(splits)}" if splits else ""


def by_split(splits: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table with a row per data set and a column per metric."""
    names = list(dict.fromkeys(name for row in splits.values() for name in row))
    return table(("data", *names), [(split, *map(number, map(row.get, names))) for split, row in splits.items()])


def operations(record: Record) -> str:
    """Return the mean weight of each operation by class of the token that the unit reads."""
    weights = record.result.get("inspection", {}).get("operation_weights")
    if not weights:
        return ""
    rows = [(token, row) for token, row in zip(weights["tokens"], weights["weight"], strict=True) if row is not None]
    if set(weights["tokens"]) <= set(CLASSES) and record.config.get("data", {}).get("data"):
        # classes of words that matter to sentiment in English say nothing of someone's own texts
        counts, columns = weights["counts"], zip(*weights["weight"], strict=True)
        rows = [("all", [sum(w * n for w, n in zip(one, counts, strict=True)) / sum(counts) for one in columns])]
    text = "The mean weight of each operation in the first layer, by the token that it reads."
    # a token such as <eos> is no tag of a page
    shown = [(token.replace("<", "&lt;"), *map(number, row)) for token, row in rows[:ROWS]]
    return f"## Operations\n\n{text}\n\n{table(('', *weights['ops']), shown)}"


def pruned(record: Record) -> str:
    about = record.result.get("pruned")
    if not about:
        return ""
    text = (
        f"Without the operations {', '.join(about['dropped'])}, which were dropped after training: over the "
        f"{about['split']} data their {about['measure']} weight stayed under {about['threshold']:g}. Metrics before:"
    )
    return f"## Pruned\n\n{text}\n\n{by_split(about['before'])}"


def made_with(record: Record) -> str:
    """Versions, commit, command and length of the training."""
    facts = {name: record.environment.get(name) for name in MADE_WITH}
    facts["command"] = " ".join(record.environment.get("command") or ()) or None
    facts |= {name: record.result.get(name) for name in ("updates", "epochs")}
    rows = [(name, f"`{value}`") for name, value in facts.items() if value is not None]
    return f"## Made with\n\n{table(('', ''), rows)}"


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
