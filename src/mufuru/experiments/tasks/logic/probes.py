"""Probes of a trained model of formulae, beyond its test accuracy: formulae without resets, the effect of every
operation at every token, and the whole automaton of a model with one unit."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import mufuru
from mufuru.experiments.draws import Draws
from mufuru.experiments.tasks.logic.formulae import GATES, TOKENS, Wanted, sample
from mufuru.experiments.tasks.logic.model import Encoded, FormulaReader, encode
from mufuru.experiments.tasks.task import by_length

WITHOUT_RESETS = tuple(number for number, gate in enumerate(GATES) if gate.name in ("XOR", "XNOR"))
"""Gates whose result depends on the value so far, whatever the next one is."""
LONG = Wanted(1000, 11, 250)
"""Formulae of these gates alone: those of the test have a reset every third gate, so that no memory of it is long."""
BATCH = 250
POINTS = 81
"""States at which the automaton of one unit is written down, from -1 to 1."""


def probes(model: FormulaReader, test: Encoded, seed: int) -> dict[str, Any]:
    """Return what the model does, ready for JSON."""
    results: dict[str, Any] = {"without_resets": without_resets(model, seed)}
    if isinstance(model.reader.rnn, mufuru.MuFuRU):
        results["interventions"] = interventions(model, test)
        if model.config.hidden_size == 1 and model.config.num_layers == 1:
            results["automaton"] = automaton(model)
    return results


def without_resets(model: FormulaReader, seed: int) -> dict[str, list[int]]:
    """Return the accuracy on formulae of XOR and XNOR alone, by their number of gates."""
    draws = Draws("logic", "without resets", seed)
    encoded = encode([sample(LONG, draws, WITHOUT_RESETS) for _ in range(LONG.count)])
    # the longest first, as batches have them
    order = encoded.lengths.argsort(descending=True, stable=True)
    right = [judged(model(batch.tokens), batch.values) for batch in encoded.batches(order, BATCH)]
    return by_length(encoded.lengths[order] // 2, torch.cat(right))


def judged(logits: Tensor, values: Tensor) -> Tensor:
    return (logits > 0) == (values > 0.5)


def interventions(model: FormulaReader, test: Encoded) -> dict[str, Any]:
    """Return test accuracy, and the accuracy when one operation is forbidden in all steps that read one token.

    `{"tokens", "ops", "accuracy", "without": [[per operation] per token]}`
    """

    def accuracy(forbid: Sequence[str], token: int = 0) -> float:
        logits = model.output(read(model, test, forbid, token)).squeeze(-1)
        return round(float(judged(logits, test.values).float().mean()), 6)

    ops = model.reader.config.ops
    without = [[accuracy((op,), token) for op in ops] for token in range(len(TOKENS))]
    return {"tokens": list(TOKENS), "ops": list(ops), "accuracy": accuracy(()), "without": without}


def read(model: FormulaReader, test: Encoded, forbid: Sequence[str], where: int) -> Tensor:
    """Return (formulae, units): the last states of the top layer, without some operations in the steps that read a
    token. Every step is computed both ways, and each formula keeps the one that applies."""
    rnn: Any = model.reader.rnn
    state = torch.zeros(model.config.num_layers, len(test.values), model.config.hidden_size)
    for step, tokens in enumerate(test.tokens):
        x = model.embed(tokens).unsqueeze(0)
        new = rnn(x, state)[1]
        chosen = tokens == where
        if forbid and bool(chosen.any()):
            with mufuru.intervene(rnn, forbid=forbid):
                new = torch.where(chosen[:, None], rnn(x, state)[1], new)
        state = torch.where((step < test.lengths)[:, None], new, state)
    return state[-1]


def automaton(model: FormulaReader) -> dict[str, Any]:
    """Return the next state of a single unit for every token, over states from -1 to 1, and the state at which the
    answer changes.

    `{"states", "next": [[per state] per token], "boundary", "true": whether true is above it}`
    """
    rnn: Any = model.reader.rnn
    states = torch.linspace(-1, 1, POINTS)
    following = [
        rnn(model.embed(torch.full((1, POINTS), token)), states.view(1, -1, 1))[0].flatten()
        for token in range(len(TOKENS))
    ]
    slope, offset = float(model.output.weight), float(model.output.bias)
    return {
        "states": [round(state, 4) for state in states.tolist()],
        "next": [[round(state, 4) for state in line.tolist()] for line in following],
        "boundary": round(-offset / slope, 4),
        "true": "above" if slope > 0 else "below",
    }
