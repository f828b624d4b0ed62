"""Scores at answers beside a loop of plain Python, and nulls of several tests at once."""

import itertools
import math

import numpy as np
import pytest
import torch

import tasks
from mechint.decide.null import MaxNull, sign_flips
from mechint.task import ACCURACY, IGNORE, LOSS, answer_scores


def test_scores_are_those_of_a_loop():
    task = tasks.make("composition")
    outputs = len(task.outputs)
    assert outputs > 1
    logits = torch.randn(2, 4, task.d_vocab_out, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[i % 2] * outputs for i in range(4)])
    targets[1, 0] = IGNORE
    scores = answer_scores(task, logits, targets)
    assert scores.dtype == torch.float64
    for batch, row, (output, part) in itertools.product(
        range(2), range(4), enumerate(task.output_slices.values())
    ):
        one = logits[batch, row, part].tolist()
        right = int(targets[row, output])
        got = scores[batch, row, output]
        if right == IGNORE:
            assert got.isnan().all()
            continue
        total = math.log(sum(math.exp(value) for value in one))
        assert float(got[LOSS]) == pytest.approx(total - one[right], rel=1e-6)
        assert float(got[ACCURACY]) == (one[right] == max(one))


def test_adjusted_p_values_against_all_orders():
    """Over all 120 orders of five things the permutation test is exact: p is a share of orders."""
    x, ys = np.arange(5.0), np.array([[0.0, 1, 2, 3, 5], [2.0, 0, 1, 4, 3]])
    orders = [np.array(one) for one in itertools.permutations(range(5))][1:]
    null = MaxNull(ys @ x, np.stack([ys @ x[order] for order in orders]))
    largest = [max(float(y @ x[order]) for y in ys) for order in orders]
    for y, p in zip(ys, null.p_values, strict=True):
        assert p == pytest.approx((1 + sum(one >= float(y @ x) for one in largest)) / 120)


def test_what_is_not_a_number_is_no_surprise():
    null = MaxNull(np.array([math.nan, 1.0]), np.array([[9.0, 0.0], [math.nan, 0.0]]))
    assert null.p_values.tolist() == [1.0, 2 / 3]


def test_family_wise_p_values_are_uniform():
    generator = np.random.default_rng(1)
    smallest = []
    for seed in range(300):
        axes, data = generator.normal(size=(3, 12)), generator.normal(size=12)
        orders = np.stack([np.random.default_rng([seed, i]).permutation(12) for i in range(19)])
        null = MaxNull(axes @ data, data[orders] @ axes.T)
        smallest.append(null.p_values.min() <= 0.1)
    assert np.mean(smallest) == pytest.approx(0.1, abs=0.06)


@pytest.mark.parametrize("n", [4, 7])
def test_few_examples_take_every_pattern_of_signs_once(n):
    changes = np.array([[1.0] * n, [2.0] + [-1.0] * (n - 1)])
    test = sign_flips(changes, 999, 0)
    patterns = [np.array(one) for one in itertools.product([1, -1], repeat=n)]
    t = [max(float(row @ one) / math.sqrt(row @ row) for row in changes) for one in patterns]
    for row, p in zip(changes, test.p_values, strict=True):
        own = row.sum() / math.sqrt(row @ row)
        assert p == pytest.approx(sum(one >= own - 1e-9 for one in t) / 2**n)
    np.testing.assert_allclose(test.mean, changes.mean(1))


def test_signs_leave_out_what_an_example_lacks():
    changes = np.array([[1.0, math.nan, 2.0, math.nan], [1.0, 2.0, 3.0, 4.0]])
    test = sign_flips(changes, 7, 0)
    np.testing.assert_allclose(test.mean, [1.5, 2.5])
    null = test.null("harm", 1)
    assert null.observed == pytest.approx(2.5) and null.samples == 7


def test_no_effect_is_seldom_called_one():
    generator = np.random.default_rng(2)
    p = [sign_flips(generator.normal(size=(5, 30)), 99, i).p_values.min() for i in range(200)]
    assert np.mean(np.array(p) <= 0.05) <= 0.1
    assert sign_flips(generator.normal(size=(5, 60)) + 2, 199, 0).p_values.max() == 1 / 200
