"""A real browser at a real server: pages that must stay free of errors and of requests to elsewhere."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from commands import lasting

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PACKAGES = [name for name in ("playwright", "axe_playwright_python") if importlib.util.find_spec(name) is None]
DESKTOP, PHONE = (1280, 900), (390, 844)
WAIT = 10_000
"""Milliseconds until something that should have happened on a page is given up."""


def why_not() -> str:
    """Why there is no browser to test with; "" where there is one."""
    if PACKAGES:
        return f"the page is not tested in a browser: {' and '.join(PACKAGES)} not installed"
    return "" if CHROMIUM else "the page is not tested in a browser: Chromium is not installed"


@contextmanager
def serving(*folders: Path) -> Iterator[str]:
    """The address of `mufuru explore` for these runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = lasting("explore", *folders, "--port", port)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split(": ", 1)[1].split()[0]
    finally:
        process.kill()
        process.communicate()


@contextmanager
def browsing() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    # the sandbox does not run as root
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


class Visit:
    """An open page. `leave` says what went wrong on it that nobody would see."""

    def __init__(
        self, browser: Any, address: str, size: tuple[int, int] = DESKTOP, theme: str = "light", first: bool = False
    ) -> None:
        width, height = size
        self.address = address
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, accept_downloads=True
        )
        if not first:
            # the explorer's guide is for those who were never there
            self.context.add_init_script("localStorage.setItem('guide', 'done')")
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT)
        self.wrong: list[str] = []
        self.expected = 0
        self.page.on("console", lambda message: self.wrong.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", self._note)

    def _note(self, request: Any) -> None:
        # blobs and data are made by the page itself
        if urlsplit(request.url).scheme not in ("blob", "data") and not request.url.startswith(self.address):
            self.wrong.append(f"request to {request.url}")

    def open(self, **state: str) -> Any:
        """Go to a view and wait until it is drawn."""
        fragment = f"#{urlencode(state)}" if state else ""
        self.page.goto(self.address + fragment)
        self.page.wait_for_selector("body[data-ready]")
        return self.page

    def leave(self) -> None:
        self.context.close()
        assert self.wrong == []


def until(page: Any, condition: str) -> None:
    """Wait for something to be true. Playwright's own way would need eval, which the page's policy forbids."""
    deadline = time.monotonic() + WAIT / 1000
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"it never happened: {condition}"
        page.wait_for_timeout(20)


def headline(page: Any, run: str = "mufuru-8") -> str:
    """What the panel of a run says in large letters."""
    text: str = page.locator(f'[data-run="{run}"] .headline b').inner_text()
    return text


def fits(page: Any) -> bool:
    """Whether the page is no wider than the window."""
    found: bool = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return found
