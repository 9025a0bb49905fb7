"""The page in a real browser: typed into, clicked, forced, compared, linked to, saved, resized, used by keyboard."""

from __future__ import annotations

import importlib
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
from browsing import DESKTOP, PHONE, Visit, browsing, fits, headline, serving, until, why_not
from explored_runs import FORMULA, shipped_runs, trained, trained_folders, view

from mufuru.experiments.explorer import shipped
from mufuru.experiments.explorer.runs import Place
from mufuru.experiments.tasks.logic.formulae import GATES

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
OPENING = "0 1 XNOR 1 OR 1 XOR"
WHOLE = "1 0 AND 0 OR 1 if/then 1 XNOR"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    folders = trained_folders()
    with serving(*shipped(), *folders.values()) as found:
        yield found


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Callable[..., Visit]]:
    visits: list[Visit] = []

    def begin(*args: Any) -> Visit:
        visits.append(Visit(browser, address, *args))
        return visits[-1]

    yield begin
    for one in visits:
        one.leave()


def panel(page: Any, run: str) -> Any:
    return page.locator(f'[data-run="{run}"]')


def wait_for_tokens(page: Any, count: int) -> None:
    until(page, f"document.getElementById('token').options.length === {count}")


def violations(page: Any) -> list[str]:
    """What axe-core objects to."""
    axe: Any = importlib.import_module("axe_playwright_python.sync_playwright")
    results = axe.Axe().run(page).response
    assert len(results["passes"]) > 20
    return [
        f"{rule['id']}: {node['html'][:200]} {node['failureSummary']}"
        for rule in results["violations"]
        for node in rule["nodes"]
    ]


RAMPS = """async address => {
  const { LEVELS, inkOn, palette, rampOf, shade } = await import(address);
  const steps = [...Array(LEVELS + 1).keys()];
  const ramp = (_, op) => steps.map(k => shade(rampOf(palette(), op), k)).map(colour => [colour, inkOn(colour)]);
  return palette().operations.map(ramp);
}"""


def contrast(*colours: str) -> float:
    """WCAG's contrast of two colours, `rgb(1,2,3)` or `#000000`."""
    light = []
    for colour in colours:
        named = [255 * (colour == "#ffffff")] * 3
        parts = named if colour[0] == "#" else [int(part) for part in re.findall(r"\d+", colour)]
        linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in parts]
        light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(light) + 0.05) / (min(light) + 0.05)


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def test_the_first_page_shows_both_shipped_models(visit: Callable[..., Visit]) -> None:
    page = visit().open()
    assert page.title() == "mufuru explorer"
    assert page.input_value("#text") == OPENING
    assert page.locator("[data-run]").count() == 2
    assert headline(page) == "false"
    assert page.inner_text("#count") == "7 tokens"
    assert page.inner_text("#about").startswith("Two models read this formula from left to right and say")
    assert page.inner_text("#meant").endswith("Read as ((0 XNOR 1) OR 1) XOR 1.")
    # the kinds of models, by their cells
    assert page.inner_text("#models") == (
        "Side by side to compare: a memory cell (unit) of mufuru-8, a MuFuRU, chooses among seven "
        "operations; one of gru-8, a GRU, can only keep or replace what it remembers."
    )
    texts = page.locator('[data-run="gru-8"] .labels text').all_text_contents()
    for title in ("Probability", "of true", "Which operation decided each memory cell (unit), token by token",
                  "Mean weight of each operation, %"):  # fmt: skip
        assert title in texts
    # a cell of the same weight looks the same in both
    scales = page.locator(".scales svg").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    assert scales == ["Scales: any colour: fainter = less weight, 0 % to 100 %"] * 2


def test_of_many_models_a_mufuru_stands_beside_another_cell(browser: Any) -> None:
    """However their folders are called: the first two of an experiment may be of the same cell."""
    texts = trained_folders()["texts"]
    with serving(*reversed(shipped()), texts) as place:
        visit = Visit(browser, place)
        page = visit.open()
        assert page.locator("[data-run]").evaluate_all("all => all.map(one => one.dataset.run)") == [
            "mufuru-8",
            "gru-8",
        ]
        visit.leave()


MODELS = """async ([address, infos]) => (await import(address)).compared(...infos)"""
MODELS_OF = {
    "one": ([("a", "mufuru", "keep max min")], ""),
    "two of a kind": ([("a", "mufuru", "keep max"), ("b", "mufuru", "keep max")], ""),
    "other operations, as many": (
        [("a", "mufuru", "keep max min"), ("b", "mufuru", "keep max mul")],
        "Side by side to compare: a memory cell (unit) of a, a MuFuRU, chooses among keep, max, min; "
        "one of b, a MuFuRU, chooses among keep, max, mul.",
    ),
    "an LSTM beside": (
        [("a", "mufuru", "keep max"), ("b", "lstm", "")],
        "Side by side to compare: a memory cell (unit) of a, a MuFuRU, chooses between keep and max; "
        "one of b, an LSTM, has no operations to choose from.",
    ),
    "none with operations": ([("a", "vanilla", ""), ("b", "lstm", "")], ""),
}  # fmt: skip


@pytest.mark.parametrize("case", MODELS_OF)
def test_the_models_are_told_by_their_cells(visit: Callable[..., Visit], case: str) -> None:
    models, expected = MODELS_OF[case]
    infos = [{"name": n, "cell": cell, "ops": [{"name": op} for op in ops.split()]} for n, cell, ops in models]
    page = visit().open()
    address = f"{page.url.partition('#')[0]}static/about.js"
    assert page.evaluate(MODELS, [address, infos]) == expected


MEANINGS: dict[str, Callable[[bool, bool], bool]] = {
    "both are 1": lambda first, second: min(first, second),
    "one or both are 1": lambda first, second: first + second > 0,
    "just one is 1": lambda first, second: first + second == 1,
    "both are the same": lambda first, second: first == second,
    "not both are 1": lambda first, second: first + second < 2,
    "neither is 1": lambda first, second: first + second == 0,
    "first and not second": lambda first, second: first > second,
    "second and not first": lambda first, second: second > first,
    "not first, or second": lambda first, second: first <= second,
    "first, or not second": lambda first, second: first >= second,
}


def test_a_gate_is_said_to_do_what_it_does(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="mufuru-8", text="1 1 ABJ")
    assert "ABJ: first and not second (first: the result so far" in panel(page, "mufuru-8").inner_text()
    address = f"{page.url.partition('#')[0]}static/about.js"
    said = page.evaluate("async address => Object.fromEntries((await import(address)).GATES)", address)
    assert set(said) == {gate.name for gate in GATES}
    for gate in GATES:
        for first, second in product((False, True), repeat=2):
            assert MEANINGS[said[gate.name]](first, second) == gate.function(first, second), gate.name


def test_words_on_the_map_have_room_or_a_key_stands_above(visit: Callable[..., Visit]) -> None:
    """Every word ends 3 pixels before its cell; where one would not, the names of the colours stand above the map."""
    names = {"keep", "replace", "max", "min", "mul", "diff", "forget"}
    for size, text, words in ((DESKTOP, OPENING, True), (PHONE, OPENING, False), (DESKTOP, "1" + " 0 OR" * 20, False)):
        page = visit(size).open(run="mufuru-8", text=text)
        column = page.locator(".token-frame").evaluate("frame => Number(frame.getAttribute('width')) - 1")
        found = page.eval_on_selector_all(
            ".figure > svg text", "all => all.map(one => [one.textContent, one.getComputedTextLength()])"
        )
        widths = [width for name, width in found if name in names]
        assert bool(widths) == words
        assert all(width + 6 <= column for width in widths)
        labels = page.locator(".labels text").all_text_contents()
        assert all(labels.count(name) == (1 if words else 2) for name in names)


def test_every_name_on_the_map_can_be_read(visit: Callable[..., Visit]) -> None:
    """Contrast of the names of operations on their colours: WCAG asks for 4.5, and on the strongest for more here."""
    for theme in ("light", "dark"):
        page = visit(DESKTOP, theme).open(run="mufuru-8", text=OPENING)
        address = f"{page.url.partition('#')[0]}static/colour.js"
        found = page.evaluate(RAMPS, address)
        levels = [[contrast(*pair) for pair in ramp] for ramp in found]
        assert min(map(min, levels)) > 4.5
        assert min(ramp[-1] for ramp in levels) > 6


def test_the_guide_covers_nothing(visit: Callable[..., Visit]) -> None:
    for size in (DESKTOP, PHONE):
        page = visit(size, "light", True).open()
        guide = page.locator("#guide").bounding_box()
        for other in ("header", ".ask", ".headline", ".figure", ".readout"):
            box = page.locator(other).first.bounding_box()
            assert box["y"] >= guide["y"] + guide["height"] or box["y"] + box["height"] <= guide["y"], other


def test_a_window_without_a_width_is_drawn(visit: Callable[..., Visit]) -> None:
    page = visit((41, 300)).open(run="mufuru-8", text=OPENING)
    assert page.locator(".figure").count() == 1


def test_the_operation_that_decides_is_named_and_can_be_forbidden(visit: Callable[..., Visit]) -> None:
    page = visit().open()
    page.wait_for_selector("#try:not([hidden])")
    assert page.inner_text("#deciding") == "Without mul, mufuru-8 says true (98.3 %) instead of false."
    page.click("#try")
    until(page, "document.querySelector('.headline b').textContent === 'true'")
    assert "forbid=mul" in page.url
    assert page.inner_text("#deciding") == ""
    page.fill("#text", "1 1 NAND 0 NOR 1 XNOR 0 then/if 1 ABJ")
    page.click("#allow")
    until(page, "document.getElementById('deciding').textContent.includes('whichever single operation')")
    assert page.locator("#try").is_hidden()


def test_the_first_visit_is_guided(visit: Callable[..., Visit]) -> None:
    page = visit(PHONE, "light", True).open()
    assert "Step 1 of 4" in page.inner_text("#guide")
    assert not violations(page)
    page.focus("#guide .next")
    for step in (2, 3, 4):
        page.keyboard.press("Enter")
        page.wait_for_selector(f"#guide :text('Step {step} of 4')")
    page.keyboard.press("Enter")
    page.wait_for_selector("#guide", state="hidden")
    page.goto(page.url.partition("#")[0])
    page.wait_for_selector("body[data-ready]")
    assert page.locator("#guide").is_hidden()
    page.click("#tour")
    assert "Step 1 of 4" in page.inner_text("#guide")
    page.keyboard.press("Escape")
    assert page.locator("#guide").is_hidden()
    assert page.evaluate("document.activeElement.id") == "tour"


def test_a_long_text_has_an_overview_that_scrolls(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="words", text="the cat sat on the mat " * 20)
    box = page.locator(".overview").bounding_box()
    before = page.evaluate("document.querySelector('.figure').scrollLeft")
    page.mouse.click(box["x"] + box["width"] / 4, box["y"] + 5)
    until(page, f"document.querySelector('.figure').scrollLeft < {before} / 2")
    page.fill("#text", "the cat")
    wait_for_tokens(page, 3)
    assert page.locator(".overview").count() == 0


def test_whole_columns_are_in_sight_where_a_text_ends(visit: Callable[..., Visit]) -> None:
    for size, text in product((DESKTOP, PHONE), ("the cat sat on the mat " * 4, "a waistcoat-pocket-watch " * 20)):
        page = visit(size).open(run="words", text=text)
        column = page.locator(".token-frame").evaluate("frame => Number(frame.getAttribute('width')) - 1")
        scrolled = page.evaluate("document.querySelector('.figure').scrollLeft") / column
        assert scrolled > 1
        assert abs(scrolled - round(scrolled)) * column < 2


def test_the_next_token_stands_in_quotation_marks(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="words", text="the cat")
    said = re.match(r"“.+”, token 3 of 3: (“.+”) comes next, ", page.inner_text(".readout"))
    assert said
    assert headline(page, "words") == said[1]


def test_a_model_learns_while_one_watches(visit: Callable[..., Visit], browser: Any, address: str) -> None:
    """Started, watched, found again by another page, paused, looked into, stopped."""
    page = visit().open()
    page.click("#watch")
    page.fill("#lesson-units", "4")
    page.uncheck("#lesson-op-diff")
    page.click("#lesson-start")
    page.set_default_timeout(60_000)
    page.wait_for_selector("#lesson-curves b:has-text('%') >> nth=0")
    points = "(document.querySelector('#lesson-curves polyline')?.getAttribute('points') ?? '').split(' ').length"
    page.wait_for_selector("#lesson-curves p b")
    until(page, f"{points} > 2")
    other = visit(PHONE).open()
    assert other.is_visible("#lesson-curves")
    assert other.input_value("#lesson-units") == "4"
    assert fits(other)
    assert not violations(other)
    if page.is_enabled("#lesson-pause"):
        page.click("#lesson-pause")
    page.wait_for_selector("#lesson-explore:enabled")
    page.click("#lesson-explore")
    page.wait_for_selector('[data-run^="lesson-1-update-"]')
    assert page.locator("#forbid-diff").count() == 1, "the run beside it has diff"
    page.click("#lesson-stop")
    page.wait_for_selector("#lesson-curves > *", state="detached")


def test_where_else_a_unit_did_the_same(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="mufuru-8", text=FORMULA, token="2", unit="3", units="one")
    page.click(".find")
    page.wait_for_selector(".search li")
    wanted = shipped_runs()[0].alike(Place("mufuru-8", FORMULA, unit=3, token=2))["found"]
    assert page.locator(".search mark").all_inner_texts() == [one["around"][one["at"]] for one in wanted]
    assert not violations(page)
    page.locator(".search li button").nth(1).click()
    until(page, f"document.getElementById('text').value === {json.dumps(wanted[1]['text'])}")
    assert page.input_value("#unit") == "3"
    until(page, f"document.getElementById('token').value === '{wanted[1]['token']}'")


def test_typing_changes_the_prediction(visit: Callable[..., Visit]) -> None:
    page = visit().open()
    page.fill("#text", "")
    page.type("#text", "1 1 AND 0 AND")
    wait_for_tokens(page, 5)
    assert headline(page) == "false"
    assert "✓ right" in panel(page, "mufuru-8").inner_text()
    page.click("text=1 1 NAND 0 NOR 1 XNOR 0 then/if 1 ABJ")
    wait_for_tokens(page, 11)
    assert page.input_value("#text") == "1 1 NAND 0 NOR 1 XNOR 0 then/if 1 ABJ"


def test_a_mistake_is_told_and_mended(visit: Callable[..., Visit]) -> None:
    page_visit = visit()
    page = page_visit.open(run="mufuru-8", text="1 0 MAYBE")
    page.wait_for_selector("#messages .error")
    assert "unknown 'MAYBE' at column 5" in page.inner_text("#messages")
    # the browser itself notes every answer that is a refusal
    assert all("422" in text for text in page_visit.wrong)
    page_visit.wrong.clear()
    page.fill("#text", "1 0 AND")
    wait_for_tokens(page, 3)
    assert page.inner_text("#messages") == ""


def test_what_is_typed_is_never_read_as_html(visit: Callable[..., Visit]) -> None:
    text = "<img src=x onerror=alert(1)> <b>the</b> cat"
    page = visit().open(run="words", text=text)
    wait_for_tokens(page, 22)
    assert page.locator("#panels img, #panels .headline b b").count() == 0
    texts = page.locator(".figure > svg text").all_text_contents()
    assert (texts.count("<"), texts.count("img"), texts.count("b")) == (3, 1, 2)


def test_words_that_are_members_of_every_object_are_words(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="words", text="the constructor toString cat", token="2", forbid="max")
    wait_for_tokens(page, 5)
    page.wait_for_selector("h3:has-text('Next after “constructor”')")
    assert "“toString” came, with" in panel(page, "words").inner_text()


def test_a_click_on_the_map_shows_the_exact_sum(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="mufuru-8", text=FORMULA)
    unit = shipped_runs()[0].answer(view())["map"]["order"][6]
    body = panel(page, "mufuru-8").locator(".figure > svg")
    box = body.bounding_box()
    assert body.locator("text").all_text_contents().count("AND") == 1
    column = page.locator(".token-frame").bounding_box()["width"]
    # the last but one of the eight rows; they are 18 high, and the table of seven operations is below them
    body.click(position={"x": 2.5 * column, "y": box["height"] - 6 - 32 - 7 * 24 - 1.5 * 18})
    until(page, f"document.getElementById('unit').value === '{unit}'")
    page.wait_for_selector(f"h3:has-text('Unit {unit} at “AND”')")
    answer = shipped_runs()[0].answer(view(unit=unit))
    rows = panel(page, "mufuru-8").locator(".sum tbody tr")
    shown = [number(row.locator("td").last.inner_text()) for row in rows.all()]
    # told in four places
    assert shown == pytest.approx(answer["unit"]["contributions"][2], abs=0.6e-4)
    total = number(panel(page, "mufuru-8").locator(".sum tfoot td").inner_text())
    assert total == pytest.approx(answer["unit"]["after"][2], abs=0.6e-4)
    # each of seven parts is rounded
    assert sum(shown) == pytest.approx(total, abs=8 * 0.5e-4)


def test_the_map_has_a_colour_for_every_operation(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="mufuru-8", text=FORMULA)
    found = shipped_runs()[0].answer(view())
    names = [found["ops"][op] for row in found["map"]["ops"] for op in row]
    texts = page.locator(".figure > svg text").all_text_contents()
    assert {name: texts.count(name) for name in found["ops"]} == {name: names.count(name) for name in found["ops"]}
    swatches = page.eval_on_selector_all(".labels rect", "all => all.map(one => one.getAttribute('fill'))")
    assert len(set(swatches)) == len(found["ops"])
    page.check("[name=cells][value=states]")
    until(page, "location.hash.includes('cells=states')")
    page.wait_for_selector(".labels text:text('State of each memory cell (unit), token by token')")
    assert not set(found["ops"]) & set(page.locator(".figure > svg text").all_text_contents())


def test_forbidding_and_forcing_change_the_prediction(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="mufuru-8", text=WHOLE)
    before = headline(page)
    page.click("#force-keep")
    page.wait_for_selector(".headline :text('with all operations')")
    assert page.get_attribute("#force-keep", "aria-pressed") == "true"
    expected = shipped_runs()[0].answer(view(WHOLE, force="keep"))["predictions"][-1]["top"][0][0]
    assert headline(page) == expected != before
    assert f"with all operations: {before}" in page.inner_text(".headline")
    assert "force=keep" in page.url
    page.click("#forbid-max")
    page.click("#force-keep")
    until(page, "!document.querySelector('#force-keep[aria-pressed=true]')")
    assert "forbid=max" in page.url
    page.click("#allow")
    until(page, "!document.querySelector('.headline').textContent.includes('with all')")
    assert headline(page) == before


def test_two_runs_side_by_side_and_one_beneath_the_other(visit: Callable[..., Visit]) -> None:
    page = visit(DESKTOP).open(run="mufuru-8", text=FORMULA)
    assert page.locator("[data-run]").count() == 1
    alone = "A MuFuRU: each memory cell (unit) chooses among seven operations."
    assert page.inner_text(".facts span") == alone
    page.select_option("#with", "gru-8")
    page.wait_for_selector('[data-run="gru-8"] .headline')
    assert page.locator(".facts span").count() == 0
    one, other = (panel(page, name).bounding_box() for name in ("mufuru-8", "gru-8"))
    assert one["y"] == other["y"]
    assert one["x"] + one["width"] < other["x"]
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    until(page, "!document.querySelector('#panels.two')")
    one, other = (panel(page, name).bounding_box() for name in ("mufuru-8", "gru-8"))
    assert one["y"] + one["height"] < other["y"]
    assert fits(page)
    # an operation that the GRU lacks leaves it as it is
    page.click("#forbid-max")
    page.wait_for_selector('[data-run="mufuru-8"] .headline :text("with all")')
    assert "with all" not in panel(page, "gru-8").locator(".headline").inner_text()


def test_a_link_shows_the_same_view(visit: Callable[..., Visit]) -> None:
    page = visit().open()
    page.fill("#text", WHOLE)
    wait_for_tokens(page, 9)
    page.select_option("#token", "4")
    page.fill("#unit", "5")
    page.click("#forbid-mul")
    page.check("#tables")
    page.wait_for_selector("h3:has-text('Unit 5 at “OR”')")
    page.wait_for_selector(".headline :text('with all')")
    other = visit()
    same = other.page
    same.goto(page.url)
    same.wait_for_selector(".headline :text('with all')")
    assert same.inner_html("#panels") == page.inner_html("#panels")
    assert same.input_value("#unit") == "5"
    assert same.is_checked("#tables")


@pytest.mark.parametrize(
    "fragment", ["run=none&with=no&unit=99&token=99&layer=7&forbid=x,y&force=z", "unit=abc&units=no&text="]
)
def test_a_link_that_makes_no_sense_shows_something(visit: Callable[..., Visit], fragment: str) -> None:
    one = visit()
    one.page.goto(f"{one.address}#{fragment}&text=1")
    one.page.wait_for_selector("body[data-ready]")
    assert one.page.locator("[data-run]").count() == 1


def test_everything_can_be_reached_by_keyboard(visit: Callable[..., Visit]) -> None:
    page = visit().open()
    reached: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
        outline = page.evaluate(
            "getComputedStyle(document.activeElement.matches('.segments input') ? "
            "document.activeElement.nextElementSibling : document.activeElement).outlineStyle"
        )
        assert outline != "none" or reached[-1] == "", reached[-1]
    for name in ("skip", "run", "with", "link", "svg", "png", "tour", "theme", "text", "forbid-keep", "force-forget",
                 "token", "unit", "tables", "figure", "scroll"):  # fmt: skip
        assert name in reached, name
    assert reached.index("text") < reached.index("figure") < reached.index("forbid-keep")


def test_arrow_keys_walk_through_the_figure(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="mufuru-8", text=FORMULA)
    page.focus(".figure")
    page.keyboard.press("Home")
    page.wait_for_selector("h3:has-text('at “1”')")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
        page.wait_for_timeout(50)
    order = shipped_runs()[0].answer(view())["map"]["order"]
    below = order[min(7, order.index(0) + 1)]
    page.wait_for_selector(f"h3:has-text('Unit {below} at “AND”')")
    assert page.evaluate("document.activeElement.className") == "figure"
    assert "“AND”, token 3 of 7" in page.inner_text("#said")


def test_switches_work_by_keyboard_and_keep_the_focus(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="mufuru-8", text=WHOLE)
    page.focus("#force-keep")
    page.keyboard.press("Space")
    page.wait_for_selector(".headline :text('with all operations')")
    assert page.evaluate("document.activeElement.id") == "force-keep"


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_pictures_can_be_saved(visit: Callable[..., Visit], kind: str, tmp_path: Path) -> None:
    page = visit().open()
    with page.expect_download() as waiting:
        page.click(f"#{kind}")
    waiting.value.save_as(tmp_path / "file")
    assert waiting.value.suggested_filename == f"mufuru.{kind}"
    data = (tmp_path / "file").read_bytes()
    if kind == "png":
        picture = matplotlib.image.imread(io.BytesIO(data), format="png")
        assert picture.shape[0] > 600
        assert picture.shape[1] > 1500
        assert picture[..., :3].std() > 0.05, "the picture is empty"
        return
    root = ET.fromstring(data)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for word in (
        "mufuru-8 (mufuru, 8 units)",
        "gru-8 (gru, 8 units)",
        "XNOR",
        "forget",
        "of true",
        "Mean weight of each operation, %",
    ):
        assert word in texts
    # nothing that is drawn depends on the page's style sheet
    drawn = [element for element in root.iter() if element.tag.rpartition("}")[2] in ("path", "text")]
    assert all(element.get("fill") for element in drawn)


def test_every_number_is_in_a_table(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="mufuru-8", text=FORMULA, tables="1", units="one", unit="2")
    answer = shipped_runs()[0].answer(view(unit=2))
    weights, states, leaders = page.locator(".tables table").all()
    rows = [[cell.inner_text() for cell in row.locator("td").all()] for row in weights.locator("tbody tr").all()]
    found = [[float(value) for value in row[2:]] for row in rows]
    for row, expected in zip(found, answer["unit"]["weights"], strict=True):
        assert row == pytest.approx(expected, abs=0.6e-3)
    assert [row[0] for row in rows] == [prediction["top"][0][0] for prediction in answer["predictions"]]
    first = [number(cell.inner_text()) for cell in states.locator("tbody tr").first.locator("td").all()]
    assert first == pytest.approx([value * 1e-4 for value in answer["states"]["values"][0]], abs=1e-9)
    led = [cell.inner_text().split()[0] for cell in leaders.locator("tbody tr").first.locator("td").all()]
    assert led == [answer["ops"][op] for op in answer["map"]["ops"][0]]


def test_a_language_model_shows_the_next_word(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="words", text="the cat sat", token="2")
    section = page.locator("section:has(> h3:text('Next after “cat”'))")
    assert "“sat” came, with" in section.inner_text()
    assert section.locator("li").count() == 10
    assert page.locator("#operations").is_visible()


def test_a_classifier_and_a_series(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="texts", text="the film is good")
    assert headline(page, "texts") in ("yes", "no")
    page.select_option("#run", "series")
    page.wait_for_selector('[data-run="series"]')
    assert page.inner_text("#text-label") == "Series"
    page.fill("#text", "\n".join(str(k / 10) for k in range(120)))
    wait_for_tokens(page, 120)
    assert headline(page, "series") in ("1", "2")
    assert fits(page)
    # a line with the operations beneath, and no slanted numbers
    points = page.get_attribute(".figure polyline.series", "points").split()
    assert len(points) == 120
    heights = [float(point.split(",")[1]) for point in points]
    assert heights == sorted(heights, reverse=True)
    assert heights[0] > heights[-1] + 40
    assert page.locator(".figure text[transform]").count() == 0
    # a step is named by its number, whatever values it has
    assert page.inner_text("#column") == "Step"
    assert page.inner_text(".readout").startswith("Step 120 of 120 (11.9)")
    assert {"Prediction after step 120", "Unit 0 at step 120"} <= set(page.locator(".detail h3").all_inner_texts())
    assert "Which operation decided each memory cell (unit), step by step" in page.locator(".labels").inner_text()


def test_a_link_that_names_a_run_alone_opens_with_an_example(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="texts")
    assert page.input_value("#text") == trained("texts")[0].info()["examples"][0]
    # an address that is changed by hand loads nothing anew
    page.evaluate("location.hash = 'run=series'")
    until(page, f"document.getElementById('text').value === {json.dumps(trained('series')[0].info()['examples'][0])}")
    assert visit().open(run="texts", text="").input_value("#text") == ""


@pytest.mark.parametrize("run", ["mufuru-8", "series"])
def test_on_a_phone_the_prediction_is_in_the_upper_half(visit: Callable[..., Visit], run: str) -> None:
    text = WHOLE if run == "mufuru-8" else " ".join(str(k / 10) for k in range(120))
    page = visit(PHONE).open(run=run, text=text)
    box = panel(page, run).locator(".headline").bounding_box()
    assert box["y"] + box["height"] < PHONE[1] / 2
    assert box["y"] < page.locator("#operations").bounding_box()["y"]


def test_panels_side_by_side_scroll_together(visit: Callable[..., Visit]) -> None:
    page = visit().open(run="mufuru-8", **{"with": "gru-8"}, text="1" + " 0 AND 1 OR" * 8, token="0")
    one, other = page.locator(".figure").all()
    one.evaluate("box => { box.scrollLeft = 120; }")
    until(page, "[...document.querySelectorAll('.figure')].every(box => box.scrollLeft === 120)")
    other.evaluate("box => { box.scrollLeft = 30; }")
    until(page, "[...document.querySelectorAll('.figure')].every(box => box.scrollLeft === 30)")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_nothing_hinders_people(visit: Callable[..., Visit], size: tuple[int, int], theme: str) -> None:
    """axe-core finds nothing to object to: names, roles, contrast, order."""
    page = visit(size, theme).open(
        run="mufuru-8", **{"with": "gru-8"}, text=FORMULA, tables="1", forbid="max", unit="3", units="one"
    )
    page.wait_for_selector(".headline :text('with all')")
    assert fits(page)
    wrong = violations(page)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_is_the_systems_or_the_users(visit: Callable[..., Visit], theme: str) -> None:
    page = visit(DESKTOP, theme).open()
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    systems = page.evaluate(ground)
    other = "dark" if theme == "light" else "light"
    while page.get_attribute("#theme", "aria-label") != f"Theme: {other}":
        page.click("#theme")
    assert page.evaluate(ground) != systems
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.get_attribute("html", "data-theme") == other


def test_a_server_that_went_away_is_told(browser: Any) -> None:
    with serving() as place:
        one = Visit(browser, place)
        page = one.open()
        # what is asked on opening has its answers
        page.wait_for_load_state("networkidle")
    page.fill("#text", "1 1 AND")
    page.wait_for_selector("#messages .error")
    assert "is `mufuru explore` still running?" in page.inner_text("#messages")
    assert one.wrong
    assert all(re.search("ERR_CONNECTION", text) for text in one.wrong)
    one.context.close()
