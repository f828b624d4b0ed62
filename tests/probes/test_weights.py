"""The probe of weights: circuits by brute force, composition scores against closed forms and
TransformerLens's, planted heads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mechint import planted
from mechint.config import ModelConfig
from mechint.models import build
from mechint.models.foreign import bridge
from mechint.registry import TASKS
from mechint.subject import Subject
from probes._weights import circuits, composition
from probes._weights.circuits import HeadCircuits
from tests.conformance.test_models import NATIVE, made

P = 7


def subject_of(**changes: Any) -> Subject:
    sizes = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 3, "d_vocab": P + 1, "n_ctx": 3}
    model = build(ModelConfig(**{**sizes, "d_vocab_out": P, **changes}), seed=1).eval()
    return Subject(model, TASKS["modular-arithmetic"].from_dict({"p": P}))


def random_norms(model: Any) -> None:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith((".w", ".b")):
                value.add_(torch.randn(value.shape, generator=generator) / 2)


# --- circuits -------------------------------------------------------------------------------------
@pytest.mark.parametrize("norm", [None, "LN"])
def test_circuits_are_scores_and_logits_of_single_tokens(norm: str | None) -> None:
    """Each entry step by step: one token asks another, one is read, written and unembedded."""
    subject = subject_of(normalization_type=norm, attn_scale=1.0)
    random_norms(subject.model)
    weights = {name: value.detach() for name, value in subject.model.weights().items()}
    heads = HeadCircuits.of(subject)
    embed = weights["embed.W_E"].double()

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        if norm is None:
            return x
        return (x - x.mean(-1, keepdim=True)) * weights[f"{name}.w"].double()  # the scale left out

    for index, (layer, head) in enumerate(heads.places):
        at = f"blocks.{layer}.attn"
        q, k, v, o = (weights[f"{at}.W_{letter}"][head].double() for letter in "QKVO")
        for a in range(3):
            for b in range(3):
                query, key = (normed(embed[i], f"blocks.{layer}.ln1") for i in (a, b))
                full = embed @ heads.qk[index].AB @ embed.T
                assert full[a, b] == pytest.approx(float((query @ q) @ (key @ k)), abs=1e-6)
            written = normed(embed[a], f"blocks.{layer}.ln1") @ v @ o
            logits = normed(written, "ln_final") @ weights["unembed.W_U"].double()
            unembed = circuits.unembedding(subject)
            assert unembed is not None
            assert torch.allclose(embed[a] @ heads.ov[index].AB @ unembed, logits, atol=1e-6)


def test_eigenvalues_are_those_of_the_whole_circuit() -> None:
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(3, 12, 4, generator=generator, dtype=torch.float64)
    right = torch.randn(3, 4, 12, generator=generator, dtype=torch.float64)
    values = torch.linalg.eigvals(left @ right)
    expected = values.real.sum(-1) / values.abs().sum(-1)
    assert torch.allclose(circuits.eigenvalue_share(left, right), expected)
    zeros = circuits.eigenvalue_share(left * 0, right)
    assert torch.equal(zeros, torch.zeros(3, dtype=torch.float64))


def test_tokens_are_the_classes_of_the_same_text() -> None:
    assert circuits.same_tokens(subject_of()) == (list(range(P)), list(range(P)))
    order = planted.comparison(5).subject
    assert circuits.same_tokens(order) is None  # yes and no
    lone = subject_of(d_vocab_out=P + 1).model
    assert circuits.same_tokens(Subject(lone, None)) == (list(range(8)), list(range(8)))
    assert circuits.same_tokens(Subject(subject_of().model, None)) is None


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt_neox", "olmo", "native bridge"])
def test_weights_say_what_the_model_does(kind: str) -> None:
    subject = Subject(made(kind), TASKS["modular-arithmetic"].from_dict({"p": P}))
    heads = HeadCircuits.of(subject)
    assert circuits.describes(subject, heads)
    turned = HeadCircuits(heads.q.roll(1, 1), heads.k, heads.v, heads.o, heads.places)
    assert not circuits.describes(subject, turned)
    turned = HeadCircuits(heads.q, heads.k, heads.v, heads.o.roll(1, 1), heads.places)
    assert not circuits.describes(subject, turned)


# --- composition ----------------------------------------------------------------------------------
def random_heads(d_model: int = 10, d_head: int = 3, layers: int = 2) -> HeadCircuits:
    generator = torch.Generator().manual_seed(3)
    q, k, v = torch.randn(3, 2 * layers, d_model, d_head, generator=generator).double()
    o = torch.randn(2 * layers, d_head, d_model, generator=generator).double()
    return HeadCircuits(
        q, k, v, o, tuple((layer, head) for layer in range(layers) for head in range(2))
    )


@pytest.mark.parametrize("kind", composition.KINDS)
def test_scores_are_those_of_transformer_lens(kind: str) -> None:
    model = bridge.boot_native({**NATIVE, "normalization_type": None, "n_layers": 3}, seed=4)
    heads = HeadCircuits.of(Subject(model, TASKS["modular-arithmetic"].from_dict({"p": P})))
    found = composition.compose(heads, 1, 0)
    assert found is not None
    peer = model.all_composition_scores(kind).scores.detach().flatten(2).flatten(0, 1).numpy()
    there = ~np.isnan(found.score[kind])
    assert there.sum() == 12 and there[:2, 2:].all()  # of heads of later blocks
    assert np.allclose(found.score[kind][there], peer[there], atol=1e-5)


def test_turned_heads_keep_what_all_heads_share() -> None:
    """Every turn moves the factors and leaves their summed covariance: span and spectrum."""
    heads = in_subspace(random_heads(d_model=12, d_head=3), 5)
    factors = torch.cat(
        [composition.column_factor(heads.ov), *composition.reading_factors(heads).values()]
    )
    shared = torch.einsum("hdk,hek->de", factors, factors)
    turn = composition.random_turn(shared, np.random.default_rng(0))
    turned = turn @ factors
    assert torch.linalg.matrix_rank(shared) == 5 and not torch.allclose(turned, factors, atol=0.1)
    assert torch.allclose(torch.einsum("hdk,hek->de", turned, turned), shared, atol=1e-9)


def in_subspace(heads: HeadCircuits, rank: int, seed: int = 0) -> HeadCircuits:
    """The heads with all that they read and write projected onto one random subspace."""
    generator = torch.Generator().manual_seed(seed)
    width = heads.q.shape[1]
    basis = torch.linalg.qr(torch.randn(width, rank, generator=generator).double())[0]
    onto = basis @ basis.T
    return HeadCircuits(
        onto @ heads.q, onto @ heads.k, onto @ heads.v, heads.o @ onto, heads.places
    )


@pytest.mark.parametrize(("d_model", "rank"), [(8, 8), (24, 6)])
def test_random_heads_do_not_compose_more_often_than_the_level_says(
    d_model: int, rank: int
) -> None:
    found = 0
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        q, k, v = torch.randn(3, 4, d_model, 2, generator=generator).double()
        o = torch.randn(4, 2, d_model, generator=generator).double()
        heads = HeadCircuits(q, k, v, o, ((0, 0), (0, 1), (1, 0), (1, 1)))
        made = composition.compose(in_subspace(heads, rank, seed), 19, seed)
        assert made is not None
        found += min(float(np.nanmin(made.p_values(kind))) for kind in "QKV") <= 0.05
    assert found <= 8  # of 60 at 5%: more than 8 in 0.5% of the cases


def test_one_reader_among_heads_of_a_shared_subspace_is_found() -> None:
    """Eight heads in 16 of 48 directions, one of which reads in 2 of them what another writes."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = torch.randn(3, 8, 48, 8, generator=generator).double()
    o = torch.randn(8, 8, 48, generator=generator).double()
    places = tuple((layer, head) for layer in range(2) for head in range(4))
    random = in_subspace(HeadCircuits(q, k, v, o, places), 16)
    silent = composition.compose(random, 199, 0)
    assert silent is not None
    assert min(float(np.nanmin(silent.p_values(kind))) for kind in "QKV") > 0.01
    planted_q, planted_o = random.q.clone(), random.o.clone()
    planted_o[1, 2:] = 0
    planted_q[6, :, :2], planted_q[6, :, 2:] = random.o[1, :2].T, 0
    made = HeadCircuits(planted_q, random.k, random.v, planted_o, places)
    found = composition.compose(made, 199, 0)
    assert found is not None
    at_level = {kind: np.argwhere(found.p_values(kind) <= 0.01).tolist() for kind in "QKV"}
    assert at_level == {"Q": [[1, 6]], "K": [], "V": []}


def test_what_all_heads_share_hides_who_reads_whom() -> None:
    """Heads in three of 48 directions: one is made to read another, and every turn within the three
    is about as near. Of heads in all 48 that read nothing, nothing is hidden.
    """
    made = random_heads(d_model=48)
    shared = in_subspace(made, 3)
    shared.q[2], shared.q[3] = shared.o[0].T, shared.o[1].T
    found, apart = (composition.compose(heads, 199, 0) for heads in (shared, made))
    assert found is not None and apart is not None
    assert float(np.nanmin(found.p_values("Q"))) > 0.1 and found.hidden("Q", 0.01)
    assert not any(apart.hidden(kind, 0.01) for kind in "QKV")


def test_z_of_all_rotations_is_that_of_drawn_ones() -> None:
    heads, draw = random_heads(), np.random.default_rng(0)
    writes = composition.column_factor(heads.ov)
    reads = composition.reading_factors(heads)["K"]
    scores = [
        composition.squared_scores(writes, composition.random_rotation(10, draw) @ reads)
        for _ in range(20_000)
    ]
    own, drawn = composition.squared_scores(writes, reads), torch.stack(scores)
    expected = (own - drawn.mean(0)) / drawn.std(0)
    assert torch.allclose(composition.turned_anyhow(writes, reads), expected, atol=0.05, rtol=0.05)


# --- the probe ------------------------------------------------------------------------------------
def test_own_tokens_are_counted_as_by_hand() -> None:
    """Row 0 alone has its largest entry at its own token, and a row of equal entries has none."""
    full = torch.tensor([[3.0, 1, 0], [5, 4, 0], [1, 1, 1]], dtype=torch.float64)
    eye = torch.eye(3, dtype=torch.float64)
    assert circuits.own_share(full[None], eye[None], 3) == [pytest.approx(1 / 3)]
    assert circuits.own_share(full[None], eye[None], 1) == [1.0]
