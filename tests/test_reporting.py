"""The gate: what is printed as found, as not found, and when a probe abstains."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom

import probes
from mechint import figures, planted
from mechint.config import ModelConfig
from mechint.decide import Claim, Skill
from mechint.decide.evidence import CHANCE_LEVEL
from mechint.decide.null import why_undecidable
from mechint.models.transformer import HookedTransformer
from mechint.probe import Need, Probe
from mechint.probe.report import Report, performance
from mechint.probe.results import Effect, Null, ProbeResult
from mechint.registry import TASKS
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


SAID = Claim("It is long.", no="It is short.", unclear="Is it long?")


@pytest.mark.parametrize(
    ("observed", "samples", "more", "verdict", "p_value", "reason"),
    [
        (2.0, 999, {}, "yes", 0.001, ""),
        (0.5, 999, {}, "no", 0.5, ""),
        (2.0, 999, {"holds": False}, "no", None, ""),
        (2.0, 999, {"effect": -1.0}, "no", None, "effect -1, at least 0 needed"),
        (2.0, 999, {"effect": 0.1, "least": 0.2}, "no", None, "effect 0.1, at least 0.2 needed"),
        (0.5, 999, {"effect": 0.5, "least": 0.8}, "no", 0.5, ""),
        (2.0, 999, {"effect": Effect(2.0, "cm"), "least": 0.2}, "yes", 0.001, ""),
        (2.0, 999, {"effect": Effect(2.5, "cm", baseline=0.5)}, "yes", 0.001, ""),
        (2.0, 999, {"alpha": 1e-4}, "unclear", None, "deciding at p ≤ 0.0001 takes 9999"),
        (2.0, 19, {}, "unclear", None, "19 null samples of length give no p below 0.05"),
        (2.0, 99, {}, "yes", 0.01, ""),
        (2.0, 999, {"n": 1}, "unclear", None, "1 input, where at least 2 are needed"),
        (float("nan"), 999, {}, "unclear", None, "not finite"),
    ],
)
def test_verdict_of_a_finding(
    right: Subject,
    observed: float,
    samples: int,
    more: dict[str, Any],
    verdict: str,
    p_value: float | None,
    reason: str,
) -> None:
    made = report(right, observed, samples)
    assert made.finding(SAID, **more) == verdict
    result = made.result()
    (finding,) = result.findings
    assert result.verdict == finding.verdict == verdict
    assert result.headline == finding.headline == getattr(SAID, verdict)
    assert finding.tested == ("length",) and reason in finding.reason
    assert bool(reason) == bool(finding.reason)
    if p_value is None:
        assert finding.p_value is None and finding.null is None and finding.p_text == ""
    else:
        assert finding.p_value == pytest.approx(p_value, rel=0.01)
        assert finding.null == f"rulers shuffled, {samples}"


@pytest.mark.parametrize("observed", [2.0, 0.5])
def test_the_p_value_of_another_statistic_stands_among_the_details(
    right: Subject, observed: float
) -> None:
    """A row whose effect is a width has no p-value of a length beside it."""
    made = report(right, observed)
    made.finding(SAID, Effect(0.3, "cm", "width", 0.1, "null"))
    (finding,) = made.result().findings
    assert finding.p_value is None and finding.null is None and finding.p_text == ""
    assert finding.details["length against rulers shuffled, 999"].startswith("p ")


def test_the_verdict_of_a_result_is_that_of_its_leading_finding(right: Subject) -> None:
    made, seen = report(right, 2.0), []
    for add in (
        lambda: made.unclear("Is it wide?", "there is no ruler"),
        lambda: made.finding(SAID, holds=False),
        lambda: made.finding(SAID),
    ):
        add()
        seen.append(made.result().verdict)
    assert seen == ["unclear", "no", "yes"]


def test_lead_hero_and_questions_that_were_not_asked(right: Subject) -> None:
    made = report(right, 0.5)
    made.finding(SAID)
    made.lead("It is a long one.")
    made.not_asked("width", "it has none")
    made.figure(
        "curve",
        figures.lines([0, 1], {"a": [0, 1]}, title="t", x_title="x", y_title="y", caption="c"),
    )
    made.hero("curve")
    result = made.result()
    assert result.lead == "" and result.hero == "curve"  # nothing was found, so nothing leads
    assert result.not_asked == (("width", "it has none"),)
    made.finding(SAID, null="length", alpha=0.6)
    assert made.result().lead == "It is a long one."


def test_a_doubt_decides_before_any_test_and_a_claim_that_stands_leads(right: Subject) -> None:
    made = Report(Ruler(), right)  # no null: nothing was measured
    assert made.finding(dataclasses.replace(SAID, doubt="it is bent", lead="Long.")) == "unclear"
    assert (made.findings[0].headline, made.findings[0].reason) == ("Is it long?", "it is bent")
    for observed, lead in ((0.5, ""), (2.0, "Long.")):
        made.metric("length", observed, null=np.linspace(0, 1, 999), how="rulers shuffled")
        made.finding(dataclasses.replace(SAID, lead="Long."))
        assert made.result().lead == lead


def test_all_nulls_named_have_to_be_beaten(right: Subject) -> None:
    made = report(right, 2.0)
    made.metric("width", 0.2, null=np.linspace(0, 1, 999), how="rulers turned")
    assert made.finding(SAID, null="length") == "yes"
    assert made.finding(SAID, null=("length", "width")) == "no"
    result = made.result()
    assert result.verdict == "yes"
    assert result.findings[1].null == "rulers turned, 999"  # the weaker of the two


def test_a_sentence_about_answers_needs_a_model_above_chance(right: Subject) -> None:
    made = report(right.untrained(0), 2.0)
    assert made.finding(SAID) == "unclear"
    assert made.finding(dataclasses.replace(SAID, at_chance=True)) == "yes"
    said = made.result().findings
    assert said[0].reason and said[0].accuracy is not None
    assert said[1].accuracy is None


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
    config = ModelConfig.for_task(task, d_model=8, n_heads=1)
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
        rows = [Skill(hits / n, 0.5, n, float(tails[hits]), outputs) for hits in range(n + 1)]
        one = max(row.p_value for row in rows if row.beats_chance)
        assert CHANCE_LEVEL / 3 < 1 - (1 - one) ** outputs <= CHANCE_LEVEL
    row = Skill(1.0, 0.5, 13, 0.5**13)
    assert row.beats_chance and not dataclasses.replace(row, questions=29).beats_chance


def test_the_outputs_of_an_example_that_answers_them_all_are_corrected_for() -> None:
    rows = performance(planted.composition().subject.with_answer("all"))
    assert len(rows) > 1 and {row.questions for row in rows} == {len(rows)}
    barely = dataclasses.replace(rows[0], p_value=CHANCE_LEVEL)
    assert not barely.beats_chance and dataclasses.replace(barely, questions=1).beats_chance


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
    result = probes.lens(own)
    assert result.verdict == "unclear" and result.null["lens.final_accuracy"].p_value == 1.0


def test_a_subject_without_classes_has_no_performance() -> None:
    plant = planted.bottleneck(width=4, n=12, n_tasks=3, rank=4)
    assert performance(plant.subject) == ()
    assert performance(Subject(plant.subject.model, None)) == ()
    assert report(plant.subject, 2.0).finding(SAID) == "yes"


def test_only_a_probe_that_intervenes_may_say_causal(right: Subject) -> None:
    with pytest.raises(AssertionError, match="ruler does not intervene"):
        report(right, 2.0).finding(dataclasses.replace(SAID, causal=True))
    made = report(right, 2.0, probe=Knife())
    made.finding(dataclasses.replace(SAID, causal=True))
    assert made.result().findings[0].causal


def test_a_report_needs_a_null_and_a_sentence(right: Subject) -> None:
    made = Report(Ruler(), right)
    with pytest.raises(AssertionError, match="a finding needs a null"):
        made.finding(SAID)
    with pytest.raises(AssertionError, match="a report needs a finding"):
        made.result()
    made.unclear("Is it long?", "there is no ruler")
    assert made.result().verdict == "unclear"


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_a_null_with_a_sample_that_is_not_finite_decides_nothing(odd: float) -> None:
    """One of 999 samples: p would be 1/1000 or 2/1000, small enough."""
    null = Null.sampled("length", 1.0, [0.0] * 998 + [odd], "")
    assert null.p_value <= 0.002
    assert why_undecidable([null], 0.01) == "length or its null is not finite"


def test_needs_are_checked_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match=r"needs has 'atention'; expected members of mechint\.Need"):

        class Wrong(Ruler):
            needs = (Need.TASK, "atention")  # type: ignore[assignment]
