"""The report on an experiment of several parts: a page, its figures as files, and the generated parts of its docs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mufuru.disk import write_atomically
from mufuru.experiments.record import Record
from mufuru.experiments.report import claims as judgement
from mufuru.experiments.report import plots, render, results, runs
from mufuru.experiments.report.claims import AUTHORS, WHICH_GRU, Claim, Evidence
from mufuru.experiments.report.measure import Measure
from mufuru.experiments.report.page import MISSING, Block, Command, Page, Picture, Section, Table, count
from mufuru.experiments.report.results import parameters
from mufuru.experiments.report.runs import Runs, of_part

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS = "Settings and seeds"
SHORT = "short"
"""The part for a quick try: it is not in the whole, and no documentation shows it."""
Blocks = Callable[[Runs], list[Block]]
"""From all runs of an experiment, since a part may be compared with another."""


@dataclass(frozen=True)
class View:
    """A section of the page that is about runs of several parts."""

    title: str
    blocks: Blocks
    documented: bool = True
    """Whether the page in docs/reproduction shows it too."""


@dataclass(frozen=True)
class Part(View):
    """A group of runs, and its section of the page."""

    varies: tuple[str, ...] = ()
    """Settings in which its runs differ, besides those of the experiment."""
    heading: str = ""
    """Title of its table in the terminal; empty for none."""
    option: str = ""
    """Value of --part that makes its runs; empty for the part's name."""


@dataclass(frozen=True)
class Headline:
    """A row of the table on the first page: the test results of GRU and MuFuRU in a part."""

    title: str
    measure: Measure
    part: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The runs of the part that count, by settings."""


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
    about: str
    """The experiment in a sentence."""
    main: str
    """The part that is compared with the paper's numbers."""
    sections: Mapping[str, View]
    """In the order of the page, by the name of the part or of the marker in the documentation."""
    headlines: tuple[Headline, ...]
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The paper's results by model."""
    place: str = ""
    """Their place in the paper."""
    unfinished: frozenset[str] = frozenset()
    """Parts whose runs are still being made: results/ may hold some of them, and no documentation shows them. Also
    `part/value`: the runs of a part with a value of the setting `piece`."""
    piece: str = ""
    """Setting whose values are published one by one, each when all its runs are made; empty for parts as a whole."""
    operations: Blocks | None = None
    """Operations of runs that differ in their seed alone, on a page of any runs; None for those of every task."""

    @property
    def parts(self) -> dict[str, Part]:
        return {name: part for name, part in self.sections.items() if isinstance(part, Part)}

    @property
    def whole(self) -> list[str]:
        """Names of the parts that documentation shows."""
        return [name for name in self.parts if name != SHORT and name not in self.unfinished]

    def is_published(self, record: Record) -> bool:
        """Return whether the documentation shows a run."""
        return (
            record.group in self.whole and f"{record.group}/{runs.setting(record, self.piece)}" not in self.unfinished
        )

    def command(self, part: str) -> str:
        """Return the command that makes the runs of a part."""
        return f"mufuru reproduce {self.name} --{SHORT if part == SHORT else f'part {self.parts[part].option or part}'}"

    def is_one_experiment(self, records: Runs) -> bool:
        """Return whether all runs belong to parts, are on the paper's data, and differ within a part only in what the
        part varies."""
        names = {name: (*self.varies, *part.varies, "seed") for name, part in self.parts.items()}
        if not all(r.task in self.tasks and r.group in names and runs.on_papers_data(r) for r in records):
            return False
        places = [[r.task, r.group, *(runs.setting(r, name) for name in names[r.group])] for r in records]
        return len({json.dumps(place) for place in places}) == len(records) > 0

    def page(self, records: Runs) -> Page:
        """Return the whole report; an empty section is left out."""
        absent = self.parts.keys() - self.present(records)
        shown = [section for name, section in self.sections.items() if name not in absent]
        sections = [
            *(Section(section.title, tuple(section.blocks(records))) for section in shown),
            Section(SETTINGS, (self.settings(records),)),
            Section("How to rerun", tuple(self.rerun(records))),
        ]
        about = f"{self.about} {count(len(records), 'finished run')} of {', '.join(runs.by_model(records))}."
        return Page(self.title, about, tuple(section for section in sections if section.blocks))

    def present(self, records: Runs) -> list[str]:
        return [part for part in self.parts if of_part(records, part)]

    def settings(self, records: Runs) -> Block:
        """Return every setting of every part."""
        groups = {part: of_part(records, part) for part in self.present(records)}
        return results.settings(groups, "Every setting, by part of the experiment. Where runs differ, all values")

    def rerun(self, records: Runs) -> list[Block]:
        """Return commands, versions, and the parts that have not been run."""
        present = self.present(records)
        blocks: list[Block] = ["These commands make the runs, and skip those that are done:"]
        blocks.append(Command("\n".join(dict.fromkeys(map(self.command, present)))))
        blocks += [self.missing(part) for part in self.whole if part not in present]
        return [*blocks, results.environment(records)]

    def missing(self, part: str) -> str:
        return f"Not run: {self.parts[part].title.lower()}. `{self.command(part)}` makes these runs."

    def beside(self, records: Runs, claims: Sequence[Claim[Evidence]], evidence: Evidence) -> list[Block]:
        """Return the paper's claims, measured in its setting."""
        several = len(of_part(records, self.main))
        gave = f"{count(several, 'run')} gave in its setting, as far as it is known"
        return (
            [judgement.table(claims, evidence, f"What the paper says ({AUTHORS}) and what {gave}"), WHICH_GRU]
            if several
            else [self.missing(self.main)]
        )

    def effects(
        self, records: Runs, part: str, changed: runs.Lines, names: Mapping[str, str], setting: str
    ) -> list[Block]:
        """Return the effect of each change of a part, a table for each model; `names` has the settings for readers,
        `setting` describes the part."""
        base, blocks = runs.lines(records, part), []
        for model, some in changed.items():
            if model in base:
                lines = results.changes(base[model], some, names)
                blocks.append(results.change_table(lines, self.measure, f"{model} {setting}"))
        return [*blocks, *([] if changed.keys() <= base.keys() else [self.missing(part)])]

    def build(
        self, records: Sequence[Record], output: Path, complete: Callable[[Page, Runs], Page] | None = None
    ) -> list[Path]:
        """Write the page and its figures as SVG and PNG into a folder; return the paths, the page first. `complete` may
        add to the page what only models know."""
        known = runs.unique(records)
        page = complete(self.page(known), known) if complete else self.page(known)
        written = [output / "report.html", *(path for picture in page.pictures for path in picture.write(output))]
        write_atomically(written[0], render.html(page))
        return written

    def document(self, records: Sequence[Record]) -> dict[str, str]:
        """Return the generated parts of the page in docs/reproduction by the names of their markers."""
        parts = self.blocks(runs.unique(records))
        return {name: render.markdown(blocks, self.name) for name, blocks in parts.items()}

    def blocks(self, records: Runs) -> dict[str, list[Block]]:
        """Return the content of the documentation: the whole experiment alone."""
        whole, chosen = self.whole, list(filter(self.is_published, records))
        blocks: dict[str, list[Block]] = {}
        for name, section in self.sections.items():
            if section.documented and (name in whole or not isinstance(section, Part)):
                there = of_part(chosen, name) if name in whole else chosen
                missing = name if name in whole else self.main
                blocks[name] = section.blocks(chosen) if there else [self.missing(missing)]
                if left := [
                    other.removeprefix(f"{name}/") for other in self.unfinished if other.startswith(f"{name}/")
                ]:
                    blocks[name].append(f"Still to come, since their runs are being made: {', '.join(sorted(left))}.")
        if self.headlines:
            blocks["summary"] = self.summary(chosen, blocks.get("claims", [])) if chosen else []
        blocks["settings"] = [self.settings(chosen)] if chosen else []
        blocks["versions"] = [results.environment(chosen)] if chosen else []
        return blocks

    def summary(self, records: Runs, claims: Iterable[Block]) -> list[Block]:
        """Return how many of the paper's claims hold, and GRU and MuFuRU in the main settings."""
        verdicts = Counter(row[-1] for block in claims if isinstance(block, Table) for row in block.rows)
        counts = [
            f"{n} {verdict if n == 1 else verdict.replace('holds', 'hold').replace('does', 'do')}"
            for verdict, n in sorted(verdicts.items(), reverse=True)
        ]
        sentence = f"Of {count(verdicts.total(), 'claim')} of the paper: {', '.join(counts)}. "
        sentence += "The sentences and their rules are below."
        return [*([sentence] if verdicts else []), headline([self], {self.name: records})]

    def illustrate(self, records: Sequence[Record], folder: Path) -> list[Path]:
        """Write the SVG files that the parts of the documentation show."""
        shown = [b for blocks in self.blocks(runs.unique(records)).values() for b in blocks if isinstance(b, Picture)]
        paths = [folder / f"{picture.name}.svg" for picture in shown]
        for path, picture in zip(paths, shown, strict=True):
            write_atomically(path, picture.svg)
        return paths


class Lead(NamedTuple):
    """A headline with its runs."""

    headline: Headline
    gru: Runs
    mufuru: Runs
    published: tuple[float, float] | None
    """The paper's numbers of GRU and MuFuRU."""


def leads(reports: Iterable[Report], records: Mapping[str, Runs]) -> Iterator[Lead]:
    """Yield the runs of GRU and MuFuRU in the main settings of every experiment."""
    for report in reports:
        for row in report.headlines:
            here = runs.where(of_part(records.get(report.name, ()), row.part), cell__controller_size=None)
            gru, mufuru = (runs.where(here, cell__cell=cell, **row.settings) for cell in ("gru", "mufuru"))
            numbers = report.numbers if row.part == report.main else {}
            yield Lead(row, gru, mufuru, (numbers["GRU"], numbers["MuFuRU"]) if numbers else None)


def headline(reports: Iterable[Report], records: Mapping[str, Runs]) -> Table:
    """Return the leads as a table beside the paper's numbers: mean and 95 % interval."""
    first = "test results; ↑ higher or ↓ lower is better"
    head = (first, "GRU", "MuFuRU", "MuFuRU − GRU", "runs", "parameters", "in the paper")
    rows = []
    for row, gru, mufuru, published in leads(reports, records):
        measure, stated = row.measure, "no number"
        if published:
            change = f"{published[1] - published[0]:+.1f}".replace("-", "−")
            stated = f"{published[0]:.1f}, {published[1]:.1f}: {change}"
        summaries = measure.summary(gru), measure.summary(mufuru)
        several = " / ".join(str(summary.n) if summary else MISSING for summary in summaries)
        sizes = f"{parameters(gru)} / {parameters(mufuru)}"
        change = measure.change(measure.difference(mufuru, gru))
        title = f"{row.title}: {measure.arrow}"
        rows.append((title, *map(measure.interval, summaries), change, several, sizes, stated))
    return Table("", head, tuple(rows))


def forest(reports: Iterable[Report], records: Mapping[str, Runs]) -> Figure:
    """Draw the leads, MuFuRU minus GRU, with the paper's beside ours: a panel for each experiment."""
    panels: dict[str, tuple[Measure, list[plots.Row]]] = {}
    for row, gru, mufuru, published in leads(reports, records):
        if difference := row.measure.difference(mufuru, gru):
            data, _, setting = row.title.partition(", ")
            _, rows = panels.setdefault(data, (row.measure, []))
            rows.append(plots.Row(setting, difference, published[1] - published[0] if published else None))
    return plots.forest(panels)
