"""A program zoo: training on two processes that are joined by gloo, sharded or not.

Two processes serve all programs of this file: starting them takes longer than the programs.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import traceback
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from zoo import Found, check, trained, with_mufuru

N, HIDDEN, RANKS = 3, 20, 2
PATIENCE = 300
"""Seconds until a rank that waits for another gives up: no program takes one; a busy machine starts ranks slowly."""


class Model(nn.Module):
    def __init__(self, layer_type: Any, recompute: bool = False, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.first, self.rnn, self.out = nn.Linear(N, N), layer_type(N, hidden, 2), nn.Linear(hidden, 1)
        self.recompute = recompute

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        output, _ = checkpoint(self.rnn, x, use_reentrant=False) if self.recompute else self.rnn(x)
        predicted: Tensor = self.out(output)
        return predicted


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, steps: int = 3) -> Tensor:
    """Each rank has numbers of its own; an evaluation follows each step, as it does in real programs."""
    found = []
    for step in range(steps):
        x = torch.randn(5, 4, N, generator=torch.Generator().manual_seed(100 * step + rank))
        optimizer.zero_grad()
        F.mse_loss(model(x), x.cumsum(0).mean(-1, keepdim=True)).backward()
        optimizer.step()
        with torch.no_grad():
            found.append(model(torch.ones(5, 4, N)))
    return torch.stack(found)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)


def ddp(layer_type: Any, rank: int, **options: Any) -> Found:
    model = DistributedDataParallel(Model(layer_type), **options)
    return trained(model, seen=fit(model, sgd(model), rank))


def ddp_with_checkpoint(layer_type: Any, rank: int, **options: Any) -> Found:
    model = DistributedDataParallel(Model(layer_type, recompute=True), **options)
    return trained(model, seen=fit(model, sgd(model), rank))


def ddp_accumulates(layer_type: Any, rank: int) -> Found:
    """One layer is not used at all, and gradients are shared at every second batch only."""
    model = Model(layer_type)
    model.unused = layer_type(N, N)
    parallel = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = sgd(parallel)
    with parallel.no_sync():
        parallel(torch.ones(5, 4, N) + rank).square().mean().backward()
    parallel(torch.zeros(5, 4, N) + rank).square().mean().backward()
    nn.utils.clip_grad_norm_(parallel.parameters(), 0.1)
    optimizer.step()
    return trained(parallel)


def ddp_with_uneven_inputs(layer_type: Any, rank: int) -> Found:
    model = DistributedDataParallel(Model(layer_type))
    optimizer = sgd(model)
    with Join([model]):
        for step in range(1 + rank):
            optimizer.zero_grad()
            model(torch.full((5, 4, N), 1.0 + step + rank)).square().mean().backward()
            optimizer.step()
    return trained(model)


def ddp_with_a_sharded_optimiser(layer_type: Any, rank: int) -> Found:
    # its import warns of torch.jit, which is torch's own affair
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(Model(layer_type), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.02, eps=1e-3)
    return trained(model, seen=fit(model, optimizer, rank))


def averaged_by_hand(layer_type: Any, rank: int) -> Found:
    model = Model(layer_type)
    for parameter in model.parameters():
        distributed.broadcast(parameter.detach(), 0)
    seen = fit(model, sgd(model), rank, steps=1)
    for parameter in model.parameters():
        distributed.all_reduce(parameter.data)
        parameter.data.div_(RANKS)
    with torch.no_grad():
        return trained(model, seen=seen, after=model(torch.ones(5, 4, N)))


def whole(model: nn.Module, **seen: Any) -> Found:
    """Parameters and gradients of a sharded model, put together."""
    found = dict(seen)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    for name, parameter in model.named_parameters():
        sharded: Any = parameter
        found[f"parameter {name}"] = sharded.full_tensor().detach()
        found[f"gradient {name}"] = None if sharded.grad is None else sharded.grad.full_tensor()
    return found


def fsdp(layer_type: Any, rank: int, recompute: bool = False, hidden: int = HIDDEN, **options: Any) -> Found:
    model = Model(layer_type, recompute, hidden)
    fully_shard(model.rnn, **options)
    fully_shard(model, **options)
    return whole(model, seen=fit(model, sgd(model), rank).float())


def fsdp_in_half_precision(layer_type: Any, rank: int) -> Found:
    # small: the library that torch has for larger products in bfloat16 does not run on every machine
    return fsdp(layer_type, rank, hidden=5, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))


def fsdp_loads_and_clips(layer_type: Any, rank: int) -> Found:
    """Made without memory, loaded whole, trained with clipping, saved whole."""
    weights = Model(layer_type).state_dict()
    with torch.device("meta"):
        model = Model(layer_type)
    fully_shard(model.rnn)
    fully_shard(model)
    model.to_empty(device="cpu")
    options = StateDictOptions(full_state_dict=True)
    set_model_state_dict(model, weights, options=options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, eps=1e-3)
    model(torch.ones(5, 4, N) + rank).square().mean().backward()
    norm: Any = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    saved = get_model_state_dict(model, options=options)
    return {f"parameter {name}": value for name, value in saved.items()} | {"norm": norm.full_tensor()}


def fsdp_changes_in_place(layer_type: Any, rank: int) -> Found:
    """FSDP warns of a view, on which its hooks are lost when it is changed in place. No layer shall return one."""
    seen: dict[str, Any] = {}
    for name, options in {
        "one": {},
        "two": {"num_layers": 2, "batch_first": True},
        "both": {"bidirectional": True},
    }.items():
        layer = layer_type(N, HIDDEN, **options)
        fully_shard(layer)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            output, h_n = layer(torch.ones(5, 4, N) + rank)
            output += 1.0
            h_n.mul_(2.0)
        (output.square().mean() + h_n.square().mean()).backward()
        found = whole(layer, output=output.detach())
        seen |= {f"{key}, {name}": value for key, value in found.items()}
    return seen


PROGRAMS: dict[str, Callable[[Any, int], Found]] = {
    "DDP": ddp,
    "DDP, bucket views": partial(ddp, gradient_as_bucket_view=True, static_graph=True),
    "DDP around a checkpoint": ddp_with_checkpoint,
    "DDP around a checkpoint, static": partial(ddp_with_checkpoint, static_graph=True),
    "DDP, accumulated, partly unused": ddp_accumulates,
    "DDP, uneven inputs": ddp_with_uneven_inputs,
    "DDP, sharded optimiser": ddp_with_a_sharded_optimiser,
    "averaged by hand": averaged_by_hand,
    "FSDP": fsdp,
    "FSDP, kept whole after forward": partial(fsdp, reshard_after_forward=False),
    "FSDP around a checkpoint": partial(fsdp, recompute=True),
    "FSDP, half precision": fsdp_in_half_precision,
    "FSDP, changed in place": fsdp_changes_in_place,
    "FSDP, loaded and clipped": fsdp_loads_and_clips,
}


def serve(rank: int, store: str, connection: Connection) -> None:
    """Run programs as they come; what they find goes back as bytes, without memory shared between processes."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=timedelta(seconds=PATIENCE)
    )
    while (job := connection.recv()) is not None:
        name, layer_type, kernel = job
        os.environ["MUFURU_KERNEL"] = kernel
        torch.manual_seed(20160610)
        file = io.BytesIO()
        try:
            found = PROGRAMS[name](layer_type, rank)
            torch.save({key: v.detach() if isinstance(v, Tensor) else v for key, v in found.items()}, file)
        except Exception:
            connection.send(traceback.format_exc())
            break
        connection.send(file.getvalue())
    distributed.destroy_process_group()


class Ranks:
    """The two processes; they are started anew after a program failed in one of them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._started = folder, 0
        self._connections: list[Connection] = []
        self._processes: list[Any] = []

    def start(self) -> None:
        context, self._started = multiprocessing.get_context("spawn"), self._started + 1
        for rank in range(RANKS):
            mine, theirs = context.Pipe()
            process = context.Process(target=serve, args=(rank, str(self._folder / f"store{self._started}"), theirs))
            process.start()
            self._connections.append(mine)
            self._processes.append(process)

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
            process.join()
        self._connections, self._processes = [], []

    def run(self, name: str, layer_type: Any) -> Found:
        if not self._processes:
            self.start()
        for connection in self._connections:
            connection.send((name, layer_type, os.environ.get("MUFURU_KERNEL", "auto")))
        answers = [_answer(connection) for connection in self._connections]
        if failures := [answer for answer in answers if isinstance(answer, str)]:
            self.stop()
            pytest.fail("\n".join(failures))
        found: dict[str, Any] = {}
        for rank, answer in enumerate(answers):
            found |= {f"{key}, rank {rank}": v for key, v in torch.load(io.BytesIO(answer)).items()}
        return found


def _answer(connection: Connection) -> Any:
    """What a rank found, as bytes, or in words why it did not."""
    if not connection.poll(PATIENCE):
        return "the rank gave no answer"
    try:
        return connection.recv()
    except EOFError:
        return "the rank died"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.stop()


OFTEN = (
    "DDP",
    "DDP around a checkpoint",
    "DDP, accumulated, partly unused",
    "FSDP",
    "FSDP, loaded and clipped",
    "FSDP, changed in place",
)
NAMES = [pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow) for name in PROGRAMS]


@pytest.mark.parametrize("name", NAMES)
@with_mufuru
def test_on_two_ranks(layer_type: Any, name: str, ranks: Ranks) -> None:
    check(lambda layer_type: ranks.run(name, layer_type), {"layer_type": layer_type})
