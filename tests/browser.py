"""Pages in a headless Chromium: what it says of them, whether every figure is drawn, whether text
stays in its place, what axe finds. Needs the package playwright, a Chromium of the system, and for
axe the npm package axe-core (``npm install --no-save axe-core``).
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
LOOKS = ((1280, "light"), (400, "dark"))
"""Widths in pixels and color schemes in which pages are opened."""
AXE = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"

needs_browser = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None,
    reason="no Chromium on the path, or the package playwright is not installed",
)
needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="npm install --no-save axe-core")

PROBLEMS = (Path(__file__).parent / "browser.js").read_text(encoding="utf-8")


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
def opened(
    browser: Any, file: Path, width: int = 1280, scheme: str = "light", *, scripts: bool = True
) -> Iterator[Any]:
    """A page whose figures are drawn; its `said` holds the messages of the console."""
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme=scheme,
        offline=True,
        java_script_enabled=scripts,
        bypass_csp=not scripts,
    )
    page = context.new_page()
    page.set_default_timeout(240_000)  # a loaded machine takes tens of seconds for Plotly alone
    page.said = []
    page.on("console", lambda message: page.said.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: page.said.append(f"error: {error}"))
    page.on("requestfailed", lambda request: page.said.append(f"not loaded: {request.url}"))
    try:
        page.goto(file.resolve().as_uri())
        if scripts and page.query_selector("script[data-plot]"):
            page.wait_for_selector("html[data-figures=ready]", state="attached")
            draw_all(page)
        yield page
    finally:
        context.close()


def draw_all(page: Any) -> None:
    """Scroll through the page, since figures become interactive as they come near."""
    for place in range(0, page.evaluate("document.body.scrollHeight"), 700):
        page.evaluate(f"scrollTo(0, {place})")
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    until(
        page,
        "[...document.querySelectorAll('.plot:not([hidden])')].every(p => p.querySelector('svg'))",
    )
    page.evaluate("scrollTo(0, 0)")


def look(browser: Any, file: Path, width: int, scheme: str) -> list[str]:
    """The faults of the page, in words."""
    with opened(browser, file, width, scheme) as page:
        return [*page.said, *page.evaluate(PROBLEMS)]


def violations(browser: Any, file: Path, width: int, scheme: str) -> list[str]:
    """The findings of axe on the page with everything open: rule, and the first place."""
    with opened(browser, file, width, scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("async () => (await axe.run()).violations")
        return [f"{one['id']}: {one['nodes'][0]['html'][:150]}" for one in found]


def until(page: Any, condition: str) -> None:
    """Wait until a JavaScript expression holds. Playwright's own waiting evaluates text within the
    page, which the page's policy forbids.
    """
    looking = f"const look = () => ({condition}) ? done(true) : setTimeout(look, 20)"
    assert page.evaluate(
        f"() => new Promise(done => {{ {looking}; look(); setTimeout(() => done(false), 60000) }})"
    ), condition
