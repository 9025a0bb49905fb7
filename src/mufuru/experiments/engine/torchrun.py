"""The processes that torchrun starts: they meet, report an error once, and end."""

import ctypes
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from mufuru.experiments.engine.errors import Failure, Interrupted, RunError
from mufuru.experiments.engine.ranks import Alone, Ranks
from mufuru.experiments.settings import UserError


@contextmanager
def joined(seconds: float = 1800.0) -> Iterator[Alone]:
    """Join the processes that torchrun started with this one, if it did; wait for none of them longer than `seconds`.

    An error that ends all of them is raised by one; the others exit.
    """
    place = read_place(os.environ)
    if place is None:
        alone = Alone()
        alone.restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        yield alone
        return
    ranks = meet(*place, timedelta(seconds=seconds))
    try:
        yield ranks
    except UserError as error:
        if ranks.speaks():
            raise
        raise SystemExit(128 + error.number if isinstance(error, Interrupted) else 1) from None
    finally:
        # never freed: DDP, alive in an error's traceback, would hold Python's lock and wait for a thread of gloo that
        # waits for the same lock, to drop the last gradients
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(ranks))
        distributed.destroy_process_group()


@contextmanager
def first_reports() -> Iterator[None]:
    """Let rank 0 alone report what all ranks meet, such as a typing mistake, before they know each other."""
    place = read_place(os.environ)
    if place is None or place[0] == 0:
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        try:
            yield
        except Exception as error:
            raise SystemExit(1) from error


def check_command(name: str) -> None:
    """Refuse to run any other command than `mufuru train` as often as torchrun starts processes."""
    if name != "train" and "TORCHELASTIC_RUN_ID" in os.environ and read_place(os.environ):
        raise RunError(f"torchrun is for mufuru train: start mufuru {name} without it")


def read_place(variables: Any) -> tuple[int, int] | None:
    """Return rank and number of ranks from torchrun's variables; None for a single process."""
    values = [variables.get(name, "") for name in ("RANK", "WORLD_SIZE")]
    if not all(values) or values[1] == "1":
        return None
    if not all(value.isdecimal() for value in values) or not int(values[0]) < int(values[1]):
        raise RunError(f"RANK={values[0]} and WORLD_SIZE={values[1]} in the environment are no place among several "
                       "processes: start them with torchrun, or unset both")  # fmt: skip
    if missing := [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in variables]:
        raise RunError(f"RANK and WORLD_SIZE are in the environment, {' and '.join(missing)} not: start several "
                       "processes with torchrun, or unset RANK and WORLD_SIZE for one")  # fmt: skip
    return int(values[0]), int(values[1])


def meet(rank: int, size: int, timeout: timedelta) -> Ranks:
    """Wait for the other processes."""
    if not distributed.is_available():
        raise RunError("this build of torch has no torch.distributed: train without torchrun")
    from torch.distributed.rendezvous import rendezvous

    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        kept, *_ = next(rendezvous("env://", rank, size, timeout=timeout))
        attempt = number_attempt(kept, rank, size, timeout)
        store = distributed.PrefixStore(f"mufuru/{attempt}", kept)  # type: ignore[attr-defined]
        distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    except (RuntimeError, ValueError) as error:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        reason = str(error).splitlines()[0]
        raise Failure(f"rank {rank} of {size} did not meet the others at {address} within {timeout.seconds} s: "
                       f"{reason}") from None  # fmt: skip
    ranks = Ranks(rank, size, store)
    ranks.restarted = attempt > 1
    return ranks


def number_attempt(store: Any, rank: int, size: int, timeout: timedelta) -> int:
    """Return the number of times that torchrun has started the ranks, once all of them are there.

    It keeps one store for all attempts, with the addresses of ranks that are gone: so rank 0 counts the attempts, and
    the others wait until it has seen them in this one.
    """
    if rank == 0:
        attempt = int(store.add("mufuru/attempts", 1))
        places = [f"mufuru/{attempt}/rank {other}" for other in range(1, size)]
        store.wait(places, timeout)
        store.set(f"mufuru/{attempt}/seen", json.dumps([store.get(place).decode() for place in places]))
        return attempt
    own, deadline = uuid.uuid4().hex, time.monotonic() + timeout.total_seconds()
    while time.monotonic() < deadline:
        attempt = int(store.add("mufuru/attempts", 0))
        store.set(f"mufuru/{attempt}/rank {rank}", own)
        seen = f"mufuru/{attempt}/seen"
        if store.check([seen]) and own in json.loads(store.get(seen)):
            return attempt
        time.sleep(0.05)
    raise RuntimeError("rank 0 did not come")
