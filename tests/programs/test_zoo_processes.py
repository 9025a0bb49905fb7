"""A program zoo: models that go to other processes and threads, and graphs that are saved there."""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from zoo import Found, program, trained

N, HIDDEN = 3, 20


class Model(nn.Module):
    def __init__(self, layer_type: Any, num_layers: int = 2) -> None:
        super().__init__()
        self.rnn, self.out = layer_type(N, HIDDEN, num_layers, batch_first=True), nn.Linear(HIDDEN, 1)

    def forward(self, x: Tensor) -> Tensor:
        predicted: Tensor = self.out(self.rnn(x)[0])
        return predicted


def fit(model: nn.Module, steps: int = 2) -> Tensor:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for _ in range(steps):
        x = torch.randn(4, 5, N)
        loss = F.mse_loss(model(x), x.cumsum(1).mean(-1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()


def predict(model: nn.Module) -> Tensor:
    with torch.no_grad():
        predicted: Tensor = model(torch.linspace(-1, 1, 4 * 5 * N).view(4, 5, N))
    return predicted


def there(kernel: str, task: Any, *args: Any) -> Any:
    """Do a task in the worker process, which was started before the kernel was chosen here."""
    os.environ["MUFURU_KERNEL"] = kernel
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return task(*args)


class Worker:
    """Another process, started anew and not forked."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def __call__(self, task: Any, *args: Any) -> Any:
        return self._pool.submit(there, os.environ.get("MUFURU_KERNEL", "auto"), task, *args).result(120)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield Worker(pool)


def train_there(model: nn.Module) -> tuple[nn.Module, Tensor]:
    loss = fit(model)
    return model, loss


@program
def test_pickled_to_a_worker_and_back(layer_type: Any, worker: Worker) -> Found:
    """The worker gets a model that has run, trains it and sends it back, to be trained further."""
    model = Model(layer_type)
    fit(model)
    before = predict(model)
    assert torch.equal(worker(predict, model), before)
    back, loss = worker(train_there, model)
    fit(back)
    return trained(back, before=before, loss=loss.clone(), after=predict(back))


def change_there(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.view(-1)[1:2] += 0.5


@pytest.mark.parametrize("task", [train_there, change_there], ids=["all weights", "single weights"])
@program
def test_shared_weights_are_changed_by_a_worker(layer_type: Any, worker: Worker, task: Any) -> Found:
    """Hogwild: the memory is shared, and nothing here says that the other process has written to it."""
    model = Model(layer_type).share_memory()
    before = predict(model)
    worker(task, model)
    after = predict(model)
    assert not torch.equal(after, before)
    return trained(model, before=before, after=after)


def call_program(path: str, x: Tensor) -> Tensor:
    with torch.no_grad():
        predicted: Tensor = torch.export.load(path).module()(x)
    return predicted


@pytest.mark.filterwarnings("ignore")  # torch's own: of its GRU, of its scan, of torch.jit
@program
def test_exported_and_loaded_in_another_process(layer_type: Any, worker: Worker, tmp_path: Path) -> Found:
    model, x = Model(layer_type, num_layers=1).eval(), torch.randn(4, 5, N)
    fit(model)
    exported = torch.export.export(model, (x,))
    torch.export.save(exported, tmp_path / "model.pt2")
    x = torch.randn(4, 5, N)
    there = worker(call_program, str(tmp_path / "model.pt2"), x)
    # another process may split a product otherwise: float32 rounding
    torch.testing.assert_close(there, model(x).detach(), rtol=0, atol=1e-6)
    return {"there": there.clone()}


def load_and_predict(path: str) -> Tensor:
    return predict(torch.load(path, weights_only=False))


@program
def test_saved_whole_and_loaded_in_another_process(layer_type: Any, worker: Worker, tmp_path: Path) -> Found:
    model = Model(layer_type)
    fit(model)
    torch.save(model, tmp_path / "model.pt")
    return {"there": worker(load_and_predict, str(tmp_path / "model.pt")).clone(), "here": predict(model)}


class Encoded(Dataset[Tensor]):
    """Items are computed by a model inside the loader's worker."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.x = model.requires_grad_(False), torch.randn(6, 5, N)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Tensor:
        encoded: Tensor = self.model.rnn(self.x[i])[0]
        return encoded


@program
def test_loader_forks_workers_that_run_the_model(layer_type: Any) -> Found:
    """After this process has used its threads; another model then trains on what the workers send."""
    encoder, model = Model(layer_type), layer_type(HIDDEN, HIDDEN, batch_first=True)
    fit(encoder)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    with warnings.catch_warnings():
        # Python warns of any fork beside threads, and torch has some
        warnings.simplefilter("ignore", DeprecationWarning)
        for x in DataLoader(Encoded(encoder), batch_size=2, num_workers=1, multiprocessing_context="fork"):
            optimizer.zero_grad()
            model(x)[0].square().mean().backward()
            optimizer.step()
    return trained(model, encoder, last=x.clone())


@program
def test_data_parallel(layer_type: Any) -> Found:
    """Without a GPU it runs the module as it is."""
    model = nn.DataParallel(Model(layer_type))
    loss = fit(model)
    return trained(model, loss=loss, after=predict(model))


@program
def test_threads_ask_one_model(layer_type: Any) -> Found:
    """All begin at once, on a model that has not run before; then after each step of training."""
    model, inputs, found = Model(layer_type), torch.randn(8, 4, 5, N), []
    barrier = threading.Barrier(8)

    def ask(x: Tensor) -> Tensor:
        barrier.wait(60)
        with torch.inference_mode():
            answer: Tensor = model(x)
        return answer.clone()

    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            found += list(pool.map(ask, inputs))
            fit(model, 1)
    return trained(model, found=torch.stack([tensor.clone() for tensor in found]))


@program
def test_threads_train_through_one_model(layer_type: Any) -> Found:
    """Each thread differentiates alone; the gradients are added up here, in order."""
    model, inputs = Model(layer_type), torch.randn(4, 4, 5, N)

    def gradients(x: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(model(x).square().mean(), list(model.parameters()))

    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            for grads in list(pool.map(gradients, inputs)):
                with torch.no_grad():
                    for parameter, grad in zip(model.parameters(), grads, strict=True):
                        parameter.sub_(grad, alpha=0.1)
    return trained(model, after=predict(model))


@program
def test_backward_in_another_thread(layer_type: Any) -> Found:
    model = Model(layer_type)
    loss = model(torch.randn(4, 5, N)).square().mean()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    torch.optim.SGD(model.parameters(), lr=0.2).step()
    return trained(model, loss=loss, after=predict(model))


@program
def test_models_of_several_threads(layer_type: Any) -> Found:
    """Each thread makes, trains and asks a model of its own, as a search of settings does."""

    def search(seed: int) -> tuple[nn.Module, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        model, x = models[seed], torch.randn(4, 5, N, generator=generator)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-3)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            predict(model)
        return model, predict(model)

    models = [Model(layer_type) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(search, range(4)))
    return trained(*(model for model, _ in results), found=torch.stack([found for _, found in results]))
