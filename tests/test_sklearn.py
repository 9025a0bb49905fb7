"""Estimators of scikit-learn: as its own tools use them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mufuru.sklearn import SequenceClassifier, SequenceRegressor, read_sequences

RANDOM = np.random.default_rng(0)
RAGGED = [RANDOM.normal(3.0 * (n % 2), 1.0, size=4 + n % 5) for n in range(60)]
LABELS = np.array(["low", "high"])[np.arange(60) % 2]
SMALL: dict[str, Any] = {"hidden_size": 6, "epochs": 6, "learning_rate": 0.02, "random_state": 0}


def padded(sequences: list[Any], steps: int = 10) -> np.ndarray[Any, Any]:
    found = np.full((len(sequences), steps, *sequences[0].shape[1:]), np.nan)
    for row, sequence in zip(found, sequences, strict=True):
        row[: len(sequence)] = sequence
    return found


@pytest.mark.parametrize("pooling", ["last", "max", "mean"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_lists_and_padded_arrays_are_the_same(pooling: Any, bidirectional: bool) -> None:
    """Also as (sequences, steps, 1) and as an array of objects; and no answer depends on the others of a call."""
    options = {**SMALL, "pooling": pooling, "bidirectional": bidirectional, "epochs": 1}
    objects = np.empty(60, object)
    objects[:] = RAGGED
    forms = [RAGGED, padded(RAGGED), padded(RAGGED)[..., None], objects, [s.tolist() for s in RAGGED]]
    found = [SequenceClassifier(**options).fit(X, LABELS).predict_proba(X) for X in forms]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    model = SequenceClassifier(**options).fit(RAGGED, LABELS)
    alone = np.concatenate([model.predict_proba([sequence]) for sequence in RAGGED])
    np.testing.assert_allclose(alone, found[0], atol=1e-6)  # products of other sizes, in float32


def test_a_classifier() -> None:
    model = SequenceClassifier(**SMALL)
    assert is_classifier(model)
    assert model.fit(RAGGED, LABELS) is model
    assert list(model.classes_) == ["high", "low"]
    probabilities = model.predict_proba(RAGGED)
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    assert (model.predict(RAGGED) == model.classes_[probabilities.argmax(1)]).all()
    assert model.score(RAGGED, LABELS) == (model.predict(RAGGED) == LABELS).mean() > 0.85
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(RAGGED), probabilities)


def test_the_same_seed_gives_the_same_model() -> None:
    state = torch.random.get_rng_state()
    one, two = (SequenceClassifier(**SMALL).fit(RAGGED, LABELS).predict_proba(RAGGED) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), state), "torch's generator is left alone"
    np.testing.assert_array_equal(one, two)
    other = clone(SequenceClassifier(**SMALL)).set_params(random_state=1).fit(RAGGED, LABELS).predict_proba(RAGGED)
    assert not np.array_equal(one, other)


def test_cross_validation_and_clones() -> None:
    model = SequenceClassifier(**SMALL)
    assert clone(model).get_params() == model.get_params()
    assert cross_val_score(model, RAGGED, LABELS, cv=3).mean() > 0.8
    search = GridSearchCV(SequenceClassifier(**SMALL), {"ops": [("keep", "replace"), ("replace",)]}, cv=2)
    assert search.fit(RAGGED, LABELS).best_params_["ops"] in (("keep", "replace"), ("replace",))
    with pytest.raises(NotFittedError):
        model.predict(RAGGED)


def test_a_regressor_in_a_pipeline() -> None:
    X = RANDOM.normal(5.0, 3.0, size=(80, 7))
    y = 1000 + 50 * X.mean(1)
    model = make_pipeline(StandardScaler(), SequenceRegressor(**{**SMALL, "epochs": 10, "pooling": "mean"}))
    assert is_regressor(model)
    assert model.fit(X, y).predict(X).shape == (80,)
    assert model.score(X, y) > 0.5, "far above the mean, whose score is 0"
    both = SequenceRegressor(**SMALL).fit(X, np.stack((y, -y), 1)).predict(X)
    assert both.shape == (80, 2)


def test_many_channels() -> None:
    X = [RANDOM.normal(size=(3 + n % 4, 3)) for n in range(40)]
    y = [int(sequence[:, 1].mean() > 0) for sequence in X]
    model = SequenceClassifier(**SMALL).fit(X, y)
    assert model.n_features_in_ == 3
    np.testing.assert_array_equal(model.predict_proba(padded(X, 6)), model.predict_proba(X))
    with pytest.raises(ValueError, match=r"expected sequences with 3 number\(s\) in a step, as in fit, got 1"):
        model.predict(RAGGED)


WRONG: dict[str, tuple[Any, str]] = {
    "NaN inside": ([np.array([1.0, np.nan, 2.0])], "sequence 0 has NaN or an infinite number before its end"),
    "infinite": ([np.array([1.0, np.inf])], "sequence 0 has NaN or an infinite number before its end"),
    "empty": ([np.ones(2), np.array([])], "sequence 1 has no steps: leave it out"),
    "only NaN": (np.array([[1.0, 2.0], [np.nan, np.nan]]), "sequence 1 has no steps"),
    "one row": (np.ones(5), r"got \(5,\)"),
    "texts": (["good film", "bad film"], "sequence 0 is not an array of numbers"),
    "other channels": ([np.ones((2, 2)), np.ones((2, 3))], "sequence 1 has 3 number"),
    "four dimensions": (np.ones((2, 2, 2, 2)), "expected sequences as"),
    "none": ([], "expected sequences, got none"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_sequences(name: str) -> None:
    X, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        read_sequences(X)


def test_wrong_targets_and_settings() -> None:
    with pytest.raises(ValueError, match="at least 2 classes, got only"):
        SequenceClassifier(**SMALL).fit(RAGGED, ["a"] * 60)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        SequenceClassifier(**SMALL).fit(RAGGED, LABELS[:-1])
    with pytest.raises(ValueError, match="pooling should be"):
        SequenceClassifier(pooling="best").fit(RAGGED, LABELS)
    with pytest.raises(ValueError, match="epochs should be at least 1, got 0"):
        SequenceRegressor(epochs=0).fit(RAGGED, range(60))
    with pytest.raises(ValueError, match="expected a finite number for each sequence"):
        SequenceRegressor(**SMALL).fit(RAGGED, [np.nan] * 60)
    with pytest.raises(ValueError, match="continuous"):
        SequenceClassifier(**SMALL).fit(RAGGED, np.linspace(0, 1, 60))
