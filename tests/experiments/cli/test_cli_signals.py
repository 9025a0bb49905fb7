"""Signals and streams as the process of the command meets them: from its start to its end, no traceback."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import SOURCE, TINY, Said, command, wait_until
from folders import assert_same_run

import mufuru
from mufuru.experiments.engine.processes import Worker
from mufuru.experiments.engine.work import Job, Where
from mufuru.experiments.record import RunFolder

SETTINGS = ("logic", *TINY, "--epochs", "12", "--hidden-size", "4")
START = "import sys; from mufuru_command import main; "
AT_IMPORT = """\
import os, sys
number, module, *sys.argv[1:] = sys.argv[1:]

class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == module:
            os.kill(os.getpid(), int(number))

sys.meta_path.insert(0, Finder)
"""
"""Send this process a signal as soon as it imports a module."""


@pytest.fixture(scope="module", autouse=True)
def _heard() -> Iterator[None]:
    """Processes started here hear Ctrl-C, even if the tests run where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was left alone."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert train(folder) == (0, "", "")
    return folder


def train(folder: Path, *options: str, **streams: Any) -> Said:
    line = ("-m", "mufuru_command", "train", *SETTINGS, "--output", str(folder))
    return python(*line, *(options or ("--quiet",)), **streams)


def python(*arguments: str, path: str = SOURCE, **streams: Any) -> Said:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    variables = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, *arguments], text=True, env=variables, check=False, **streams)
    return Said(done.returncode, done.stdout or "", done.stderr or "")


def ignoring(number: int) -> Callable[[], Any]:
    return lambda: signal.signal(number, signal.SIG_IGN)


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_without_torch(option: str) -> None:
    check = "print({name.partition('.')[0] for name in sys.modules} & {'mufuru', 'numpy', 'torch'})"
    said = python("-c", f"{START}sys.argv[1:] = ['{option}']; main(); {check}")
    assert (said.code, said.err) == (0, "")
    assert said.out.endswith("set()\n")


def test_python_m_is_the_command() -> None:
    assert python("-m", "mufuru", "--version") == (0, f"mufuru {mufuru.__version__}\n", "")


@pytest.mark.parametrize("options", [("-m",), ("-Wdefault", "-m"), ("-sm",)])
def test_ctrl_c_while_python_m_imports_torch(tmp_path: Path, options: tuple[str, ...]) -> None:
    interrupt = AT_IMPORT.replace("number, module, *sys.argv[1:] = sys.argv[1:]", "number, module = 2, 'torch'")
    (tmp_path / "sitecustomize.py").write_text(interrupt, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), SOURCE])
    assert python(*options, "mufuru", "doctor", path=path) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize("line", [("bin/mufuru",), ("-m", "mufuru_command"), ("-m", "mufuru")])
def test_ctrl_c_while_the_commands_own_imports_run(tmp_path: Path, line: tuple[str, ...]) -> None:
    """The script that an installer writes does so, too."""
    interrupt = AT_IMPORT.replace("number, module, *sys.argv[1:] = sys.argv[1:]", "number, module = 2, 'signal'")
    (tmp_path / "sitecustomize.py").write_text(interrupt, encoding="utf-8")
    (tmp_path / "bin").mkdir()
    script = "import sys\nfrom mufuru_command import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
    (tmp_path / "bin" / "mufuru").write_text(script, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), SOURCE])
    assert python(*line, "--help", path=path, cwd=tmp_path) == (-signal.SIGINT, "", "")


def test_ctrl_c_is_a_programs_own_if_it_imports_the_package(tmp_path: Path) -> None:
    """Also where `mufuru` stands in its command line."""
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__init__.py").write_text("import signal, mufuru, mufuru_command\n", encoding="utf-8")
    line = "import signal; print(signal.getsignal(2) is signal.default_int_handler)\n"
    (tmp_path / "program" / "__main__.py").write_text(line, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), SOURCE])
    assert python("-m", "program", "-m", "mufuru", path=path) == (0, "True\n", "")


@pytest.mark.parametrize("module", ["difflib", "torch", "torch._C", "numpy", "mufuru.experiments.cli.train", "sympy"])
def test_ctrl_c_while_a_module_is_imported(module: str, tmp_path: Path) -> None:
    """Nobody can catch it there, lose it, or see half of a module. The last comes with torch's compiler."""
    line = ["trian"] if module == "difflib" else ["train", *SETTINGS, "--output", str(tmp_path / "run")]
    code = f"{AT_IMPORT}{START}sys.exit(main())"
    assert python("-c", code, str(int(signal.SIGINT)), module, *line) == (-signal.SIGINT, "", "")
    assert not (tmp_path / "run").exists()


def test_ctrl_c_while_a_report_imports(run: Path, tmp_path: Path) -> None:
    code = f"{AT_IMPORT}{START}sys.exit(main())"
    line = ("report", str(run), "-o", str(tmp_path / "report.html"))
    assert python("-c", code, str(int(signal.SIGINT)), "matplotlib", *line) == (-signal.SIGINT, "", "")


def test_ctrl_c_when_all_is_done() -> None:
    """Python takes a while to end."""
    code = "import atexit, os; atexit.register(os.kill, os.getpid(), 2); "
    said = python("-c", f"{code}{START}sys.argv[1:] = ['--version']; sys.exit(main())")
    assert said == (-signal.SIGINT, f"mufuru {mufuru.__version__}\n", "")


@pytest.mark.parametrize("module", ["torch", "sympy"])
def test_ctrl_c_that_is_ignored_stays_so(run: Path, tmp_path: Path, module: str) -> None:
    """A script's background job."""
    line = (str(int(signal.SIGINT)), module, "train", *SETTINGS, "--quiet", "--output", str(tmp_path / "run"))
    code = f"{AT_IMPORT}{START}sys.exit(main())"
    assert python("-c", code, *line, preexec_fn=ignoring(signal.SIGINT)) == (0, "", "")
    assert_same_run(tmp_path / "run", run)


def test_a_worker_does_not_hear_ctrl_c_while_it_imports(tmp_path: Path) -> None:
    """In a terminal it goes to all processes; what it means is told by the one that started them."""
    worker = Worker()
    worker.start(Job("one", "nothing", None, tmp_path), Where(tmp_path))
    os.kill(worker.process.pid or 0, signal.SIGINT)
    assert "this is a bug" in str(worker.future.result()), "the process lived to see its job"
    assert worker.end() == "its process ended with exit code 0"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_progress_that_cannot_be_written_stops_nothing(run: Path, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        said = train(tmp_path / "run", "--seed", "0", stderr=full)
    assert said.code == 0
    assert f"The run is in {tmp_path / 'run'}." in said.out
    assert_same_run(tmp_path / "run", run)


def test_progress_that_nobody_reads_stops_nothing(run: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    assert train(tmp_path / "run", "--seed", "0", stderr=writer).code == 0
    os.close(writer)
    assert_same_run(tmp_path / "run", run)


@pytest.mark.parametrize("hears", [True, False], ids=["plain", "nohup"])
def test_a_terminal_that_is_closed(run: Path, tmp_path: Path, hears: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """It sends SIGHUP and cannot be written to any more: all is saved, or with nohup the run goes on to its end."""
    outer, inner = pty.openpty()
    folder = tmp_path / "run"
    line = [sys.executable, "-m", "mufuru_command", "train", *SETTINGS, "--output", str(folder)]
    variables = {**os.environ, "PYTHONPATH": SOURCE}
    before = None if hears else ignoring(signal.SIGHUP)
    process = subprocess.Popen(line, stderr=inner, stdout=subprocess.DEVNULL, env=variables, preexec_fn=before)
    os.close(inner)
    wait_until(RunFolder(folder).best.exists)
    os.close(outer)
    process.send_signal(signal.SIGHUP)
    assert process.wait() == (129 if hears else 0)
    assert command(capsys, "train", "--resume", folder, "--quiet").code == 0
    assert_same_run(folder, run)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("--help",), ("doctor",)], ids=" ".join)
def test_an_answer_that_cannot_be_written_is_a_failure(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        said = python("-m", "mufuru_command", *arguments, stdout=full)
    assert said == (1, "", "mufuru: cannot write to the standard output: No space left on device\n")


@pytest.mark.parametrize("arguments", [("--help",), ("doctor",), ("doctor", "--help")], ids=" ".join)
def test_an_answer_that_nobody_reads(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    said = python("-m", "mufuru_command", *arguments, stdout=writer)
    os.close(writer)
    assert said == (128 + signal.SIGPIPE, "", "")
