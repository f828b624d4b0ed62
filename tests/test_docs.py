"""The documentation is true: its Python runs, its links lead somewhere, its pages are whole."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mechint.registry import PROBES, TASKS
from tests.browser import chromium, look, needs_browser
from tests.marks import full_where

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN = sorted([*DOCS.glob("*.md"), *DOCS.glob("generated/*.md")])
RUN = [page for page in WRITTEN if "write-a-" not in page.name]  # those are built by test_guides
RUN.append(ROOT / "README.md")
LONG = {
    *("README.md", "many-models.md", "tour.md", "first-report.md", "index.md", "trained-truth.md")
}


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    sys.path.append(str(DOCS / "site"))  # where its neighbors lie, as for mkdocs
    spec = importlib.util.spec_from_file_location("pages", DOCS / "site" / "pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "page", full_where([page for page in RUN if page.name in LONG], RUN), ids=lambda page: page.name
)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    if not blocks:
        return
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": f"docs.{page.stem}"}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)
    assert capsys.readouterr().out.strip()


def links_in(text: str) -> list[str]:
    """The links of `text`, but for addresses elsewhere."""
    return [to for to in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in to]


def test_every_link_of_the_site_leads_to_a_page(pages: ModuleType) -> None:
    made = pages.made()
    known = {page.relative_to(DOCS).as_posix() for page in WRITTEN} | set(made)
    texts = {page.relative_to(DOCS).as_posix(): page.read_text() for page in WRITTEN} | made
    for name, text in texts.items():
        for target in links_in(pages.on_site(text)):
            place = (DOCS / name).parent / target
            found = (
                place.exists() or place.resolve().relative_to(DOCS.resolve()).as_posix() in known
            )
            assert found, f"{name} links to {target}"


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *WRITTEN], ids=lambda page: page.name
)
def test_every_link_of_a_page_of_the_repository_leads_somewhere_in_it(page: Path) -> None:
    for target in links_in(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_probe_and_task_has_a_page_with_what_it_measures(pages: ModuleType) -> None:
    made = pages.made()
    for name in PROBES:
        text = made[f"probes/{name}.md"]
        assert PROBES[name].question in text and PROBES[name].source in text
        for row in PROBES[name].describe():
            assert f"`{row['name']}`" in text
    for name in TASKS:
        text = made[f"tasks/{name}.md"]
        assert TASKS[name].source in text and "## Chance" in text
        assert all(f"`{row['name']}`" in text for row in TASKS[name].describe())
    for name, target in re.findall(
        r"\[`([\w-]+)`\]\(([^)]+)\)", (DOCS / "choosing-a-probe.md").read_text(encoding="utf-8")
    ):
        assert name in PROBES and pages.on_site(f"]({target})") == f"](probes/{name}.md)"


needs_mkdocs = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="make docs installs mkdocs"
)


def rows_of(text: str) -> set[str]:
    """The code in the rows of the tables in `text`."""
    return {
        name
        for line in text.splitlines()
        if line.startswith("|")
        for name in re.findall(r"`([a-z-]+)`", line)
    }


def test_every_name_stands_in_the_tables() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    of_probes = readme.partition("\nProbes: ")[2].partition(". `")[0]
    assert set(of_probes.replace("\n", " ").split(" · ")) == set(PROBES.names())
    choosing = (DOCS / "choosing-a-probe.md").read_text(encoding="utf-8")
    assert rows_of(choosing) >= set(PROBES.names())
    using = " ".join(choosing.split()).partition("only probes that intervene (")[2]
    named = set(re.findall(r"`([a-z-]+)`", using.partition(") say what")[0]))
    assert named == {name for name in PROBES if PROBES[name].intervenes}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning of the builder is an error."""
    place = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return place


@needs_mkdocs
def test_the_site_builds_strictly(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) >= len(PROBES.names()) + 20
    for file in site.rglob("*.html"):
        outside = re.findall(r'(?:src|<link[^>]*href)="(https?://[^"]*)"', file.read_text())
        assert not outside, f"{file.name} would fetch {outside[0]}"


@needs_mkdocs
@needs_browser
def test_nothing_is_wrong_with_its_pages_in_a_browser(site: Path) -> None:
    with chromium() as browser:
        for name in ("index.html", "probes/fourier.html", "generated/calibration.html"):
            for width, scheme in ((1280, "light"), (400, "dark")):
                seen = look(browser, site / name, width, scheme)
                assert seen == [], (name, width, scheme)
