"""The students' closed forms against samples, autograd, plain runs and the theory of their
tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mechint import hermite
from mechint.errors import MechintError
from mechint.models import build, config_class, parameter_shapes, two_layer
from mechint.models import linear_bottleneck as bottleneck
from mechint.models.linear_bottleneck import LinearBottleneckConfig
from mechint.models.students import STUDENTS, LinearBottleneck, TwoLayerStudent
from mechint.models.two_layer import TwoLayerConfig
from mechint.task import Batch
from tasks._single_index import SingleIndex
from tasks.regression import RegressionMixture

MIXTURE = RegressionMixture(n=12, n_tasks=3, rank=3, alpha=1.0, beta=0.7, rotation=1)
SUM = SingleIndex(d=10, n_directions=4, beta=1.0, rotation=2)


def stack(parameters):
    return {name: torch.stack([p[name] for p in parameters]) for name in parameters[0]}


def expand(batch: Batch, models: int) -> Batch:
    return batch._map(lambda tensor: tensor.expand(models, *tensor.shape))


def descend(parameters, loss, steps, lr, adam=False):
    """Gradient descent (or Adam) on the sum of the models' losses; returns the trained
    parameters.
    """
    parameters = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    optimizer = (
        torch.optim.Adam(parameters.values(), lr=lr)
        if adam
        else torch.optim.SGD(parameters.values(), lr=lr)
    )
    for _ in range(steps):
        optimizer.zero_grad()
        loss(parameters).sum().backward()
        optimizer.step()
    return {name: value.detach() for name, value in parameters.items()}


# --- Hermite series -------------------------------------------------------------------------------
def test_hermite_series_are_numpys():
    coefficients = (0.3, -1.0, 0.0, 0.5, 0.25)
    z = torch.linspace(-3, 3, 11, dtype=torch.float64)
    plain = [c / math.sqrt(math.factorial(j)) for j, c in enumerate(coefficients)]
    np.testing.assert_allclose(
        hermite.evaluate(coefficients, z).numpy(),
        np.polynomial.hermite_e.hermeval(z.numpy(), plain),
        atol=1e-12,
    )


def test_gaussian_correlation_by_quadrature():
    first, second, rho = (0.2, 0.5, 0.0, 1.0), (0.1, 0.3, 0.7, -0.4), 0.6
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    z, w = np.meshgrid(nodes, nodes)
    other = rho * z + math.sqrt(1 - rho**2) * w
    product = hermite.evaluate(first, torch.from_numpy(z)) * hermite.evaluate(
        second, torch.from_numpy(other)
    )
    mean = (product.numpy() * np.outer(weights, weights)).sum() / (2 * math.pi)
    assert hermite.correlate(
        first, second, torch.tensor(rho, dtype=torch.float64)
    ).item() == pytest.approx(mean, abs=1e-10)


# --- linear bottleneck ----------------------------------------------------------------------------
def bottleneck_config(**values) -> LinearBottleneckConfig:
    return LinearBottleneckConfig.for_task(MIXTURE, **{"width": 4, **values})


@pytest.mark.parametrize("decoder", ["learned", "optimal"])
def test_stacked_is_plain_and_padding_changes_nothing(decoder):
    plain = bottleneck.initialize(bottleneck_config(decoder=decoder), 3)
    padded = bottleneck.initialize(bottleneck_config(decoder=decoder, columns=7), 3)
    other = bottleneck.initialize(bottleneck_config(decoder=decoder, columns=7, width=6), 4)
    both = stack([padded, other])
    config = bottleneck_config(decoder=decoder)
    torch.testing.assert_close(
        bottleneck.population_loss(both, config, MIXTURE)[0],
        bottleneck.population_loss(plain, config, MIXTURE),
    )
    assert (both["W_enc"] != 0).any(-2).sum(-1).tolist() == [4, 6]
    trained = descend(
        both, lambda p: bottleneck.population_loss(p, config, MIXTURE), 20, 0.05, adam=True
    )
    alone = descend(
        plain, lambda p: bottleneck.population_loss(p, config, MIXTURE), 20, 0.05, adam=True
    )
    torch.testing.assert_close(trained["W_enc"][0, :, :4], alone["W_enc"], rtol=1e-4, atol=1e-5)
    assert (trained["W_enc"] != 0).any(-2).sum(-1).tolist() == [4, 6]


def test_the_projector_is_numpys_from_the_singular_vectors():
    encoder = torch.randn(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    padded = torch.cat([encoder, torch.zeros(12, 2, dtype=torch.float64)], 1)
    u = np.linalg.svd(encoder.numpy(), full_matrices=False)[0]
    np.testing.assert_allclose(bottleneck.projector(padded).numpy(), u @ u.T, atol=1e-12)
    assert torch.autograd.gradcheck(bottleneck.projector, encoder.requires_grad_())


def test_best_decoders_reach_the_trace_formula_and_no_others_do_better():
    config = bottleneck_config(decoder="optimal")
    p = bottleneck.initialize(config, 0)
    encoder = p["W_enc"].double().numpy()
    projector = encoder @ np.linalg.pinv(encoder)
    expected = [np.trace(c.T @ c @ (np.eye(12) - projector)) for c in MIXTURE.readouts.numpy()]
    np.testing.assert_allclose(bottleneck.task_losses(p, MIXTURE).numpy(), expected, rtol=1e-5)
    fitted = bottleneck.with_decoders(p, MIXTURE)
    np.testing.assert_allclose(bottleneck.task_losses(fitted, MIXTURE).numpy(), expected, rtol=1e-5)
    worse = fitted | {"W_dec": fitted["W_dec"] + 0.01}
    assert (bottleneck.task_losses(worse, MIXTURE) > bottleneck.task_losses(fitted, MIXTURE)).all()


def test_the_batch_loss_estimates_the_population_loss():
    config = bottleneck_config()
    p = stack([bottleneck.initialize(config, seed) for seed in (0, 1)])
    batch = expand(MIXTURE.sample(40_000, seed=0), 2)
    torch.testing.assert_close(
        bottleneck.losses(p, config, batch),
        bottleneck.population_loss(p, config, MIXTURE),
        rtol=0.03,
        atol=0,
    )
    doubled = Batch(batch.tokens, batch.targets, torch.full((2, 40_000), 2.0), masks=batch.masks)
    torch.testing.assert_close(
        bottleneck.losses(p, config, doubled), 2 * bottleneck.losses(p, config, batch)
    )


def test_bottleneck_module_runs_what_the_functions_compute():
    model = LinearBottleneck(bottleneck_config(), seed=2)
    batch = MIXTURE.sample(16, seed=0)
    answers, cache = model.run_with_cache(batch.tokens, batch.masks["task"])
    encoded = batch.tokens @ model.weights()["W_enc"]
    torch.testing.assert_close(cache["hook_encoded"], encoded)
    decoders = model.weights()["W_dec"]
    torch.testing.assert_close(
        answers, torch.stack([encoded[i] @ decoders[t] for i, t in enumerate(batch.masks["task"])])
    )
    silent = model.run_with_hooks(
        batch.tokens,
        batch.masks["task"],
        fwd_hooks=[("hook_encoded", lambda value, hook: value * 0)],
    )
    assert not silent.any()


def load(weights: dict[str, torch.Tensor]) -> None:
    LinearBottleneck(bottleneck_config(decoder="optimal")).load_weights(weights)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: bottleneck_config(width=13), "model: width=13: expected at most n=12"),
        (lambda: bottleneck_config(columns=3), "model: columns=3: expected at least width=4"),
        (
            lambda: LinearBottleneck(bottleneck_config(decoder="optimal"))(torch.ones(1, 12)),
            "decoder='optimal' answers no batch",
        ),
        (lambda: load({"W": torch.ones(1)}), "state dict holds W; expected W_enc"),
        (
            lambda: load({"W_enc": torch.ones(1)}),
            r"W_enc: got shape \(1,\), expected \(12, 4\)",
        ),
    ],
)
def test_bottleneck_errors(ask: Callable[[], object], said: str) -> None:
    with pytest.raises(MechintError, match=said):
        ask()


# --- two layers -----------------------------------------------------------------------------------
def grown(config: TwoLayerConfig, seed: int) -> dict[str, torch.Tensor]:
    """Neurons of norm 0.3, where no term of the loss is negligible."""
    return {"W": two_layer.initialize(config, seed)["W"] * 0.3 / config.init_norm}


@pytest.mark.parametrize("coefficients", [(0.0, 0.0, 0.0, 1.0), (0.5, 0.2, 0.0, 1.0)])
def test_population_loss_is_the_mean_over_samples(coefficients):
    task = SingleIndex(d=10, n_directions=4, hermite=coefficients, rotation=2)
    config = TwoLayerConfig.for_task(task, width=6)
    p = stack([grown(config, seed) for seed in (0, 1)])
    sampled = two_layer.losses(p, config, expand(task.sample(200_000, seed=0), 2))
    torch.testing.assert_close(
        sampled, two_layer.population_loss(p, config, task), rtol=0.03, atol=0
    )


def test_population_loss_is_the_digests_formula_for_one_degree():
    config = TwoLayerConfig.for_task(SUM, width=6)
    w = grown(config, 0)["W"].double()
    n = w.norm(dim=1)
    v = w / n[:, None]
    a, c = SUM.amplitudes, v @ SUM.directions.T
    expected = (
        a.square().sum()
        - 2 * ((n**2)[:, None] * a * c**3).sum()
        + (torch.outer(n**2, n**2) * (v @ v.T) ** 3).sum()
    )
    torch.testing.assert_close(two_layer.population_loss({"W": w}, config, SUM), expected)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), spare=st.integers(1, 5))
def test_spare_neurons_change_nothing(seed, spare):
    config = TwoLayerConfig.for_task(SUM, width=3)
    padded = TwoLayerConfig.for_task(SUM, width=3, neurons=3 + spare)
    plain, wide = grown(config, seed), grown(padded, seed)
    trained = descend(plain, lambda p: two_layer.population_loss(p, config, SUM), 5, 0.05)
    wider = descend(wide, lambda p: two_layer.population_loss(p, padded, SUM), 5, 0.05)
    torch.testing.assert_close(wider["W"][:3], trained["W"])
    assert not wider["W"][3:].any()


def test_two_layer_module_is_its_formula():
    model = TwoLayerStudent(TwoLayerConfig.for_task(SUM, width=5, init_norm=0.5), seed=1)
    x = SUM.sample(7, seed=0).tokens
    answers, cache = model.run_with_cache(x)
    w = model.weights()["W"].detach()
    pre = x @ (w / w.norm(dim=1, keepdim=True)).T
    torch.testing.assert_close(cache["hook_pre"], pre)
    torch.testing.assert_close(
        answers, ((pre**3 - 3 * pre) / math.sqrt(6) * w.norm(dim=1) ** 2).sum(1)
    )


def test_the_table_serves_both_tasks_kinds():
    assert {task.model_kind for task in (MIXTURE, SUM)} == set(STUDENTS)
    for task in (MIXTURE, SUM):
        student = STUDENTS[task.model_kind]
        kind: Any = config_class(task.model_kind)
        config = kind.for_task(task, width=3)
        first, again = student.initialize(config, 7), student.initialize(config, 7)
        assert all(torch.equal(first[name], again[name]) for name in first)
        shapes = {name: tuple(value.shape) for name, value in build(config, 7).weights().items()}
        assert shapes == parameter_shapes(config) and set(shapes) == set(first)
