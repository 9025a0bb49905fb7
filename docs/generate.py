"""Write the parts of the documentation that come from the code: the table of operations in unit.md.

With --check, say whether the page is up to date and change nothing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mufuru import PAPER, ops

PAGE = Path(__file__).with_name("unit.md")
MARKED = re.compile(r"(<!-- operations: .*? -->\n).*?(<!-- /operations -->)", re.DOTALL)


def table() -> str:
    lines = ["| name | $\\mathrm{op}(s, v)$ | meaning | in the paper |", "|---|---|---|---|"]
    for name in ops.names():
        op = ops.get(name)
        # a bar would end the cell
        formula = op.formula.replace("|", r"\vert ").strip()
        lines.append(f"| `{name}` | ${formula}$ | {op.meaning} | {'yes' if name in PAPER else 'no'} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    old = PAGE.read_text(encoding="utf-8")
    new, places = MARKED.subn(lambda match: f"{match[1]}{table()}{match[2]}", old)
    if places != 1:
        sys.exit(f"{PAGE.name} needs the operations' markers once, found {places}")
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(new, encoding="utf-8")
    elif new != old:
        sys.exit(f"the table of operations in docs/{PAGE.name} is out of date: run make docs")


if __name__ == "__main__":
    main()
