"""Help, typing mistakes, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from commands import SOURCE, assert_refused, command

import mufuru
import mufuru_command
from mufuru.experiments.cli import doctor
from mufuru.experiments.cli.usage import UsageError
from mufuru.experiments.engine import Failure, Interrupted, RunError
from mufuru.experiments.record import RecordError
from mufuru.experiments.settings import SettingError
from mufuru.kernels import library
from mufuru.kernels.library import Status

HELP = {
    ("--help",): ("usage: mufuru COMMAND", "train", "reproduce", "doctor"),
    ("train", "--help"): ("mufuru train TASK", "logic", "paper", "--resume"),
    ("train", "logic", "--help"): ("--preset", "--hidden-size", "--learning-rate", "--threads", "Adam's learning rate"),
    ("evaluate", "--help"): ("RUN", "--split"),
    ("report", "--help"): ("RUNS", "-o"),
    ("reproduce", "--help"): ("mufuru reproduce EXPERIMENT", "logic"),
    ("reproduce", "logic", "--help"): ("--jobs", "--seeds", "--sizes", "--part", "--short", "--record"),
    ("doctor", "--help"): ("--json",),
}
MEMORY = "not enough memory for this model and its data: try fewer units, a smaller batch or less data"
MISTAKES = {  # with words that do not depend on the version of tyro
    "trian": "unknown command trian. Did you mean train?",
    "--versoin": "unknown option --versoin.",
    "xyz": "unknown command xyz.",
    "train lgoic": "unknown task 'lgoic': expected one of logic",
    "train --seed 3": "expected a task (logic",
    "train logic --hiden-size 8": "--hidden-size",
    "train logic --hiden_size=8": "--hidden-size",
    "train logic --cell grru": "'mufuru', 'gru', 'lstm', 'vanilla'",
    "train logic --preset papre": "unknown preset 'papre': expected one of paper,",
    "train logic --preset": "--preset",
    "train logic --resume": "--resume",
    "train logic --epochs many": "'many'",
    "train logic --learning-rate fast": "'fast'",
    "train logic --epochs 0": "epochs should be a number above 0, got 0",
    "train logic --threads 0": "--threads should be from 1 to 1024, got 0",
    "evaluate run --threads 99999999999999": "--threads should be from 1 to 1024, got 99999999999999",
    "generate run --seed 99999999999999999999": "--seed should be from 0 to 4294967295",
    "generate run --top-k 1.5": "'1.5'",
    "generate run --runn x": "--runn",
    "evaluate run --segment 3": "learning rate, decay, segment and keep are those of dynamic evaluation: add --dynamic",
    "evaluate run --learning-rate 0.1,0.2": "--learning-rate",
    "evaluate run --dynamic --keep": "--keep is for finished runs, and there is none in run",
    "train lm --clip abc": "'abc'",
    "train lm --text a --level char --text=b": "--text is given twice: give all its values after one.",
    "train lm --held-out 0.1": "--held-out",
    "train classify --data=": "the value of --data is empty: give one",
    "train lm --bptt 99999999999999999999": "bptt should be at most 2147483647, got 99999999999999999999",
    "train logic --seed": "--seed",
    "train logic stray": "stray",
    "evaluate": "RUN",
    "evaluate run --split tset": "'train', 'valid', 'test'",
    "report": "RUNS is missing",
    "reproduce lgic": "'lgic': expected one of logic, lm, sentiment, languages. Did you mean 'logic'?",
    "reproduce logic --part figurs": "'figures'",
    "reproduce logic --sizes big": "--sizes",
    "reproduce logic --seeds 0": "seeds should be a number above 0, got 0",
    "reproduce logic --jobs 0": "jobs should be a number above 0, got 0",
    "evaluate run --no-json": "--json",
    "doctor --jsn": "--json",
}


@pytest.mark.parametrize("arguments", HELP, ids=" ".join)
def test_help_teaches_and_ends_with_examples(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    said = command(capsys, *arguments)
    assert said.code == 0
    assert said.err == ""
    for word in HELP[arguments]:
        assert word in said.out
    assert f"mufuru {arguments[0] if len(arguments) > 1 else ''}" in said.out.partition("\nexamples:\n")[2]


@pytest.mark.parametrize("arguments", [(), ("train",), ("reproduce",)], ids=["mufuru", "train", "reproduce"])
def test_alone_a_command_with_subjects_shows_its_help(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(capsys, *arguments) == command(capsys, *arguments, "--help")


def test_every_command_is_there_and_has_an_example() -> None:
    for name in mufuru_command.COMMANDS:
        assert f"\n  mufuru {name}" in mufuru_command.HELP


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "--version") == (0, f"mufuru {mufuru.__version__}\n", "")


@pytest.mark.parametrize("line", MISTAKES)
def test_a_typing_mistake_is_explained(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(command(capsys, *line.split()), 2, MISTAKES[line])
    assert not list(tmp_path.iterdir()), "a typing mistake leaves nothing behind"


def raising(error: BaseException) -> Any:
    def run(arguments: list[str]) -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("so"), 2, "mufuru: so\n"),
        (RunError("no such run"), 2, "mufuru: no such run\n"),
        (RecordError("damaged"), 2, "mufuru: damaged\n"),
        (SettingError("too large"), 2, "mufuru: too large\n"),
        (Failure("the disk is full"), 1, "mufuru: the disk is full\n"),
        (Interrupted("stopped; go on"), 130, "mufuru: stopped; go on\n"),
        (Interrupted("stopped; go on", signal.SIGTERM), 143, "mufuru: stopped; go on\n"),
        (KeyboardInterrupt(), 130, "mufuru: stopped\n"),
        (PermissionError(13, "Permission denied", "a/file"), 1, "mufuru: a/file: Permission denied\n"),
        (OSError("odd"), 1, "mufuru: odd\n"),
        (MemoryError(), 1, f"mufuru: {MEMORY}\n"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 1, f"mufuru: {MEMORY}\n"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_exit_codes(
    error: BaseException,
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "main", raising(error))
    assert command(capsys, "doctor") == (code, "", message)


@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError("a bug"), RuntimeError("another"), ModuleNotFoundError("no module", name="mufuru.typo")],
)
def test_a_bug_keeps_its_traceback(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "main", raising(error))
    with pytest.raises(type(error)):
        dispatch_main("doctor")


def dispatch_main(*arguments: str) -> int:
    from mufuru.experiments.cli import main

    return main(arguments)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=False)


def test_a_missing_package_is_named_with_its_remedy() -> None:
    start = "import sys; from mufuru.experiments.cli import main; sys.modules['tyro'] = None"
    done = run_python(f"{start}; sys.exit(main(['doctor']))")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "mufuru: tyro is not installed: `pip install '.[experiments]'` in the folder of mufuru\n"


def test_ctrl_c_while_modules_are_read() -> None:
    raising = "type('Finder', (), {'find_spec': lambda *_: (_ for _ in ()).throw(KeyboardInterrupt())})"
    start = f"import sys; from mufuru.experiments.cli import main; sys.meta_path.insert(0, {raising})"
    done = run_python(f"{start}; sys.exit(main(['doctor']))")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "mufuru: stopped\n")


@pytest.mark.parametrize(("streams", "said"), [(">&-", ""), (">&- 2>&-", ""), ("", "caf?\n")])
def test_streams_that_are_closed_or_plain(streams: str, said: str) -> None:
    code = "import sys; from mufuru.experiments.cli import doctor, main; "
    code += "doctor.main = lambda _: print('caf\\xe9') or 0; sys.exit(main(['doctor']))"
    variables = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONIOENCODING": "ascii"}
    line = f'{sys.executable} -c "{code}" {streams}'
    done = subprocess.run(line, shell=True, capture_output=True, text=True, env=variables, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    line = f"{sys.executable} -m mufuru_command doctor | head -1"
    variables = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(line, shell=True, capture_output=True, text=True, env=variables, check=False)
    assert (done.stdout, done.stderr) == ("versions\n", "")


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "doctor")
    assert said.code == 0
    for word in (mufuru.__version__, "torch", "cores", "cache", "triton", "tyro", "kernel is live"):
        assert word in said.out


def test_doctor_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(command(capsys, "doctor", "--json").out)
    assert found["versions"]["mufuru"] == mufuru.__version__
    assert found["kernel"]["library"] == library.status().state
    assert found["machine"]["cores"] >= 1
    assert found["extras"]["experiments"]["tyro"]


def test_doctor_knows_the_extras() -> None:
    settings = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(settings)["project"]["optional-dependencies"]
    # what the documentation, the developers, one example and one benchmark need
    assert set(extras) - set(doctor.EXTRAS) == {"docs", "dev", "darts", "own-data"}
    for extra, packages in doctor.EXTRAS.items():
        assert set(packages) <= set(extras[extra]), extra


def test_doctor_says_what_is_wrong(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Degraded is not broken: the exit code stays 0."""
    monkeypatch.delenv("MUFURU_KERNEL", raising=False)
    monkeypatch.setattr(library, "status", lambda: Status("unavailable", reason="no compiler: install g++"))
    monkeypatch.setattr(doctor, "version", lambda package: None)
    said = command(capsys, "doctor")
    assert said.code == 0
    assert "Degraded: the slower reference kernel is live. no compiler: install g++" in said.out
    assert "pip install '.[tensorboard]'" in said.out


def test_doctor_when_the_reference_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUFURU_KERNEL", "reference")
    assert "unset MUFURU_KERNEL" in command(capsys, "doctor").out


def test_an_unknown_kernel_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MUFURU_KERNEL", "fast")
    refused = command(capsys, "train", "logic")
    assert_refused(refused, 2, "MUFURU_KERNEL should be one of auto, native, triton, reference, got 'fast'")
