"""`mufuru generate` and `mufuru score`: text from a language model, and its opinion of other text."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import TINY, assert_refused, command

from mufuru.experiments.cli import main, number, score
from mufuru.experiments.cli.generate import pieces, spacing
from mufuru.experiments.data.text import cut
from mufuru.experiments.engine import evaluate, load_run
from mufuru.experiments.tasks.lm.use import Sampler

TRAINING = ("--hidden-size", "8", "--batch-size", "4", "--bptt", "8", "--epochs", "2", "--quiet")
TEXT = "the cat sat on the mat\nthe dog sat , and the cat ran\n\n" * 16


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs on words, on characters, and one of another task; the text is not there any more."""
    folder = tmp_path_factory.mktemp("runs")
    book = folder / "book.txt"
    book.write_text(TEXT)
    for level in ("word", "char"):
        line = ["train", "lm", *TRAINING, "--text", str(book), "--level", level, "--output", str(folder / level)]
        assert main(line) == 0
    assert main(["train", "logic", *TINY, "--epochs", "1", "--quiet", "--output", str(folder / "logic")]) == 0
    book.unlink()
    return folder


@pytest.mark.parametrize("level", ["word", "char"])
def test_the_same_seed_gives_the_same_text(runs: Path, level: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("generate", runs / level, "--length", "40", "--top-k", "5")
    one, same, other = (command(capsys, *line, "--seed", seed) for seed in (1, 1, 2))
    assert one == same
    assert one.out != other.out
    assert (one.code, one.err) == (0, "")
    assert one.out.endswith("\n")


@pytest.mark.parametrize("level", ["word", "char"])
def test_unknown_is_never_said_unless_asked_for(
    runs: Path, level: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the model would say nothing else."""
    certain = Sampler.draw

    def wants_unknown(self: Sampler, logits: torch.Tensor, generator: torch.Generator) -> int:
        # <unk> is the last of these vocabularies: no training text holds it
        logits[-1] += 100.0
        return certain(self, logits, generator)

    monkeypatch.setattr(Sampler, "draw", wants_unknown)
    assert "<unk>" not in command(capsys, "generate", runs / level, "--length", "200").out
    assert "<unk>" in command(capsys, "generate", runs / level, "--length", "200", "--allow-unknown").out


def test_the_prompt_comes_first_and_unknown_words_are_told(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "generate", runs / "word", "--prompt", "the zebra sat", "--length", "3")
    assert said.out.startswith("the <unk> sat")
    assert said.err == "mufuru: not in the model's vocabulary, read as <unk>: 'zebra'\n"
    assert len(said.out.replace("\n", " <eos> ").split()) >= 6


def test_a_prompt_may_end_its_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "generate", runs / "word", "--prompt", "the cat\nsat\n", "--length", "1")
    assert said.out.startswith("the cat\nsat\n")
    said = command(capsys, "generate", runs / "char", "--prompt", "the cat\ns", "--length", "1")
    assert said.out.startswith("the cat\ns")


def test_the_length_is_that_of_what_is_new(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "generate", runs / "char", "--prompt", "the ", "--length", "25", "--temperature", "0.5")
    # the line is ended, unless the model has just done so
    assert len(said.out) == (29 if said.out[28] == "\n" else 30)


def test_cold_text_does_not_depend_on_the_seed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("generate", runs / "word", "--length", "12")
    cold = [command(capsys, *line, "--temperature", "0", "--seed", seed).out for seed in (1, 2)]
    assert cold[0] == cold[1] == command(capsys, *line, "--top-k", "1", "--seed", "3").out


def test_draws_follow_the_probabilities() -> None:
    logits, generator = torch.tensor([0.1, 0.2, 0.7]).log(), torch.Generator().manual_seed(0)
    drawn = torch.tensor([Sampler().draw(logits.clone(), generator) for _ in range(4000)])
    # three standard deviations of a share of 4,000 draws are at most 0.024
    torch.testing.assert_close(drawn.bincount() / 4000, logits.exp(), atol=0.024, rtol=0)
    among = {Sampler(top_k=2).draw(logits.clone(), generator) for _ in range(100)}
    assert among == {1, 2}
    assert {Sampler(temperature=1e-6).draw(logits.clone(), generator) for _ in range(20)} == {2}


@pytest.fixture
def article(tmp_path: Path) -> Path:
    path = tmp_path / "article.txt"
    path.write_text("the cat sat\nthe zebra\tran\n")
    return path


def test_scores_of_words(runs: Path, article: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, "score", runs / "word", article)
    head, *rows = [line.split("\t") for line in said.out.splitlines()]
    assert head == ["token", "log_probability"]
    assert [row[0] for row in rows] == ["the", "cat", "sat", "<eos>", "the", "zebra", "ran", "<eos>"]
    perplexity = math.exp(-math.fsum(float(row[1]) for row in rows) / 8)
    bits = 8 * math.log2(perplexity) / len(article.read_bytes())
    levels = f"{perplexity:.4f} per word, {bits:.4f} bits per byte"
    assert said.err == f"perplexity {perplexity:.4f}, {levels} over 8 tokens, 1 of them unknown to the model\n"
    assert command(capsys, "score", runs / "word", article, "--summary") == (0, said.err, "")
    found = json.loads(command(capsys, "score", runs / "word", article, "--json").out)
    # the lines have six digits
    assert found["perplexity"] == pytest.approx(perplexity, rel=1e-5)
    assert (found["tokens"], found["unknown"]) == (8, 1)
    assert [token for token, _ in found["scores"]] == [row[0] for row in rows]


def test_a_text_from_standard_input(
    runs: Path, article: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = command(capsys, "score", runs / "word", article)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(article.read_bytes())))
    assert command(capsys, "score", runs / "word") == wanted
    assert_refused(command(capsys, "score", runs / "word"), 2, "standard input is empty: expected text")


def test_a_perplexity_beyond_all_measure_is_short() -> None:
    assert [number(value) for value in (None, 1.23456, 1e7, 1e304)] == ["", "1.2346", "1e+07", "1e+304"]
    summary = {"perplexity": 1e304, "tokens": 1, "unknown": 0}
    assert score.sentence(summary) == "perplexity 1e+304 over 1 token, 0 of them unknown to the model"


def test_a_prompt_is_read_as_a_file_is(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Form feeds end no line; the two characters that end one on other systems are one."""
    ends = [command(capsys, "generate", runs / "char", "--prompt", f"the{end}cat") for end in ("\n", "\r\n", "\r")]
    assert ends == [ends[0]] * 3
    assert ends[0].out.startswith("the\ncat")
    said = command(capsys, "generate", runs / "word", "--prompt", "the\x0ccat", "--length", 3)
    assert said.out.startswith("the cat ")


def test_scores_of_characters(runs: Path, article: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(command(capsys, "score", runs / "char", article, "--json", "--summary").out)
    assert found["tokens"] == len(article.read_text())
    assert found["bits_per_character"] == pytest.approx(math.log2(found["perplexity"]))
    assert "scores" not in found
    lines = command(capsys, "score", runs / "char", article).out.split("\n")
    assert [line.split("\t")[0] for line in lines[10:14]] == ["a", "t", "\\n", "t"]


def test_the_score_of_the_test_text_is_the_test_perplexity(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book, file = runs / "book.txt", tmp_path / "test.txt"
    book.write_text(TEXT)
    task: Any
    task, model = load_run(runs / "word")
    book.unlink()
    words = task.corpus.vocabulary.decode(task.corpus.test)
    file.write_text("".join("\n" if word == "<eos>" else f"{word} " for word in words))
    found = json.loads(command(capsys, "score", runs / "word", file, "--json", "--summary").out)
    assert found["tokens"] == len(words)
    # sums in another order, in single precision
    assert found["perplexity"] == pytest.approx(evaluate(task, model, "test")["perplexity"], rel=1e-5)


@pytest.mark.parametrize("name", ["generate {}", "score {} {}/config.json"])
def test_another_task_and_no_run(runs: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    logic = runs / "logic"
    said = command(capsys, *name.format(logic, logic).split())
    assert_refused(said, 2, f"the run in {logic} is of the task logic: expected a language model")
    assert_refused(command(capsys, *name.format(tmp_path, tmp_path).split()), 2, "config.json is missing")


def test_a_text_that_changed_is_told_in_one_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model can be used without its text, but not measured on another."""
    book = runs / "book.txt"
    book.write_text(TEXT.replace("dog", "cow"))
    assert_refused(command(capsys, "evaluate", runs / "word"), 2, "they were trained on other data")
    book.unlink()
    assert_refused(command(capsys, "evaluate", runs / "word"), 2, str(book), "no such file")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("generate", "RUN"),
        ("generate {} --length 0", "--length should be at least 1, got 0"),
        ("generate {} --temperature -1", "temperature should be a number of at least 0, got -1"),
        ("generate {} --top-k 0", "top_k should be at least 1, got 0"),
        ("generate {} --topk 3", "--top-k"),
        ("score {} one two", "two"),
    ],
)
def test_typing_mistakes(runs: Path, line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(command(capsys, *line.format(runs / "word").split()), 2, message)


def test_files_that_cannot_be_scored(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    for name in ("empty.txt", "latin.txt", "missing.txt"):
        assert_refused(command(capsys, "score", runs / "word", tmp_path / name), 2, name)


@pytest.mark.parametrize("name", ["generate", "score"])
def test_help_ends_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = command(capsys, name, "--help")
    assert said.code == 0
    assert f"mufuru {name} runs/lm" in said.out.partition("\nexamples:\n")[2]


@pytest.mark.parametrize(
    "text",
    ["The king, my lord, isn't here.", 'He said: "Go (now)!" and left; it\'s 3.5% of $20.', 'a "b" c\n"d" e'],
)
def test_words_are_put_together_as_people_write_them(text: str) -> None:
    written = "".join(pieces(list(cut(text.splitlines(keepends=True), "words")), spacing()))
    assert written == text + "\n"


def test_a_model_of_words_knows_them_with_a_comma(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same words in training, generation and scores; a run that splits at blanks goes on doing so."""
    book = tmp_path / "book.txt"
    book.write_text("the king, my lord, spoke.\n" * 40)
    for name, more in (("words", ()), ("blanks", ("--tokenizer", "blanks"))):
        line = ("train", "lm", *TRAINING, "--text", book, *more, "--output", tmp_path / name)
        assert command(capsys, *line).code == 0
    (tmp_path / "new.txt").write_text("my king, the lord\n")
    said = [json.loads(command(capsys, "score", tmp_path / name, tmp_path / "new.txt", "--json").out) for name in
            ("words", "blanks")]  # fmt: skip
    assert [(found["tokens"], found["unknown"]) for found in said] == [(6, 0), (5, 1)]
    assert [token for token, _ in said[0]["scores"]] == ["my", "king", ",", "the", "lord", "<eos>"]
    told = command(capsys, "generate", tmp_path / "words", "--prompt", "my king,", "--length", "3")
    assert (told.code, told.err, told.out[:8]) == (0, "", "my king,")
    levels = [json.loads((tmp_path / name / "config.json").read_text())["config"]["data"]["level"] for name in
              ("words", "blanks")]  # fmt: skip
    assert levels == ["words", "word"]
