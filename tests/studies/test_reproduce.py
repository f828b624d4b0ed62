"""A study from plan to page: resuming, refusing, failing runs, verdicts, the command; on a study of
a few tiny runs.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from mechint.cli import main
from mechint.cli.reproduce import seconds_of
from mechint.errors import ParameterError, RunError, TrainingError, UnknownNameError
from mechint.figures import lines
from mechint.registry import STUDIES
from mechint.report import find_pages
from mechint.results import Table
from mechint.studies import (
    Analysis,
    ClaimSpec,
    Criterion,
    Finding,
    Part,
    PlannedRun,
    Replaced,
    Runs,
    Study,
    claim,
    left_to_train,
    mean_and_spread,
    plan,
    reproduce,
)
from mechint.studies.core import clock
from mechint.studies.core.claims import NOT_RUN, NOT_TESTED
from mechint.studies.core.clock import KIND, Clock, Spent
from mechint.studies.core.pages import replaced_table
from mechint.studies.core.progress import ProgressReporter
from mechint.studies.core.record import BEGIN, END, _before, record, refresh, summary
from mechint.studies.core.study import untested
from mechint.training import Progress
from mechint.training.run import Run
from mechint.training.timing import estimate_seconds
from mechint.training.trainer import Ensemble

runner = importlib.import_module("mechint.studies.core.runner")
progress = importlib.import_module("mechint.studies.core.progress")


def losses(runs: Runs) -> list[float]:
    return [run.final["train.loss"] for run in runs.select(arm="good")]


@claim(
    "a",
    statement="a loss is a number",
    paper="Fig. 1",
    criterion=Criterion("every last loss is below {bar:g}", bar=1e6),
    reason="the least one can ask",
)
def holds(runs: Runs, criterion: Criterion) -> Finding:
    found = losses(runs)
    met = all(math.isfinite(one) and one < criterion["bar"] for one in found)
    part = Part("finite", met, mean_and_spread(found), len(found))
    return Finding([part], mean_and_spread(found), {"losses": found})


@claim(
    "b",
    statement="a loss is negative",
    paper="Fig. 2",
    criterion=Criterion("every last loss is below {bar:g}", bar=0),
    reason="cross-entropy is not",
    replaced=(Replaced("a loss is small", "reproduced", "1.6", "small is not negative"),),
)
def fails(runs: Runs, criterion: Criterion) -> Finding:
    found = losses(runs)
    part = Part("below 0", max(found) < criterion["bar"], mean_and_spread(found), len(found))
    return Finding([part], mean_and_spread(found))


@claim(
    "c",
    statement="the broken run ends",
    paper="Fig. 3",
    criterion=Criterion("it ends"),
    reason="it does not",
)
def needs_broken(runs: Runs, criterion: Criterion) -> Finding:
    return Finding([Part("it ends", bool(runs["broken-0"].final), "", 1)], "it ended")


@claim(
    "d",
    statement="at size",
    paper="Table 1",
    criterion=Criterion("anything"),
    reason="costs too much",
    sizes=("full",),
)
def later(runs: Runs, criterion: Criterion) -> Finding:
    return Finding([Part("anything", True, "", 3)], "anything")


class Toy(Study):
    """Two arms of modular addition, and one run whose weights explode."""

    name = "toy"
    title = "A toy"
    paper = "Sum and Carry 1999"
    summary = "One. Two. Three."
    claims: tuple[ClaimSpec, ...] = (holds, fails, needs_broken, later)

    def runs(self, size: str) -> list[PlannedRun]:
        model, task = {"d_model": 8, "n_heads": 2}, ("modular-arithmetic", {"p": 5})
        train = {"steps": 4, "evaluate_every": 2}
        arms = [plan("good", *task, model, train, seed=seed, arm="good") for seed in range(2)]
        explodes = {"steps": 9, "lr": 1e30, "warmup": 0, "clip": None}
        return [*arms, plan("broken", *task, model, explodes, arm="broken", stage=1)]

    def analyze(self, runs: Runs, size: str) -> Analysis:
        analysis = Analysis(self.name, size, runs.say)
        for spec in self.claims:
            analysis.add_claim(spec, runs)
        titles = {
            "title": "Loss",
            "x_title": "seed",
            "y_title": "loss (nats)",
            "caption": "Two losses.",
        }
        analysis.add_figure("Loss", lambda: lines([0, 1], {"loss": losses(runs)}, **titles))
        analysis.add_figure(
            "Broken", lambda: lines([0], {"loss": [runs["broken-0"].final["train.loss"]]}, **titles)
        )
        analysis.add_sensitivity(
            "Seeds", lambda: Table({"seed": runs.values_of("seed", arm="good")}, "Both seeds.")
        )
        return analysis


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    find = runner.find_study
    monkeypatch.setattr(runner, "find_study", lambda name: Toy() if name == "toy" else find(name))


def test_verdicts_figures_and_files(tmp_path: Path) -> None:
    said: list[str] = []
    done = reproduce("toy", "laptop", tmp_path / "toy", said.append)
    measured = [text for text in said if text.startswith(("measuring", "drawing"))]
    assert measured == [
        "measuring 3 runs",
        "measuring claim a",
        "measuring claim b",
        "measuring claim c",
        "drawing Loss",
        "drawing Broken",
        "drawing Seeds",
    ]
    assert [claim.verdict for claim in done.claims] == [
        "reproduced",
        "not reproduced",
        NOT_TESTED,
        NOT_TESTED,
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
    assert page.abstract == (
        "The paper (Sum and Carry 1999) says: One. Two. Three. What came out here stands below."
    )
    assert [section.title for section in page.sections] == [
        "Claims",
        "Evidence",
        "Figures",
        "Sensitivity",
        "Not made",
    ]
    assert list(page.sections[2].figures) == ["Loss"]
    assert any("Broken" in text for text in page.sections[4].paragraphs)
    lead = "Stands: a. Falls: b. Open: c, d (not tested at this size)."
    assert page.sections[0].lead == lead
    evidence = page.sections[1].tables["Evidence"].columns
    assert evidence["claim"] == ["a", "b"] and evidence["outcome"] == ["met", "missed"]
    assert evidence["n"] == [2, 2]
    assert page.sections[1].tables["Replaced criteria"].columns["verdict"] == ["reproduced"]
    assert page.facts["runs"] == "2 of 3 finished"
    html = done.report.read_text(encoding="utf-8")
    assert html.index("not reproduced") < html.index("Two losses.")


def test_smoke_measures_and_judges_nothing(tmp_path: Path) -> None:
    done = reproduce("toy", "smoke", tmp_path / "toy")
    assert {claim.verdict for claim in done.claims} == {NOT_TESTED}
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
    assert trained == []
    assert [claim.to_dict() for claim in again.claims] == [
        claim.to_dict() for claim in first.claims
    ]


def test_what_a_study_took_adds_up_over_its_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter(range(0, 10**6, 100))

    def now() -> dict[str, float]:
        moment = float(next(moments))
        return {"seconds": moment, "processor_seconds": moment / 2}

    add = Spent.add
    monkeypatch.setattr(Spent, "_now", staticmethod(now))
    monkeypatch.setattr(Spent, "add", lambda self, at_least=0: None if at_least else add(self))
    for calls in (1, 2):  # one moment at the start, one after training, one after measuring
        done = reproduce("toy", "laptop", tmp_path / "toy")
        kind = json.loads((tmp_path / "toy" / KIND).read_text())
        assert (kind["seconds"], kind["processor_seconds"]) == (200 * calls, 100 * calls)
    facts = json.loads((done.report.parent / "page.json").read_text())["facts"]
    assert (facts["time spent"], facts["processor time"]) == ("7 min", "3 min")


def test_what_a_killed_study_took_was_written_down_a_minute_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([0.0, 30.0, 61.0, 90.0])
    monkeypatch.setattr(
        Spent,
        "_now",
        staticmethod(lambda: dict.fromkeys(("seconds", "processor_seconds"), next(moments))),
    )
    (tmp_path / KIND).write_text("{}", encoding="utf-8")
    heard = Clock(None, Spent(tmp_path)).watch(None, threading.Event())
    for expected in ({}, {"seconds": 61.0, "processor_seconds": 61.0}):
        heard(Progress(1, 10, {}))
        assert json.loads((tmp_path / KIND).read_text(encoding="utf-8")) == expected
    heard(Progress(1, 10, {}))  # 29 seconds later: not yet
    assert json.loads((tmp_path / KIND).read_text(encoding="utf-8"))["seconds"] == 61.0


def test_what_two_calls_took_adds_up_where_one_writes_while_the_other_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second `reproduce` in the directory, which is refused, writes down its time, too."""
    (tmp_path / KIND).write_text("{}", encoding="utf-8")
    moments = iter([0.0, 0.0, 60.0, 7.0])  # the first begins, the second; the first ends, the other
    monkeypatch.setattr(
        Spent,
        "_now",
        staticmethod(lambda: dict.fromkeys(("seconds", "processor_seconds"), next(moments))),
    )
    first, second = Spent(tmp_path), Spent(tmp_path)
    other, read = threading.Thread(target=second.add), clock.read_kind

    def interrupted(place: Path) -> dict[str, Any]:
        kind = read(place)
        if other.ident is None:
            other.start()
            other.join(0.3)  # as far as it comes
        return kind

    monkeypatch.setattr(clock, "read_kind", interrupted)
    first.add()
    other.join()
    assert read(tmp_path) == {"seconds": 67.0, "processor_seconds": 67.0}


def test_stopped_study_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = reproduce("toy", "laptop", tmp_path / "whole")

    def stopped(specs: object, **_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "train_many", stopped)
    with pytest.raises(KeyboardInterrupt):
        reproduce("toy", "laptop", tmp_path / "toy")
    monkeypatch.undo()
    monkeypatch.setattr(runner, "find_study", lambda name: Toy())
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
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown: list[str] = []
    watch = ProgressReporter([0, 10, 10, 20], dict(enumerate([5, 3, 3, 1])), shown.append)
    now[0] = 100.0  # of starting: no part of the pace
    watch(Progress(0, 10, {}, 2, cost=3))
    now[0] = 110.0
    watch(Progress(5, 10, {}, 2, cost=3))  # 10 steps of cost 3 of 20, and 20 of cost 1, in 10 s
    now[0] = 120.0
    watch(Progress(10, 10, {}, 2, cost=3))
    watch(Progress(0, 20, {}, 1, part=1, cost=1))
    now[0] = 130.0
    watch(Progress(20, 20, {}, 1, part=1, cost=1))
    assert shown[1:] == [
        "run 2-3 of 4, step 5 of 10, 1 steps/s over all runs, about 17 s left",
        "run 2-3 of 4, step 10 of 10, 1 steps/s over all runs, about 7 s left",
        "run 4 of 4, step 0 of 20, 1 steps/s over all runs, about 7 s left",
        "run 4 of 4, step 20 of 20, 1.33 steps/s over all runs, about 0 s left",
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


def test_as_json_the_command_prints_the_claims_that_it_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mechint.cli.reproduce.STUDIES", {"toy": Toy})
    out = tmp_path / "toy"
    command = ["reproduce", "toy", "--size", "laptop", "--out", str(out), "--json"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1, result.output  # claim b fails, as without --json
    printed = json.loads(result.stdout)
    assert (printed["study"], printed["size"], printed["waiting"]) == ("toy", "laptop", 0)
    assert Path(printed["report"]) == out / "report.html" and (out / "report.html").is_file()
    assert printed["claims"] == json.loads((out / "claims.json").read_text(encoding="utf-8"))
    assert "report written to" in result.stderr


def test_what_is_left_is_announced_and_full_size_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mechint.cli.reproduce.STUDIES", {"toy": Toy})
    monkeypatch.setattr(runner, "find_study", lambda name: Toy())
    monkeypatch.setattr("mechint.training.timing.ROUGH_RATE", 1.0)
    monkeypatch.setattr("mechint.training.timing.estimate_seconds", lambda specs, device: 7200.0)
    command = ["reproduce", "toy", "--size", "full", "--out", str(tmp_path / "toy")]
    refused = CliRunner().invoke(main, command, input="n\n")
    assert refused.exit_code == 130
    assert re.search(
        r"3 models in \d ensembles? of [\d,]+ parameters: about [\d.]+ GiB of memory, "
        r"[\d.]+ MB of disk, about [\d.]+ (h|min)",
        refused.output,
    ), refused.output
    assert "on this CPU?" in refused.output
    assert not (tmp_path / "toy").exists()
    agreed = CliRunner().invoke(main, [*command, "--yes"])
    assert agreed.exit_code == 1
    again = CliRunner().invoke(main, command)  # nothing to train, so nothing to ask
    assert again.exit_code == 1 and "GiB" not in again.output and "?" not in again.stderr


def test_a_study_that_does_not_fit_is_refused_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mechint.cli.reproduce.STUDIES", {"toy": Toy})
    monkeypatch.setattr(runner, "find_study", lambda name: Toy())
    monkeypatch.setattr("mechint.training.estimate.free_memory", lambda device: 1000)
    command = ["reproduce", "toy", "--size", "laptop", "--out", str(tmp_path / "toy")]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 2 and "GiB are free" in refused.stderr
    assert not (tmp_path / "toy").exists()


class Slow(Toy):
    """One short run, then one that would take hours."""

    claims = (holds, needs_broken)

    def runs(self, size: str) -> list[PlannedRun]:
        model, task = {"d_model": 8, "n_heads": 2}, ("modular-arithmetic", {"p": 5})
        short, long = ({"steps": steps, "evaluate_every": 2} for steps in (4, 10**7))
        return [
            plan("good", *task, model, short, arm="good"),
            plan("broken", *task, model, long, arm="broken", stage=1),
        ]


def test_a_budget_leaves_off_with_partial_verdicts_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "find_study", lambda name: Slow())
    done = reproduce("slow", "laptop", tmp_path / "slow", budget=1.0)
    assert [claim.verdict for claim in done.claims] == ["reproduced", NOT_TESTED]
    assert done.waiting == 1
    assert "has not finished" in done.claims[1].note
    reached = json.loads((tmp_path / "slow" / "study.json").read_text(encoding="utf-8"))
    assert reached["seconds"] >= 1.0
    again = reproduce("slow", "laptop", tmp_path / "slow", budget=1.0)
    assert [claim.verdict for claim in again.claims] == ["reproduced", NOT_TESTED]
    later = json.loads((tmp_path / "slow" / "study.json").read_text(encoding="utf-8"))
    assert later["seconds"] >= reached["seconds"] + 1.0


def test_runs_that_stop_first_wait_for_their_ensemble() -> None:
    """Of an ensemble whose budget ended, those that are done are those that learned: judged alone
    they would flatter every share of runs that learned.
    """
    planned = [one for one in STUDIES["composition"]().runs("overnight") if one.stage == 1]
    statuses = {"mixture-last-1000": "stopped", "mixture-last-1001": "interrupted"}
    whole = {f"mixture-last-{seed}": "finished" for seed in range(1005, 1010)}
    trained = [Run(one.spec, status=(statuses | whole).get(one.name, "waiting")) for one in planned]
    ahead = runner.ahead(planned, trained)
    assert ahead == ["mixture-last-1000"]
    on_gpu = runner.ahead(planned, trained, "cuda")  # larger ensembles: more wait
    assert set(on_gpu) == {"mixture-last-1000", *whole}
    names = [one.name for one in planned]
    labels = {one.name: one.labels for one in planned}
    runs = Runs(dict(zip(names, trained, strict=True)), labels, ahead=ahead)
    counted = [run.spec.train.seed for run in runs.finished(arm="mixture-last")]
    assert counted == list(range(1005, 1010))
    assert runs.status("mixture-last-1000") == "waiting"
    with pytest.raises(TrainingError, match="has not finished"):
        runs["mixture-last-1000"]


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200)])
def test_budget_in_words(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["2", "0h", "two hours", "-1h"])
def test_a_budget_needs_a_number_and_a_unit(text: str) -> None:
    with pytest.raises(ParameterError, match="expected a time such as 90s, 30m or 2h"):
        seconds_of(text)


def test_a_duration_is_that_of_a_machine_of_one_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other work that stretches the wall clock does not stretch the estimate."""
    monkeypatch.setattr(runner, "find_study", lambda name: Toy())
    hours = iter(range(0, 10**9, 3600))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(hours)))
    left = left_to_train("toy", "laptop", tmp_path / "toy")
    assert len(left) == len(Toy().runs("laptop"))
    assert 0 < estimate_seconds(left, torch.device("cpu")) < 600


def test_results_are_kept_as_data_and_as_a_table(tmp_path: Path) -> None:
    reproduce("toy", "laptop", tmp_path / "toy")
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{BEGIN}old\n{END}\nafter\n", encoding="utf-8")
    kept = record([tmp_path / "toy"], tmp_path / "results", readme)
    text = kept.read_text(encoding="utf-8")
    assert "## toy (laptop, " in text
    assert "| b | a loss is negative |" in text
    assert "not reproduced (by an earlier criterion: reproduced) |" in text
    assert (tmp_path / "results" / "toy" / "laptop" / "claims.json").read_bytes() == (
        tmp_path / "toy" / "claims.json"
    ).read_bytes()
    assert [page.title for page in find_pages([tmp_path / "results"])] == ["A toy"]
    shown = readme.read_text(encoding="utf-8")
    assert "| `toy` | b | a loss is negative | not reproduced | 2 | laptop |" in shown
    assert "Not tested: `toy` c, d." in shown
    assert shown.startswith("before\n") and shown.endswith("\nafter\n") and "old" not in shown
    with pytest.raises(RunError, match="holds no finished study"):
        record([tmp_path], tmp_path / "results")
    readme.write_text("no marks", encoding="utf-8")
    with pytest.raises(RunError, match="no place for the claims"):
        record([], tmp_path / "results", readme)


def test_a_study_is_kept_once_for_each_size(tmp_path: Path) -> None:
    """In the table sizes of one verdict share a row."""
    for size in ("overnight", "laptop"):
        reproduce("toy", size, tmp_path / size)
    kept = record([tmp_path / "overnight", tmp_path / "laptop"], tmp_path / "results")
    text = kept.read_text(encoding="utf-8")
    assert text.index("## toy (laptop, ") < text.index("## toy (overnight, ")
    rows = [row for row in summary(tmp_path / "results").splitlines() if "| `toy` |" in row]
    cells = [tuple(row.strip(" |").split(" | ")[i] for i in (1, 3, 5)) for row in rows]
    both = "laptop, overnight"
    assert cells == [("a", "reproduced", both), ("b", "not reproduced", both)]
    changed = tmp_path / "results" / "toy" / "overnight" / "claims.json"
    claims = json.loads(changed.read_text(encoding="utf-8"))
    claims[0] |= {"verdict": "underpowered", "n": 7}
    changed.write_text(json.dumps(claims), encoding="utf-8")
    rows = [row for row in summary(tmp_path / "results").splitlines() if "| `toy` | a" in row]
    assert [row.strip(" |").split(" | ")[3:] for row in rows] == [
        ["reproduced", "2", "laptop"],
        ["underpowered", "7", "overnight"],
    ]


def test_a_verdict_is_withdrawn_where_its_criterion_was_replaced(tmp_path: Path) -> None:
    reproduce("toy", "laptop", tmp_path / "toy")
    record([tmp_path / "toy"], tmp_path / "results")
    place = tmp_path / "results" / "toy" / "laptop"
    before = (place / "claims.json").read_bytes()
    refresh(place, Toy.claims, Toy.abstract())  # the same criteria: nothing changes
    assert (place / "claims.json").read_bytes() == before
    harder = dataclasses.replace(
        holds,
        criterion=Criterion("every last loss is below {bar:g}", bar=1e-6),
        replaced=(Replaced(str(holds.criterion), "reproduced", "1.6", "too easy"),),
    )
    refresh(place, (harder, *Toy.claims[1:]), "What it is now.")
    kept = json.loads((place / "claims.json").read_text(encoding="utf-8"))
    assert (kept[0]["verdict"], kept[0]["ours"], kept[0]["n"]) == (NOT_RUN, NOT_RUN, 0)
    assert kept[0]["replaced"][0]["verdict"] == "reproduced"
    assert kept[1]["verdict"] == "not reproduced"
    (page,) = find_pages([place])
    assert page.abstract == "What it is now."
    assert page.sections[0].claims[0].verdict == NOT_RUN
    lead = page.sections[0].lead
    assert lead.startswith("Stands: none. Falls: b. ") and "; a (not run yet)." in lead
    assert f"{NOT_RUN} (by an earlier criterion: reproduced)" in summary(tmp_path / "results")
    tables = page.sections[1].tables
    assert set(tables["Evidence"].columns["claim"]) == {"b"}  # the withdrawn one has none left
    assert tables["Replaced criteria"].columns["claim"] == ["a", "b"]
    figures = next(one for one in page.sections if one.title == "Figures")
    assert figures.figures and "criterion of a was replaced" in figures.lead


def test_the_verdict_by_an_earlier_criterion_is_that_of_the_size(tmp_path: Path) -> None:
    """What fell at one size is not shown with the verdict of another, and cannot be lost."""
    results = tmp_path / "results"
    for size in ("laptop", "overnight"):
        reproduce("toy", size, tmp_path / size)
    record([tmp_path / "laptop", tmp_path / "overnight"], results)
    place = results / "toy" / "overnight"
    rows = json.loads((place / "claims.json").read_text(encoding="utf-8"))
    rows[0]["verdict"] = "not reproduced"
    (place / "claims.json").write_text(json.dumps(rows), encoding="utf-8")

    def replaced(verdict: str | dict[str, str]) -> list[ClaimSpec]:
        entry = Replaced(str(holds.criterion), verdict, "1.6", "too easy")
        never = Replaced("it is small", "not tested", "not measured", "none was judged by it")
        criterion = Criterion("every last loss is below {bar:g}", bar=1e-6)
        new = dataclasses.replace(holds, criterion=criterion, replaced=(entry, never))
        return [new, *Toy.claims[1:]]

    with pytest.raises(RunError, match="claim a is kept as not reproduced"):
        refresh(place, replaced("reproduced"), Toy.abstract())
    verdicts = {"laptop": "reproduced", "overnight": "not reproduced"}
    for size in verdicts:
        refresh(results / "toy" / size, replaced(verdicts), Toy.abstract())
    shown = summary(results).splitlines()
    for size, verdict in verdicts.items():
        (row,) = (row for row in shown if f"| `toy` | a | a loss is a number | {NOT_RUN}" in row
                  and row.endswith(f"| {size} |"))  # fmt: skip
        assert f"(by an earlier criterion: {verdict})" in row
    (page,) = find_pages([place])
    assert page.sections[1].tables["Replaced criteria"].columns["verdict"][0] == (
        "laptop: reproduced; overnight: not reproduced"
    )


def test_a_criterion_that_never_judged_hides_no_verdict_of_an_earlier_one() -> None:
    entries = [
        dataclasses.asdict(Replaced(text, verdict, "1.6", "too easy"))
        for text, verdict in (("first", "not reproduced"), ("second", {}))
    ]
    assert _before({"replaced": entries}, "laptop") == " (by an earlier criterion: not reproduced)"
    assert _before({"replaced": entries[1:]}, "laptop") == ""
    claim = untested("toy", Toy.claims[0], "", "")
    shown = replaced_table([dataclasses.replace(claim, replaced=entries)])
    assert shown is not None and shown.columns["verdict"] == ["not reproduced", "not tested"]
