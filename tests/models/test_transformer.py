"""HookedTransformer against TransformerLens 3.9's, activation by activation
(tests/fixtures/make_transformer_lens_fixture.py).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from mechint.checkpoints.formats.transformer_lens import interpret
from mechint.config import ModelConfig
from mechint.errors import CheckpointError, ParameterError
from mechint.models.transformer import HookedTransformer, initialize

FILES = sorted((Path(__file__).parents[1] / "fixtures" / "transformer_lens").glob("*.safetensors"))
SMALL = ModelConfig(n_layers=2, d_model=12, n_heads=3, d_mlp=20, n_ctx=5, d_vocab=7, d_vocab_out=6)


def opened(
    file: Path,
) -> tuple[
    HookedTransformer, dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, torch.Tensor]
]:
    """Our model with the file's weights; the file's state dict, its activations, and tokens and
    logits.
    """
    with safe_open(file, framework="pt") as content:
        names = content.keys()
        tensors, given = (
            {name: content.get_tensor(name) for name in names},
            json.loads(content.metadata()["config"]),
        )
    parts = {
        kind: {
            name.removeprefix(kind): value
            for name, value in tensors.items()
            if name.startswith(kind)
        }
        for kind in ("weight:", "hook:")
    }
    config, weights, assumed = interpret(file, parts["weight:"], given)
    assert not set(assumed) - {"attention_dir", "attn_scale", "eps", "architecture"}
    model = HookedTransformer(config).eval()
    model.load_weights(weights)
    return model, parts["weight:"], parts["hook:"], tensors


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_logits_and_every_activation_equal_transformer_lens(file):
    model, _, hooks, tensors = opened(file)
    model.use_attn_result = True
    with torch.no_grad():
        logits, cache = model.run_with_cache(tensors["tokens"])
    torch.testing.assert_close(logits, tensors["logits"], atol=1e-5, rtol=0)
    assert set(cache) == set(hooks)
    for name, expected in hooks.items():
        if name.endswith(("hook_k", "hook_v", "hook_rot_k")):  # shared keys are expanded
            expected = expected.repeat_interleave(cache[name].shape[2] // expected.shape[2], 2)
        torch.testing.assert_close(
            cache[name], expected, atol=1e-5, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_state_dict_goes_back_unchanged(file):
    model, state, _, _ = opened(file)
    state = {
        name.replace("._", "."): value.repeat_interleave(2, 0)
        if re.search(r"\._[Wb]_[KV]$", name)
        else value
        for name, value in state.items()
        if not name.endswith((".mask", ".IGNORE", ".rotary_sin", ".rotary_cos"))
    }
    back = model.transformer_lens_state()
    assert set(back) == set(state)
    assert all(torch.equal(back[name], state[name]) for name in back)


def test_a_model_without_biases_takes_zero_biases_and_gives_them_back():
    config = ModelConfig(
        **SMALL.to_dict() | {"use_bias": False, "normalization_type": "LN", "output_sizes": None}
    )
    source = HookedTransformer(config, seed=3)
    state = source.transformer_lens_state()
    assert not any(bool(state[name].any()) for name in set(state) - set(source.weights()))
    target = HookedTransformer(config, seed=4)
    target.load_weights(state)
    assert all(
        torch.equal(value, source.weights()[name]) for name, value in target.weights().items()
    )
    with pytest.raises(
        CheckpointError,
        match=r"state dict has blocks.0.attn.b_Q, which this model has no place for",
    ):
        target.load_weights(state | {"blocks.0.attn.b_Q": torch.ones(3, 4)})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"embed.W_E": None}, "lacks embed.W_E"),
        ({"embed.W_E": torch.ones(3, 12)}, r"embed.W_E: got shape \(3, 12\), expected \(7, 12\)"),
    ],
)
def test_a_state_dict_that_does_not_fit_is_refused(change, text):
    model = HookedTransformer(SMALL)
    state = {
        name: value
        for name, value in (model.transformer_lens_state() | change).items()
        if value is not None
    }
    with pytest.raises(CheckpointError, match=text):
        model.load_weights(state)


def test_repeated_passes_share_weights_and_have_hooks_of_their_own():
    looped = HookedTransformer(ModelConfig(**SMALL.to_dict() | {"n_loops": 2}), seed=1).eval()
    unrolled = HookedTransformer(ModelConfig(**SMALL.to_dict() | {"n_layers": 4}), seed=0).eval()
    weights = looped.weights()
    copies = {
        f"blocks.{layer + 2}.{name.split('.', 2)[2]}": value
        for name, value in weights.items()
        for layer in (0, 1)
        if name.startswith(f"blocks.{layer}.")
    }
    unrolled.load_weights({**weights, **copies})
    tokens = torch.randint(7, (3, 5), generator=torch.Generator().manual_seed(0))
    (logits, cache), (expected, plain) = (
        looped.run_with_cache(tokens),
        unrolled.run_with_cache(tokens),
    )
    assert torch.equal(logits, expected) and set(cache) == set(plain)
    assert torch.equal(cache["blocks.3.hook_resid_post"], plain["blocks.3.hook_resid_post"])


@pytest.mark.parametrize(
    "tokens", [torch.zeros(1, 6, dtype=torch.int64), torch.full((1, 2), 7), torch.full((1, 2), -1)]
)
def test_tokens_that_do_not_fit_are_refused(tokens):
    with pytest.raises(ParameterError):
        HookedTransformer(SMALL)(tokens)


@pytest.mark.parametrize(("mode", "std"), [("gpt2", 0.8 / 8), ("d_model", 1 / 8), ("normal", 0.02)])
def test_initial_weights_have_the_stated_spread_and_depend_on_the_seed_alone(mode, std):
    config = ModelConfig(d_model=64, n_heads=4, d_vocab=200, d_vocab_out=50, init_mode=mode)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first, again, other = initialize(config, 5), initialize(config, 5), initialize(config, 6)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embed.W_E"], other["embed.W_E"])
    for name in ("embed.W_E", "blocks.0.attn.W_Q", "blocks.0.mlp.W_in", "unembed.W_U"):
        assert float(first[name].std()) == pytest.approx(std, rel=0.1)
    assert not first["blocks.0.mlp.b_in"].any()


def test_he_initialization_scales_with_what_comes_in():
    weights = initialize(ModelConfig(d_model=64, n_heads=4, d_mlp=256, init_mode="he"), 0)
    assert float(weights["blocks.0.mlp.W_out"].std()) == pytest.approx((2 / 256) ** 0.5, rel=0.05)
    assert float(weights["blocks.0.mlp.W_in"].std()) == pytest.approx((2 / 64) ** 0.5, rel=0.05)
