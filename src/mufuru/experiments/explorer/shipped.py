"""The two small models that come with the package, a MuFuRU and a GRU of 8 units that evaluate Boolean formulae.

They are run folders without what only training needs. Made by, with `--cell gru` for the other one:

    mufuru train logic --preset solved --cell mufuru --select best --evaluate-every 2000 --output mufuru-8

The preset has 2000 updates, so the only look at the validation data is the last: the best weights are the last ones.
"""

from __future__ import annotations

from pathlib import Path

NAMES = ("mufuru-8", "gru-8")


def folders() -> list[Path]:
    """The run folders, the MuFuRU first."""
    return [Path(__file__).parent / "models" / name for name in NAMES]
