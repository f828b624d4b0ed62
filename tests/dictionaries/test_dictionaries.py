"""Dictionaries: latents and reconstructions by hand, files of SAELens and hostile ones, the
loss they keep, and exported activations.
"""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from mechint import planted
from mechint.dictionaries import (
    Dictionary,
    Reconstruct,
    activation_batches,
    load_dictionary,
    recovery,
)
from mechint.dictionaries.dictionary import ARCHITECTURES
from mechint.dictionaries.files import save_dictionary
from mechint.errors import CheckpointError, ParameterError, UnknownNameError
from mechint.interventions import Site, logits_under, loss_under
from mechint.subject import Subject

D_IN, D_SAE = 5, 7
HOOK = "blocks.1.hook_resid_post"


def dictionary(architecture: str = "standard", **changes: Any) -> Dictionary:
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    own = {"jumprelu": {"threshold": drawn(D_SAE).abs()}, "topk": {"k": 2}}
    own["gated"] = {"r_mag": drawn(D_SAE), "b_mag": drawn(D_SAE)}
    more = own.get(architecture, {})
    tensors = (drawn(D_IN, D_SAE), drawn(D_SAE), drawn(D_SAE, D_IN), drawn(D_IN))
    return Dictionary(architecture, *tensors, **{"hook": HOOK, **more, **changes})


def by_hand(one: Dictionary, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Latents and reconstruction of one vector, entry by entry."""
    w_enc, w_dec = one.W_enc.double().numpy(), one.W_dec.double().numpy()
    b_enc, b_dec = one.b_enc.double().numpy(), one.b_dec.double().numpy()
    scale, shift = 1.0, 0.0
    if one.normalization == "layer_norm":
        shift, scale = x.mean(), np.sqrt(((x - x.mean()) ** 2).sum() / (len(x) - 1))
        x = (x - shift) / (scale + 1e-5)
    if one.normalization == "constant_norm_rescale":
        scale = np.sqrt((x**2).sum()) / np.sqrt(len(x))
        x = x / scale
    h = (x - b_dec * one.subtract_b_dec) @ w_enc + b_enc
    norms = np.sqrt((w_dec**2).sum(1)) if one.rescale else np.ones(len(h))
    h = h * norms
    latents = np.maximum(h, 0)
    if one.architecture == "topk":
        latents[np.argsort(-h)[one.k :]] = 0
    if one.architecture == "jumprelu":
        assert one.threshold is not None
        latents[h <= one.threshold.double().numpy()] = 0
    if one.architecture == "gated":
        assert one.r_mag is not None and one.b_mag is not None
        raw = (x - b_dec * one.subtract_b_dec) @ w_enc
        magnitude = raw * np.exp(one.r_mag.numpy()) + one.b_mag.numpy()
        latents = np.maximum(magnitude, 0) * (h > 0) * norms
    return latents, (latents / norms @ w_dec + b_dec) * scale + shift


CASES = [
    dictionary(),
    dictionary(subtract_b_dec=False),
    dictionary(normalization="layer_norm"),
    dictionary(normalization="constant_norm_rescale"),
    dictionary("jumprelu"),
    dictionary("topk"),
    dictionary("gated"),
    *(dictionary(name, rescale=True) for name in ARCHITECTURES),
    dictionary("jumprelu", rescale=True, normalization="layer_norm"),
]


@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.architecture}-{one.normalization}")
def test_latents_and_reconstruction_are_those_of_the_formula(one: Dictionary) -> None:
    x = torch.randn(3, 4, D_IN, generator=torch.Generator().manual_seed(2)).double()
    latents, rebuilt = one.encode(x), one.reconstruct(x)
    assert latents.shape == (3, 4, D_SAE) and rebuilt.shape == x.shape
    for i, j in itertools.product(range(3), range(4)):
        expected = by_hand(one, x[i, j].numpy())
        assert np.allclose(latents[i, j], expected[0], atol=1e-9)
        assert np.allclose(rebuilt[i, j], expected[1], atol=1e-9)


SAELENS = sorted((Path(__file__).parents[1] / "fixtures" / "saelens").iterdir())


@pytest.mark.parametrize("folder", SAELENS, ids=lambda folder: folder.name)
def test_what_saelens_saved_is_read_and_computes_the_same(folder: Path, tmp_path: Path) -> None:
    found = load_dictionary(folder)
    assert (found.hook, found.d_in, found.d_sae) == ("blocks.0.hook_resid_post", 8, 20)
    computed = load_file(folder / "computed.safetensors")
    latents, rebuilt = found.encode(computed["x"]), found.reconstruct(computed["x"])
    assert torch.allclose(latents, computed["latents"], atol=1e-6)
    assert torch.allclose(rebuilt, computed["reconstruction"], atol=1e-5)
    assert (computed["latents"] > 0).any() and not torch.allclose(rebuilt, computed["x"], atol=0.1)
    save_dictionary(found, tmp_path)
    theirs, ours = (
        load_file(folder / "sae_weights.safetensors"),
        load_file(tmp_path / "sae_weights.safetensors"),
    )
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


def test_a_latent_that_is_ablated_takes_its_own_direction_with_it() -> None:
    one = dictionary()
    x = torch.randn(6, D_IN, generator=torch.Generator().manual_seed(3)).double()
    difference = one.reconstruct(x) - one.reconstruct(x, without=(2,))
    assert torch.allclose(difference, one.encode(x)[:, 2:3] * one.W_dec[2].double())
    with pytest.raises(ParameterError, match="latent 7: expected 0 … 6"):
        one.reconstruct(x, without=(D_SAE,))
    with pytest.raises(ParameterError, match=r"width 4, expected d_in=5"):
        one.encode(x[:, :4])


# --- as an intervention ---------------------------------------------------------------------------
def written() -> tuple[Subject, Dictionary]:
    """A planted induction head, and the dictionary of the directions it answers along."""
    plant = planted.induction_head(8, 4, rotation_seed=1)
    basis = plant.truth["subspaces"][HOOK].float()
    width, n = basis.shape
    found = Dictionary(
        "standard", basis, torch.zeros(n), basis.T.contiguous(), torch.zeros(width), hook=HOOK
    )
    return plant.subject, found


def test_the_written_dictionary_keeps_the_loss_and_a_random_one_does_not() -> None:
    subject, found = written()
    kept = recovery(subject, found)
    assert kept.recovered == pytest.approx(1, abs=1e-4)
    assert kept.loss == pytest.approx(subject.loss()["next"], abs=1e-6)
    assert kept.zeroed == pytest.approx(np.log(8), rel=1e-4)  # uniform logits
    random = torch.linalg.qr(torch.randn(found.d_in, 8, generator=torch.Generator().manual_seed(0)))
    other = Dictionary(
        "standard", random[0], torch.zeros(8), random[0].T, torch.zeros(found.d_in), hook=HOOK
    )
    assert recovery(subject, other).recovered < 0.5 and recovery(subject, other).explained < 0.5


def test_a_recovery_is_a_mean_over_the_outputs_that_are_asked() -> None:
    """Some outputs of a composition have no answer at its last position."""
    subject = planted.composition().subject
    subject = subject.with_data(subject.data[:32])
    losses = loss_under(subject, [])
    asked = [name for name, loss in losses.items() if np.isfinite(loss)]
    assert 0 < len(asked) < len(losses)
    width = subject.model_description.d_model
    zeros = Dictionary(
        "standard",
        torch.zeros(width, 4),
        torch.zeros(4),
        torch.zeros(4, width),
        torch.zeros(width),
        hook="blocks.0.hook_resid_post",
    )
    kept = recovery(subject, zeros)
    assert kept.loss == pytest.approx(np.mean([losses[name] for name in asked]))
    edited = subject.logits(hooks=[("blocks.0.hook_resid_post", lambda x, hook: 0 * x)])
    at_zero = subject.loss(edited)
    assert kept.zeroed == pytest.approx(np.mean([at_zero[name] for name in asked]))
    assert kept.zeroed > kept.loss + 0.1  # else there is nothing to recover
    assert kept.reconstructed == pytest.approx(kept.zeroed) and kept.recovered == pytest.approx(0)


def test_what_does_not_vary_has_no_share_of_variance() -> None:
    """The embedding of "=" is the same vector in every example; its sums differ by rounding."""
    subject = planted.modular_addition(11, (1,)).subject.untrained(3)
    width = subject.model_description.d_model
    generator = torch.Generator().manual_seed(0)
    some = Dictionary(
        "standard",
        torch.randn(width, 4, generator=generator),
        torch.zeros(4),
        torch.randn(4, width, generator=generator),
        torch.zeros(width),
        hook="hook_embed",
    )
    assert len(subject.activation("hook_embed")[:, 2].unique(dim=0)) == 1
    assert np.isnan(recovery(subject, some, Site("hook_embed", pos=2)).explained)
    assert np.isfinite(recovery(subject, some, Site("hook_embed", pos=0)).explained)


def test_ablating_a_latent_spoils_the_answers_that_it_is_for() -> None:
    subject, found = written()
    logits = logits_under(subject, [Reconstruct(Site(HOOK, "answer"), found, without=(3,))])
    right = subject.correct(logits)[:, 0]
    asked = subject.targets[:, 0] == 3
    assert asked.any() and not right[asked].any() and right[~asked].all()


def test_with_its_error_a_reconstruction_changes_nothing() -> None:
    subject, found = written()
    half = Dictionary("topk", found.W_enc, found.b_enc, found.W_dec, found.b_dec, k=1, hook=HOOK)
    plain = loss_under(subject)
    same = loss_under(subject, [Reconstruct(half.site, half, keep_error=True)])
    assert same == pytest.approx(plain, abs=1e-5)


@pytest.mark.parametrize(
    ("architecture", "changes", "said"),
    [
        ("temporal", {}, "architecture='temporal': expected one of standard, jumprelu, topk"),
        ("standard", {"normalization": "layernorm"}, "normalization='layernorm': expected one of"),
        ("topk", {"k": None}, "k=None: expected 1 to d_sae=7"),
        ("topk", {"k": 8}, "k=8: expected 1 to d_sae=7"),
        ("jumprelu", {"threshold": None}, r"threshold None: expected shape \(7,\)"),
        ("standard", {"b_dec": torch.zeros(7)}, r"b_dec of shape \(7,\): expected shape \(5,\)"),
        ("standard", {"W_dec": torch.zeros(5, 7)}, r"W_dec of shape \(5, 7\): expected"),
    ],
)
def test_a_dictionary_made_by_hand_is_checked(
    architecture: str, changes: dict[str, Any], said: str
) -> None:
    """An unknown architecture was encoded as standard, an unknown normalization as none."""
    one = dictionary()
    for name, value in {"architecture": architecture, **changes}.items():
        object.__setattr__(one, name, value)  # the tests' own check of shapes would come first
    with pytest.raises(ParameterError, match=f"dictionary: {said}"):
        one.__post_init__()
    if not any(isinstance(value, torch.Tensor) for value in changes.values()):
        with pytest.raises(ParameterError, match=f"dictionary: {said}"):
            replace(dictionary(), architecture=architecture, **changes)


def test_heads_are_taken_as_one_vector() -> None:
    subject = planted.modular_addition(7, (2,)).subject
    z = "blocks.0.attn.hook_z"
    heads, d_head = subject.activation(z).shape[2:]
    eye = torch.eye(heads * d_head)
    both = Dictionary(
        "standard",
        torch.cat([eye, -eye], 1),
        torch.zeros(2 * heads * d_head),
        torch.cat([eye, -eye]),
        torch.zeros(heads * d_head),
        hook=z,
    )
    assert recovery(subject, both).recovered == pytest.approx(1, abs=1e-5)
    assert loss_under(subject, [Reconstruct(both.site, both)]) == pytest.approx(
        loss_under(subject), abs=1e-5
    )


def test_a_dictionary_of_one_head_changes_that_head_alone(tmp_path: Path) -> None:
    """Zeros in its place, on disk and back: what the model does without that head."""
    subject = planted.modular_addition(7, (2,)).subject.untrained(0)
    z = "blocks.0.attn.hook_z"
    d_head = subject.activation(z).shape[-1]
    shapes = ((d_head, 4), (4,), (4, d_head), (d_head,))
    zeros = Dictionary("standard", *map(torch.zeros, shapes), hook=z, head=1)
    save_dictionary(zeros, tmp_path / "sae")
    found = load_dictionary(tmp_path / "sae")
    assert found.head == 1 and found.site == Site.head(0, 1)
    assert json.loads((tmp_path / "sae" / "cfg.json").read_text())["reshape_activations"] == "none"
    rebuilt = logits_under(subject, [Reconstruct(found.site, found)])
    without, both = copy.deepcopy(subject.model), copy.deepcopy(subject.model)
    with torch.no_grad():
        without.blocks[0].attn.W_O[1] = 0
        both.blocks[0].attn.W_O[:] = 0
    without, both = subject.with_model(without).logits(), subject.with_model(both).logits()
    assert torch.allclose(rebuilt, without, atol=1e-5)
    assert not torch.allclose(rebuilt, both, atol=1e-3)
    measured = recovery(subject, found)
    assert measured.reconstructed == pytest.approx(measured.zeroed)
    assert measured.loss != pytest.approx(measured.zeroed)
    with pytest.raises(ParameterError, match="L0H7: 7 is not among the 2"):
        recovery(subject, replace(found, head=7))
    old = {"d_in": d_head, "d_sae": 4, "hook_point": z, "hook_point_head_index": 0}
    tensors = {name: getattr(zeros, name) for name in ("W_enc", "b_enc", "W_dec", "b_dec")}
    assert load_dictionary(lay_out(tmp_path / "old", old, **tensors)).site == Site.head(0, 0)


def test_a_dictionary_without_a_hook_or_a_task_says_so() -> None:
    subject, found = written()
    nameless = Dictionary("standard", found.W_enc, found.b_enc, found.W_dec, found.b_dec)
    with pytest.raises(ParameterError, match="names no hook"):
        recovery(subject, nameless)
    assert recovery(subject, nameless, Site(HOOK)).recovered == pytest.approx(1, abs=1e-4)
    with pytest.raises(ParameterError, match="no answer"):
        recovery(Subject(subject.model, None), found)


# --- files ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.architecture}-{one.normalization}")
def test_what_is_written_is_read_back(one: Dictionary, tmp_path: Path) -> None:
    save_dictionary(one, tmp_path / "sae")
    again = load_dictionary(tmp_path / "sae")
    x = torch.randn(9, D_IN, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(again.encode(x), one.encode(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(again.reconstruct(x), one.reconstruct(x), atol=1e-4, rtol=1e-5)
    if one.rescale and one.architecture != "topk":  # a setting of topk alone in SAELens
        assert not again.rescale and again.W_dec.norm(dim=-1).allclose(torch.ones(D_SAE))
        return
    for name, value in vars(one).items():
        other = getattr(again, name)
        assert torch.equal(other, value) if isinstance(value, torch.Tensor) else other == value
    assert load_dictionary(tmp_path / "sae", hook="hook_embed").hook == "hook_embed"


def lay_out(place: Path, config: Any, **tensors: torch.Tensor) -> Path:
    place.mkdir(exist_ok=True)
    (place / "cfg.json").write_text(config if isinstance(config, str) else json.dumps(config))
    save_file(tensors, place / "sae_weights.safetensors")
    return place


def parts() -> dict[str, torch.Tensor]:
    one = dictionary()
    return {name: getattr(one, name) for name in ("W_enc", "b_enc", "W_dec", "b_dec")}


SIZES = {"d_in": D_IN, "d_sae": D_SAE}


def test_configurations_before_version_six_are_read(tmp_path: Path) -> None:
    """Names that SAELens 2 to 5 wrote."""
    old = {**SIZES, "hook_point": "blocks.0.hook_mlp_out", "activation_fn_str": "relu"}
    found = load_dictionary(lay_out(tmp_path, {**old, "normalize_activations": False}, **parts()))
    assert (found.architecture, found.hook) == ("standard", "blocks.0.hook_mlp_out")
    topk = {"activation_fn": "topk", "activation_fn_kwargs": {"k": 3}, "hook_name": HOOK}
    found = load_dictionary(lay_out(tmp_path, {**SIZES, **topk}, **parts()))
    assert (found.architecture, found.k, found.hook) == ("topk", 3, HOOK)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architecture": "other"}, r"architecture='other': expected one of standard, jumprelu"),
        ({"architecture": ["standard"]}, "architecture="),
        ({"d_in": 10**12}, "d_in=1000000000000: expected a positive number"),
        ({"d_sae": True}, "d_sae=True"),
        ({"d_in": D_IN + 1}, r"W_enc: got shape \(5, 7\), expected \(6, 7\)"),
        ({"architecture": "topk"}, "k=None"),
        ({"architecture": "topk", "k": 8}, "k=8, expected at most d_sae=7"),
        ({"architecture": "jumprelu"}, "lacks threshold"),
        ({"normalize_activations": "expected_average_only_in"}, "fold the factor"),
        ({"apply_b_dec_to_input": "yes"}, "expected true or false"),
        ({"activation_fn": "tanh-relu"}, "activation_fn='tanh-relu'"),
        ({"hook_head_index": "1"}, "hook_head_index='1': expected a head"),
        ({"metadata": {"hook_head_index": -1}}, "hook_head_index=-1: expected a head"),
        ({"hook_name": HOOK, "hook_head_index": 1}, f"{HOOK} has no heads"),
    ],
)
def test_configurations_that_are_not_served_get_one_line(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=said) as caught:
        load_dictionary(lay_out(tmp_path, {**SIZES, **changes}, **parts()))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"W_dec": torch.full((D_SAE, D_IN), torch.nan)}, "35 of 35 values that are not finite"),
        ({"b_enc": torch.zeros(D_SAE, dtype=torch.int64)}, "int64 numbers"),
        ({"b_dec": torch.zeros(1)}, "got shape"),
        ({"W_gate": torch.zeros(1)}, "holds W_gate"),
    ],
)
def test_hostile_tensors_get_one_line(
    changes: dict[str, torch.Tensor], said: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=said):
        load_dictionary(lay_out(tmp_path, SIZES, **{**parts(), **changes}))


def test_damaged_files_get_one_line(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cfg\.json: no such file"):
        load_dictionary(tmp_path)
    for text, said in (("[1]", "a list"), ("{", "JSON"), ("[" * 10_000, "JSON|nested")):
        with pytest.raises(CheckpointError, match=said):
            load_dictionary(lay_out(tmp_path, text, **parts()))
    place = lay_out(tmp_path, SIZES, **parts()) / "sae_weights.safetensors"
    whole = place.read_bytes()
    for cut in (0, 7, 40, len(whole) - 3):
        place.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError):
            load_dictionary(tmp_path)
    place.write_bytes((1 << 60).to_bytes(8, "little") + whole[8:])
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        load_dictionary(tmp_path)
    place.unlink()
    with pytest.raises(CheckpointError, match="no such file"):
        load_dictionary(tmp_path)


# --- activations ----------------------------------------------------------------------------------
def test_batches_go_through_all_rows_in_another_order_each_time() -> None:
    subject = written()[0].with_limits(chunk=100)
    whole = subject.activation(HOOK).flatten(0, 1)
    batches = list(activation_batches(subject, HOOK, 999, epochs=1, seed=1))
    assert [len(one) for one in batches[:-1]] == [999] * (len(batches) - 1)
    rows = torch.cat(batches)
    assert rows.shape == whole.shape and not torch.allclose(rows, whole)
    assert torch.allclose(rows.double().sum(0), whole.double().sum(0), atol=1e-2)
    assert torch.allclose(rows.norm(dim=1).sort()[0], whole.norm(dim=1).sort()[0], atol=1e-5)
    again = torch.cat(list(activation_batches(subject, HOOK, 999, epochs=2, seed=1)))
    assert torch.equal(again[: len(rows)], rows) and len(again) == 2 * len(rows)
    assert not torch.equal(again[len(rows) :], rows)
    forever = activation_batches(subject, HOOK, len(whole) // 2 + 1, epochs=None)
    assert sum(len(one) for one in itertools.islice(forever, 5)) > 2 * len(whole)


def test_heads_are_joined_and_patterns_are_refused() -> None:
    subject = planted.modular_addition(7, (2,)).subject
    z = subject.activation("blocks.0.attn.hook_z")
    (batch,) = activation_batches(subject, "blocks.0.attn.hook_z", 10_000)
    assert batch.shape == (z.shape[0] * z.shape[1], z.shape[2] * z.shape[3])
    with pytest.raises(ParameterError, match="pairs of positions"):
        activation_batches(subject, "blocks.0.attn.hook_pattern", 8)
    with pytest.raises(UnknownNameError, match="did you mean"):
        activation_batches(subject, "blocks.0.hook_mlp_outt", 8)
    with pytest.raises(ParameterError, match="no example"):
        activation_batches(Subject(subject.model, None), "hook_embed", 8)
    with pytest.raises(ParameterError, match="at least 1"):
        activation_batches(subject, "hook_embed", 0)


# --- architectures of today's SAELens ------------------------------------------------------------
@pytest.mark.parametrize("architecture", ["batchtopk", "matryoshka_batchtopk"])
def test_batch_top_k_dictionaries_have_one_threshold(tmp_path: Path, architecture: str) -> None:
    config = {**SIZES, "architecture": architecture, "metadata": {"hook_name": HOOK}}
    threshold = torch.tensor(0.7)
    loaded = load_dictionary(lay_out(tmp_path, config, **parts(), topk_threshold=threshold))
    x = torch.randn(20, D_IN, generator=torch.Generator().manual_seed(2))
    h = (x - loaded.b_dec) @ loaded.W_enc + loaded.b_enc
    torch.testing.assert_close(loaded.encode(x), torch.where(h > 0.7, h, torch.zeros_like(h)))
    with pytest.raises(CheckpointError, match="without its threshold"):
        load_dictionary(lay_out(tmp_path, config, **parts()))
    several = torch.full((2, 3), 0.7)
    with pytest.raises(CheckpointError, match=r"topk_threshold: got shape \(2, 3\), expected one"):
        load_dictionary(lay_out(tmp_path, config, **parts(), topk_threshold=several))


@pytest.mark.parametrize("architecture", ["batchtopk", "matryoshka_batchtopk"])
def test_a_dictionary_as_the_trainer_keeps_it_is_exact(tmp_path: Path, architecture: str) -> None:
    """The identity in directions of lengths .05 to .5, which explains all variance."""
    lengths = torch.linspace(0.05, 0.5, 2 * D_IN)
    signs = torch.cat([torch.eye(D_IN), -torch.eye(D_IN)])
    tensors = {
        "W_enc": (signs / lengths[:, None]).T.contiguous(),
        "W_dec": signs * lengths[:, None],
    }
    tensors |= {"b_enc": torch.zeros(2 * D_IN), "b_dec": torch.zeros(D_IN)}
    config = {"d_in": D_IN, "d_sae": 2 * D_IN, "architecture": architecture}
    config |= {"rescale_acts_by_decoder_norm": True, "metadata": {"hook_name": HOOK}}
    found = load_dictionary(lay_out(tmp_path, config, **tensors, topk_threshold=torch.tensor(0.3)))
    x = torch.randn(50, D_IN, generator=torch.Generator().manual_seed(3))
    kept = torch.where(x.abs() > 0.3, x, torch.zeros_like(x))
    torch.testing.assert_close(found.reconstruct(x), kept)
    torch.testing.assert_close(found.encode(x), torch.cat([kept.relu(), (-kept).relu()], 1))


def test_gated_dictionaries_are_saved_under_saelens_names(tmp_path: Path) -> None:
    save_dictionary(dictionary("gated"), tmp_path)
    assert set(load_file(tmp_path / "sae_weights.safetensors")) == {
        "W_enc", "W_dec", "b_dec", "b_gate", "r_mag", "b_mag"
    }  # fmt: skip
