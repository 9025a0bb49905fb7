"""Draw every operation of the table with its derivatives, as torch finds them."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure

from mufuru import ops
from mufuru.experiments.report.figures import new, style

STATE = 0.4
COLUMNS = 5
CURVES: dict[str, Any] = {
    "value": {"color": "#D55E00", "linewidth": 2.5},
    r"$\partial\,/\,\partial s$": {"color": "#0072B2", "linestyle": "--"},
    r"$\partial\,/\,\partial v$": {"color": "#009E73", "linestyle": ":", "linewidth": 2.0},
}


def curves(op: ops.Op) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Features from -1 to 1; the operation's value there at one state, and its derivatives by state and features."""
    v = torch.linspace(-1, 1, 401, dtype=torch.float64, requires_grad=True)
    s = torch.full_like(v, STATE, requires_grad=True)
    value = op(s, v)
    # an operation may depend on one of them only, or on neither
    sum_of = value.sum() + 0 * (s + v).sum()
    return v.detach(), [value.detach(), *torch.autograd.grad(sum_of, (s, v))]


def figure() -> Figure:
    names = ops.names()
    with style():
        drawn = new(9.5, 2.1 * -(-len(names) // COLUMNS) + 0.4)
        axes = drawn.subplots(-(-len(names) // COLUMNS), COLUMNS, sharex=True, sharey=True).flat
        for axis, name in zip(axes, names, strict=False):
            v, values = curves(ops.get(name))
            for (label, look), y in zip(CURVES.items(), values, strict=True):
                axis.plot(v, y, label=label, **look)
            axis.axvline(STATE, color="#BBBBBB", linewidth=0.8, zorder=0)
            axis.set_title(name)
            axis.set_xlabel("v")
            axis.grid(color="#EEEEEE")
        drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return drawn
