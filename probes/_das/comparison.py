"""The best subspace beside everything it is held against."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mechint.pairs import told_apart
from mechint.probe import Need, Report, unmet_need
from mechint.results import Null
from mechint.task import Variable
from probes._das import controls
from probes._das.drawing import Drawn
from probes._das.fit import fit
from probes._das.search import Cell, Fitting
from probes._das.swap import SwapSite, interchange_accuracy, mean

if TYPE_CHECKING:
    from mechint.subject import Subject


def compare_with_controls(
    report: Report,
    subject: Subject,
    variable: Variable,
    best: Cell,
    drawn: Drawn,
    fitting: Fitting,
    n: int,
    searches: int,
) -> None:
    """Records what the best subspace is held against; `n` samples of the random directions,
    `searches` of each control that is searched.
    """
    train, test = drawn.train, drawn.test
    on_train, site = (SwapSite(subject, part, *best.place) for part in (train, test))
    k, seed = best.dimension, fitting.seed
    values = variable.value_of(test.base)
    groups, several = told_apart(variable, test)
    report.update({"values": several, "values_told_apart": groups})
    random = controls.random_accuracies(subject, site, k, n, seed)
    how = f"random subspaces of dimension {k} at {best.where}"
    report.metric("iia", best.iia, null=random, how=how)
    report.metric("iia_random", report.nulls["iia"].mean)
    matched = controls.norm_matched_accuracies(subject, site, best.subspace, n, seed)
    report.metric(
        "iia_norm_matched",
        float(np.mean(matched)),
        null=Null.sampled(
            "iia_norm_matched", best.iia, matched, "random directions, changes of equal norm"
        ),
    )
    for name, make in (
        ("iia_mean_difference", controls.mean_difference_subspace),
        ("iia_linear_probe", controls.linear_probe_subspace),
    ):
        directions = make(on_train, variable.value_of(train.base), k)
        report.metric(name, mean(interchange_accuracy(subject, site, directions)))
    kept = math.nan  # no other example shares what is the example itself
    if not variable.is_example:
        sources = variable.value_of(test.source)
        kept = controls.kept_answers(subject, site, best.subspace, values, sources, seed)
    report.metric("answers_kept", kept)
    split = controls.reader_split(subject, site, best.subspace)
    if split is not None:
        report.update({"null_space_share": split.null_share, "iia_row_space": split.row_accuracy})
    others = _searched_controls(subject, variable, best, drawn, fitting, searches)
    # of a sample, pairs that share an example are not told apart by chance
    few = drawn.examples is not None
    pairs = len(test) if drawn.examples is None else drawn.examples // 2
    for name, every, how in others:
        iia = max(every)
        report.metric(f"iia_{name}", iia)
        report.metric(f"iia_{name}_by_seed", every)
        how += f", corrected for {pairs} pairs that share no example" * few
        null = controls.difference(f"iia_above_{name}", best.iia, iia, pairs, how, few=few)
        report.metric(null.metric, null.observed, null=null)


def _searched_controls(
    subject: Subject,
    variable: Variable,
    best: Cell,
    drawn: Drawn,
    fitting: Fitting,
    searches: int,
) -> list[tuple[str, list[float], str]]:
    """(name, accuracies, how) of the same search for arbitrary labels, and in untrained models,
    each with `searches` seeds.
    """
    assert subject.task is not None
    parts = (drawn.train, drawn.test)
    sites = [SwapSite(subject, part, *best.place) for part in parts]
    how = f"the best of {searches}, normal approximation of the difference of two shares"
    result = [("arbitrary", list[float](), f"the same search for arbitrary labels, {how}")]
    for seed in range(fitting.seed, fitting.seed + searches):
        labels = [controls.arbitrary_labels(site, variable, seed) for site in sites]
        options: dict[str, Any] = fitting.options() | {"seed": seed}
        subspace, _ = fit(sites[0], subject.task, best.dimension, **options, labels=labels[0])
        answers = interchange_accuracy(subject, sites[1], subspace, labels[1])
        result[0][1].append(mean(answers))
    if unmet_need(Need.REINITIALIZE, subject) is None:
        result.append(("untrained", [], f"the same search in the untrained model, {how}"))
        for seed in range(fitting.seed, fitting.seed + searches):
            initial = subject.untrained(seed)
            sites = [SwapSite(initial, part, *best.place) for part in parts]
            options = fitting.options() | {"seed": seed}
            subspace, _ = fit(sites[0], subject.task, best.dimension, **options)
            result[1][1].append(mean(interchange_accuracy(initial, sites[1], subspace)))
    return result
