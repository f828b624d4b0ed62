"""Methods that rank edges, held against truth that training enforced.

    python -m benchmarks.zoo --models 3 --out runs/zoo
    python -m benchmarks.rankings runs/zoo                  # the table of docs/trained-truth.md

For each aligned variable of each verified model the edges are ranked on some pairs, against sources
that differ in the variable. CPR and CMD are those of MIB (Mueller et al. 2025), on other pairs. The
AUROC is that of heads and MLPs by the largest effect of an edge that leaves them: the variable's
site against all others up to the last site, at every position, but those that the site may read.
Edges have no truth: by which of them a variable reaches its site, and what reads it, was not
enforced.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.zoo import markdown
from mechint.checkpoints import load
from mechint.errors import DataError
from mechint.interventions import Site
from mechint.planted import truth_of
from mechint.planted.enforced import depth_of
from mechint.subject import Subject
from mechint.subject.components import site_of
from mechint.system.progress import counting
from mechint.task import rng
from probes._circuits import Scorer, edge_attribution, path_patching
from probes._circuits.choosing import graph_of, paired, split
from probes._circuits.search import curve_of


def random_order(scorer: Scorer) -> np.ndarray:
    """Effects drawn at random: the null of every column."""
    draw = rng("random edges", int(scorer.pairs.source.sum()))
    return draw.random(len(scorer.graph.edges))


def acdc(scorer: Scorer) -> np.ndarray:
    """Share of `THRESHOLDS` at which ACDC keeps the edge (Conmy et al. 2023): from the logits back,
    an edge goes for good where that changes the faithfulness by less than the threshold.

    Cost: a forward per edge, all thresholds in one stack.
    """
    kept = np.ones((len(THRESHOLDS), len(scorer.graph.edges)), bool)
    before = scorer.faithfulness(kept)
    for edge in reversed(range(kept.shape[1])):  # in the order of their receivers
        tried = kept.copy()
        tried[:, edge] = False
        after = scorer.faithfulness(tried)
        gone = np.abs(after - before) < THRESHOLDS
        kept[gone, edge] = False
        before = np.where(gone, after, before)
    return kept.mean(0)


THRESHOLDS = np.geomspace(0.001, 0.5, 8)
METHODS: dict[str, Callable[[Scorer], np.ndarray]] = {
    "path patching": path_patching,
    "ACDC": acdc,
    "EAP": edge_attribution,
    "EAP-IG": functools.partial(edge_attribution, steps=5),
    "random order": random_order,
}


def rankings(
    subject: Subject, truth: Mapping[str, Any], variable: str, pairs: int = 64, held_out: int = 256
) -> dict[str, tuple[float, float, float]]:
    """Method → CPR, CMD and AUROC, NaN without rivals, for one variable."""
    assert subject.task is not None
    found = subject.task.variables[variable]
    every, _ = paired(subject, "counterfactual", found, pairs + held_out, 0, True)
    search, test, _ = split(subject, every, pairs, held_out, 0)
    graph = graph_of(subject, every, by_position=True)
    ranked, judged = (Scorer(subject, graph, one, "counterfactual") for one in (search, test))
    site = site_of(truth["alignment"][variable])
    named = {*truth["outside"], *truth["alignment"].values()} - {str(site)}
    others = [name for name in named if not _is_before(site_of(name), site)]
    scores = {method: measure(ranked) for method, measure in METHODS.items()}
    result = dict[str, tuple[float, float, float]]()
    for method, effects in scores.items():
        largest = dict[str, float]()
        for edge, effect in zip(graph.edges, effects.tolist(), strict=True):
            where = f"{edge.sender.component} @ {edge.group}"
            largest[where] = max(largest.get(where, 0.0), abs(effect))
        rivals = [largest.get(other, 0.0) for other in others]
        own = largest.get(str(site), 0.0)
        wins = [(own > one) + (own == one) / 2 for one in rivals]
        auroc = statistics.mean(wins) if wins else math.nan
        curve = curve_of(judged, effects)
        result[method] = curve.cpr, curve.cmd, auroc
    return result


def _is_before(one: Site, site: Site) -> bool:
    """Return whether a component may be on a variable's way to its site."""
    assert isinstance(one.pos, int) and isinstance(site.pos, int)
    return depth_of(one) < depth_of(site) and one.pos <= site.pos


def table(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """A row for each method: means over variables with their standard errors, and for how many the
    site comes first.
    """
    found: dict[str, list[tuple[float, float, float]]] = {}
    with counting("ranking edges") as update:
        for index, subject in enumerate(subjects):
            truth = truth_of(subject)
            if truth["natural"] or not truth["verified"]:
                continue
            for name in truth["alignment"]:
                update(index, len(subjects), name)
                try:
                    measured = rankings(subject, truth, name)
                except DataError:  # too few inputs
                    continue
                for method, values in measured.items():
                    found.setdefault(method, []).append(values)
    rows: list[dict[str, Any]] = []
    for method, every in found.items():
        cpr, cmd, auroc = zip(*every, strict=True)
        row = {"method": method, "variables": len(every)}
        told = [one for one in auroc if not math.isnan(one)]  # of sites that have rivals
        row |= {"CPR": _mean(cpr), "CMD": _mean(cmd), "AUROC": _mean(told)}
        rows.append({**row, "site first": f"{sum(one == 1 for one in told)} of {len(told)}"})
    return rows


def _mean(values: Sequence[float]) -> str:
    """The mean and its standard error."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):.3f} ± {error:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rankings")
    parser.add_argument("zoo", type=Path, help="folder of models, as the zoo makes them")
    chosen = parser.parse_args(arguments)
    click.echo(markdown(table([load(path) for path in sorted(chosen.zoo.glob("*.pt"))])))


if __name__ == "__main__":
    main()
