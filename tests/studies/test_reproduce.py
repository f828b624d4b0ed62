"""A study from plan to page: resuming, refusing, failing runs, verdicts, the command; on a study of
a few tiny runs.
"""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from mechint.cli import main
from mechint.errors import RunError, UnknownNameError
from mechint.figures import lines
from mechint.report import find_pages
from mechint.results import Table
from mechint.studies import (
    Analysis,
    Finding,
    Planned,
    Runs,
    Stated,
    Study,
    mean_and_spread,
    plan,
    reproduce,
)
from mechint.studies.core.record import BEGIN, END, record
from mechint.training import Progress
from mechint.training.trainer import Ensemble

reproduction = importlib.import_module("mechint.studies.core.runner")

HOLDS = Stated(
    "a", "a loss is a number", "Fig. 1", "every last loss is finite", "the least one can ask"
)
FAILS = Stated(
    "b", "a loss is negative", "Fig. 2", "every last loss is below 0", "cross-entropy is not"
)
NEEDS_BROKEN = Stated("c", "the broken run ends", "Fig. 3", "it ends", "it does not")
LATER = Stated("d", "at size", "Table 1", "anything", "costs too much", sizes=("full",))


class Toy(Study):
    """Two arms of modular addition, and one run whose weights explode."""

    name = "toy"
    title = "A toy"
    summary = "One. Two. Three."

    def runs(self, size: str) -> list[Planned]:
        model = {"d_model": 8, "n_heads": 2}
        arms = [
            plan(
                "good",
                "modular-arithmetic",
                {"p": 5},
                model,
                {"steps": 4, "evaluate_every": 2},
                seed=seed,
                arm="good",
            )
            for seed in range(2)
        ]
        return [
            *arms,
            plan(
                "broken",
                "modular-arithmetic",
                {"p": 5},
                model,
                {"steps": 9, "lr": 1e38, "warmup": 0, "clip": None},
                arm="broken",
            ),
        ]

    def analyse(self, runs: Runs, size: str) -> Analysis:
        book = Analysis(self.name, size)

        def losses() -> list[float]:
            return [run.final["train.loss"] for run in runs.select(arm="good")]

        book.judge(
            HOLDS,
            lambda: Finding(
                all(map(math.isfinite, losses())), mean_and_spread(losses()), {"losses": losses()}
            ),
        )
        book.judge(FAILS, lambda: Finding(max(losses()) < 0, mean_and_spread(losses())))
        book.judge(NEEDS_BROKEN, lambda: Finding(bool(runs["broken-0"].final), "it ended"))
        book.judge(LATER, lambda: Finding(True, "never called"))
        titles = {
            "title": "Loss",
            "x_title": "seed",
            "y_title": "loss (nats)",
            "caption": "Two losses.",
        }
        book.draw("Loss", lambda: lines([0, 1], {"loss": losses()}, **titles))
        book.draw(
            "Broken", lambda: lines([0], {"loss": [runs["broken-0"].final["train.loss"]]}, **titles)
        )
        book.vary(
            "Seeds", lambda: Table({"seed": runs.values_of("seed", arm="good")}, "Both seeds.")
        )
        return book


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    find = reproduction.find_study
    monkeypatch.setattr(
        reproduction, "find_study", lambda name: Toy() if name == "toy" else find(name)
    )


def test_verdicts_figures_and_files(tmp_path: Path) -> None:
    done = reproduce("toy", "laptop", tmp_path / "toy")
    assert [claim.verdict for claim in done.claims] == [
        "reproduced",
        "not reproduced",
        "not tested",
        "not tested",
    ]
    broken, later = done.claims[2:]
    assert "run broken-0 has failed" in broken.note
    assert "is not finite" in broken.note
    assert later.note == "size full tests it"
    assert list(done.frame["run"]) == ["good-0", "good-1", "broken-0"]
    assert list(done.frame["status"]) == ["finished", "finished", "failed"]
    written = json.loads((tmp_path / "toy" / "claims.json").read_text(encoding="utf-8"))
    assert [claim["letter"] for claim in written] == ["a", "b", "c", "d"]
    assert written[0]["values"]["losses"] == [run for run in done.frame["train.loss"][:2]]
    (page,) = find_pages([tmp_path / "toy"])
    assert page.abstract == Toy.summary
    assert [section.title for section in page.sections] == [
        "Claims",
        "Figures",
        "Sensitivity",
        "Not made",
    ]
    assert list(page.sections[1].figures) == ["Loss"]
    assert any("Broken" in text for text in page.sections[3].paragraphs)
    assert page.sections[0].lead == "1 reproduced (a); 1 not reproduced (b); 2 not tested (c, d)."
    html = done.report.read_text(encoding="utf-8")
    assert html.index("not reproduced") < html.index("Two losses.")


def test_smoke_measures_and_judges_nothing(tmp_path: Path) -> None:
    done = reproduce("toy", "smoke", tmp_path / "toy")
    assert {claim.verdict for claim in done.claims} == {"not tested"}
    assert done.claims[0].note == "size smoke judges no claim; size laptop does"
    assert done.claims[0].ours.endswith("(2 runs)")


def test_finished_runs_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = reproduce("toy", "laptop", tmp_path / "toy")
    trained: list[str] = []
    train = Ensemble.train
    monkeypatch.setattr(
        Ensemble,
        "train",
        lambda self: (trained.extend(run.path.name for run in self.runs), train(self))[1],
    )
    again = reproduce("toy", "laptop", tmp_path / "toy")
    assert trained == ["broken-0"]
    assert [claim.to_dict() for claim in again.claims] == [
        claim.to_dict() for claim in first.claims
    ]


def test_stopped_study_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = reproduce("toy", "laptop", tmp_path / "whole")
    monkeypatch.setattr(
        reproduction, "train_many", lambda specs, **_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        reproduce("toy", "laptop", tmp_path / "toy")
    monkeypatch.undo()
    monkeypatch.setattr(reproduction, "find_study", lambda name: Toy())
    assert reproduce("toy", "laptop", tmp_path / "toy").claims == whole.claims


def test_other_studies_and_sizes_are_refused(tmp_path: Path) -> None:
    reproduce("toy", "smoke", tmp_path / "toy")
    with pytest.raises(
        RunError,
        match="holds the study toy at size smoke, not toy at size laptop; choose another --out",
    ):
        reproduce("toy", "laptop", tmp_path / "toy")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="is not empty and holds no study"):
        reproduce("toy", "smoke", tmp_path / "mine")
    with pytest.raises(UnknownNameError, match="unknown study 'capacty'; did you mean 'capacity'"):
        reproduce("capacty", "smoke", tmp_path / "x")
    with pytest.raises(UnknownNameError, match="unknown size 'labtop'; did you mean 'laptop'"):
        reproduce("toy", "labtop", tmp_path / "x")


def test_progress_counts_runs_and_estimates_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(reproduction.time, "monotonic", lambda: now[0])
    shown: list[str] = []
    watch = reproduction._Watch([0, 10, 10, 20], shown.append)
    watch(Progress(0, 10, {}, 2))
    now[0] = 10.0
    watch(Progress(5, 10, {}, 2))  # 10 of 40 steps in 10 s: 30 s left
    now[0] = 20.0
    watch(Progress(10, 10, {}, 2))
    watch(Progress(0, 20, {}, 1, part=1))
    assert shown[1:] == [
        "run 2-3 of 4, step 5 of 10, about 30 s left",
        "run 2-3 of 4, step 10 of 10, about 20 s left",
        "run 4 of 4, step 0 of 20, about 20 s left",
    ]


@pytest.mark.parametrize(("size", "status"), [("smoke", 0), ("laptop", 1)])
def test_command_exits_1_when_a_claim_fails(
    size: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mechint.cli.reproduce.STUDIES", {"toy": Toy})
    result = CliRunner().invoke(
        main, ["reproduce", "toy", "--size", size, "--out", str(tmp_path / "toy")]
    )
    assert result.exit_code == status, result.output
    assert "a loss is negative" in result.stdout


def test_full_size_says_how_long_it_takes_and_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mechint.cli.reproduce.STUDIES", {"toy": Toy})
    monkeypatch.setattr("mechint.studies.duration", lambda study, size: 7200.0)
    monkeypatch.setattr("mechint.studies.find_study", lambda name: Toy())
    refused = CliRunner().invoke(
        main, ["reproduce", "toy", "--size", "full", "--out", str(tmp_path / "toy")], input="n\n"
    )
    assert refused.exit_code == 130
    assert "takes about 2.0 h on this CPU" in refused.output
    assert not (tmp_path / "toy").exists()
    agreed = CliRunner().invoke(
        main, ["reproduce", "toy", "--size", "full", "--yes", "--out", str(tmp_path / "toy")]
    )
    assert agreed.exit_code == 1


def test_duration_counts_every_run() -> None:
    class Fewer(Toy):
        def runs(self, size: str) -> list[Planned]:
            return super().runs(size)[:2]

    assert 0 < reproduction.duration(Fewer(), "laptop") < 60


def test_results_are_kept_as_data_and_as_a_table(tmp_path: Path) -> None:
    reproduce("toy", "laptop", tmp_path / "toy")
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{BEGIN}old\n{END}\nafter\n", encoding="utf-8")
    kept = record([tmp_path / "toy"], tmp_path / "results", readme)
    text = kept.read_text(encoding="utf-8")
    assert "## toy (laptop)" in text
    assert "| b | a loss is negative |" in text
    assert "| not reproduced |" in text
    assert (tmp_path / "results" / "toy" / "claims.json").read_bytes() == (
        tmp_path / "toy" / "claims.json"
    ).read_bytes()
    assert [page.title for page in find_pages([tmp_path / "results"])] == ["A toy"]
    shown = readme.read_text(encoding="utf-8")
    assert "| `toy` | b | a loss is negative | not reproduced |" in shown
    assert shown.startswith("before\n") and shown.endswith("\nafter\n") and "old" not in shown
    with pytest.raises(RunError, match="holds no finished study"):
        record([tmp_path], tmp_path / "results")
    readme.write_text("no marks", encoding="utf-8")
    with pytest.raises(RunError, match="no place for the claims"):
        record([], tmp_path / "results", readme)
