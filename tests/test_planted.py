"""Every written model does what its truth says: accuracy, closed forms, invariance under rotation,
graceful noise.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mechint import planted
from mechint.errors import ParameterError
from mechint.groups.representations import representations
from mechint.registry import TASKS


def everywhere(plant: planted.Planted) -> float:
    """Share of all read positions and outputs answered correctly."""
    subject = plant.subject
    assert subject.task is not None
    logits = subject.logits(at=None)
    answers = torch.stack(
        [logits[..., part].argmax(-1) for part in subject.task.output_slices.values()], -1
    )
    read = subject.data.targets >= 0
    return float((answers == subject.data.targets)[read].double().mean())


def ideal(p: int, frequencies: tuple[int, ...], constant: bool) -> np.ndarray:
    """(p, p, p) Σ_k cos 2πk(a + b − c)/p by direct summation; with constant attention each times
    |cos πk(a − b)/p|.
    """
    a, b, c = np.ogrid[:p, :p, :p]
    factor = [np.abs(np.cos(np.pi * k * (a - b) / p)) if constant else 1 for k in frequencies]
    waves = [np.cos(2 * np.pi * k * (a + b - c) / p) for k in frequencies]
    return sum(f * wave for f, wave in zip(factor, waves, strict=True))


# --- modular addition -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("p", "frequencies", "constant"),
    [
        (113, (16, 30, 56), False),
        (53, (1,), False),
        (53, (5, 17), False),
        (12, (1,), False),
        (12, (2, 3), False),
        (3, (1,), False),
        (31, tuple(range(1, 16)), False),
        (53, (5, 17), True),
        (31, (4,), True),
        (3, (1,), True),
    ],
)
def test_modular_addition_is_right_and_near_the_ideal_logits(
    p: int, frequencies: tuple[int, ...], constant: bool
) -> None:
    plant = planted.modular_addition(p, frequencies, constant_attention=constant)
    assert everywhere(plant) == 1.0
    assert plant.truth["frequencies"] == frequencies
    assert plant.subject.model.config.attention_rate == (0 if constant else 1)
    logits = plant.subject.grid(plant.subject.logits()).double().numpy()
    expected = ideal(p, frequencies, constant)
    assert np.corrcoef(logits.ravel(), expected.ravel())[0, 1] > 0.999


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_set_of_frequencies_that_determines_the_answer_works(data: st.DataObject) -> None:
    p = data.draw(st.integers(3, 40))
    frequencies = data.draw(
        st.lists(st.integers(1, (p - 1) // 2), min_size=1, max_size=4, unique=True)
    )
    if math.gcd(p, *frequencies) > 1:
        with pytest.raises(ParameterError, match="share the factor"):
            planted.modular_addition(p, frequencies)
    else:
        assert everywhere(planted.modular_addition(p, frequencies)) == 1.0


def test_each_cluster_writes_its_own_frequency() -> None:
    plant = planted.modular_addition(29, (3, 7))
    post = plant.subject.grid(plant.subject.activation("blocks.0.mlp.hook_post", at=2)).numpy()
    spectrum = np.abs(np.fft.fft(post, axis=0)) ** 2
    for k, neurons in plant.truth["clusters"].items():
        energy = spectrum[1:15, :, neurons].sum((1, 2))
        assert energy.argmax() + 1 == k
        assert energy[k - 1] / energy.sum() > 0.9


def test_bad_frequencies_are_refused() -> None:
    for frequencies in ((), (0,), (7,), (2, 2)):
        with pytest.raises(ParameterError, match="expected different integers from 1 to 5"):
            planted.modular_addition(11, frequencies)
    with pytest.raises(ParameterError, match="expected an odd p"):
        planted.modular_addition(12, (1,), constant_attention=True)


@pytest.mark.parametrize(
    ("group", "irreps"),
    [("S3", ("standard",)), ("S4", ("standard⊗sign",)), ("C7", ("1", "3")), ("S3xC4", None)],
)
def test_group_product_is_right_and_its_logits_are_characters(
    group: str, irreps: tuple[str, ...] | None
) -> None:
    known = TASKS["groups"](group=group).symmetry.group
    if irreps is None:  # a direct product needs what is faithful on both factors: take all
        irreps = tuple(irrep.name for irrep in representations(known).irreps[1:])
    plant = planted.group_product(group, irreps)
    assert everywhere(plant) == 1.0
    logits = plant.subject.grid(plant.subject.logits()).double().numpy()
    names = [irrep.name for irrep in representations(known).irreps]
    character = sum(representations(known).characters[names.index(name)] for name in irreps)
    expected = character[known.table[known.table][:, :, known.inverses]]
    assert np.corrcoef(logits.ravel(), expected.ravel())[0, 1] > 0.99
    with pytest.raises(ParameterError, match="add a faithful one"):
        planted.group_product(group, ["0" if group == "C7" else "trivial"])


# --- the other mechanisms -------------------------------------------------------------------------
@pytest.mark.parametrize(("n", "k"), [(3, 2), (6, 4), (5, 8)])
def test_composition_doubles_the_hop_in_every_layer(n: int, k: int) -> None:
    plant = planted.composition(n, k)
    assert everywhere(plant) == 1.0
    assert plant.truth["heads"] == {
        f"hop {2**layer}": (layer, 0) for layer in range(k.bit_length())
    }
    subject = plant.subject
    assert subject.task is not None
    hidden = torch.as_tensor(subject.task.tables()["permutations"])
    pattern = subject.activation("blocks.0.attn.hook_pattern")[:, 0].argmax(-1)
    expected = (n * torch.arange(k).unsqueeze(1) + hidden).flatten()
    assert bool((pattern == expected).all())
    # layer 2 looks at (i + 1, hop 1 of (i, j)), the hop computed here from the tokens
    sigma = subject.data.tokens.view(-1, k, n) % n
    one_hop = sigma.gather(2, hidden.expand(len(sigma), k, n))
    second = subject.activation("blocks.1.attn.hook_pattern")[:, 0].argmax(-1).view(-1, k, n)
    rows = torch.arange(1, k).view(1, -1, 1)
    assert bool((second[:, :-1] == n * rows + one_hop[:, :-1]).all())


def test_composition_doubles_only_powers_of_two() -> None:
    for k, hops in ((3, (1,)), (4, (1, 3))):
        with pytest.raises(ParameterError, match="expected powers of 2"):
            planted.composition(4, k, hops=hops)


@pytest.mark.parametrize("angle", [0.0, 1.0, 2.5])
def test_comparison_reads_the_planted_direction_alone(angle: float) -> None:
    plant = planted.comparison(20, angle)
    assert everywhere(plant) == 1.0
    direction = plant.truth["subspaces"]["hook_embed"].float()
    assert direction[:2, 0].tolist() == pytest.approx([math.cos(angle), math.sin(angle)], abs=1e-6)
    subject = plant.subject
    keep = direction @ direction.T
    hooks = [("hook_embed", lambda embedded, hook: embedded @ keep)]
    assert min(subject.accuracy(subject.logits(hooks=hooks)).values()) == 1.0
    hooks = [("hook_embed", lambda embedded, hook: embedded - embedded @ keep)]
    assert max(subject.accuracy(subject.logits(hooks=hooks)).values()) < 0.6


def test_induction_head_attends_to_the_token_after_the_last_occurrence() -> None:
    plant = planted.induction_head(n=12, length=6, seed=3)
    assert everywhere(plant) == 1.0
    (_, previous), (_, induction) = (
        plant.truth["heads"]["previous token"],
        plant.truth["heads"]["induction"],
    )
    first = plant.subject.activation("blocks.0.attn.hook_pattern")[:, previous]
    assert first.diagonal(-1, 1, 2).min() > 0.999
    second = plant.subject.activation("blocks.1.attn.hook_pattern")[:, induction]
    assert second.diagonal(-5, 1, 2)[:, 1:].min() > 0.999


def test_lookup_table_fires_one_neuron_an_input() -> None:
    task = TASKS["modular-arithmetic"](p=13)
    plant = planted.lookup_table(task, seed=2)
    assert everywhere(plant) == 1.0
    post = plant.subject.activation("blocks.0.mlp.hook_post", at=2)
    assert torch.allclose(post, 0.5 * torch.eye(169), atol=1e-4)
    with pytest.raises(ParameterError, match="at most 4096"):
        planted.lookup_table(TASKS["modular-arithmetic"](p=113))


# --- blur -----------------------------------------------------------------------------------------
BUILDERS = {
    "modular addition": lambda **blur: planted.modular_addition(29, (3, 7, 11), **blur),
    "constant attention": lambda **blur: planted.modular_addition(
        29, (3, 7, 11), constant_attention=True, **blur
    ),
    "group product": lambda **blur: planted.group_product("S3", **blur),
    "composition": lambda **blur: planted.composition(4, 4, **blur),
    "comparison": lambda **blur: planted.comparison(12, 0.7, **blur),
    "induction": lambda **blur: planted.induction_head(8, 4, **blur),
    "lookup": lambda **blur: planted.lookup_table(TASKS["modular-arithmetic"](p=7), **blur),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_a_rotation_changes_the_basis_and_nothing_else(name: str) -> None:
    plain, turned = BUILDERS[name](), BUILDERS[name](rotation_seed=5)
    assert torch.allclose(plain.subject.logits(at=None), turned.subject.logits(at=None), atol=2e-3)
    assert not torch.allclose(plain.subject.model.W_E, turned.subject.model.W_E, atol=0.1)
    for hook, basis in turned.truth["subspaces"].items():
        seen = turned.subject.activation(hook).double() @ basis
        assert torch.allclose(
            seen,
            plain.subject.activation(hook).double() @ plain.truth["subspaces"][hook],
            atol=1e-3,
        )


@pytest.mark.parametrize("name", BUILDERS)
def test_small_noise_leaves_the_answers(name: str) -> None:
    assert everywhere(BUILDERS[name](noise=0.003)) > 0.99


def test_the_size_of_the_noise_is_relative_to_the_weights() -> None:
    plain, noisy = (
        BUILDERS["modular addition"](noise=noise).subject.model.weights() for noise in (0.0, 0.1)
    )
    for name in ("embed.W_E", "blocks.0.mlp.W_in", "unembed.W_U"):
        ratio = (noisy[name] - plain[name]).detach().square().mean().sqrt() / plain[
            name
        ].detach().square().mean().sqrt()
        assert float(ratio) == pytest.approx(0.1, rel=0.15)


def test_the_same_seed_gives_the_same_plant_and_bad_blur_is_refused() -> None:
    a, b, other = (
        BUILDERS["comparison"](noise=0.1, rotation_seed=1, seed=seed).subject.model.weights()
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["embed.W_E"], other["embed.W_E"])
    with pytest.raises(ParameterError, match="noise=-1"):
        BUILDERS["comparison"](noise=-1)
