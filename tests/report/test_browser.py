"""Pages as a reader sees them: in a browser, wide and narrow, light and dark."""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import probes
from mechint import figures
from mechint.checkpoints import save_checkpoint
from mechint.cli import main
from mechint.planted import modular_addition
from mechint.report import Page, Section, page_of, write_page
from tests.browser import LOOKS, chromium, look, needs_browser, opened, until

pytestmark = needs_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a planted model, with every kind of figure that the probes draw of it."""
    subject = modular_addition(11, (3,)).subject
    names = ("fourier", "attention", "embedding", "lens", "patching")
    results = {name: probes.run(name, subject) for name in names}
    page = page_of(results, "Planted addition", figures={"training": _training()})
    return write_page(page, tmp_path_factory.mktemp("report") / "report.html")


def _training() -> figures.Figure:
    rows = [{"step": s, "train.loss": 4.0 / (s + 1), "train.accuracy": s / 9} for s in range(10)]
    drawn = figures.training_curve(rows, chance=0.1, step=9)
    assert drawn is not None
    return drawn


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Figures that are hard to fit: long names, many panels, wide scales."""
    words = {"title": "A title that is longer than a narrow page is wide, by far", "caption": "C"}
    xy = {"x_title": "what the axis shows (unit)", "y_title": "what the other shows (its unit)"}
    grid = {f"layer 0, neuron {i}: frequency {i}": np.eye(9) for i in range(12)}
    long = [f"embedding: second harmonics {i}, {2 * i} and {3 * i}" for i in range(18)]
    drawn = {
        "bars": figures.bars(long, {"loss": 10.0 ** -np.arange(18)}, y_log=True, **words, **xy),
        "grid": figures.image_grid(grid, z_title="a", **words, **xy),
        "map": figures.heatmap(np.eye(3) * 1e-5, z_title="z " * 30, diverging=True, **words, **xy),
        "square": figures.heatmap(np.eye(40), z_title="z", square=True, **words, **xy),
        "lines": figures.lines(
            range(9), {f"a curve of name {i}": np.arange(9) * i for i in range(7)}, **words, **xy
        ),
        "points": figures.scatter(
            range(9), range(9), color=range(9), color_title="value", **words, **xy
        ),
    }
    drawn["dynamics"], drawn["stepped"] = _over_steps()
    page = Page("Shapes", [Section("All of them", figures=drawn)])
    return write_page(page, tmp_path_factory.mktemp("shapes") / "shapes.html")


def _over_steps() -> list[figures.Figure]:
    """Dynamics with a cursor, and bars that go through the same steps."""
    steps = (0, 10, 20)
    both = {"train": (steps, [1.0, 1e-3, 1e-6]), "test": (steps, [1.0, 2.0, 1e-2])}
    panels = [
        figures.Panel("accuracy (0–1)", both, {"train": (steps, [0, 0, 0], [1, 1, 1])}),
        figures.Panel("loss (nats)", both, log=True),
        figures.Panel("one number", {"one": (steps, [1, 2, 3])}),
        figures.Panel("shares", image=(steps, [1, 2], [[0, 0.5, 1], [1, 0.5, 0]])),
    ]
    marks = {"training set learned": 2.0, "test set learned": 15.0}
    texts = {"title": "Dynamics", "caption": "C"}
    dynamics = figures.stacked(panels, x_title="step", marks=marks, **texts)
    bars = {
        step: figures.bars([1, 2], {"a": [step, 1]}, x_title="x", y_title="y", **texts)
        for step in steps
    }
    return [figures.with_cursor(dynamics, steps), figures.stepped(bars)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three planted models of other frequencies in one folder, as runs of a sweep leave them."""
    folder = tmp_path_factory.mktemp("models")
    for seed, frequencies in enumerate([(1, 2), (2, 3), (1, 3)]):
        made = modular_addition(p=7, frequencies=frequencies, seed=seed).subject
        save_checkpoint(
            folder / f"seed-{seed}.pt",
            config=made.model.config,
            weights=dict(made.model.named_parameters()),
            task=made.task,
            step=0,
            metrics={},
            seed=seed,
        )
    return folder


def analyzed(folder: Path, n: int, *options: object) -> Path:
    """The page of the first `n` models, by the command."""
    page = folder / f"page-{n}.html"
    paths = [folder / f"seed-{seed}.pt" for seed in range(n)]
    done = CliRunner().invoke(
        main, ["analyze", *map(str, [*paths, "--probe", "lens,fourier", *options, "--out", page])]
    )
    assert done.exit_code == 0, done.output
    return page


@pytest.fixture(scope="module")
def comparison(models: Path) -> Path:
    """Two models side by side."""
    return analyzed(models, 2)


@pytest.fixture(scope="module")
def table(models: Path) -> Path:
    """A table of models, with its CSV beside it."""
    page = analyzed(models, 3, "--csv", models / "table.csv")
    assert len((models / "table.csv").read_text().splitlines()) == 4
    return page


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("which", ["report", "shapes", "comparison", "table"])
def test_nothing_is_wrong_with_a_page(
    which: str, width: int, scheme: str, browser: Any, request: pytest.FixtureRequest
) -> None:
    seen = look(browser, request.getfixturevalue(which), width, scheme)
    assert seen.problems == []


def test_a_head_a_token_and_an_example_are_chosen(browser: Any, report: Path) -> None:
    with opened(browser, report) as page:
        view = page.locator(".view").first
        said = view.locator(".said")
        tokens = view.locator(".token")
        assert tokens.all_text_contents() == ["x", "y", "="]
        assert "from “=” (position 2)" in said.text_content()
        tokens.nth(1).hover()
        assert "from “y” (position 1)" in said.text_content()
        tokens.nth(1).click()
        tokens.nth(0).hover()
        assert "from “y” (position 1)" in said.text_content() and "Locked" in said.text_content()
        view.locator("select").nth(0).select_option(index=1)
        assert tokens.nth(2).text_content() == "="
        assert tokens.nth(0).text_content().isdigit()
        view.locator("select").nth(2).select_option(index=1)
        assert "the difference" in view.locator(".scale").text_content()
        view.locator("select").nth(3).select_option(index=1)
        assert "An arc" in view.locator(".scale").text_content()
        assert page.said == []


def test_a_slider_moves_every_figure_of_its_steps(browser: Any, tmp_path: Path) -> None:
    dynamics, bars = _over_steps()
    section = Section("Steps", figures={"dynamics": dynamics, "bars": bars})
    file = write_page(Page("P", [section]), tmp_path / "page.html")
    with opened(browser, file) as page:
        sliders = page.locator("input[type=range]")
        assert [sliders.nth(i).input_value() for i in range(2)] == ["2", "2"]
        sliders.nth(1).focus()
        page.keyboard.press("ArrowLeft")
        until(page, "document.getElementById('plot-1').layout.shapes.at(-1).x0 === 10")
        until(page, "document.getElementById('plot-2').data[0].y[0] === 10")
        assert sliders.nth(0).input_value() == "1"
        assert page.locator(".steps output").all_text_contents() == ["10", "10"]
        page.keyboard.press("ArrowLeft")
        until(page, "document.getElementById('plot-2').data[0].y[0] === 0")
        assert page.said == []


def test_the_numbers_of_a_figure_are_saved(browser: Any, shapes: Path, tmp_path: Path) -> None:
    with opened(browser, shapes) as page:
        with page.expect_download() as waiting:
            page.locator("button[data-name=points]").click()
        waiting.value.save_as(tmp_path / "points.csv")
    rows = (tmp_path / "points.csv").read_text().splitlines()
    assert rows == ["trace,x,y,z", *(f"trace 0,{i},{i}," for i in range(9))]


def test_what_is_printed_from_a_dark_desktop_has_the_colors_of_the_light_page(
    browser: Any, report: Path
) -> None:
    printed = {}
    tick = "getComputedStyle(document.querySelector('.xtick text')).fill"
    for scheme in ("light", "dark"):
        with opened(browser, report, 1280, scheme) as page:
            before = page.evaluate(tick)
            printed[scheme] = inks(page.pdf())
            until(page, f"{tick} === '{before}'")
            assert page.said == []
    assert len(printed["light"]) > 3 and printed["dark"] == printed["light"]


def inks(pdf: bytes) -> set[bytes]:
    """The colors that a PDF fills and strokes with."""
    found: set[bytes] = set()
    for held in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        with contextlib.suppress(zlib.error):  # of a font or a picture
            found |= {*re.findall(rb"([\d.]+ [\d.]+ [\d.]+) (?:rg|RG)\b", zlib.decompress(held))}
    return found


def test_tokens_that_look_like_markup_are_shown_letter_by_letter(
    browser: Any, tmp_path: Path
) -> None:
    tokens = ["<s>", "<b>", "</s>", "&lt;", "R&D", "<|endoftext|>"]
    texts = {"x_title": "token", "y_title": "layer", "caption": "C"}
    drawn = {
        "map": figures.heatmap(np.eye(6), x=tokens, z_title="z", title="A map", **texts),
        "twice": figures.heatmap(np.eye(12), x=tokens * 2, z_title="z", title="Twice", **texts),
        "lines": figures.lines(
            [1, 2], {token: [1, 2] for token in tokens}, levels={"<i>": 1.5}, title="L", **texts
        ),
        "lying": figures.bars(tokens, {"a": range(6)}, horizontal=True, title="Bars", **texts),
    }
    seen = "(these) => [...document.querySelectorAll(these)].map((one) => one.textContent)"
    file = write_page(Page("P", [Section("S", figures=drawn)]), tmp_path / "page.html")
    with opened(browser, file) as page:
        assert page.evaluate(seen, "#plot-1 .xtick text") == tokens
        assert page.evaluate(seen, "#plot-2 .xtick text") == tokens * 2
        assert page.evaluate(seen, "#plot-3 .legendtext") == tokens
        assert page.evaluate(seen, "#plot-3 .annotation-text") == ["<i>"]
        ink = "getComputedStyle(document.querySelector('#plot-3 .annotation-text')).fill"
        assert page.evaluate(ink) == "rgb(98, 107, 118)", "that of the page's small letters"
        assert page.evaluate(seen, "#plot-4 .ytick text") == tokens[::-1]  # from below
        with page.expect_download() as waiting:
            page.locator("button[data-name=map]").click()
        waiting.value.save_as(tmp_path / "map.csv")
        assert page.said == []
    rows = (tmp_path / "map.csv").read_text().splitlines()[1:7]
    assert [row.split(",")[1] for row in rows] == tokens


def test_the_numbers_of_a_view_are_those_that_it_shows(browser: Any, tmp_path: Path) -> None:
    """Its example, its step, all its heads; the drawing behind it has the first example and 12."""
    heads, tokens = [f"L0H{i}" for i in range(14)], ["a", "b", "c"]

    def patterns(seed: int) -> dict[str, Any]:
        return {
            name: np.random.default_rng((seed, place)).random((14, 3, 3)).round(3)
            for place, name in enumerate(("first <one>", "second"))
        }

    steps = {0: patterns(0), 100: patterns(1)}
    texts = dict.fromkeys(patterns(0), tokens)
    drawn = figures.attention(
        heads, texts, patterns(2), title="Attention", caption="C", steps=steps
    )
    file = write_page(Page("P", [Section("S", figures={"view": drawn})]), tmp_path / "page.html")
    with opened(browser, file) as page:
        page.locator(".view select").nth(0).select_option(index=1)
        page.locator(".view input[type=range]").fill("1")
        with page.expect_download() as waiting:
            page.locator("button[data-csv]").click()
        assert waiting.value.suggested_filename == "view-second-step-100.csv"
        waiting.value.save_as(tmp_path / "view.csv")
        assert page.said == []
    rows = [line.split(",") for line in (tmp_path / "view.csv").read_text().splitlines()[1:]]
    assert len(rows) == 14 * 9
    for head, key, query, weight in rows:
        shown = steps[100]["second"][heads.index(head), int(query), int(key)]
        assert float(weight) == pytest.approx(shown, abs=1e-9)


def test_a_figure_saved_as_a_page_opens(browser: Any, tmp_path: Path) -> None:
    weights = [[[1.0, 0.0], [0.4, 0.6]]]
    drawn = figures.attention(["L0H0"], {"a": ["<b>", "="]}, {"a": weights}, title="T", caption="C")
    with opened(browser, drawn.save(tmp_path / "view.html")) as page:
        assert page.locator(".token").first.text_content() == "<b>"
        assert "0.60 at “=”" in page.locator(".said").text_content()
        assert page.said == []
