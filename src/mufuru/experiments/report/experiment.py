"""The report on an experiment of several parts: a page, its figures as files, and the generated parts of its docs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mufuru.disk import write_atomically
from mufuru.experiments.record import Record
from mufuru.experiments.report import claims as judgement
from mufuru.experiments.report import provenance, render, runs
from mufuru.experiments.report.claims import AUTHORS, Claim, Evidence, Number
from mufuru.experiments.report.measure import Measure
from mufuru.experiments.report.page import MISSING, Block, Command, Page, Picture, Section, Table, count
from mufuru.experiments.report.runs import Runs, of_part

SHORT = "short"
"""The part that stands for itself: it is no part of the whole, and no documentation shows it."""
Blocks = Callable[[Runs], list[Block]]
"""From all runs of an experiment, since a part may be compared with another."""


@dataclass(frozen=True)
class Part:
    """A group of runs, and its section of the page."""

    title: str
    blocks: Blocks
    varies: tuple[str, ...] = ()
    """Settings in which its runs differ, besides those of the experiment."""
    heading: str = ""
    """Title of its table in the terminal; empty for none."""
    option: str = ""
    """Value of --part that makes its runs; empty for the part's name."""


@dataclass(frozen=True)
class View:
    """A section of the page that is about runs of several parts."""

    title: str
    blocks: Blocks
    documented: bool = True
    """Whether the page in docs/reproduction shows it too."""


@dataclass(frozen=True)
class Headline:
    """A row of the table on the first page: the test results of GRU and MuFuRU in one setting."""

    title: str
    measure: Measure
    choose: Callable[[Runs, str], Runs]
    """The runs of a cell, from all runs of the experiment."""
    published: bool = True
    """Whether it is a setting of the paper's."""


@dataclass(frozen=True)
class Report:
    """The report on an experiment."""

    name: str
    """Name of the command, of the folder in results/ and of the page."""
    title: str
    tasks: tuple[str, ...]
    measure: Measure
    varies: tuple[str, ...]
    """Settings in which the runs of every part may differ, besides the seed."""
    about: Callable[[Runs], str]
    main: str
    """The part that stands beside the paper's numbers."""
    parts: Mapping[str, Part]
    first: Mapping[str, View]
    """Sections before the parts, by the name of the marker in the documentation."""
    last: Mapping[str, View]
    """Sections after them."""
    headlines: tuple[Headline, ...]
    numbers: tuple[Number, ...] = ()
    """The paper's results."""
    operations: Blocks | None = None
    """Operations of runs that differ in their seed alone, on a page of any runs; None for those of every task."""

    @property
    def whole(self) -> tuple[str, ...]:
        return tuple(name for name in self.parts if name != SHORT)

    @property
    def published(self) -> dict[str, float]:
        """The paper's results by model."""
        return {number.model: number.value for number in self.numbers}

    def command(self, part: str) -> str:
        """Return the command that makes the runs of a part."""
        return f"mufuru reproduce {self.name} --{SHORT if part == SHORT else f'part {self.parts[part].option or part}'}"

    def is_one_experiment(self, records: Runs) -> bool:
        """Return whether all runs belong to parts, are on the paper's data, and differ within a part only in what the
        part varies."""
        if not records or any(r.task not in self.tasks or r.group not in self.parts for r in records):
            return False
        if not all(map(runs.on_papers_data, records)):
            return False
        names = {part: (*self.varies, *self.parts[part].varies, "seed") for part in self.parts}
        places = [[r.task, r.group, *(runs.setting(r, name) for name in names[r.group])] for r in records]
        return len({json.dumps(place) for place in places}) == len(records)

    def page(self, records: Runs) -> Page:
        """Return the whole report; a section that has nothing to say is left out."""
        shown: list[Part | View] = [*self.first.values()]
        shown += [self.parts[part] for part in self.present(records)]
        shown += self.last.values()
        sections = [Section(one.title, tuple(one.blocks(records))) for one in shown]
        sections.append(Section("Settings and seeds", (self.settings(records),)))
        sections.append(Section("How to rerun", tuple(self.rerun(records))))
        return Page(self.title, self.about(records), tuple(section for section in sections if section.blocks))

    def present(self, records: Runs) -> list[str]:
        return [part for part in self.parts if of_part(records, part)]

    def settings(self, records: Runs) -> Block:
        """Return every setting of every part."""
        groups = {part: of_part(records, part) for part in self.present(records)}
        return provenance.settings(groups, "Every setting, by part of the experiment. Where runs differ, all values")

    def rerun(self, records: Runs) -> list[Block]:
        """Return commands, versions, and the parts that have not been run."""
        present = self.present(records)
        blocks: list[Block] = ["These commands make the runs, and skip those that are done:"]
        blocks.append(Command("\n".join(dict.fromkeys(map(self.command, present)))))
        blocks += [self.missing(part) for part in self.whole if part not in present]
        return [*blocks, provenance.environment(records)]

    def missing(self, part: str) -> str:
        return f"Not run: {self.parts[part].title.lower()}. `{self.command(part)}` makes these runs."

    def beside(self, records: Runs, claims: Sequence[Claim[Evidence]], evidence: Evidence) -> list[Block]:
        """Return the paper's claims, measured in its setting."""
        several = len(of_part(records, self.main))
        caption = (
            f"What the paper says ({AUTHORS}) beside {count(several, 'run')} in its setting, as far as it is known"
        )
        return [judgement.table(claims, evidence, caption) if several else self.missing(self.main)]

    def build(self, records: Sequence[Record], output: Path) -> list[Path]:
        """Write the page and its figures as SVG and PNG into a folder; return the paths, the page first."""
        page = self.page(runs.unique(records))
        written = [output / "report.html", *(path for picture in page.pictures for path in picture.write(output))]
        write_atomically(written[0], render.html(page))
        return written

    def document(self, records: Sequence[Record]) -> dict[str, str]:
        """Return the generated parts of the page in docs/reproduction by the names of their markers."""
        parts = self.blocks(runs.unique(records))
        return {name: render.markdown(blocks, self.name) for name, blocks in parts.items()}

    def blocks(self, records: Runs) -> dict[str, list[Block]]:
        """Return the content of the documentation: the whole experiment alone."""
        chosen = [record for record in records if record.group in self.whole]
        parts: dict[str, list[Block]] = {
            name: view.blocks(chosen) if chosen else [self.missing(self.main)]
            for name, view in {**self.first, **self.last}.items()
            if view.documented
        }
        for name in self.whole:
            parts[name] = self.parts[name].blocks(chosen) if of_part(chosen, name) else [self.missing(name)]
        parts["settings"] = [self.settings(chosen)] if chosen else []
        parts["versions"] = [provenance.environment(chosen)] if chosen else []
        return parts

    def illustrate(self, records: Sequence[Record], folder: Path) -> list[Path]:
        """Write the SVG files that the parts of the documentation show."""
        shown = [b for blocks in self.blocks(runs.unique(records)).values() for b in blocks if isinstance(b, Picture)]
        paths = [folder / f"{picture.name}.svg" for picture in shown]
        for path, picture in zip(paths, shown, strict=True):
            write_atomically(path, picture.svg)
        return paths


def of_model(part: str) -> Callable[[Runs, str], Runs]:
    """Return how a headline chooses its runs: all of a cell in a part."""
    return lambda records, cell: runs.lines(records, part).get(runs.name(cell), [])


def headline(reports: Sequence[Report], records: Mapping[str, Runs]) -> Table:
    """Return every experiment in its main settings beside the paper's numbers: mean and 95 % interval."""
    cells = {cell: runs.name(cell) for cell in ("gru", "mufuru")}
    rows = []
    for report in reports:
        for row in report.headlines:
            numbers = report.published if row.published else {}
            stated = [f"{numbers[name]:.1f}" if name in numbers else "no number" for name in cells.values()]
            chosen = [row.choose(records.get(report.name, ()), cell) for cell in cells]
            measured = [row.measure.interval(row.measure.summary(some)) if some else MISSING for some in chosen]
            rows.append((f"{row.title}: {row.measure.name}", *stated, *measured))
    head = [f"{name}, {where}" for where in ("paper", "here") for name in cells.values()]
    return Table("", ("test results", *head), tuple(rows))
