"""Reports: what stands in the page, that it is the same every time, that it needs nothing else, and
galleries.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import mechint
from mechint import figures
from mechint.errors import RunError
from mechint.report import (
    PAGE,
    Page,
    Section,
    build_gallery,
    check_writable,
    find_pages,
    page_of,
    render,
    write_report,
)
from mechint.report.render import flat, plotly_js, show, slug
from mechint.report.thumbnail import thumbnail
from mechint.results import Claim, Figure, Null, ProbeResult, Table


def result(finding: str = "Frequencies 16 and 30 carry it.") -> ProbeResult:
    provenance = {
        "checkpoint": {"path": "runs/x/ckpt.pt", "format": "mechint", "step": 400},
        "task": {"name": "modular-arithmetic", "parameters": {"p": 113, "table": None}},
        "probe": {"name": "fourier", "settings": {"factor": 4.0}, "seed": 7},
    }
    return ProbeResult(
        probe="fourier",
        question="Which frequencies?",
        metrics={
            "logits.key_frequencies": [16, 30],
            "embedding.share": {str(k): 1 / k for k in range(1, 57)},
            "neurons.fraction": 0.83,
        },
        finding=finding,
        null={
            "neurons.fraction": Null(
                "neurons.fraction", 0.83, 0.02, 0.01, 0.005, "untrained weights", 199
            )
        },
        tables={
            "spectrum": Table(
                {"k": list(range(1, 57)), "share": np.linspace(0, 1, 56)},
                "one row a frequency",
                {"k": "cycles per p"},
            )
        },
        figures={
            "bars": figures.bars(
                [1, 2],
                {"s": [0.1, 0.9]},
                title="</script><b>",
                x_title="k",
                y_title="share",
                caption="High at <2>.",
            )
        },
        provenance=provenance,
    )


class Outline(HTMLParser):
    """Ids, addresses and the balance of tags of a page."""

    VOID = ("meta", "link", "br", "img", "rect", "circle", "path", "polygon")

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.addresses += [
            value for name in ("src", "href") if (value := values.get(name)) is not None
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def outline(text: str) -> Outline:
    parser = Outline()
    parser.feed(text)
    parser.close()
    return parser


def test_a_report_shows_question_finding_null_figure_and_provenance(tmp_path: Path) -> None:
    text = write_report(
        {"fourier": result()}, tmp_path / "report.html", title="Addition"
    ).read_text()
    seen = outline(text)
    assert not seen.open
    assert len(seen.ids) == len(set(seen.ids))
    assert all(address.startswith(("#", "data:")) for address in seen.addresses), (
        "nothing is fetched"
    )
    body = text.replace(plotly_js(), "")
    for wanted in (
        "Which frequencies?",
        "Frequencies 16 and 30 carry it.",
        "untrained weights (199 samples)",
        "runs/x/ckpt.pt",
        "High at &lt;2&gt;.",
        "16, 30",
    ):
        assert wanted in body, wanted
    assert re.search(
        r"0\.02 ± 0\.01</td>\s*<td class=\"n\">81</td>\s*<td class=\"n\">≤ 0\.005</td>", body
    )
    assert text.count(plotly_js()) == 1
    (source,) = re.findall(
        r'<script type="application/json"[^>]*>(.*?)</script>', body, flags=re.DOTALL
    )
    assert json.loads(source) == result().figures["bars"].spec


def test_equal_results_give_equal_bytes_and_survive_json(tmp_path: Path) -> None:
    first = write_report({"fourier": result()}, tmp_path / "a.html").read_bytes()
    again = write_report(
        {"fourier": ProbeResult.from_json(result().to_json())}, tmp_path / "b.html"
    ).read_bytes()
    assert first == again


def test_a_page_without_figures_carries_no_plotly() -> None:
    assert len(render(Page("T", [Section("S", lead="L")]))) < 20_000


def test_what_others_wrote_is_escaped() -> None:
    text = render(page_of({"<x>": result("<img src=x onerror=alert(1)>")}, "<title>"))
    assert "<img" not in text.replace(plotly_js(), "")
    assert "<title>&lt;title&gt;</title>" in text


def test_claims_stand_with_their_verdict() -> None:
    claim = Claim(
        "study",
        "a",
        "It grows",
        "by 2",
        "by 2.1 ± 0.1",
        "at least 1.5",
        "half of it",
        "not reproduced",
        note="5 seeds",
    )
    text = render(Page("Study", [Section("Claims", claims=[claim])]))
    assert '<span class="verdict not-reproduced">not reproduced</span>' in text
    for wanted in ("It grows", "by 2.1 ± 0.1", "at least 1.5", "5 seeds"):
        assert wanted in text


def test_what_is_long_stands_folded_below_its_beginning() -> None:
    ours = "; ".join(f"main-{seed}: {seed / 100:.2f}" for seed in range(40))
    claim = Claim("s", "a", "It grows", "by 2", ours, "1.5", "half", "reproduced")
    text = render(Page("A study", [Section("Claims", claims=[claim])]))
    shown = re.search(r"<p>Here: (.*?) …</p>", text)
    assert shown and ours.startswith(shown[1]) and 150 < len(shown[1]) <= 200
    assert text.count("<li>main-") == 40


def test_the_box_at_the_top_says_what_was_found() -> None:
    decided = [("unclear", "Too few."), ("no", "No circle."), ("yes", "Key is 7.")]
    sections = [
        Section("fourier", status="yes", question="Which?", findings=decided),
        Section("lens", status="unclear", question="Where?", lead="Abstains: no answer."),
    ]
    text = render(Page("A model", sections))
    nav = text[text.index("<nav") : text.index("</nav>")]
    assert "Key is 7." in nav and "Abstains: no answer." in nav
    assert "Which?" not in nav and "Where?" not in nav
    (listed,) = re.findall(r'<ul class="findings">(.*?)</ul>', text, re.S)
    assert re.findall(r"<li class=.*?>(.*?)</li>", listed) == [
        "Key is 7.",
        "No circle.",
        "Too few.",
    ]


def test_a_z_beyond_a_hundred_is_a_bound() -> None:
    made = [Null("m", x, 0.0, 1e-6, 0.01, "how", 99) for x in (1.0, -1.0, 2e-6)]
    assert [null.z_text for null in made] == ["> 100", "< -100", "2"]
    assert Null("m", 1.0, 0.0, 0.0, 0.01, "how").z_text == "–"
    text = render(Page("A model", [Section("fourier", nulls=made)]))
    assert "&gt; 100" in text and "1.000e+06" not in text
    assert json.loads(json.dumps(made[0].to_dict()))["z"] == pytest.approx(1e6), "data stay exact"


def test_a_page_round_trips_through_json() -> None:
    page = page_of({"fourier": result()}, "Addition")
    data = json.loads(json.dumps(page.to_dict(), allow_nan=False))
    assert Page.from_dict(data).to_dict() == data
    assert render(Page.from_dict(data), plotly="plotly.js") == render(page, plotly="plotly.js")


def test_a_gallery_shares_one_plotly(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / PAGE).write_text(
            json.dumps(page_of({"fourier": result()}, "Same title").to_dict())
        )
    index = build_gallery(find_pages([tmp_path / "runs"]), tmp_path / "gallery")
    assert sorted(path.name for path in index.parent.iterdir()) == [
        "index.html",
        "plotly.js",
        "same-title-2.html",
        "same-title.html",
    ]
    seen = outline(index.read_text())
    assert not seen.open
    assert all(
        (index.parent / address).exists()
        for address in seen.addresses
        if not address.startswith("data:")
    )
    assert index.read_text().count("<svg") == 2
    assert '<script src="plotly.js">' in (index.parent / "same-title.html").read_text()


def test_find_pages_says_what_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no such file or directory to take pages from"):
        find_pages([tmp_path / "none"])
    (tmp_path / PAGE).write_text("{}")
    with pytest.raises(RunError, match="does not hold a page"):
        find_pages([tmp_path])


NAMES = {"title": "T", "x_title": "x", "y_title": "y", "caption": "C"}
FIGURES: dict[str, Figure] = {
    "bars": figures.bars(["a", "b"], {"s": [1, -2]}, **NAMES),
    "lines": figures.lines(
        [0, 1, 10],
        {"s": [1, 2, float("nan")]},
        bands={"s": ([0, 1, 2], [2, 3, 4])},
        x_log=True,
        **NAMES,
    ),
    "points": figures.scatter([1, 2], [1, 2], color=[0.0, 1.0], color_title="c", **NAMES),
    "matrix": figures.heatmap(np.eye(40), z_title="z", **NAMES),
    "panels": figures.image_grid(
        {"a": np.eye(3), "b": -np.eye(3)}, z_title="z", **NAMES, diverging=True
    ),
    "nothing": Figure({"data": [], "layout": {}}, "C"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_thumbnails(name: str) -> None:
    marks = thumbnail(FIGURES[name])
    assert {tag for tag, _ in marks} <= {"rect", "circle", "path", "polygon"}
    text = " ".join(value for _, attributes in marks for value in attributes.values())
    assert "nan" not in text
    places = [
        float(attributes[side])
        for _, attributes in marks
        for side in ("x", "y", "cx", "cy")
        if side in attributes
    ]
    assert all(-1 <= place <= 321 for place in places)
    assert len(text) < 100_000
    assert bool(marks) == (name != "nothing")


def test_grouped_bars_of_a_thumbnail_stand_beside_each_other() -> None:
    made = figures.bars(list("abc"), {"s": [1, 2, 3], "t": [3, 2, 1]}, **NAMES)
    spans = sorted(
        (float(sides["x"]), float(sides["x"]) + float(sides["width"]))
        for _, sides in thumbnail(made)
    )
    assert len(spans) == 6
    assert all(end <= begin + 0.1 for (_, end), (begin, _) in itertools.pairwise(spans))


def test_a_cell_that_is_not_finite_is_told_from_an_empty_one() -> None:
    cells = [math.inf, -math.inf, np.float32(math.inf), math.nan, None, 0.123456789]
    html = render(Page("P", [Section("S", tables={"t": Table({"a": cells}, "c")})]))
    shown = re.findall(r'<td(?: class="n")?>([^<]*)</td>', html)
    assert shown == ["∞", "−∞", "∞", "–", "–", "0.1235"]


def test_text_of_values() -> None:
    assert show(0.5) == "0.5"
    assert show(3.0) == "3"
    assert show(1.234567e-7) == "1.235e-7"
    assert show(float("inf")) == "∞"
    assert show(None) == "–"
    assert show({str(k): k / 100 for k in range(20)}, limit=2) == "19: 0.19, 18: 0.18, … 18 more"
    assert flat({"a": {"b": [1, 2]}, "c": None}) == [("a.b", "1, 2"), ("c", "–")]
    assert slug("A: b/c") == "a-b-c"


def test_places_that_cannot_be_written_are_found_before(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "deep" / "report.html")
    assert not list(tmp_path.iterdir()), "nothing is left behind"
    with pytest.raises(RunError, match="cannot be written: it is a directory, expected a file"):
        check_writable(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written: a part of the path is a file"):
        check_writable(tmp_path / "file" / "report.html")


@pytest.mark.parametrize("status", ["yes", "no", "unclear", ""])
def test_a_plain_figure_is_drawn_whatever_was_found(status: str) -> None:
    drawn = figures.bars(
        [1, 2], {"a": [1, 2]}, title="T", x_title="x", y_title="y", caption="The two."
    )
    html = render(Page("p", [Section("s", status=status, figures={"a": drawn})]))
    assert html.count('data-plot="plot-1"') == 1 and "The two." in html


def test_a_page_as_json_fits_the_published_schema() -> None:
    place = Path(mechint.__file__).with_name("schemas") / "page.json"
    schema = json.loads(place.read_text())
    page = page_of({"fourier": result()}, "Addition")
    text = render(page)
    (held,) = re.findall(r'href="data:text/plain;base64,([^"]*)" download="page.json"', text)
    data = json.loads(base64.b64decode(held))
    jsonschema.validate(data, schema)
    assert Page.from_dict(data).to_dict() == data
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**data, "sections": [{"title": 1}]}, schema)


def test_paragraphs_are_lists_and_code_and_never_markup() -> None:
    page = Page("P", [Section("S", lead="of `x < 1`", paragraphs=["See:\n\n- `a`;\n- <b>"])])
    text = render(page, plotly="p.js")
    assert '<p class="lead">of <code>x &lt; 1</code></p>' in text
    assert "<p>See:</p><ul><li><code>a</code>;</li><li>&lt;b&gt;</li></ul>" in text


def test_a_short_table_stands_open_where_there_is_no_figure() -> None:
    def opened(rows: int, figures: dict[str, Figure]) -> bool:
        table = Table({"a": list(range(rows))}, "one row per number")
        text = render(
            Page("P", [Section("S", tables={"t": table}, figures=figures)]), plotly="p.js"
        )
        return '<details class="table" open>' in text

    drawn = figures.bars(["a"], {"b": [1.0]}, title="T", x_title="x", y_title="y", caption="C")
    assert opened(12, {}) and not opened(13, {}) and not opened(2, {"f": drawn})
