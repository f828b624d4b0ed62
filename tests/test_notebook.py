"""Views in a notebook: short texts, tables, drawings; nothing that the value could inject."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import mechint
import probes
import tasks
from mechint import figures, planted
from mechint.checkpoints import save_checkpoint
from mechint.cli import main
from mechint.explanation import compare
from mechint.probe.results import Finding, Null, PaperClaim, ProbeResult, Table
from mechint.studies.rows import Rows
from mechint.studies.runner import Reproduction
from mechint.training import Run, spec


class Tags(HTMLParser):
    """Opening and closing tags in balance, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.images = 0
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.images += tag == "figure"
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def shown(value: object) -> Tags:
    return Tags(value._repr_html_())  # type: ignore[attr-defined]


def curve() -> mechint.Figure:
    return figures.lines(
        [1, 2], {"a": [0.0, 1.0]}, title="A rise", x_title="x", y_title="y", caption="Up <it> goes."
    )


def result(**changes: object) -> ProbeResult:
    parts: dict = {
        "probe": "norms",
        "question": "?",
        "metrics": {"a<b": 0.123456, "n": 3},
        "findings": (Finding("Found <script>.", "yes"),),
        "null": {"a<b": Null("a<b", 0.12, 0.1, 0.01, 0.01, "shuffled", 99)},
        "figures": {"rise": curve()},
        "arrays": {"big": np.zeros(100_000)},
    }
    return ProbeResult(**{**parts, **changes})


def test_a_result_shows_finding_nulls_and_drawings() -> None:
    page = shown(result())
    assert "✓ norms        Found <script>." in page.text and page.images == 1
    assert {"a<b", "0.123456", "0.1", "0.01", "Up <it> goes."} <= set(page.text)
    assert len(result()._repr_html_()) < 100_000
    assert repr(curve()) == "Figure(A rise: Up <it> goes.)"


def test_a_table_shows_its_first_rows() -> None:
    table = Table({"k": list(range(100)), "s": [0.5] * 100}, "a row is a <k>", {"s": "nats"})
    page = shown(table)
    assert "s (nats)" in page.text and "19" in page.text and "20" not in page.text
    assert "… and 80 more rows; to_frame() has all" in page.text
    assert repr(table) == "Table(100 rows: k, s)" and len(table) == 100
    assert len(Table({})) == 0 and shown(Table({})).images == 0


def test_a_subject_shows_model_task_and_data() -> None:
    subject = planted.modular_addition(7, (1, 2)).subject
    page = shown(subject)
    assert {"HookedTransformer", "49×3", "n_heads", "d_vocab_out"} <= set(page.text)
    assert any("modular-arithmetic" in text for text in page.text)
    assert shown(mechint.Subject(subject.model, None)).text.count("none") == 1


def test_a_run_shows_its_training_curve() -> None:
    run = Run(spec(tasks.make("modular-arithmetic", p=7), {}, {"steps": 10}))
    assert shown(run).images == 0
    run.metrics = [
        {"step": step, "train.loss": 1.0 - step / 20, "train.accuracy": step / 10}
        for step in (0, 10)
    ]
    page = shown(run)
    assert page.images == 1 and "train.accuracy" in page.text
    run.error = "a <tag>"
    assert "a <tag>" in shown(run).text


SUBJECT = planted.modular_addition(11, (2, 3)).subject
SHOWN: dict[str, Callable[[], object]] = {
    "account": lambda: mechint.analyze(SUBJECT, "norms"),
    "audit": lambda: mechint.explain(SUBJECT)[0],
    "test of an audit": lambda: mechint.explain(SUBJECT)[0].tests[0],
    "comparison": lambda: compare(SUBJECT, SUBJECT),
    "result": lambda: probes.norms(SUBJECT),
    "finding": lambda: probes.norms(SUBJECT).findings[0],
    "claim of a study": lambda: PaperClaim("s", "a", "It <learns>.", verdict="refuted"),
    "study": lambda: Reproduction([], Rows([]), Path("report.html"), 0, {}),
}


@pytest.mark.parametrize("name", SHOWN)
def test_every_result_prints_as_a_terminal_shows_it(name: str) -> None:
    made = SHOWN[name]()
    text, page = str(made), shown(made)
    assert text == repr(made) and f"{made}" in repr([made])
    assert 0 < len(text) < 4000 and len(text.splitlines()) <= 30, text
    assert "Tensor(" not in text and "tensor(" not in text and "object at" not in text
    told = " ".join(page.text)
    assert max(re.findall(r"\w+", text.splitlines()[0]), key=len).lower() in told.lower()


def test_an_audit_prints_what_the_command_prints(tmp_path: Path) -> None:
    save_checkpoint(
        tmp_path / "m.pt",
        config=SUBJECT.model.config,
        weights=SUBJECT.model.weights(),
        task=SUBJECT.task,
        step=0,
        metrics={},
    )
    done = CliRunner(env={"COLUMNS": "100"}).invoke(main, ["explain", str(tmp_path / "m.pt")])
    subject = mechint.load(tmp_path / "m.pt")
    assert str(mechint.explain(subject)[0]) in done.stdout
    done = CliRunner(env={"COLUMNS": "100"}).invoke(
        main, ["analyze", str(tmp_path / "m.pt"), "--probe", "norms"]
    )
    assert done.stdout.rstrip() == str(mechint.analyze(subject, "norms"))


@pytest.mark.parametrize("name", ["modular-arithmetic", "remainders", "single-index"])
def test_a_task_shows_its_parameters(name: str) -> None:
    task = tasks.make(name)
    page = shown(task)
    assert name in page.text and task.source in page.text
    assert set(task.to_dict()) <= set(page.text)
    assert len(repr(task)) < 1000
