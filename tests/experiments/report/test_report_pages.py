"""The pages on language models and sentiment: whole, and true to what there is; and the figures on them."""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from published_records import classifiers, language_models, lm_record, without
from report_records import made
from test_report_figures import texts
from test_report_html import ATTACK, of, read

from mufuru.experiments.record import Record, read_records, write_records
from mufuru.experiments.report import overview, runs
from mufuru.experiments.report.experiment import Report
from mufuru.experiments.report.page import Picture
from mufuru.experiments.reproduce import EXPERIMENTS, lm, sentiment, write_page
from mufuru.experiments.reproduce.lm import LMGrid
from mufuru.experiments.reproduce.recorded import save
from mufuru.experiments.tasks import classify, trees
from mufuru.experiments.tasks import lm as lm_task

ROOT = Path(__file__).parents[3]
EVERY: dict[str, tuple[Report, list[Record]]] = {
    "lm": (lm.EXPERIMENT, language_models()),
    "sentiment": (sentiment.EXPERIMENT, classifiers()),
}
LABELS = {
    "lm-paper": {"MuFuRU", "GRU", "LSTM", "test perplexity"},
    "lm-lean": {"MuFuRU (controller 50)"},
    "lm-keep": {"MuFuRU (keep at 3)"},
    "lm-deciding": {"seven operations, keep at 2", "nn.GRU, 240 units"},
    "lm-best": {"MuFuRU (controller 50)", "MuFuRU (controller 50 with relu)", "LSTM"},
    "lm-operations": {"function words", "<eos>", "rank 1 to 10", "Paper's setting, mean of 6 runs", "0.40"},
    "lm-curves-paper": {"training loss", "validation perplexity", "epoch", "MuFuRU"},
    "lm-curves-best": {"MuFuRU (controller 50)", "GRU"},
    "sentiment-paper": {"test accuracy, %", "LSTM"},
    "sentiment-dimensions": {"MuFuRU (50)", "GRU (100)"},
    "sentiment-best": {"MuFuRU"},
    "sentiment-trees": {"TreeMuFuRU", "Tree-LSTM"},
    "sentiment-tree-operations": {"negation", "TreeMuFuRU, mean of 5 runs"},
    "sentiment-operations": {"negation", "contrast", "forget"},
    "sentiment-sentence-1": {"not", "bad", "film", "probability of positive", "keep"},
    "sentiment-sentence-2": {"but", "funny"},
    "sentiment-curves-paper": {"update", "validation accuracy", "GRU"},
    "sentiment-curves-best": {"LSTM"},
    "sentiment-curves-trees": {"TreeMuFuRU", "Tree-LSTM"},
}
PICTURES = {
    picture.name: picture
    for report, records in EVERY.values()
    for picture in report.page(runs.unique(records)).pictures
}


def test_these_are_the_figures() -> None:
    assert set(PICTURES) == set(LABELS)


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_figures_hold_their_labels(picture: Picture) -> None:
    assert LABELS[picture.name] <= texts(picture.svg)
    assert b"<image" not in picture.svg
    assert picture.caption.endswith(".")


@pytest.mark.parametrize("name", EVERY)
def test_the_page_is_whole(name: str, tmp_path: Path) -> None:
    report, records = EVERY[name]
    write_page(list(reversed(records)), tmp_path / "page.html")
    page = read(tmp_path / "page.html")
    for part in report.whole:
        assert report.parts[part].title in page.text
        assert report.command(part) in page.text
    assert "Not run" not in page.text
    shown = [picture for picture in PICTURES if picture.startswith(name)]
    assert len(of(page, "svg")) == len(shown)
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", EVERY)
def test_a_part_alone_says_what_is_missing(name: str) -> None:
    report, records = EVERY[name]
    for part in report.whole:
        page = report.page([record for record in records if record.group == part])
        assert report.parts[part].title in [section.title for section in page.sections]
        told = " ".join(block for section in page.sections for block in section.blocks if isinstance(block, str))
        for other in {*report.whole} - {part}:
            assert f"Not run: {report.parts[other].title.lower()}." in told


@pytest.mark.parametrize(
    ("report", "records"), [(lm.EXPERIMENT, language_models(True)), (sentiment.EXPERIMENT, classifiers(True))]
)
def test_the_short_form(report: Report, records: list[Record], tmp_path: Path) -> None:
    written = report.build(records, tmp_path)
    assert written[0] == tmp_path / "report.html"
    assert sorted(written) == sorted(tmp_path.iterdir())
    page = read(written[0])
    assert "The short form" in page.text
    assert "Not run: the paper's setting." in page.text
    # no documentation shows it
    assert "short" not in " ".join(report.document(records).values())


def test_documentation_shows_figures_that_are_written(tmp_path: Path) -> None:
    report, records = EVERY["lm"]
    written = report.illustrate(records, tmp_path)
    text = "".join(report.document(records).values())
    assert {path.name for path in written} == set(re.findall(r"\]\(lm/([\w-]+\.svg)\)", text))
    assert all(path.exists() for path in written)


@pytest.mark.parametrize("name", EVERY)
def test_records_from_a_file_give_the_same_words(name: str, tmp_path: Path) -> None:
    """The curves among them: they are kept, since figures show them."""
    report, records = EVERY[name]
    save(records, tmp_path, EXPERIMENTS[name].curve_lines)
    kept = [record for path in sorted(tmp_path.iterdir()) for record in read_records(path)]
    assert {path.stem for path in tmp_path.iterdir()} == {*report.whole}
    assert report.document(kept) == report.document(records)
    assert all(record.curve for record in kept)


def test_documentation_without_runs_says_what_to_do() -> None:
    for report, _ in EVERY.values():
        parts = report.document([])
        for name in report.whole:
            assert f"`{report.command(name)}`" in parts[name]


def test_documentation_follows_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("docs", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "README.md", tmp_path)
    write_records(tmp_path / "results" / "logic" / "sweep.jsonl", [made(test=0.875)])
    save(without(language_models(), "best"), tmp_path / "results" / "lm", 40)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "docs"), *sys.path])
    main = runpy.run_path(str(tmp_path / "docs" / "generate.py"))["main"]
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    with pytest.raises(SystemExit, match=r"out of date in README\.md: results"):
        main()
    monkeypatch.setattr(sys, "argv", ["generate.py"])
    main()
    formulae = (tmp_path / "docs" / "reproduction" / "logic.md").read_text(encoding="utf-8")
    assert "| 8 | 0.875 (n/a) |" in formulae
    assert (tmp_path / "docs" / "reproduction" / "logic" / "accuracy-sweep.svg").exists()
    page = (tmp_path / "docs" / "reproduction" / "lm.md").read_text(encoding="utf-8")
    assert "| 117.0, 118.0, 119.0, 120.0, 121.0, 122.0 |" in page
    assert " 119.5 (117.5–121.5) |" in (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "Not run: well regularised." in page
    assert (tmp_path / "docs" / "reproduction" / "lm" / "lm-paper.svg").exists()
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    main()


def test_the_pages_tell_the_settings_that_are_used() -> None:
    """The tables of choices are prose: they have to be those of the presets."""
    config = lm_task.KIND.presets["paper"]
    assert (config.training.learning_rate, config.training.batch_size, config.bptt) == (0.002, 10, 35)
    assert (config.training.clip, config.training.patience, config.training.epochs) == (5.0, 2, 40)
    assert (config.cell.hidden_size, config.cell.initialisation, config.cell.initial_scale) == (200, "uniform", 0.1)
    page = (ROOT / "docs" / "reproduction" / "lm.md").read_text(encoding="utf-8")
    said = dict(row.split(" | ", 2)[::2] for row in page.splitlines() if row.startswith("| ") and row.count("|") == 4)
    for name, told in {
        "batch": "10 columns of text",
        "learning rate": "0.002, constant",
        "window": "truncated back-propagation over 35 steps",
        "clipping": "gradients longer than 5",
        "first weights": "uniform up to 0.1",
        "when to stop": "after two epochs without a better validation perplexity, at most 40",
    }.items():
        assert told in said[f"| {name}"], name
    words = classify.KIND.presets["paper"]
    assert (words.training.learning_rate, words.training.batch_size, words.training.epochs) == (0.001, 25, 4)
    assert (words.embedding_size, words.embedding_dropout, words.output_dropout) == (100, 0.5, 0.5)
    assert (words.training.clip, words.training.evaluate_every, words.lowercase) == (None, 200, True)
    assert trees.KIND.presets["paper"].embedding_size == 100


def test_what_records_say_is_text(tmp_path: Path) -> None:
    job = LMGrid().jobs(Path())[0]
    record = lm_record(job)
    evil = replace(record, config=record.config | {"note": ATTACK}, environment={"commit": ATTACK, "command": [ATTACK]})
    write_page([evil], tmp_path / "page.html")
    page = read(tmp_path / "page.html")
    assert not of(page, "script")
    assert ATTACK in page.text


def test_single_runs_have_their_metric_and_what_their_task_knows(tmp_path: Path) -> None:
    """As `mufuru report` meets them: in no group."""
    records = [record for record in language_models() if record.group == "paper"]
    model = replace(next(record for record in records if record.config["cell"]["cell"] == "mufuru"), group="")
    write_page([model], tmp_path / "page.html")
    page = read(tmp_path / "page.html")
    assert "test perplexity" in page.text
    assert "117.00" in page.text
    assert "over units and the validation data" in page.text
    assert "119.7" in page.text
    classifier = replace(next(r for r in classifiers() if r.result["inspection"].get("sentences")), group="")
    write_page([classifier], tmp_path / "page.html")
    page = read(tmp_path / "page.html")
    assert "“not a bad film .”" in page.text
    assert "CNN-MC" in page.text


def test_the_best_result_comes_first(tmp_path: Path) -> None:
    """Two runs that differ in their cell are compared in a sentence and a figure, before all tables."""
    details = {"labels": ["no", "yes"], "confusion": [[7, 1], [2, 5]], "classes": {
        label: {"precision": 0.5, "recall": 0.25, "f1": 1 / 3, "examples": 8} for label in ("no", "yes")}}  # fmt: skip
    better, other = made("", test=0.95), made("", "gru", test=0.8)
    better.result["inspection"] = {"details": {"test": details}}
    other.config["training"]["learning_rate"] = 0.5
    write_page([better, other], tmp_path / "page.html")
    text = read(tmp_path / "page.html").text
    lead = "logic: test accuracy 0.950 by MuFuRU, learning rate 0.001 (1 run), then 0.800 by GRU, learning rate 0.5"
    places = [
        text.index(words) for words in (lead, "mean (mark), 95 % interval", "One row per run", "predicted yes", "0.333")
    ]
    assert places == sorted(places)


def test_intervals_end_where_accuracy_ends() -> None:
    """Student's interval of 0.97, 1 and 1 goes past 1; that of errors goes as far as it does."""
    measure, tested = overview.measured([made("", seed=seed, test=test) for seed, test in enumerate((0.97, 1.0, 1.0))])
    (summary,) = tested.values()
    bounds = summary.interval()
    assert bounds is not None
    assert bounds[1] > 1
    assert measure.bounds(summary) == (bounds[0], 1.0)
    perplexity, tested = overview.measured([record for record in language_models() if record.group == "paper"])
    assert all(perplexity.bounds(summary) == summary.interval() for summary in tested.values())


def test_each_data_set_has_its_figure_and_its_table_of_labels(tmp_path: Path) -> None:
    """The table shows the run with the best validation on a data set; the test set is not asked."""
    every = []
    for data, label in (("one.csv", "good"), ("other.csv", "bad")):
        for cell, test, valid in (("mufuru", 0.9, 0.5), ("gru", 0.8, 0.6)):
            record = made("", cell, test=test)
            record.config["data"] = {"data": [f"folder/{data}"]}
            record.result["valid"]["accuracy"] = valid
            scores = {"precision": valid, "recall": valid, "f1": valid, "examples": 8}
            record.result["inspection"] = {
                "details": {"test": {"labels": [label], "confusion": [[8]], "classes": {label: scores}}}
            }
            every.append(replace(record, folder=Path(f"{data}-{cell}")))
    write_page(every, tmp_path / "page.html")
    text = read(tmp_path / "page.html").text
    for data, label in (("one.csv", "good"), ("other.csv", "bad")):
        assert f"Test accuracy on {data}: mean (mark)" in text
        best = f"Test data by label: {data}-gru, GRU with seed 0, the run with the best validation accuracy"
        assert f"predicted {label}" in text[text.index(best) :][:250]


def test_runs_that_differ_in_many_settings_have_the_names_of_their_folders(tmp_path: Path) -> None:
    one, other = made("", test=0.95), made("", "gru", test=0.8)
    other.config["training"] |= {"learning_rate": 0.5, "batch_size": 7, "clip": 3.0, "decay": 0.25, "warmup": 9}
    named = [replace(one, folder=Path("careful")), replace(other, folder=Path("bold"))]
    assert list(runs.by_settings(named)) == ["MuFuRU, careful", "GRU, bold"]
    assert list(runs.by_settings([one, other])) != ["MuFuRU, careful", "GRU, bold"]
    write_page([replace(one, folder=Path("a/0")), replace(other, folder=Path("b/0"))], tmp_path / "page.html")
    assert {"a/0", "b/0"} <= set(read(tmp_path / "page.html").text.split())
    # folders of the same name tell nothing
    same = [
        replace(record, folder=Path("seed-0"), config=record.config | {"train_formulae": k})
        for k, record in enumerate([one] * 2)
    ]
    assert all("seed-0" not in name for name in runs.by_settings(same))
    write_page(named, tmp_path / "page.html")
    page = read(tmp_path / "page.html")
    assert "logic: test accuracy 0.950 by MuFuRU, careful (1 run), then 0.800 by GRU, bold (1 run)" in page.text
    assert page.text.index("Settings in which the runs differ") < page.text.index("training.warmup")
    assert page.text.index("test accuracy") < page.text.index("training.learning_rate")


def test_runs_on_several_data_sets_have_a_table_of_the_best(tmp_path: Path) -> None:
    model, classifier = language_models()[0], classifiers()[0]
    data = model.config["data"] | {"text": ["books/one.txt"]}
    other = replace(model, config=model.config | {"data": data})
    write_page([replace(record, group="") for record in (model, other, classifier)], tmp_path / "page.html")
    text = read(tmp_path / "page.html").text
    places = [text.index(words) for words in ("Best test results", "one.txt", "accuracy ↑", "One row per run")]
    assert places == sorted(places)
    assert "perplexity ↓" in text


def test_a_single_evaluation_is_no_curve(tmp_path: Path) -> None:
    record = made("", test=0.9)
    line = {"epoch": 1, "update": 1, "train": {"loss": 1.0}, "valid": {"loss": 1.0, "accuracy": 0.5}}
    for curve, words in (([line], "evaluated once"), ([line, line | {"epoch": 2, "update": 2}], "Learning curves")):
        write_page([replace(record, curve=curve)], tmp_path / "page.html")
        assert words in read(tmp_path / "page.html").text


def test_folders_are_not_written_into_records(tmp_path: Path) -> None:
    write_records(tmp_path / "some.jsonl", [replace(made("", test=0.9), folder=Path("mine"))])
    assert "mine" not in (tmp_path / "some.jsonl").read_text()
    (record,) = read_records(tmp_path / "some.jsonl")
    assert record.name == ""


def test_the_papers_numbers_are_not_shown_beside_other_data(tmp_path: Path) -> None:
    model = language_models()[0]
    data = model.config["data"] | {"text": ["book.txt"]}
    write_page([replace(model, group="", config=model.config | {"data": data})], tmp_path / "page.html")
    assert "119.7" not in read(tmp_path / "page.html").text


def test_a_part_of_two_settings_is_not_taken_for_one(tmp_path: Path) -> None:
    record = next(r for r in language_models() if r.group == "paper")
    other = replace(record, config=record.config | {"bptt": 7})
    assert lm.EXPERIMENT.is_one_experiment([record])
    assert not lm.EXPERIMENT.is_one_experiment([record, other])
    own = {**record.config, "data": {**record.config["data"], "text": ["book.txt"]}}
    assert not lm.EXPERIMENT.is_one_experiment([replace(record, config=own)])
    assert not lm.EXPERIMENT.is_one_experiment([])
    write_page([record, other], tmp_path / "page.html")
    assert "mufuru: 2 finished runs" in read(tmp_path / "page.html").text


def test_curves_survive_the_way_to_a_file(tmp_path: Path) -> None:
    write_records(tmp_path / "some.jsonl", language_models()[:2])
    assert [len(record.curve) for record in read_records(tmp_path / "some.jsonl")] == [6, 6]
