"""`mufuru export --to c`: one C99 file that answers as the model does, after every step."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import assert_refused, command
from shipped import CLASSIFY, LM, make_runs

import mufuru
from mufuru import ops
from mufuru.experiments.cli import main
from mufuru.experiments.data.vocabulary import UNKNOWN, Vocabulary
from mufuru.experiments.ship import c
from mufuru.experiments.ship.export import compare_steps
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.classify.config import ClassifyConfig, DataConfig
from mufuru.experiments.tasks.classify.model import Classifier
from mufuru.experiments.tasks.regress.task import RegressConfig, Regressor, Scale
from mufuru.experiments.tasks.words import Meaning

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
SERIES = Meaning(("1", "-1"), None, 3)
CHARACTERS = Meaning(('a "b"??/', "\\n", "\u00e9*/"), Vocabulary((UNKNOWN, *"abcdi\u0307\u00df", "i\u0307")))
EVERY = ("keep", "replace", "max", "min", "mul", "diff", "forget", "sqr_diff", "negate", "add")
CASES: dict[str, tuple[dict[str, Any], str, Meaning, int]] = {
    "every operation": ({"ops": EVERY}, "last", SERIES, 32),
    "8 bits, mean": ({"num_layers": 2}, "mean", SERIES, 8),
    "sigmoid, after, max": ({"activation": "sigmoid", "reset": "after"}, "max", SERIES, 32),
    "no gate, attention": ({"ops": ("forget", "negate"), "reset": None}, "attention", SERIES, 32),
    "controller, 8 bits, characters": ({"controller_size": 3, "num_layers": 2}, "attention", CHARACTERS, 8),
    "relu, max, characters": ({"controller_size": 4, "controller_activation": "relu"}, "max", CHARACTERS, 32),
    "gru": ({"cell": "gru"}, "last", CHARACTERS, 32),
}


def model_of(cell: dict[str, Any], pooling: Any, meaning: Meaning, **more: Any) -> Classifier:
    torch.manual_seed(0)
    data = DataConfig(data="mine.csv", cut="characters")
    config = ClassifyConfig(CellConfig(hidden_size=5, **cell), data=data, pooling=pooling, embedding_size=4, **more)
    model = Classifier(config, meaning).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # far from 0, where all activations are the same line
        if meaning is SERIES:
            model.embedding.measure(5 + torch.rand(40, 3))
    return model


def test_the_operations_are_those_of_the_table() -> None:
    """A later operation may lack its line here: then C files refuse it."""
    assert tuple(c.OPERATIONS) == EVERY
    assert set(EVERY) <= {op.name for op in ops.native()}


@pytest.mark.parametrize("case", CASES)
def test_step_by_step(case: str, tmp_path: Path) -> None:
    cell, pooling, meaning, bits = CASES[case]
    model = model_of(cell, pooling, meaning)
    written = c.write(model, tmp_path / "model.c", bits)
    assert compare_steps(written.original, written.by_steps, [(2, 11)], "c") < 1e-5
    floats = sum(p.numel() for p in written.original.parameters()) + (6 if meaning is SERIES else 0)
    tables = 0 if meaning is SERIES else 8 * len(c.characters(meaning.vocabulary, lowercase=True))
    assert (written.weights == 4 * floats + tables) if bits == 32 else (written.weights < 2.5 * floats + tables)
    if bits == 8:
        inputs = model.example(2, 11, seed=1)[0]
        off = max(
            float((a - b).abs().max()) for a, b in zip(model.by_steps(inputs), written.by_steps(inputs), strict=True)
        )
        assert 0 < off < 0.5, "8 bits change the answers a little"


@pytest.mark.parametrize("bits", [32, 8])
def test_numbers_of_series(bits: int, tmp_path: Path) -> None:
    """A regressor answers in the units of its data, with its quantiles."""
    torch.manual_seed(0)
    config = RegressConfig(CellConfig(hidden_size=5), pooling="max", quantiles=(0.1, 0.9))
    model = Regressor(config, Scale(("price",), None, 2, mean=250.0, deviation=40.0, lowest=1.0, highest=500.0)).eval()
    model.embedding.measure(5 + torch.rand(40, 2))
    written = c.write(model, tmp_path / "model.c", bits)
    assert compare_steps(written.original, written.by_steps, [(2, 11)], "c") < 1e-6
    inputs = model.example(1, 4, seed=2)[0]
    body = "".join(f"model_step(&state, (const float[]){{{a!r}f, {b!r}f}});" for a, b in inputs[:, 0].tolist())
    lines = run(tmp_path, "model", f"{body} model_values(&state, p);").splitlines()
    assert [line.rpartition(" ")[0] for line in lines] == ["price", "quantile 0.1", "quantile 0.9"]
    found = [float(line.rpartition(" ")[2]) for line in lines]
    assert found == pytest.approx(written.original.by_steps(inputs)[-1][0].tolist(), rel=1e-6)
    assert abs(found[0] - 250) < 100


def test_maximum_length_and_names(tmp_path: Path) -> None:
    model = model_of({}, "last", SERIES, max_length=3)
    written = c.write(model, tmp_path / "1-odd name.c", 32)
    inputs = model.example(1, 6, seed=1)[0]
    found = written.by_steps(inputs)
    assert torch.equal(found[5], found[2])
    assert not torch.equal(found[1], found[2])
    assert "void model_step(" in (tmp_path / "1-odd name.c").read_text()


def test_characters_in_lower_case() -> None:
    table = c.characters(CHARACTERS.vocabulary, lowercase=True)
    words = CHARACTERS.vocabulary.words
    assert {chr(point): words[token] for point, token in table.items()} == {
        **{letter: letter.lower() for letter in "abcdiABCDI"}, "\u0307": "\u0307", "\u00df": "\u00df",
        "\u1e9e": "\u00df", "\u0130": "i\u0307",
    }  # fmt: skip
    assert list(table) == sorted(table)


MAIN = """
#include <stdio.h>
#include "{name}.c"
int main(void)
{{
    {name}_state state;
    float p[LABELS];
    {name}_start(&state);
    {body}
    for (int i = 0; i < LABELS; i++)
        printf("%s %.9g\\n", {name}_labels[i], (double)p[i]);
    return 0;
}}
"""


def run(folder: Path, name: str, body: str, text: str = "") -> str:
    """What a program around the file prints, compiled as on a device."""
    (folder / "main.c").write_text(MAIN.format(name=name, body=body))
    line = ["cc", *STRICT, str(folder / "main.c"), "-o", str(folder / "main"), "-lm"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return subprocess.run([folder / "main"], input=text, capture_output=True, text=True, check=True).stdout


def test_a_series(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = make_runs(tmp_path, "numbers")
    said = command(capsys, "export", runs / "numbers", "--to", "c", "-o", tmp_path / "bumps.c")
    assert (said.code, said.err) == (0, "")
    size = (tmp_path / "bumps.c").stat().st_size
    assert re.search(
        rf"\(file: {size:,} bytes; weights and tables: [\d,]+ bytes; state: 76 bytes\)\. Largest", said.out
    )
    values = [0.1, 2.5, -0.3, 0.0]
    body = 'float value;\n    while (scanf("%f", &value) == 1)\n        bumps_step(&state, &value);\n'
    found = run(tmp_path, "bumps", body + "    bumps_probabilities(&state, p);", " ".join(map(str, values)))
    (tmp_path / "lines").write_text("\t".join(map(str, values)))
    want = json.loads(command(capsys, "predict", runs / "numbers", tmp_path / "lines").out)["probabilities"]
    got = {label: float(p) for label, p in map(str.split, found.splitlines())}
    assert got == pytest.approx(want, abs=1e-6), "float32 in another order"
    said = command(capsys, "export", runs / "numbers", "--to", "c", "-o", tmp_path / "bumps.h")
    assert_refused(said, 2, "should end in .c")
    said = command(capsys, "export", runs / "numbers", "--to", "onnx", "--bits", "8", "-o", tmp_path / "out")
    assert_refused(said, 2, "--bits is for c, got --to onnx: leave it out")


def test_a_language_model_of_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_runs(tmp_path)
    options = (*LM, "--text", tmp_path / "book.txt", "--level", "char", "--tied", "--output", tmp_path / "run")
    assert main(["train", "lm", *map(str, options)]) == 0
    assert command(capsys, "export", tmp_path / "run", "--to", "c", "-o", tmp_path / "book.c").code == 0
    text = "the c\u00e9"
    points = ", ".join(str(ord(character)) for character in text)
    body = f"""const uint32_t text[] = {{{points}}};
    for (int i = 0; i < {len(text)}; i++) {{
        book_probabilities(&state, p);
        printf("log %.9g\\n", (double)logf(p[book_token(text[i])]));
        book_step(&state, book_token(text[i]));
    }}"""
    found = [float(line.split()[1]) for line in run(tmp_path, "book", body).splitlines() if line.startswith("log ")]
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    scores = json.loads(command(capsys, "score", tmp_path / "run", tmp_path / "text.txt", "--json").out)["scores"]
    assert found == pytest.approx([log for _, log in scores], abs=1e-5), "float32 in another order"


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    runs = make_runs(tmp_path, "attention", "logic")

    def refused(name: str, *words: str) -> None:
        said = command(capsys, "export", runs / name, "--to", "c", "-o", tmp_path / "out.c")
        assert_refused(said, 2, *words)
        assert not (tmp_path / "out.c").exists()

    refused("attention", "reads words", "export it with --to onnx")
    refused("logic", "a FormulaReader cannot be written as C")
    options = (*CLASSIFY, "--data", runs / "bumps.tsv", "--bidirectional", "--output", runs / "both")
    assert main(["train", "classify", *map(str, options)]) == 0
    refused("both", "reads in both directions")
    mufuru.register("soft", lambda s, v: 0.5 * s)
    try:
        with pytest.raises(RuntimeError, match="the operation soft has no form in C"):
            c.write(model_of({"ops": ("keep", "soft")}, "last", SERIES), tmp_path / "out.c", 32)
    finally:
        mufuru.unregister("soft")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(RuntimeError, match="no C compiler found"):
        c.write(model_of({}, "last", SERIES), tmp_path / "out.c", 32)
