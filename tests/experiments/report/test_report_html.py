"""The page: it parses, needs nobody, escapes what it is given, and says what is missing."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_records import experiment, made

from mufuru.experiments.record import RecordError, read_records, write_records
from mufuru.experiments.report import render
from mufuru.experiments.report.page import Table
from mufuru.experiments.reproduce import logic, write_page

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """Takes a page apart and insists on closed tags."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert not reader.open
    return reader


def of(reader: Reader, tag: str) -> list[dict[str, str | None]]:
    return [attributes for name, attributes in reader.tags if name == tag]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the whole experiment."""
    path = tmp_path_factory.mktemp("report")
    written = logic.EXPERIMENT.build(experiment(), path)
    assert written[0] == path / "report.html"
    assert sorted(written) == sorted(path.iterdir())
    assert len(written) == 1 + 2 * 8
    return path


def test_the_page_is_whole(folder: Path) -> None:
    reader = read(folder / "report.html")
    ran = {record.group for record in experiment()}
    titles = {logic.EXPERIMENT.parts[name].title for name in ran}
    for words in (
        *titles,
        "Settings and seeds",
        "How to rerun",
        "mufuru reproduce logic --part open",
        "c0ffee",
        "0 to 2",
    ):
        assert words in reader.text, words
    assert {*logic.EXPERIMENT.whole} - ran == {"probes"}
    assert reader.text.count("Not run") == 1


def test_tables_and_figures_have_their_words(folder: Path) -> None:
    reader = read(folder / "report.html")
    assert len(of(reader, "table")) == len(of(reader, "caption")) == len(of(reader, "thead"))
    assert {attributes["scope"] for attributes in of(reader, "th")} == {"col", "row"}
    assert len(of(reader, "svg")) == len(of(reader, "figcaption")) == 8
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in of(reader, "svg"))


def test_names_are_used_once_and_links_lead_somewhere(folder: Path) -> None:
    reader = read(folder / "report.html")
    names = [attributes["id"] for _, attributes in reader.tags if attributes.get("id")]
    assert len(names) == len(set(names))
    pointed = [link for _, a in reader.tags for key in ("href", "xlink:href") if (link := a.get(key))]
    pointed += re.findall(r"url\((#[^)]+)\)", (folder / "report.html").read_text(encoding="utf-8"))
    assert pointed
    assert {link.removeprefix("#") for link in pointed} <= set(names)


def test_nothing_is_loaded_from_elsewhere(folder: Path) -> None:
    reader = read(folder / "report.html")
    assert not {tag for tag, _ in reader.tags} & {"script", "link", "iframe", "img", "image", "object", "embed", "form"}
    (policy,) = [a["content"] for a in of(reader, "meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    for _, attributes in reader.tags:
        for key, value in attributes.items():
            assert key.startswith("xmlns") or "//" not in (value or ""), (key, value)
            assert not key.startswith("on")
    assert "@import" not in (folder / "report.html").read_text(encoding="utf-8")


def test_the_same_records_give_the_same_page(folder: Path, tmp_path: Path) -> None:
    write_page(list(reversed(experiment())), tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == (folder / "report.html").read_bytes()


ATTACK = "<script>alert(1)</script>\"'&`x`|*"


@pytest.mark.parametrize("group", ["sweep", ""])
def test_what_records_say_is_text(group: str, tmp_path: Path) -> None:
    record = made(group, epochs=2)
    config = record.config | {"note": ATTACK, ATTACK: 1}
    evil = replace(record, config=config, environment={"commit": ATTACK, "command": [ATTACK]})
    other = replace(record, config=config | {"note": "good", "seed": 1})
    write_page([evil, other], tmp_path / "page.html")
    reader = read(tmp_path / "page.html")
    assert not of(reader, "script")
    assert ATTACK in reader.text


def test_an_unknown_cell_and_a_task_name_are_text(tmp_path: Path) -> None:
    write_page([made("", cell=ATTACK, task=ATTACK, epochs=2)], tmp_path / "page.html")
    assert not of(read(tmp_path / "page.html"), "script")
    write_page([made("sweep", cell=ATTACK, epochs=2)], tmp_path / "page.html")
    assert not of(read(tmp_path / "page.html"), "script")


@pytest.mark.parametrize("group", ["sweep", "short", "solved", "open", "ablation"])
def test_a_part_alone(group: str, tmp_path: Path) -> None:
    records = [made(group), made(group, "gru", seed=1), made(group, "lstm")]
    reader = read(logic.EXPERIMENT.build(records, tmp_path)[0])
    assert logic.EXPERIMENT.parts[group].title in reader.text
    for name in {*logic.EXPERIMENT.whole} - {group}:
        assert f"Not run: {logic.EXPERIMENT.parts[name].title.lower()}." in reader.text
        assert logic.EXPERIMENT.command(name) in reader.text


def test_a_single_run(tmp_path: Path) -> None:
    write_page([made("", epochs=3)], tmp_path / "page.html")
    reader = read(tmp_path / "page.html")
    assert "mufuru: 1 finished run" in reader.text
    # learning curves, the use of operations while it learned, and the operations by token
    assert len(of(reader, "svg")) == 3
    assert "0.9000" in reader.text


def test_runs_of_several_tasks(tmp_path: Path) -> None:
    records = [made("", task="lm", seed=seed, epochs=2) for seed in (0, 1)] + [made("", "gru"), made("sweep", "lstm")]
    write_page(records, tmp_path / "page.html")
    reader = read(tmp_path / "page.html")
    assert "119.7" in reader.text
    assert "lm: results" in reader.text
    assert "The records hold no learning curves" in reader.text


def test_a_sweep_of_two_settings_is_not_taken_for_one(tmp_path: Path) -> None:
    mixed = [made("sweep", rate=rate) for rate in (1e-3, 1e-2)]
    with pytest.raises(RecordError, match="two runs with seed 0"):
        logic.EXPERIMENT.build(mixed, tmp_path)
    write_page(mixed, tmp_path / "page.html")
    assert "mufuru: 2 finished runs" in read(tmp_path / "page.html").text


def test_many_settings_are_not_all_drawn(tmp_path: Path) -> None:
    write_page([made("", size=size, epochs=2) for size in range(1, 12)], tmp_path / "page.html")
    assert "The first 8 of 11 settings." in read(tmp_path / "page.html").text


def test_records_from_a_file_give_the_same_words(tmp_path: Path) -> None:
    write_records(tmp_path / "records.jsonl", experiment())
    assert logic.EXPERIMENT.document(read_records(tmp_path / "records.jsonl")) == logic.EXPERIMENT.document(
        experiment()
    )


def test_markdown_takes_text_for_text() -> None:
    content = Table("a *b*", ("x", "y"), (("1|2", "<i>_"),))
    assert render.markdown_table(content) == "a \\*b\\*\n\n| x | y |\n|---|---:|\n| 1\\|2 | \\<i>\\_ |\n"
    assert render.markdown(["run `a_b` not c_d"], "f") == "run `a_b` not c\\_d\n"


def test_documentation_without_runs_says_what_to_do() -> None:
    parts = logic.EXPERIMENT.document([])
    for name in logic.EXPERIMENT.whole:
        assert f"`{logic.EXPERIMENT.command(name)}`" in parts[name]
    assert "short" not in " ".join(logic.EXPERIMENT.document([made("short")]).values())


def test_documentation_shows_figures_that_are_written(tmp_path: Path) -> None:
    written = logic.EXPERIMENT.illustrate([record for record in experiment() if record.group != "open"], tmp_path)
    text = "".join(logic.EXPERIMENT.document(experiment()).values())
    linked = set(re.findall(r"\]\(logic/([\w-]+\.svg)\)", text))
    assert {path.name for path in written} | {"open.svg"} == linked
    assert all(path.exists() for path in written)
