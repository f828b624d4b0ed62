"""Clusters of neurons: shares and cosets by brute force, planted clusters, published models."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import kstest

import mechint
from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError
from mechint.groups.named import cyclic, dihedral, direct_product, symmetric
from mechint.groups.representations import representations
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.reporting import Report
from mechint.results import ProbeResult
from mechint.subject import Subject
from probes import removal
from probes._fourier.neurons import grid_energies
from probes._irreps.spectrum import element_orders
from probes._neurons import measures
from probes._neurons.ablation import add_ablation
from probes._neurons.probe import Neurons
from probes.neuron_removal import NeuronsAtMean

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
    assert result.verdict == "yes"
    assert ProbeResult.from_json(result.to_json()).to_json() == result.to_json()


@pytest.mark.parametrize(("operation", "sign"), [("add", 1), ("subtract", -1), ("x^2+y^2", None)])
def test_phases_of_a_difference_are_those_of_a_subtraction(operation: str, sign) -> None:
    """The head of b writes b's sines with the other sign: the model then answers a − b."""
    plant = planted.modular_addition(17, (2, 5, 7))
    if operation == "subtract":
        with torch.no_grad():
            plant.subject.model.weights()["blocks.0.attn.W_O"][1, 1::2] *= -1
    task = TASKS["modular-arithmetic"](p=17, operation=operation)
    subject = Subject(plant.subject.model, task)
    assert (subject.accuracy()["answer"] == 1) == (sign is not None)
    metrics = probe.run("neurons", subject, permutations=1, examples=8).metrics
    if sign is None:  # no sum of the residues, nor their difference
        assert "phase_alignment" not in metrics and metrics["clusters"]
    else:
        assert set(metrics["phase_alignment"]) == {"2", "5", "7"}
        assert min(metrics["phase_alignment"].values()) > 0.99


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
        assert result.metrics["clusters"] == {} and result.verdict != "yes"


@pytest.mark.parametrize(
    "group", [cyclic(4), direct_product(cyclic(2), cyclic(2)), cyclic(5), cyclic(6), symmetric(3)]
)
def test_symmetries_are_the_orders_that_leave_the_shares(group) -> None:
    x = np.random.default_rng(0).standard_normal((group.order, group.order, 3))
    orders = [list(order) for order in itertools.permutations(range(group.order))]
    found = [measures.block_shares(group, x[np.ix_(order, order)]).max(0) for order in orders]
    observed = measures.block_shares(group, x).max(0)
    same = sum(bool(np.allclose(one, observed, atol=1e-9)) for one in found)
    assert element_orders(group) == len(orders) / same


def test_clusters_are_not_denied_where_shuffles_cannot_tell() -> None:
    """Of the orders of 5 elements one in six leaves the frequencies as they are; of 7 one in 120,
    so that 99 may have one among them.
    """
    result = probe.run("neurons", planted.modular_addition(5, (1,)).subject)
    assert result.metrics["clusters"] == {"1": 60} and result.verdict == "unclear"
    assert "arranged in only 6 ways" in result.finding
    said = set()
    for seed in range(4):
        result = probe.run("neurons", planted.modular_addition(7, (1,)).subject, seed=seed)
        finding = result.findings[0]
        assert result.metrics["clusters"] and "no clusters" not in finding.headline
        said.add(finding.verdict)
    assert said == {"yes", "unclear"}


def test_a_cluster_of_all_neurons_has_no_others() -> None:
    result = probe.run("neurons", planted.modular_addition(23, (3,)).subject, examples=64)
    assert result.metrics["ablation"]["3"] > 1 and "ablation.largest" not in result.null
    shares, ablation = result.findings
    assert (shares.verdict, ablation.verdict) == ("yes", "unclear")
    assert "of the 60 neurons that vary too few others are left" in ablation.headline


def widened(subject: Subject, extra: int, bias: np.ndarray | None = None) -> Subject:
    """The same answers with `extra` neurons that write nothing: zeros, or constants of a bias."""
    config = subject.model.config
    sizes = {**config.to_dict(), "d_mlp": config.d_mlp + extra}
    sizes["use_bias"] = config.use_bias or bias is not None
    wide = HookedTransformer(ModelConfig(**sizes))
    state = {name: torch.zeros_like(value) for name, value in wide.weights().items()}
    for name, value in subject.model.weights().items():
        state[name][tuple(slice(size) for size in value.shape)] = value.detach()
    if bias is not None:
        state["blocks.0.mlp.b_in"][config.d_mlp :] = torch.from_numpy(bias)
    wide.load_weights(state)
    made = Subject(wide, subject.task)
    assert torch.allclose(made.logits(), subject.logits(), atol=1e-5)
    return made


def test_dead_neurons_are_not_among_the_others() -> None:
    """A model with a hundred dead neurons more has the same null, to the digit."""
    subject = planted.modular_addition(11, (2, 3, 5), noise=0.05).subject
    narrow, wider = (
        probe.run("neurons", each, examples=121) for each in (subject, widened(subject, 100))
    )
    assert wider.metrics["dead"] - narrow.metrics["dead"] == 100
    assert wider.metrics["ablation"] == pytest.approx(narrow.metrics["ablation"], rel=1e-3)
    one, other = (result.null["ablation.largest"] for result in (narrow, wider))
    assert other.mean == pytest.approx(one.mean, rel=1e-3) and other.p_value == one.p_value


@pytest.mark.parametrize("bias", [None, np.linspace(0, 1000, 180, dtype=np.float32)])
def test_neurons_that_do_not_vary_are_in_no_sentence_but_as_such(bias: np.ndarray | None) -> None:
    """As many zeros, or constants, as neurons: no more clusters, none denied."""
    subject = planted.modular_addition(17, (2, 5, 7)).subject
    settings = {"examples": 64, "permutations": 99}
    narrow = probe.run("neurons", subject, **settings)
    wider = probe.run("neurons", widened(subject, 180, bias), **settings)
    assert narrow.metrics["dead"] == 0 and wider.metrics["dead"] == 180
    for name in ("clusters", "clustered", "mean_share"):
        assert wider.metrics[name] == pytest.approx(narrow.metrics[name], abs=1e-5)
    first = wider.findings[0]
    assert first.verdict == "yes"
    assert "of the last layer's neurons that vary (180 of 180; 180 do not)" in first.headline


def test_cosets_are_those_of_neurons_that_vary() -> None:
    subject = planted.group_product("D5", ("2a",)).subject
    settings = {"examples": 8, "permutations": 99}
    narrow, wider = (
        probe.run("neurons", each, **settings) for each in (subject, widened(subject, 400))
    )
    for name in ("coset_share", "coset_share.sample"):
        assert wider.metrics[name] == pytest.approx(narrow.metrics[name], abs=1e-5)
    told = next(one for one in narrow.findings if "cosets" in one.headline)
    assert told.verdict == "yes" and told.headline in wider.finding
    columns = wider.tables["neurons"].columns
    assert set(columns["subgroup order"][-400:]) == {0} and set(columns["cosets"][-400:]) == {""}
    assert columns["coset share"][:-400] == pytest.approx(
        narrow.tables["neurons"].columns["coset share"], abs=1e-5
    )


@pytest.mark.parametrize("scale", [1e-13, 1e6])
def test_the_scale_of_a_neuron_changes_nothing(scale: float) -> None:
    """ReLU neurons that are smaller, and written by as much more, are the same neurons."""
    subject = planted.modular_addition(17, (2, 5, 7)).subject
    scaled = Subject(copy.deepcopy(subject.model), subject.task)
    with torch.no_grad():
        weights = scaled.model.weights()
        weights["blocks.0.mlp.W_in"].mul_(scale)
        weights["blocks.0.mlp.W_out"].div_(scale)
    assert torch.allclose(scaled.logits(), subject.logits(), atol=1e-3)
    one, other = (probe.run("neurons", each, examples=64) for each in (subject, scaled))
    for name in ("clusters", "dead", "mean_share", "phase_alignment"):
        assert other.metrics[name] == pytest.approx(one.metrics[name], abs=1e-5)
    assert other.findings[0].headline == one.findings[0].headline


def test_a_neuron_that_is_always_on_is_what_it_is_without_its_bias() -> None:
    wave = np.cos(2 * np.pi * 3 * np.add.outer(np.arange(17), np.arange(17)) / 17)
    both = np.stack([wave, wave + 1e3], -1).astype(np.float32)
    values, varies = measures.standardized(both)
    shares = measures.block_shares(cyclic(17), values)
    assert varies.all() and shares.max() <= 1 + 1e-5
    assert shares[2] == pytest.approx(1, abs=1e-6)
    assert np.allclose(values[..., 0], values[..., 1], atol=1e-3)  # 1000 is held to 6e-5


def test_a_neuron_of_both_operands_alone_is_in_no_coset() -> None:
    """sgn(x) sgn(y) has no mean that varies: rounding of zero is no function of cosets."""
    group = symmetric(4)
    sign = representations(group).matrices("sign").reshape(-1)
    values, _ = measures.standardized((np.outer(sign, sign) + 0.1)[..., None].astype(np.float32))
    report = Report(Neurons(permutations=19), planted.group_product("S3", ("standard",)).subject)
    assert Neurons()._cosets(report, group, values, 0) == {}
    assert [one.verdict for one in report.findings] == ["unclear"]
    assert "no neuron varies with one operand" in report.findings[0].headline
    both = np.concatenate([values, np.tile(sign[:, None, None], (1, 24, 1))], -1)
    columns = Neurons()._cosets(report, group, both, 0)
    assert report.metrics["coset_share"] == pytest.approx(1)
    assert columns["subgroup order"] == [0, 2]  # of those that tell the sign the smallest
    assert columns["coset share"] == [0, pytest.approx(1)]


@pytest.mark.parametrize("sizes", [(30,), (20, 20, 20), (30, 6, 5, 4, 3, 2)])
def test_clusters_of_no_effect_of_their_own_are_found_at_the_level(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    """Every neuron adds its own to the loss, whichever cluster it is in: p-values are uniform,
    however many clusters the largest is of.
    """
    report, p = Report(Neurons(), planted.modular_addition(11, (2, 5)).subject), []
    alive = np.ones(60, bool)
    monkeypatch.setattr(removal, "mean_loss", lambda *_: 0.0)
    for seed in range(100):
        draw = np.random.default_rng(seed)
        effects = draw.standard_normal(60)
        monkeypatch.setattr(NeuronsAtMean, "loss", lambda _, some, e=effects: float(e[some].sum()))
        parts = np.split(draw.permutation(60), np.cumsum(sizes))[: len(sizes)]
        clusters = {str(i): part for i, part in enumerate(parts)}
        hook = "blocks.0.mlp.hook_post"
        add_ablation(report, hook, clusters, alive, examples=8, samples=99, seed=seed)
        p.append(report.nulls["ablation.largest"].p_value)
        sentence = report.findings[-1].headline
        assert "rises by -" not in sentence and "changes by --" not in sentence
    spread = np.array(p) - np.random.default_rng(0).random(100) / 100
    assert kstest(spread, "uniform").pvalue > 1e-3


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
