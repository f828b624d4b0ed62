"""A zoo of models whose mechanism training enforced, and the probes held against it.

    python -m benchmarks.zoo --models 3            # trains, and writes runs/zoo/zoo.md
    python -m benchmarks.zoo --models 3 --judge    # asks the probes: runs/zoo/probes.md

`probes.json`, as docs/trained-truth.json, stands beside hand-planted truth in calibration.md.

Every model has sites of its own, drawn at random, and a natural twin of the same seed that was
trained on the task alone. A model whose alignment does not hold over its inputs is listed and not
used. Models and answers that lie in the folder are not made again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.kept import in_words, made
from mechint.calibration.table import markdown_table
from mechint.checkpoints import load
from mechint.config import ModelConfig
from mechint.decide.intervals import wilson
from mechint.decide.words import STANDS
from mechint.errors import DataError, NotApplicableError
from mechint.explanation import Part, audit
from mechint.interventions import Site
from mechint.planted import random_alignment, save_enforced, truth_of
from mechint.planted.enforced import depth_of, sample_all
from mechint.registry import PROBES, TASKS
from mechint.subject import Subject
from mechint.subject.components import site_of
from mechint.system.files import make_directory, write_text
from mechint.system.parallel import run_jobs, usable_cores
from mechint.system.progress import counting
from mechint.task import FiniteTask, Task
from mechint.training import enforce_each, spec


@dataclasses.dataclass(frozen=True)
class Family:
    """Models of one task: its parameters, overrides of the model, and the variables aligned,
    parents before children; some that together determine the answers when None.
    """

    task: str
    parameters: Mapping[str, Any]
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    variables: tuple[str, ...] | None = None

    def make(self) -> tuple[Task, ModelConfig]:
        """The task and the model's configuration."""
        task = TASKS[self.task].from_dict(dict(self.parameters))
        config = spec(task, {**SMALL, **self.model}).model
        assert isinstance(config, ModelConfig)
        return task, config


SMALL = {
    "n_layers": 2,
    "d_model": 32,
    "n_heads": 2,
    "d_head": 16,
    "d_mlp": 64,
    "attn_only": False,
    "normalization_type": "LN",
    "init_mode": "gpt2",
}
AND = tuple(tuple(x & y for y in range(8)) for x in range(8))
"""The conjunction of three bits each of both operands."""
ADDENDS = ("sum_0", "sum_1", "carry_0")
HOPS = ("1-hop of 0", "2-hop of 0", "2-hop of 1")
FAMILIES = {
    "addition": Family("modular-arithmetic", {"p": 7}),
    "product": Family("groups", {"group": "S3"}),
    "comparison": Family("comparison", {"n": 8, "equals": True}),
    "palindromes": Family("palindromes", {"n": 6, "half_length": 2}),
    "maximum": Family("max-of-list", {"n": 6, "length": 3}, {"n_heads": 3}),
    "count-distinct": Family("count-distinct", {"n": 3, "length": 4}, {"n_heads": 3}),
    "multiplication": Family("modular-arithmetic", {"p": 7, "operation": "multiply"}),
    "boolean": Family("modular-arithmetic", {"p": 8, "table": AND}),
    "carries": Family("digit-sum", {"digits": 2, "base": 5}, {}, ADDENDS),
    "brackets": Family("balanced-brackets", {"length": 10}, {"n_layers": 3}),
    "repeats": Family("repeated-tokens", {"n": 8, "length": 3}),
    "composition": Family("composition", {"n": 3, "k": 2, "hops": [2]}, {"n_layers": 3}, HOPS),
}
OPEN = ("carries", "brackets", "repeats", "composition")
"""Families that training has not made hold their variables in most models yet; made where they are
named.
"""
ASKED: dict[str, dict[str, Any]] = {
    "das": {
        "dimensions": (1, 2, 4, 8),
        "control_seeds": 1,
        "steps": 60,
        "pairs": 512,
        "held_out": 256,
        "null_samples": 99,
    },
    "das principal": {"among": "principal"},
    "das units": {"among": "units"},
    "patching": {},
    "circuits": {},
    "audit": {},
    "ablation": {"components": ("head", "mlp"), "neurons": 0},
    "lens": {},
}
"""Probes held against the truth, with settings other than their defaults."""
LOCAL = {"das": 1, "audit": 5}
"""Probes that can be asked about one site, and how many sites of each kind that does not hold."""
TOGETHER = 10
"""Models of an ensemble."""
EXAMPLES = 1024
"""Examples of a generated task that probes are given."""
SAID = ("right", "before", "behind", "wrong", "silent", "unclear", "refused")


# --- models ---------------------------------------------------------------------------------------
def make(out: Path, seeds: Sequence[int], families: Sequence[str], workers: int) -> list[Subject]:
    """A model of each family and seed and its natural twin, as checkpoints in `out`; those that lie
    there are not trained again.
    """
    groups = [seeds[first : first + TOGETHER] for first in range(0, len(seeds), TOGETHER)]
    jobs = [
        (out, name, FAMILIES[name], list(group), natural)
        for group in groups
        for name in families
        for natural in (False, True)
    ]
    subjects = list[Subject]()
    for paths in _outcomes(train, jobs, workers):
        for path in paths:
            subjects.append(load(path))
            click.echo(markdown([row_of(path.stem, truth_of(subjects[-1]))]).splitlines()[-1])
    return sorted(subjects, key=lambda one: one.provenance["checkpoint"]["path"])


def _outcomes(
    function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], workers: int
) -> Iterator[Any]:
    """Results of the function for each job, in processes of their own where there are several."""
    if workers == 1:
        yield from (function(*job) for job in jobs)
        return
    for _, outcome in run_jobs(function, jobs, workers):
        if isinstance(outcome, Exception):
            raise outcome
        yield outcome


def train(out: Path, name: str, family: Family, seeds: Sequence[int], natural: bool) -> list[Path]:
    """Train models of one family as one ensemble; the paths of all of these seeds."""
    paths = {seed: out / f"{name}-{seed}{'-natural' * natural}.pt" for seed in seeds}
    if missing := [seed for seed in seeds if not paths[seed].exists()]:
        (task, config), start = family.make(), time.process_time()
        sites = [random_alignment(task, config, seed, family.variables) for seed in missing]
        plants = enforce_each(task, sites, config, missing, natural=natural)
        seconds = round((time.process_time() - start) / len(missing), 1)
        for seed, plant in zip(missing, plants, strict=True):
            truth = {**plant.truth, "seconds": seconds}
            save_enforced(dataclasses.replace(plant, truth=truth), paths[seed])
    return list(paths.values())


def row_of(name: str, truth: Mapping[str, Any]) -> dict[str, Any]:
    """A model's row of the table."""
    return {
        "family": name,
        "alignment": ", ".join(f"{key}: {site}" for key, site in truth["alignment"].items()),
        "trained": "naturally" if truth["natural"] else "to hold it",
        "verified": truth["verified"],
        "accuracy": truth["accuracy"],
        "interchange": min([*truth["interchange"].values(), *truth["changed"].values()]),
        "all else swapped": truth["all"],
        "one swapped": 1 - max(truth["outside"].values(), default=0.0),
        "steps": truth["steps"],
        "seconds": truth.get("seconds"),
    }


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table."""
    return markdown_table({name: [row[name] for row in rows] for name in (rows or [{}])[0]})


# --- probes ---------------------------------------------------------------------------------------
def ask(
    probe: str,
    subject: Subject,
    truth: Mapping[str, Any],
    variable: str,
    at: Site | None = None,
    **more: Any,
) -> str:
    """The answer of a probe about one variable: "right", where it names the site that holds it;
    "before", a place on the way there; "behind", one that carries it on to the answer; "wrong",
    another; "silent", "unclear" or "refused".

    at: a site that does not hold it, of which alone is asked, by the probes of `LOCAL`: "wrong"
    where it is claimed.
    """
    site, answer = site_of(truth["alignment"][variable]), int(subject.answer_positions[0])
    try:
        if probe == "audit":
            found = audit(subject, Part(variable, at or site, (variable,)))
            if found.standing in STANDS:
                return "right" if at is None else "wrong"
            abstained = found.standing in ("untested", "refused")
            return "unclear" if abstained else "silent"
        name = probe.split()[0]
        settings = {**ASKED[name], **ASKED[probe], **more}
        if name not in ("ablation", "lens"):  # which look at whole answers
            settings["variable"] = variable
        if at is not None:
            settings |= {"hook": at.hook, "pos": at.pos}
        result = PROBES[name].from_dict(settings).run(subject, seed=0)
    except (NotApplicableError, DataError):
        return "refused"
    if result.verdict != "yes":
        return "silent" if result.verdict == "no" else "unclear"
    return _named(probe, result.metrics, truth, site, answer) if at is None else "wrong"


def elsewhere(truth: Mapping[str, Any], variable: str) -> dict[str, list[Site]]:
    """Sites that do not hold the variable, as verification has shown: "permuted", those of other
    variables, and "other site", those of none, which no input of the variable's site passes.
    """
    held = {name: site_of(text) for name, text in truth["alignment"].items()}
    own = held.pop(variable)

    def on_the_way(one: Site) -> bool:
        assert isinstance(one.pos, int) and isinstance(own.pos, int)
        return depth_of(one) < depth_of(own) and one.pos <= own.pos

    others = [one for one in map(site_of, truth["outside"]) if not on_the_way(one)]
    return {"permuted": [*held.values()], "other site": others}


def _named(
    probe: str, metrics: Mapping[str, Any], truth: Mapping[str, Any], site: Site, answer: int
) -> str:
    """Return whether the place found is the site, is one before it that the variable may pass on
    its way there, or one behind it; the answer is read at `answer`.
    """
    held = [dataclasses.replace(site_of(one), pos=None) for one in truth["alignment"].values()]
    first, last = depth_of(site), max(map(depth_of, held))
    if probe == "patching":
        if str(site) in metrics["tied"]:
            return "right"
        return _held(site_of(metrics["component"]), site, answer, last)
    if probe == "lens":  # no answer is read before what determines it
        carried = first if site.pos == answer else (first[0] + 1, 1)
        return "right" if depth_of(site_of(metrics["lens.ready_after"])) >= carried else "wrong"
    if "needed" in metrics or "components" in metrics:
        # its component, and none from there to the last site that is no site; what an answer needs
        # may be read by any of them
        named = {site_of(one) for one in metrics.get("needed") or metrics["components"]}
        own = dataclasses.replace(site, pos=None)
        first = last if "needed" in metrics else first
        late = {one for one in named if first <= depth_of(one) <= last}
        return "right" if own in named and late <= {*held} else "wrong"
    found = Site(metrics["hook"], metrics["pos"])
    if shares := metrics.get("by_head"):  # of heads side by side, the one with most of it
        found = dataclasses.replace(site_of(max(shares, key=shares.get)), pos=metrics["pos"])
    return _held(found, site, answer, last)


def _held(found: Site, site: Site, answer: int, last: tuple[int, int]) -> str:
    """Return "right" for the site itself, or a residual stream that holds what the site writes, at
    its position; "before" for what the site may read; "behind" for a stream where later layers
    carry it, and for heads and MLPs after the last site, at `last`, of which nothing is known; else
    "wrong".
    """
    at = answer if found.pos == "answer" else found.pos
    if found.kind in ("head", "mlp"):
        if dataclasses.replace(found, pos=at) == site:
            return "right"
        if depth_of(found) < depth_of(site):
            return "before"
        return "behind" if depth_of(found) > last else "wrong"
    place = 2 * (found.layer or 0) + {"resid_mid": 1, "resid_post": 2}.get(found.kind, 0)
    written = 2 * (site.layer or 0) + (2 if site.kind == "mlp" else 1)
    if place < written:
        return "before"
    if at == site.pos:
        return "right"
    return "behind" if place > written + 1 else "wrong"


Answer = tuple[str, str, str, float]
"""Probe, what it was asked about, its answer and seconds of processor time."""


def answers_of(path: Path, probes: Sequence[str]) -> list[Answer]:
    """Answers of probes about every aligned variable of the model at `path`: of a verified one, of
    the same model about sites that do not hold the variable and of an untrained model of the same
    shape; or of a natural twin, of which nobody knows where a variable is.
    """
    subject, said = load(path), list[Answer]()
    truth = truth_of(subject)
    if not (truth["natural"] or truth["verified"]):
        return said
    kind = "natural twin" if truth["natural"] else "enforced"
    if subject.task is not None and not isinstance(subject.task, FiniteTask):
        # a split may have few inputs, and the truth is of all
        subject = subject.with_data(sample_all(subject.task, EXAMPLES, 0))
    untrained = subject.untrained(1)
    for probe in probes:
        for variable in truth["alignment"]:
            asked: list[tuple[str, Subject, dict[str, Any]]] = [(kind, subject, {})]
            if not truth["natural"]:
                for name, sites in elsewhere(truth, variable).items() if probe in LOCAL else ():
                    # das is asked about whole activations: an MLP's is one site
                    fit = [one for one in sites if probe == "audit" or one.kind == "mlp"]
                    asked += [(name, subject, {"at": one}) for one in fit[: LOCAL[probe]]]
                chosen = probe.split()[0] in ("das", "patching", "circuits")
                more = {"only_correct": False} if chosen else {}
                asked.append(("untrained", untrained, more))
            for name, one, more in asked:
                start = time.process_time()
                answer = ask(probe, one, truth, variable, **more)
                said.append((probe, name, answer, time.process_time() - start))
    return said


def kept_answers(path: Path, probe: str) -> list[Answer]:
    """The answers of one probe about one model; those in the folder `answers` beside it are not
    asked for again.
    """
    kept = path.parent / "answers" / f"{path.stem}.{probe.replace(' ', '_')}.json"
    if not kept.exists():
        make_directory(kept.parent)
        write_text(kept, json.dumps(answers_of(path, [probe])))
    return [tuple(one) for one in json.loads(kept.read_text(encoding="utf-8"))]


def judge(
    paths: Sequence[Path], workers: int = 1, probes: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Ask probes, all of `ASKED` when None, about the models at `paths`: a row for each probe and
    kind of question.
    """
    said: dict[tuple[str, str], list[list[Answer]]] = {}
    with counting("asking probes") as update:
        jobs = [(path, probe) for path in paths for probe in probes or ASKED]
        for done, answers in enumerate(_outcomes(kept_answers, jobs, workers), 1):
            update(done, len(jobs), "")
            for probe, kind in dict.fromkeys(one[:2] for one in answers):
                of = [one for one in answers if one[:2] == (probe, kind)]
                said.setdefault((probe, kind), []).append(of)
    return [counted(probe, kind, models) for (probe, kind), models in sorted(said.items())]


def counted(probe: str, kind: str, models: Sequence[Sequence[Answer]]) -> dict[str, Any]:
    """A row of the table, of the answers about each of `models`; the interval is that of what was
    named: rightly in enforced models, at all in the others.
    """
    rows = [one for answers in models for one in answers]
    counts = {name: sum(answer == name for _, _, answer, _ in rows) for name in SAID}
    hits = counts["right"] + counts["before"] + counts["behind"]
    hits += counts["wrong"] if kind != "enforced" else 0
    n = len(rows) - (counts["refused"] if kind != "enforced" else 0)
    low, high = wilson(hits, n)
    share = f"{hits / n:.2f} ({low:.2f}–{high:.2f})" if n else "–"
    what = "right" if kind == "enforced" else "named"
    seconds = sum(one for *_, one in rows) / len(rows)
    named = {"share": f"{what} {share}", "seconds": round(seconds, 1)}
    asked = {"models": len(models), "asked": len(rows), "judged": n, "named": hits}
    return {"probe": probe, "about": kind, **asked, **counts, **named}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo")
    parser.add_argument("--out", type=Path, default=Path("runs/zoo"))
    parser.add_argument("--models", type=int, default=3, help="of each family")
    parser.add_argument("--first", type=int, default=0, help="seed of the first of them")
    usual = [name for name in FAMILIES if name not in OPEN]
    parser.add_argument("--families", nargs="*", choices=list(FAMILIES), default=usual)
    parser.add_argument("--workers", type=int, default=usable_cores(), help="processes")
    parser.add_argument("--judge", action="store_true", help="ask the probes about them")
    parser.add_argument("--probes", nargs="*", choices=list(ASKED), help="those asked; all")
    chosen = parser.parse_args(arguments)
    make_directory(chosen.out)
    seeds = range(chosen.first, chosen.first + chosen.models)
    subjects = make(chosen.out, seeds, chosen.families, chosen.workers)
    paths = [Path(one.provenance["checkpoint"]["path"]) for one in subjects]
    rows = [row_of(path.stem, truth_of(one)) for path, one in zip(paths, subjects, strict=True)]
    write_text(chosen.out / "zoo.md", markdown(rows))
    if chosen.judge:
        said = judge(paths, chosen.workers, chosen.probes)
        origin = made("python -m benchmarks.zoo --judge")
        kept = {"origins": [origin], "rows": said}
        write_text(chosen.out / "probes.json", json.dumps(kept, indent=1) + "\n")
        table = markdown([{k: row[k] for k in row if k not in ("judged", "named")} for row in said])
        write_text(chosen.out / "probes.md", f"{table}\n{in_words(origin)}\n")
        click.echo(table)


if __name__ == "__main__":
    main()
