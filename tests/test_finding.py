"""The gate: what is printed as found, as not found, and when a probe abstains."""

from __future__ import annotations

import ast
import copy
import dataclasses
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom

import probes
from mechint import planted
from mechint.config import ModelConfig
from mechint.finding import (
    CHANCE_LEVEL,
    Performance,
    Report,
    best_output,
    performance,
    with_evidence,
)
from mechint.models.transformer import HookedTransformer
from mechint.null import LUCK, samples_needed, why_undecidable
from mechint.probe import Need, Probe
from mechint.registry import TASKS
from mechint.results import Null, ProbeResult
from mechint.subject import Subject


@dataclasses.dataclass(frozen=True)
class Ruler(Probe):
    """How long is it?"""

    name = "ruler"
    source = "nobody"

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        raise NotImplementedError


class Knife(Ruler):
    """What happens when it is cut?"""

    intervenes = True


@pytest.fixture(scope="module")
def right() -> Subject:
    return planted.modular_addition(11, (2, 3)).subject


def report(
    subject: Subject, observed: float, samples: int = 999, probe: Probe | None = None
) -> Any:
    made = Report(probe or Ruler(), subject)
    made.metric("length", observed, null=np.linspace(0, 1, samples), how="rulers shuffled")
    return made


SAID: dict[str, str] = {"sentence": "It is long.", "otherwise": "It has length 1"}


@pytest.mark.parametrize(
    ("observed", "samples", "more", "status", "text"),
    [
        (2.0, 999, {}, "found", "It is long (p ≤ 0.001, null: rulers shuffled)."),
        (0.5, 999, {}, "not found", "It has length 1 (p = 0.5, null: rulers shuffled)."),
        (2.0, 999, {"holds": False}, "not found", "shuffled; but that alone does not decide)."),
        (
            2.0,
            999,
            {"effect": -1.0},
            "not found",
            "effect, -1, is not above the least asked, 0",
        ),
        (
            2.0,
            999,
            {"effect": 0.1, "least": 0.2},
            "not found",
            "is not above the least asked, 0.2",
        ),
        (0.5, 999, {"effect": 0.1, "least": 0.2}, "not found", "(p = 0.5, null: rulers shuffled)."),
        (2.0, 999, {"effect": 0.0}, "not found", "the effect, 0, is not above the least asked, 0"),
        (2.0, 999, {"effect": 0.3, "least": 0.2}, "found", "It is long"),
        (2.0, 999, {"alpha": 1e-4}, "abstains", "deciding at p ≤ 0.0001 takes 9999"),
        (2.0, 19, {}, "abstains", "Abstains: 19 null samples of length give no p below 0.05"),
        (2.0, 99, {}, "found", "p ≤ 0.01"),
        (2.0, 999, {"n": 1}, "abstains", "Abstains: 1 examples, where at least 2 are needed."),
        (2.0, 999, {"n": 9, "least_n": 10}, "abstains", "at least 10 are needed"),
        (2.0, 999, {"n": 10, "least_n": 10}, "found", "It is long"),
        (float("nan"), 999, {}, "abstains", "length or its null is not finite"),
    ],
)
def test_what_is_said(
    right: Subject, observed: float, samples: int, more: dict[str, Any], status: str, text: str
) -> None:
    made = report(right, observed, samples)
    assert made.finding(**SAID, **more) == status
    result = made.result()
    assert result.status == status and text in result.finding
    assert result.findings[0].tested == ("length",)


def test_an_abstention_says_what_it_does_not_decide(right: Subject) -> None:
    made, question = report(right, 2.0, 19), "whether it is long"
    assert made.finding(**SAID, question=question) == "abstains"
    made.abstain("there is no ruler.", question)
    first, second = (finding.sentence for finding in made.findings)
    assert first.startswith("Abstains: whether it is long cannot be decided: 19 null samples")
    assert second == "Abstains: whether it is long cannot be decided: there is no ruler."
    assert made.finding(**SAID, question=question, alpha=0.05) == "found"
    assert "whether" not in made.findings[-1].sentence


def test_a_result_is_found_where_any_sentence_is_and_else_not_found_where_any_was_tested(
    right: Subject,
) -> None:
    made, seen = report(right, 2.0), []
    for add in (
        lambda: made.abstain("there is no ruler."),
        lambda: made.finding(**SAID, holds=False),
        lambda: made.finding(**SAID),
    ):
        add()
        seen.append(made.result().status)
    assert seen == ["abstains", "not found", "found"]


def test_every_sentence_of_the_probes_says_what_is_decided() -> None:
    folder = Path(probes.__file__).parent
    calls = [
        (path.name, node)
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "finding"
    ]
    assert len(calls) > 30
    for name, call in calls:
        assert "question" in {one.arg for one in call.keywords}, f"{name}:{call.lineno}"


def test_all_nulls_named_have_to_be_beaten(right: Subject) -> None:
    made = report(right, 2.0)
    made.metric("width", 0.2, null=np.linspace(0, 1, 999), how="rulers turned")
    assert made.finding(**SAID, null="length") == "found"
    assert made.finding(**SAID, null=("length", "width")) == "not found"
    result = made.result()
    assert result.status == "found"
    assert "null: rulers turned" in result.findings[1].sentence  # the weaker of the two


def test_a_sentence_about_answers_needs_a_model_above_chance(right: Subject) -> None:
    made = report(right.untrained(0), 2.0)
    assert made.finding(**SAID) == "abstains"
    assert made.finding(**SAID, at_chance=True) == "found"
    said = made.result().findings
    assert "not shown to answer better than chance (accuracy" in said[0].sentence
    assert said[0].accuracy is not None and said[1].accuracy is None


def test_performance_is_a_binomial_test_against_the_best_constant(right: Subject) -> None:
    untrained = right.untrained(0)
    for subject, beats in ((right, True), (untrained, False)):
        (row,) = performance(subject)
        hits, chance = round(row.accuracy * row.n), 1 / 11
        assert row.n == 121 and row.chance == pytest.approx(chance)
        assert row.accuracy == pytest.approx(subject.accuracy()[row.output])
        assert row.p_value == pytest.approx(binom.sf(hits - 1, row.n, chance))
        assert row.beats_chance is beats is (row.p_value <= CHANCE_LEVEL)


def test_an_example_given_many_times_is_one_example(right: Subject) -> None:
    often = right.with_data(right.data[torch.arange(4).repeat(20)])
    (row,), (once,) = performance(often), performance(right.with_data(right.data[:4]))
    assert (row.n, once.n) == (80, 4) and row.accuracy == once.accuracy == 1
    assert row.p_value == once.p_value == pytest.approx(once.chance**4)
    untrained = right.untrained(0)
    uneven = untrained.with_data(right.data[torch.arange(121).repeat_interleave(3)])
    assert performance(uneven)[0].p_value == performance(untrained)[0].p_value


def test_the_answers_of_one_example_are_one_example() -> None:
    """The signs of one sequence hang together, so a sequence counts once, by its share of hits."""
    task = TASKS["running-sign"](length=15)
    config = ModelConfig(d_vocab=task.d_vocab, d_vocab_out=3, n_ctx=15, d_model=8, n_heads=1)
    for seed in range(3):
        whole = Subject(HookedTransformer(config, seed=seed), task, answer="all")
        subject = whole.with_data(whole.data[12 * seed : 12 * seed + 12])
        (row,), right = performance(subject), subject.correct()[:, 0].double()
        shares = right.view(12, 15).mean(1)
        assert (row.n, row.accuracy) == (180, pytest.approx(float(right.mean())))
        assert row.p_value == pytest.approx(binom.sf(int(shares.sum()) - 1, 12, row.chance))
        assert not row.beats_chance


def test_the_best_of_many_outputs_is_held_against_all_of_them() -> None:
    """29 outputs of which none knows anything: one of them beats chance as often as the level says,
    by the exact binomial.
    """
    n = 400
    for outputs in (1, 29):
        tails = binom.sf(np.arange(n + 1) - 1, n, 0.5)
        rows = [
            Performance("a", hits / n, 0.5, n, float(tails[hits]), outputs) for hits in range(n + 1)
        ]
        one = max(row.p_value for row in rows if row.beats_chance)
        assert CHANCE_LEVEL / 3 < 1 - (1 - one) ** outputs <= CHANCE_LEVEL
    row = Performance("a", 1.0, 0.5, 13, 0.5**13)
    assert row.beats_chance and not dataclasses.replace(row, outputs=29).beats_chance


def test_the_best_output_is_the_one_least_likely_by_chance() -> None:
    sure, lucky = Performance("a", 0.6, 0.5, 900, 1e-9, 2), Performance("b", 1.0, 0.5, 2, 0.25, 2)
    assert best_output([lucky, sure]) is best_output([sure, lucky]) is sure
    assert best_output([]) is None


def test_only_outputs_that_are_asked_are_counted() -> None:
    subject = planted.composition().subject
    subject = subject.with_data(subject.data[:16])
    rows = performance(subject)
    assert subject.task is not None and 0 < len(rows) < len(subject.task.outputs)
    assert {row.outputs for row in rows} == {len(rows)}


def test_the_outputs_of_an_example_that_answers_them_all_are_corrected_for() -> None:
    rows = performance(planted.composition().subject.with_answer("all"))
    assert len(rows) > 1 and {row.outputs for row in rows} == {len(rows)}
    barely = dataclasses.replace(rows[0], p_value=CHANCE_LEVEL)
    assert not barely.beats_chance and dataclasses.replace(barely, outputs=1).beats_chance


def test_on_some_examples_chance_is_their_commonest_answer(right: Subject) -> None:
    targets = right.targets[:, 0]
    some = (targets == 5) & (right.data.tokens[:, 0] < 4)
    of_two = right.with_data(right.data[(targets == 3) | some])
    (row,) = performance(of_two)
    assert (row.n, row.accuracy) == (15, 1.0) and row.chance == pytest.approx(11 / 15)
    assert row.p_value == pytest.approx((11 / 15) ** 15) and not row.beats_chance
    constant = right.with_model(copy.deepcopy(right.model))
    with torch.no_grad():
        constant.model.embed.W_E.zero_()
    said = int(constant.logits()[0].argmax())
    (whole,), own = performance(constant), constant.with_data(constant.data[targets == said])
    assert whole.chance == pytest.approx(1 / 11) and not whole.beats_chance
    (row,) = performance(own)  # all right, and so is the answer that it always gives
    assert (row.accuracy, row.chance, row.p_value) == (1.0, 1.0, 1.0) and not row.beats_chance
    result = probes.lens(own, permutations=199)
    assert result.status == "abstains" and result.null["lens.final_accuracy"].p_value == 1.0


def test_a_subject_without_classes_has_no_performance() -> None:
    plant = planted.bottleneck(width=4, n=12, n_tasks=3, rank=4)
    assert performance(plant.subject) == ()
    assert performance(Subject(plant.subject.model, None)) == ()
    assert report(plant.subject, 2.0).finding(**SAID) == "found"


def test_only_a_probe_that_intervenes_may_say_causal(right: Subject) -> None:
    with pytest.raises(AssertionError, match="ruler does not intervene"):
        report(right, 2.0).finding(**SAID, causal=True)
    made = report(right, 2.0, probe=Knife())
    made.finding(**SAID, causal=True)
    assert made.result().findings[0].causal


def test_a_report_needs_a_null_and_a_sentence(right: Subject) -> None:
    made = Report(Ruler(), right)
    with pytest.raises(AssertionError, match="a finding needs a null"):
        made.finding(**SAID)
    with pytest.raises(AssertionError, match="a report needs a finding"):
        made.result()
    made.abstain("there is no ruler.")
    assert made.result().finding == "Abstains: there is no ruler."
    assert made.result().status == "abstains"


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.005, 0.002, 1 / 3])
def test_so_many_samples_reach_the_level_and_one_fewer_does_not(alpha: float) -> None:
    enough = samples_needed(alpha)
    assert Null.sampled("m", 1, [0.0] * enough, "").floor <= alpha * (1 + 1e-9)
    assert Null.sampled("m", 1, [0.0] * (enough - 1), "").floor > alpha


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_a_null_with_a_sample_that_is_not_finite_decides_nothing(odd: float) -> None:
    """One of 999 samples: p would be 1/1000 or 2/1000, small enough."""
    null = Null.sampled("length", 1.0, [0.0] * 998 + [odd], "")
    assert null.p_value <= 0.002
    assert why_undecidable([null], 0.01) == "length or its null is not finite"


@pytest.mark.parametrize(("reached", "denies"), [(1, False), (2, True), (3, True)])
def test_samples_that_luck_alone_does_not_explain_deny_a_perfect_mechanism(
    reached: int, denies: bool
) -> None:
    """Each sample is the observed arrangement once in 3,000 times."""
    samples = [1.0] * reached + [0.0] * (499 - reached)
    null = Null.sampled("length", 1.0, samples, "", 3000)
    assert (binom.sf(reached - 1, 499, 1 / 3000) < LUCK) == denies
    assert (null.too_few_arrangements(0.002) is None) == denies


def test_too_few_samples_are_not_called_too_few_arrangements() -> None:
    null = Null.sampled("length", 1.0, [0.0] * 19, "", 3000)
    assert null.too_few_arrangements(0.01) is None
    assert "19 null samples of length give no p below 0.05" in str(why_undecidable([null], 0.01))


def test_z_is_in_standard_deviations_of_the_samples() -> None:
    samples = [0.1, 0.4, 0.2, 0.9]
    null = Null.sampled("length", 2.0, samples, "")
    assert null.z == pytest.approx((2.0 - statistics.fmean(samples)) / statistics.stdev(samples))


def test_a_closed_form_has_no_floor() -> None:
    null = Null("m", 1.0, 0.0, 1.0, 1e-12, "normal")
    assert null.floor == 0 and null.p_text == "p = 1e-12"
    assert with_evidence("So it is", [null]) == "So it is (p = 1e-12, null: normal)."


def test_needs_are_checked_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match=r"needs has 'atention'; expected members of mechint\.Need"):

        class Wrong(Ruler):
            needs = (Need.TASK, "atention")  # type: ignore[assignment]
