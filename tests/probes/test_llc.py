"""Local learning coefficient: closed forms, numerical integrals, and when no number is given."""

from __future__ import annotations

import itertools
import math
import re
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import Tensor, nn

import mechint
from mechint import planted, probe
from mechint.errors import ParameterError
from mechint.planted._linear_network import learning_coefficient
from mechint.probe.results import ProbeResult
from mechint.subject import Subject
from mechint.task import Batch
from probes._llc.diagnostics import Chains
from probes._llc.sampler import Sampler


@cache
def measured(widths: tuple[int, ...], rank: int) -> ProbeResult:
    return probe.run("llc", planted.linear_network(widths, rank, n=256).subject)


# --- the closed form ------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.data())
def test_the_coefficient_is_between_the_manifold_and_the_regular_model(
    widths: list[int], data: st.DataObject
) -> None:
    """At least half the dimension of the maps of that rank, at most d/2; order is irrelevant."""
    rank = data.draw(st.integers(0, min(widths)))
    value, multiplicity = learning_coefficient(widths, rank)
    d = sum(a * b for a, b in itertools.pairwise(widths))
    assert rank * (widths[0] + widths[-1] - rank) / 2 <= value <= d / 2
    assert 1 <= multiplicity <= len(widths)
    assert learning_coefficient(widths[::-1], rank) == (value, multiplicity)
    if len(widths) == 2:
        assert value == d / 2


# --- the estimate ---------------------------------------------------------------------------------
@pytest.mark.full
@pytest.mark.parametrize(
    ("widths", "rank", "status"),
    [((5, 3), 2, "no"), ((4, 3, 4), 1, "yes"), ((6, 4, 4, 6), 2, "yes")],
)
def test_known_coefficients_are_measured(widths: tuple[int, ...], rank: int, status: str) -> None:
    result = measured(widths, rank)
    expected, _ = learning_coefficient(widths, rank)
    metrics = result.metrics
    assert result.verdict == status
    assert metrics["llc"] == pytest.approx(expected, rel=0.15)
    assert metrics["llc_low"] < metrics["llc"] < metrics["llc_high"]
    d = sum(a * b for a, b in itertools.pairwise(widths))
    assert metrics["n_parameters"] == d
    assert metrics["share_of_regular"] == pytest.approx(metrics["llc"] / (d / 2))
    assert result.tables["chains"].columns["localization"] == [1.0] * 6 + [0.25] * 3


class Product(nn.Module):
    """y = a b x in one dimension."""

    def __init__(self, a: float, b: float) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.tensor([a])), nn.Parameter(torch.tensor([b]))

    def forward(self, x: Tensor) -> Tensor:
        return self.a * self.b * x


def scalar(a: float, b: float) -> Subject:
    tokens = torch.linspace(-2, 2, 64)[:, None]
    model = mechint.wrap(Product(a, b), {})
    return Subject(model, None, data=Batch(tokens, a * b * tokens))


@pytest.mark.full
def test_the_estimate_is_the_integral_over_the_posterior() -> None:
    """Two weights: E[nβ (L − L*)] under exp(−nβ L − γ/2 ‖w − w*‖²) by quadrature."""
    a, b, n_beta, gamma = 1.0, 0.0, 50.0, 20.0
    subject = scalar(a, b)
    half = float(subject.data.tokens.double().square().mean()) / 2

    def rise(u: float, v: float) -> float:
        return n_beta * half * (u * v - a * b) ** 2

    def weight(u: float, v: float) -> float:
        return math.exp(-rise(u, v) - gamma / 2 * ((u - a) ** 2 + (v - b) ** 2))

    box = (b - 2, b + 2, a - 2, a + 2)  # of the second argument, then of the first
    grid = {"epsabs": 1e-5, "epsrel": 1e-5}
    total = integrate.dblquad(weight, *box, **grid)[0]
    expected = integrate.dblquad(lambda u, v: rise(u, v) * weight(u, v), *box, **grid)[0] / total
    settings = {"temperature": n_beta, "localization": gamma, "tolerance": 0.5}
    result = probe.run("llc", subject, draws=800, burn_in=100, chains=24, **settings)
    assert result.metrics["llc"] == pytest.approx(expected, rel=0.1)


@pytest.mark.full
def test_a_quadratic_loss_has_half_a_unit_per_curved_direction() -> None:
    """Linear regression has Hessian XᵀX/n, whose eigenvalues h each give ½ nβh / (nβh + γ)."""
    subject = planted.linear_network((4, 3), 2, n=128).subject
    x = subject.data.tokens.double()
    h = torch.linalg.eigvalsh(x.T @ x / len(x)).repeat_interleave(3).numpy()
    for gamma, n_beta in ((100.0, 30.0), (10.0, 30.0)):
        result = probe.run(
            "llc",
            subject,
            chains=16,
            draws=1500,
            burn_in=100,
            temperature=n_beta,
            localization=gamma,
        )
        columns = result.tables["chains"].columns
        for share in (1.0, 0.25):
            expected = 0.5 * float((n_beta * h / (n_beta * h + share * gamma)).sum())
            chosen = np.array(columns["localization"]) == share
            found = float(np.array(columns["estimate"])[chosen].mean())
            assert found == pytest.approx(expected, rel=0.1)


def sampler(subject: Subject, **changes: float) -> Sampler:
    settings = {"temperature": 10.0, "localization": 1.0, "batch_size": 64, "chunk": 64}
    return Sampler(subject.model, subject.task, subject.data, **{**settings, **changes})  # type: ignore[arg-type]


def test_gradients_are_those_of_autograd_vectorized_or_not() -> None:
    subject = planted.modular_addition(7, (1, 2), noise=0.1).subject
    held = sampler(subject, chunk=11)
    weights = held.copies(2)
    weights = {name: value + 0.01 for name, value in weights.items()}
    rows = torch.tensor([[0, 5, 9], [4, 4, 30]])
    assert held.vectorized
    excess, gradient = held.gradient(weights, rows)
    held.vectorized = False
    for got, expected in zip((excess, gradient), held.gradient(weights, rows), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)
    model = subject.untrained(0).model
    model.load_state_dict({**model.state_dict(), **{n: v[1] for n, v in weights.items()}})
    data = subject.data[rows[1]]
    logits = model(data.tokens)[:, -1].double()
    loss = nn.functional.cross_entropy(logits, data.targets[:, -1, 0])
    parts = torch.autograd.grad(loss, [dict(model.named_parameters())[n] for n in weights])
    for name, part in zip(weights, parts, strict=True):
        torch.testing.assert_close(gradient[name][1], part, rtol=1e-4, atol=1e-6)
    own = nn.functional.cross_entropy(
        subject.model(data.tokens)[:, -1].double(), data.targets[:, -1, 0]
    )
    assert float(excess[1]) == pytest.approx((loss - own).item(), rel=1e-5)


def test_the_curvature_is_the_largest_eigenvalue() -> None:
    subject = planted.linear_network((4, 2), 2, n=128).subject
    x = subject.data.tokens.double()
    expected = float(torch.linalg.eigvalsh(x.T @ x / len(x)).max())
    held = sampler(subject, batch_size=128)
    found = held.curvature(held.copies(1), torch.Generator().manual_seed(0))
    assert found == pytest.approx(expected, rel=0.05)


@pytest.mark.full
@pytest.mark.parametrize(
    ("widths", "rank", "scales"),
    [
        ((5, 3), 2, None),
        ((5, 3), 3, [1.0, 1.0, 1.0, 0.05, 0.05]),
        ((4, 3, 4), 1, None),
        ((6, 4, 4, 6), 2, None),  # more weights than steps of the Lanczos method
    ],
)
def test_the_share_that_curves_is_that_of_positive_eigenvalues(
    widths: tuple[int, ...], rank: int, scales: list[float] | None
) -> None:
    """Against the whole Hessian, in float64."""
    subject = planted.linear_network(widths, rank, n=256, noise=0.05, scales=scales).subject
    found = sampler(subject, batch_size=256).curving(0).share
    x, y = subject.data.tokens.double(), subject.data.targets.double().flatten(1)
    own = [weight.detach().double() for weight in subject.model.W]

    def loss(flat: Tensor) -> Tensor:
        parts, answers = flat.split([weight.numel() for weight in own]), x
        for part, weight in zip(parts, own, strict=True):
            answers = answers @ part.reshape(weight.shape)
        return 0.5 * (answers - y).square().sum(1).mean()

    flat = torch.cat([weight.flatten() for weight in own])
    values = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat))
    expected = float((values > 1e-4 * values.abs().max()).double().mean())
    assert found == pytest.approx(expected, abs=0 if expected == 1 else 0.07)
    if len(widths) == 2:  # half the number of weights is the coefficient
        assert expected == 1


# --- no number ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"step_size": 1.0}, "diverged"),
        ({"step_size": 1e-7}, r"moves by|disagree"),
        ({"tolerance": 0.001}, "disagree"),
    ],
)
def test_no_number_where_the_diagnostics_fail(settings: dict[str, float], reason: str) -> None:
    subject = planted.linear_network((4, 3, 4), 1, n=64).subject
    result = probe.run("llc", subject, draws=60, burn_in=20, localization=1.0, **settings)
    assert result.verdict == "unclear"
    assert result.metrics["estimate"] == "unreliable" and "llc_low" in result.metrics
    assert re.search(reason, result.findings[0].reason)


def test_a_model_that_is_not_at_a_minimum_gets_no_number() -> None:
    subject = planted.linear_network((4, 3, 4), 1, n=64).subject.untrained(3)
    result = probe.run("llc", subject, draws=200, burn_in=50, localization=1.0)
    assert result.verdict == "unclear" and "lower loss" in result.finding


@pytest.mark.full
@pytest.mark.parametrize("localization", [10.0, 100.0])
def test_a_pull_does_not_make_a_regular_model_degenerate(localization: float) -> None:
    """The curvature is nβ = 46 in every direction: γ takes a share γ / (46 + γ) of d/2 away."""
    plant = planted.linear_network((5, 3), 2, n=256)
    result = probe.run("llc", plant.subject, localization=localization)
    assert result.verdict != "yes", result.finding
    if result.verdict == "unclear":
        assert localization > 30 and "it is the pull's" in result.finding
    else:
        share = 1 - localization / (localization + result.metrics["temperature"])
        assert result.metrics["share_of_regular"] == pytest.approx(share, rel=0.2)
        assert result.metrics["llc_without_pull"] == pytest.approx(7.5, rel=0.15)


def chains(
    whole: np.ndarray, loose: np.ndarray | None = None, descent: np.ndarray | None = None
) -> Chains:
    loose = level(7, 3, np.nanmean(whole[:, 10:])) if loose is None else loose
    return Chains(whole, loose, 10, np.zeros(110) if descent is None else descent)


def level(seed: int, n: int, mean: float = 5.0) -> np.ndarray:
    return mean + 0.1 * np.random.default_rng(seed).standard_normal((n, 110))


def test_reasons_to_doubt_the_chains() -> None:
    good = level(0, 6)
    assert chains(good).doubt(0.2) is None
    down, rising = -np.linspace(0, 1, 110), good + np.linspace(-3, 3, 110)
    assert "disagree" in str(chains(good + np.arange(6)[:, None]).doubt(0.2))
    assert "halves" in str(chains(rising).doubt(0.2))
    assert "lower loss nearby" in str(chains(good - 10).doubt(0.2))
    assert "of the localization" in str(chains(good, level(2, 3, 8.0)).doubt(0.2))
    assert "plain descent" in str(chains(good, descent=9 * down).doubt(0.2))
    assert chains(good, descent=0.5 * down).doubt(0.2) is None
    assert chains(good, level(2, 3, 5.6)).without_pull == pytest.approx(5.8, abs=0.05)
    assert chains(good, level(2, 3, 4.6)).without_pull == pytest.approx(5, abs=0.05)
    burn_in, lost = good.copy(), good.copy()
    burn_in[:, :10], lost[2, 60:] = 99.0, np.nan
    assert chains(burn_in).estimates == pytest.approx(good[:, 10:].mean(1))
    assert str(chains(lost).doubt(0.2)).startswith("1 of 9 chains diverged")


def test_diagnostics_equal_their_definitions() -> None:
    """The drift between halves beyond what chains scatter, what descent has gained in its last
    tenth, the interval, and the effect of the pull with the degrees of freedom of the fewer chains.
    """
    whole = level(0, 6) + 0.05 * np.arange(6)[:, None] + np.linspace(0, 0.8, 110)
    loose = np.add(level(1, 2, 7.0), [[-0.1], [0.1]])
    held = chains(whole, loose, -np.linspace(0, 1, 110))
    draws, other = whole[:, 10:], loose[:, 10:].mean(1)
    change = draws[:, 50:].mean(1) - draws[:, :50].mean(1)
    beyond = abs(change.mean()) - stats.t.ppf(0.975, 5) * stats.sem(change)
    assert held.drift == pytest.approx(beyond / draws.mean()) and beyond > 0.1
    # after 110 steps of a line down to -1 the last eleven are (99 … 109)/109 on average 104/109
    assert held.fall == pytest.approx(104 / 109 / draws.mean())
    reach = stats.t.ppf(0.975, 5) * stats.sem(draws.mean(1))
    assert held.relative_interval == pytest.approx(reach / draws.mean())
    noise = np.hypot(stats.sem(draws.mean(1)), stats.sem(other))
    beyond = other.mean() - draws.mean() - stats.t.ppf(0.975, 1) * noise
    assert held.pull_change == pytest.approx(beyond / draws.mean()) and 0 < beyond < 1


def test_the_loss_is_that_of_the_training_split_or_of_all_examples() -> None:
    subject = planted.modular_addition(5, (1, 2), noise=0.3).subject
    assert subject.split is not None
    brief = {"draws": 8, "burn_in": 0, "chains": 2, "step_size": 1e-6}
    for split, rows in (("train", subject.split["train"]), ("all", torch.arange(25))):
        metrics = probe.run("llc", subject, split=split, **brief).metrics
        data = subject.data[rows]
        logits = subject.model(data.tokens)[:, -1].double()
        loss = nn.functional.cross_entropy(logits, data.targets[:, -1, 0])
        assert metrics["n_examples"] == len(rows) and metrics["loss"] == pytest.approx(loss.item())
        assert metrics["temperature"] == pytest.approx(len(rows) / math.log(len(rows)))


def test_the_interval_and_p_value_are_students() -> None:
    held = chains(level(0, 6))
    expected = stats.t.interval(0.95, 5, held.value, stats.sem(held.estimates))
    assert held.interval == pytest.approx(expected)
    t, p_value = held.t_statistic(5.02, -1)
    test = stats.ttest_1samp(held.estimates, 5.02, alternative="less")
    assert (-t, p_value) == pytest.approx((test.statistic, test.pvalue))


def test_a_linear_network_of_no_sizes_is_refused() -> None:
    with pytest.raises(ParameterError, match="smallest"):
        planted.linear_network((4, 2, 4), 3)
    with pytest.raises(ParameterError, match="expected 4 numbers above 0"):
        planted.linear_network((4, 3), 3, scales=[1.0, 0.0, 1.0, 1.0])
