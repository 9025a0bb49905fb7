"""A task is one room: a file or folder and its name are enough for every command, and nobody loads another's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest
import torch
from commands import assert_refused, command
from torch.nn.utils.rnn import pack_sequence

from mufuru.experiments import tasks
from mufuru.experiments.cli.explore import load
from mufuru.experiments.engine import load_model
from mufuru.experiments.explorer.runs import View

OPS = ("keep", "replace", "diff")
BUILT_IN = ("logic", "lm", "classify", "trees")


@pytest.fixture
def parity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A trained run of the new task: its file among the tasks, and its name, the one line."""
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(Path(__file__).parent)])
    monkeypatch.setitem(tasks.KINDS.data, "parity", None)
    settings = ("--hidden-size", "5", "--ops", *OPS)
    said = command(capsys, "train", "parity", *settings, "--output", tmp_path / "run")
    assert said.code == 0, said
    assert "accuracy" in said.out
    return tmp_path / "run"


def test_a_new_task_is_taken_by_every_command(parity: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def done(*arguments: object) -> str:
        said = command(capsys, *arguments)
        assert (said.code, said.err) == (0, ""), said
        return said.out

    beside = parity.parent
    metrics = json.loads(done("evaluate", parity, "--json"))["metrics"]
    assert metrics == json.loads((parity / "result.json").read_text())["test"]
    done("report", parity, "-o", beside / "report.html")
    assert "parity" in (beside / "report.html").read_text()

    done("export", parity, "--to", "safetensors", "-o", beside / "files")
    card = (beside / "files" / "README.md").read_text()
    assert "A judge of parity: " in card
    assert "Trained on drawn bits." in card
    done("export", parity, "--to", "torch-export", "-o", beside / "graph.pt2")
    done("export", parity, "--to", "onnx", "-o", beside / "graph.onnx")
    names = [place.name for place in onnxruntime.InferenceSession(beside / "graph.onnx").get_inputs()]
    assert names == ["bits", "lengths"]
    done("export", parity, "--to", "int8", "-o", beside / "small")

    (beside / "lines.txt").write_text("0110\n1\n")
    predictions = [json.loads(line) for line in done("predict", parity, beside / "lines.txt").splitlines()]
    (run,) = load([parity])
    answer = run.answer(View(run.name, "0110"))
    assert len(answer["predictions"]) == len(answer["weights"]) == 4
    last = dict(answer["predictions"][-1]["top"])
    assert last == pytest.approx(predictions[0]["probabilities"], abs=1e-5)

    done("prune", parity, "--threshold", "0.6", "--measure", "mean", "-o", beside / "pruned")
    ops = json.loads((beside / "pruned" / "config.json").read_text())["config"]["cell"]["ops"]
    assert set(ops) < set(OPS)
    assert done("predict", beside / "pruned", beside / "lines.txt").count("\n") == 2


def test_packed_and_padded_sequences_have_the_same_answers(parity: Path) -> None:
    model = load_model(parity)
    rows = [torch.tensor(bits) for bits in ([1, 0, 1, 1], [0, 1], [1])]
    padded = torch.nn.utils.rnn.pad_sequence(rows, padding_value=1)
    with torch.no_grad():
        one, other = model(padded, torch.tensor([4, 2, 1])), model(pack_sequence(rows))
    # float32 in another order
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_a_task_without_a_hook_says_who_has_it(parity: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "generate", parity)
    assert_refused(said, 2, "is of the task parity: expected a language model, of `mufuru train lm`")


def loaded_after(code: str) -> list[str]:
    """The modules of the package that a fresh interpreter has imported."""
    program = f"import sys; {code}; print(*(name for name in sys.modules if name.partition('.')[0] == 'mufuru'))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.split()


def test_training_loads_no_task_before_it_is_chosen() -> None:
    names = loaded_after("import mufuru.experiments.cli.train")
    assert not {f"mufuru.experiments.tasks.{task}" for task in BUILT_IN} & set(names)
    assert len(names) <= 75, "a command pays for what it imports"


def test_a_chosen_task_loads_no_other() -> None:
    names = loaded_after("from mufuru.experiments.tasks import KINDS; KINDS['logic']; assert 'lm' in KINDS")
    assert "mufuru.experiments.tasks.logic.task" in names
    assert not [name for name in names if name.startswith("mufuru.experiments.tasks.lm")]
    assert not [name for name in names if name.startswith("mufuru.experiments.data.")]


def test_the_tasks_are_a_mapping() -> None:
    assert tuple(tasks.KINDS)[: len(BUILT_IN)] == BUILT_IN
    assert tasks.KINDS["lm"] is tasks.KINDS["lm"]
    assert "nothing" not in tasks.KINDS
    with pytest.raises(KeyError):
        tasks.KINDS["nothing"]
