"""The figures: files that open, with their labels in them, the same for the same records."""

from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from report_records import experiment, made, part

from mufuru.experiments.record import Record
from mufuru.experiments.report import figures, plots, runs
from mufuru.experiments.report.page import Picture
from mufuru.experiments.reproduce import logic

LABELS = {
    "accuracy-sweep": {"hidden size", "test accuracy", "MuFuRU", "GRU", "64"},
    "operations": {"keep", "forget", "OR", "0", "mean of 3 runs, 8 units", "one of them, seed 0", "1.00"},
    "curves": {"8 units: training loss", "64 units: validation accuracy", "epoch", "MuFuRU"},
    "use": {"MuFuRU, 8 units", "MuFuRU, 64 units", "mean weight", "epoch", "keep", "forget"},
    "accuracy-solved": {"hidden size", "GRU"},
    "open": {"MuFuRU, 8 units, default", "GRU, 64 units, uniform ±0.1", "learning rate", "batch size", "0.01", "0.79"},
    "features-1": {"sigmoid features, rate 0.001", "tanh features, rate 0.001", "OR", "mul"},
    "ablation": {"all seven", "without keep", "keep and replace with max", "test accuracy", "8 units"},
}
PICTURES = {picture.name: picture for picture in logic.EXPERIMENT.page(runs.unique(experiment())).pictures}


def texts(svg: bytes) -> set[str]:
    """Everything that is written in a picture."""
    return {(node.text or "").strip() for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("}text")}


def accuracy(records: list[Record]) -> Figure:
    """Draw the accuracy by hidden size anew."""
    (picture,) = [block for block in logic.accuracy(records, "sweep") if isinstance(block, Picture)]
    return picture.draw()


def test_these_are_the_figures() -> None:
    assert PICTURES.keys() == LABELS.keys()


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_svg_holds_its_labels_as_text(picture: Picture) -> None:
    assert LABELS[picture.name] <= texts(picture.svg)
    # an embedded image would blur, and the page's policy forbids it
    assert b"<image" not in picture.svg


def test_dollars_are_written_as_they_are() -> None:
    steps = [{"token": token, "weights": {"keep": 0.5}, "probability": 0.75} for token in ("$5", "or $6")]
    figure = plots.sentence(steps, ["keep"], "$a$")
    assert {"$5", "or $6", "probability of $a$"} <= texts(figures.svg(figure))


def test_png_is_a_picture() -> None:
    pixels = imread(io.BytesIO(figures.png(PICTURES["ablation"].figure)))
    assert pixels.shape[0] > 200
    assert pixels.std() > 0.05


def test_the_same_records_give_the_same_bytes() -> None:
    one, other = accuracy(part("sweep")), accuracy(part("sweep"))
    assert figures.svg(one) == figures.svg(other)
    assert figures.png(one) == figures.png(other)
    assert b"<dc:date>" not in figures.svg(one)


def test_no_setting_of_the_users_counts_or_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = figures.svg(accuracy([made()]))
    monkeypatch.setitem(matplotlib.rcParams, "font.size", 23.0)
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "path")
    assert figures.svg(accuracy([made()])) == before
    assert (matplotlib.rcParams["font.size"], matplotlib.rcParams["svg.fonttype"]) == (23.0, "path")


def test_files(tmp_path: Path) -> None:
    paths = PICTURES["operations"].write(tmp_path / "new")
    assert [path.name for path in paths] == ["operations.svg", "operations.png"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_curves_by_hand() -> None:
    records = [made(seed=seed, test=0.5 + 0.1 * seed, epochs=2) for seed in range(3)]
    assert plots.curve(records, "valid", "accuracy") == {1.0: [0.5, 0.6, 0.7], 2.0: [0.5, 0.6, 0.7]}
    assert plots.curve(records, "train", "nothing") == {}
    assert plots.middle([0.0, 1.0, 2.0, 3.0, 4.0]) == (1.0, 3.0)
    assert plots.middle([2.0]) == (2.0, 2.0)


def test_there_is_no_half_of_an_epoch() -> None:
    records = [made(seed=seed, epochs=3) for seed in range(2)]
    looks = {"MuFuRU": figures.CELLS["mufuru"]}
    figure = plots.curves({"": {"MuFuRU": records}}, "accuracy", looks)
    assert all(tick == int(tick) for axes in figure.axes for tick in axes.get_xticks())


def test_the_steep_beginning_does_not_take_the_axis() -> None:
    """Two lines that differ by 1 in the end fill the axis, whose beginning is at 1,000."""
    looks = {"MuFuRU": figures.CELLS["mufuru"], "GRU": figures.CELLS["gru"]}
    lines = {
        name: [record_of_curve([1000.0, 500.0, *(last + 0.1 * step for step in range(18, 0, -1))])]
        for name, last in (("MuFuRU", 90.0), ("GRU", 91.0))
    }
    figure = plots.curves({"": lines}, "perplexity", looks)
    low, high = figure.axes[1].get_ylim()
    assert low < 90.1
    assert 92.8 < high < 93
    assert next(iter(figure.axes[1].lines[0].get_ydata())) == 1000


def record_of_curve(perplexities: list[float]) -> Record:
    made_of = made(seed=0, epochs=len(perplexities))
    for line, value in zip(made_of.curve, perplexities, strict=True):
        line["valid"]["perplexity"] = value
    return made_of


@pytest.mark.parametrize(
    ("ground", "ink"), [((1, 1, 1, 1), "black"), ((0, 0, 0.4, 1), "white"), ((0, 0, 0, 1), "white")]
)
def test_numbers_can_be_read_on_their_colour(ground: tuple[float, ...], ink: str) -> None:
    assert figures._ink(ground) == ink


def test_words_of_any_language_are_left_to_the_readers_fonts() -> None:
    figure = figures.new(3, 2)
    figure.add_subplot().set_title("\u732b")
    assert "\u732b" in figures.svg(figure).decode()
