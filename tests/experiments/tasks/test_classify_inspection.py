"""What a trained classifier's record says of its inside: classes of words, and sentences word by word."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from classify_data import labelled, task
from torch.nn.utils.rnn import pack_sequence

import mufuru
from mufuru.experiments.tasks.classify.inspection import LONGEST, WORDS, choose_sentences
from mufuru.experiments.tasks.classify.model import Classifier
from mufuru.experiments.tasks.classify.task import ClassifyTask
from mufuru.experiments.tasks.words import CLASSES, CONTRAST, INTENSIFIER, NEGATION, word_class

ROUNDED = 2e-6
"""The record has six digits; the sums behind them are of float32 weights."""


def token_weights(made: ClassifyTask, model: Classifier) -> dict[str, torch.Tensor]:
    """By class, (tokens, operations): mean over units of each validation token's weights, one sentence at a time."""
    found: dict[str, list[torch.Tensor]] = {}
    vocabulary = made.meaning.vocabulary
    assert vocabulary is not None
    for text in made.labelled.valid.sequences:
        with mufuru.tracing(model) as traces, torch.no_grad():
            model(pack_sequence([vocabulary.encode(map(str.lower, text))]))
        (layer,) = traces.values()
        for word, row in zip(text, layer[0].weights()[:, 0].mean(-1), strict=True):
            found.setdefault(word_class(word), []).append(row.double())
    return {name: torch.stack(rows) for name, rows in found.items()}


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "pooling": "max"}], ids=["plain", "both ways"])
def test_classes_have_mean_and_spread_of_their_tokens(options: dict[str, Any]) -> None:
    made = task(**options)
    model = made.build().eval()
    found = made.inspect(model)
    expected = token_weights(made, model)
    assert list(found["classes"]) == list(CLASSES) == found["operation_weights"]["tokens"]
    for name, row in found["classes"].items():
        assert row["count"] == len(expected[name])
        assert list(row["mean"].values()) == pytest.approx(expected[name].mean(0).tolist(), abs=ROUNDED)
        assert list(row["sd"].values()) == pytest.approx(expected[name].std(0, correction=0).tolist(), abs=ROUNDED)
        assert list(row["mean"]) == list(row["sd"]) == list(mufuru.PAPER)
    # words of a class differ, so a spread of nothing would be wrong
    assert max(found["classes"]["other"]["sd"].values()) > 100 * ROUNDED


def test_sentences_are_chosen_by_rule() -> None:
    long = ["not", *["so"] * LONGEST]
    texts = [["a"], long, ["Not", "but"], ["fine", "but"], ["not"], ["very", "x"], ["very"]]
    assert choose_sentences(texts) == {"not": 2, "but": 3, "very": 5}
    assert choose_sentences(texts[:3]) == {"not": 2}
    # one shorter than the longest that may be
    assert choose_sentences([long[:-1]]) == {"not": 0}
    assert choose_sentences([]) == {}


@pytest.mark.parametrize(
    "options",
    [{}, {"bidirectional": True, "pooling": "max"}, {"pooling": "attention", "classes": 3}, {"max_length": 3}],
    ids=["plain", "both ways", "three classes", "cut"],
)
def test_a_sentence_word_by_word(options: dict[str, Any]) -> None:
    """The weights are those of the whole sentence, the probability that of each beginning read alone."""
    made = task(**options)
    model, valid = made.build().eval(), made.labelled.valid
    found = made.inspect(model)["sentences"]
    places = choose_sentences(valid.sequences)
    assert [sentence["word"] for sentence in found] == list(WORDS) == list(places)
    vocabulary = made.meaning.vocabulary
    assert vocabulary is not None
    for sentence, place in zip(found, places.values(), strict=True):
        words = valid.sequences[place][: options.get("max_length")]
        assert sentence["text"] == " ".join(words)
        assert [token["token"] for token in sentence["tokens"]] == words
        target = int(valid.targets[place])
        assert sentence["label"] == made.meaning.labels[target]
        numbers = vocabulary.encode(map(str.lower, words))
        with mufuru.tracing(model) as traces, torch.no_grad():
            logits = [model(pack_sequence([numbers[: end + 1]]))[0] for end in range(len(words))]
        (layer,) = traces.values()
        for step, token in enumerate(sentence["tokens"]):
            assert token["probability"] == pytest.approx(float(logits[step].softmax(0)[target]), abs=ROUNDED)
            expected = layer[-1].weights()[step, 0].mean(-1).tolist()
            assert list(token["weights"].values()) == pytest.approx(expected, abs=ROUNDED)
            assert list(token["weights"]) == list(mufuru.PAPER)
    assert json.loads(json.dumps(found)) == found


def test_numbers_and_characters_have_no_sentences() -> None:
    made = task(kind="numeric")
    found = made.inspect(made.build().eval())
    assert "sentences" not in found
    assert found["classes"]["all"]["count"] == sum(map(len, made.labelled.valid.sequences))


def test_no_word_is_in_two_classes() -> None:
    words = [word for text in (NEGATION, INTENSIFIER, CONTRAST) for word in text.split()]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("word", ["lack", "fails", "all", "such", "even", "still", "unless", "<unk>"])
def test_words_whose_work_is_another(word: str) -> None:
    assert word_class(word) == "other"


def test_the_data_of_these_tests_has_every_class() -> None:
    found = {word_class(word) for text in labelled().valid.sequences for word in text}
    assert found == set(CLASSES)
