"""Where downloaded data is kept."""

from __future__ import annotations

import os
from pathlib import Path

from mufuru.kernels.library import default_cache


def data_folder() -> Path:
    """$MUFURU_DATA, or `data` in mufuru's folder of the user's cache."""
    chosen = os.environ.get("MUFURU_DATA")
    return Path(os.path.expanduser(chosen)) if chosen else default_cache() / "data"
