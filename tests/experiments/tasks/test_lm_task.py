"""The language-model task: carried state, exact counts, perplexity, settings, and what it tells of a model."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_texts import CELLS, END, VOCABULARY, WORDS, config, corpus, stream, task

from mufuru.experiments.data import DataError, tokenise
from mufuru.experiments.data.text import Corpus
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.engine import evaluate
from mufuru.experiments.settings import SettingError, Training, from_json, to_json
from mufuru.experiments.tasks import KINDS
from mufuru.experiments.tasks.cells import CellConfig, CellName
from mufuru.experiments.tasks.lm import task as task_module
from mufuru.experiments.tasks.lm.config import PRESETS, DataConfig, LMConfig
from mufuru.experiments.tasks.lm.model import LanguageModel, first_token
from mufuru.experiments.tasks.lm.task import LMTask
from mufuru.experiments.tasks.task import Task, Totals


def totals(made: LMTask, model: Any, split: str) -> Totals:
    found, state = Totals(), None
    with torch.no_grad():
        for window in made.batches(split):
            step = made.step(model, window, state)
            state = step.state
            found.add(step)
    return found


@pytest.mark.parametrize("cell", CELLS)
def test_carried_state_is_one_long_pass(cell: CellName) -> None:
    """Windows one after the other give what the whole columns at once give; so does a state with a controller."""
    made = task(cell)
    model = made.build().eval()
    found = totals(made, model, "train")
    windows = made.batches("train")
    whole = model.predict(torch.cat([w.inputs for w in windows]), torch.cat([w.targets for w in windows]))
    # two hundred losses in single precision
    assert found.loss == pytest.approx(whole.loss.item(), rel=1e-5)
    assert found.count == 4 * (203 // 4)


def test_the_state_of_a_recurrent_controller_is_carried_too() -> None:
    made = task("mufuru", controller_size=3)
    model = made.build().eval()
    windows = made.batches("train")
    whole = model.predict(torch.cat([w.inputs for w in windows]), torch.cat([w.targets for w in windows]))
    # two hundred losses in single precision
    assert totals(made, model, "train").loss == pytest.approx(whole.loss.item(), rel=1e-5)


def test_the_loss_by_hand() -> None:
    """Every token from all before it, the first from <eos>, one at a time with torch's own functions."""
    made = task("gru")
    model = made.build().eval()
    tokens, state, loss = [END, *made.corpus.valid.tolist()], None, 0.0
    for token, following in pairwise(tokens):
        output, state = model.reader.rnn(model.embedding(torch.tensor([[token]])), state)
        loss -= model.output(output[0, 0]).log_softmax(0)[following].item()
    # 61 losses in single precision
    assert evaluate(made, model, "valid")["loss"] == pytest.approx(loss / 61, rel=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_perplexity_does_not_depend_on_how_evaluation_is_cut(cell: CellName) -> None:
    model = task(cell).build().eval()
    found = []
    for window, batch_size in ((1, 1), (5, 4), (16, 20), (61, 3), (1000, 7)):
        made = task(cell, evaluation_window=window, batch_size=batch_size)
        found.append(evaluate(made, model, "valid")["perplexity"])
        assert totals(made, model, "valid").count == 61
        assert totals(made, model, "test").count == 47
    # the same sums in another order, in single precision
    assert found == pytest.approx([found[0]] * len(found), rel=1e-5)


@pytest.mark.parametrize("words", [10, 1000])
def test_a_model_that_knows_nothing_has_the_perplexity_of_the_vocabulary(words: int) -> None:
    vocabulary = Vocabulary((*WORDS, *map(str, range(words - 10))))
    made = LMTask(config("gru"), Corpus(stream(50), stream(40), stream(30), vocabulary, "noise"))
    model = made.build()
    with torch.no_grad():
        model.output.weight.zero_()
    # the logarithm of a whole number in single precision
    assert evaluate(made, model, "valid")["perplexity"] == pytest.approx(words, rel=1e-6)


def test_the_end_of_a_line_is_a_prediction_like_any_other() -> None:
    made = task()
    targets = torch.cat([window.targets for window in made.batches("valid")]).flatten()
    assert torch.equal(targets, made.corpus.valid)
    assert int(targets.eq(END).sum()) > 0
    assert made.batches("valid")[0].inputs[0, 0] == END


def test_windows_are_the_same_in_every_epoch_and_start_without_a_state() -> None:
    made = task()
    assert made.batches("train", 3) is made.batches("train", 0)
    assert made.step(made.build(), made.batches("train")[0], None).state.grad_fn is None


def test_bits_per_character() -> None:
    letters = Vocabulary(("a", "b", "\n", "<unk>"))
    tokens = torch.randint(4, (60,))
    settings = config("gru", data=DataConfig(text=("book.txt",), level="char"))
    made = LMTask(settings, Corpus(tokens, tokens[:30], tokens[30:], letters, "letters"))
    model = made.build()
    with torch.no_grad():
        model.output.weight.zero_()
    found = evaluate(made, model, "test")
    # of four equally likely characters, of one byte each, each takes two bits
    assert found.pop("perplexity_per_word") > 4.0
    wanted = {"loss": math.log(4), "perplexity": 4.0, "bits_per_character": 2.0, "bits_per_byte": 2.0}
    assert found == pytest.approx(wanted, rel=1e-6)
    assert made.batches("valid")[0].inputs[0, 0] == letters.words.index("\n")


def test_what_stands_before_a_text() -> None:
    assert first_token(VOCABULARY) == END
    assert first_token(Vocabulary(("a", "\n", "<unk>"))) == 1
    assert first_token(Vocabulary(("a", "<unk>"))) == 1


def test_a_loss_beyond_all_bounds_is_still_a_number() -> None:
    found = task().metrics(Totals(2000.0, 1))
    assert math.isfinite(found["perplexity"])
    assert math.isnan(task().metrics(Totals(math.nan, 1))["perplexity"])


@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_learns_a_text_by_heart(cell: CellName) -> None:
    made = task(cell, tied=True)
    model = made.build()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    window = made.batches("train")[0]
    first = made.step(model, window, None).loss.item()
    for _ in range(60):
        optimizer.zero_grad()
        made.step(model, window, None).loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
    assert made.step(model, window, None).loss.item() < 0.7 * first


def test_tied_weights_are_one_parameter() -> None:
    tied, free = task(tied=True).build(), task().build()
    assert tied.output.weight is tied.embedding.weight
    assert free.output.weight is not free.embedding.weight
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in (tied, free)]
    assert sizes[1] - sizes[0] == len(WORDS) * 6
    again = task(tied=True).build()
    again.load_state_dict(tied.state_dict())
    assert again.output.weight is again.embedding.weight
    assert torch.equal(again.output.weight, tied.output.weight)


def test_first_weights() -> None:
    model = task("gru", embedding_scale=0.25, initialisation="uniform", initial_scale=0.01).build()
    assert 0.2 < model.embedding.weight.abs().max() <= 0.25
    assert 0.2 < model.output.weight.abs().max() <= 0.25
    assert not model.output.bias.any()
    assert model.reader.rnn.weight_hh_l0.abs().max() <= 0.01


def test_an_embedding_of_another_size() -> None:
    made = task(embedding_size=4)
    made.step(made.build(), made.batches("train")[0], None).loss.backward()


def test_a_model_carries_its_vocabulary() -> None:
    assert LanguageModel.restored(config(), task().build().state_dict()).vocabulary == VOCABULARY


def test_weights_of_another_text_are_refused() -> None:
    """Also where the vocabulary is as large; a model that is made without a text takes any."""
    weights = task().build().state_dict()
    other = LMTask(config(), corpus(train=204)).build()
    with pytest.raises(RuntimeError, match="trained on other data, or the files of the data have changed since"):
        other.load_state_dict(weights)
    LanguageModel(config(), VOCABULARY).load_state_dict(weights)


def test_the_text_that_the_settings_name(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("a b b\nc b a\n" * 20)
    made = LMTask(config("gru", data=DataConfig(text=(str(path),), held_out=(0.2, 0.1))))
    assert (len(made.corpus.train), len(made.corpus.valid), len(made.corpus.test)) == (112, 32, 16)
    with pytest.raises(DataError, match="has 112 tokens, expected at least 113: one for each of the 113 columns"):
        LMTask(config("gru", data=DataConfig(text=(str(path),), held_out=(0.2, 0.1)), batch_size=113))
    with pytest.raises(DataError, match="no such f"):
        LMTask(config("gru", data=DataConfig(data_dir=str(tmp_path / "nowhere"))))


def test_mean_operation_weights_by_class() -> None:
    """Against the trace of one long pass, class by class."""
    made = task("mufuru")
    model = made.build().eval()
    table = made.inspect(model)["operation_weights"]
    read = torch.tensor([END, *made.corpus.valid[:-1].tolist()])
    p = model.reader.rnn.trace(model.embedding(read.unsqueeze(1))).weights()[:, 0].mean(-1).detach()
    members = {
        "function words": ["the", "on"],
        "content words": ["cat", "sat", "mat", "dog"],
        "numbers": ["N"],
        "punctuation": [","],
        "<eos>": ["<eos>"],
        "<unk>": ["<unk>"],
    }
    kinds = [name for name, group in zip(table["tokens"], table["groups"], strict=True) if group == "kind"]
    assert sorted(kinds) == sorted(members)
    for name, words in members.items():
        chosen = torch.isin(read, VOCABULARY.encode(words))
        place = table["tokens"].index(name)
        assert table["counts"][place] == int(chosen.sum())
        # written with six digits
        torch.testing.assert_close(torch.tensor(table["weight"][place]), p[chosen].mean(0), atol=2e-6, rtol=0)
    assert table["ops"] == list(model.reader.rnn.ops)
    assert json.loads(json.dumps(table, allow_nan=False)) == table


def test_frequency_bands_hold_every_ordinary_word_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "BANDS", (2, 4, 100))
    text = corpus()
    ranks = task_module.frequency_ranks(text)
    counts = torch.bincount(text.train, minlength=len(WORDS))
    bands = {name: tokens for group, name, tokens in task_module.classes(VOCABULARY, ranks, "word") if group != "kind"}
    assert list(bands) == ["rank 1 to 2", "rank 3 to 4", "rank 5 to 8"]
    ordinary = [number for number, word in enumerate(WORDS) if word not in ("<eos>", "<unk>")]
    assert sorted(torch.cat(list(bands.values())).tolist()) == ordinary
    least = [int(counts[tokens].min()) for tokens in bands.values()]
    most = [int(counts[tokens].max()) for tokens in bands.values()]
    assert all(low >= high for low, high in zip(least, most[1:], strict=False))


def test_kinds_of_characters() -> None:
    found = {character: task_module.kind_of_character(character) for character in "aé7 \n,€"}
    assert list(found.values()) == ["letters", "letters", "digits", "blanks", "blanks", "punctuation", "punctuation"]


@pytest.mark.parametrize("cell", ["gru", "lstm", "vanilla"])
def test_other_cells_have_no_operations(cell: CellName) -> None:
    made = task(cell)
    assert made.inspect(made.build()) == {}


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("cell", CELLS)
def test_presets_survive_json_and_serve_every_cell(name: str, cell: CellName) -> None:
    preset = replace(PRESETS[name], cell=PRESETS[name].cell.for_cell(cell))
    assert from_json(LMConfig, json.loads(json.dumps(to_json(preset)))) == preset
    assert preset.cell.num_layers == 1


def test_the_papers_preset_is_the_papers() -> None:
    """One layer of 200 units on the Penn Treebank, Adam without a mean gradient, and no tricks."""
    paper = PRESETS["paper"]
    assert (paper.cell.hidden_size, paper.cell.num_layers, paper.features) == (200, 1, 200)
    assert paper.data == DataConfig()
    assert paper.regularisation == LMConfig().regularisation
    assert (paper.training.beta1, paper.training.average, paper.tied) == (0.0, None, False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tied": True, "embedding_size": 3}, "tied embeddings need an embedding_size of hidden_size, got 3 and 200"),
        ({"cell": CellConfig(bidirectional=True)}, "cannot read ahead: leave bidirectional out"),
        ({"bptt": 0}, "bptt should be a number above 0, got 0"),
        ({"evaluation_window": 0}, "evaluation_window should be a number above 0, got 0"),
    ],
)
def test_settings_that_cannot_be_meant(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        LMConfig(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"level": "char"}, "level is for files of your own: name them with --text, or leave it out"),
        ({"vocabulary_size": 5}, "vocabulary_size is for files of your own"),
        ({"valid_text": ("a",)}, "valid_text is for files of your own"),
        ({"text": ("a",), "data_dir": "b"}, "data_dir is the folder of the Penn Treebank, and text names other files"),
        ({"text": ("a",), "min_count": 0}, "min_count should be a number above 0, got 0"),
        ({"text": ("a",), "held_out": (0.5, 0.5)}, "held_out should be two shares above 0 and below 1 together"),
        ({"text": ("a",), "held_out": (0.0, 0.5)}, "held_out should be two shares above 0"),
    ],
)
def test_texts_that_cannot_be_meant(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        DataConfig(**changes)


@pytest.mark.parametrize("average", [1.0, -0.1])
def test_averages_that_cannot_be_meant(average: float) -> None:
    with pytest.raises(SettingError, match="average should be at least 0 and below 1"):
        Training(average=average)


def test_it_is_a_task() -> None:
    made: Task = task()
    assert made.metric in made.metrics(Totals(1.0, 1))
    assert KINDS["lm"].config is LMConfig


def test_a_large_text_trains_as_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a token file, with columns that begin inside of pieces: the same windows."""
    monkeypatch.setenv("MUFURU_DATA", str(tmp_path / "data"))
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat\na dog ran\n" * 40)
    chosen = config(data=DataConfig(text=(str(path),)))
    small = LMTask(chosen)
    monkeypatch.setattr(tokenise, "LARGE", 0)
    large = LMTask(chosen)
    assert large.corpus.train.dtype == torch.uint16
    assert large.corpus.fingerprint == small.corpus.fingerprint
    for split in ("train", "valid", "test"):
        assert len(large.batches(split)) == len(small.batches(split))
        for one, other in zip(large.batches(split), small.batches(split), strict=True):
            assert torch.equal(one.inputs, other.inputs)
            assert torch.equal(one.targets, other.targets)
    assert large.inspect(large.build()).keys() == {"operation_weights"}
