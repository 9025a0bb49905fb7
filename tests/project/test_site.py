"""The documentation builds as a site: every page, every formula drawn, and nothing loaded from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browsing import Visit, browsing, why_not

ROOT = Path(__file__).parents[2]
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [*command, "--site-dir", str(folder)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return folder


class Loads(HTMLParser):
    """Collects the addresses that a browser loads by itself: a link that a reader may follow is not among them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name == LOADED.get(tag) and value]


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_every_page_and_program_is_there(site: Path) -> None:
    names = {path.relative_to(site).as_posix() for path in pages(site)}
    expected = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in ROOT.glob("docs/**/*.md")}
    expected |= {f"examples/{path.stem}.html" for path in ROOT.glob("examples/*.[pi]*")}
    assert expected <= names


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = {address for page in pages(site) for address in Loads(page.read_text(encoding="utf-8")).found}
    assert any(address.endswith(".js") for address in found)
    assert not [address for address in found if re.match(r"(https?:)?//", address)]


def test_what_is_loaded_is_there(site: Path) -> None:
    for page in pages(site):
        if page.name == "404.html":  # its addresses are the server's
            continue
        for address in Loads(page.read_text(encoding="utf-8")).found:
            if not address.startswith("data:"):
                assert (page.parent / address.partition("?")[0]).exists(), f"{page.name}: {address}"


def test_a_notebook_shows_what_it_gave(site: Path) -> None:
    text = (site / "examples" / "swap_a_gru.html").read_text(encoding="utf-8")
    assert text.count('src="data:image/png;base64,') == 3
    assert 'alt="Drawn by mufuru.plot.units(trace, example)"' in text
    assert "right on sequences of 20 commands: 1.000" in text


def test_formulae_are_drawn(site: Path) -> None:
    text = (site / "unit.html").read_text(encoding="utf-8")
    assert text.count("<math") > 20
    for page in pages(site):
        assert "arithmatex" not in page.read_text(encoding="utf-8"), page


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_a_page_opened_from_disk_can_be_searched(site: Path) -> None:
    with browsing() as browser:
        visit = Visit(browser, site.as_uri())
        visit.page.goto((site / "reproduction" / "lm.html").as_uri())
        # the search looks at its field when a key goes up, and when its index is read: a filled field can miss both
        visit.page.locator(".md-search__input").press_sequentially("zoneout")
        visit.page.wait_for_selector(".md-search-result__item a")
        results = visit.page.locator(".md-search-result__item a").evaluate_all("links => links.map(link => link.href)")
        visit.leave()
    assert f"{site.as_uri()}/unit.html#regularisation-inside-the-recurrence" in results


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_a_link_opens_the_folded_section_that_it_leads_to(site: Path) -> None:
    with browsing() as browser:
        visit = Visit(browser, site.as_uri())
        page, address = visit.page, (site / "reproduction" / "logic.html").as_uri()
        page.goto(address)
        folds = page.locator("details.fold")
        assert folds.count() > 5
        assert page.locator("details.fold[open]").count() == 0
        # what is in short is not folded
        assert page.locator("#in-short").is_visible()
        page.click("article a[href='#one-setting-for-every-size'] >> nth=0")
        page.wait_for_selector("details.fold[open] #one-setting-for-every-size")
        assert page.locator("details.fold[open]").count() == 1
        page.goto(f"{address}#fewer-operations")
        page.reload()
        page.wait_for_selector("details.fold[open] #fewer-operations")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details.fold[open]").count() == folds.count()
        visit.leave()
