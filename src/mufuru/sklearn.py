"""Sequence models as estimators of scikit-learn: `fit`, `predict`, `score`, in pipelines and cross-validation.

`X` is a list of arrays, one for each sequence, (steps,) or (steps, channels), of any lengths; or one array, (sequences,
steps) or (sequences, steps, channels), in which shorter sequences end with NaN. Needs `pip install '.[sklearn]'`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.utils.rnn import pad_sequence

from mufuru.layer import MuFuRU
from mufuru.ops import PAPER

Pooling = Literal["last", "max", "mean"]
EVALUATION_BATCH = 256
"""Sequences at a time where nothing is trained; no result depends on it but by rounding."""


class Network(nn.Module):
    """Standardised channels, a recurrent layer, one vector per sequence, a linear layer."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, options: dict[str, Any], steps: Tensor, outputs: int) -> None:
        super().__init__()
        deviation, mean = torch.std_mean(steps.double(), 0, correction=0)
        self.register_buffer("mean", mean.float())
        self.register_buffer("deviation", torch.where(deviation > 0, deviation, 1.0).float())
        shape = {name: options[name] for name in ("hidden_size", "num_layers", "bidirectional", "ops")}
        self.rnn = MuFuRU(steps.size(1), batch_first=True, **shape)
        self.pooling, self.dropout = options["pooling"], nn.Dropout(options["dropout"])
        self.output = nn.Linear(self.rnn.hidden_size * (2 if self.rnn.bidirectional else 1), outputs)

    def forward(self, sequences: list[Tensor]) -> Tensor:
        """Return (sequences, outputs)."""
        lengths = torch.tensor([len(sequence) for sequence in sequences], device="cpu")
        x = (pad_sequence(sequences, batch_first=True) - self.mean) / self.deviation
        outputs, state = self.rnn(x, lengths=lengths)
        beyond = (torch.arange(outputs.size(1), device="cpu") >= lengths.unsqueeze(1)).unsqueeze(-1)
        if self.pooling == "max":
            vector = outputs.masked_fill(beyond, -torch.inf).amax(1)
        elif self.pooling == "mean":
            vector = outputs.masked_fill(beyond, 0.0).sum(1) / lengths.unsqueeze(1)
        else:
            directions = 2 if self.rnn.bidirectional else 1
            vector = torch.cat(tuple(state[-directions:]), -1)
        result: Tensor = self.output(self.dropout(vector))
        return result


class SequenceEstimator(BaseEstimator):  # type: ignore[misc]
    """Shared by classifier and regressor: the settings, and the training.

    Args:
        hidden_size: Units of each layer and direction.
        num_layers: Number of stacked layers.
        bidirectional: Read every sequence in both directions.
        ops: Operations of the units to choose from.
        pooling: Vector of a sequence: the last state, or the max or mean of all outputs.
        dropout: Probability that a feature of that vector is left out in training.
        epochs: Passes over the training data.
        batch_size: Sequences of an update.
        learning_rate: Largest step size of Adam; it falls to 0 as a cosine.
        random_state: Seed of initial weights, dropout and order; None for another each time.
    """

    def __init__(
        self,
        hidden_size: int = 64,
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
        ops: Sequence[Any] = PAPER,
        pooling: Pooling = "max",
        dropout: float = 0.0,
        epochs: int = 30,
        batch_size: int = 16,
        learning_rate: float = 4e-3,
        random_state: Any = None,
    ) -> None:
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bidirectional = bidirectional
        self.ops = ops
        self.pooling = pooling
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _fit(self, X: Any, targets: Tensor, outputs: int) -> Self:
        """Train a new network; torch's own generator is left as it was."""
        if self.pooling not in ("last", "max", "mean"):
            raise ValueError(f"pooling should be 'last', 'max' or 'mean', got {self.pooling!r}")
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} should be at least 1, got {getattr(self, name)}")
        sequences = read_sequences(X)
        check_consistent_length(sequences, targets)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.n_features_in_ = sequences[0].size(1)
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(seed)
            self.network_ = Network(self.get_params(), torch.cat(sequences), outputs)
            self._train(sequences, targets)
        self.network_.eval()
        return self

    def _train(self, sequences: list[Tensor], targets: Tensor) -> None:
        updates = self.epochs * -(-len(sequences) // self.batch_size)
        optimiser = torch.optim.Adam(self.network_.parameters(), self.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates)
        for _ in range(self.epochs):
            for which in torch.randperm(len(sequences)).split(self.batch_size):
                loss = self._loss(self.network_([sequences[place] for place in which.tolist()]), targets[which])
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.network_.parameters(), 1.0)
                optimiser.step()
                schedule.step()

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        raise NotImplementedError

    @torch.no_grad()
    def _outputs(self, X: Any) -> Tensor:
        check_is_fitted(self, "network_")
        sequences = read_sequences(X)
        if sequences[0].size(1) != self.n_features_in_:
            raise ValueError(
                f"expected sequences with {self.n_features_in_} number(s) in a step, as in fit, got "
                f"{sequences[0].size(1)}"
            )
        return torch.cat([self.network_(some) for some in cut(sequences, EVALUATION_BATCH)])


class SequenceClassifier(ClassifierMixin, SequenceEstimator):  # type: ignore[misc]
    """Classifier of sequences of numbers by a `MuFuRU` layer.

    Examples:
        >>> import numpy as np
        >>> X = [np.random.default_rng(n).normal(n % 2, 1, size=5 + n % 3) for n in range(40)]
        >>> model = SequenceClassifier(8, epochs=5, random_state=0).fit(X, ["low", "high"] * 20)
        >>> model.predict_proba(X).shape
        (40, 2)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on sequences and their labels, (sequences,)."""
        labels = np.asarray(y)
        check_classification_targets(labels)
        self.classes_, targets = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"expected labels of at least 2 classes, got only {self.classes_.tolist()}")
        return self._fit(X, torch.from_numpy(targets), len(self.classes_))

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets)

    def predict_proba(self, X: Any) -> np.ndarray[Any, Any]:
        """Return (sequences, classes): the probability of each of `classes_`."""
        probabilities: np.ndarray[Any, Any] = self._outputs(X).double().softmax(1).numpy()
        return probabilities

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """Return the likeliest labels."""
        likeliest = self.predict_proba(X).argmax(1)
        labels: np.ndarray[Any, Any] = self.classes_[likeliest]
        return labels


class SequenceRegressor(RegressorMixin, SequenceEstimator):  # type: ignore[misc]
    """Regression on sequences of numbers by a `MuFuRU` layer; targets are standardised inside.

    Examples:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(40, 6))
        >>> SequenceRegressor(8, epochs=5, random_state=0).fit(X, X.mean(1)).predict(X).shape
        (40,)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on sequences and their numbers, (sequences,) or (sequences, targets)."""
        targets = torch.as_tensor(np.asarray(y, np.float64))
        if targets.dim() not in (1, 2) or not targets.isfinite().all():
            raise ValueError(
                f"expected a finite number for each sequence, got an array of shape {tuple(targets.shape)}"
            )
        self.flat_ = targets.dim() == 1
        rows = targets.reshape(len(targets), -1)
        deviation, self.mean_ = torch.std_mean(rows, 0, correction=0)
        self.deviation_ = torch.where(deviation > 0, deviation, 1.0)
        return self._fit(X, ((rows - self.mean_) / self.deviation_).float(), rows.size(1))

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return mse_loss(outputs, targets)

    def predict(self, X: Any) -> np.ndarray[Any, Any]:
        """Return (sequences,) or (sequences, targets), as the targets of fit."""
        answers = self._outputs(X).double() * self.deviation_ + self.mean_
        numbers: np.ndarray[Any, Any] = (answers.squeeze(1) if self.flat_ else answers).numpy()
        return numbers


def cut(sequences: list[Tensor], size: int) -> Iterator[list[Tensor]]:
    for start in range(0, len(sequences), size):
        yield sequences[start : start + size]


def read_sequences(X: Any) -> list[Tensor]:
    """Return (steps, channels) of each sequence, without the NaN at its end."""
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    if isinstance(X, np.ndarray) and X.dtype != object and X.ndim not in (2, 3):
        raise ValueError(f"expected sequences as (sequences, steps) or (sequences, steps, channels), got {X.shape}")
    sequences = [read_sequence(sequence, place) for place, sequence in enumerate(X)]
    if not sequences:
        raise ValueError("expected sequences, got none")
    channels = sequences[0].size(1)
    for place, sequence in enumerate(sequences):
        if sequence.size(1) != channels:
            raise ValueError(
                f"sequence {place} has {sequence.size(1)} number(s) in a step, the first has {channels}: expected the "
                "same in all"
            )
    return sequences


def read_sequence(sequence: Any, place: int) -> Tensor:
    try:
        values = np.asarray(sequence, np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sequence {place} is not an array of numbers: {error}") from None
    if values.ndim not in (1, 2):
        raise ValueError(
            f"sequence {place} should be (steps,) or (steps, channels), got {values.shape}: one array for each sequence"
        )
    steps = values[:, None] if values.ndim == 1 else values
    there = np.flatnonzero(~np.isnan(steps).all(1))
    steps = steps[: there[-1] + 1] if len(there) else steps[:0]
    if not steps.size:
        raise ValueError(f"sequence {place} has no steps: leave it out")
    if not np.isfinite(steps).all():
        raise ValueError(f"sequence {place} has NaN or an infinite number before its end: fill it in, or leave it out")
    return torch.from_numpy(np.ascontiguousarray(steps))
