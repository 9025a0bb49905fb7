"""Byte pairs: nothing of a text is lost, words and bytes are counted as in the text, and levels can be compared."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import assert_refused, command

from mufuru.experiments.data import text, tokenise
from mufuru.experiments.data.bpe import AnyVocabulary, BytePairs
from mufuru.experiments.data.text import Request
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.tasks.lm.config import DataConfig
from mufuru.experiments.tasks.lm.task import Windows

pytest.importorskip("tokenizers", reason="the extra bpe is not installed")
TEXT = "".join(f"the mööd of 漢字 number {n % 9}  was low,\twas high!\n" + "\n" * (n % 3 == 0) for n in range(80))


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUFURU_DATA", str(tmp_path / "data"))


@pytest.fixture
def wanted(tmp_path: Path) -> Request:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return Request((str(path),), "bpe", 300, 1, (), (), (0.1, 0.2))


def test_the_parts_are_the_text(wanted: Request) -> None:
    made = tokenise.load(wanted)
    vocabulary = made.vocabulary
    assert isinstance(vocabulary, BytePairs)
    assert 256 < len(vocabulary) <= 300
    parts = [b"".join(map(vocabulary.spelled, part.tolist())) for part in (made.train, made.valid, made.test)]
    assert b"".join(parts).decode() == TEXT
    assert [round(len(part) / len(TEXT.encode()), 1) for part in parts] == [0.7, 0.1, 0.2]
    assert all(part.endswith(b"\n") for part in parts)
    assert AnyVocabulary.from_json(json.loads(json.dumps(vocabulary.to_json()))) == vocabulary


def test_the_same_again(wanted: Request, tmp_path: Path) -> None:
    first = tokenise.load(wanted).fingerprint
    next((tmp_path / "data" / "tokens").glob("*.tokens")).unlink()
    assert tokenise.load(wanted).fingerprint == first


def test_validation_is_not_learned_from(wanted: Request, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("abab abab\n" * 90 + "xyxy xyxy\n" * 10, encoding="utf-8")
    labels = tokenise.load(replace(wanted, held_out=(0.05, 0.05))).vocabulary.labels
    assert "abab" in labels
    assert not any("xy" in label for label in labels)


@pytest.mark.parametrize("steps", [1, 7, 10_000])
@pytest.mark.parametrize("level", ["word", "char", "bpe"])
def test_words_and_bytes_are_those_of_the_text(wanted: Request, level: text.Level, steps: int) -> None:
    """The text is that of the words, with one blank between them."""
    size = None if level != "bpe" else 300
    made = tokenise.load(replace(wanted, level=level, vocabulary_size=size, held_out=(0.01, 0.01)))
    vocabulary = made.vocabulary
    assert vocabulary.line_end is not None
    tokens = torch.cat([part.long() for part in (made.train, made.valid, made.test)])
    spans = [vocabulary.spans(*window) for window in Windows(tokens, vocabulary.line_end, 1, steps)]
    written = "".join(f"{' '.join(line.split())}\n" for line in TEXT.splitlines()) if level == "word" else TEXT
    assert sum(span["bytes"] for span in spans) == len(written.encode())
    assert sum(span["words"] for span in spans) == len(TEXT.split()) + TEXT.count("\n")


def test_unknown_tokens_have_the_bytes_of_their_names() -> None:
    before, tokens = torch.tensor([[2, 0], [0, 1]]), torch.tensor([[0, 1], [1, 2]])
    # "ab <unk>", and " <unk>" twice, and the end of a line
    assert Vocabulary(("ab", "<unk>", "<eos>")).spans(before, tokens) == {"bytes": 15.0, "words": 4.0}
    assert Vocabulary(("ä", "<unk>", "\n")).spans(before, tokens) == {"bytes": 5.0, "words": 2.0}


@pytest.mark.parametrize("tokenizer", ["blanks", "characters", "bpe"])
def test_the_commands(wanted: Request, tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = tmp_path / "run", wanted.files[0]
    options = ["--preset", "short", "--epochs", "1", "--hidden-size", "8", "--quiet", "--held-out", "0.1", "0.1"]
    said = command(capsys, "train", "lm", "--text", path, "--tokenizer", tokenizer, *options, "--output", run)
    assert said == (0, "", "")
    result = json.loads((run / "result.json").read_text())
    assert {"loss", "perplexity", "perplexity_per_word", "bits_per_byte"} <= set(result["test"])
    if tokenizer == "blanks":
        assert result["test"]["perplexity_per_word"] == pytest.approx(result["test"]["perplexity"])
    found = json.loads(command(capsys, "evaluate", run, "--split", "test", "--dynamic", "--json").out)
    assert found["metrics"] == pytest.approx(result["test"])
    scored = json.loads(command(capsys, "score", run, path, "--json").out)
    assert "".join(token for token, _ in scored["scores"]).replace("\ufffd", "") != ""
    total = -math.fsum(log for _, log in scored["scores"])
    assert scored["perplexity_per_word"] == pytest.approx(math.exp(total / (len(TEXT.split()) + TEXT.count("\n"))))
    assert scored["bits_per_byte"] == pytest.approx(total / math.log(2) / len(TEXT.encode()))
    assert scored["unknown"] == 0
    assert command(capsys, "generate", run, "--prompt", "the mööd", "--length", 9).out.startswith("the mööd")


def test_without_the_package(
    wanted: Request, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    run = tmp_path / "run"
    said = command(capsys, "train", "lm", "--text", wanted.files[0], "--level", "bpe", "--output", run)
    assert_refused(said, 2, r"pip install '.[bpe]'")
    assert not run.exists()


def test_names_of_tokenizers() -> None:
    assert DataConfig(text=("a",), level="blanks") == DataConfig(text=("a",), level="word")
    assert DataConfig(text=("a",), level="words") == DataConfig(text=("a",))
    # older runs name it for the Penn Treebank too
    assert DataConfig(level="word") == DataConfig()
    assert (DataConfig().tokens, DataConfig(text=("a",)).tokens) == ("word", "words")
    assert DataConfig(text=("a",), level="characters").level == "char"
    with pytest.raises(ValueError, match="vocabulary_size should be above 256 with bpe"):
        DataConfig(text=("a",), level="bpe", vocabulary_size=256)
