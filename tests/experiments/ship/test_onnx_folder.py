"""`mufuru export --to onnx`: a folder that takes raw data, alone and by the commands, whole and step by step."""

from __future__ import annotations

import ast
import importlib
import io
import json
import re
import runpy
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

RUNS = ("lm-controller", "texts", "numbers", "rooms", "names", "waves", "logic")
BATCH_FIRST = ("numbers", "lm-controller", "names")
SHAPES = ((1, 3), (4, 1), (6, 21))
"""Batches and steps that no export was made or checked with."""
LINES = {
    "texts": "Good film , very GOOD .\nit isn\u2019t a plot,zebra\n\nthe a but not\n",
    "numbers": "0.1\t0.2\t-2\t0.1\n1,2,3,nan\n0.5 0.25\n",
    "rooms": "a flat with room room\na castle, no flat\n\n",
    "names": 'Anna Smith walks.\n["Bob", "Jones", "rarest", "OLD-man", "x1"]\n\nwell\n',
    "waves": "".join(f"{[[100 + step + start, step % 4] for step in range(20)]}\n" for start in (0, 5)),
    "lm-controller": "the cat\tsat on\n\nthe zebra ran , and the dog\n" * 60,
}
"""Raw data; the text is longer than a window."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("runs"), *RUNS)


@pytest.fixture(scope="module")
def exports(runs: Path, torchlib_once: None) -> Path:
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
    """The model describes itself in one JSON, and in the graph."""
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


def answered(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The output of predict.py where neither torch nor mufuru can be imported."""
    with monkeypatch.context() as patch:
        for name in ("torch", "mufuru", "tokenizers", "onnx"):
            patch.setitem(sys.modules, name, None)
        file = folder.parent / "lines.txt"
        file.write_text(text, encoding="utf-8")
        patch.setattr(sys, "argv", ["predict.py", str(file)])
        capsys.readouterr()
        runpy.run_path(str(folder / "predict.py"), run_name="__main__")
    return capsys.readouterr().out


def assert_same_answers(one: str, other: str) -> None:
    """Lines of JSON with the same words, and the same numbers but for float32 of another library."""
    rows = [[json.loads(line) for line in text.splitlines()] for text in (one, other)]
    assert len(rows[0]) == len(rows[1]) > 0
    for want, got in zip(*rows, strict=True):
        assert_same(want, got)


def assert_same(want: Any, got: Any) -> None:
    if isinstance(want, dict):
        assert want.keys() == got.keys()
        for key, value in want.items():
            assert_same(value, got[key])
    elif isinstance(want, float) or (isinstance(want, list) and want and isinstance(want[0], float)):
        assert got == pytest.approx(want, rel=2e-6, abs=1e-6)
    else:
        assert got == want


@pytest.mark.parametrize("name", ["texts", "numbers", "rooms", "names", "waves"])
def test_answers_to_raw_data(
    name: str, runs: Path, exports: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for folder in (runs, exports):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINES[name].encode())))
        said.append(command(capsys, "predict", folder / name))
    want, got = said
    assert (got.code, got.err) == (want.code, want.err) == (0, "")
    for row in (got.out, answered(exports / name, LINES[name], monkeypatch, capsys)):
        assert_same_answers(without_names(want.out), without_names(row))


def without_names(lines: str) -> str:
    """The answers without the numbers that the command gives to the series of lines."""
    rows = [json.loads(line) for line in lines.splitlines()]
    return "\n".join(json.dumps({key: value for key, value in row.items() if key != "series"}) for row in rows)


@pytest.mark.parametrize("name", RUNS[:-1])
def test_length_of_the_program(name: str, exports: Path) -> None:
    """Some forty lines of code, with what the model needs and nothing else."""
    tree = ast.parse((exports / name / "predict.py").read_text(encoding="utf-8"))
    code = ast.unparse(without_docstrings(tree))
    assert len([line for line in code.splitlines() if line]) <= 48
    assert "_of_" not in code
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert defined <= called


def without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Module) and ast.get_docstring(node):
            del node.body[0]
    return tree


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("numbers", "one two", "could not convert string to float"),
        ("numbers", "1,,3", "could not convert string to float"),
        ("numbers", "", "expected steps of 1 finite numbers, got ''"),
        ("numbers", "[[1, 2], [3, 4]]", "expected steps of 1 finite numbers"),
        ("numbers", "1 inf", "expected steps of 1 finite numbers"),
        ("waves", "1 2 3", "expected steps of 2 finite numbers"),
        ("waves", "[[1, 2], [3, 4]]", "expected at least 18 values to forecast from, got 2"),
        ("names", '["a"', "Expecting ',' delimiter"),
        ("numbers", "[" * 100_000, "maximum recursion depth exceeded"),
        ("numbers", "1" + 12 * "\t0.5", "got 13 values, one more than in training: leave the label out"),
    ],
)
def test_wrong_lines(
    name: str,
    line: str,
    words: str,
    exports: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        answered(exports / name, f"{line}\n", monkeypatch, capsys)
    assert ended.value.code == 2
    assert re.fullmatch(f"predict.py: line 1: .*{re.escape(words)}.*\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("name", "file", "words"),
    [
        ("texts", "a.csv", "expected a text in each line, got the table a.csv: `mufuru predict` reads its columns"),
        ("names", "a.conll", "expected a text in each line, got the table a.conll"),
        ("rooms", "a.txt", "No such file or directory: 'a.txt'"),
        ("lm-controller", "a.txt", "No such file or directory: 'a.txt'"),
    ],
)
def test_wrong_files(
    name: str, file: str, words: str, exports: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["predict.py", file])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(exports / name / "predict.py"), run_name="__main__")
    assert ended.value.code == 2
    assert re.fullmatch(f"predict.py: .*{re.escape(words)}.*\n", capsys.readouterr().err)


def test_scores_of_raw_text(
    runs: Path, exports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, name = tmp_path / "text.txt", "lm-controller"
    file.write_text(LINES[name])
    want, got = (command(capsys, "score", folder / name, file) for folder in (runs, exports))
    assert (got.code, got.err) == (0, want.err)
    texts = want.out, got.out, answered(exports / name, LINES[name], monkeypatch, capsys)
    (tokens, logs), *others = (list(zip(*map(parted, text.splitlines()[1:]), strict=True)) for text in texts)
    for other_tokens, other_logs in others:
        assert other_tokens == tokens
        assert other_logs == pytest.approx(logs, abs=2e-5), "of 6 digits, by float32 of another library"
    said = [command(capsys, "generate", folder / name, "--length", "20", "--seed", "1") for folder in (runs, exports)]
    assert said[0] == said[1]


def parted(line: str) -> tuple[str, float]:
    token, log = line.split("\t")
    return token, float(log)


def test_in_a_bare_environment(runs: Path, exports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new environment that has onnxruntime and numpy, and nothing else."""
    venv.create(tmp_path / "bare", symlinks=True)
    (packages,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    for name in ("numpy", "onnxruntime"):
        installed = Path(importlib.import_module(name).__file__ or "").parent
        # their own shared libraries lie beside
        for part in installed.parent.glob(f"{name}*"):
            (packages / part.name).symlink_to(part)
    names = ("texts", "numbers", "rooms", "names", "waves")
    program = ["import importlib.util, runpy, sys", "assert importlib.util.find_spec('torch') is None"]
    for name in names:
        (tmp_path / name).write_text(LINES[name], encoding="utf-8")
        program.append(f"sys.argv = ['', {str(tmp_path / name)!r}]")
        program.append(f"runpy.run_path({str(exports / name / 'predict.py')!r}, run_name='__main__')")
    line = [tmp_path / "bare" / "bin" / "python", "-I", "-c", "\n".join(program)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    want = ""
    for name in names:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINES[name].encode())))
            want += command(capsys, "predict", runs / name).out
    assert_same_answers(without_names(want), done.stdout)


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
        assert_refused(command(capsys, "predict", folder, tmp_path / "lines"), 2, *words)

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
    assert_refused(said, 2, "is of the task classify: expected a language model")


def test_folders_of_weights(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lines"
    file.write_text(LINES["texts"], encoding="utf-8")
    want = command(capsys, "predict", runs / "texts", file)
    assert command(capsys, "export", runs / "texts", "--to", "safetensors", "-o", tmp_path / "out").code == 0
    assert command(capsys, "predict", tmp_path / "out", file) == want
    assert command(capsys, "export", runs / "logic", "--to", "safetensors", "-o", tmp_path / "logic").code == 0
    said = command(capsys, "predict", tmp_path / "logic", file)
    assert_refused(said, 2, "holds a FormulaReader, expected one of LanguageModel, Classifier")
