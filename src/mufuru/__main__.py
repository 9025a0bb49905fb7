"""`python -m mufuru` is the command `mufuru`."""

from __future__ import annotations

import sys

from mufuru_command import main

if __name__ == "__main__":
    sys.exit(main())
