"""`mufuru export --to onnx`: a folder that takes raw data, alone and by the commands, whole and step by step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from commands import assert_refused, command
from shipped import make_runs

from mufuru.experiments.engine import load_model

RUNS = ("lm-controller", "texts", "numbers", "logic")
BATCH_FIRST = ("numbers", "lm-controller")
SHAPES = ((1, 3), (4, 1), (6, 21))
"""Batches and steps that no export was made or checked with."""
LINES = {
    "texts": "Good film , very GOOD .\nit isn\u2019t a plot,zebra\n\nthe a but not\n",
    "numbers": "0.1\t0.2\t-2\t0.1\n1,2,3,nan\n0.5 0.25\n",
    "lm-controller": "the cat\tsat on\n\nthe zebra ran , and the dog\n" * 60,
}
"""Raw data; the text is longer than a window."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), *RUNS)


@pytest.fixture(scope="module")
def exports(runs: Path) -> Path:
    """The folder with exports of all runs, by their names, and a single file."""
    from mufuru.experiments.ship.export import export_run

    folder = runs / "exports"
    for name in RUNS[:-1]:
        assert export_run(runs / name, "onnx", folder / name, batch_first=name in BATCH_FIRST).error < 1e-5
    export_run(runs / "logic", "onnx", folder / "logic.onnx")
    return folder


def session_of(path: Path) -> Any:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def facts_of(folder: Path) -> Any:
    return json.loads((folder / "model.json").read_text())


@pytest.mark.parametrize("name", RUNS)
def test_answers(name: str, runs: Path, exports: Path) -> None:
    session = session_of(exports / "logic.onnx" if name == "logic" else exports / name / "model.onnx")
    model = load_model(runs / name)

    def turned(array: np.ndarray[Any, Any], place: Any) -> np.ndarray[Any, Any]:
        return np.ascontiguousarray(array.swapaxes(0, 1)) if place.shape[:2] == ["batch", "steps"] else array

    for batch, steps in SHAPES:
        arguments, places = model.example(batch, steps, seed=9), session.get_inputs()
        given = {place.name: turned(t.numpy(), place) for place, t in zip(places, arguments, strict=True)}
        found = zip(model.answers(*arguments), session.run(None, given), session.get_outputs(), strict=True)
        for want, got, place in found:
            # float32 of another library
            torch.testing.assert_close(torch.from_numpy(turned(got, place)), want, rtol=1e-5, atol=1e-5)


def test_names_of_sizes(exports: Path) -> None:
    def sizes(path: Path) -> dict[str, Any]:
        session = session_of(path)
        return {place.name: place.shape for place in [*session.get_inputs(), *session.get_outputs()]}

    assert sizes(exports / "texts" / "model.onnx") == {
        "inputs": ["steps", "batch"], "lengths": ["batch"], "logits": ["batch", 2]
    }  # fmt: skip
    assert sizes(exports / "numbers" / "model.onnx")["inputs"] == ["batch", "steps", 1]
    words = len(facts_of(exports / "lm-controller")["vocabulary"]["words"])
    assert sizes(exports / "lm-controller" / "model.onnx") == {
        "tokens": ["batch", "steps"], "h": [2, "batch", 8], "k": [2, "batch", 3],
        "logits": ["batch", "steps", words], "h_n": [2, "batch", 8], "k_n": [2, "batch", 3],
    }  # fmt: skip
    assert sizes(exports / "logic.onnx") == {"tokens": ["steps", "batch"], "lengths": ["batch"], "logits": ["batch"]}


@pytest.mark.parametrize("name", RUNS[:-1])
def test_what_the_folder_says(name: str, runs: Path, exports: Path) -> None:
    """Of itself: in one JSON, and in the graph."""
    facts, session = facts_of(exports / name), session_of(exports / name / "model.onnx")
    held = session.get_modelmeta().custom_metadata_map
    assert {key: text if isinstance(facts[key], str) else json.loads(text) for key, text in held.items()} == facts
    assert facts["layout"] == ("batch first" if name in BATCH_FIRST else "steps first")
    for part, places in (("inputs", session.get_inputs()), ("outputs", session.get_outputs())):
        assert {place.name: place.shape for place in places} == {n: about["axes"] for n, about in facts[part].items()}
    assert str(runs) not in json.dumps(facts), "no path of the machine"
    model: Any = load_model(runs / name)
    if name == "texts":
        assert facts["labels"] == list(model.meaning.labels)
        assert facts["vocabulary"]["words"] == list(model.meaning.vocabulary.words)
        assert facts["step"] is None, "it reads in both directions"
        assert not (exports / name / "step.onnx").exists()


@pytest.mark.parametrize("name", ["numbers", "lm-controller"])
def test_step_by_step(name: str, runs: Path, exports: Path) -> None:
    """The step model, by what model.json says of it alone, against the whole model at every step."""
    step, session = facts_of(exports / name)["step"], session_of(exports / name / "step.onnx")
    model = load_model(runs / name)
    for batch, steps in SHAPES:
        inputs = model.example(batch, steps, seed=3)[0]
        sizes = [[batch if size == "batch" else size for size in state["axes"]] for state in step["states"]]
        states = [
            np.full(size, state["initial"], np.float32) for size, state in zip(sizes, step["states"], strict=True)
        ]
        for token, want in zip(inputs, model.by_steps(inputs), strict=True):
            names = [state["input"] for state in step["states"]]
            given = {step["input"]: token.numpy(), **dict(zip(names, states, strict=True))}
            outputs = [step["output"], *(state["output"] for state in step["states"])]
            logits, *states = session.run(outputs, given)
            # float32 of another library
            torch.testing.assert_close(torch.from_numpy(logits), want, rtol=1e-5, atol=1e-5)


BLOCKED = """
import runpy, sys
for name in ("torch", "mufuru", "tokenizers", "onnx"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def alone(folder: Path, text: str, *python: str) -> str:
    """The output of predict.py in a process that can import neither torch nor mufuru."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    line = [*(python or (sys.executable, "-c", BLOCKED)), str(folder / "predict.py")]
    done = subprocess.run(line, input=text.encode(), capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def assert_same_labels(one: str, other: str, tolerance: float = 1e-6) -> None:
    """Lines of JSON with the same labels, and the same probabilities but for float32 of another library."""
    rows = [[json.loads(line) for line in text.splitlines()] for text in (one, other)]
    assert len(rows[0]) == len(rows[1]) > 0
    for want, got in zip(*rows, strict=True):
        assert got["label"] == want["label"]
        assert got["probabilities"] == pytest.approx(want["probabilities"], abs=tolerance)


@pytest.mark.parametrize("name", ["texts", "numbers"])
def test_labels_of_raw_data(
    name: str, runs: Path, exports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text(LINES[name], encoding="utf-8")
    want, got = (command(capsys, "predict", folder / name, file) for folder in (runs, exports))
    assert (got.code, got.err) == (0, "")
    assert_same_labels(want.out, got.out)
    assert_same_labels(want.out, alone(exports / name, LINES[name]))


def test_scores_of_raw_text(runs: Path, exports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, name = tmp_path / "text.txt", "lm-controller"
    file.write_text(LINES[name])
    want, got = (command(capsys, "score", folder / name, file) for folder in (runs, exports))
    assert (got.code, got.err) == (0, want.err)
    texts = want.out, got.out, alone(exports / name, LINES[name])
    (tokens, logs), *others = (list(zip(*map(parted, text.splitlines()[1:]), strict=True)) for text in texts)
    for other_tokens, other_logs in others:
        assert other_tokens == tokens
        assert other_logs == pytest.approx(logs, abs=2e-5), "of 6 digits, by float32 of another library"
    said = [command(capsys, "generate", folder / name, "--length", "20", "--seed", "1") for folder in (runs, exports)]
    assert said[0] == said[1]


def parted(line: str) -> tuple[str, float]:
    token, log = line.split("\t")
    return token, float(log)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_in_a_bare_environment(runs: Path, exports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With onnxruntime and numpy installed, and nothing else."""
    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "onnxruntime", "numpy"], check=True)
    missing = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    assert b"No module named 'torch'" in missing.stderr
    for name in ("texts", "numbers"):
        (tmp_path / name).write_text(LINES[name], encoding="utf-8")
        want = command(capsys, "predict", runs / name, tmp_path / name)
        assert_same_labels(want.out, alone(exports / name, LINES[name], str(python)))
    assert len(alone(exports / "lm-controller", LINES["lm-controller"], str(python)).splitlines()) > 512


def copied(folder: Path, place: Path) -> Path:
    place.mkdir()
    for file in folder.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    return place


def test_a_folder_is_data(exports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No program in it is run, and files that do not belong together are refused."""
    (tmp_path / "lines").write_text("good\n")
    folder = copied(exports / "texts", tmp_path / "copy")
    (folder / "predict.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert command(capsys, "predict", folder, tmp_path / "lines").code == 0
    assert not (tmp_path / "ran").exists()

    def refused(*words: str) -> None:
        assert_refused(command(capsys, "predict", folder, tmp_path / "lines"), 1, *words)

    facts = facts_of(folder)
    (folder / "model.json").write_text(json.dumps({**facts, "labels": facts["labels"][::-1]}))
    refused("model.json does not say what model.onnx beside it says: one of them was changed")
    (folder / "model.json").write_text(json.dumps({**facts, "format": 2}))
    refused("has the format 2, this mufuru reads 1")
    (folder / "model.json").write_text("{")
    refused("is missing or damaged")
    (folder / "model.json").write_text(json.dumps(facts))
    (folder / "model.onnx").write_bytes(b"cut off")
    refused("onnxruntime cannot read", "export the run again")
    (folder / "model.onnx").unlink()
    refused("is missing or damaged")
    said = command(capsys, "score", exports / "texts", tmp_path / "lines")
    assert_refused(said, 1, "is of the task classify: expected a language model")


def test_folders_of_weights(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lines"
    file.write_text(LINES["texts"], encoding="utf-8")
    want = command(capsys, "predict", runs / "texts", file)
    assert command(capsys, "export", runs / "texts", "--to", "safetensors", "-o", tmp_path / "out").code == 0
    assert command(capsys, "predict", tmp_path / "out", file) == want
    assert command(capsys, "export", runs / "logic", "--to", "safetensors", "-o", tmp_path / "logic").code == 0
    said = command(capsys, "predict", tmp_path / "logic", file)
    assert_refused(said, 1, "holds a FormulaReader, expected one of LanguageModel, Classifier")
