"""A zoo of models whose mechanism training enforced, and the probes held against it.

    python -m mechint.calibration.zoo --models 3            # trains, and writes runs/zoo/zoo.md
    python -m mechint.calibration.zoo --models 3 --judge    # asks the probes: runs/zoo/probes.md

Every model has sites of its own, drawn at random, and a natural twin of the same seed that was
trained on the task alone. A model whose alignment does not hold over its inputs is listed and not
used. Models that lie in the folder are not trained again.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from mechint.calibration.table import markdown_table
from mechint.checkpoints import load
from mechint.components import site_of
from mechint.config import ModelConfig
from mechint.errors import DataError, NotApplicableError
from mechint.explain import Audit, explain
from mechint.files import make_directory, write_text
from mechint.intervals import clopper_pearson
from mechint.interventions import Site
from mechint.planted import enforce, random_alignment, save_enforced, truth_of
from mechint.planted.enforced import depth_of
from mechint.progress import counting
from mechint.registry import PROBES, TASKS
from mechint.subject import Subject
from mechint.task import Task
from mechint.training import spec


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
AND = tuple(tuple(x & y for y in range(4)) for x in range(4))
"""The conjunction of two bits each of both operands."""
ADDENDS = ("sum_0", "sum_1", "carry_0")
FAMILIES = {
    "addition": Family("modular-arithmetic", {"p": 7}),
    "product": Family("groups", {"group": "S3"}),
    "comparison": Family("comparison", {"n": 8, "equals": True}),
    "palindromes": Family("palindromes", {"n": 6, "half_length": 2}),
    "maximum": Family("max-of-list", {"n": 6, "length": 3}, {"n_heads": 3}),
    "count-distinct": Family("count-distinct", {"n": 3, "length": 4}, {"n_heads": 3}),
    "multiplication": Family("modular-arithmetic", {"p": 7, "operation": "multiply"}),
    "boolean": Family("modular-arithmetic", {"p": 4, "table": AND}),
    "carries": Family("digit-sum", {"digits": 2, "base": 5}, {}, ADDENDS),
    "brackets": Family("balanced-brackets", {"length": 10}, {"n_layers": 3}),
}
ASKED: dict[str, dict[str, Any]] = {
    "das": {
        "dimensions": (1, 2, 4, 8),
        "control_seeds": 1,
        "steps": 60,
        "pairs": 512,
        "held_out": 256,
        "null_samples": 99,
    },
    "patching": {},
    "circuits": {},
    "explain": {},
}
"""What is held against the truth, with settings other than its defaults."""
SAID = ("right", "before", "wrong", "silent", "unclear", "refused")


# --- models ---------------------------------------------------------------------------------------
def make(out: Path, seeds: Sequence[int], families: Sequence[str]) -> Iterator[Subject]:
    """A model of each family and seed, as checkpoints in `out`, and their natural twins."""
    for index in seeds:
        for name in families:
            task, config = FAMILIES[name].make()
            for natural in (False, True):
                path = out / f"{name}-{index}{'-natural' * natural}.pt"
                if not path.exists():
                    sites = random_alignment(task, config, index, FAMILIES[name].variables)
                    start = time.process_time()
                    plant = enforce(task, sites, config, index, natural=natural)
                    truth = {**plant.truth, "seconds": round(time.process_time() - start, 1)}
                    save_enforced(dataclasses.replace(plant, truth=truth), path)
                yield load(path)


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
def ask(probe: str, subject: Subject, truth: Mapping[str, Any], variable: str, **more: Any) -> str:
    """The answer of a probe about one variable: "right", where it names the site that holds it;
    "before", a place on the way there; "wrong", another; "silent", "unclear" or "refused".
    """
    site, answer = site_of(truth["alignment"][variable]), int(subject.answer_positions[0])
    try:
        if probe == "explain":
            audits = _audits(subject)
            standing = [one.explanation.parts for one in audits if one.standing == "stands"]
            sites = [part.site for parts in standing for part in parts if part.name == variable]
            if not sites:
                return "unclear" if audits[0].standing == "abstains" else "silent"
            return _held(sites[0], site, answer)
        settings = {**ASKED[probe], **more, "variable": variable}
        result = PROBES[probe].from_dict(settings).run(subject, seed=0)
    except (NotApplicableError, DataError):
        return "refused"
    if result.verdict != "yes":
        return "silent" if result.verdict == "no" else "unclear"
    return _named(probe, result.metrics, truth, site, answer)


@functools.lru_cache(maxsize=1)
def _audits(subject: Subject) -> list[Audit]:
    """The explanations by declared variables, audited once for all variables of a model."""
    return explain(subject, family="variables")


def _named(
    probe: str, metrics: Mapping[str, Any], truth: Mapping[str, Any], site: Site, answer: int
) -> str:
    """Return whether the place found is the site or follows from it, or is one before it that the
    variable may pass on its way there; the answer is read at `answer`.
    """
    if probe == "patching":
        if str(site) in [metrics["component"], *metrics["tied"]]:
            return "right"
        return "before" if depth_of(site_of(metrics["component"])) < depth_of(site) else "wrong"
    if probe == "circuits":  # its component, and none from there to the last site that is no site
        held = [dataclasses.replace(site_of(one), pos=None) for one in truth["alignment"].values()]
        first, last = depth_of(site), max(map(depth_of, held))
        named = {site_of(one) for one in metrics["components"]}
        own = dataclasses.replace(site, pos=None)
        late = {one for one in named if first <= depth_of(one) <= last}
        return "right" if own in named and late <= {*held} else "wrong"
    return _held(Site(metrics["hook"], metrics["pos"]), site, answer)


def _held(found: Site, site: Site, answer: int) -> str:
    """Return "right" for the site itself, or a residual stream that holds what the site writes, at
    its position or where later layers carry it; "before" for what the site may read; else "wrong".
    """
    at = answer if found.pos == "answer" else found.pos
    if found.kind in ("head", "mlp"):
        if dataclasses.replace(found, pos=at) == site:
            return "right"
        return "before" if depth_of(found) < depth_of(site) else "wrong"
    place = 2 * (found.layer or 0) + {"resid_mid": 1, "resid_post": 2}.get(found.kind, 0)
    written = 2 * (site.layer or 0) + (2 if site.kind == "mlp" else 1)
    if place < written:
        return "before"
    return "right" if at == site.pos or place > written + 1 else "wrong"


def judge(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """Ask every probe about every aligned variable: of verified models, of their natural twins, of
    which nobody knows where a variable is, and of untrained models of the same shape, where there
    is nothing to find.
    """
    said: dict[tuple[str, str], list[tuple[str, float]]] = {}
    with counting("asking probes") as update:
        for index, subject in enumerate(subjects):
            truth, kind = truth_of(subject), "natural twin"
            if not truth["natural"]:
                if not truth["verified"]:
                    continue
                kind = "enforced"
            asked = [(kind, subject, {})]
            if kind == "enforced":
                asked.append(("untrained", subject.untrained(1), {"only_correct": False}))
            for probe in ASKED:
                update(index, len(subjects), probe)
                for kind, one, more in asked:
                    for variable in truth["alignment"]:
                        start = time.process_time()
                        answer = ask(probe, one, truth, variable, **more)
                        row = said.setdefault((probe, kind), [])
                        row.append((answer, time.process_time() - start))
    return [_counted(probe, kind, rows) for (probe, kind), rows in sorted(said.items())]


def _counted(probe: str, kind: str, rows: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """A row of the table; the interval is that of what was named: rightly in enforced models, at
    all in untrained ones.
    """
    counts = {name: sum(answer == name for answer, _ in rows) for name in SAID}
    hits = counts["right"] + counts["before"] + (counts["wrong"] if kind != "enforced" else 0)
    n = len(rows) - (counts["refused"] if kind != "enforced" else 0)
    low, high = clopper_pearson(hits, n) if n else (0.0, 1.0)
    share = f"{hits / n:.2f} ({low:.2f}–{high:.2f})" if n else "–"
    what = {"enforced": "right", "natural twin": "named", "untrained": "named"}[kind]
    seconds = sum(one for _, one in rows) / len(rows)
    named = {"share": f"{what} {share}", "seconds": round(seconds, 1)}
    return {"probe": probe, "models": kind, "asked": len(rows), **counts, **named}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m mechint.calibration.zoo")
    parser.add_argument("--out", type=Path, default=Path("runs/zoo"))
    parser.add_argument("--models", type=int, default=3, help="of each family")
    parser.add_argument("--first", type=int, default=0, help="seed of the first of them")
    parser.add_argument("--families", nargs="*", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--judge", action="store_true", help="ask the probes about them")
    chosen = parser.parse_args(arguments)
    make_directory(chosen.out)
    subjects, rows = [], []
    seeds = range(chosen.first, chosen.first + chosen.models)
    for subject in make(chosen.out, seeds, chosen.families):
        name = Path(subject.provenance["checkpoint"]["path"]).stem
        subjects.append(subject)
        rows.append(row_of(name, truth_of(subject)))
        click.echo(markdown(rows[-1:]).splitlines()[-1])
    write_text(chosen.out / "zoo.md", markdown(rows))
    if chosen.judge:
        table = markdown(judge(subjects))
        write_text(chosen.out / "probes.md", table)
        click.echo(table)


if __name__ == "__main__":
    main()
