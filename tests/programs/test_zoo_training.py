"""A program zoo: optimisers, averages, checkpoints of training, precision."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from zoo import Found, program, trained

N, HIDDEN = 3, 20


class Model(nn.Module):
    """Normalisation, recurrence, a line: what most programs train."""

    def __init__(self, layer_type: Any, **options: Any) -> None:
        super().__init__()
        self.norm, self.rnn, self.out = nn.BatchNorm1d(N), layer_type(N, HIDDEN, **options), nn.Linear(HIDDEN, 1)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.rnn(self.norm(x.flatten(0, 1)).view_as(x))
        predicted: Tensor = self.out(output)
        return predicted


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    inputs = torch.randn(count, 5, 4, N)
    return [(x, x.cumsum(0).mean(-1, keepdim=True)) for x in inputs]


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, count: int = 3) -> Tensor:
    for x, target in batches(count):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
    return loss.detach()


def predict(model: nn.Module) -> Tensor:
    """In evaluation mode and without gradients, on numbers that are always the same."""
    was, x = model.training, torch.linspace(-1, 1, 5 * 4 * N).view(5, 4, N)
    with torch.no_grad():
        predicted: Tensor = model.eval()(x)
    model.train(was)
    return predicted


OPTIMISERS: dict[str, Any] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "SGD, for each": lambda p: torch.optim.SGD(p, lr=0.1, foreach=True),
    "SGD, fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    # a large eps: a gradient of the size of rounding must not decide a step's sign
    "Adam": lambda p: torch.optim.Adam(p, lr=0.02, eps=1e-3, amsgrad=True),
    "Adam, for each": lambda p: torch.optim.Adam(p, lr=0.02, eps=1e-3, foreach=True),
    "Adam, fused": lambda p: torch.optim.Adam(p, lr=0.02, eps=1e-3, fused=True),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=0.02, eps=1e-3, fused=True, maximize=True),
    "Adagrad, fused": lambda p: torch.optim.Adagrad(p, lr=0.02, eps=1e-3, fused=True),
    "RMSprop, for each": lambda p: torch.optim.RMSprop(p, lr=0.01, eps=1e-2, centered=True, foreach=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.02, eps=1e-3),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=0.02),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.05),
}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@program
def test_optimiser(layer_type: Any, optimiser: str) -> Found:
    """An evaluation before each step keeps a copy of the weights, which the step makes old."""
    model, predictions = Model(layer_type), []
    optimizer = OPTIMISERS[optimiser](model.parameters())
    for x, target in batches(3):
        loss = F.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        predictions.append(predict(model))
        optimizer.step()
        predictions.append(predict(model))
    return trained(model, loss=loss, predictions=torch.stack(predictions))


@program
def test_lbfgs_calls_the_model_many_times(layer_type: Any) -> Found:
    model = Model(layer_type)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, line_search_fn="strong_wolfe")
    x, target = batches(1)[0]

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), target)
        loss.backward()
        return loss

    loss: Any = optimizer.step(closure)
    return trained(model, loss=loss, predicted=predict(model))


@program
def test_groups_with_a_schedule_and_clipping(layer_type: Any) -> Found:
    model = Model(layer_type, num_layers=2)
    groups = [
        {"params": [p for name, p in model.named_parameters() if "weight_hh" in name], "lr": 0.05},
        {"params": [p for name, p in model.named_parameters() if "weight_hh" not in name], "weight_decay": 0.1},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.2)
    schedule, norms = torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.1, 0.3], total_steps=4), []
    for x, target in batches(3):
        optimizer.zero_grad()
        F.mse_loss(model(x), target).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1, error_if_nonfinite=True))
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
        schedule.step()
    return trained(model, norms=torch.stack(norms), rates=schedule.get_last_lr())


@program
def test_adam_goes_on_from_a_file(layer_type: Any, tmp_path: Path) -> Found:
    model = Model(layer_type)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, eps=1e-3)
    fit(model, optimizer)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
    fresh = Model(layer_type)
    resumed = torch.optim.Adam(fresh.parameters(), lr=0.5)
    predict(fresh)
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True, mmap=True)
    fresh.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    generator = torch.get_rng_state()
    loss = fit(model, optimizer)
    torch.set_rng_state(generator)
    assert torch.equal(fit(fresh, resumed), loss)
    assert torch.equal(predict(fresh), predict(model))
    return trained(fresh, loss=loss, predicted=predict(fresh))


@program
def test_moving_average_by_hand(layer_type: Any) -> Found:
    """A copy that follows the model, written as most people write it: through `.data`."""
    model = Model(layer_type)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer, predictions = torch.optim.SGD(model.parameters(), lr=0.3), [predict(average)]
    for _ in range(3):
        fit(model, optimizer, 1)
        for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
            slow.data.mul_(0.9).add_(fast.data, alpha=0.1)
        predictions.append(predict(average))
    return trained(model, average, predictions=torch.stack(predictions))


@pytest.mark.parametrize("ema", [False, True], ids=["SWA", "EMA"])
@program
def test_averaged_model(layer_type: Any, ema: bool) -> Found:
    model = Model(layer_type)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9) if ema else None, use_buffers=ema)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    schedule, predictions = SWALR(optimizer, swa_lr=0.1), []
    for _ in range(3):
        fit(model, optimizer, 1)
        average.update_parameters(model)
        schedule.step()
        predictions.append(predict(average))
    if not ema:
        update_bn([x for x, _ in batches(2)], average)
    return trained(model, average, predictions=torch.stack(predictions), last=predict(average))


@program
def test_early_stopping_loads_the_best_weights_back(layer_type: Any) -> Found:
    model = Model(layer_type)
    optimizer, best, predictions = torch.optim.Adam(model.parameters(), lr=0.05, eps=1e-3), None, [predict(model)]
    for epoch in range(4):
        fit(model, optimizer, 1)
        predictions.append(predict(model))
        if epoch == 1:
            best = copy.deepcopy(model.state_dict())
    assert best is not None
    model.load_state_dict(best)
    fit(model, optimizer, 1)
    return trained(model, predictions=torch.stack(predictions), after=predict(model))


@program
def test_assigned_from_a_mapped_file(layer_type: Any, tmp_path: Path) -> Found:
    """A large model: made without memory, its weights taken from the file as they lie there, then trained."""
    torch.save(Model(layer_type).state_dict(), tmp_path / "weights.pt")
    with torch.device("meta"):
        model = Model(layer_type)
    model.load_state_dict(torch.load(tmp_path / "weights.pt", mmap=True, weights_only=True), assign=True)
    before = predict(model)
    loss = fit(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return trained(model, before=before, loss=loss, after=predict(model))


@program
def test_optimiser_within_the_backward_pass(layer_type: Any) -> Found:
    """Each parameter steps as soon as its gradient is there, and the gradient is gone: memory is saved."""
    model = Model(layer_type, num_layers=2)
    optimizers = {p: torch.optim.SGD([p], lr=0.2) for p in model.parameters()}

    def step(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    losses = []
    for x, target in batches(3):
        losses.append(F.mse_loss(model(x), target))
        losses[-1].backward()
    return trained(model, losses=torch.stack(losses), predicted=predict(model))


@program
def test_flat_parameters(layer_type: Any) -> Found:
    """All parameters and gradients are views of two buffers, at odd offsets; one call updates everything."""
    model = Model(layer_type, num_layers=2)
    count = sum(p.numel() for p in model.parameters())
    flat, flat_grad, begin = torch.zeros(count + 1)[1:], torch.zeros(count + 1)[1:], 0
    for p in model.parameters():
        part = slice(begin, begin + p.numel())
        flat[part] = p.detach().flatten()
        p.data, p.grad, begin = flat[part].view_as(p), flat_grad[part].view_as(p), part.stop
    losses = []
    for x, target in batches(3):
        flat_grad.zero_()
        losses.append(F.mse_loss(model(x), target))
        losses[-1].backward()
        predict(model)
        flat.sub_(flat_grad, alpha=0.2)
    return trained(model, losses=torch.stack(losses), predicted=predict(model))


@program
def test_evolution_without_gradients(layer_type: Any) -> Found:
    """Weights come as vectors; between the calls nothing but `vector_to_parameters`."""
    model = Model(layer_type).requires_grad_(False)
    centre, scores = nn.utils.parameters_to_vector(model.parameters()), []
    for _ in range(3):
        noise = torch.randn(4, len(centre))
        for one in noise:
            nn.utils.vector_to_parameters(centre + 0.1 * one, model.parameters())
            scores.append(predict(model).square().mean())
        centre = centre - 0.1 * (torch.stack(scores[-4:]).unsqueeze(1) * noise).mean(0)
    return trained(model, scores=torch.stack(scores))


@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"])
@program
def test_surgery_of_single_weights(layer_type: Any, name: str) -> Found:
    """`.data` and NumPy change a number, a column, everything: torch counts none of them as a change."""
    model, predictions = Model(layer_type), []
    weight = getattr(model.rnn, name)

    def one() -> None:
        weight.data.flatten()[5] += 2

    def some() -> None:
        weight.data[..., 1::7] = 0.5

    def by_numpy() -> None:
        weight.detach().numpy().flat[13] = -1

    def everything() -> None:
        weight.data.mul_(0.5)

    for change in (one, some, by_numpy, everything):
        predictions.append(predict(model))
        change()
        predictions.append(predict(model))
        assert not torch.equal(*predictions[-2:]), change.__name__
    return trained(model, predictions=torch.stack(predictions))


@program
def test_fused_step_with_few_gradients(layer_type: Any) -> Found:
    """A masked gradient moves two weights; fused optimisers do not tell torch that they changed anything."""
    model, predictions = Model(layer_type), []
    optimizer = torch.optim.SGD(model.rnn.parameters(), lr=1.0, fused=True)
    for place in range(3):
        for parameter in model.rnn.parameters():
            parameter.grad = torch.zeros_like(parameter)
            parameter.grad.flatten()[place] = 1
        predictions.append(predict(model))
        optimizer.step()
    predictions.append(predict(model))
    return trained(model, predictions=torch.stack(predictions))


def _vector(model: nn.Module) -> None:
    vector_to_parameters(parameters_to_vector(model.parameters()).detach() * 0.5, model.parameters())


def _released(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = torch.zeros(1)


EXCHANGES: dict[str, Any] = {
    "vector": _vector, "released": _released, "half": nn.Module.half, "double": nn.Module.double,
    "meta": lambda model: model.to("meta"),
}  # fmt: skip
"""What gives parameters other data: other numbers, shapes, types, none at all."""


@pytest.mark.parametrize("exchange", EXCHANGES)
@program
def test_parameters_get_other_data_before_the_backward_pass(layer_type: Any, exchange: str) -> Found:
    """The gradient is that of the pass that was."""
    rnn, x = layer_type(N, HIDDEN, 2, bidirectional=True), torch.randn(5, 4, N, requires_grad=True)
    rnn.weight_hh_l1.requires_grad_(False)
    (wanted,) = torch.autograd.grad(rnn(x)[0].square().sum(), x)
    loss = rnn(x)[0].square().sum()
    EXCHANGES[exchange](rnn)
    (found,) = torch.autograd.grad(loss, x)
    assert torch.equal(found, wanted)
    return {"found": found}


@program
def test_precision_changes_after_inference(layer_type: Any) -> Found:
    model = Model(layer_type)
    x, found = torch.linspace(-1, 1, 5 * 4 * N).view(5, 4, N), {"float32": predict(model)}
    for dtype in (torch.float64, torch.float16, torch.float32):
        model.to(dtype).eval()
        with torch.inference_mode():
            found[str(dtype)] = model(x.to(dtype)).float().clone()
    model.train()
    loss = fit(model, torch.optim.SGD(model.parameters(), lr=0.2))
    double = copy.deepcopy(model).double()
    double(x.double()).sum().backward()
    return trained(model, double, loss=loss, after=predict(model), **found)


@program
def test_inference_then_training_then_inference(layer_type: Any) -> Found:
    model = Model(layer_type)
    x, seen = torch.linspace(-1, 1, 5 * 4 * N).view(5, 4, N), []
    for _ in range(3):
        with torch.inference_mode():
            seen.append(model.eval()(x).clone())
        model.train()
        fit(model, torch.optim.SGD(model.parameters(), lr=0.3), 1)
    made_in_inference_mode = seen[-1]
    with torch.no_grad():
        after = model.eval()(x)
    return trained(model, seen=made_in_inference_mode, after=after, all=torch.stack([s.clone() for s in seen]))


@program
def test_autocast_around_a_half(layer_type: Any) -> Found:
    """The first line and the layer in float16, the last in float32, with a scaled loss."""
    first, rnn, out = nn.Linear(N, N), layer_type(N, 5, 2), nn.Linear(5, 1)
    model = nn.ModuleList([first, rnn, out])
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=64.0)
    for x, target in batches(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            half = first(x)
            output, h_n = rnn(half.float())
        loss = F.mse_loss(out(output), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return trained(model, half=half, output=output, h_n=h_n, loss=loss, scale=scaler.get_scale())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@program
def test_autocast_around_all(layer_type: Any, dtype: torch.dtype) -> Found:
    """What the layer gets is in half precision already, and so is what it is asked to go on from."""
    first, rnn = nn.Linear(N, N), layer_type(N, 5)
    optimizer = torch.optim.SGD([*first.parameters(), *rnn.parameters()], lr=0.1)
    with torch.autocast("cpu", dtype):
        output, h_n = rnn(first(torch.randn(5, 2, N)))
        output, h_n = rnn(first(torch.randn(5, 2, N)), h_n)
        loss = output.float().square().mean()
    loss.backward()
    optimizer.step()
    return trained(first, rnn, output=output, h_n=h_n)


@program
def test_a_copy_by_bytes_goes_on_alone(layer_type: Any) -> Found:
    """A whole model saved between two steps, after inference, and trained from there."""
    model = Model(layer_type, num_layers=2)
    fit(model, torch.optim.SGD(model.parameters(), lr=0.3))
    before, file = predict(model), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    twin = torch.load(file, weights_only=False)
    assert torch.equal(predict(twin), before)
    fit(twin, torch.optim.SGD(twin.parameters(), lr=0.3))
    assert torch.equal(predict(model), before)
    return trained(model, twin, before=before, after=predict(twin))


@program
def test_nan_guard_and_gradient_noise(layer_type: Any) -> Found:
    """A batch with an infinite input is skipped; other gradients get noise through parameters' hooks."""
    model = Model(layer_type)
    optimizer, skipped = torch.optim.SGD(model.parameters(), lr=0.2), 0
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: grad + 0.01 * torch.ones_like(grad))
    for i, (x, target) in enumerate(batches(4)):
        x[2, 1] = torch.inf if i == 1 else x[2, 1]
        optimizer.zero_grad()
        loss = F.mse_loss(model.out(model.rnn(x)[0]), target)
        loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        if not norm.isfinite():
            skipped += 1
            continue
        optimizer.step()
    return trained(model, loss=loss, skipped=float(skipped))
