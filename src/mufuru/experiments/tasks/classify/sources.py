"""Where the labelled sequences of a classifier come from."""

from __future__ import annotations

from pathlib import Path

from mufuru.experiments.data import labelled, sst
from mufuru.experiments.data.examples import Labelled
from mufuru.experiments.tasks.classify.config import DataConfig


def load(data: DataConfig) -> Labelled:
    """The labelled sequences that the settings name."""
    if data.data is None:
        treebank = sst.load(None if data.data_dir is None else Path(data.data_dir))
        return sst.examples(
            treebank, data.classes, data.phrases, distinct=data.distinct_phrases, graded=data.graded, lower=False
        )
    return labelled.load(
        Path(data.data),
        valid=None if data.valid_data is None else Path(data.valid_data),
        test=None if data.test_data is None else Path(data.test_data),
        text=data.text_column,
        label=data.label_column,
        split=data.split_column,
        format=data.format,
        cut=data.cut,
        lower=False,
        held_out=data.held_out,
        seed=data.split_seed,
    )
