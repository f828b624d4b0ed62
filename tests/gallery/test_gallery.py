"""The gallery: pages of examples and probes, notebooks, cards and filters, and what is kept."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from mechint.checkpoints.content import read_plain
from mechint.gallery import cells_of, measure, notebook, probe_pages
from mechint.gallery.measure import example_page
from mechint.registry import PROBES, STUDIES, TASKS
from mechint.report import Page, Section, build_gallery, find_pages
from mechint.report.cards import card, kind_of
from mechint.results import Claim
from mechint.training.trainer import Ensemble
from tests.browser import LOOKS, chromium, look, needs_browser, opened

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
QUICK = "planted_and_calibrated"
MOST_BYTES = 30 << 20


def claim(id: str, verdict: str) -> Claim:
    return Claim("s", id, f"Statement {id}.", "by 2", "by 1", verdict)


@pytest.fixture(scope="module")
def kept() -> list[Page]:
    pages = find_pages([ROOT / "results"])
    return [*pages, *probe_pages(pages)]


@pytest.fixture(scope="module")
def gallery(kept: list[Page], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_gallery(kept, tmp_path_factory.mktemp("gallery")).parent


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_holds_the_script_and_is_one(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    made = notebook(text)
    nbformat.validate(nbformat.from_dict(made))
    code = "\n".join(cell["source"] for cell in made["cells"] if cell["cell_type"] == "code")
    written = text.partition('"""\n\n')[2]
    lines = [line for line in written.splitlines() if line and not line.startswith("# %% ")]
    assert [line for line in code.splitlines() if line] == lines


def execute(name: str, folder: Path) -> dict[str, Any]:
    """The notebook of an example, executed by nbconvert in a process of its own."""
    text = json.dumps(notebook((ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")))
    (folder / f"{name}.ipynb").write_text(text, encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    options = ["--to", "notebook", "--execute", "--output", f"{name}-done.ipynb"]
    done = subprocess.run(
        [sys.executable, "-m", "jupyter", "nbconvert", *options, f"{name}.ipynb"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "SIZE": "smoke", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / f"{name}-done.ipynb").read_text(encoding="utf-8"))


def printed(made: dict[str, Any]) -> str:
    outputs = [out for cell in made["cells"] for out in cell.get("outputs", [])]
    assert not [out for out in outputs if out["output_type"] == "error"]
    return "".join("".join(out.get("text", "")) for out in outputs)


def test_a_notebook_prints_what_the_script_prints(tmp_path: Path) -> None:
    assert "planted" in printed(execute(QUICK, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_notebook_executes(script: Path, tmp_path: Path) -> None:
    assert printed(execute(script.stem, tmp_path)).strip()


def test_a_page_of_an_example_has_each_step_with_what_it_printed(tmp_path: Path) -> None:
    script = tmp_path / "sums.py"
    script.write_text(
        '"""What two numbers make.\n\nMore."""\n\n# %% Add\nx = 1 + 2\nprint("three is", x)\n'
        "\n# %% Look\nimport os\nfrom pathlib import Path\n"
        "print(os.environ['SIZE'], Path('a').exists(), Path('a').resolve())\n"
    )
    page = example_page(script)
    assert page.abstract == "What two numbers make. More."
    assert [(s.title, s.output) for s in page.sections] == [
        ("Add", "three is 3"),
        ("Look", "smoke False a"),
    ]
    assert page.downloads["sums.py"] == script.read_text()
    assert cells_of(script.read_text())[1][0].code == page.sections[0].code
    assert kind_of(page) == "example"


TRAINS = '''"""A model that is stopped."""

# %% Train
import mechint
import mechint.training
import tasks
task = tasks.make("modular-arithmetic", p=5)
MODEL, TRAIN = {"d_model": 8, "n_heads": 1}, {"steps": 2}
(run,) = CALL

# %% Say
print("It is", run.status)
'''


def stop_at_first(monkeypatch: pytest.MonkeyPatch, stop: Callable[[], Any]) -> None:
    """Let training be stopped when it has evaluated for the first time."""
    evaluate = Ensemble._evaluate

    def stopped(ensemble: Ensemble) -> None:
        evaluate(ensemble)
        stop()

    monkeypatch.setattr(Ensemble, "_evaluate", stopped)


def press(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    "call",
    [
        "mechint.train(task, MODEL, TRAIN)",
        "mechint.training.train_many([mechint.training.spec(task, MODEL, TRAIN)])",
    ],
)
def test_an_example_that_is_stopped_in_its_training_has_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    script = tmp_path / "stopped.py"
    script.write_text(TRAINS.replace("CALL", call))
    assert example_page(script).sections[1].output == "It is finished"
    stop_at_first(monkeypatch, press)
    with pytest.raises(KeyboardInterrupt):
        example_page(script)


class Killed(BaseException):
    """Stands for a kill: nothing is written after it."""


def kill() -> None:
    raise Killed


@pytest.mark.parametrize(("stop", "raised"), [(press, KeyboardInterrupt), (kill, Killed)])
def test_a_task_whose_training_was_stopped_has_a_page_once_it_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: Any, raised: type[BaseException]
) -> None:
    name, settings = "modular-arithmetic", {"d_model": 8, "n_heads": 1, "d_mlp": 8}
    small = {"task.p": 5, **{f"model.{key}": value for key, value in settings.items()}}
    monkeypatch.setattr(TASKS[name], "presets", {"fast": {**small, "train.steps": 20}})
    monkeypatch.setattr(measure, "MORE", {})
    monkeypatch.setattr(measure, "quick_probes", lambda: ["norms"])
    runs, results = tmp_path / "runs", tmp_path / "results"
    line = ["tasks", name, "--runs", str(runs), "--results", str(results)]
    with monkeypatch.context() as patch:
        stop_at_first(patch, stop)
        with pytest.raises(raised):
            measure.main(line)
    assert not results.exists()
    measure.main(line)
    assert len(list(results.rglob("page.json"))) == 1
    assert read_plain(runs / name / "ckpt.pt")["step"] == 20
    monkeypatch.setattr(Ensemble, "train", lambda _: pytest.fail("trained again"))
    measure.main(line)


def test_a_probe_page_counts_what_came_out_over_the_tasks() -> None:
    statuses = {"groups": "no", "modular-arithmetic": "found", "listops": "unclear"}
    tasks = [
        Page(
            f"Task: {name}", [Section("fourier", "Said.", status=status)], "mechint task", task=name
        )
        for name, status in statuses.items()
    ]
    (page,) = probe_pages(tasks)
    assert page.abstract == PROBES["fourier"].question
    first = page.sections[0]
    assert first.lead == "Of 3 models, one per task: 1 found, 1 not found, 1 abstains."
    assert next(iter(first.links)) == "modular-arithmetic: found"
    assert page.sections[1].title == "fourier on modular-arithmetic"
    clearer = Section(
        "fourier", "Said.", status="yes", findings=[("yes", "Two."), ("yes", "Of two.")]
    )
    tasks.append(Page("Task: remainders", [clearer], "mechint task", task="remainders"))
    assert probe_pages(tasks)[0].sections[1].title == "fourier on remainders"


def test_a_card_says_what_was_found_and_not_what_the_paper_claims() -> None:
    claims = [claim("a", "supported"), claim("b", "refuted"), claim("c", "supported")]
    lead = "Stands: a, c. Falls: b. Open: none."
    page = Page(
        "S", [Section("Claims", lead, claims=claims)], "mechint study", abstract="It grows."
    )
    made = card("s.html", page)
    assert made.counts == {"supported": 2, "refuted": 1}
    assert made.text == "Supported: Statement a; Statement c." and "grows" not in made.text
    fallen = Page("S", [Section("Claims", lead, claims=claims[1:2])], "mechint study")
    assert card("s.html", fallen).text == lead


def test_what_the_repository_keeps_is_whole(kept: list[Page], gallery: Path) -> None:
    titles = {page.title for page in kept}
    assert {f"Example: {script.stem.replace('_', ' ')}" for script in SCRIPTS} <= titles
    shown = {page.task for page in kept if kind_of(page) == "task"}
    assert shown <= set(TASKS.names()) and shown
    studies = {page.facts["study"] for page in kept if kind_of(page) == "study"}
    assert studies == set(STUDIES.names())
    assert {name for page in kept if kind_of(page) == "probe" for name in page.probes} == {
        section.title for page in kept if kind_of(page) == "task" for section in page.sections[1:]
    }
    assert sum(file.stat().st_size for file in gallery.iterdir()) < MOST_BYTES
    for file in gallery.glob("*.html"):
        for target in re.findall(r'href="([^"#]+)"', file.read_text(encoding="utf-8")):
            assert target.startswith("data:") or (gallery / target).is_file(), (file.name, target)


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_nothing_is_wrong_with_the_index(
    width: int, scheme: str, browser: Any, gallery: Path
) -> None:
    assert look(browser, gallery / "index.html", width, scheme).problems == []


@needs_browser
def test_cards_are_filtered_and_pages_lead_on(browser: Any, gallery: Path) -> None:
    with opened(browser, gallery / "index.html") as page:
        every = page.locator(".card").count()
        page.locator("select[data-by=probe]").select_option("fourier")
        shown = page.locator(".card:not([hidden])")
        assert 0 < shown.count() < every
        assert page.locator("#count").text_content() == f"{shown.count()} of {every} pages"
        shown.first.click()
        page.wait_for_url(lambda url: "index.html" not in url)
        here = page.url
        page.locator(".around .next").click()
        page.wait_for_url(lambda url: url != here)  # a click before that is one on the page left
        page.locator(".around a").first.click()
        page.wait_for_url("**/index.html")  # and the whole of it, not the first cards alone
        assert page.locator(".card").count() == every
        assert page.said == []


@needs_browser
def test_the_address_keeps_what_was_chosen_and_nothing_else(browser: Any, gallery: Path) -> None:
    with opened(browser, gallery / "index.html") as page:
        plain = page.url
        probe = page.locator("select[data-by=probe]")
        probe.select_option("fourier")
        chosen = page.url
        shown = page.locator(".card:not([hidden])").count()
        probe.select_option("")
        assert "fourier" in chosen and page.url == plain == chosen.partition("#")[0]
    with opened(browser, gallery / "index.html") as page:
        page.goto(chosen)
        assert page.locator(".card:not([hidden])").count() == shown
        assert page.url == chosen


@needs_browser
@pytest.mark.parametrize("kind", ["study", "example", "task", "probe"])
def test_nothing_is_wrong_with_a_page_of_each_kind(
    kind: str, browser: Any, kept: list[Page], gallery: Path
) -> None:
    page = next(page for page in kept if kind_of(page) == kind)
    file = next(f for f in gallery.glob("*.html") if f"<h1>{page.title}</h1>" in f.read_text())
    assert look(browser, file, 400, "dark").problems == []


@needs_browser
@pytest.mark.slow
def test_nothing_is_wrong_with_any_page(browser: Any, gallery: Path) -> None:
    wrong = {}
    for file in sorted(gallery.glob("*.html")):
        for width, scheme in LOOKS:
            if problems := look(browser, file, width, scheme).problems:
                wrong[file.name, width, scheme] = problems[:5]
    assert wrong == {}
