"""The record of a language model's updates, and its tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from measure import Ratio, Timing

MUFURU, LEAN, GRU, LSTM = "MuFuRU", "MuFuRU, controller 50", "nn.GRU", "nn.LSTM"
PLAIN = "nn.GRU, plain PyTorch"
STAGES = ("embedding and recurrence", "softmax and its gradients", "backward", "norm of the gradient", "optimiser")
"""Parts of an update, in this order. The softmax forms its gradients with the loss: its backward pass is in its own
stage, but in plain PyTorch."""


@dataclass
class Profile:
    """Seconds of every update, by stage, of each model; the n-th updates of all models are from the same round."""

    machine: dict[str, str | int]
    settings: dict[str, str | float]
    stages: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)
    """Threads -> model -> an update's seconds, by stage."""

    def totals(self, threads: str, model: str) -> list[float]:
        return [sum(update) for update in self.stages[threads][model]]

    def ratio(self, threads: str, model: str, to: str = GRU) -> Ratio:
        """Time of a whole update, relative to another model's."""
        one, base = (Timing("", "training", int(threads), name, self.totals(threads, name)) for name in (model, to))
        return Ratio.of(one, base)


def page(profile: Profile) -> str:
    """The record as Markdown."""
    config = profile.settings
    parts = [
        "# An update of a language model, measured side by side",
        f"{config['units']} units, {config['words']:,} words, {config['steps']} steps of {config['columns']} columns; "
        f"{profile.machine['cpu']}, torch {profile.machine['torch']}, commit {profile.machine['commit']}, "
        f"{profile.machine['date']}. Medians over updates, which the models made in turn; tokens per second are of "
        "this machine and mean nothing on another.",
        f"All models have this package's softmax and training loop, but “{PLAIN}”: it is what one writes without this "
        "package, with nn.Linear, cross_entropy, clip_grad_norm_ and Adam. Its softmax has its gradients in the "
        "backward pass. Freed memory is kept for all of them.",
    ]
    for threads in profile.stages:
        parts.append(f"## {threads} thread" + ("" if threads == "1" else "s"))
        parts += [whole(profile, threads), shares(profile, threads), bar(profile, threads)]
    return "\n\n".join(parts) + "\n"


def whole(profile: Profile, threads: str) -> str:
    """Tokens per second, and the ratio of an update's time to the nn.GRU model's."""
    tokens = float(profile.settings["steps"]) * float(profile.settings["columns"])
    rows = []
    for model in profile.stages[threads]:
        ratio = profile.ratio(threads, model)
        median = statistics.median(profile.totals(threads, model))
        value = f"{ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"
        rows.append((model, f"{tokens / median:,.0f}", value, str(len(profile.stages[threads][model]))))
    return table(("model", "tokens per second", "time, ratio to nn.GRU (quartiles)", "updates"), rows)


def shares(profile: Profile, threads: str) -> str:
    """The median time of each stage as a part of the nn.GRU model's whole update."""
    unit = statistics.median(profile.totals(threads, GRU))
    rows = []
    for place, stage in enumerate(STAGES):
        medians = [statistics.median(u[place] for u in updates) for updates in profile.stages[threads].values()]
        rows.append((stage, *(f"{median / unit:.3f}" for median in medians)))
    head = ("part of the nn.GRU model's update", *profile.stages[threads])
    return table(head, rows)


def bar(profile: Profile, threads: str) -> str:
    """Our bars, and what a user gains or loses."""
    ratio, plain = profile.ratio(threads, MUFURU).value, profile.ratio(threads, MUFURU, PLAIN).value
    state = "met" if ratio <= 1 else "missed"
    return (
        f"The bar, an update of the MuFuRU model no longer than that of the nn.GRU model, is {state}: {ratio:.2f}. "
        f"Beside the nn.GRU model in plain PyTorch it takes {plain:.2f} of the time."
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = "|---|" + "---:|" * (len(head) - 1)
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)])
