"""Write the parts of pages that come from elsewhere: operations from the code, numbers and figures from records.

With --check, report whether the pages are up to date and change nothing.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import cost_tables
import features
import initialisation_tables
import large_text_tables
import operations as drawing
import picture
import real_files
import roofline

from mufuru import PAPER, ops
from mufuru.experiments.record import Record
from mufuru.experiments.report import render
from mufuru.experiments.report.experiment import forest, headline
from mufuru.experiments.report.figures import svg
from mufuru.experiments.reproduce import EXPERIMENTS, recorded
from mufuru.unit import DEFAULT_OP_BIAS

DOCS = Path(__file__).parent
RECORD = DOCS.parent / "benchmarks" / "results" / "initialisation.json"
COST = DOCS.parent / "benchmarks" / "results" / "cost.json"
HALF = DOCS.parent / "benchmarks" / "results" / "bfloat16.json"
LARGE = DOCS.parent / "benchmarks" / "results" / "large_text.json"
RESULTS = DOCS.parent / "results"


def operations() -> str:
    lines = ["| name | op(s, v) | meaning | in the paper |", "|---|---|---|---|"]
    for name in ops.names():
        op = ops.get(name)
        # a bar would end the cell
        formula = op.formula.replace("|", r"\vert ").strip()
        lines.append(f"| `{name}` | ${formula}$ | {op.meaning} | {'yes' if name in PAPER else 'no'} |")
    return "\n".join(lines) + "\n"


def initialisation() -> str:
    """Return the measured tables; the default stands out."""
    runs = json.loads(RECORD.read_text(encoding="utf-8"))
    name = f"MuFuRU, keep {DEFAULT_OP_BIAS['keep']:g}"
    text = f"{initialisation_tables.bits(runs)}\n\n{initialisation_tables.formulae(runs)}\n"
    return text.replace(f"| {name} |", f"| **{name}** (default) |")


def bfloat16() -> str:
    """Return the time of products in bfloat16 as ratios to float32, a line per shape."""
    shapes: dict[str, dict[str, float]] = {}
    for name, ratio in json.loads(HALF.read_text(encoding="utf-8"))["ratios to float32"].items():
        if isinstance(ratio, float):
            shape, *case = name.rsplit(", ", 2)
            shapes.setdefault(shape, {})[", ".join(case)] = ratio
    cases = list(next(iter(shapes.values())))
    rows = [(shape, *(f"{ratios[case]:.2f}" for case in cases)) for shape, ratios in shapes.items()]
    return cost_tables.table(("time by that of float32", *cases), *rows)


def fill(path: Path, page: str, name: str, text: str) -> str:
    """Return the page with this text between the markers of that name."""
    marked = re.compile(rf"(<!-- {name}: .*? -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    new, places = marked.subn(lambda match: f"{match[1]}{text}{match[2]}", page)
    if places != 1:
        sys.exit(f"{_named(path)} needs the markers of {name} once, got {places}")
    return new


def write(path: Path, parts: dict[str, str], check: bool) -> None:
    """Fill in the parts of one page, or exit with the names of those that are out of date."""
    page, stale = path.read_text(encoding="utf-8"), []
    for name, text in parts.items():
        old, page = page, fill(path, page, name, text)
        stale += [name] if page != old else []
    if check and stale:
        sys.exit(f"out of date in {_named(path)}: {', '.join(stale)}. Run make docs")
    if not check:
        path.write_text(page, encoding="utf-8")


def _named(path: Path) -> str:
    return path.relative_to(DOCS.parent).as_posix()


def records(experiment: str) -> list[Record]:
    """Return the records of an experiment that are published."""
    return list(filter(EXPERIMENTS[experiment].is_published, recorded.read(RESULTS / experiment)))


def main() -> None:
    check = "--check" in sys.argv[1:]
    write(DOCS / "unit.md", {"operations": operations(), "initialisation": initialisation()}, check)
    tried = json.loads(features.RECORD.read_text(encoding="utf-8"))
    write(DOCS / "from-training-to-production.md", {"features": features.table(tried)}, check)
    found = json.loads(real_files.RESULTS.read_text(encoding="utf-8"))
    made_of = (
        real_files.alice,
        real_files.authors,
        real_files.digits,
        real_files.elnino,
        real_files.news,
        real_files.sunspots,
    )
    write(real_files.PAGE, {made.__name__: made(found) for made in made_of}, check)
    write(DOCS / "kernel.md", {"bfloat16": bfloat16()}, check)
    write(DOCS / "gpu.md", {"roofline": roofline.table()}, check)
    cost = json.loads(COST.read_text(encoding="utf-8"))
    made = (cost_tables.layers, cost_tables.shared, cost_tables.pays, cost_tables.most)
    large = large_text_tables.large(json.loads(LARGE.read_text(encoding="utf-8")))
    write(DOCS / "scaling.md", {make.__name__: make(cost) for make in made} | {"large": large}, check)
    everything = {report.name: records(report.name) for report in EXPERIMENTS.values()}
    results = render.markdown_table(headline(EXPERIMENTS.values(), everything)).lstrip()
    for page in (DOCS.parent / "README.md", DOCS / "index.md"):
        write(page, {"results": results}, check)
    for report in EXPERIMENTS.values():
        published = everything[report.name]
        write(DOCS / "reproduction" / f"{report.name}.md", report.document(published), check)
        if not check:
            report.illustrate(published, DOCS / "reproduction" / report.name)
    if not check:
        (DOCS / "unit" / "operations.svg").write_bytes(svg(drawing.figure()))
        (DOCS / "picture.svg").write_bytes(svg(picture.figure()))
        (DOCS / "differences.svg").write_bytes(svg(forest(EXPERIMENTS.values(), everything)))


if __name__ == "__main__":
    main()
