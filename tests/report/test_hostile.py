"""Pages that others wrote: hostile text in every leaf, wrong types in every field, and what may be
overwritten.
"""

from __future__ import annotations

import copy
import html
import itertools
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mechint import figures
from mechint.errors import DataError, RunError
from mechint.report import PAGE, Page, build_gallery, check_writable, find_pages, render
from mechint.results import Claim, Figure, Null, Table

HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "red;background:url(https://example.org/x)",
    "{{ 7 * 7 }}{% raw %}",
    "\u2028<svg onload=alert(1)>",
)


def page_data() -> dict[str, Any]:
    """A page with every kind of leaf, as JSON values."""
    null = Null("share", 0.83, 0.02, 0.01, 0.005, "untrained weights", 199)
    claim = Claim("s", "a", "It grows", "by 2", "by 2.1", "supported", 2.1, (2.0, 2.2), 5, note="n")
    names = {"title": "T", "x_title": "x", "y_title": "y", "caption": "C"}
    section = {
        "title": "fourier",
        "lead": "Frequency 3 carries it.",
        "question": "Which?",
        "paragraphs": ["One."],
        "claims": [claim.to_dict()],
        "nulls": [{**vars(null)}],
        "metrics": {"share": 0.5, "nested": {"a": [1, "b"]}},
        "figures": {
            "lines": {**_figure(figures.lines([1, 2], {"s": [1, 2]}, **names))},
            "bars": {**_figure(figures.bars(["a"], {"s": [1]}, **names))},
            "points": {**_figure(figures.scatter([1, 2], [1, 2], **names))},
            "map": {**_figure(figures.heatmap([[1.0, 2.0]], z_title="z", **names))},
            "view": {**_figure(_view())},
            "steps": {
                **_figure(
                    figures.stepped({k: figures.lines([1], {"s": [k]}, **names) for k in (0, 5)})
                )
            },
        },
        "findings": [["yes", "It is there."], ["unclear", "It cannot tell."]],
        "code": "print(1)",
        "output": "1",
        "command": "mechint analyze x",
        "links": {"more": "more.html"},
        "tables": {"t": {"columns": {"k": [1, 2]}, "caption": "c", "units": {"k": "u"}}},
        "provenance": {"seed": 0, "settings": {"factor": "4"}},
    }
    return {
        "title": "Addition",
        "sections": [section, {"title": "empty"}],
        "kicker": "mechint report",
        "abstract": "What it is.",
        "facts": {"step": "400"},
        "task": "groups",
        "probes": ["fourier"],
        "date": "2026-01-01",
        "downloads": {"script.py": "print(1)"},
        "provenance": {"mechint": "0.1"},
    }


def _view() -> Figure:
    weights = [[[1.0, 0.0], [0.4, 0.6]]]
    return figures.attention(["L0H0"], {"a": ["1", "="]}, {"a": weights}, title="T", caption="C")


def _figure(figure: Figure) -> dict[str, Any]:
    return {"spec": json.loads(json.dumps(figure.spec)), "caption": figure.caption}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values that hold no others."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    found = False
    for key, item in items:
        found = True
        yield from leaves(item, (*path, key))
    if not found:
        yield path


def put(data: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(data)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


STYLE = r"(height:\d+px|background:linear-gradient\(to right(,#[0-9A-Fa-f]{6})+\))?"
"""All that stands in a style attribute."""


class Skeleton(HTMLParser):
    """Tags and attribute names of a page: what text can never add to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(sorted(name for name, _ in attrs))))
        self.addresses += [v or "" for name, v in attrs if name in ("src", "href", "action")]
        style = dict(attrs).get("style") or ""
        assert "url" not in style and re.fullmatch(STYLE, style), style


def skeleton(text: str) -> Skeleton:
    parser = Skeleton()
    parser.feed(text)
    parser.close()
    return parser


PAGE_DATA = page_data()
LOOKS = {"font", "margin", "modebar", "legend", "hoverlabel", "pad", "coloraxis", "yaxis"}
"""Parts of a layout that are left out: plotly.js alone reads them."""
LEAVES = [path for path in leaves(PAGE_DATA) if not LOOKS & set(path)]


def gallery_of(data: dict[str, Any], place: Path) -> list[str]:
    """The texts of a gallery of one page; RunError or DataError where it may not be drawn."""
    (place / PAGE).write_text(json.dumps(data), encoding="utf-8")
    index = build_gallery(find_pages([place]), place / "gallery")
    return [file.read_text(encoding="utf-8") for file in sorted(index.parent.glob("*.html"))]


def test_text_in_any_leaf_adds_no_tag_no_attribute_and_no_address(tmp_path: Path) -> None:
    tags = {tag for page in gallery_of(PAGE_DATA, tmp_path) for tag in skeleton(page).tags}
    tags |= {
        ("circle", ("cx", "cy", "fill", "r")),
        ("path", ("d", "fill", "stroke", "stroke-width")),
    }
    drawn = 0
    for path, text in zip(LEAVES, itertools.cycle(HOSTILE), strict=False):
        for file in (tmp_path / "gallery").glob("*.html"):
            file.unlink()
        try:
            pages = gallery_of(put(PAGE_DATA, path, text), tmp_path)
        except (RunError, DataError) as error:
            assert len(str(error)) < 700
            continue
        drawn += 1
        for seen in map(skeleton, pages):
            assert set(seen.tags) <= tags, path
            for address in seen.addresses:
                assert re.fullmatch(ADDRESS, address), path
    assert drawn > 60


ADDRESS = r"data:,|data:text/plain;base64,[\w+/=]*|#[\w-]*|[\w-]+\.(html|js)"
"""All that a page may lead to."""
WRONG = (None, 3, -1e300, True, [], {}, "x", [[]], {"a": None})


def test_wrong_types_are_refused_in_one_line_or_drawn(tmp_path: Path) -> None:
    paths = sorted({path[: depth + 1] for path in LEAVES for depth in range(len(path))}, key=str)
    refused = 0
    for number, path in enumerate(paths):
        for value in (WRONG[number % len(WRONG)], WRONG[(number + 4) % len(WRONG)]):
            try:
                gallery_of(put(PAGE_DATA, path, value), tmp_path)
            except (RunError, DataError) as error:
                assert "\n" not in str(error), path
                refused += 1
    assert refused > 30


def test_a_policy_lets_run_only_what_the_page_brings() -> None:
    text = render(Page.from_dict(PAGE_DATA))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    policy = html.unescape(policy)
    assert "default-src 'none'" in policy
    script = policy.partition("script-src ")[2].partition(";")[0]
    assert script.count("sha256-") == 3 and "unsafe" not in script and "http" not in script


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": [{"type": "scattermapbox"}]}, r"data\[0\].type: got 'scattermapbox'"),
        ({"layout": {"height": 1e9}}, "height: got 1e"),
        ({"layout": {"height": "1px;background:url(x)"}}, "height: expected a number"),
        ({"layout": {"images": [{"source": "https://example.org"}]}}, "images"),
    ],
)
def test_figures_that_reach_out_are_refused(change: dict[str, Any], message: str) -> None:
    data = put(PAGE_DATA, ("sections", 0, "figures", "lines", "spec"), change)
    with pytest.raises(DataError, match=message):
        render(Page.from_dict(data))


def test_deep_and_large_pages_are_refused(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(3000):
        deep = [deep]
    (tmp_path / PAGE).write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(RunError, match="does not hold a page"):
        find_pages([tmp_path])
    (tmp_path / PAGE).write_text(json.dumps(put(PAGE_DATA, ("provenance",), {"a": "y" * 30_000})))
    with pytest.raises(RunError, match="a text of 30000 characters"):
        find_pages([tmp_path])


def test_titles_that_collide_or_are_long_lose_no_page(tmp_path: Path) -> None:
    titles = ["Index", "index", "Plotly", "x" * 3000, "x" * 3000, "…"]
    pages = [Page.from_dict(put(PAGE_DATA, ("title",), title)) for title in titles]
    index = build_gallery(pages, tmp_path / "gallery")
    assert len(list(index.parent.glob("*.html"))) == len(titles) + 1
    assert index.read_text().count('class="card"') == len(titles)


def test_what_another_wrote_is_not_replaced(tmp_path: Path) -> None:
    keep = tmp_path / "keep.pt"
    keep.write_bytes(b"weights")
    with pytest.raises(RunError, match=r"keep.pt: is not a page of mechint's .* --force"):
        check_writable(keep)
    check_writable(keep, force=True)
    out = tmp_path / "site"
    out.mkdir()
    (out / "index.html").write_text("<html>my own</html>")
    with pytest.raises(RunError, match=r"index.html: is not a page of mechint's"):
        build_gallery([Page.from_dict(PAGE_DATA)], out)
    assert sorted(path.name for path in out.iterdir()) == ["index.html"], "nothing is half done"
    (out / "plotly.js").write_text("mine")
    build_gallery([Page.from_dict(PAGE_DATA)], out, force=True)
    build_gallery([Page.from_dict(PAGE_DATA)], out)
    (out / "plotly.js").write_text("mine")
    with pytest.raises(RunError, match=r"plotly.js: is not plotly.js and would be lost"):
        build_gallery([Page.from_dict(PAGE_DATA)], out)


def test_tables_of_unequal_columns_are_refused() -> None:
    page = Page.from_dict(PAGE_DATA)
    wrong = put(PAGE_DATA, ("sections", 0, "tables", "t", "columns"), {"a": [1], "b": []})
    assert render(page)
    with pytest.raises(DataError, match="columns of different lengths"):
        render(Page.from_dict(wrong))
    assert isinstance(page.sections[0].tables["t"], Table)
