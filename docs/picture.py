"""The picture on the first page: what the small model that comes with mufuru does with one formula."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure

import mufuru
from mufuru.experiments.engine.evaluate import load_model
from mufuru.experiments.explorer import shipped
from mufuru.experiments.tasks.logic.formulae import TOKENS, parse

FORMULA = "1 0 AND 0 OR 1 if/then 0 XOR"


def figure() -> Figure:
    model: Any = load_model(shipped()[0])
    tokens = torch.tensor(parse(FORMULA).tokens)
    with mufuru.tracing(model) as traces, torch.no_grad():
        model.reader(model.one_hot[tokens].unsqueeze(1))
    (layer,) = traces.values()
    return mufuru.plot.units(layer[0], [TOKENS[token] for token in tokens])
