"""Representations of finite groups: characters by brute force, plants, silence, and the figures of
published models.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import mechint
from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError
from mechint.groups.representations import representations
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.results import ProbeResult
from mechint.subject import Subject

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
        assert metrics["embedding.share"][name] == pytest.approx(
            ((elements.T @ rows) ** 2).sum() / (rows**2).sum(), rel=1e-6
        )


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
        assert "no key representation" in result.finding


def test_answers_that_are_no_group_are_said_to_be_none() -> None:
    task = TASKS["modular-arithmetic"](
        p=7, table=tuple(tuple((3 * x * x + y) % 7 for y in range(7)) for x in range(7))
    )
    with pytest.raises(NotApplicableError, match="own answers are no group"):
        probe.run("irreps", planted.lookup_table(task).subject)
    with pytest.raises(NotApplicableError, match="no product of two elements"):
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
        # theirs centres the logits over classes alone
        assert metrics["logits.cosine"][name] == pytest.approx(
            theirs[f"logit_{their}_rep_trace_similarity"], abs=2e-3
        )


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
