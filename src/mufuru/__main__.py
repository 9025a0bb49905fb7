"""`python -m mufuru` is the command `mufuru`.

The package is imported first, and torch with it: `python -m mufuru_command` starts as fast as the command.
"""

import os
import sys
from contextlib import suppress

from mufuru_command import main

if __name__ == "__main__":
    code = main()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # a thread of gloo that asks for Python's lock while Python ends would abort a run that is complete
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
