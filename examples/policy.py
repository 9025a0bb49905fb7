"""Learn to act from memory: a sign at the entrance of a corridor says where to turn at its end.

Only the first step of an episode shows the sign, only the last one rewards: 1 for the right turn, -1 for the wrong one.
The policy acts step by step. It learns from whole rollouts in one call: `resets=` says where a new episode begins, so
that a row holds many episodes and none sees the one before it.

    python examples/policy.py                  a few seconds
    python examples/policy.py --longest 20     longer to remember
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import mufuru

CORRIDORS, STEPS = 32, 48


class Corridors:
    """Many corridors at once, each of a length of its own; when one ends, the next begins."""

    def __init__(self, count: int, longest: int) -> None:
        self.longest = longest
        self.sign, self.left, self.new = torch.ones(count), torch.zeros(count), torch.ones(count, dtype=torch.bool)
        self._begin()

    def observe(self) -> Tensor:
        """(count, 2): the sign, -1 or 1 in the first step and 0 after it, and whether this is the end."""
        return torch.stack([torch.where(self.new, self.sign, 0.0), (self.left == 0).float()], 1)

    def step(self, turn: Tensor) -> Tensor:
        """The reward. `new` then says which corridors begin."""
        right = (turn == (self.sign > 0)).float() * 2 - 1
        reward = torch.where(self.left == 0, right, 0.0)
        self.new = self.left == 0
        self.left = self.left - 1
        self._begin()
        return reward

    def _begin(self) -> None:
        count = len(self.new)
        self.sign = torch.where(self.new, torch.randint(0, 2, (count,)) * 2.0 - 1, self.sign)
        self.left = torch.where(self.new, torch.randint(2, self.longest, (count,)).float(), self.left)


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = mufuru.MuFuRU(2, 16)
        self.turn, self.value = nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(
        self, seen: Tensor, state: Tensor | None = None, resets: Tensor | None = None
    ) -> tuple[Categorical, Tensor, Tensor]:
        """Return the distribution of actions and the values, (steps, corridors), and the last state."""
        output, last = self.rnn(seen, state, resets=resets)
        return Categorical(logits=self.turn(output)), self.value(output).squeeze(-1), last


@torch.no_grad()
def act(model: ActorCritic, longest: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """One rollout, step by step: observations, beginnings, turns, rewards and expected values, (steps, corridors)."""
    corridors, state, rows = Corridors(CORRIDORS, longest), torch.zeros(1, CORRIDORS, 16), []
    for _ in range(STEPS):
        seen, new = corridors.observe(), corridors.new
        state = torch.where(new.unsqueeze(1), 0.0, state)
        policy, value, state = model(seen.unsqueeze(0), state)
        turn = policy.sample()[0]
        rows.append((seen, new, turn, corridors.step(turn), value[0]))
    seen, new, turns, rewards, values = (torch.stack(column) for column in zip(*rows, strict=True))
    return seen, new, turns, rewards, values


def rewards_to_come(rewards: Tensor, new: Tensor, last: Tensor) -> Tensor:
    """From each step to the end of its episode; `last` stands for what a cut episode would still bring."""
    coming, found = last, []
    for t in reversed(range(len(rewards))):
        coming = rewards[t] + coming
        found.append(coming)
        coming = torch.where(new[t], 0.0, coming)
    return torch.stack(found[::-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longest", type=int, default=10, help="steps of the longest corridor (default: %(default)s)")
    parser.add_argument("--updates", type=int, default=120, help="training steps (default: %(default)s)")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # a step is so small that a second thread would only wait
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for update in range(1, options.updates + 1):
        seen, new, turns, rewards, values = act(model, options.longest)
        policy, value, _ = model(seen[:-1], resets=new[:-1])
        # where the last step begins an episode, the one before it was whole
        target = rewards_to_come(rewards[:-1], new[:-1], torch.where(new[-1], 0.0, values[-1]))
        surprise = target - value
        gain = (policy.log_prob(turns[:-1]) * surprise.detach()).mean() + 0.01 * policy.entropy().mean()
        loss = 0.5 * surprise.square().mean() - gain
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 20 == 0:
            print(f"update {update}: return {rewards[rewards != 0].mean().item():.2f}")
    seen, new, _, rewards, values = act(model, options.longest)
    print(f"return of {int((rewards != 0).sum())} new episodes: {rewards[rewards != 0].mean().item():.2f}")
    with torch.no_grad():
        again = model(seen, resets=new)[1]
    print(f"values step by step and in one call differ by at most {(again - values).abs().max().item():.0e}")


if __name__ == "__main__":
    main()
