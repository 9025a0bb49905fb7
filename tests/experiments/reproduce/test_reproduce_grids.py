"""Which runs make up the experiments with language models and with sentiment."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mufuru.experiments import reproduce, tasks
from mufuru.experiments.data.vocabulary import Vocabulary
from mufuru.experiments.engine.sweep import Job
from mufuru.experiments.reproduce import recorded
from mufuru.experiments.reproduce.grid import Grid
from mufuru.experiments.reproduce.languages import RATES, TOKENS, LanguagesGrid, drawn
from mufuru.experiments.reproduce.lm import LMGrid
from mufuru.experiments.reproduce.sentiment import SentimentGrid
from mufuru.experiments.settings import SettingError, to_json
from mufuru.experiments.tasks import classify, lm, trees
from mufuru.experiments.tasks.languages.model import Recogniser
from mufuru.experiments.tasks.lm import task as batches
from mufuru.experiments.tasks.lm.config import LMConfig
from mufuru.experiments.tasks.lm.model import LanguageModel

WHOLE: dict[str, Grid] = {"lm": LMGrid(), "sentiment": SentimentGrid(), "languages": LanguagesGrid()}


def groups(grid: Grid) -> Counter[str]:
    return Counter(job.name.partition("/")[0] for job in grid.jobs(Path()))


def configs(grid: Grid) -> dict[str, Any]:
    return {job.name: job.config for job in grid.jobs(Path())}


def changed(one: Any, other: Any) -> dict[str, Any]:
    """The settings of the first that the second has otherwise, by dotted names."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(one):
        mine, its = getattr(one, field.name), getattr(other, field.name)
        if dataclasses.is_dataclass(mine):
            found |= {f"{field.name}.{name}": value for name, value in changed(mine, its).items()}
        elif mine != its:
            found[field.name] = mine
    return found


def test_the_runs_of_the_language_models() -> None:
    assert groups(LMGrid()) == {
        "paper": 13,
        "lean": 3,
        "keep": 3,
        "batch20": 10,
        "choices": 14,
        "best": 5,
        "wide": 2,
        "operations": 36,
        "reset": 18,
        "rate": 18,
        "best-seeds": 6,
    }
    assert groups(LMGrid(part="keep", seeds=5)) == {"keep": 15}
    assert groups(LMGrid(part="best", cells=("gru",), seeds=2)) == {"best": 2}
    assert groups(LMGrid(part="batch20", cells=("gru",))) == {"batch20": 3}
    assert groups(LMGrid(part="paper", cells=("lstm",))) == {"paper": 1}
    assert groups(LMGrid(part="paper", cells=("lstm",), seeds=2)) == {"paper": 2}
    assert groups(LMGrid(short=True)) == {"short": 2}


def test_the_runs_of_sentiment() -> None:
    whole = groups(SentimentGrid())
    assert whole == {"paper": 15, "dimensions": 10, "best": 15, "search": 4, "trees": 15, "choices": 24, "tuning": 60}
    assert groups(SentimentGrid(part="dimensions", dimensions=(50, 300), seeds=1)) == {"dimensions": 4}
    assert groups(SentimentGrid(short=True)) == {"short": 4}


def test_the_runs_of_languages() -> None:
    whole = groups(LanguagesGrid())
    assert whole == {"flare": 9 * 6 * 10, "flare-more": 8 * 6 * 10, "equal-parameters": 324, "equal-state": 270}
    assert groups(LanguagesGrid(part="flare", models=("gru",), languages=("parity",))) == {"flare": 10}
    assert groups(LanguagesGrid(part="equal-state", models=("transformer",))) == {}
    assert groups(LanguagesGrid(short=True)) == {"short": 4}
    with pytest.raises(SettingError, match=r"languages should be some of even-pairs, .*, got perity"):
        LanguagesGrid(languages=("perity",))


def test_models_of_a_trial_share_what_is_drawn() -> None:
    """And each trial has draws of its own, within FLaRe's ranges."""
    found = configs(LanguagesGrid(part="flare"))
    settings = {name: (config.batch_tokens, config.training.learning_rate) for name, config in found.items()}
    assert len(set(settings.values())) == 9 * 10
    assert all(TOKENS[0] <= tokens <= TOKENS[1] and RATES[0] <= rate <= RATES[1] for tokens, rate in settings.values())
    assert settings["flare/parity-mufuru/seed-3"] == settings["flare/parity-transformer/seed-3"] == drawn("parity", 3)
    rates = sorted(drawn("parity", trial)[1] for trial in range(1000))
    # half of log-uniform draws are below the geometric mean, and a tenth below the tenth part of the way
    assert rates[500] == pytest.approx(1e-3, rel=0.2)
    assert rates[100] == pytest.approx(10**-3.8, rel=0.2)


@pytest.mark.parametrize(
    ("language", "symbols", "classes"),
    [("parity", 2, 2), ("modular-arithmetic-simple", 9, 2), ("a5", 2, 60), ("brackets-5", 10, 5)],
)
def test_models_of_languages_have_as_many_parameters(language: str, symbols: int, classes: int) -> None:
    """Within 2 %, with the fewest and the most symbols and classes."""
    found = configs(LanguagesGrid(languages=(language,), seeds=1)).values()
    models = {config.cell: config for config in found if config.parameters is not None}
    assert len(models) == 6
    for config in models.values():
        size = sum(parameter.numel() for parameter in Recogniser(config, symbols, classes).parameters())
        assert size == pytest.approx(config.parameters, rel=0.02)


@pytest.mark.parametrize("grid", WHOLE.values(), ids=WHOLE)
def test_every_run_has_its_own_name_and_settings(grid: Grid) -> None:
    jobs = grid.jobs(Path("root"))
    assert len({job.name for job in jobs}) == len(jobs)
    assert len({(job.kind, job.config) for job in jobs}) == len(jobs)
    assert all(job.folder == Path("root") / job.name for job in jobs)
    assert all(job.cost > 0 and isinstance(job.config, tasks.KINDS[job.kind].config) for job in jobs)
    seeds = [job.config.seed for job in jobs]
    assert seeds == sorted(seeds), "a first run of every setting comes before any second one"


@pytest.mark.parametrize(
    "grid", [*WHOLE.values(), LMGrid(short=True), SentimentGrid(short=True), LanguagesGrid(short=True)]
)
def test_no_path_of_a_machine_is_in_the_settings(grid: Grid) -> None:
    """The data is that of $MUFURU_DATA or downloaded: only then does a record mean the same everywhere."""
    for job in grid.jobs(Path()):
        assert to_json(job.config)["data"]["data_dir"] is None


def test_names_of_language_models_say_what_differs() -> None:
    found, paper, best = configs(LMGrid()), lm.KIND.presets["paper"], lm.KIND.presets["best"]
    assert found["paper/mufuru/seed-2"] == replace(paper, seed=2)
    assert changed(found["paper/gru/seed-0"], paper) == {"cell.cell": "gru"}
    assert changed(found["paper/lstm/seed-0"], paper) == {"cell.cell": "lstm"}
    assert changed(found["lean/mufuru-controller50/seed-0"], paper) == {"cell.controller_size": 50}
    assert changed(found["keep/mufuru-keep3/seed-0"], paper) == {"cell.keep_bias": 3.0}
    assert changed(found["keep/gru-keep1/seed-0"], paper) == {"cell.cell": "gru", "cell.keep_bias": 1.0}
    assert changed(found["batch20/mufuru/seed-1"], replace(paper, seed=1)) == {"training.batch_size": 20}
    lean = changed(found["batch20/mufuru-controller50/seed-0"], found["lean/mufuru-controller50/seed-0"])
    assert lean == {"training.batch_size": 20}
    assert changed(found["batch20/gru/seed-0"], found["paper/gru/seed-0"]) == {"training.batch_size": 20}
    assert changed(found["best/gru/seed-0"], best) == {"cell.cell": "gru"}
    assert changed(found["best/mufuru-controller50/seed-0"], best) == {"cell.controller_size": 50}
    relu = {"cell.controller_size": 50, "cell.controller_activation": "relu"}
    assert changed(found["best/mufuru-controller50-relu/seed-0"], best) == relu
    wide = {"cell.cell": "gru", "cell.hidden_size": 240, "embedding_size": 200}
    assert changed(found["wide/gru-batch20/seed-0"], found["batch20/mufuru/seed-0"]) == wide
    assert changed(found["wide/gru-best/seed-0"], best) == {"cell.cell": "gru", "cell.hidden_size": 238}


def test_operations_start_and_size_change_one_at_a_time() -> None:
    found = configs(LMGrid(part="operations", seeds=1))
    looks = {"training.evaluate_every": 664, "training.patience": 8}
    two = looks | {"cell.ops": ("keep", "replace")}
    wide = looks | {"cell.cell": "gru", "cell.hidden_size": 240, "embedding_size": 200}
    assert {name: changed(config, lm.KIND.presets["paper"]) for name, config in found.items()} == {
        "operations/mufuru-keep2/seed-0": looks | {"cell.keep_bias": 2.0},
        "operations/mufuru-keep0/seed-0": looks | {"cell.keep_bias": 0.0},
        "operations/paper-gru-keep2/seed-0": two | {"cell.keep_bias": 2.0},
        "operations/paper-gru-keep0/seed-0": two | {"cell.keep_bias": 0.0},
        "operations/gru/seed-0": looks | {"cell.cell": "gru"},
        "operations/gru-240/seed-0": wide,
    }


def test_the_reset_gate_moves_in_settings_of_the_part_operations() -> None:
    found, there = (configs(LMGrid(part=part, seeds=1)) for part in ("reset", "operations"))
    mufuru, two = (there[f"operations/{name}/seed-0"] for name in ("mufuru-keep2", "paper-gru-keep0"))
    assert len(found) == 3
    assert changed(found["reset/mufuru-after/seed-0"], mufuru) == {"cell.reset": "after"}
    assert changed(found["reset/paper-gru-after/seed-0"], two) == {"cell.reset": "after"}
    both = {"cell.reset": "after", "cell.reset_bias": 0.0}
    assert changed(found["reset/paper-gru-after-bias0/seed-0"], two) == both


def test_half_the_rate_of_the_part_operations() -> None:
    found, there = (configs(LMGrid(part=part, seeds=1)) for part in ("rate", "operations"))
    assert {name.split("/")[1] for name in found} == {"mufuru-keep2", "paper-gru-keep0", "gru"}
    for name, config in found.items():
        assert changed(config, there[name.replace("rate/", "operations/")]) == {"training.learning_rate": 0.001}


def test_a_look_every_quarter_of_an_epoch() -> None:
    """The Penn Treebank has 929,589 tokens to train on."""
    config = configs(LMGrid(part="operations", seeds=1))["operations/gru/seed-0"]
    windows = batches.Windows(torch.zeros(929_589, dtype=torch.int64), 0, config.training.batch_size, config.bptt)
    assert len(windows) == 4 * config.training.evaluate_every
    assert config.training.patience == 4 * lm.KIND.presets["paper"].training.patience


def test_more_seeds_of_best() -> None:
    """With those of the parts best and wide each model has three."""
    every, more = configs(LMGrid()), configs(LMGrid(part="best-seeds"))
    first = {"mufuru": "best/mufuru", "gru": "best/gru", "gru-238": "wide/gru-best"}
    assert more == {
        f"best-seeds/{name}/seed-{seed}": replace(every[f"{there}/seed-0"], seed=seed)
        for name, there in first.items()
        for seed in (1, 2)
    }


@pytest.mark.parametrize("part", ["batch20", "best"])
def test_the_wide_gru_has_as_many_parameters_as_mufuru(part: str) -> None:
    """No number of units comes closer."""
    vocabulary = Vocabulary((*map(str, range(9_998)), "<unk>", "<eos>"))

    def parameters(config: LMConfig) -> int:
        with torch.device("meta"):
            return sum(weight.numel() for weight in LanguageModel(config, vocabulary).parameters())

    wide, mufuru = configs(LMGrid())[f"wide/gru-{part}/seed-0"], parameters(configs(LMGrid())[f"{part}/mufuru/seed-0"])
    fewer, more = (replace(wide, cell=replace(wide.cell, hidden_size=wide.cell.hidden_size + by)) for by in (-1, 1))
    apart = [abs(parameters(config) - mufuru) for config in (wide, fewer, more)]
    assert apart[0] == min(apart)
    assert apart[0] < 0.002 * mufuru


def test_choices_of_language_models_change_one_thing_each() -> None:
    """All change the setting with batches of 20, but for one run, which changes the paper's."""
    larger, paper = configs(LMGrid())["batch20/gru/seed-0"], configs(LMGrid())["paper/gru/seed-0"]
    found = configs(LMGrid(part="choices"))
    assert changed(found.pop("choices/gru-batch10-lr0.001/seed-0"), paper) == {"training.learning_rate": 1e-3}
    assert {name: changed(config, larger) for name, config in found.items()} == {
        "choices/gru-lr0.0005/seed-0": {"training.learning_rate": 5e-4},
        "choices/gru-lr0.001/seed-0": {"training.learning_rate": 1e-3},
        "choices/gru-lr0.004/seed-0": {"training.learning_rate": 4e-3},
        "choices/gru-batch5/seed-0": {"training.batch_size": 5},
        "choices/gru-batch40/seed-0": {"training.batch_size": 40},
        "choices/gru-window70/seed-0": {"bptt": 70},
        "choices/gru-clip1/seed-0": {"training.clip": 1.0},
        "choices/gru-clip-none/seed-0": {"training.clip": None},
        "choices/gru-start-default/seed-0": {"cell.initialisation": "default"},
        "choices/gru-keep1/seed-0": {"cell.keep_bias": 1.0},
        "choices/mufuru-lr0.001/seed-0": {"cell.cell": "mufuru", "training.learning_rate": 1e-3},
        "choices/mufuru-keep0/seed-0": {"cell.cell": "mufuru", "cell.keep_bias": 0.0},
        "choices/mufuru-keep3/seed-0": {"cell.cell": "mufuru", "cell.keep_bias": 3.0},
    }


@pytest.mark.parametrize("cell", ["mufuru", "paper-gru", "gru"])
def test_every_cell_is_tuned_alike(cell: str) -> None:
    own: dict[str, dict[str, Any]] = {
        "mufuru": {},
        "paper-gru": {"cell.ops": ("keep", "replace"), "cell.keep_bias": 0.0},
        "gru": {"cell.cell": "gru"},
    }
    base = own[cell] | {"training.epochs": 10, "training.smoothing": 5}
    less = {"embedding_dropout": 0.3, "output_dropout": 0.3}
    tried: dict[str, dict[str, Any]] = {
        "lr0.0005-dropout0.3": {"training.learning_rate": 5e-4} | less,
        "lr0.0005-dropout0.5": {"training.learning_rate": 5e-4},
        "lr0.001-dropout0.3": less,
        "lr0.001-dropout0.5": {},
        "lr0.002-dropout0.3": {"training.learning_rate": 2e-3} | less,
        "lr0.002-dropout0.5": {"training.learning_rate": 2e-3},
        "no-bucketing": {"bucketing": False},
        "distinct": {"data.distinct_phrases": True},
        "scale0.5": {"vector_scale": 0.5},
        "scale2": {"vector_scale": 2.0},
    }
    found = configs(SentimentGrid(part="tuning", seeds=1))
    for what, changes in tried.items():
        assert changed(found.pop(f"tuning/{cell}-{what}/seed-0"), classify.KIND.presets["paper"]) == base | changes
    assert not [name for name in found if name.startswith(f"tuning/{cell}-")]


def test_names_of_sentiment_say_what_differs() -> None:
    found, paper = configs(SentimentGrid()), classify.KIND.presets["paper"]
    assert found["paper/mufuru/seed-4"] == replace(paper, seed=4)
    assert changed(found["paper/lstm/seed-0"], paper) == {"cell.cell": "lstm"}
    assert changed(found["dimensions/mufuru-glove50/seed-0"], paper) == {"embedding_size": 50}
    assert changed(found["best/mufuru/seed-0"], classify.KIND.presets["best"]) == {}
    assert found["trees/mufuru/seed-0"] == trees.KIND.presets["paper"]
    assert changed(found["trees/lstm/seed-0"], trees.KIND.presets["paper"]) == {"cell.cell": "lstm"}
    assert changed(found["trees/mufuru-100/seed-0"], trees.KIND.presets["paper"]) == {"cell.hidden_size": 100}
    gru = found["best/gru/seed-0"]
    assert changed(found["search/gru-labels2/seed-0"], gru) == {"data.graded": False}
    assert changed(found["search/gru-max/seed-0"], gru) == {"pooling": "max"}
    assert changed(found["search/gru-dropout0.7/seed-0"], gru) == {"embedding_dropout": 0.7}
    assert changed(found["search/gru-decay0.1/seed-0"], gru) == {"training.weight_decay": 0.1}
    gru = found["paper/gru/seed-0"]
    assert changed(found["choices/gru-lr0.002/seed-0"], gru) == {"training.learning_rate": 2e-3}
    assert changed(found["choices/gru-dropout0/seed-0"], gru) == {"embedding_dropout": 0.0, "output_dropout": 0.0}
    assert changed(found["choices/mufuru-dropout0.3/seed-2"], replace(paper, seed=2)) == {
        "embedding_dropout": 0.3,
        "output_dropout": 0.3,
    }


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(SettingError, match="seeds should be a number above 0, got 0"):
        LMGrid(seeds=0)
    with pytest.raises(SettingError, match="seeds should be a number above 0, got -1"):
        SentimentGrid(seeds=-1)
    with pytest.raises(SettingError, match="dimensions should be some of 50, 100, 200, 300, got 64"):
        SentimentGrid(dimensions=(50, 64))


def test_how_long_it_takes() -> None:
    jobs = [Job(str(number), "lm", None, Path(str(number)), cost=3600.0 * 4) for number in range(3)]
    assert reproduce.sentence(5, jobs, 2) == (
        "3 of 5 runs to make: up to about 6 hours on 2 cores. Ctrl-C saves them, and the same command continues."
    )
    assert "up to about 4 hours on 3 cores" in reproduce.sentence(3, jobs, 3)
    assert "1 of 3 runs to make: up to about 4 hours on 1 core." in reproduce.sentence(3, jobs[:1], 1)
    assert reproduce.duration(5) == "1 minute"
    assert reproduce.duration(600) == "10 minutes"


def test_curves_become_small_and_keep_their_end() -> None:
    curve = [{"update": n, "valid": {"perplexity": n + 1 / 3}} for n in range(1, 80)]
    assert recorded.thinned(curve, 0) == recorded.thinned([], 5) == []
    assert [line["update"] for line in recorded.thinned(curve[:5], 5)] == [1, 2, 3, 4, 5]
    thin = recorded.thinned(curve, 40)
    assert len(thin) <= 40
    assert [line["update"] for line in thin[:2]] == [1, 3]
    assert thin[-1] == {"update": 79, "valid": {"perplexity": 79.333}}
    for length in range(1, 30):
        for most in (1, 3, 7):
            made = recorded.thinned(curve[:length], most)
            assert len(made) <= most
            assert made[-1]["update"] == length


def test_the_first_seed_of_every_setting_comes_before_any_second() -> None:
    for grid in (LMGrid(), SentimentGrid()):
        made = grid.jobs(Path("runs"))
        seeds = [job.config.seed for job in made]
        assert seeds == sorted(seeds)
        costs = [job.cost for job in made if job.config.seed == 0]
        assert costs == sorted(costs, reverse=True)
