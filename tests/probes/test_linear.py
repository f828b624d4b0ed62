"""Linear probes against plain formulas, planted directions and control tasks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError, UnknownNameError
from mechint.models.transformer import HookedTransformer
from mechint.probe.report import Report
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.task import Batch
from probes._linear import Discriminant, Linear, Ridge, choose_penalty
from probes._linear.probe import Scored, new_rows, say

NUMBER = {"kind": "number", "hook": "hook_embed", "pos": 0, "variable": "rank of a"}


def test_the_penalty_is_relative_to_the_variance_whatever_the_number_of_inputs() -> None:
    """(XᵀX/n + λI)⁻¹Xᵀy/n with λ the mean variance times the penalty; n copies change nothing."""
    draw = np.random.default_rng(5)
    x, y = draw.normal(size=(50, 4)) * [1, 2, 3, 4], draw.normal(size=50)
    matrix = np.cov(x.T, bias=True) + 0.3 * x.var(0).mean() * np.eye(4)
    expected = np.linalg.inv(matrix) @ ((x - x.mean(0)).T @ (y - y.mean()) / 50)
    assert Ridge(x, 0.3).weights(y) == pytest.approx(expected)
    assert Ridge(np.tile(x, (10, 1)), 0.3).weights(np.tile(y, 10)) == pytest.approx(expected)


def test_a_control_below_chance_adds_nothing_to_the_selectivity() -> None:
    """R² of a control task is often below 0."""
    columns = (
        Linear(**NUMBER, permutations=19)
        .run(planted.comparison(n=12).subject)
        .tables["scores"]
        .columns
    )
    _, _, scores, controls, selectivity, _ = columns.values()
    assert min(controls) < 0
    for score, control, found in zip(scores, controls, selectivity, strict=True):
        assert found == pytest.approx(score - max(control, 0.0))


def test_r2_is_one_minus_residual_over_variance() -> None:
    draw = np.random.default_rng(1)
    x, y, x_new, y_new = (
        draw.normal(size=(30, 3)),
        draw.normal(size=30),
        draw.normal(size=(10, 3)),
        draw.normal(size=10),
    )
    design = np.concatenate([x, np.ones((30, 1))], 1)
    said = np.concatenate([x_new, np.ones((10, 1))], 1) @ np.linalg.lstsq(design, y, rcond=None)[0]
    expected = 1 - ((y_new - said) ** 2).sum() / ((y_new - y.mean()) ** 2).sum()
    assert Ridge(x, 0.0).score(y, x_new, y_new) == pytest.approx(expected)


def test_the_discriminant_is_bayes_rule_for_equal_normal_classes() -> None:
    """Among classes of equal size the nearest mean in the Mahalanobis distance within classes
    wins.
    """
    draw = np.random.default_rng(2)
    labels = np.repeat([3, 5, 8], 30)
    x = (
        draw.normal(size=(90, 4)) @ draw.normal(size=(4, 4))
        + draw.normal(size=(3, 4))[np.repeat([0, 1, 2], 30)]
    )
    means = np.stack([x[labels == label].mean(0) for label in (3, 5, 8)])
    within = (
        sum(
            (x[labels == label] - mean).T @ (x[labels == label] - mean)
            for label, mean in zip((3, 5, 8), means, strict=True)
        )
        / 90
    )
    away = x[:, None] - means
    said = np.array([3, 5, 8])[
        np.einsum("nci,ij,ncj->nc", away, np.linalg.inv(within), away).argmin(1)
    ]
    assert Discriminant(x, 0.0).score(labels, x, labels) == pytest.approx((said == labels).mean())


def test_the_answer_is_found_where_it_is_computed() -> None:
    result = Linear(permutations=199).run(
        planted.modular_addition(13, (2, 3), rotation_seed=2).subject
    )
    assert result.metrics["linear.best_variable"] == "answer"
    assert result.metrics["linear.answer.best_at"] == "L0 MLP"
    assert result.metrics["linear.answer.accuracy"] == 1.0
    assert Linear().detects(result)
    # an operand is read as well as any relabeling of it: nothing was computed
    assert abs(result.metrics["linear.x.selectivity"]) < 0.2


def test_a_variable_is_held_against_all_that_were_probed() -> None:
    """Each beats its own shuffles; only one beats the largest of both."""
    subject = planted.comparison(20).subject
    nulls = {"a": np.linspace(0, 0.5, 199), "b": np.linspace(0, 0.9, 199)}

    def said(a: float, b: float, names: str) -> Report:
        report, scored = Report(Linear(), subject), {}
        for name, score in (("a", a), ("b", b)):
            if name in names:
                one = Scored({"x": score}, {"x": 0.0}, {"x": 0.0}, nulls[name], math.inf, 20)
                report.metric(f"linear.{name}.r2", score, null=one.null, how="shuffled")
                scored[name] = one
        say(report, scored, score="r2", control="shuffled")
        return report

    def level(score: float) -> float:
        """By hand: 0 at the median shuffle, 1 at certainty; b's largest is (.9 - .45) / .55."""
        above = (score - 0.25) / 0.75
        pairs = zip(nulls["a"], nulls["b"], strict=True)
        largest = [max((x - 0.25) / 0.75, (y - 0.45) / 0.55) for x, y in pairs]
        return (1 + sum(one >= above for one in largest)) / 200

    assert said(0.6, 0.95, "a").findings[0].verdict == "yes"
    report = said(0.6, 0.1, "ab")
    assert report.nulls["linear.a.r2"].p_value == 0.005
    assert report.nulls["linear.best_above_shuffled"].p_value == level(0.6) > 0.1
    assert report.findings[0].verdict == "no"
    report = said(0.6, 0.95, "ab")  # b alone, although a, too, beats its own shuffles
    assert report.findings[0].verdict == "yes"
    assert report.metrics["linear.decodable"] == ["b"]
    assert said(0.99, 0.999, "ab").metrics["linear.decodable"] == ["a", "b"]


@pytest.mark.parametrize("variable", ["a < b", "rank of a", None])
@pytest.mark.parametrize("n", [4, 5])
def test_few_values_along_a_line_cannot_be_decided(n: int, variable: str | None) -> None:
    """5!/2 orders, of which one is perfect; of two values none is left to hold out."""
    subject = planted.comparison(n).subject
    result = Linear(kind="number", hook="hook_embed", pos=0, variable=variable).run(subject)
    assert result.verdict == "unclear", result.finding
    assert all("too few values, which" in one.reason for one in result.findings)
    if variable == "a < b":
        assert math.isnan(result.metrics["linear.a < b.r2"])
        assert result.null["linear.a < b.r2"].p_value == 1


@pytest.mark.parametrize(
    ("early", "control", "first"), [(0.9, 0.2, "early"), (0.5, 0.2, "late"), (0.9, 0.7, "late")]
)
def test_the_first_place_from_which_a_variable_is_decoded_is_named(
    early: float, control: float, first: str
) -> None:
    """Of five values certainty has a selectivity of 0.8: 0.7 is more than half, 0.3 and 0.2 are
    not; the best place is another."""
    subject = planted.modular_addition(5, (1,)).subject
    report, controls = Report(Linear(), subject), {"early": control, "late": 0.2}
    scores, ridge = {"early": early, "late": 1.0}, dict.fromkeys(controls, 0.0)
    found = Scored(scores, controls, ridge, np.linspace(0, 0.3, 199), math.inf, 100, 0.8)
    assert subject.task is not None
    Linear()._record(report, subject, subject.task.variables["x"], {}, found)
    assert report.metrics["linear.x.first_at"] == first
    assert report.metrics["linear.x.best_at"] == "late"
    say(report, {"x": found}, score="accuracy", control="shuffled")
    (finding,) = report.findings
    assert finding.verdict == "yes" and finding.effect is not None
    assert (finding.effect.value, finding.effect.baseline) == (1.0, 0.2)
    assert first in finding.headline


def test_tokens_whose_relabelings_are_decoded_as_well_are_not_denied() -> None:
    """Operands stand at the answer from the attention on, as any relabeling of them does; the sum
    is computed nowhere, and only that is denied.
    """
    task = TASKS["modular-arithmetic"](p=11)
    model = HookedTransformer(ModelConfig.for_task(task, d_model=64, n_heads=1), seed=0)
    result = Linear().run(Subject(model, task))
    (finding,) = result.findings
    assert result.metrics["linear.x.accuracy"] > 0.9 and finding.verdict != "yes"
    assert "'answer'" in finding.headline and "'x'" not in finding.headline
    assert [question[:3] for question, _ in result.not_asked] == ["'x'", "'y'"]
    (alone,) = Linear(variable="x").run(Subject(model, task)).findings
    assert alone.verdict == "unclear"


def test_what_one_token_tells_is_held_against_other_functions_of_it() -> None:
    """The sum up to the first number is that number, which no model has to compute; a later token
    that spells an answer out is none that it was computed from.
    """
    task = TASKS["running-sign"](largest=6, length=3)
    model = HookedTransformer(ModelConfig.for_task(task, d_model=32, n_heads=1), seed=0)
    result = Linear(variable="total_0", pos=0, permutations=9).run(Subject(model, task))
    assert result.metrics["linear.total_0.accuracy"] > 0.95
    assert result.metrics["linear.total_0.selectivity"] < 0.1
    task = TASKS["sorted-list"](n=4, length=3)
    model = HookedTransformer(ModelConfig.for_task(task, d_model=64, n_heads=1), seed=0)
    subject = Subject(model, task)
    variable, first = task.variables["smallest_0"], subject.data.tokens[:, 4]
    assert torch.equal(variable.value_of(subject.data.tokens), first)
    result = Linear(variable="smallest_0", permutations=9).run(subject.with_answer(0))
    assert result.metrics["linear.smallest_0.selectivity"] > 0.3


def test_nothing_is_decoded_or_denied_where_all_inputs_are_the_same() -> None:
    """Where "=" stands the embedding is that of "=", whatever the operands are."""
    subject = planted.modular_addition(11, (3,)).subject
    assert len(subject.data.tokens[:, 2].unique()) == 1
    (finding,) = (
        Linear(variable="x", hook="hook_embed", pos=2, permutations=9).run(subject).findings
    )
    assert finding.verdict == "unclear" and "same in all inputs" in finding.reason


def test_unknown_variables_and_hooks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = planted.modular_addition(5, (1,)).subject
    with pytest.raises(UnknownNameError, match="did you mean 'answer'"):
        Linear(variable="anser").run(subject)
    with pytest.raises(UnknownNameError, match=r"unknown hook 'blocks\.0\.mlp\.hook_pst'"):
        Linear(hook="blocks.0.mlp.hook_pst").run(subject)
    monkeypatch.setattr(type(subject.task), "variables", {})
    with pytest.raises(NotApplicableError, match="no causal variables"):
        Linear().run(subject)


def test_the_penalty_is_the_best_on_the_validation_part() -> None:
    draw = np.random.default_rng(3)
    x, noise = draw.normal(size=(60, 40)), draw.normal(size=60)
    y, fit = x[:, 0] + 3 * noise, np.arange(60) < 45
    chosen = choose_penalty(Ridge, x, y, fit, (0.0, 1e-2, 1.0, 100.0))
    scores = {
        penalty: Ridge(x[fit], penalty).score(y[fit], x[~fit], y[~fit])
        for penalty in (0.0, 1e-2, 1.0, 100.0)
    }
    assert scores[chosen] == max(scores.values())
    assert chosen > 0  # 40 noisy coordinates from 45 inputs


def test_an_input_that_is_there_twice_is_not_held_out_of_itself() -> None:
    """Random weights, wide enough to know 49 inputs one by one, each of which is there eight times:
    half of the examples tell the answers of the other half, half of the inputs do not.
    """
    task = TASKS["modular-arithmetic"](p=7)
    config = ModelConfig.for_task(task, d_model=64, n_heads=1, d_mlp=128)
    subject = Subject(HookedTransformer(config, seed=0), task)
    eight = subject.with_data(Batch.cat([subject.data] * 8))
    x = eight.activation("blocks.0.hook_resid_post", at="answer").double().numpy()
    labels = eight.targets[:, 0].numpy()
    half = np.random.default_rng(0).permutation(len(x)) < len(x) // 2
    assert Discriminant(x[half], 1e-6).score(labels[half], x[~half], labels[~half]) > 0.9

    result = Linear(variable="answer", hook="blocks.0.hook_resid_post", permutations=9).run(eight)
    assert result.metrics["linear.answer.accuracy"] < 0.5
    few = Linear(variable="answer", permutations=9)
    once = subject.with_data(subject.data[task.examples().tokens[:, 1] == 0])
    assert few.applicable(once.with_data(Batch.cat([once.data] * 2))) == few.applicable(once)
    assert few.applicable(once) is not None


def test_values_that_are_there_once_cannot_be_learned_from_others() -> None:
    """With y = 0 every x is there in one input; with y = 0 or 1 in two."""
    subject = planted.modular_addition(p=11, frequencies=(2, 3), seed=0).subject
    y = subject.data.tokens[:, 1]
    once, twice = (subject.with_data(subject.data[y <= last]) for last in (0, 1))
    reason = Linear(variable="x").applicable(once)
    assert reason == "every value of 'x' is there once, so none can be learned from other examples"
    assert Linear(variable="x").applicable(twice) is None
    assert Linear(variable="x", kind="number").applicable(once) is None


@pytest.mark.full
def test_a_copied_token_is_decodable_where_it_was_moved_to() -> None:
    """The second layer of an induction model moves the token to the answer, not the first."""
    result = Linear(examples=512).run(planted.induction_head(12, 6).subject)
    (finding,) = [one for one in result.findings if one.verdict == "yes"]
    assert finding.effect is not None and finding.effect.value > 0.9
    assert "L1" in result.metrics[f"linear.{result.metrics['linear.best_variable']}.best_at"]


def test_nothing_is_decoded_of_activations_that_were_all_fitted() -> None:
    """Where a causal model reads the second number it cannot see the third: of 343 inputs 49 differ
    there, and random weights wide enough to know each give the sums of those that were fitted.
    """
    generator = np.random.default_rng(0)
    pairs = generator.integers(25, size=1000)
    states, table = generator.normal(size=(25, 30))[pairs], generator.integers(5, size=25)[pairs]
    kept = new_rows({"x": states}, table)
    assert sorted(pairs[kept]) == list(range(25)) and kept[0] == 0
    assert len(new_rows({"x": states}, pairs)) == 1000  # as many values as activations
    assert len(new_rows({"x": generator.normal(size=(1000, 30))}, table)) == 1000
    task = TASKS["running-sign"](largest=3, length=3)
    model = HookedTransformer(ModelConfig.for_task(task, d_model=64, n_heads=2), seed=0)
    linear = Linear(variable="total_1", pos=1, permutations=19)
    (finding,) = linear.run(Subject(model, task)).findings
    assert finding.verdict == "unclear" and "49 different" in finding.reason


def test_a_variable_is_read_where_an_answer_depends_on_it() -> None:
    """Two hops from 0 are asked where the list begins, and nowhere at the subject's last answer."""
    task = TASKS["composition"](n=4, k=2, hops=(1, 2))
    model = HookedTransformer(ModelConfig.for_task(task, d_model=16, n_heads=1), seed=0)
    (finding,) = Linear(variable="2-hop of 0").run(Subject(model, task)).findings
    assert finding.scope.answers == "from 0:0"
