"""The probe of representations: plants, edited weights, published figures."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import mechint
from mechint import planted, probe
from mechint.groups.representations import representations
from mechint.models.pair_network import PairNetwork, PairNetworkConfig
from mechint.registry import TASKS
from mechint.subject import Subject

QUICK = {"removal_samples": 9, "removal_examples": 64}


def test_the_loss_without_a_representation_is_that_of_edited_weights() -> None:
    subject = planted.group_product("S4", ("standard",), noise=0.1, rotation_seed=1).subject
    metrics = probe.run("irreps", subject, **QUICK).metrics
    known = representations(subject.task.finite_group)
    rows = known.fourier_basis[list(known.irrep("standard").rows)]
    onto = torch.from_numpy(rows.T @ rows).float()
    model = copy.deepcopy(subject.model)
    with torch.no_grad():
        model.W_E[:24].sub_(onto @ model.W_E[:24])
    loss = Subject(model, subject.task).loss()["answer"]
    rise = metrics["embedding.removal"]["standard"]
    assert metrics["loss"] + rise == pytest.approx(loss, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("join", ["concat", "multiply"])
def test_networks_of_two_operands_have_two_embeddings(join: str) -> None:
    widths = () if join == "multiply" else (24,)
    config = PairNetworkConfig(
        d_vocab=6, d_vocab_out=6, d_embed=8, widths=widths, join=join, n_ctx=3
    )
    model = PairNetwork(config, seed=0)
    subject = Subject(model, TASKS["groups"](group="S3"))
    metrics = probe.run("irreps", subject, permutations=49, **QUICK).metrics
    known = representations(subject.task.finite_group)
    tables = {"embedding.share": model.embed, "embedding.right.share": model.embed_y}
    for metric, table in tables.items():
        expected = known.energy(table.W_E.detach().numpy())
        assert list(metrics[metric].values()) == pytest.approx(expected.tolist(), abs=1e-6)
    assert ("hidden.left.share" in metrics) == (join == "concat")


def test_shares_of_the_hidden_layer_are_those_of_means_by_operand_and_product() -> None:
    subject = planted.group_product("S3", ("standard",), noise=0.1).subject
    metrics = probe.run("irreps", subject, permutations=49, **QUICK).metrics
    values = subject.grid(subject.activation("blocks.0.mlp.hook_post", "answer")).double().numpy()
    values = values - values.mean((0, 1))
    table, group = subject.task.finite_group.table, subject.task.finite_group
    product = np.array([values[table == g].mean(0) for g in range(6)])
    for part, means in (("left", values.mean(1)), ("right", values.mean(0)), ("product", product)):
        energy = representations(group).energy(means) * 6 * (means**2).sum() / (values**2).sum()
        found = list(metrics[f"hidden.{part}.share"].values())
        assert found == pytest.approx(energy.tolist(), abs=1e-5)


@pytest.mark.full
def test_published_figures_of_s5(published: Path) -> None:
    path = published / "rep-theory" / "S5_T_seed1"
    theirs = json.loads((path / "summary_metrics.json").read_text())
    result = probe.run(
        "irreps", mechint.load(path / "model.pt", task="groups", group="S5"), **QUICK
    )
    metrics, key = result.metrics, {"sign": "sign", "standard⊗sign": "standard_sign"}
    assert metrics["logits.key_irreps"] == list(key)
    for name, their in key.items():
        for ours, quantity, tolerance in (
            ("embedding.share", f"percent_x_embed_{their}_rep", 1e-4),
            ("unembedding.share", f"percent_unembed_{their}_rep", 1e-4),
            ("hidden.left.share", f"percent_hidden_x_{their}_rep", 0.003),
            ("hidden.product.share", f"percent_hidden_xy_{their}_rep", 0.003),
            # theirs centers the logits over classes alone
            ("logits.cosine", f"logit_{their}_rep_trace_similarity", 2e-3),
        ):
            assert metrics[ours][name] == pytest.approx(theirs[quantity], abs=tolerance), ours
