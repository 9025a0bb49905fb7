"""Train one model on several processes: the layer inside DDP, or sharded by FSDP2, in a program of your own.

The model adds up two marked numbers among many. Every process draws its own share of each batch; torch averages the
gradients, so that N processes with batches of 64 / N compute what one computes with 64.

    python examples/distributed.py                                        one process
    torchrun --nproc-per-node 2 examples/distributed.py                   two, each with a copy of the model
    torchrun --nproc-per-node 2 examples/distributed.py --shard           two, each with a part of the weights
"""

from __future__ import annotations

import argparse
import os

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

import mufuru

BATCH, STEPS = 64, 12


class Adder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.out = mufuru.MuFuRU(2, 32, 2), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        _, state = self.rnn(x)
        total: Tensor = self.out(state[-1])
        return total


def draw(update: int, rank: int, ranks: int) -> tuple[Tensor, Tensor]:
    """Return a rank's share of a batch, (steps, share, 2) numbers and marks, and the sums of the marked numbers."""
    generator = torch.Generator().manual_seed(update)
    numbers = torch.rand(STEPS, BATCH, generator=generator)
    marks = torch.zeros(STEPS, BATCH).scatter_(0, torch.rand(STEPS, BATCH, generator=generator).topk(2, 0).indices, 1.0)
    share = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks)
    return torch.stack([numbers, marks], 2)[:, share], (numbers * marks).sum(0)[share, None]


def train(updates: int, shard: bool, rank: int, ranks: int) -> None:
    device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model: nn.Module = Adder().to(device)
    if shard:
        fully_shard(model)
    elif ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for update in range(updates):
        x, total = (tensor.to(device) for tensor in draw(update, rank, ranks))
        optimizer.zero_grad()
        loss = mse_loss(model(x), total)
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        if ranks > 1:
            distributed.all_reduce(loss, distributed.ReduceOp.SUM)
        if rank == 0 and (update + 1) % max(1, updates // 5) == 0:
            print(f"update {update + 1:4}   mean squared error {loss.item() / ranks:.6f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--shard", action="store_true", help="split the weights among the processes (FSDP2)")
    options = parser.parse_args()

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if options.shard and ranks == 1:
        parser.error("--shard needs several processes: torchrun --nproc-per-node 2 examples/distributed.py --shard")
    if ranks == 1:
        train(options.updates, options.shard, 0, 1)
        return
    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    # in a function of its own: a model in DDP that outlives the process group can wait for gloo's threads forever
    train(options.updates, options.shard, distributed.get_rank(), ranks)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
