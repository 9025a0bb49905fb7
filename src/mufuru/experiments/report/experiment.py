"""The report on an experiment of several parts: a page, its figures as files, and the generated parts of its docs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mufuru.disk import write_atomically
from mufuru.experiments.record import Record
from mufuru.experiments.report import markdown, models, provenance, render, runs
from mufuru.experiments.report.page import Block, Command, Page, Picture, Section
from mufuru.experiments.report.runs import Runs

SHORT = "short"
"""The part that stands for itself: it is no part of the whole, and no documentation shows it."""


@dataclass(frozen=True)
class Part:
    """A group of runs, and what is said of it."""

    title: str
    command: str
    """What makes the runs."""
    axes: tuple[str, ...]
    """What the runs differ in, the seed aside."""
    blocks: Callable[[Runs], list[Block]]
    """From all runs of the experiment, since a part may be compared with another."""


@dataclass(frozen=True)
class View:
    """What is said of runs of several parts."""

    title: str
    blocks: Callable[[Runs], list[Block]]
    documented: bool = True
    """Whether the page in docs/reproduction shows it too."""


@dataclass(frozen=True)
class Report:
    """All that is told of an experiment."""

    name: str
    """Of the folder in results/ and of the figures."""
    title: str
    tasks: tuple[str, ...]
    about: Callable[[Runs], str]
    main: str
    """The part that stands beside the paper's numbers."""
    parts: Mapping[str, Part]
    first: Mapping[str, View]
    """Before the parts; by the name of its marker in the documentation."""
    last: Mapping[str, View]
    """After them."""

    @property
    def whole(self) -> tuple[str, ...]:
        return tuple(name for name in self.parts if name != SHORT)

    def is_one_experiment(self, records: Runs) -> bool:
        """Do all runs belong to parts, are they on the paper's data, and do those of a part differ in nothing but what
        the part varies?"""
        if not records or any(r.task not in self.tasks or r.group not in self.parts for r in records):
            return False
        if not all(map(runs.on_papers_data, records)):
            return False
        places = [
            [r.task, r.group, *(runs.setting(r, name) for name in (*self.parts[r.group].axes, "seed"))] for r in records
        ]
        return len({json.dumps(place) for place in places}) == len(records)

    def page(self, records: Runs) -> Page:
        """The whole report as data; a section that has nothing to say is left out."""
        found = [Section(view.title, tuple(view.blocks(records))) for view in self.first.values()]
        found += [Section(self.parts[p].title, tuple(self.parts[p].blocks(records))) for p in self.present(records)]
        found += [Section(view.title, tuple(view.blocks(records))) for view in self.last.values()]
        found.append(Section("Settings and seeds", (self.settings(records),)))
        found.append(Section("How to rerun", tuple(self.rerun(records))))
        return Page(self.title, self.about(records), tuple(section for section in found if section.blocks))

    def present(self, records: Runs) -> list[str]:
        return [part for part in self.parts if of(records, part)]

    def settings(self, records: Runs) -> Block:
        """Every setting of every part."""
        groups: dict[str, Runs] = {part: of(records, part) for part in self.present(records)}
        return provenance.settings(groups, "Every setting, by part of the experiment. Where runs differ, all values")

    def rerun(self, records: Runs) -> list[Block]:
        """Commands, versions, and what has not been run."""
        present = self.present(records)
        blocks: list[Block] = ["These commands make the runs, and skip those that are done:"]
        blocks.append(Command("\n".join(dict.fromkeys(self.parts[part].command for part in present))))
        blocks += [self.missing(part) for part in self.whole if part not in present]
        return [*blocks, versions(records)]

    def missing(self, part: str) -> str:
        return f"Not run: {self.parts[part].title.lower()}. `{self.parts[part].command}` makes these runs."

    def build(self, records: Sequence[Record], output: Path) -> list[Path]:
        """Write the page and its figures as SVG and PNG into a folder; the paths, the page first."""
        whole = self.page(runs.unique(records))
        written = [output / "report.html"]
        for picture in pictures(whole):
            written += picture.write(output)
        write_atomically(written[0], render.render(whole).encode(errors="backslashreplace"))
        return written

    def document(self, records: Sequence[Record]) -> dict[str, str]:
        """The generated parts of the page in docs/reproduction by the names of their markers."""
        found = self.blocks(runs.unique(records))
        return {name: markdown.render(blocks, self.name) for name, blocks in found.items()}

    def blocks(self, records: Runs) -> dict[str, list[Block]]:
        """What the documentation shows, of the whole experiment alone."""
        chosen = [record for record in records if record.group in self.whole]
        views = {**self.first, **self.last}
        found: dict[str, list[Block]] = {
            name: view.blocks(chosen) if chosen else [self.missing(self.main)]
            for name, view in views.items()
            if view.documented
        }
        for name in self.whole:
            found[name] = self.parts[name].blocks(chosen) if of(chosen, name) else [self.missing(name)]
        found["settings"] = [self.settings(chosen)] if chosen else []
        found["versions"] = [versions(chosen)] if chosen else []
        return found

    def illustrate(self, records: Sequence[Record], folder: Path) -> list[Path]:
        """Write the SVG files that the parts of the documentation show."""
        shown = [b for blocks in self.blocks(runs.unique(records)).values() for b in blocks if isinstance(b, Picture)]
        paths = [folder / f"{picture.name}.svg" for picture in shown]
        for path, picture in zip(paths, shown, strict=True):
            write_atomically(path, picture.svg)
        return paths


def of(records: Runs, part: str) -> list[Record]:
    return [record for record in records if record.group == part]


def lines(records: Runs, part: str) -> dict[str, list[Record]]:
    """The runs of a part by model."""
    return models.by_model(of(records, part))


def versions(records: Runs) -> Block:
    return provenance.environment(records, "Versions, commit and machine. Where runs differ, all values")


def pictures(whole: Page) -> list[Picture]:
    return [block for section in whole.sections for block in section.blocks if isinstance(block, Picture)]
