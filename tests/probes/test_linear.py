"""Linear probes against plain formulas, planted directions and control tasks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError, UnknownNameError
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.reporting import Report
from mechint.results import ProbeResult
from mechint.subject import Subject
from mechint.task import Batch
from probes._linear import Discriminant, Linear, Ridge, choose_penalty
from probes._linear.estimators import DEFAULT_RIDGE
from probes._linear.probe import Scored, say

NUMBER = {"kind": "number", "hook": "hook_embed", "pos": 0, "variable": "rank of a"}


def test_ridge_is_least_squares_of_the_augmented_system() -> None:
    """min ‖y − Xw − c‖² + λ‖w‖² as ordinary least squares of [X; √λ I], centered."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(40, 5)), draw.normal(size=40)
    centered = x - x.mean(0)
    penalty = 0.3 * np.trace(centered.T @ centered) / 5
    augmented = np.concatenate([centered, np.sqrt(penalty) * np.eye(5)])
    expected = np.linalg.lstsq(augmented, np.concatenate([y - y.mean(), np.zeros(5)]), rcond=None)[
        0
    ]
    assert Ridge(x, 0.3).weights(y) == pytest.approx(expected)


def test_the_penalty_is_relative_to_the_variance_whatever_the_number_of_inputs() -> None:
    """(XᵀX/n + λI)⁻¹Xᵀy/n with λ the mean variance times the penalty; n copies change nothing."""
    draw = np.random.default_rng(5)
    x, y = draw.normal(size=(50, 4)) * [1, 2, 3, 4], draw.normal(size=50)
    matrix = np.cov(x.T, bias=True) + 0.3 * x.var(0).mean() * np.eye(4)
    expected = np.linalg.inv(matrix) @ ((x - x.mean(0)).T @ (y - y.mean()) / 50)
    assert Ridge(x, 0.3).weights(y) == pytest.approx(expected)
    assert Ridge(np.tile(x, (10, 1)), 0.3).weights(np.tile(y, 10)) == pytest.approx(expected)


def test_the_null_of_several_places_is_of_the_best_in_every_shuffle() -> None:
    subject = planted.comparison(n=12).subject
    variable = next(iter(subject.task.variables.values()))
    x, y = np.random.default_rng(0).standard_normal((2, len(subject.data), 3))
    probe = Linear(ridge=0.1, permutations=19, pos=0)
    alone = [probe._probe(subject, variable, {"a": one}, 0).null for one in (x, y)]
    both = probe._probe(subject, variable, {"a": x, "b": y}, 0).null
    assert both.tolist() == np.maximum(*alone).tolist() and len(set(alone[0] > alone[1])) == 2


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


def test_hops_appear_one_layer_after_the_other() -> None:
    subject = planted.composition(5, 4).subject
    for hop, layer in ((1, 0), (2, 1), (4, 2)):
        result = Linear(variable=f"{hop}-hop of 3", pos=3, permutations=19).run(subject)
        columns = result.tables["scores"].columns
        accuracy = dict(zip(columns["at"], columns["accuracy"], strict=True))
        assert accuracy[f"L{layer} attention"] == 1.0
        assert all(accuracy[f"L{before} attention"] < 0.9 for before in range(layer))


@pytest.mark.parametrize("rotation_seed", [None, 3])
def test_the_planted_order_direction_is_recovered(rotation_seed: int | None) -> None:
    plant = planted.comparison(60, 0.8, rotation_seed=rotation_seed)
    probe = Linear(**NUMBER)
    result = probe.run(plant.subject)
    assert result.metrics["linear.rank of a.r2"] > 0.999
    cosine = (
        result.arrays["direction of rank of a"]
        @ plant.truth["subspaces"]["hook_embed"][:, 0].numpy()
    )
    assert abs(cosine) == pytest.approx(1, abs=1e-5)
    assert probe.detects(result)


def test_a_variable_is_held_against_all_that_were_probed() -> None:
    """Each beats its own shuffles; only one beats the largest of both."""
    subject = planted.comparison(20).subject
    nulls = {"a": np.linspace(0, 0.5, 199), "b": np.linspace(0, 0.9, 199)}

    def said(a: float, b: float, names: str) -> Report:
        report, scored = Report(Linear(), subject), {}
        for name, score in (("a", a), ("b", b)):
            if name in names:
                one = Scored({"x": score}, {"x": 0.0}, {"x": 0.0}, nulls[name], math.inf)
                report.metric(f"linear.{name}.r2", score, null=one.null, how="shuffled")
                report.metric(f"linear.{name}.best_at", "x")
                report.metric(f"linear.{name}.selectivity", score)
                scored[name] = one
        certain = dict.fromkeys(scored, 1.0)
        selective = dict.fromkeys(scored, True)
        say(report, scored, certain, selective, score="r2", control="shuffled", known=9)
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
    assert report.findings[0].details["variables probed"] == "2 of 9"
    assert said(0.99, 0.999, "ab").metrics["linear.decodable"] == ["a", "b"]


@pytest.mark.full
def test_a_copied_token_is_decodable_where_it_was_moved_to() -> None:
    """An induction head moves the token after the earlier occurrence to the answer: its value is
    decoded there, and no control task separates value from token.
    """
    result = Linear(examples=512).run(planted.induction_head(12, 6).subject)
    (finding,) = [one for one in result.findings if one.verdict == "yes"]
    assert finding.effect is not None and finding.effect.value > 0.9 and finding.caveat
    assert "L1" in result.metrics[f"linear.{result.metrics['linear.best_variable']}.best_at"]


@pytest.mark.parametrize("variable", ["a < b", "rank of a", None])
@pytest.mark.parametrize("n", [4, 5])
def test_few_values_along_a_line_cannot_be_decided(n: int, variable: str | None) -> None:
    """5!/2 orders, of which one is perfect; of two values none is left to hold out."""
    subject = planted.comparison(n).subject
    result = Linear(kind="number", hook="hook_embed", pos=0, variable=variable).run(subject)
    assert result.verdict == "unclear", result.finding
    assert all("too few values, which" in one.reason for one in result.findings)
    assert ProbeResult.from_json(result.to_json()).to_json() == result.to_json()
    if variable == "a < b":
        assert math.isnan(result.metrics["linear.a < b.r2"])
        assert result.null["linear.a < b.r2"].p_value == 1


def test_a_variable_of_few_values_leaves_the_others_alone() -> None:
    result = Linear(kind="number", hook="hook_embed", pos=0).run(planted.comparison(20).subject)
    assert result.metrics["linear.best_variable"] == "rank of a"
    assert result.verdict == "yes" and len(result.findings) == 1
    ((name, reason),) = result.not_asked
    assert "a < b" in name and "which can be arranged in only 1 way" in reason


def test_nothing_held_out_has_no_score() -> None:
    x, nothing = np.arange(4.0)[:, None], np.empty((0, 1))
    assert math.isnan(Ridge(x, 0.0).score(np.arange(4), nothing, np.array([])))
    assert math.isnan(Discriminant(x, 0.0).score(np.arange(4) % 2, nothing, np.array([])))
    # R² about the mean of the training part has no scale at that mean
    assert math.isnan(Ridge(x, 0.0).score(np.arange(4), np.array([[1.5]]), np.array([1.5])))


def test_constant_coordinates_say_the_mean() -> None:
    """At the smallest penalty their reciprocal was infinite, and the weights were not numbers."""
    labels, fit = np.arange(20), np.arange(20) < 14
    for constant in (0.0, 0.7):
        x = np.full((20, 3), constant)
        assert choose_penalty(Ridge, x, labels, fit) == 1.0  # all penalties do the same
        for penalty in (1e-12, 1.0):
            r2 = Ridge(x[fit], penalty).score(labels[fit], x[~fit], labels[~fit])
            assert r2 == pytest.approx(0)
            said = Discriminant(x[fit], penalty).score(labels[fit] % 2, x[~fit], labels[~fit] % 2)
            assert said == 0.5  # one class, whatever the input


def test_a_fold_with_no_score_chooses_no_penalty() -> None:
    """Of 1 … 5 the 3 is held out, the mean of the others, where R² has no scale."""
    x, labels = np.random.default_rng(0).normal(size=(20, 3)), np.array([1, 2, 3, 4, 5] * 4)
    assert choose_penalty(Ridge, x, labels, labels != 3) == DEFAULT_RIDGE
    assert math.isfinite(Ridge(x, DEFAULT_RIDGE).score(labels, x, labels))


@pytest.mark.parametrize("p", [7, 11])
def test_values_along_a_line_where_the_answer_is_read(p: int) -> None:
    """The "=" has one embedding, which says no more than the mean; it was an error."""
    subject = planted.modular_addition(p, (1,)).subject
    for one in (subject, subject.untrained(0)):
        columns = Linear(kind="number", permutations=1).run(one).tables["scores"].columns
        places = zip(columns["at"], columns["r2"], columns["control"], strict=True)
        assert [(r2, control) for at, r2, control in places if at == "embedding"] == [(0, 0)] * 3
        assert np.isfinite(columns["r2"]).all()


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


def test_a_penalty_that_hides_the_variable_is_not_chosen() -> None:
    """One coordinate holds x at a millionth of the variance of the others."""
    draw = np.random.default_rng(4)
    labels = draw.integers(0, 4, 400)
    x = draw.normal(size=(400, 8))
    x[:, 0] = 1e-4 * (labels + 0.05 * draw.normal(size=400))
    train, fit = np.arange(400) < 300, np.arange(300) < 200
    penalty = choose_penalty(Discriminant, x[train], labels[train], fit)
    right = Discriminant(x[train], penalty).score(labels[train], x[~train], labels[~train])
    hidden = Discriminant(x[train], 1e-3).score(labels[train], x[~train], labels[~train])
    assert right > 0.95
    assert hidden < 0.6


def test_an_operand_that_stands_there_is_no_finding() -> None:
    """Read perfectly from its own embedding, as any relabeling of it is."""
    subject = planted.modular_addition(13, (2, 3)).subject.untrained(1)
    result = Linear(variable="x", hook="hook_embed", pos=0, examples=169).run(subject)
    assert result.metrics["linear.x.accuracy"] > 0.9
    assert result.null["linear.x.accuracy"].p_value <= 0.005
    assert result.verdict == "no"
    effect = result.findings[0].effect
    assert effect is not None and effect.value == pytest.approx(0, abs=0.05)


def test_an_input_that_is_there_twice_is_not_held_out_of_itself() -> None:
    """Random weights, wide enough to know 49 inputs one by one, each of which is there eight times:
    half of the examples tell the answers of the other half, half of the inputs do not.
    """
    task = TASKS["modular-arithmetic"](p=7)
    shape = {"d_model": 64, "n_heads": 1, "d_mlp": 128, "n_ctx": task.n_ctx}
    sizes = {"d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out}
    subject = Subject(HookedTransformer(ModelConfig(**shape, **sizes), seed=0), task)
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
