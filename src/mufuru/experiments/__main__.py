"""`python -m mufuru.experiments` is the command `mufuru`."""

from __future__ import annotations

import sys

from mufuru.experiments.cli import main

if __name__ == "__main__":
    sys.exit(main())
