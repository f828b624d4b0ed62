"""Reports: the answer first, all of it without a script, and no text that becomes markup."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mechint
from mechint import figures, planted
from mechint.account import Account, Quality
from mechint.errors import RunError
from mechint.explanation import audit, explain, site
from mechint.probe.results import Effect, Finding, Null, PaperClaim, ProbeResult, Table
from mechint.report import (
    Page,
    Section,
    build_gallery,
    check_writable,
    comparison_page,
    page_of,
    render,
    write_report,
)
from mechint.report._render import claim_strip, null_strip
from mechint.report.page import explanation_section

WORDS: dict[str, Any] = {"title": "Spectrum", "x_title": "frequency", "y_title": "share (0–1)"}
NULL = Null.sampled("share", 0.9, np.linspace(0.0, 0.2, 199), "shuffled labels")


def spectrum(caption: Any = "Two frequencies hold it.") -> figures.Figure:
    return figures.bars([1, 2, 3], {"share": [0.1, 0.5, 0.4]}, caption=caption, **WORDS)


def result(probe: str = "fourier", verdict: Any = "yes", **more: Any) -> ProbeResult:
    finding = Finding(
        "The logits use two frequencies: 2, 3." if verdict == "yes" else "The logits use none.",
        verdict,
        effect=Effect(5.5, "nats", "loss without them", 0.013, "without others"),
        p_value=0.005,
        null="shuffled labels, 199",
        tested=("share",),
    )
    given: dict[str, Any] = {
        "metrics": {"share": 0.9, "mechanism": "clock"},
        "null": {"share": NULL},
        "figures": {"spectrum": spectrum({"yes": "They hold it.", "no": "None holds it."})},
        "tables": {"rows": Table({"k": [1, 2]}, "a row is a frequency", {"k": "cycles"})},
        "lead": "It adds as a clock." if verdict == "yes" else "",
        "hero": "spectrum",
        "provenance": {"checkpoint": {"path": "m.pt", "format": "mechint"}, "probe": {"seed": 0}},
    }
    return ProbeResult(probe, "Which frequencies?", findings=(finding,), **{**given, **more})


def account(*results: ProbeResult, verdict: str = "It adds as a clock.") -> Account:
    quality = Quality("sum", 0.999, 0.009, 0.0033, 4.73, 12769, 0.999, whole=True)
    held = {one.probe: one for one in results or (result(),)}
    return Account("Addition mod 113, one layer", "m.pt", verdict, (quality,), results=held)


class Text(HTMLParser):
    """The visible words of a page, in order, without what is folded; and its structure."""

    VOID = ("meta", "link", "input", "br", "img", "path", "use", "rect", "image")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[tuple[str, str]] = []
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(sorted(name for name, _ in attrs))))
        self.addresses += [v or "" for name, v in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        kinds = {tag for tag, _ in self.open}
        if not kinds & {"script", "style", "title", "svg"}:
            classes = " ".join(attrs.get("class") or "" for _, attrs in self.open)
            self.words += [(word, f"{classes} {' '.join(kinds)}") for word in data.split()]


def test_the_verdict_comes_within_twenty_words() -> None:
    page = Text(render(page_of(account(), command="mechint analyze m.pt")))
    before = [word for word, where in page.words if "bar" not in where and "nav" not in where]
    place = next(i for i, (_, where) in enumerate(page.words) if " verdict " in f" {where} ")
    shown = [w for w, where in page.words[:place] if "bar" not in where and "nav" not in where]
    assert len(shown) <= 20, shown
    assert " ".join(before).index("It adds as a clock.") < 200


def test_text_and_drawings_come_before_the_scripts() -> None:
    html = render(page_of(account())).partition("<body")[2]
    assert html.index("It adds as a clock.") < html.index("<svg viewBox")
    assert html.index("</main>") < html.index("plotly.js v"), "plotly.js is the last thing"
    light = render(page_of(account()), light=True)
    assert "plotly.js v" not in light and "<svg viewBox" in light and len(light) < 120_000


def test_what_was_found_comes_before_what_was_not() -> None:
    lens = result("lens", "no")
    html = render(page_of(account(lens, result())), light=True)
    assert html.index('<section id="fourier">') < html.index("Looked for, and not there")
    assert html.index("Looked for, and not there") < html.index('id="lens"><summary>')
    assert "None holds it." in html and "They hold it." in html, "captions follow the verdict"


def test_a_finding_stands_beside_its_baseline_and_its_null() -> None:
    html = render(page_of(account()), light=True)
    assert "loss without them 5.5 nats (without others 0.013)" in html and "p ≤ 0.005" in html
    strip = str(null_strip(NULL))
    places = [float(x) for x in re.findall(r'<rect x="([\d.]+)"', strip)]
    assert places[-1] > 100 > 40 > max(places[:-1]), "the line is far right of the null"
    normal = str(null_strip(Null("a", 0.0, 5.0, 1.0, 1.0, "closed form")))
    first, *_, last = [float(x) for x in re.findall(r'<rect x="([\d.]+)"', normal)]
    assert last < first, "the line is left of the null"
    assert not null_strip(Null("a", float("nan"), 5.0, 1.0, 1.0, "closed form"))


HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
)


def hostile_page(text: str) -> Page:
    """A page with `text` wherever a text can stand."""
    claim = PaperClaim(
        "s", text, text, text, text, "supported", criterion=text, control=text, note=text, n=3
    )
    drawn = dataclasses.replace(spectrum(text), title=text)
    null = dataclasses.replace(NULL, how=text)
    finding = Finding(text, "yes", Effect(1.0, text, text, 0.0, text), caveat=text, reason=text)
    section = Section(
        text,
        question=text,
        verdict="yes",
        findings=[finding],
        paragraphs=[text],
        code=text,
        output=text,
        nulls=[null],
        metrics={text: text},
        figures={text: drawn},
        tables={text: Table({text: [text]}, text, {text: text})},
        command=text,
        provenance={text: text},
    )
    return Page(
        text,
        [section, Section("claims", claims=[claim])],
        kicker=text,
        quality=[text],
        verdict=text,
        caveat=text,
        hero=drawn,
        evidence=[(text, finding)],
        abstract=text,
        warnings=[text],
        not_asked={text: [text]},
        facts={text: text},
        next_steps=[text],
        command=text,
        downloads={text: text},
        provenance={text: text},
    )


def test_no_text_becomes_markup() -> None:
    plain = Text(render(hostile_page("plain words"), light=True))
    for text in HOSTILE:
        html = render(hostile_page(text), light=True)
        own = Text(html)
        strip = [
            tag for tag in own.tags if tag[0] not in ("text", "g", "path", "use", "defs", "tspan")
        ]
        expected = [
            t for t in plain.tags if t[0] not in ("text", "g", "path", "use", "defs", "tspan")
        ]
        assert strip == expected, text
        assert all(one.startswith(("#", "data:")) for one in own.addresses)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy and "default-src" in policy[1] and "unsafe-eval" not in policy[1]


def test_a_report_names_the_command_that_made_it(tmp_path: Path) -> None:
    own = {"fourier": "mechint analyze m.pt --probe fourier"}
    page = page_of(account(), command="mechint analyze m.pt --out mine.html", commands=own)
    html = render(page, light=True)
    assert '<code class="command">mechint analyze m.pt --out mine.html</code>' in html
    assert "mechint analyze m.pt --probe fourier" in html, "and each section its own"
    write_report(account(), tmp_path / "r.html", light=True)
    assert (tmp_path / "r.html").read_text().count("<h1>") == 1


def test_accounts_stand_side_by_side() -> None:
    pizza = result(metrics={"mechanism": "pizza"}, lead="It adds as a pizza.")
    both = [account(), account(pizza, verdict="It adds as a pizza.")]
    page = comparison_page(both, "mechint analyze a b")
    assert page.verdict == "A: It adds as a clock.\nB: It adds as a pizza."
    table = page.sections[0].tables["both"]
    rows = dict(
        zip(
            table.columns["measure"],
            zip(*list(table.columns.values())[1:], strict=True),
            strict=True,
        )
    )
    assert ("clock", "pizza") in rows.values()
    assert len(page.sections[0].figures) == 2


# --- files ----------------------------------------------------------------------------------------
def test_a_file_of_another_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "notes.html"
    path.write_text("mine")
    with pytest.raises(RunError, match="--force"):
        check_writable(path)
    check_writable(path, force=True)
    assert path.read_text() == "mine"
    write_report(account(), tmp_path / "r.html", light=True)
    check_writable(tmp_path / "r.html")
    with pytest.raises(RunError, match="directory"):
        check_writable(tmp_path)


def test_a_gallery_shows_the_answer_of_every_page(tmp_path: Path) -> None:
    study = Page(
        "Carry",
        [Section("Claims", claims=[PaperClaim("s", "a", "It grows.", verdict="supported")])],
        kicker="study",
        quality=["Of 1 claim: 1 supported."],
        abstract="It is asked.",
    )
    index = build_gallery([page_of(account()), study], tmp_path / "out")
    html = index.read_text(encoding="utf-8")
    assert "It adds as a clock." in html and "1 supported" in html and "It is asked." in html
    assert html.index('id="report"') < html.index('id="study"')
    files = {path.name for path in (tmp_path / "out").iterdir()}
    first = "addition-mod-113-one-layer"
    assert files == {"index.html", "plotly.js", f"{first}.html", f"{first}.svg", "carry.html"}
    assert 'src="plotly.js"' in (tmp_path / "out" / f"{first}.html").read_text(encoding="utf-8")
    addresses = [one for one in Text(html).addresses if not one.startswith(("#", "data:"))]
    assert set(addresses) <= files
    (tmp_path / "out" / "carry.html").write_text("mine")
    with pytest.raises(RunError, match="--force"):
        build_gallery([study], tmp_path / "out")
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match="not empty and holds no gallery"):
        build_gallery([study], tmp_path)
    with pytest.raises(RunError, match="is a file"):
        build_gallery([study], tmp_path / "thesis.txt")


def test_one_intervention_of_a_program_can_be_followed_by_hand() -> None:
    """x, or the largest token, comes from another input; the last row replaces what has no part."""
    addition = explain(planted.modular_addition(13, (2, 5), rotation_seed=1).subject)[0]
    largest = explain(mechint.load(mechint.example("maximum.pt")))[0]
    for found, want in (
        (addition, lambda own, other: [sum(own) % 13, (other[0] + own[1]) % 13, sum(own) % 13]),
        (largest, lambda own, other: [max(own), max(other), max(own)]),
    ):
        rows = found.followed
        texts = [
            rows["replaced"][0],
            *(one.rpartition(" from ")[2] for one in rows["replaced"][1:]),
        ]
        own, other, same = ([int(one) for one in re.findall(r"\d+", text)] for text in texts)
        assert want(own, other)[0] != want(own, other)[1] and same == other
        assert rows["model"] == rows["program"] == [str(one) for one in want(own, other)]


def test_a_program_is_drawn_by_its_tests_and_what_is_wrong_is_said() -> None:
    """A true part beside a false one."""
    subject = planted.modular_addition(13, (2, 5), rotation_seed=1).subject
    true, false = site("L0 resid_post @ answer"), site("L0 resid_pre @ 0")
    found = audit(subject, true.holds("answer"), false.holds("y")).to_dict()
    section = explanation_section([found])
    html = render(Page("T", [section]), light=True)
    assert any(one.startswith("y at L0 resid_pre @ 0: wrong") for one in section.paragraphs)
    assert not any(one.startswith("answer at") for one in section.paragraphs)
    assert '<tr class="wrong">' in html and '<tr class="stands">' in html


def test_a_claim_is_drawn_where_it_lies_of_its_bar() -> None:
    """Inside: the dot stands right of the bar's line, on the shaded part; outside: left of it."""

    def places(value: float) -> tuple[float, float]:
        criterion = "a share above 0.4; control: some"
        interval = value - 0.1, value + 0.1
        drawn = claim_strip(
            PaperClaim("s", "a", "", criterion=criterion, value=value, interval=interval)
        )
        dot, line = (re.search(f'{name}="([0-9.]+)"', drawn) for name in ("cx", "x1"))
        assert dot and line
        return float(dot[1]), float(line[1])

    assert places(0.7)[0] > places(0.7)[1] and places(0.1)[0] < places(0.1)[1]
    assert claim_strip(PaperClaim("s", "a", "")) == ""
