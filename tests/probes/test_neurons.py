"""Clusters of neurons: shares and cosets by brute force, planted clusters, published models."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import mechint
from mechint import planted, probe
from mechint.errors import NotApplicableError
from mechint.groups.named import cyclic, dihedral, symmetric
from mechint.groups.representations import representations
from mechint.registry import TASKS
from mechint.results import ProbeResult
from mechint.subject import Subject
from probes.fourier.neurons import grid_energies
from probes.neurons import measures

CHECKPOINTS = Path(__file__).parents[3] / "shared" / "checkpoints"


def test_blocks_of_a_cyclic_group_are_those_of_its_frequencies() -> None:
    x = np.random.default_rng(0).standard_normal((9, 9, 4))
    blocks, total = grid_energies(x)
    assert np.allclose(measures.block_shares(cyclic(9), x), blocks / total)


def test_blocks_are_projections_on_products_of_matrix_elements() -> None:
    group = symmetric(3)
    x = np.random.default_rng(0).standard_normal((6, 6, 2))
    centered = x - x.mean((0, 1))
    shares = measures.block_shares(group, x)
    for row, name in enumerate(("sign", "standard")):
        elements = representations(group).matrices(name).reshape(6, -1)
        functions = [np.ones(6), *elements.T]
        design = np.stack(
            [np.outer(a, b).ravel() for a, b in itertools.product(functions, functions)][1:], 1
        )
        flat = centered.reshape(36, 2)
        fitted = design @ np.linalg.lstsq(design, flat, rcond=None)[0]
        assert np.allclose(shares[row], (fitted**2).sum(0) / (flat**2).sum(0))


@pytest.mark.parametrize(
    ("group", "count"), [(symmetric(4), 28), (dihedral(4), 8), (cyclic(12), 4)]
)
def test_subgroups_are_all_closed_sets(group, count: int) -> None:
    found = measures.subgroups(group)
    assert len(found) == count == len(set(found))
    for members in found:
        products = group.table[np.ix_(members, members)]
        assert set(products.ravel()) == set(members) and group.order % len(members) == 0


def test_functions_constant_on_cosets_are_found() -> None:
    group = symmetric(4)
    partitions = measures.partitions(group)
    generator = np.random.default_rng(0)
    for partition in partitions:
        assert set(np.bincount(partition.index)) == {partition.order}
    chosen = partitions[5]
    constant = generator.standard_normal(chosen.index.max() + 1)[chosen.index]
    columns = np.stack([constant, generator.standard_normal(24)], 1)
    shares = measures.coset_shares(partitions, columns)
    assert shares[5, 0] == pytest.approx(1)
    expected = [
        1 - columns[chosen.index == c, 1].var() * chosen.order / columns[:, 1].var() / 24
        for c in range(chosen.index.max() + 1)
    ]
    within = sum(1 - value for value in expected)
    n, cosets = 24, chosen.index.max() + 1
    assert shares[5, 1] == pytest.approx(1 - within * (n - 1) / (n - cosets))


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_planted_clusters_and_their_phases_are_recovered(noise: float) -> None:
    plant = planted.modular_addition(23, (3, 7), noise=noise, rotation_seed=1)
    result = probe.run("neurons", plant.subject, examples=512)
    metrics, table = result.metrics, result.tables["neurons"].columns
    assert metrics["clusters"] == {str(k): len(v) for k, v in plant.truth["clusters"].items()}
    for k, members in plant.truth["clusters"].items():
        assert {table["representation"][i] for i in members} == {str(k)}
        assert metrics["phase_alignment"][str(k)] > 0.98
    phase = np.array(table["phase x"])[plant.truth["clusters"][3]]
    steps = np.exp(1j * phase * 15)  # fifteen phases, evenly spread
    assert np.abs(steps.mean()) > 0.95 or noise
    assert result.status == "found"
    assert ProbeResult.from_json(result.to_json()).to_json() == result.to_json()


def test_an_ablation_is_the_loss_of_a_model_whose_neurons_stand_at_their_mean() -> None:
    plant = planted.modular_addition(11, (2, 5), noise=0.05)
    subject = plant.subject
    metrics = probe.run("neurons", subject, examples=121).metrics
    hook = "blocks.0.mlp.hook_post"
    mean = subject.activation(hook, at="answer").mean(0)
    for k, members in plant.truth["clusters"].items():

        def at_mean(x: torch.Tensor, hook: object, members: list = members) -> torch.Tensor:
            x = x.clone()
            x[:, 2, members] = mean[members]
            return x

        loss = subject.loss(subject.logits(hooks=[(hook, at_mean)]))["answer"]
        assert metrics["loss"] + metrics["ablation"][str(k)] == pytest.approx(loss, rel=1e-3)
    handle = copy.deepcopy(subject.model)
    handle.register_forward_pre_hook(lambda *_: None)  # no short cut is taken
    hooked = probe.run("neurons", Subject(handle, subject.task), examples=121).metrics
    assert hooked["ablation"] == pytest.approx(metrics["ablation"], rel=1e-3, abs=1e-6)


def test_lookup_tables_and_untrained_models_have_no_clusters() -> None:
    task = TASKS["modular-arithmetic"](p=13)
    plant = planted.modular_addition(13, (2, 5)).subject
    for subject in (planted.lookup_table(task).subject, plant.untrained(0)):
        result = probe.run("neurons", subject)
        assert result.metrics["clusters"] == {} and result.status != "found"


def test_what_is_no_pair_of_elements_is_refused() -> None:
    subject = planted.comparison(12).subject
    with pytest.raises(NotApplicableError, match=r"no input grid|all pairs|no MLP"):
        probe.run("neurons", subject)
    with pytest.raises(NotApplicableError, match="most allows 10"):
        probe.run("neurons", planted.modular_addition(11, (2, 5)).subject, most=10)


@pytest.mark.parametrize(
    ("folder", "clusters", "metric", "least"),
    [
        ("C113_T_seed1", {"16", "30", "56"}, "phase_alignment", 0.99),
        ("S5_T_seed1", {"sign", "standard⊗sign"}, "coset_share", 0.99),
    ],
)
def test_neurons_of_published_models_stand_in_their_key_representations(
    folder: str, clusters: set[str], metric: str, least: float
) -> None:
    path = CHECKPOINTS / "rep-theory" / folder / "model.pt"
    if not path.exists():
        pytest.skip(f"the published checkpoint rep-theory/{folder} is not beside the repository")
    metrics = probe.run("neurons", mechint.load(path), examples=256, permutations=99).metrics
    assert set(metrics["clusters"]) == clusters and metrics["clustered"] > 0.85
    found = metrics[metric]
    assert min(found.values() if isinstance(found, dict) else [found]) > least
