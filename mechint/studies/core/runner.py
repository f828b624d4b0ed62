"""Run a study to its report, in a directory where a stopped study goes on without repeating
finished runs.

DIR/study.json     which study at which size, and the seconds spent on training and measuring;
                   another study is refused
DIR/runs/NAME/     one run directory each
DIR/runs.csv       one row per run: labels, status, final metrics
DIR/claims.json    the claims with their verdicts and numbers
DIR/page.json      the report as data, for the gallery
DIR/report.html    the report
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from mechint.claim import Claim
from mechint.errors import NonFiniteError, RunError, UnknownNameError, counted
from mechint.files import make_directory, write_text
from mechint.parallel import interruptible
from mechint.registry import STUDIES
from mechint.report import PAGE, write_page
from mechint.studies.core.clock import KIND, Clock, Spent, read_kind
from mechint.studies.core.pages import study_page
from mechint.studies.core.progress import ProgressReporter
from mechint.studies.core.study import SIZES, PlannedRun, Runs, Study, silent
from mechint.training import Run, Spec, train_many, workers_on
from mechint.training.plan import partition
from mechint.training.run import DONE

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Reproduction:
    """What a study gave: its claims, the runs as a DataFrame, where the report lies, and how many
    runs are still to be trained where the budget ended first.
    """

    claims: list[Claim]
    frame: pd.DataFrame
    report: Path
    waiting: int = 0


def find_study(name: str) -> Study:
    """The study of that name; UnknownNameError says which one was meant."""
    return STUDIES[name]()


def reproduce(
    name: str,
    size: str = "laptop",
    out: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
    *,
    device: str = "cpu",
    budget: float | None = None,
) -> Reproduction:
    """Train what the study's paper trained, hold its claims against it, and write the report.

    Args:
        name: a study of the registry; size: "smoke", "laptop", "overnight" or "full".
        out: the study's directory; ``runs/NAME-SIZE`` when None. What is finished there is not
            trained again.
        progress: called with a line of text a few times a second; device: "cpu" or "cuda".
        budget: seconds of training after which states are saved and the claims judged on what is
            finished; the same call goes on from there.

    Raises:
        UnknownNameError: no such study or size. RunError: `out` holds something else, or a budget
            outside the main thread. KeyboardInterrupt: after Ctrl-C, with everything kept.
    """
    study, planned, place = _planned(name, size, out)
    _open(place, name, size)
    names, specs = [one.name for one in planned], _specs(planned, place)
    spent = Spent(place)
    clock = Clock(budget, spent)
    try:
        trained = _train([one.stage for one in planned], specs, device, progress, clock)
    finally:
        spent.add()
    say = progress or silent
    say(f"measuring {counted(len(trained), 'run')}")
    labels = {one.name: one.labels for one in planned}
    runs = Runs(
        dict(zip(names, trained, strict=True)), labels, say, ahead(planned, trained, device)
    )
    analysis = study.analyze(runs, size)
    spent.add()
    frame = _frame(planned, trained)
    write_text(place / "runs.csv", frame.to_csv(index=False))
    claims = [claim.to_dict() for claim in analysis.claims]
    write_text(place / "claims.json", json.dumps(claims, indent=1, ensure_ascii=False) + "\n")
    page = study_page(study, size, analysis, runs, spent.facts())
    write_text(place / PAGE, json.dumps(page.to_dict(), ensure_ascii=False))
    waiting = sum(run.status in ("waiting", "interrupted") for run in trained)
    return Reproduction(analysis.claims, frame, write_page(page, place / "report.html"), waiting)


def left_to_train(name: str, size: str = "laptop", out: str | Path | None = None) -> list[Spec]:
    """What `reproduce` with these arguments would still train, with the directory of each run.

    Raises:
        UnknownNameError: no such study or size. RunError: a run there is damaged.
    """
    _, planned, place = _planned(name, size, out)
    return [one for one in _specs(planned, place) if _steps_left(one)]


def _planned(name: str, size: str, out: str | Path | None) -> tuple[Study, list[PlannedRun], Path]:
    """The study, its runs, and its directory."""
    study = find_study(name)
    if size not in SIZES:
        raise UnknownNameError.of("size", size, SIZES)
    planned = study.runs(size)
    names = [one.name for one in planned]
    assert len(set(names)) == len(names), f"{name}: two runs of one name"
    return study, planned, Path(out) if out is not None else Path("runs") / f"{name}-{size}"


def _specs(planned: Sequence[PlannedRun], place: Path) -> list[Spec]:
    """What each run trains, in a directory of its own under `place`."""
    return [dataclasses.replace(one.spec, out=place / "runs" / one.name) for one in planned]


def _train(
    stages: Sequence[int],
    specs: Sequence[Spec],
    device: str,
    progress: Callable[[str], None] | None,
    clock: Clock,
) -> list[Run]:
    """A run per spec, those of an earlier stage trained first; KeyboardInterrupt after Ctrl-C, not
    where the budget ended.
    """
    reporter = None
    if progress is not None:
        costs = {i: part.bytes for part in partition(specs) for i in part.members}
        reporter = ProgressReporter([_steps_left(one) for one in specs], costs, progress)
    trained: dict[int, Run] = {}
    with interruptible() as interrupted:
        for stage in sorted(set(stages)):
            members = [i for i, own in enumerate(stages) if own == stage]
            if clock.spent:
                trained |= {i: Run(specs[i]).load() for i in members}
                continue
            try:
                runs = train_many(
                    [specs[i] for i in members],
                    resume=True,
                    device=device,
                    progress=clock.watch(reporter, interrupted),
                    workers=workers_on(device),
                    on_interrupt="return",  # a budget that ends is no reason to stop
                )
            except NonFiniteError as error:  # of a stage of one run
                runs = [Run(specs[members[0]], status="failed", error=str(error))]
            if any(run.status == "interrupted" for run in runs) and not clock.spent:
                raise KeyboardInterrupt
            trained |= dict(zip(members, runs, strict=True))
            if reporter is not None:
                reporter.next_stage()
    return [trained[i] for i in range(len(specs))]


def ahead(planned: Sequence[PlannedRun], trained: Sequence[Run], device: str = "cpu") -> list[str]:
    """Names of the runs that are done while others of their ensemble on `device` still have steps
    to make, as where a budget ended: they are those that learned fastest.
    """
    found: list[str] = []
    for stage in {
        one.stage for one, run in zip(planned, trained, strict=True) if run.status not in DONE
    }:
        members = [i for i, one in enumerate(planned) if one.stage == stage]
        for part in partition([planned[i].spec for i in members], torch.device(device).type):
            together = [members[i] for i in part.members]
            done = [i for i in together if trained[i].status in DONE]
            if len(done) < len(together):
                found += [planned[i].name for i in done if trained[i].status != "failed"]
    return found


def _steps_left(spec: Spec) -> int:
    """Steps that a run has still to make, from what its directory holds."""
    run = Run(spec).load()
    return 0 if run.status in DONE else spec.train.steps - run.step


def _open(place: Path, name: str, size: str) -> None:
    """Make the study's directory, or check it."""
    if (place / KIND).exists():
        kind = read_kind(place)
        if (kind.get("study"), kind.get("size")) != (name, size):
            raise RunError(
                f"{place}: holds the study {kind.get('study')} at size {kind.get('size')}, "
                f"not {name} at size {size}; choose another --out"
            )
        return
    if place.is_dir() and any(place.iterdir()):
        raise RunError(f"{place}: is not empty and holds no study; choose another --out")
    make_directory(place / "runs")
    write_text(place / KIND, json.dumps({"study": name, "size": size}))


def _frame(planned: Sequence[PlannedRun], trained: Sequence[Run]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for one, run in zip(planned, trained, strict=True):
        rows.append(
            {"run": one.name, **one.labels, "status": run.status, "error": run.error, **run.final}
        )
    return pd.DataFrame(rows)
