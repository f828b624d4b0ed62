"""Run a study to its report, in a directory where a stopped study goes on without repeating
finished runs.

DIR/study.json     which study at which size; another one is refused
DIR/runs/NAME/     a run directory each
DIR/runs.csv       one row a run: labels, status, final metrics
DIR/claims.json    the claims with their verdicts and numbers
DIR/page.json      the report as data, for the gallery
DIR/report.html    the report
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from mechint.errors import RunError, UnknownNameError
from mechint.files import make_directory, write_text
from mechint.registry import STUDIES
from mechint.report import PAGE, Page, Section, write_page
from mechint.results import Claim, to_jsonable
from mechint.studies.core.study import SIZES, Analysis, Planned, Runs, Study
from mechint.training import Progress, Run, Spec, train_many
from mechint.training.manifest import manifest

if TYPE_CHECKING:
    import pandas as pd

KIND = "study.json"
TIMED_STEPS = 4
SLOW = 5.0
"""Seconds from which one step alone, with what comes before it, is estimate enough."""


@dataclass(frozen=True)
class Reproduction:
    """What a study gave: its claims, the runs as a DataFrame, and where the report lies."""

    claims: list[Claim]
    frame: pd.DataFrame
    report: Path


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
) -> Reproduction:
    """Train what the study's paper trained, hold its claims against it, and write the report.

    Args:
        name: a study of the registry; size: "smoke", "laptop" or "full".
        out: the study's directory; ``runs/NAME-SIZE`` when None. What is finished there is not
            trained again.
        progress: called with a line of text a few times a second; device: "cpu" or "cuda".

    Raises:
        UnknownNameError: no such study or size. RunError: `out` holds something else.
            KeyboardInterrupt: after Ctrl-C, with everything kept.
    """
    study = find_study(name)
    if size not in SIZES:
        raise UnknownNameError.of("size", size, SIZES)
    place = _open(Path(out) if out is not None else Path("runs") / f"{name}-{size}", name, size)
    planned = study.runs(size)
    names = [one.name for one in planned]
    assert len(set(names)) == len(names), f"{name}: two runs of one name"
    specs = [dataclasses.replace(one.spec, out=place / "runs" / one.name) for one in planned]
    watch = _Watch([_steps_left(one) for one in specs], progress) if progress else None
    workers = max(1, torch.get_num_threads()) if device == "cpu" else 1
    trained = train_many(specs, resume=True, device=device, progress=watch, workers=workers)
    if any(run.status == "interrupted" for run in trained):
        raise KeyboardInterrupt
    if progress:
        progress(f"{name}: measuring {len(trained)} runs")
    runs = Runs(dict(zip(names, trained, strict=True)), {one.name: one.labels for one in planned})
    analysis = study.analyse(runs, size)
    frame = _frame(planned, trained)
    write_text(place / "runs.csv", frame.to_csv(index=False))
    write_text(
        place / "claims.json",
        json.dumps([claim.to_dict() for claim in analysis.claims], indent=1, ensure_ascii=False)
        + "\n",
    )
    page = _page(study, size, analysis, runs)
    write_text(place / PAGE, json.dumps(page.to_dict(), ensure_ascii=False))
    return Reproduction(analysis.claims, frame, write_page(page, place / "report.html"))


def duration(study: Study, size: str, device: str = "cpu") -> float:
    """Seconds the runs would take, from a few steps of one run of every kind timed now; ensembles
    make it less.
    """
    kinds: dict[str, list[Planned]] = {}
    for one in study.runs(size):
        shape = {**one.spec.to_dict(), "train": one.spec.train.batch_size}
        kinds.setdefault(json.dumps(shape, sort_keys=True), []).append(one)
    return sum(
        _seconds_a_step(of_a_kind[0], device) * sum(one.spec.train.steps for one in of_a_kind)
        for of_a_kind in kinds.values()
    )


def _seconds_a_step(one: Planned, device: str) -> float:
    def timed(steps: int) -> float:
        train = dataclasses.replace(
            one.spec.train, steps=steps, evaluate_every=steps, eval_examples=2, checkpoints="last"
        )
        started = time.perf_counter()
        train_many([dataclasses.replace(one.spec, train=train, out=None)], device=device)
        return time.perf_counter() - started

    first = timed(1)
    if first > SLOW:
        return first
    return max(timed(1 + TIMED_STEPS) - first, 0.01 * first) / TIMED_STEPS


def _steps_left(spec: Spec) -> int:
    """Steps that a run has still to make, from what its directory holds."""
    assert spec.out is not None
    run = Run(spec).load()
    return 0 if run.status in ("finished", "stopped") else spec.train.steps - run.step


class _Watch:
    """Turns the steps of ensembles into "run k of n, time left"; work is counted in steps of one
    run, and `left` says how many each has.
    """

    def __init__(self, left: Sequence[int], show: Callable[[str], None]) -> None:
        self.runs, self.total, self.show = len(left), sum(left), show
        self.begun, self.started = sum(steps == 0 for steps in left), time.monotonic()
        self.first: dict[
            int, tuple[int, Progress]
        ] = {}  # of each ensemble: its first run's number, and its first and latest progress
        self.latest: dict[int, Progress] = {}

    def __call__(self, now: Progress) -> None:
        if now.part not in self.first:
            self.first[now.part] = self.begun + 1, now
            self.begun += now.models
        self.latest[now.part] = now
        run, first = self.first[now.part]
        work = sum(
            begun.models * (self.latest[part].step - begun.step)
            for part, (_, begun) in self.first.items()
        )
        elapsed = time.monotonic() - self.started
        left = (
            f", about {in_words(elapsed * (self.total - work) / work)} left"
            if work and elapsed > 2
            else ""
        )
        several = f"-{run + first.models - 1}" if first.models > 1 else ""
        self.show(f"run {run}{several} of {self.runs}, step {now.step} of {now.steps}{left}")


def in_words(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> in_words(30), in_words(600), in_words(7200)
    ('30 s', '10 min', '2.0 h')
    """
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


def _open(place: Path, name: str, size: str) -> Path:
    """The study's directory, made or checked."""
    kind = place / KIND
    wanted = {"study": name, "size": size}
    if kind.exists():
        try:
            there = json.loads(kind.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(f"{kind}: cannot be read: {error}; choose another --out") from error
        if there != wanted:
            raise RunError(
                f"{place}: holds the study {there.get('study')} at size {there.get('size')}, "
                f"not {name} at size {size}; choose another --out"
            )
        return place
    if place.is_dir() and any(place.iterdir()):
        raise RunError(f"{place}: is not empty and holds no study; choose another --out")
    make_directory(place / "runs")
    write_text(kind, json.dumps(wanted))
    return place


def _frame(planned: Sequence[Planned], trained: Sequence[Run]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for one, run in zip(planned, trained, strict=True):
        rows.append(
            {"run": one.name, **one.labels, "status": run.status, "error": run.error, **run.final}
        )
    return pd.DataFrame(rows)


def _page(study: Study, size: str, analysis: Analysis, runs: Runs) -> Page:
    """The report: claims first, then the figures, the sensitivity rows, other tables,
    provenance.
    """
    sections = [Section("Claims", lead=verdicts(analysis.claims), claims=analysis.claims)]
    if analysis.figures:
        sections.append(Section("Figures", figures=analysis.figures))
    if analysis.sensitivity:
        lead = "What the paper does not state, varied."
        sections.append(Section("Sensitivity", lead=lead, tables=analysis.sensitivity))
    if analysis.tables:
        sections.append(Section("Numbers", tables=analysis.tables))
    absent = {**{f"run {name}": error for name, error in runs.failed.items()}, **analysis.missing}
    if absent:
        sections.append(
            Section("Not made", paragraphs=[f"{name}: {error}" for name, error in absent.items()])
        )
    settings = {name: runs.spec(name).to_dict() for name in _one_of_each_arm(runs)}
    facts = {"study": study.name, "size": size, "runs": str(len(runs))}
    return Page(
        study.title,
        sections,
        "mechint study",
        study.summary,
        facts,
        to_jsonable({**manifest(), "runs": settings}),
    )


def _one_of_each_arm(runs: Runs) -> list[str]:
    """The first run of every set of labels that differ in more than the seed."""
    arms = {
        json.dumps(
            {key: value for key, value in labels.items() if key != "seed"}, default=str
        ): name
        for name, labels in reversed(runs.labels.items())
    }
    return list(reversed(arms.values()))


def verdicts(claims: Sequence[Claim]) -> str:
    """How many claims came out which way, in words.

    >>> verdicts([])
    'No claim was judged.'
    """
    parts = []
    for verdict in ("reproduced", "not reproduced", "not tested"):
        letters = [claim.letter for claim in claims if claim.verdict == verdict]
        if letters:
            parts.append(f"{len(letters)} {verdict} ({', '.join(letters)})")
    return "; ".join(parts).capitalize() + "." if parts else "No claim was judged."
