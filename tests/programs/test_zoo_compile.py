"""A program zoo: programs under `torch.compile` with the backend that it has when nobody names one."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from zoo import Found, program, trained

# torch's own: of torch.jit, and of the sizes that it would rather have
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
N, HIDDEN = 3, 20


class Model(nn.Module):
    def __init__(self, layer_type: Any, **options: Any) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(11, N), nn.Linear(HIDDEN, 11)
        self.rnn = layer_type(N, HIDDEN, batch_first=True, **options)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.out(self.rnn(self.embed(tokens))[0].relu())
        return logits


def compiled(function: Any, **options: Any) -> Any:
    """Anew in every run; but the reference, with which it is compared, runs as it is written."""
    torch.compiler.reset()
    return function if os.environ.get("MUFURU_KERNEL") == "reference" else torch.compile(function, **options)


def fit(model: Any, parameters: Any, steps: int = 2) -> Tensor:
    optimizer = torch.optim.SGD(parameters, lr=0.3)
    for _ in range(steps):
        tokens = torch.randint(11, (4, 6))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    return loss.detach()


@program
def test_a_compiled_model(layer_type: Any) -> Found:
    model = Model(layer_type)
    fast = compiled(model)
    loss = fit(fast, model.parameters())
    with torch.no_grad():
        after = fast(torch.arange(10).view(2, 5))
    return trained(model, loss=loss, after=after)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"num_layers": 2}, {"num_layers": 3, "bidirectional": False}, {"bidirectional": True}],
    ids=["two layers", "three layers", "both directions"],
)
@program
def test_more_layers_and_directions(layer_type: Any, options: Any) -> Found:
    model = Model(layer_type, **options)
    if options.get("bidirectional"):
        model.out = nn.Linear(2 * HIDDEN, 11)
    return trained(model, loss=fit(compiled(model), model.parameters()))


@pytest.mark.slow
@program
def test_a_step_of_training_is_compiled(layer_type: Any) -> Found:
    """Forward, backward and optimiser in one function."""
    model = Model(layer_type, num_layers=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)

    def step(tokens: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast = compiled(step)
    losses = [fast(torch.randint(11, (4, 6))) for _ in range(3)]
    return trained(model, losses=torch.stack(losses))


@pytest.mark.slow
@program
def test_a_decoder_with_a_cell(cell_type: Any) -> Found:
    """The loop over the steps is the program's own, and is compiled with it."""
    cell, out = cell_type(N, HIDDEN), nn.Linear(HIDDEN, N)

    def decode(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        outputs = []
        for _ in range(3):
            h = cell(x, h)
            x = out(h)
            outputs.append(x)
        return torch.stack(outputs), h

    fast = compiled(decode)
    optimizer = torch.optim.SGD([*cell.parameters(), *out.parameters()], lr=0.2)
    h = torch.zeros(4, HIDDEN)
    for _ in range(2):
        outputs, h = fast(torch.randn(4, N), h.detach())
        optimizer.zero_grad()
        outputs.square().mean().backward()
        optimizer.step()
    return trained(cell, out, outputs=outputs, h=h)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["reduce-overhead", "dynamic"])
@program
def test_modes_of_the_compiler(layer_type: Any, mode: str) -> Found:
    model = Model(layer_type)
    fast = compiled(model, dynamic=True) if mode == "dynamic" else compiled(model, mode=mode)
    loss = fit(fast, model.parameters())
    with torch.no_grad():
        shapes = [fast(torch.ones(batch, steps, dtype=torch.long)).sum() for batch, steps in ((2, 3), (5, 4))]
    return trained(model, loss=loss, sums=torch.stack(shapes))


@pytest.mark.slow
@program
def test_compiled_around_a_checkpoint(layer_type: Any) -> Found:
    rnn, out = layer_type(N, 5), nn.Linear(5, 1)

    def loss(x: Tensor) -> Tensor:
        output, _ = torch.utils.checkpoint.checkpoint(rnn, x, use_reentrant=False)
        value: Tensor = out(output).square().mean()
        return value

    fast = compiled(loss)
    optimizer = torch.optim.SGD([*rnn.parameters(), *out.parameters()], lr=0.2)
    for _ in range(2):
        optimizer.zero_grad()
        value = fast(torch.randn(5, 2, N))
        value.backward()
        optimizer.step()
    return trained(rnn, out, value=value)


@pytest.mark.slow
@program
def test_weights_change_between_compiled_calls(layer_type: Any) -> Found:
    """By loading, through `.data`, by an optimiser: the graph reads the weights as they are."""
    model, tokens = Model(layer_type), torch.arange(10).view(2, 5)
    fast, seen = compiled(model), []
    with torch.no_grad():
        for change in range(3):
            seen.append(fast(tokens))
            if change == 0:
                model.rnn.weight_hh_l0.data[:, 3] = 0.5
            elif change == 1:
                model.load_state_dict(Model(layer_type).state_dict())
    fit(fast, model.parameters())
    return trained(model, seen=torch.stack(seen))
