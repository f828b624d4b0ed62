"""What DAS chooses and says of a search whose accuracies are made up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mechint import planted
from mechint.reporting import Report
from mechint.results import Null
from mechint.subject import Subject
from probes._das import DAS
from probes._das.search import Cell, best_cell
from probes._das.views import say, sweep_table

THRESHOLD, MOST_INPUT, HELD_OUT = 0.9, 0.5, 1000
POST, PRE = "blocks.0.hook_resid_post", "blocks.0.hook_resid_pre"
OTHERS = " (others, of {}, reach the threshold, not held against controls): swapping"


@pytest.fixture(scope="module")
def subject() -> Subject:
    return planted.comparison(n=8).subject


def cell(dimension: int, trained: float, held_out: float, hook: str = POST, **more: Any) -> Cell:
    correct = (torch.arange(HELD_OUT) < round(HELD_OUT * held_out)).float()[:, None]
    measured = {"full_swap": 1.0, "full_swap_minimal": 1.0, "random": 0.1, "input_share": 0.05}
    subspace = torch.eye(16)[:, :dimension]
    return Cell((hook, None), dimension, subspace, [1.0], trained, correct, **measured | more)


def said(
    subject: Subject, found: list[Cell], p_value: float = 0.001, best: Cell | None = None
) -> tuple[str, str]:
    """Status and sentence of the search; `best` in place of the one it chooses."""
    probe = DAS(variable="rank of a", threshold=THRESHOLD)
    best = best_cell(found, THRESHOLD, MOST_INPUT) if best is None else best
    report = Report(probe, subject)
    report.update({"values": 3, "values_told_apart": 3, "iia_random": 0.1})
    report.update({"iia_mean_difference": 0.5, "iia_arbitrary": 0.2})
    variable = next(one for one in subject.task.variables.values() if one.name == "rank of a")
    for name, p in (("iia", 0.001), ("iia_norm_matched", 0.001), ("iia_above_arbitrary", p_value)):
        report.metric(name, 0.9, null=Null(name, 0.9, 0.1, 0.1, p, "made up"))
    pairs: Any = type("Pairs", (), {"changed": slice(None), "__len__": lambda _: HELD_OUT})()
    probe._describe(report, subject, variable, best, found, pairs)
    say(report, best, found, THRESHOLD, MOST_INPUT)
    return report.findings[0].verdict, report.findings[0].headline


def test_the_smallest_with_accuracy_to_spare_is_chosen(subject: Subject) -> None:
    found = [cell(8, 0.98, 0.97), cell(4, 0.95, 0.94), cell(2, 0.905, 0.895)]
    status, text = said(subject, found)
    assert status == "yes"
    assert text.startswith(f"A 4-dimensional subspace of {POST} @ answer holds rank of a: ")
    assert "reach the threshold" not in text
    # where none has it to spare: the one with the most
    close = [cell(8, 0.903, 0.9), cell(4, 0.91, 0.9), cell(2, 0.905, 0.9)]
    assert best_cell(close, THRESHOLD, MOST_INPUT).dimension == 4
    assert best_cell([cell(8, 1, 1), cell(1, 1, 1)], 1.0, MOST_INPUT).dimension == 1


def test_the_choice_does_not_look_at_the_pairs_that_judge_it() -> None:
    """Else the accuracy on them were the best of as many as are tried."""
    found = [cell(2, 0.97, 0.8), cell(2, 0.8, 0.97, PRE)]
    assert best_cell(found, THRESHOLD, MOST_INPUT) is found[0]


@pytest.mark.parametrize(
    ("any_source", "minimal", "verdict"),
    [
        (1.0, 0.5, "full swap fails"),  # a source that differs in more swaps more
        (0.5, 1.0, "holds"),
        (0.5, float("nan"), "full swap fails"),  # no minimal pairs
        (1.0, float("nan"), "holds"),
    ],
)
def test_a_full_swap_is_of_minimal_pairs_where_there_are_any(
    any_source: float, minimal: float, verdict: str
) -> None:
    one = cell(2, 0.97, 0.96, full_swap=any_source, full_swap_minimal=minimal)
    assert one.verdict(THRESHOLD, MOST_INPUT) == verdict


def test_of_two_subspaces_of_one_size_the_more_accurate_is_chosen() -> None:
    found = [cell(2, 0.97, 0.96), cell(2, 0.98, 0.96, PRE), cell(2, 0.96, 0.96)]
    assert best_cell(found, THRESHOLD, MOST_INPUT) is found[1]


def test_what_is_chosen_seldom_falls_below_by_chance() -> None:
    """Subspaces as good as their training pairs say, one of them at the threshold itself: drawn
    2000 times, on held-out pairs what was chosen falls below in about one of 40 or fewer.
    """
    draw = np.random.default_rng(0)
    truth = {8: 0.98, 4: 0.95, 2: 0.92, 1: 0.9}
    fallen = 0
    for _ in range(2000):
        trained = {size: draw.binomial(2048, p) / 2048 for size, p in truth.items()}
        found = [cell(size, share, 0.0) for size, share in trained.items()]
        chosen = best_cell(found, THRESHOLD, MOST_INPUT).dimension
        fallen += draw.binomial(HELD_OUT, truth[chosen]) / HELD_OUT < THRESHOLD
    assert fallen / 2000 < 0.025


def test_no_is_said_only_where_nothing_holds(subject: Subject) -> None:
    one, another = cell(2, 0.96, 0.89), cell(2, 0.95, 0.95, PRE)
    status, text = said(subject, [cell(8, 0.95, 0.95), one, another], best=one)
    assert status == "no" and "No subspace tried" not in text
    assert f"A 2-dimensional subspace of {POST} @ answer, chosen on training pairs" in text
    assert "falls short of the threshold, 0.9, on held-out pairs" in text and "89.0%" in text
    assert OTHERS.format(f"{POST} @ answer, {PRE} @ answer") in text
    status, text = said(subject, [cell(2, 0.8, 0.8), cell(1, 0.7, 0.7)])
    assert status == "no"
    assert "No subspace tried holds rank of a; the one chosen on training pairs is a 2-dim" in text


def test_a_null_that_is_not_beaten_is_not_told_from_chance(subject: Subject) -> None:
    status, text = said(subject, [cell(2, 0.96, 0.95)], p_value=0.02)
    assert status == "no"
    assert text.startswith("What holds rank of a is not told from chance: the one chosen is a 2-")
    assert "No subspace tried" not in text and "p = 0.02" in text


def test_sites_without_controls_are_not_said_to_hold(subject: Subject) -> None:
    found = [cell(2, 0.96, 0.95), cell(2, 0.96, 0.94, PRE)]
    status, text = said(subject, found)
    assert status == "yes"
    assert "is held at" not in text and OTHERS.format(f"{PRE} @ answer") in text
    assert sweep_table(found, THRESHOLD, MOST_INPUT).columns["verdict"] == ["holds", "holds"]


def test_a_site_that_holds_is_not_said_to_carry_inputs(subject: Subject) -> None:
    """More dimensions of the same site swap the inputs, too."""
    found = [cell(8, 0.99, 0.99, input_share=0.9), cell(2, 0.96, 0.95)]
    status, text = said(subject, found)
    assert status == "yes" and "carries" not in text
    _, text = said(subject, [*found, cell(8, 0.99, 0.99, PRE, input_share=0.9)])
    assert f"{PRE} @ answer carries the inputs" in text
