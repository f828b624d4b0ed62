"""Representations of finite groups: characters by brute force, plants, silence, and the figures of
published models.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import mechint
from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError
from mechint.groups.finite import FiniteGroup
from mechint.groups.representations import representations
from mechint.models.pair_network import PairNetwork, PairNetworkConfig
from mechint.models.transformer import HookedTransformer
from mechint.registry import PROBES, TASKS
from mechint.results import ProbeResult
from mechint.subject import Subject
from mechint.task import rng
from probes._irreps import reporting
from probes._irreps.spectrum import IrrepRule, IrrepSpectra

CHECKPOINTS = Path(__file__).parents[3] / "shared" / "checkpoints"


def transformer(
    d_vocab: int, d_vocab_out: int, seed: int = 0, d_model: int = 16
) -> HookedTransformer:
    return HookedTransformer(
        ModelConfig(d_model=d_model, n_heads=2, d_mlp=32, d_vocab=d_vocab, d_vocab_out=d_vocab_out),
        seed=seed,
    )


def test_cosines_and_shares_are_sums_over_the_group() -> None:
    task = TASKS["groups"](group="S3")
    subject = Subject(transformer(7, 6), task)
    metrics = probe.run("irreps", subject).metrics
    group, logits = task.finite_group, subject.grid(subject.logits()).double().numpy()
    logits = logits - logits.mean(2, keepdims=True)
    logits = logits - logits.mean((0, 1))
    matrices = {name: representations(group).matrices(name) for name in ("sign", "standard")}
    hidden = subject.grid(subject.activation("blocks.0.mlp.hook_post", at=2)).double().numpy()
    hidden = hidden - hidden.mean((0, 1))
    for name, rho in matrices.items():
        product = np.einsum("xij,yjk,zik->xyz", rho, rho, rho)  # tr ρ(x)ρ(y)ρ(z)ᵀ
        assert metrics["logits.cosine"][name] == pytest.approx(
            (logits * product).sum() / np.linalg.norm(logits) / np.linalg.norm(product), abs=1e-9
        )
        elements = rho.reshape(6, -1) / np.linalg.norm(rho.reshape(6, -1), axis=0)
        for metric, function in {"left": hidden.mean(1), "right": hidden.mean(0)}.items():
            energy = 6 * ((elements.T @ function) ** 2).sum() / (hidden**2).sum()
            assert metrics[f"hidden.{metric}.share"][name] == pytest.approx(energy, rel=1e-6)
        rows = subject.model.W_E[:6].detach().double().numpy()
        direct = subject.model.W_U.detach().double().numpy()[:, :6].T
        whole = direct @ subject.model.blocks[0].mlp.W_out.detach().double().numpy().T
        for metric, function in {
            "embedding": rows,
            "unembedding": whole,
            "unembedding.direct": direct,
        }.items():
            assert metrics[f"{metric}.share"][name] == pytest.approx(
                ((elements.T @ function) ** 2).sum() / (function**2).sum(), rel=1e-6
            )
        by_product = np.zeros((6, hidden.shape[-1]))
        np.add.at(by_product, group.table.ravel(), hidden.reshape(36, -1) / 6)
        energy = 6 * ((elements.T @ by_product) ** 2).sum() / (hidden**2).sum()
        assert metrics["hidden.product.share"][name] == pytest.approx(energy, rel=1e-6)
    right = subject.grid(subject.logits()).argmax(-1).numpy() == group.table
    assert metrics["table.agreement"] == pytest.approx(right.mean()) and not right.all()


def test_the_key_representations_are_named_with_what_they_explain_the_largest_first() -> None:
    plant = planted.group_product("S4", ("standard", "standard⊗sign"), noise=0.1, rotation_seed=2)
    with torch.no_grad():  # the second alone keeps its place in the embedding
        known = representations(plant.subject.task.finite_group)
        rows = torch.from_numpy(known.fourier_basis[list(known.irrep("standard").rows)]).float()
        table = plant.subject.model.W_E[:24]
        table.sub_(0.3 * rows.T @ (rows @ table))
    subject = Subject(plant.subject.model, plant.subject.task)
    result = probe.run("irreps", subject, permutations=499, removal_samples=9)
    keys, cosines = result.metrics["logits.key_irreps"], result.metrics["logits.cosine"]
    assert keys == ["standard", "standard⊗sign"]
    explained = sum(cosines[name] ** 2 for name in keys)
    assert result.metrics["logits.explained"] == pytest.approx(explained)
    assert f"they explain {explained:.1%} of the logits' variance" in result.finding
    assert cosines["standard"] < cosines["standard⊗sign"]
    first, second = result.finding.index("standard⊗sign ("), result.finding.index("standard (")
    assert first < second


def test_what_varies_of_an_embedding_is_named_the_largest_first() -> None:
    """A fifth of its energy in the sign, four in the standard representation, whatever it shares
    with all tokens.
    """
    plant, draw = planted.group_product("S4", ("standard",)), np.random.default_rng(0)
    spectra = IrrepSpectra(plant.subject.task.finite_group, IrrepRule(0.01, 1.5, 0.002, 499))
    rows = {name: spectra.rows([1 + spectra.names.index(name)]) for name in ("sign", "standard")}
    left = np.full((24, 40), 3.0)
    for name, share in (("sign", 0.2), ("standard", 0.8)):
        part = rows[name].T @ draw.standard_normal((len(rows[name]), 40))
        left += part * np.sqrt(share / (part**2).sum())
    report = probe.Report(PROBES["irreps"](), plant.subject)
    keys = [1 + spectra.names.index(name) for name in ("sign", "standard")]
    found = dataclasses.replace(spectra.shares(left, 0), keys=keys)
    reporting.add_embedding(report, spectra, found, torch.from_numpy(left), None)
    assert report.metrics["embedding.key_irreps"] == ["sign", "standard"]
    (finding,) = report.findings
    assert "holds its energy in standard (80.0%), sign (20.0%)" in finding.headline


def by_representation(group: FiniteGroup) -> dict[str, np.ndarray]:
    """Name → matrices (element, d, d) of all irreps of a group but the trivial one."""
    known = representations(group)
    return {name: known.matrices(name) for name in known.names[1:]}


def test_the_null_of_shares_is_the_largest_of_each_order_by_brute_force() -> None:
    """Relative to a flat spectrum, which gives each its dimension squared out of n - 1."""
    group = TASKS["groups"](group="D4").finite_group
    n, x = group.order, np.random.default_rng(3).standard_normal((group.order, 3))
    rule = IrrepRule(cosine=0.01, factor=3.0, alpha=0.05, permutations=12)
    found = IrrepSpectra(group, rule).shares(x, seed=5)

    def excess(rows: np.ndarray) -> list[float]:
        rows, shares = rows - rows.mean(0), []
        for rho in by_representation(group).values():
            entries = rho.reshape(n, -1) / np.linalg.norm(rho.reshape(n, -1), axis=0)
            share = ((entries.T @ rows) ** 2).sum() / (rows**2).sum()
            shares.append(share * (n - 1) / entries.shape[1])
        return shares

    draw = rng("irreps share null", 5)
    largest = [max(excess(x[draw.permutation(n)])) for _ in range(12)]
    assert found.keys == [] and found.values == pytest.approx(np.array(excess(x)))
    assert found.null == pytest.approx(np.array(largest), rel=1e-5)


def test_the_null_of_cosines_is_the_largest_of_each_order_by_brute_force() -> None:
    """With the classes alone in random order and with the answers too: the null further out."""
    group = TASKS["groups"](group="D4").finite_group
    n, inverse = group.order, (group.table == group.identity).argmax(1)
    sums = np.random.default_rng(4).standard_normal((n, n))
    sums = sums - sums.mean(0) - sums.mean(1, keepdims=True) + sums.mean()
    rule = IrrepRule(cosine=0.01, factor=3.0, alpha=0.2, permutations=9)
    found = IrrepSpectra(group, rule).logits(sums, 40.0, seed=5)

    def cosines(answers: np.ndarray, classes: np.ndarray) -> list[float]:
        pairs = group.table[np.arange(n)[:, None], inverse[None]]  # (answer, class): a·c⁻¹
        values = []
        for rho in by_representation(group).values():
            character = np.trace(rho, axis1=1, axis2=2)
            product = (sums[np.ix_(answers, classes)] * character[pairs]).sum()
            # every answer is that of n pairs
            values.append(product / np.sqrt(40.0 * n * (character[pairs] ** 2).sum()))
        return values

    names, draw = np.arange(n), rng("irreps relabeling null", 5)
    orders = [draw.permutation(n) for _ in range(9)]
    alone = np.array([max(cosines(names, order)) for order in orders])
    both = np.array([max(cosines(order, order)) for order in orders])
    further = max(alone, both, key=lambda null: np.sort(null)[-2])  # exceeded at p ≤ 0.2
    assert found.values == pytest.approx(np.array(cosines(names, names)))
    assert found.keys == [] and found.null == pytest.approx(further)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_plant_on_a_cyclic_group_has_its_frequencies_as_key(noise: float) -> None:
    plant = planted.modular_addition(23, (3, 7), noise=noise, rotation_seed=1)
    result = probe.run("irreps", Subject(plant.subject.model, TASKS["groups"](group="C23")))
    assert (
        result.metrics["logits.key_irreps"] == result.metrics["embedding.key_irreps"] == ["3", "7"]
    )
    assert (
        result.metrics["table.source"] == "task"
        and result.null["logits.largest_cosine"].p_value <= 0.002
    )
    assert ProbeResult.from_json(result.to_json()).to_json() == result.to_json()


def test_the_models_own_answers_make_the_table_where_the_tasks_does_not_fit() -> None:
    plant = planted.modular_addition(23, (3, 7)).subject.model
    order = torch.from_numpy(np.random.default_rng(0).permutation(23))
    state = {name: value.detach().clone() for name, value in plant.weights().items()}
    embedding, unembedding = state["embed.W_E"].clone(), torch.zeros_like(state["unembed.W_U"])
    embedding[order], unembedding[:, order] = state["embed.W_E"][:23], state["unembed.W_U"]
    plant.load_weights({**state, "embed.W_E": embedding, "unembed.W_U": unembedding})
    result = probe.run("irreps", Subject(plant, TASKS["groups"](group="C23")))
    assert result.metrics["table.source"] == "model" and result.metrics["table.agreement"] == 1
    assert len(result.metrics["logits.key_irreps"]) == 2
    assert "its own answers" in result.finding


@pytest.mark.parametrize("name", ["S4", "D7"])
def test_lookup_tables_and_untrained_weights_are_silent(name: str) -> None:
    task = TASKS["groups"](group=name)
    subjects = [
        planted.lookup_table(task, noise=noise, rotation_seed=1).subject for noise in (0.0, 0.1)
    ]
    for subject in [*subjects, Subject(transformer(task.d_vocab, task.d_vocab_out), task)]:
        result = probe.run("irreps", subject)
        assert (
            result.metrics["logits.key_irreps"] == []
            and result.metrics["embedding.key_irreps"] == []
        )
        assert result.verdict != "yes"
        assert "No representation of the embedding is key" in result.finding


def test_answers_that_are_no_group_are_said_to_be_none() -> None:
    task = TASKS["modular-arithmetic"](
        p=7, table=tuple(tuple((3 * x * x + y) % 7 for y in range(7)) for x in range(7))
    )
    with pytest.raises(NotApplicableError, match="own answers are not a group"):
        probe.run("irreps", planted.lookup_table(task).subject)
    with pytest.raises(NotApplicableError, match="not a product of two elements"):
        probe.run("irreps", planted.lookup_table(TASKS["remainders"](p=7)).subject)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "task", "key"),
    [
        (
            "S5_T_seed1",
            {"task": "groups", "group": "S5"},
            {"sign": "sign", "standard⊗sign": "standard_sign"},
        ),
        (
            "C113_T_seed1",
            {"task": "groups", "group": "C113"},
            {"16": "freq_16", "30": "freq_30", "56": "freq_56"},
        ),
    ],
)
def test_published_models_have_their_published_figures(
    folder: str, task: dict, key: dict[str, str]
) -> None:
    path = CHECKPOINTS / "rep-theory" / folder
    if not path.exists():
        pytest.skip(f"the published checkpoint rep-theory/{folder} is not beside the repository")
    theirs = json.loads((path / "summary_metrics.json").read_text())
    metrics = probe.run("irreps", mechint.load(path / "model.pt", **task)).metrics
    assert metrics["logits.key_irreps"] == list(key)
    for name, their in key.items():
        assert metrics["embedding.share"][name] == pytest.approx(
            theirs[f"percent_x_embed_{their}_rep"], abs=1e-4
        )
        assert metrics["unembedding.share"][name] == pytest.approx(
            theirs[f"percent_unembed_{their}_rep"], abs=1e-4
        )
        assert metrics["hidden.left.share"][name] == pytest.approx(
            theirs[f"percent_hidden_x_{their}_rep"], abs=0.003
        )
        assert metrics["hidden.product.share"][name] == pytest.approx(
            theirs[f"percent_hidden_xy_{their}_rep"], abs=0.003
        )
        # theirs centers the logits over classes alone
        assert metrics["logits.cosine"][name] == pytest.approx(
            theirs[f"logit_{their}_rep_trace_similarity"], abs=2e-3
        )


def test_weak_representations_that_a_published_model_needs_are_found_by_removal() -> None:
    path = CHECKPOINTS / "rep-theory" / "D61_T_seed1" / "model.pt"
    if not path.exists():
        pytest.skip("the published checkpoint rep-theory/D61_T_seed1 is not beside the repository")
    subject = mechint.load(path, task="groups", group="D61")
    result = probe.run("irreps", subject, permutations=499)
    metrics = result.metrics
    assert metrics["loss"] == pytest.approx(0.0455, abs=1e-4)
    weak = {"2a": 0.0188, "2d": 0.0338}  # their cosines, 0.0194 and 0.0168, are below the threshold
    assert {name: metrics["embedding.removal"][name] for name in weak} == pytest.approx(
        weak, rel=0.02
    )
    for name in weak:
        assert metrics["logits.cosine"][name] < metrics["logits.threshold"][name]
        assert name not in metrics["logits.key_irreps"]
    assert set(metrics["logits.key_irreps"]) < set(metrics["embedding.removal"])


def test_a_removal_is_the_loss_of_a_model_with_edited_weights() -> None:
    subject = planted.group_product("S4", ("standard",), noise=0.1, rotation_seed=1).subject
    metrics = probe.run("irreps", subject).metrics
    known = representations(subject.task.finite_group)
    rows = known.fourier_basis[list(known.irrep("standard").rows)]
    projector = torch.from_numpy(rows.T @ rows).float()
    for part in ("embedding", "unembedding"):
        model = copy.deepcopy(subject.model)
        with torch.no_grad():
            if part == "embedding":
                model.W_E[:24].sub_(projector @ model.W_E[:24])
            else:
                model.W_U.sub_(model.W_U @ projector)
        loss = Subject(model, subject.task).loss()["answer"]
        rise = metrics[f"{part}.removal"]["standard"]
        assert metrics["loss"] + rise == pytest.approx(loss, rel=1e-4, abs=1e-6)


def test_the_data_is_read_once_where_the_tasks_table_fits() -> None:
    subject = planted.group_product("S4", ("standard",)).subject.with_limits(memory=0, chunk=64)
    calls = []
    original = Subject.stream

    def counted(self: Subject, *arguments: object, **settings: object) -> object:
        calls.append(arguments)
        return original(self, *arguments, **settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Subject, "stream", counted)
        patch.setattr(Subject, "correct", lambda *_: pytest.fail("a forward of its own"))
        probe.run("irreps", subject, permutations=49)
    assert len(calls) == 1


@pytest.mark.parametrize("join", ["concat", "multiply"])
def test_networks_of_two_operands_have_two_embeddings(join: str) -> None:
    widths = () if join == "multiply" else (24,)
    config = PairNetworkConfig(
        d_vocab=6, d_vocab_out=6, d_embed=8, widths=widths, join=join, n_ctx=3
    )
    model = PairNetwork(config, seed=0)
    subject = Subject(model, TASKS["groups"](group="S3"))
    metrics = probe.run("irreps", subject, permutations=49).metrics
    known = representations(subject.task.finite_group)
    for metric, table in (
        ("embedding.share", model.embed),
        ("embedding.right.share", model.embed_y),
    ):
        expected = known.energy(table.W_E.detach().numpy())
        assert list(metrics[metric].values()) == pytest.approx(expected.tolist(), abs=1e-6)
    assert ("hidden.left.share" in metrics) == (join == "concat")


def test_a_difference_is_read_by_its_answer() -> None:
    """x − y computed by a plant of x + y whose second operand has tokens of its own, in the order
    of their negatives.
    """
    p = 11
    task = TASKS["modular-arithmetic"](p=p, operation="subtract", separate_vocabulary=True)
    plant = planted.modular_addition(p, (2, 5)).subject.model
    model = HookedTransformer(ModelConfig(**{**plant.config.to_dict(), "d_vocab": task.d_vocab}))
    state = {name: value.detach().clone() for name, value in plant.weights().items()}
    values = state["embed.W_E"][:p]
    model.load_weights(
        {
            **state,
            "embed.W_E": torch.cat([values, values[-torch.arange(p) % p], state["embed.W_E"][p:]]),
        }
    )
    subject = Subject(model, task)
    assert subject.accuracy() == {"answer": 1.0}
    metrics = probe.run("irreps", subject).metrics
    assert (
        metrics["logits.key_irreps"] == ["2", "5"]
        and metrics["table.source"] == "task"
        and metrics["table.agreement"] == 1
    )
    assert metrics["embedding.right.share"]["2"] == pytest.approx(metrics["embedding.share"]["2"])


def test_what_all_tokens_share_is_not_in_the_shares_of_the_sentence() -> None:
    """A vector moved from the tokens to the positions leaves the logits as they are."""
    subject = planted.group_product("S4", ("standard",), seed=0).subject
    before = subject.logits()
    with torch.no_grad():
        subject.model.embed.W_E.add_(20)
        subject.model.pos_embed.W_pos.sub_(20)
    moved = Subject(subject.model, subject.task)
    assert torch.allclose(moved.logits(), before, atol=1e-3)
    result = probe.run("irreps", moved, permutations=499, examples=16, removal_samples=9)
    assert result.metrics["embedding.share"]["standard"] < 0.01
    assert "holds its energy in standard (100.0%)" in result.finding


def test_a_loss_against_the_models_own_answers_is_called_so() -> None:
    """Its heads exchanged, the plant answers y·x: right on a fifth of the task's table."""
    subject = planted.group_product("S4", ("standard",), seed=0).subject
    with torch.no_grad():
        written = subject.model.weights()["blocks.0.attn.W_O"]
        written.copy_(written.flip(0))
    exchanged = Subject(subject.model, subject.task)
    result = probe.run("irreps", exchanged, permutations=499, removal_examples=128, examples=576)
    assert result.metrics["table.source"] == "model" and exchanged.loss()["answer"] > 1
    assert "loss" not in result.metrics and result.metrics["loss.own_answers"] < 1e-3
    assert "the loss against its own answers of" in result.finding
