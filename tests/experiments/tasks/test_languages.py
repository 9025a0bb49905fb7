"""Formal languages: generators against brute force, batches, models, and runs that resume to the same bits."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import replace
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import Any

import pytest
import torch
from folders import assert_same_run
from torch import nn

from mufuru.experiments.data import flare
from mufuru.experiments.draws import Draws
from mufuru.experiments.engine import Interrupted, evaluate, fit, load_run
from mufuru.experiments.settings import SettingError, Training
from mufuru.experiments.tasks.languages import model, tracking
from mufuru.experiments.tasks.languages.config import PRESETS, LanguageConfig, LanguagesConfig, ReaderConfig
from mufuru.experiments.tasks.languages.model import Encoded, Recogniser, free_size, positions, size_of
from mufuru.experiments.tasks.languages.task import LanguagesTask

CELLS = ("mufuru", "gru", "lstm", "vanilla", "transformer")
DATA = LanguageConfig(
    "count-3", train_strings=60, valid_strings=12, test_strings=20, lengths=(1, 6), test_lengths=(7, 9)
)


def settings(cell: Any = "mufuru", **changes: Any) -> LanguagesConfig:
    training = Training(epochs=2, beta1=0.9, schedule="plateau", decay_patience=2, evaluate_every=3)
    layers = ReaderConfig(cell, hidden_size=8, num_layers=2)
    return LanguagesConfig(layers, training, DATA, batch_tokens=40, dropout=0.2, **changes)


@pytest.mark.parametrize("modulus", [2, 3, 5])
def test_counters(modulus: int) -> None:
    language = tracking.LANGUAGES[f"count-{modulus}"]
    for bits in product("01", repeat=7):
        assert language.state(bits) == sum(map(int, bits)) % modulus


@pytest.mark.parametrize(("name", "size", "order"), [("s3", 3, 6), ("a5", 5, 60)])
def test_word_problems(name: str, size: int, order: int) -> None:
    """Products of permutation matrices, and both symbols together make every element of the group."""
    language = tracking.LANGUAGES[name]
    elements = [torch.tensor(one) for one in permutations(range(size))]
    # det is the sign; a row of a matrix has its 1 where the permutation sends it
    matrices = [torch.eye(size)[one] for one in elements]
    group = [m for m in matrices if name == "s3" or m.det() > 0]
    assert len(group) == order == language.classes
    single = {symbol: group[language.state((symbol,))] for symbol in language.symbols}
    draws, seen = Draws("test", name), Counter[int]()
    for _ in range(1500):
        string = language.draw(1 + draws.below(40), draws)
        matrix = torch.eye(size)
        for symbol in string:
            matrix = matrix @ single[symbol]
        assert torch.equal(group[language.state(string)], matrix)
        seen[language.state(string)] += 1
    assert len(seen) == order


def test_arithmetic_with_brackets() -> None:
    """Python computes the same."""
    language, seen = tracking.LANGUAGES["brackets-5"], Counter[int]()
    for length in range(1, 60):
        draws = Draws("test", length)
        for _ in range(20):
            string = language.draw(length, draws)
            assert len(string) == length
            assert set(string) <= {*language.symbols}
            assert language.state(string) == eval("".join(string)) % 5
            seen[language.state(string)] += 1
    assert len(seen) == 5


def test_drawn_strings_have_their_lengths() -> None:
    task = LanguagesTask(settings())
    for split, lengths in {"train": range(1, 7), "valid": range(1, 7), "test": range(7, 10)}.items():
        assert {*task._encoded[split].lengths.tolist()} <= {*lengths}
    other = LanguagesTask(replace(settings(), seed=1))
    assert not torch.equal(task._encoded["train"].targets, other._encoded["train"].targets)


def test_batches_have_at_most_so_many_symbols() -> None:
    """Each string once, strings of about the same length together, another order in another epoch."""
    task = LanguagesTask(settings())
    epochs = [list(task.batches("train", epoch)) for epoch in (0, 1)]
    for batches in epochs:
        assert sum(len(batch.targets) for batch in batches) == 60
        for batch in batches:
            assert len(batch.tokens.batch_sizes) * len(batch.targets) <= 40
        ranges = sorted((int(batch.tokens.batch_sizes.eq(len(batch.targets)).sum()), len(batch.tokens.batch_sizes))
                        for batch in batches)  # fmt: skip
        assert all(one[1] <= other[0] or one[1] - one[0] <= 1 for one, other in pairwise(ranges))
    first, second = ([len(batch.tokens.batch_sizes) for batch in batches] for batches in epochs)
    assert first != second
    assert sorted(first) == sorted(second)


def test_long_and_empty_strings_are_in_batches_too() -> None:
    encoded = Encoded([[0] * 9, [], [1], [], [0, 1]], [0, 1, 2, 3, 4])
    assert encoded.sizes(8) == [4, 1]
    assert encoded.sizes(2) == [2, 1, 1, 1]
    batch = encoded.batch(torch.tensor([1, 4, 2]))
    assert batch.tokens.data.tolist() == [0, 1, 1]
    assert batch.tokens.batch_sizes.tolist() == [2, 1]
    assert batch.targets.tolist() == [4, 2, 1]
    assert encoded.batch(torch.tensor([1, 3])).tokens is None


@pytest.mark.parametrize("cell", CELLS)
def test_a_string_has_the_same_answer_alone(cell: Any) -> None:
    """The empty string among them; a transformer does not look ahead."""
    torch.manual_seed(0)
    made = Recogniser(settings(cell), 2, 3).eval()
    encoded = Encoded([[0, 1, 1, 0], [], [1], [1, 0, 1], []], [0, 1, 2, 0, 1])
    order = torch.tensor([0, 3, 2, 1, 4])
    together = made(encoded.batch(torch.arange(5)))
    for row, answer in zip(order, together, strict=True):
        alone = made(encoded.batch(row.view(1)))[0]
        # float32 in another order
        torch.testing.assert_close(alone, answer, rtol=1e-5, atol=1e-6)
    assert not torch.equal(together[0], together[1])


@pytest.mark.parametrize("cell", CELLS)
def test_every_parameter_learns(cell: Any) -> None:
    torch.manual_seed(0)
    made = Recogniser(settings(cell), 2, 3)
    made(Encoded([[0, 1, 1, 0], []], [0, 1]).batch(torch.arange(2))).square().sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.abs().max()) > 0, name


def test_a_recurrent_model_is_torchs_own() -> None:
    """Embedding, nn.GRU with the learned initial state, and the output, by hand."""
    torch.manual_seed(0)
    made = Recogniser(settings("gru"), 2, 2).eval()
    rnn: Any = made.reader.layer.rnn
    assert (type(rnn), rnn.dropout) == (nn.GRU, 0.2)
    _, state = rnn(made.embedding(torch.tensor([[0], [1], [1]])), made.reader.initial)
    expected = made.output(state[-1])
    torch.testing.assert_close(made(Encoded([[0, 1, 1]], [0]).batch(torch.tensor([0]))), expected)
    weights = list(made.parameters())
    assert all(float(weight.detach().abs().max()) <= 0.1 for weight in weights)


def test_positions_are_sines() -> None:
    table = positions(50, 6)
    assert table.shape == (50, 6)
    for step, wave in product((0, 3, 49), range(3)):
        angle = torch.tensor(step / 10_000 ** (2 * wave / 6))
        torch.testing.assert_close(table[step, 2 * wave : 2 * wave + 2], torch.stack((angle.sin(), angle.cos())))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("symbols", "classes"), [(2, 2), (60, 60)])
def test_one_size_makes_up_the_parameters(
    monkeypatch: pytest.MonkeyPatch, cell: Any, symbols: int, classes: int
) -> None:
    """No other size of the embedding, or of a transformer's inner layers, comes nearer."""
    config = settings(cell, parameters=6000)
    best = free_size(config, symbols, 1 if classes == 2 else classes)
    away = []
    for size in (best, best - 1, best + 1):
        monkeypatch.setattr(model, "free_size", lambda *_, size=size: size)
        away.append(abs(size_of(Recogniser(config, symbols, classes)) - 6000))
    assert away[0] == min(away)
    assert away[0] <= 0.02 * 6000


def test_accuracy_by_length_is_that_of_the_test() -> None:
    torch.manual_seed(1)
    task = LanguagesTask(settings())
    made = task.build().eval()
    with torch.no_grad():
        found = task.inspect(made)["lengths"]
    metrics = evaluate(task, made, "test")
    assert sum(found["right"]) / sum(found["sequences"]) == pytest.approx(metrics["accuracy"])
    lengths = Counter(task._encoded["test"].lengths.tolist())
    assert found["sequences"][:3] == [lengths[length] for length in (7, 8, 9)]


@pytest.mark.parametrize("cell", ["mufuru", "gru", "transformer"])
@pytest.mark.parametrize("at", [1, 8])
def test_stopped_in_mid_epoch_and_gone_on_with(tmp_path: Path, cell: Any, at: int) -> None:
    """The order of strings and the masks to come are in the checkpoint."""
    chosen = settings(cell)
    fit("languages", chosen, tmp_path / "alone")
    step, count = LanguagesTask.step, 0

    def interrupted(self: LanguagesTask, model: Any, *args: Any) -> Any:
        nonlocal count
        count += model.training
        if model.training and count == at:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, model, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LanguagesTask, "step", interrupted)
        with pytest.raises(Interrupted, match=f"stopped after update {at} of"):
            fit("languages", chosen, tmp_path / "stopped")
    torch.rand(3)
    result = fit("languages", chosen, tmp_path / "stopped", resume=True)
    assert_same_run(tmp_path / "stopped", tmp_path / "alone")
    task, trained = load_run(tmp_path / "stopped")
    assert evaluate(task, trained, "test") == result["test"]


def test_a_language_of_flare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symbols are numbered in order; the empty string has a class too."""
    strings: Any = {
        "train": [(("b", "a"), True), ((), False)],
        "valid": [((), False)],
        "test": [(("a",) * 12, True), ((), True)],
    }
    monkeypatch.setattr(flare, "load", lambda language, folder: strings)
    task = LanguagesTask(replace(PRESETS["flare"], cell=ReaderConfig(hidden_size=4), parameters=None))
    assert task.symbols == ["a", "b"]
    (batch,) = task.batches("train")
    assert batch.tokens.data.tolist() == [1, 0]
    assert batch.targets.tolist() == [1, 0]
    with torch.no_grad():
        found = task.inspect(task.build())["lengths"]
    assert found["sequences"] == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert found["longest"][:2] == [1, 3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"language": "perity"}, "Did you mean 'parity'"),
        ({"language": "count-2", "data_dir": "x"}, "count-2 is drawn"),
        ({"train_strings": 5}, "train_strings is that of a drawn language"),
        ({"language": "count-2", "lengths": (4, 3)}, "lengths should be two whole numbers"),
    ],
)
def test_data_that_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        LanguageConfig(**change)


def test_settings_that_are_refused() -> None:
    with pytest.raises(SettingError, match="set batch_tokens"):
        LanguagesConfig(training=Training(batch_size=7))
    with pytest.raises(SettingError, match="embedding_size follows from parameters"):
        settings(parameters=5000, embedding_size=5)
    with pytest.raises(SettingError, match="bidirectional is not for languages"):
        ReaderConfig(bidirectional=True)
    with pytest.raises(SettingError, match="keep_bias is an option of mufuru and gru and lstm, not of transformer"):
        ReaderConfig("transformer", keep_bias=1.0)
