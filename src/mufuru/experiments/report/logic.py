"""The report on the logic experiment: one page, its figures as files, and the generated parts of its documentation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mufuru.experiments.files import write_atomically
from mufuru.experiments.record import Record
from mufuru.experiments.report import claims, markdown, paper, provenance, render, runs, sections, tables
from mufuru.experiments.report.page import Block, Command, Page, Picture, Section
from mufuru.experiments.report.runs import Runs

COMMAND = "mufuru reproduce logic"


@dataclass(frozen=True)
class Part:
    """A group of runs, and what is said of it."""

    title: str
    command: str
    """What makes the runs."""
    axes: tuple[str, ...]
    """What the runs differ in, the seed aside."""
    blocks: Callable[[Runs], list[Block]]


def _solved(records: Runs) -> list[Block]:
    told = [line for cell in runs.cells(records) if (line := sections.every_size(records, cell))]
    caption = f"The paper's claims beside {tables.count(len(records), 'run')} in this setting"
    return [" ".join(told), *sections.sizes(records, "solved"), claims.table(records, caption)]


SIZES = ("cell.cell", "cell.hidden_size")
CHOICES = ("training.learning_rate", "training.batch_size", "cell.initialisation", "cell.initial_scale")
PARTS = {
    "sweep": Part(
        "Accuracy by hidden size", f"{COMMAND} --part figures", SIZES, lambda found: sections.sizes(found, "sweep")
    ),
    "short": Part(
        "Accuracy in the short form", f"{COMMAND} --short", SIZES, lambda found: sections.sizes(found, "short")
    ),
    "solved": Part("One setting for every size", f"{COMMAND} --part figures", SIZES, _solved),
    "open": Part("What the paper left open", f"{COMMAND} --part open", (*SIZES, *CHOICES), sections.open_choices),
    "ablation": Part("Fewer operations", f"{COMMAND} --part ablation", (*SIZES, "cell.ops"), sections.ablation),
}
WHOLE = ("sweep", "solved", "open", "ablation")
"""The parts of the whole experiment; the short form stands for itself."""


def of(records: Runs, part: str) -> list[Record]:
    return [record for record in records if record.group == part]


def is_one_experiment(records: Runs) -> bool:
    """Do all runs belong to parts of the experiment, and those of a part differ in nothing but what the part varies?"""
    if not records or any(record.task != "logic" or record.group not in PARTS for record in records):
        return False
    places = [[r.group, *(runs.setting(r, name) for name in (*PARTS[r.group].axes, "seed"))] for r in records]
    return len({json.dumps(place) for place in places}) == len(records)


def page(records: Runs) -> Page:
    """The whole report as data."""
    present = [part for part in PARTS if of(records, part)]
    found = [Section("Beside the paper", tuple(beside(records)))]
    for name in present:
        found.append(Section(PARTS[name].title, tuple(PARTS[name].blocks(of(records, name)))))
        if name == ("sweep" if "sweep" in present else "short"):
            found.append(Section("Operations by token", tuple(sections.operation_weights(of(records, name)))))
            found.append(Section("Learning curves", tuple(sections.learning(of(records, name)))))
    found.append(Section("Settings and seeds", (settings(records),)))
    found.append(Section("How to rerun", tuple(rerun(records))))
    return Page("Evaluating Boolean formulae", sections.about(records), tuple(found))


def main(records: Runs) -> list[Record]:
    """The runs that stand beside the paper's: the sweep, or the short form where that is all there is."""
    return of(records, "sweep") or of(records, "short")


def beside(records: Runs) -> list[Block]:
    """The paper's claims, measured."""
    blocks: list[Block] = [] if of(records, "sweep") else [missing("sweep")]
    if found := main(records):
        where = "the short form" if found[0].group == "short" else "the paper's setting, as far as it is known"
        caption = f"What the paper says ({paper.AUTHORS}) beside {tables.count(len(found), 'run')} in {where}"
        blocks.append(claims.table(found, caption))
    return blocks


def settings(records: Runs) -> Block:
    """Every setting of every part."""
    groups: dict[str, Runs] = {part: of(records, part) for part in PARTS if of(records, part)}
    return provenance.settings(groups, "Every setting, by part of the experiment. Where runs differ, all values")


def rerun(records: Runs) -> list[Block]:
    """Commands, versions, and what has not been run."""
    present = [part for part in PARTS if of(records, part)]
    blocks: list[Block] = ["These commands make the runs, and skip those that are done:"]
    blocks.append(Command("\n".join(dict.fromkeys(PARTS[part].command for part in present))))
    blocks += [missing(part) for part in WHOLE if part not in present and part != "sweep"]
    blocks.append(provenance.environment(records, "Versions, commit and machine. Where runs differ, all values"))
    return blocks


def missing(part: str) -> str:
    return f"Not run: {PARTS[part].title.lower()}. `{PARTS[part].command}` makes these runs."


def build(records: Sequence[Record], output: Path) -> list[Path]:
    """Write the page and its figures as SVG and PNG into a folder; the paths, the page first."""
    whole = page(runs.unique(records))
    written = [output / "report.html"]
    for picture in pictures(whole):
        written += picture.write(output)
    write_atomically(written[0], render.render(whole).encode())
    return written


def pictures(whole: Page) -> list[Picture]:
    return [block for section in whole.sections for block in section.blocks if isinstance(block, Picture)]


def document(records: Sequence[Record], folder: str = "logic") -> dict[str, str]:
    """The generated parts of docs/reproduction/logic.md by the names of their markers; `folder` holds the figures."""
    return {name: markdown.render(blocks, folder) for name, blocks in parts(runs.unique(records)).items()}


def parts(records: Runs) -> dict[str, list[Block]]:
    """What the documentation shows, of the whole experiment alone."""
    chosen = [record for record in records if record.group in WHOLE]
    swept = of(chosen, "sweep")
    versions = provenance.environment(chosen, "Versions, commit and machine. Where runs differ, all values")
    return {
        "claims": beside(chosen),
        **{name: PARTS[name].blocks(of(chosen, name)) if of(chosen, name) else [missing(name)] for name in WHOLE},
        "operations": sections.operation_weights(swept) if swept else [missing("sweep")],
        "settings": [settings(chosen)] if chosen else [],
        "versions": [versions] if chosen else [],
    }


def illustrate(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write the SVG files that the parts of the documentation show."""
    found = [block for blocks in parts(runs.unique(records)).values() for block in blocks if isinstance(block, Picture)]
    paths = [folder / f"{picture.name}.svg" for picture in found]
    for path, picture in zip(paths, found, strict=True):
        write_atomically(path, picture.svg)
    return paths
