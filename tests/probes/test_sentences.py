"""Sentences that other code refuted: each says now what an intervention or a null has shown."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import mechint
from mechint import planted, probes
from mechint.planted import trained
from mechint.planted.library import lookup
from mechint.probe.results import Scope
from mechint.probes._attention.probe import sampled
from mechint.probes.spectra import Spectrum
from mechint.subject import Subject


def by(subject: Subject, probe: str, **settings: object):
    return probes.run(probe, subject, **settings)


@pytest.fixture(scope="module")
def all_alike() -> Subject:
    return planted.modular_addition(23, tuple(range(1, 12))).subject


@pytest.mark.parametrize("probe", ["fourier", "clock-pizza", "progress"])
def test_a_rule_that_cannot_say_yes_does_not_say_no(all_alike, probe: str) -> None:
    finding = by(all_alike, probe).findings[0]
    assert finding.verdict == "unclear" and "flat spectrum" in finding.reason


@pytest.mark.parametrize("probe", ["fourier", "clock-pizza", "progress"])
def test_a_largest_cosine_that_few_permuted_samples_reach_is_not_denied(probe: str) -> None:
    """Of the two permutations of half-learned sums a few reach it: a rank by hand."""
    result = by(trained.half_trained(1), "fourier", removal_samples=9)
    null = result.null["logits.largest_cosine"]
    assert 0.002 < null.p_value <= 0.1 and result.metrics["logits.key_frequencies"] == []
    assert by(trained.half_trained(1), probe).findings[0].verdict == "unclear"


def test_a_head_below_the_least_score_is_denied_by_that_alone() -> None:
    """A planted head attends to the previous token everywhere, which beats random keys clearly."""
    subject = planted.induction_head(12, 6).subject
    least = by(subject, "attention", least=1.0, untrained=9)
    first = least.findings[0]
    assert least.null["previous_token.excess"].p_value <= 0.01 and first.verdict == "no"
    assert first.headline.endswith("by 1.")
    assert by(subject, "attention", untrained=9).findings[0].verdict == "yes"


def test_representations_of_a_small_group_cannot_stand_out() -> None:
    finding = by(lookup("groups", group="S3")["lookup"](0), "irreps").findings[0]
    assert finding.verdict == "unclear" and "flat spectrum" in finding.reason


@pytest.mark.parametrize("permutations", [99, 199])
def test_too_few_permutations_leave_a_planted_clock_unclear(permutations: int) -> None:
    subject = planted.modular_addition(13, (1, 4, 6), noise=0, seed=1).subject
    (finding,) = by(subject, "clock-pizza", permutations=permutations).findings
    assert finding.verdict == "unclear" and "takes 499" in finding.reason
    assert by(subject, "clock-pizza", permutations=499).verdict == "yes"


def test_effect_interval_and_p_of_a_row_are_of_one_statistic() -> None:
    subject = planted.modular_addition(37, (1, 4, 6), noise=0, seed=1).subject
    result = by(subject, "clock-pizza", triples=64)
    (finding,) = result.findings
    low, high = (result.metrics[f"gradient_symmetricity.{end}"] for end in ("low", "high"))
    assert finding.effect is not None and low <= finding.effect.value <= high
    assert finding.p_value is None and finding.null is None  # of the largest cosine
    assert any("largest_cosine" in name for name in finding.details)


def test_a_part_of_the_loss_is_called_a_part() -> None:
    """What one of three frequencies alone gives back of the loss is counted by hand."""
    subject = planted.modular_addition(23, (3, 7, 10)).subject
    part = by(subject, "progress", keys=(3,))
    (finding,) = part.findings
    loss, restricted = part.metrics["loss.all"], part.metrics["restricted_loss.all"]
    share = (math.log(23) - restricted) / (math.log(23) - loss)
    assert share < 0.9 and f"{share:.0%}" in finding.headline
    assert "part of the loss" in finding.headline and part.lead == ""
    whole = by(subject, "progress")
    assert "carry the loss" in whole.findings[0].headline and whole.metrics["carried"] > 0.99


def test_a_rank_somewhat_below_that_of_gaussian_rows_is_no_finding() -> None:
    """The shipped model of digits: 90% of its variance in 6.4 dimensions, of Gaussian rows in 7.1;
    by hand, from the singular values of the file's own embedding of the ten digits.
    """
    subject = mechint.load(mechint.example("digits.pt"))
    finding = next(one for one in by(subject, "embedding").findings if "rank" in one.headline)
    rows = subject.model.W_E.detach()[:10].double()
    held = torch.linalg.svdvals(rows - rows.mean(0)).square()
    assert int((held.cumsum(0) / held.sum() < 0.9).sum()) + 1 == 7
    assert finding.verdict == "no" and finding.effect is not None
    assert finding.effect.baseline is not None and 6 < finding.effect.value < 7
    assert 7 < finding.effect.baseline < 8


def test_the_share_of_a_sentence_is_that_of_the_frequencies_that_it_names() -> None:
    """A key of less than a hundredth of all stands out, and is in neither."""
    values = np.array([0.8, 0.5, 0.04, 0.001])
    made = Spectrum([1, 2, 3, 4], values, [1, 2, 3], values * 0, values, 0.8)
    assert made.named_keys == [1, 2] and math.isclose(made.named_share, 0.8**2 + 0.5**2)


def test_inputs_that_are_chosen_for_their_right_answers_are_not_called_drawn() -> None:
    subject = planted.modular_addition(7, (1, 2)).subject
    with torch.no_grad():
        subject.model.W_E[0] = 0
    subject = subject.with_limits()
    right = int(subject.correct().sum())
    assert 30 < right < 49
    (every,) = mechint.probe.run("attribution", subject).findings
    (some,) = mechint.probe.run("attribution", subject, examples=20).findings
    (swapped,) = mechint.probe.run("patching", subject, variable="x").findings
    assert f"the {right} of 49" in str(every.scope) and "drawn" not in str(every.scope)
    assert f"20 inputs drawn of the {right} that" in str(some.scope)
    assert "answers right" in str(swapped.scope) and "drawn" not in str(swapped.scope)
    (whole,) = mechint.probe.run("attribution", subject, only_correct=False).findings
    assert not str(whole.scope)
    assert str(every.scope.within([Scope(9)])) == "on 9 inputs drawn"
    assert Scope(99).within([every.scope]) == every.scope == every.scope.beside(Scope(right))


def test_a_finding_on_one_of_several_answers_says_which() -> None:
    subject = mechint.load(mechint.example("digits.pt"))
    named = [by(subject.with_answer(k), "lens").findings[0].scope.answers for k in (0, 1)]
    assert named == list(subject.task.answer_names[:2])


def test_examples_of_a_grid_are_drawn_and_not_every_second_one() -> None:
    """Every second input of a grid of even size has an even second operand."""
    subject = planted.modular_addition(24, (1, 5), noise=0, seed=1).subject
    seconds = sampled(subject, 0).tokens[:, 1] % 2
    assert 0.3 < float(seconds.double().mean()) < 0.7
