"""Pictures of a trace: the numbers in them are the trace's, they show themselves, and mistakes are told."""

from __future__ import annotations

import importlib
import itertools
import subprocess
import sys
import xml.etree.ElementTree as ET
from typing import Any

import matplotlib
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

import mufuru
from mufuru import MuFuRU, Trace, plot

TOKENS = ["not", "a", "$bad$", "film", "."]
LENGTHS = (3, 5)


def traced(layout: str) -> Trace:
    """The same two sequences, of 3 and of 5 steps, in every way in which people hold them."""
    torch.manual_seed(1)
    layer = MuFuRU(4, 6, num_layers=2, bidirectional=True, batch_first=layout == "batch first")
    x = torch.randn(5, 2, 4)
    with torch.no_grad():
        if layout == "one sequence":
            return layer.trace(x[:, 1])
        if layout == "packed":
            return layer.trace(pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False))
        return layer.trace(x.transpose(0, 1) if layout == "batch first" else x, lengths=torch.tensor(LENGTHS))


def shown(figure: Any) -> Tensor:
    """The numbers of a heat map, (steps, rows)."""
    (image,) = figure.axes[0].images
    return torch.tensor(image.get_array().tolist(), dtype=torch.float32).T


@pytest.mark.parametrize("layout", ["time first", "batch first", "packed", "one sequence"])
def test_heat_maps_hold_the_numbers_of_one_sequence(layout: str) -> None:
    trace = traced(layout)
    number = 0 if layout == "one sequence" else 1
    expected = traced("one sequence")
    where: dict[str, Any] = {"sequence": number, "layer": 1, "direction": 1}
    # the kernel may add up a batch in another order than a single sequence
    close = {"atol": 1e-6, "rtol": 1e-5}
    torch.testing.assert_close(shown(plot.weights(trace, **where)) / 100, expected.weights(1, 1).mean(-1), **close)
    one = expected.weights(1, 1)[..., 2]
    torch.testing.assert_close(shown(plot.weights(trace, unit=2, **where)) / 100, one, **close)
    torch.testing.assert_close(shown(plot.states(trace, **where)), expected.outputs(1, 1), **close)


@pytest.mark.parametrize("layout", ["time first", "batch first", "packed"])
def test_a_picture_ends_where_its_sequence_does(layout: str) -> None:
    assert [len(shown(plot.states(traced(layout), sequence=k))) for k in (0, 1)] == list(LENGTHS)


def test_bars_are_the_contributions_and_end_at_the_new_state() -> None:
    trace = traced("one sequence")
    axes = plot.contributions(trace, 3, TOKENS, layer=1).axes[0]
    expected = trace.contributions(1)[..., 3]
    for op, bars in enumerate(axes.containers):
        heights = torch.tensor([bar.get_height() for bar in bars], dtype=torch.float64)
        torch.testing.assert_close(heights, expected[:, op].double())
    new = torch.tensor(axes.lines[0].get_ydata().tolist(), dtype=torch.float64)
    torch.testing.assert_close(new, trace.outputs(1)[:, 3].double())
    # what stands above 0 and what hangs below it add up to it
    ends = torch.zeros(5, dtype=torch.float64)
    for bars in axes.containers:
        ends += torch.tensor([bar.get_height() for bar in bars], dtype=torch.float64)
    # contributions and state are computed apart, in single precision
    torch.testing.assert_close(ends, new, atol=1e-6, rtol=0)
    for step in range(5):
        boxes = sorted(
            (bar.get_y(), bar.get_y() + bar.get_height()) for bar in (bars[step] for bars in axes.containers)
        )
        spans = sorted((min(box), max(box)) for box in boxes if abs(box[1] - box[0]) > 1e-9)
        assert all(low[1] <= high[0] + 1e-9 for low, high in itertools.pairwise(spans)), "bars overlap"


def test_one_step_alone() -> None:
    trace = traced("one sequence")
    axes = plot.contributions(trace, 3, TOKENS, step=-2).axes[0]
    widths = torch.tensor([bar.get_width() for bar in axes.containers[0]], dtype=torch.float64)
    torch.testing.assert_close(widths[:-1], trace.contributions()[3, :, 3].double())
    torch.testing.assert_close(widths[-1], trace.outputs()[3, 3].double())
    assert axes.get_title(loc="left") == "New state of unit 3 at “film”"


PICTURES: dict[str, Any] = {
    "weights": lambda trace, tokens: plot.weights(trace, tokens),
    "states": lambda trace, tokens: plot.states(trace, tokens),
    "contributions": lambda trace, tokens: plot.contributions(trace, 0, tokens),
    "one step": lambda trace, tokens: plot.contributions(trace, 0, tokens, step=2),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_figure_shows_itself(name: str) -> None:
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure: Any = PICTURES[name](traced("one sequence"), TOKENS)
        assert issubclass(type(figure), Figure)
        root = ET.fromstring(figure._repr_svg_())
    assert figure._repr_png_().startswith(b"\x89PNG")
    text = " ".join("".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "$bad$" in text, "a dollar was taken for mathematics"


@pytest.mark.parametrize("name", PICTURES)
def test_long_sequences_and_many_units(name: str) -> None:
    trace = MuFuRU(3, 100).trace(torch.randn(90, 1, 3))
    figure = PICTURES[name](trace, None)
    assert figure._repr_png_()
    assert len(figure.axes[0].get_xticklabels()) <= 40


def test_no_window_is_asked_for() -> None:
    """A program without a screen, or with figures of its own, is left alone."""
    code = (
        "import sys, torch, mufuru\n"
        "assert 'matplotlib' not in sys.modules\n"
        "mufuru.plot.states(mufuru.MuFuRU(2, 3).trace(torch.randn(4, 1, 2)))._repr_png_()\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_mistakes_are_told() -> None:
    trace = traced("time first")
    with pytest.raises(ValueError, match="a list of 3 names, one for each step of the sequence, got 5"):
        plot.weights(trace, TOKENS)
    with pytest.raises(ValueError, match="got a text"):
        plot.weights(trace, "not")
    with pytest.raises(IndexError, match="sequence should be from 0 to 1, got 2"):
        plot.states(trace, sequence=2)
    with pytest.raises(IndexError, match="unit should be from 0 to 5, got 6"):
        plot.contributions(trace, 6)
    with pytest.raises(IndexError, match="step should be from 0 to 2, got 3"):
        plot.contributions(trace, 0, step=3)
    with pytest.raises(IndexError, match=r"layers 0\.\.1"):
        plot.weights(trace, layer=2)
    empty = mufuru.MuFuRU(3, 6).trace(torch.randn(4, 2, 3), lengths=[4, 0])
    for draw in (plot.weights, plot.states, lambda trace, sequence: plot.contributions(trace, 0, sequence=sequence)):
        with pytest.raises(ValueError, match="sequence 1 has no steps, so there is nothing to draw"):
            draw(empty, sequence=1)


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh: Any = importlib.reload(plot)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    fresh._figure_type.cache_clear()
    with pytest.raises(ModuleNotFoundError, match="pip install matplotlib"):
        fresh.weights(traced("one sequence"))


def test_it_is_public() -> None:
    assert "plot" in mufuru.__all__


def test_a_map_shows_the_leading_operation_of_every_unit() -> None:
    trace = traced("one sequence")
    p = trace.weights(1, 1).double()
    (image,) = plot.units(trace, TOKENS, sort=False, layer=1, direction=1).axes[0].images
    shown = torch.tensor(image.get_array().tolist(), dtype=torch.float64).transpose(0, 1)
    weight, leader = p.max(1)
    for step, unit in itertools.product(range(5), range(6)):
        colour = torch.tensor(matplotlib.colors.to_rgb(plot.OPERATIONS[leader[step, unit]])).double()
        strength = (weight[step, unit] - 1 / 7) / (6 / 7)
        torch.testing.assert_close(shown[step, unit], 1 - strength * (1 - colour), atol=1e-7, rtol=0)


def test_units_that_are_alike_lie_side_by_side() -> None:
    torch.manual_seed(3)
    kinds = torch.randn(3, 4, 7).softmax(-1)
    which = torch.tensor([0, 2, 1, 0, 1, 2, 0, 2, 1])
    p = (kinds[which] + 1e-3 * torch.rand(9, 4, 7)).permute(1, 2, 0)
    order = plot.similar(p)
    assert sorted(order) == list(range(9))
    # each kind is one stretch
    assert len([kind for kind, _ in itertools.groupby(which[order].tolist())]) == 3
    rows = [int(label.get_text()) for label in plot.units(traced("one sequence")).axes[0].get_yticklabels()]
    assert sorted(rows) == list(range(6))


@pytest.mark.parametrize(("units", "ops"), [(1, ("keep", "replace")), (2, ("keep", "replace")), (3, ("replace",))])
def test_a_map_of_very_little(units: int, ops: tuple[str, ...]) -> None:
    trace = MuFuRU(2, units, ops=ops).trace(torch.randn(1, 1, 2))
    assert len(plot.units(trace).axes[0].get_yticks()) == units
