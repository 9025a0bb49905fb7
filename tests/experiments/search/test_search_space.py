"""What --over means: names, lists, ranges, and the settings of each trial."""

from __future__ import annotations

import math
from itertools import product

import pytest

from mufuru.experiments.search.space import Space, changed, parse_space
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.classify import KIND as CLASSIFY
from mufuru.experiments.tasks.lm import KIND as LM

CONFIG = LM.presets["short"]


def space(*texts: str) -> Space:
    return parse_space(texts, CONFIG)


def test_a_list_and_a_range() -> None:
    both = space("learning-rate=log:1e-4:1e-2", "cell.hidden_size=10,20")
    assert [axis.names for axis in both.axes] == [("training.learning_rate",), ("cell.hidden_size",)]
    drawn = [both.random(number, 0) for number in range(2000)]
    rates = [settings["training.learning_rate"] for settings in drawn]
    assert min(rates) >= 1e-4
    assert max(rates) <= 1e-2
    # a uniform logarithm: half of them below the geometric mean; three deviations of 2000 coins are 67
    assert abs(sum(rate < 1e-3 for rate in rates) - 1000) < 67
    assert abs(sum(settings["cell.hidden_size"] == 10 for settings in drawn) - 1000) < 67


def test_a_uniform_range_is_uniform() -> None:
    dropout = space("input_dropout=uniform:0:0.8")
    values = [dropout.random(number, 0)["regularisation.input_dropout"] for number in range(2000)]
    assert abs(sum(value < 0.2 for value in values) - 500) < 3 * math.sqrt(2000 * 0.25 * 0.75)


def test_drawn_settings_follow_from_seed_and_number_alone() -> None:
    """Written down, so that no change of a library and no other machine draws others."""
    both = space("learning_rate=log:1e-4:1e-2", "bptt=uniform:10:50")
    assert [both.random(number, 0) for number in (1, 0)] == [
        {"training.learning_rate": 0.008897, "bptt": 21},
        {"training.learning_rate": 0.001108, "bptt": 37},
    ]
    assert both.random(0, 1) != both.random(0, 0)


def test_a_grid_is_every_combination_once() -> None:
    both = space("learning_rate=1e-3,1e-2", "tied=true,false", "embedding_size=None,100")
    assert both.size == 8
    grid = [tuple(both.grid(number).values()) for number in range(8)]
    assert grid == list(product((1e-3, 1e-2), (True, False), (None, 100)))


def test_a_finite_space_is_drawn_without_repetition() -> None:
    both = space("hidden_size=1,2,3", "bptt=4,5")
    drawn = [both.random(number, 3) for number in range(6)]
    assert len({tuple(settings.values()) for settings in drawn}) == 6
    assert drawn != [both.grid(number) for number in range(6)]


def test_a_range_with_a_number_is_a_list() -> None:
    (axis,) = space("learning_rate=log:1e-4:1e-2:5").axes
    assert axis.values == (0.0001, 0.0003162, 0.001, 0.003162, 0.01)
    (axis,) = space("hidden_size=uniform:10:12:9").axes
    assert axis.values == (10, 11, 12)


def test_two_settings_share_a_value() -> None:
    (axis,) = space("input_dropout+output_dropout=0.1,0.3").axes
    assert axis.title == "input_dropout+output_dropout"
    both = changed(CONFIG, space("input_dropout+output_dropout=0.1,0.3").settings([0.3])).regularisation
    assert (both.input_dropout, both.output_dropout) == (0.3, 0.3)


def test_settings_of_one_kind_change_together() -> None:
    """Each alone would be refused."""
    both = space("controller_size=8,16", "controller_activation=tanh,relu")
    cell = changed(CONFIG, both.grid(3)).cell
    assert (cell.controller_size, cell.controller_activation) == (16, "relu")


def test_allowed_values_that_are_numbers() -> None:
    (axis,) = parse_space(["classes=2,5"], CLASSIFY.presets["paper"]).axes
    assert axis.values == (2, 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("learning_rate", "--over should be NAME=A,B,C, NAME=uniform:LOW:HIGH or NAME=log:LOW:HIGH, got 'learning_r"),
        ("=1,2", "--over should be NAME=A,B,C"),
        ("learning_rate=", "--over should be NAME=A,B,C"),
        ("learnin_rate=1", "--over: unknown setting 'learnin_rate': .*learning_rate"),
        ("dropout=0.1,0.3", "--over: unknown setting 'dropout'"),
        ("hidden_size=8,many", "--over cell.hidden_size: expected a whole number, got 'many'"),
        ("hidden_size=8.5", "expected a whole number, got '8.5'"),
        ("learning_rate=1e-3,-1", "--over learning_rate=1e-3,-1: learning_rate should be a number above 0, got -1.0"),
        ("input_dropout=uniform:0:1.5", "input_dropout should be at least 0 and below 1, got 1.5"),
        ("learning_rate=1,1.0", "has a value twice"),
        ("learning_rate=log:0:1", "a logarithmic range begins above 0"),
        ("learning_rate=log:1:1e-3", "expected LOW below HIGH"),
        ("learning_rate=log:1e-3", "expected LOW below HIGH"),
        ("learning_rate=uniform:a:b", "expected LOW below HIGH"),
        ("learning_rate=log:1e-3:nan", "expected LOW below HIGH"),
        ("learning_rate=log:1e-3:1:1", "at least 2 values"),
        ("learning_rate=log:1e-3:1:2.5", "expected LOW below HIGH"),
        ("tied=log:1:2", "tied is not a number: list its values"),
        ("tied=maybe", "expected true or false, got 'maybe'"),
        ("cell=gru,lstn", "expected mufuru or gru or lstm or vanilla, got 'lstn'"),
        ("ops=keep,replace", "expected a setting with a single value"),
        ("bidirectional=false,true", "a language model cannot read ahead"),
    ],
)
def test_what_cannot_be_searched_over_is_refused(text: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        space(text)


def test_a_setting_twice_is_refused() -> None:
    with pytest.raises(SettingError, match=r"--over has bptt twice"):
        space("bptt=1,2", "hidden_size+bptt=3,4")
