"""Forecast a series with darts: its RNNModel with a MuFuRU inside, beside its GRU and the season before.

The adapter is `MuFuRUModule`; everything else is darts as its users write it. Needs `pip install '.[darts]'`; tried
with darts 0.48.1 and Lightning 2.6.6.

    python examples/darts_forecast.py
    python examples/darts_forecast.py --epochs 100
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

import numpy as np
from darts import TimeSeries
from darts.metrics import mase
from darts.models import NaiveSeasonal, RNNModel
from darts.models.forecasting.rnn_model import _RNNModule

from mufuru import MuFuRU

SEASON, HORIZON = 12, 24


class MuFuRUModule(_RNNModule):  # type: ignore[misc]
    """darts' recurrent module, a `CustomRNNModule`, with another layer."""

    def __init__(self, **options: Any) -> None:
        super().__init__(name="GRU", **options)
        self.rnn = MuFuRU(self.input_size, self.hidden_dim, self.num_layers, batch_first=True, dropout=self.dropout)


def series(length: int = 240) -> TimeSeries:
    """Two seasons that multiply, and noise."""
    steps, noise = np.arange(length), np.random.default_rng(0)
    yearly = np.sin(2 * np.pi * steps / SEASON) * (1.5 + np.sin(2 * np.pi * steps / (5 * SEASON)))
    return TimeSeries.from_values((yearly + 0.1 * noise.standard_normal(length)).astype(np.float32))


def model(layer: Any, epochs: int) -> RNNModel:
    return RNNModel(
        model=layer, input_chunk_length=3 * SEASON, training_length=5 * SEASON, hidden_dim=16, n_epochs=epochs,
        random_state=0, optimizer_kwargs={"lr": 0.01},
        pl_trainer_kwargs={"accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False},
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30, help="passes over the series (default: %(default)s)")
    epochs = parser.parse_args().epochs
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    whole = series()
    train, test = whole[:-HORIZON], whole[-HORIZON:]
    models = {
        "season before": NaiveSeasonal(SEASON),
        "GRU": model("GRU", epochs),
        "MuFuRU": model(MuFuRUModule, epochs),
    }
    print(f"MASE of the last {HORIZON} steps, forecast at once; 1 is the error of a naive step in training.")
    for name, forecaster in models.items():
        forecaster.fit(train)
        print(f"{name:15}{mase(test, forecaster.predict(HORIZON), train):.3f}", flush=True)


if __name__ == "__main__":
    main()
