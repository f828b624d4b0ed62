"""Pages in a headless Chromium: what it says, whether every figure is drawn, whether text stays in
its place. Needs the package playwright and a Chromium of the system.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
LOOKS = tuple((width, scheme) for width in (1280, 400) for scheme in ("light", "dark"))
"""The widths in pixels and the color schemes that every page is opened in."""

needs_browser = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None,
    reason="no Chromium on the path, or the package playwright is not installed",
)

PROBLEMS = (Path(__file__).parent / "browser.js").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Opened:
    """What a browser found on one page: problems in words, the seconds until all was drawn."""

    problems: list[str]
    seconds: float


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, file: Path, width: int = 1280, scheme: str = "light") -> Iterator[Any]:
    """A page once all its figures are drawn; its `said` holds the messages of the console."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
    )
    page = context.new_page()
    page.set_default_timeout(240_000)  # a loaded machine takes tens of seconds for Plotly alone
    page.said = []
    page.on("console", lambda message: page.said.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: page.said.append(f"error: {error}"))
    page.on("requestfailed", lambda request: page.said.append(f"not loaded: {request.url}"))
    try:
        page.goto(file.resolve().as_uri())
        if page.query_selector("script[data-plot]"):
            page.wait_for_selector("html[data-figures=drawn]", timeout=240_000)
        yield page
    finally:
        context.close()


def look(browser: Any, file: Path, width: int, scheme: str) -> Opened:
    """Open the page and say what is wrong with it."""
    start = time.monotonic()
    with opened(browser, file, width, scheme) as page:
        seconds = time.monotonic() - start
        return Opened([*page.said, *page.evaluate(PROBLEMS)], seconds)


def until(page: Any, condition: str) -> None:
    """Wait until a JavaScript expression holds. Playwright's own waiting evaluates text within the
    page, which the page's policy forbids.
    """
    looking = f"const look = () => ({condition}) ? done(true) : setTimeout(look, 20)"
    assert page.evaluate(
        f"() => new Promise(done => {{ {looking}; look(); setTimeout(() => done(false), 60000) }})"
    ), condition
