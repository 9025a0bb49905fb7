"""Start of the command `mufuru`: Ctrl-C, `--help`, `--version`, and errors of the system.

It is outside of the package, because `import mufuru` imports torch. It imports very little itself, and lets Ctrl-C
end the process before that: until then Python would print a traceback.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # built in: the module around it takes longer than all the rest
import sys

if (__name__ == "__main__" or "".join(sys.orig_argv[1:2]).endswith(("/mufuru", "\\mufuru.exe"))) and _signal.getsignal(
    _signal.SIGINT
) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import errno
import io
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

COMMANDS = {
    "train": "train a model, or resume a run that was stopped",
    "sweep": "many runs that differ in a few settings, and the best of them",
    "evaluate": "metrics of a trained model",
    "predict": "labels, numbers or next values of sequences, from a trained model",
    "generate": "text from a trained language model",
    "score": "how well a trained language model predicts a text",
    "explore": "a local page that looks inside trained models",
    "export": "a trained model as files for others: safetensors, int8, ONNX, torch.export",
    "prune": "a trained model without the operations that it hardly uses",
    "report": "finished runs as one HTML page",
    "reproduce": "an experiment of the paper: all runs, tables and figures",
    "doctor": "what is installed, which kernel is live and why",
}
"""Each is a module of `mufuru.experiments.cli` whose `main(arguments)` returns the exit code."""

HELP = f"""\
usage: mufuru COMMAND [OPTIONS]

MuFuRU, the Multi-Function Recurrent Unit: train it, look inside, rerun the paper.

commands:
{chr(10).join(f"  {name:<10} {text}" for name, text in COMMANDS.items())}

options:
  -h, --help  show this text; after a command, that command's
  --version   show the version

examples:
  mufuru doctor
  mufuru train logic --preset short --output runs/first
  mufuru evaluate runs/first
  mufuru sweep logic --over learning_rate=log:1e-3:1e-1 --trials 20
  mufuru train lm --preset short --text book.txt --output runs/book
  mufuru generate runs/book --prompt "once upon"
  mufuru score runs/book other.txt
  mufuru train classify --data reviews.csv --output runs/reviews
  mufuru predict runs/reviews new.txt
  mufuru explore runs/first
  mufuru prune runs/reviews --threshold 0.01
  mufuru export runs/reviews --to onnx
  mufuru report runs/first -o report.html
  mufuru reproduce logic --short
"""

NEEDED = ("cattrs", "matplotlib", "numpy", "rich", "safetensors", "tyro")


def main() -> int:
    """Run the command as a process: before and after the work, Ctrl-C ends it silently."""
    end_at_once()
    try:
        return run(sys.argv[1:])
    finally:
        end_at_once()


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code: 0, 1 for a failure, 2 for a mistake in it, 128 + n after signal n."""
    _prepare_streams()
    try:
        command = find(arguments)
        with hearing_ctrl_c():
            code = command()
            # an error of writing shows here, not when Python ends
            sys.stdout.flush()
        return code
    except ModuleNotFoundError as error:
        return explain_missing(error)
    except KeyboardInterrupt:
        return say("stopped", 128 + signal.SIGINT)
    except Unwritten as error:
        return explain_unwritten(error)
    except OSError as error:
        return say(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error, 1)


def find(arguments: Sequence[str]) -> Callable[[], int]:
    """Return the function to call. Torch is imported only if there is a command to run."""
    command, *rest = arguments or ("--help",)
    if command in ("-h", "--help", "help"):
        return partial(write, HELP)
    if command in ("-V", "--version"):
        return partial(write, f"mufuru {version()}\n")
    if command not in COMMANDS:
        return partial(say, unknown(command), 2)
    from mufuru.experiments.cli import load

    return load(command, rest)


def version() -> str:
    """Return the package's version, read from its source without importing it."""
    import re

    with open(os.path.join(os.path.dirname(__file__), "mufuru", "__init__.py"), encoding="utf-8") as source:
        return str(re.findall(r'^__version__ = "(.+)"$', source.read(), re.MULTILINE)[0])


def unknown(command: str) -> str:
    import difflib

    kind = "option" if command.startswith("-") else "command"
    close = difflib.get_close_matches(command, list(COMMANDS), n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"unknown {kind} {command}.{hint} See mufuru --help"


def write(text: str) -> int:
    print(text, end="")
    return 0


def say(message: object, code: int) -> int:
    print(f"mufuru: {message}", file=sys.stderr)
    return code


def explain_missing(error: ModuleNotFoundError) -> int:
    """Print how to install a package that the experiments need; any other missing module is a bug and raises."""
    name = (error.name or "").split(".")[0]
    if name not in NEEDED:
        raise error
    return say(f"{name} is not installed: `pip install '.[experiments]'` in the folder of mufuru", 1)


def explain_unwritten(error: Unwritten) -> int:
    """Print why there is no output; nothing if the reader went away, as after SIGPIPE."""
    # pending output is dropped, so that Python does not complain about it at exit
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:
        return 128 + 13
    return say(f"cannot write to the standard output: {error.strerror}", 1)


def end_at_once() -> None:
    """Let Ctrl-C end the process at once: an exception could be lost in an import, or leave it half done.

    Where Ctrl-C is ignored, as in the background of a script, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Within this context, for slow imports, Ctrl-C ends the process at once."""
    import threading

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    end_at_once()
    try:
        yield
    finally:
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)


@contextmanager
def hearing_ctrl_c() -> Iterator[None]:
    """Within this context Ctrl-C raises KeyboardInterrupt, if `end_at_once` was called before."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        end_at_once()


class Unwritten(OSError):
    """Standard output cannot be written to."""


class Output:
    """A stream whose errors can be distinguished from those of files."""

    def __init__(self, stream: io.TextIOBase) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        try:
            self.stream.write(text)
        except OSError as error:
            self.refuse(error)
        return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError as error:
            self.refuse(error)

    def refuse(self, error: OSError) -> None:
        raise Unwritten(error.errno, error.strerror) from None

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


class Messages(Output):
    """A stream that ignores its errors: a full disk, a reader or a terminal that is gone must not end a training."""

    def refuse(self, error: OSError) -> None:
        pass


def _prepare_streams() -> None:
    """Let a closed stream discard its text, and one that cannot encode a character write a question mark."""
    for name, kind in (("stdout", Output), ("stderr", Messages)):
        stream = getattr(sys, name)
        if stream is None:
            stream = open(os.devnull, "w")  # noqa: SIM115
        elif getattr(stream, "errors", None) == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
        setattr(sys, name, stream if isinstance(stream, kind) else kind(stream))


if __name__ == "__main__":
    sys.exit(main())
