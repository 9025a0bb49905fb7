"""One run on several processes, its ranks: each takes its share of every batch, and what they measure is added up.

`torchrun --nproc-per-node 4 -m mufuru train ...` starts them. Every rank makes the same task and model from the same
settings, and torch's DistributedDataParallel joins their gradients. Rank 0 alone reads and writes the run folder, and
sends the others what they need.
"""

import copy
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

import mufuru
from mufuru.experiments.draws import Draws
from mufuru.experiments.engine.checkpoint import Checkpoint, capture_randomness, digest, seed_everything, undisturbed
from mufuru.experiments.engine.errors import Failure, RunError, resume_command
from mufuru.experiments.tasks.task import Batch, State, Step, Task

T = TypeVar("T")
LOST = ("gloo", "nccl", "connection", "timed out", "broken pipe", "tcpstore")
"""Words of torch's errors when another process is gone or does not answer."""


class Requests(NamedTuple):
    """Requests that are granted between two updates."""

    stop: int = 0
    """The signal that asks to stop; 0 for none."""
    save: bool = False
    """Whether a checkpoint is due."""


class Alone:
    """The only process of a run."""

    rank, size = 0, 1
    restarted = False
    task: Task
    model: nn.Module

    @property
    def first(self) -> bool:
        """Whether this process writes the run folder and shows progress."""
        return self.rank == 0

    def same(self, make: Callable[[], T]) -> T:
        """Return what rank 0 makes."""
        return make()

    def adopt(self, task: Task, model: nn.Module) -> None:
        """Set the task and the model of the run, before the optimiser is made."""
        self.task, self.model = task, model

    def step(self, batch: Batch, state: State, requests: Requests | None = None) -> Step:
        """Take a step of training, or without requests of evaluation; return the results over all ranks' batch."""
        return self.task.step(self.model, batch, state)

    def granted(self, requests: Requests) -> Requests:
        """Return the requests that all ranks act upon after an update."""
        return requests

    def agree(self, requests: Requests) -> Requests:
        """Return the requests that all ranks act upon elsewhere."""
        return requests

    def inspected(self) -> nn.Module:
        """Return the model where a task can look inside, with batches as the task makes them."""
        return self.model

    def collect(self, state: State, drawn: Checkpoint) -> tuple[State, Checkpoint]:
        """Return carried state and random states of all ranks, for a checkpoint."""
        return state, drawn

    def deal(self, state: State, drawn: Checkpoint, update: int) -> tuple[State, Checkpoint]:
        """Return this rank's part of what `collect` returned after an update, maybe on another number of ranks."""
        return state, own_randomness(drawn, 0)

    def resume_command(self, folder: Path) -> str:
        """Return the command that resumes the run."""
        return resume_command(folder)


class Ranks(Alone):
    """One of several processes of a run."""

    def __init__(self, rank: int, size: int, store: Any) -> None:
        self.rank, self.size, self.store = rank, size, store
        cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        self.group = distributed.group.WORLD
        self._granted = Requests()

    def same(self, make: Callable[[], T]) -> T:
        value: list[Any] = [make() if self.first else None]
        with answered():
            distributed.broadcast_object_list(value)
        made: T = value[0]
        return made

    def adopt(self, task: Task, model: nn.Module) -> None:
        """Check that all ranks train the same, and wrap the model for averaged gradients."""
        batch_size = task.config.training.batch_size
        if not hasattr(task, "share"):
            name = type(task).__name__.removesuffix("Task").lower()
            raise RunError(f"train {name} runs on one process: start it without torchrun")
        if batch_size < self.size:
            raise RunError(f"a batch of {batch_size} cannot be shared out among {self.size} processes: start fewer, or "
                           "give a larger --batch-size")  # fmt: skip
        self._check_same(task, model)
        super().adopt(task, model.to(self.device))
        if self.rank:
            # parameters are drawn, and equal; dropout should differ from rank to rank
            seed_everything(self._seed(0))
        with answered():
            self.parallel = DistributedDataParallel(_Steps(task, model))
        self._settle()

    def step(self, batch: Batch, state: State, requests: Requests | None = None) -> Step:
        """A rank without a row of its own repeats the first, and counts nothing: so do all but one where a task reads
        its data as one row."""
        part, counts = self._share(batch)
        with answered():
            step = self.parallel(part, state)
        whole, granted = self._whole(step, counts, requests or Requests())
        if requests is not None:
            self._granted = granted
        return whole

    def granted(self, requests: Requests) -> Requests:
        """Return the requests of all ranks at the beginning of the update, which were sent with its results."""
        return self._granted

    def agree(self, requests: Requests) -> Requests:
        return _merged(self._gather([*requests]))

    def inspected(self) -> nn.Module:
        return self.model if self.device.type == "cpu" else copy.deepcopy(self.model).cpu()

    def collect(self, state: State, drawn: Checkpoint) -> tuple[State, Checkpoint]:
        parts: list[Any] = [None] * self.size
        with answered():
            distributed.all_gather_object(parts, (_moved(state, "cpu"), drawn))
        states, draws = zip(*parts, strict=True)
        return joined_state(list(states)), joined_randomness(list(draws))

    def deal(self, state: State, drawn: Checkpoint, update: int) -> tuple[State, Checkpoint]:
        own = _moved(part_of_state(state, self._rows), self.device)
        if self.rank < ranks_of(drawn):
            return own, own_randomness(drawn, self.rank)
        seed_everything(self._seed(update))
        return own, capture_randomness()

    def resume_command(self, folder: Path) -> str:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))
        again = f"-m mufuru train --resume {shlex.quote(str(folder))}"
        nodes = f"--nnodes {self.size // here} " if here < self.size else ""
        return f"`torchrun {nodes}--nproc-per-node {here} {again}`"

    def speaks(self) -> bool:
        """Return whether this rank is the first to end with an error: one message is enough."""
        try:
            return bool(self.store.add("mufuru/ended", 1) == 1)
        except RuntimeError:  # whoever kept the count is gone
            return True

    @property
    def _rows(self) -> slice:
        """This rank's rows of a batch: every `size`-th, so that long and short ones are dealt out evenly."""
        return slice(self.rank, None, self.size)

    def _share(self, batch: Batch) -> tuple[Batch, bool]:
        """Return a part of the batch, and whether it counts."""
        task: Any = self.task
        counts = self.rank < task.rows(batch)
        part = task.share(batch, self._rows if counts else slice(0, 1))
        return (_moved(part, self.device) if self.device.type != "cpu" else part), counts

    def _whole(self, step: Step, counts: bool, requests: Requests) -> tuple[Step, Requests]:
        """Return the results and the requests of all ranks; the results with the gradient of this one's, so that the
        mean of all gradients, which torch takes, is that of the whole batch."""
        count = step.count if counts else 0
        penalty = 0.0 if step.penalty is None else count * float(step.penalty.detach())
        own = [float(step.loss.detach()), penalty, *map(float, step.sums.values())]
        gathered = self._gather([*requests, count, *(own if counts else [0.0] * len(own))])
        _, _, total, loss, penalty, *sums = (sum(column) for column in zip(*gathered, strict=True))
        whole = Step(
            _whole(step.loss, loss, self.size if counts else 0),
            int(total),
            step.state,
            dict(zip(step.sums, sums, strict=True)),
            None if step.penalty is None else _whole(step.penalty, penalty / total, self.size * count / total),
        )
        return whole, _merged(gathered)

    def _gather(self, values: Sequence[float]) -> list[list[float]]:
        """Return the values of each rank, the same on all of them."""
        own = torch.tensor(values, dtype=torch.float64)
        rows = [torch.empty_like(own) for _ in range(self.size)]
        with answered():
            distributed.all_gather(rows, own)
        return [row.tolist() for row in rows]

    def _check_same(self, task: Task, model: nn.Module) -> None:
        """Refuse ranks that would train something else: another version, other settings, other data."""
        own = {
            "another version of mufuru": mufuru.__version__,
            "other settings": repr(task.config),
            "other data or initial weights": digest(dict(model.state_dict()), {}),
        }
        others: list[Any] = [None] * self.size
        with answered():
            distributed.all_gather_object(others, own)
        for rank, other in enumerate(others):
            if differing := [name for name, value in others[0].items() if other.get(name) != value]:
                raise RunError(f"rank {rank} has {differing[0]} than rank 0: start all processes of a run with "
                               "the same command, on the same data")  # fmt: skip

    def _settle(self) -> None:
        """Let DDP order its buckets by a first backward pass, whose gradients are dropped: otherwise the first update
        after resuming would add up in another order than the same update of a run that was left alone."""
        self.model.train()
        with undisturbed():
            self.step(self.task.batches("train", 0)[0], None).loss.backward()
        self.model.zero_grad()

    def _seed(self, update: int) -> int:
        """Return the seed of this rank's random states from an update on."""
        return Draws("rank", self.task.config.seed, self.rank, update).bits(63)


class _Steps(nn.Module):
    """A task's step as a module: DDP averages the gradients of its calls."""

    def __init__(self, task: Task, model: nn.Module) -> None:
        super().__init__()
        # parameters alone: DDP would send buffers such as a vocabulary around with every step
        self.shared = nn.ParameterList(model.parameters())
        self.take: Callable[[Batch, State], Step] = partial(task.step, model)

    def forward(self, batch: Batch, state: State) -> Step:
        return self.take(batch, state)


def _whole(part: Tensor, value: float, factor: float) -> Tensor:
    """Return the value of a whole, with the gradient of a part of it times `factor`."""
    whole = part * factor
    with torch.no_grad():
        whole.fill_(value)
    return whole


def _merged(gathered: list[list[float]]) -> Requests:
    """Return the requests of all ranks: any may ask to stop, rank 0 decides when to save."""
    return Requests(int(max(row[0] for row in gathered)), bool(gathered[0][1]))


@contextmanager
def answered() -> Iterator[None]:
    """Turn the loss of another rank into a `RunError`."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, RunError) or not any(word in str(error).lower() for word in LOST):
            raise
        reason = "did not answer in time" if "timed out" in str(error).lower() else "ended"
        raise LostRank(f"another process of this run {reason}") from None


class LostRank(Failure):
    """Another process is gone or does not answer."""


def joined_state(states: list[State]) -> State:
    """Return the state of the whole batch from those of all ranks; rows are a tensor's second dimension."""
    first = states[0]
    if isinstance(first, Tensor):
        whole = first.new_empty(first.size(0), sum(state.size(1) for state in states), *first.shape[2:])
        for rank, state in enumerate(states):
            whole[:, rank :: len(states)] = state
        return whole
    if isinstance(first, tuple):
        return tuple(joined_state(list(parts)) for parts in zip(*states, strict=True))
    return first


def part_of_state(state: State, rows: slice) -> State:
    """Return some rows of a state."""
    if isinstance(state, tuple):
        return tuple(part_of_state(part, rows) for part in state)
    return state[:, rows].contiguous() if isinstance(state, Tensor) else state


def joined_randomness(draws: list[Checkpoint]) -> Checkpoint:
    """Return the random states of rank 0 as those of a single process, and beside them the others'."""
    tensors, values = dict(draws[0].tensors), dict(draws[0].values)
    for rank, other in enumerate(draws[1:], 1):
        tensors |= {f"rank {rank}/{name}": tensor for name, tensor in other.tensors.items()}
    return Checkpoint(tensors, values | {"other ranks": [other.values for other in draws[1:]]})


def own_randomness(drawn: Checkpoint, rank: int) -> Checkpoint:
    """Return the random states of a rank."""
    if rank == 0:
        return Checkpoint({name: value for name, value in drawn.tensors.items() if "/" not in name}, drawn.values)
    return Checkpoint(drawn.part(f"rank {rank}"), drawn.values["other ranks"][rank - 1])


def counted(ranks: int) -> str:
    return "one process" if ranks == 1 else f"{ranks} processes"


def ranks_of(drawn: Checkpoint) -> int:
    """Return the number of ranks whose random states these are."""
    return 1 + len(drawn.values.get("other ranks", ()))


def _moved(value: Any, device: torch.device | str) -> Any:
    """Return a batch or a state on a device."""
    if hasattr(value, "to"):
        return value.to(device)
    if isinstance(value, tuple):
        moved = [_moved(item, device) for item in value]
        return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
    return value
