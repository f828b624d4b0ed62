"""Train a study's runs, measure each once, judge its claims and write the report; a stopped study
goes on where it was.

DIR/study.json      which study at which size, and the time spent
DIR/runs/NAME/      one run directory each
DIR/rows.jsonl.gz   what is measured of every run, one row each: all that claims are judged from
DIR/claims.json     the claims with their verdicts and numbers
DIR/report.html     the report
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.text import Text

from mechint.errors import (
    MechintError,
    NonFiniteError,
    RunError,
    UnknownNameError,
    counted,
    in_words,
)
from mechint.probe.results import PaperClaim
from mechint.registry import STUDIES
from mechint.report import write_page
from mechint.studies.page import Outcome, study_page
from mechint.studies.rows import Row, Rows, read_rows, write_rows
from mechint.studies.study import SIZES, PlannedRun, Study
from mechint.system.files import make_directory, read_json, write_text
from mechint.system.jsonable import Shown
from mechint.system.parallel import interruptible
from mechint.training import Progress, Run, Spec, train_many, workers_on
from mechint.training.run import DONE
from mechint.training.run_directory import manifest

KIND, ROWS, CLAIMS = "study.json", "rows.jsonl.gz", "claims.json"

Say = Callable[[str], None]


@dataclass(frozen=True, repr=False)
class Reproduction(Shown):
    """The outcome of a study: its claims, the rows they were judged from, where the report lies;
    runs still to be trained where the budget ended first, and name → error of runs that failed.
    """

    claims: list[PaperClaim]
    rows: Rows
    report: Path
    waiting: int
    failed: Mapping[str, str]

    def text(self, width: int = 100) -> Text:
        lines = [claim.text(width) for claim in self.claims]
        return Text("\n").join(lines or [Text("size smoke judges no claim")])


def find_study(name: str) -> Study:
    """The study of that name; UnknownNameError says which one was meant."""
    return STUDIES[name]


def reproduce(
    name: str,
    size: str = "laptop",
    out: str | Path | None = None,
    progress: Say | None = None,
    *,
    device: str = "cpu",
    budget: float | None = None,
) -> Reproduction:
    """Train what the study's paper trained, hold its claims against it, and write the report.

    Args:
        name: a study of the registry; size: one of `SIZES`.
        out: the study's directory; ``runs/NAME-SIZE`` when None. What is finished there is neither
            trained nor measured again.
        progress: called with a line of text now and then; device: "cpu" or "cuda".
        budget: seconds of training after which states are saved and the claims judged on what is
            finished; the same call goes on from there.

    Raises:
        UnknownNameError: no such study or size. RunError: `out` holds something else.
        KeyboardInterrupt: after Ctrl-C, with everything kept.
    """
    study, planned, place = _planned(name, size, out)
    say, started = progress or (lambda _: None), _now()
    kind = _open(place, name, size)
    deadline = None if budget is None else time.monotonic() + budget
    trained = _train(planned, place, device, say, deadline)
    rows, failed = _measure(study, planned, trained, place, say)
    spent = {key: kind.get(key, 0.0) + value - started[key] for key, value in _now().items()}
    kind |= {**spent, "date": datetime.now(UTC).date().isoformat(), "planned": len(planned)}
    command = f"mechint reproduce {study.name} --size {size}"
    kind |= {"command": command, "commit": manifest()["commit"]}
    write_text(place / KIND, json.dumps(kind))
    say("judging the claims")
    claims = [] if size == "smoke" else judge(study, rows, size)
    write_text(place / CLAIMS, claims_text(claims))
    outcome = Outcome(rows, claims, facts(kind, len(rows), len(planned)))
    page = study_page(study, {size: outcome})
    report = write_page(page, place / "report.html")
    waiting = sum(run.status in ("waiting", "interrupted") for run in trained.values())
    return Reproduction(claims, rows, report, waiting, failed)


def judge(study: Study, rows: Rows, size: str) -> list[PaperClaim]:
    """Every claim of the study with the verdict that the rows give it."""
    return [claim.hold(study.name, rows, size) for claim in study.claims]


def claims_text(claims: Sequence[PaperClaim]) -> str:
    """Claims as they are kept."""
    rows = [claim.to_dict() for claim in claims]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def facts(kind: Mapping[str, Any], done: int, planned: int) -> dict[str, str]:
    """The facts in the head of a study's page."""
    return {
        "study": kind["study"],
        "size": kind["size"],
        "runs": f"{done} of {planned}",
        "processor time": in_words(kind["processor_seconds"])
        if "processor_seconds" in kind
        else "",
        "date": kind.get("date", ""),
    }


def left_to_train(name: str, size: str = "laptop", out: str | Path | None = None) -> list[Spec]:
    """The runs that `reproduce` with these arguments would still train, with the directory of each
    run.

    Raises:
        UnknownNameError: no such study or size. RunError: a run there is damaged.
    """
    _, planned, place = _planned(name, size, out)
    return [asked for asked in map(_spec(place), planned) if Run(asked).load().status not in DONE]


def _planned(name: str, size: str, out: str | Path | None) -> tuple[Study, list[PlannedRun], Path]:
    study = find_study(name)
    if size not in SIZES:
        raise UnknownNameError.of("size", size, SIZES)
    planned = study.plan(size)
    names = [one.name for one in planned]
    if len(set(names)) != len(names):
        raise MechintError(f"study {name} at size {size}: two runs of one name")
    return study, planned, Path(out) if out is not None else Path("runs") / f"{name}-{size}"


def _spec(place: Path) -> Callable[[PlannedRun], Spec]:
    return lambda one: dataclasses.replace(one.spec, out=place / "runs" / one.name)


def _now() -> dict[str, float]:
    """Seconds, and processor seconds of this process and of the workers that have ended."""
    return {"seconds": time.monotonic(), "processor_seconds": sum(os.times()[:4])}


def _train(
    planned: Sequence[PlannedRun], place: Path, device: str, say: Say, deadline: float | None
) -> dict[str, Run]:
    """Name → run, stage after stage. A deadline stops training as Ctrl-C does, and raises
    nothing.
    """
    trained: dict[str, Run] = {}

    def late() -> bool:
        return deadline is not None and time.monotonic() >= deadline

    def heard(now: Progress) -> None:
        several = f" of {counted(now.models, 'run')}" if now.models > 1 else ""
        share = (len(trained) + now.done * len(members)) / len(planned)
        say(f"{share:.0%} trained; step {now.step} of {now.steps}{several}")
        if late():
            stopping.set()

    with interruptible() as stopping:
        for stage in sorted({one.stage for one in planned}):
            members = [one for one in planned if one.stage == stage]
            specs = list(map(_spec(place), members))
            if late():
                runs = [Run(asked).load() for asked in specs]
            else:
                try:
                    runs = train_many(
                        specs,
                        resume=True,
                        device=device,
                        progress=heard,
                        workers=workers_on(device),
                        on_interrupt="return",
                    )
                except NonFiniteError as error:  # of a stage of one run
                    runs = [Run(specs[0], status="failed", error=str(error))]
                if any(run.status == "interrupted" for run in runs) and not late():
                    raise KeyboardInterrupt
            trained |= {one.name: run for one, run in zip(members, runs, strict=True)}
    return trained


def _measure(
    study: Study, planned: Sequence[PlannedRun], trained: Mapping[str, Run], place: Path, say: Say
) -> tuple[Rows, dict[str, str]]:
    """The rows of all conditions of which every run is done, and name → error of those that failed.

    A condition is all that labels say but the seed. Of one that still trains those that are done
    learned fastest; of one in which a run failed the rest is no fair sample either.
    """
    failed = {name: run.error for name, run in trained.items() if run.status == "failed"}
    condition = {
        one.name: json.dumps({k: v for k, v in one.labels.items() if k != "seed"}, default=str)
        for one in planned
    }
    open_ones = {condition[name] for name, run in trained.items() if run.status not in DONE}
    open_ones |= {condition[name] for name in failed}
    kept = {row["run"]: row for row in read_rows(place / ROWS)}
    todo = [one for one in planned if condition[one.name] not in open_ones]
    for i, one in enumerate(todo):
        if one.name in kept:
            continue
        say(f"measuring run {i + 1} of {len(todo)}")
        try:
            kept[one.name] = row_of(study, one, trained[one.name])
        except MechintError as error:
            failed[one.name] = f"not measured: {error}"
    spoiled = {condition[name] for name in failed}
    rows = [kept[one.name] for one in todo if condition[one.name] not in spoiled]
    write_rows(place / ROWS, rows)
    return read_rows(place / ROWS), failed


def row_of(study: Study, planned: PlannedRun, run: Run) -> Row:
    """The row of a run: its name, labels, steps, and the study's measures."""
    return {
        "run": planned.name,
        **planned.labels,
        "steps": run.step,
        "date": datetime.now(UTC).isoformat(timespec="minutes").removesuffix("+00:00") + "Z",
        **study.measure(run, planned.labels),
    }


def _open(place: Path, name: str, size: str) -> dict[str, Any]:
    """Make the study's directory, or check it; what its study.json says."""
    if (place / KIND).exists():
        kind = read_json(place / KIND)
        if (kind.get("study"), kind.get("size")) != (name, size):
            raise RunError(
                f"{place}: holds the study {kind.get('study')} at size {kind.get('size')}, "
                f"not {name} at size {size}; choose another --out"
            )
        return kind
    if place.is_dir() and any(place.iterdir()):
        raise RunError(f"{place}: is not empty and holds no study; choose another --out")
    make_directory(place / "runs")
    kind = {"study": name, "size": size}
    write_text(place / KIND, json.dumps(kind))
    return kind
