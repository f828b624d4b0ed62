"""A study of somebody else's: planned, trained, measured once, judged, kept and recorded."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mechint
from mechint.errors import RunError, UnknownNameError
from mechint.registry import STUDIES
from mechint.training import Run, train_many
from studies import ClaimTest, Planned, PlannedRun, Rows, Sample, Study, arm, runner
from studies.claims import above, at_least
from studies.page import Outcome, best
from studies.record import BEGIN, CRITERIA, END, outcomes, pages_under, record
from studies.rows import read_rows
from studies.runner import CLAIMS, KIND, ROWS, left_to_train
from studies.study import Sentence
from tests.differences import differences, report

ROOT = Path(__file__).parents[2]


finished = ClaimTest(
    "a",
    "Every run is trained to its last step.",
    theirs="all",
    statistic="share of runs at the last step",
    bar=above(0.2),
    control="there is a run",
    samples=(Sample("short", lambda row: row["steps"] == 2),),
    check=at_least(1),
    planned=Planned(3, 1.0),
)
long = ClaimTest(
    "b",
    "Long runs are trained to their last step.",
    theirs="all",
    statistic="share of runs at the last step",
    bar=above(0.2),
    control="there is a run",
    samples=(Sample("long", lambda row: row["steps"] == 3),),
    check=at_least(1),
    late=True,
)


STATE: dict[str, Any] = {}
"""Arms that were measured, and the rate of the long runs."""


def plan(size: str) -> list[PlannedRun]:
    """Three short runs and three longer ones."""
    task, model, train = {"p": 5}, {"d_model": 8, "n_heads": 1}, {"steps": 2, "evaluate_every": 1}
    late = {**train, "steps": 3, "lr": STATE["rate"]}
    name, seeds, wider = "modular-arithmetic", range(3), {**model, "d_model": 12}
    return [
        *arm("short", name, seeds, task, model, train),
        *arm("long", name, seeds, task, wider, late, stage=1),
    ]


def measure(run: Run, labels: Mapping[str, Any]) -> dict[str, Any]:
    STATE["measured"].append(labels["arm"])
    return {"loss": run.final[STATE["metric"]]}


OWN = Study(
    name="own",
    title="A study of one's own",
    paper="Nobody",
    summary="It trains.",
    here="p = 5",
    there="p = 113",
    plan=plan,
    measure=measure,
    claims=(finished, long),
    sentences=(
        Sentence("short runs finish", ("a",)),
        Sentence("long runs finish", ("b",), "p = 7"),
        Sentence("runs differ", ("a", "b"), own=True),
        Sentence("huge runs finish", cost="9 core-hours"),
    ),
    costs={"laptop": 0.1, "overnight": 5},
)


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    STUDIES.add("own", f"{__name__}:OWN")
    STATE.update(measured=[], rate=1e-3, metric="test.loss")
    yield
    STUDIES.remove("own")


def verdicts(done: Any) -> dict[str, str]:
    return {one.id: one.verdict for one in done.claims}


def test_a_study_of_somebody_elses_is_run_and_judged(tmp_path: Path) -> None:
    place = tmp_path / "own"
    done = mechint.reproduce("own", "laptop", place)
    assert verdicts(done) == {"a": "supported", "b": "supported"}
    assert len(done.rows) == 6 and done.report.is_file() and not done.waiting
    assert [row["run"] for row in read_rows(place / ROWS)] == [row["run"] for row in done.rows]
    kept = json.loads((place / CLAIMS).read_text())
    assert [one["verdict"] for one in kept] == ["supported", "supported"]
    assert kept[0]["n"] == 3 and kept[0]["ours"].startswith("3 of 3")
    (page,) = pages_under([place])
    assert [one.id for one in page.sections[0].claims] == ["a", "b"]
    assert json.loads((place / KIND).read_text())["processor_seconds"] > 0
    assert len(STATE["measured"]) == 6 and not left_to_train("own", "laptop", place)
    again = mechint.reproduce("own", "laptop", place)
    assert len(STATE["measured"]) == 6, "what is measured is not measured again"
    assert again.rows[0] == done.rows[0]
    with pytest.raises(RunError, match="choose another"):
        mechint.reproduce("own", "overnight", place)


def test_a_budget_leaves_runs_waiting_and_the_same_call_goes_on(tmp_path: Path) -> None:
    done = mechint.reproduce("own", "laptop", tmp_path / "own", budget=0.0)
    assert done.waiting == 6 and set(verdicts(done).values()) == {"not run"}
    assert not mechint.reproduce("own", "laptop", tmp_path / "own").waiting


def test_a_budget_that_passes_in_training_is_no_second_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several workers several report after it, each before training has ended."""
    now = [0.0]

    def thrice(*given: Any, progress: Any, **options: Any) -> list[Run]:
        def said(message: Any) -> None:
            now[0] = 9.0
            for _ in range(3):
                progress(message)

        return train_many(*given, progress=said, **{**options, "workers": 1})

    with monkeypatch.context() as patch:
        patch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: now[0]))
        patch.setattr(runner, "train_many", thrice)
        done = mechint.reproduce("own", "laptop", tmp_path / "own", budget=1.0)
    assert done.waiting == 6 and done.report.is_file()
    assert set(verdicts(done).values()) == {"not run"}
    assert not mechint.reproduce("own", "laptop", tmp_path / "own").waiting


def test_a_wrong_metric_or_parameter_is_named_with_those_there_are(tmp_path: Path) -> None:
    STATE["metric"] = "test.acc"
    done = mechint.reproduce("own", "laptop", tmp_path / "own")
    wrong = ClaimTest("c", "", "", "", above(0.4), "", (Sample("short", lambda row: row["los"]),))
    held = wrong.hold("own", Rows([{"arm": "short", "loss": 1.0}]), "laptop")
    assert (held.verdict, "did you mean 'loss'?" in held.note) == ("inconclusive", True)
    (error,) = set(done.failed.values())
    assert "unknown metric 'test.acc'; did you mean 'test.accuracy'?" in error
    assert len(done.failed) == 6 and set(verdicts(done).values()) == {"not run"}
    with pytest.raises(UnknownNameError, match="unknown modular-arithmetic parameter 'q'"):
        arm("short", "modular-arithmetic", range(3), {"q": 5})


def test_a_failed_run_takes_its_condition_with_it(tmp_path: Path) -> None:
    STATE["rate"] = 1e30
    done = mechint.reproduce("own", "laptop", tmp_path / "own")
    assert done.failed and verdicts(done)["a"] == "supported"
    assert verdicts(done)["b"] in ("not run", "supported")
    spoiled = {name.rpartition("-")[0] for name in done.failed}
    assert not spoiled & {row["arm"] for row in done.rows}


def test_unknown_names_and_full_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError):
        mechint.reproduce("owm", "smoke", tmp_path / "x")
    with pytest.raises(UnknownNameError):
        mechint.reproduce("own", "tiny", tmp_path / "x")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="not empty"):
        mechint.reproduce("own", "smoke", tmp_path)


def test_results_are_made_again_from_rows(tmp_path: Path) -> None:
    place, results = tmp_path / "runs", tmp_path / "results"
    mechint.reproduce("own", "laptop", place)
    (results / "own").mkdir(parents=True)
    replaced = {
        "claim": "a",
        "criterion": "x",
        "verdict": "not reproduced",
        "ours": "",
        "reason": "y",
    }
    kept = {"first_claims": 2, "replaced": [replaced]}
    (results / "own" / CRITERIA).write_text(json.dumps(kept))
    document = tmp_path / "papers.md"
    document.write_text(f"# Papers\n\n{BEGIN}{END}after\n")
    record([place], results, [document])
    claims = json.loads((results / "own" / "laptop" / CLAIMS).read_text())
    assert [one["late"] for one in claims] == [False, True]
    table = (results / "README.md").read_text()
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("|")]
    assert max(len(cell) for line in rows for cell in line) <= 202
    assert "1 stand on new criteria" in table
    said = [(line[0], line[1], line[-1]) for line in rows[-4:]]
    assert said == [
        ("| short runs finish", "p = 5", "supported |"),
        ("| long runs finish", "p = 7", "supported \\* |"),
        ("| runs differ", "p = 5", "supported \\* |"),
        ("| huge runs finish", "p = 5", "not run |"),
    ]
    assert "9 core-hours" in rows[-1] and rows[-3][3].startswith("b: 3 of 3")
    text = document.read_text()
    assert "Stands: short runs finish; long runs finish*; runs differ*." in text and text.endswith(
        "after\n"
    )
    before = {file: file.read_bytes() for file in results.rglob("*.md")}
    record((), results, [document])
    assert before == {file: file.read_bytes() for file in results.rglob("*.md")}
    with pytest.raises(RunError, match="holds no finished study"):
        (place / ROWS).unlink()
        record([place], results)


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("capacity", marks=pytest.mark.slow),
        *(
            "composition",
            "dying-frequencies",
            "emergence",
            "half-learned",
            "joint-training",
            "one-family",
            "remainders",
        ),
        "whether-not-when",
    ],
)
def test_smoke_measures_every_run_and_judges_none(name: str, tmp_path: Path) -> None:
    done = mechint.reproduce(name, "smoke", tmp_path / name)
    assert not done.failed and not done.claims and not done.waiting
    assert len(done.rows) == len(STUDIES[name].plan("smoke"))


def test_what_suggested_a_criterion_is_no_verdict_and_fresh_seeds_give_it() -> None:
    """The same rows, at size laptop and at size fresh, of a claim whose criterion was changed."""
    rows = Rows([{"arm": "short", "steps": 2, "seed": i, "date": "2026-11-26"} for i in range(4)])
    fresh = dataclasses.replace(finished, fresh=True)
    seen = fresh.hold("own", rows, "laptop")
    assert (seen.verdict, seen.ours, seen.value) == ("not run", "", None)
    assert "4 of 4" in seen.note and seen.experiment == ("short",)
    judged = fresh.hold("own", rows, "fresh")
    assert judged.verdict == "supported" and judged.ours.startswith("4 of 4")
    assert finished.hold("own", rows, "fresh").verdict == "not run"
    sizes = {"laptop": Outcome(rows, [seen], {}), "fresh": Outcome(rows, [judged], {})}
    assert [one.verdict for one in best(sizes)] == ["supported"]


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_kept_verdicts_are_those_of_the_kept_rows(name: str) -> None:
    place = ROOT / "results" / name
    for kept in sorted(place.glob("*/claims.json")):
        claims = json.loads(kept.read_text(encoding="utf-8"))
        again = outcomes([ROOT / "results" / name])[name][kept.parent.name].claims
        lines = list(differences(str(kept), claims, [one.to_dict() for one in again], 1e-9, 0.0))
        assert not lines, report(lines)
