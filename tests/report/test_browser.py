"""Pages of every kind in a browser: the answer and a figure first, with and without script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mechint import figures, planted
from mechint.account.account import analyze
from mechint.probe.results import PaperClaim
from mechint.report import Page, Section, build_gallery, comparison_page, page_of, write_page
from tests.browser import LOOKS, chromium, look, needs_axe, needs_browser, opened, until, violations
from tests.figures.test_figures import KINDS

pytestmark = [needs_browser, pytest.mark.full]
SETTINGS = {"fourier": {"permutations": 499}, "attention": {"untrained": 0}}
BESIDE_PLOTLY, OVER_STEPS = 600_000, 1_500_000
"""Bytes of a page beside plotly.js: of a report, and over the steps of a run."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Kind of page → its file."""
    folder = tmp_path_factory.mktemp("pages")
    subject = planted.modular_addition(29, (3, 5, 11)).subject
    account = analyze(subject, "fourier", "attention", "embedding", settings=SETTINGS)
    kinds = Page("Every kind", [Section("kinds", figures=KINDS)], abstract="A figure of each kind.")
    claims = [
        PaperClaim("s", id, "It grows.", "by 2", "by 2.1", verdict, n=3)
        for id, verdict in (("a", "supported"), ("b", "inconclusive"))
    ]
    study = Page("A study", [Section("Claims", claims=claims, figures={"a": KINDS["groups"]})])
    words = {"title": "T", "x_title": "x (n)", "y_title": "y", "caption": "c"}
    steps = figures.stepped({s: figures.bars([1, 2], {"a": [s, 1]}, **words) for s in (0, 5, 9)})
    # the spectrum and a map of addition mod 113 at forty checkpoints
    draw, at = np.random.default_rng(0), range(1, 57)
    axes = {"x_title": "x", "y_title": "y", "z_title": "z (0–1)", "title": "T", "caption": "c"}
    spectra = [figures.bars(at, {"share": draw.random(56)}, **words) for _ in range(40)]
    maps = [figures.heatmap(draw.random((60, 60)), **axes) for _ in range(40)]
    held = {"bars": steps, "again": steps}
    for name, every in (("spectra", spectra), ("maps", maps)):
        held[name] = figures.stepped({100 * place: one for place, one in enumerate(every)})
    over = Page("Steps", [Section("a", figures=held)])
    made = {
        "report": write_page(page_of(account, command="mechint analyze m.pt"), folder / "r.html"),
        "light": write_page(page_of(account), folder / "l.html", light=True),
        "two": write_page(comparison_page([account, account]), folder / "two.html"),
        "kinds": write_page(kinds, folder / "kinds.html"),
        "study": write_page(study, folder / "study.html"),
        "steps": write_page(over, folder / "steps.html"),
    }
    return {**made, "gallery": build_gallery([page_of(account), study], folder / "gallery")}


NAMES = ("report", "light", "two", "kinds", "study", "steps", "gallery")


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wrong_with_a_page(
    browser: Any, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    assert look(browser, pages[name], width, scheme) == []


@needs_axe
@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_nothing(browser: Any, pages: dict[str, Path], name: str) -> None:
    assert violations(browser, pages[name], 1280, "light") == []


@pytest.mark.parametrize("scripts", [True, False])
def test_the_first_screen_has_the_answer_and_a_figure(
    browser: Any, pages: dict[str, Path], scripts: bool
) -> None:
    with opened(browser, pages["report"], scripts=scripts) as page:
        bottom = {
            name: page.locator(chosen).first.bounding_box()
            for name, chosen in {
                "title": "h1",
                "quality": ".quality",
                "verdict": ".verdict",
                "figure": "#answer figure",
                "evidence": ".evidence li",
            }.items()
        }
        assert all(box is not None for box in bottom.values())
        assert bottom["figure"]["y"] + 200 < 800 and bottom["evidence"]["y"] < 800


@pytest.mark.parametrize("width", [390, 1000, 1400])
def test_half_a_figure_is_never_hidden(browser: Any, pages: dict[str, Path], width: int) -> None:
    """Figures of half a page fit every width; what needs a whole page may be scrolled."""
    with opened(browser, pages["kinds"], width, scripts=False) as page:
        for one in page.locator("figure.half .static svg").all():
            box = one.bounding_box()
            assert box and box["x"] >= 0 and box["x"] + box["width"] <= width


def test_a_page_is_whole_without_script(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["kinds"], scripts=False) as page:
        drawn = page.locator("figure .static svg")
        assert drawn.count() == len(KINDS)
        boxes = [drawn.nth(i).bounding_box() for i in range(drawn.count())]
        assert all(box and box["width"] > 300 and box["height"] > 100 for box in boxes)
        assert not page.locator("button:visible").count()


def test_pages_are_small(pages: dict[str, Path]) -> None:
    from mechint.report._render import plotly_js

    beside = {
        name: len(pages[name].read_bytes()) - len(plotly_js().encode()) for name in NAMES[:-1]
    }
    for name in ("report", "two", "kinds", "study"):
        assert beside[name] < BESIDE_PLOTLY, name
    assert beside["steps"] < OVER_STEPS
    assert len(pages["light"].read_bytes()) < BESIDE_PLOTLY


def test_one_slider_moves_every_figure_that_has_its_step(
    browser: Any, pages: dict[str, Path]
) -> None:
    with opened(browser, pages["steps"]) as page:
        first, second, *_ = page.locator("input[type=range]").all()
        first.fill("0")
        until(page, "document.querySelectorAll('.plot')[1].data?.[0].y[0] === 0")
        assert second.input_value() == "0" and page.locator("output").nth(1).input_value() == "0"


def test_the_theme_can_be_switched_and_commands_copied(
    browser: Any, pages: dict[str, Path]
) -> None:
    with opened(browser, pages["report"]) as page:
        before = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        page.click("#theme")
        after = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert before != after
        page.locator("#made .copy").first.click()
        assert page.evaluate("getSelection().toString()") == "mechint analyze m.pt"
        page.click("#open-all")
        assert (
            page.evaluate("document.querySelectorAll('main details.table:not([open])').length") == 0
        )


@pytest.mark.parametrize("kind", ["svg", "png", "csv"])
def test_a_figure_is_saved(browser: Any, pages: dict[str, Path], kind: str, tmp_path: Path) -> None:
    with opened(browser, pages["kinds"]) as page:
        with page.expect_download() as waited:
            page.locator(f"#kinds-bars button[data-save={kind}]").click()
        waited.value.save_as(tmp_path / "f")
        data = (tmp_path / "f").read_bytes()
        assert waited.value.suggested_filename == f"bars.{kind}"
        if kind == "csv":
            rows = data.decode().splitlines()
            assert rows[0] == "series,step,loss (nats),value" and rows[1].startswith("a,<b>,1")
        else:
            assert data.startswith({"svg": b"<svg", "png": b"\x89PNG"}[kind])
            assert b"var(--" not in data


def test_the_gallery_is_searched(browser: Any, pages: dict[str, Path]) -> None:
    with opened(browser, pages["gallery"]) as page:
        assert page.locator(".card:visible").count() == 2
        page.fill("#words", "addition")
        assert page.locator(".card:visible").count() == 1
        page.fill("#words", "")
        page.click(".chip >> nth=0")
        assert "/report" in page.url and page.locator("#count").text_content() == "2 of 2 pages"


def test_an_attention_view_shows_the_weights_of_what_is_chosen(
    browser: Any, pages: dict[str, Path]
) -> None:
    with opened(browser, pages["kinds"]) as page:
        view = page.locator("#kinds-attention .view")
        view.locator(".token").nth(1).click()
        assert "0.75 at “=” (position 1), 0.25 at “<s>”" in view.locator(".said").text_content()
