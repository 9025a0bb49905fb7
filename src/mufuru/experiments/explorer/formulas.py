"""Operations as the page shows them."""

from __future__ import annotations

import re

from mufuru import Op

PLAIN = (
    (r"\\tfrac12\s*", "½ "),
    (r"\\tfrac14\s*", "¼ "),
    (r"\\odot", "⊙"),
    (r"\^2", "²"),
    (r"\\mathrm\{(.*?)\}", r"\1"),
    (r"\\(?=[a-z])", ""),
    (r"(?<=\w|\)) - ", " − "),
    (r"^-", "−"),
)
"""From the LaTeX of the table of operations to what a page can show without a renderer."""


def described(op: Op) -> dict[str, str]:
    """Name, formula and meaning."""
    return {"name": op.name, "formula": plain(op.formula), "meaning": op.meaning}


def plain(latex: str) -> str:
    """A formula in Unicode.

    >>> plain(r"\\tfrac12 |s - v|")
    '½ |s − v|'
    """
    for pattern, text in PLAIN:
        latex = re.sub(pattern, text, latex)
    return latex.strip()
