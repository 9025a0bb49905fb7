"""`python -m mufuru` is the command `mufuru`.

The package is imported first, and torch with it: `python -m mufuru_command` starts as fast as the command.
"""

import sys

from mufuru_command import main

if __name__ == "__main__":
    sys.exit(main())
