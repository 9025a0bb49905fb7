"""Write the parts of unit.md that come from elsewhere: the operations from the code, first values from their record.

With --check, say whether the page is up to date and change nothing.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import initialisation_tables

from mufuru import PAPER, ops
from mufuru.unit import DEFAULT_OP_BIAS

PAGE = Path(__file__).with_name("unit.md")
RECORD = Path(__file__).parents[1] / "benchmarks" / "results" / "initialisation.json"


def operations() -> str:
    lines = ["| name | $\\mathrm{op}(s, v)$ | meaning | in the paper |", "|---|---|---|---|"]
    for name in ops.names():
        op = ops.get(name)
        # a bar would end the cell
        formula = op.formula.replace("|", r"\vert ").strip()
        lines.append(f"| `{name}` | ${formula}$ | {op.meaning} | {'yes' if name in PAPER else 'no'} |")
    return "\n".join(lines) + "\n"


def initialisation() -> str:
    """What was measured; the default stands out."""
    runs = json.loads(RECORD.read_text(encoding="utf-8"))
    name = f"MuFuRU, keep {DEFAULT_OP_BIAS['keep']:g}"
    text = f"{initialisation_tables.bits(runs)}\n\n{initialisation_tables.formulae(runs)}\n"
    return text.replace(f"| {name} |", f"| **{name}** (default) |")


def fill(page: str, name: str, text: str) -> str:
    """The page with this text between the markers of that name."""
    marked = re.compile(rf"(<!-- {name}: .*? -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    new, places = marked.subn(lambda match: f"{match[1]}{text}{match[2]}", page)
    if places != 1:
        sys.exit(f"{PAGE.name} needs the markers of {name} once, found {places}")
    return new


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for part in (operations, initialisation):
        old, page = page, fill(page, part.__name__, part())
        if "--check" in sys.argv[1:] and page != old:
            sys.exit(f"the part {part.__name__} of docs/{PAGE.name} is out of date: run make docs")
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
