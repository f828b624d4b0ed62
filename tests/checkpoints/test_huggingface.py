"""Hugging Face directories, offline: GPT-2 as a HookedTransformer, the others through a bridge."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from mechint.checkpoints import load_checkpoint
from mechint.errors import CheckpointError
from tests.conformance.architectures import VOCABULARY, made


@pytest.fixture
def offline(monkeypatch):
    def refuse(*args, **options):
        raise OSError("no network in tests")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def saved(folder: Path, kind: str, **settings: Any) -> Any:
    """A tiny model, and in `folder`."""
    model = made(kind, **settings)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize(
    "settings",
    [
        {"activation_function": "relu", "n_inner": 24},
        {"scale_attn_weights": False, "activation_function": "gelu"},
        {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
        {"scale_attn_by_inverse_layer_idx": True},
    ],
    ids=["relu", "unscaled", "untied", "scaled by layer"],
)
def test_gpt2_of_any_configuration_equals_transformers(tmp_path, settings, offline):
    """In float64 but for the bridge, which opens what a HookedTransformer does not express."""
    source = saved(tmp_path, "gpt2", **settings)
    opened = load_checkpoint(tmp_path)
    tokens = torch.randint(VOCABULARY, (5, 9), generator=torch.Generator().manual_seed(1))
    bridged = "scale_attn_by_inverse_layer_idx" in settings
    assert ("through the bridge for" in opened.extra) == bridged
    model, twin = (opened.model, source) if bridged else (opened.model.double(), source.double())
    with torch.no_grad():
        gap = (model(tokens) - twin(tokens).logits).abs().max()
    assert gap < (1e-4 if bridged else 1e-9)


def test_texts_of_unlike_length_where_the_tokenizer_has_no_special_tokens(tmp_path, offline):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    source = saved(tmp_path, "gpt_neox")
    words = Tokenizer(models.WordLevel({str(i): i for i in range(VOCABULARY)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path)
    model = load_checkpoint(tmp_path).model
    with torch.no_grad():
        logits = model(["1 2 3", "4"])
        assert torch.allclose(logits[0], source(torch.tensor([[1, 2, 3]])).logits, atol=1e-4)
        assert logits.shape[:2] == (2, 3)


def test_rotated_positions_are_no_matrix(tmp_path, offline):
    """GPT-J's 2,048 positions need no weights, so small weights are whole."""
    from transformers import GPTJConfig, GPTJForCausalLM

    sizes = {"vocab_size": 20, "n_embd": 8, "n_layer": 1, "n_head": 2, "rotary_dim": 2}
    GPTJForCausalLM(
        GPTJConfig(**sizes, n_positions=2048, bos_token_id=0, eos_token_id=0)
    ).save_pretrained(tmp_path)
    assert load_checkpoint(tmp_path).extra["n_ctx"] == 2048


def test_damaged_weights_are_one_line(tmp_path, offline):
    for kind in ("gpt2", "llama"):
        saved(tmp_path, kind)
        weights = next(tmp_path.glob("*.safetensors"))
        weights.write_bytes(weights.read_bytes()[:2000])
        with pytest.raises(CheckpointError, match="not a whole safetensors file") as caught:
            load_checkpoint(tmp_path)
        assert "\n" not in str(caught.value)


def resaved(folder, change, **settings):
    """A tiny Llama in `folder` with its weights by name changed, and its configuration."""
    from safetensors.torch import load_file, save_file

    saved(folder, "llama", attention_bias=False, mlp_bias=False)
    weights, config = folder / "model.safetensors", folder / "config.json"
    save_file(change(load_file(weights)), weights, metadata={"format": "pt"})
    config.write_text(json.dumps(json.loads(config.read_text()) | settings))
    return folder


def refusal(folder, **settings):
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{folder}: ")


def without(part):
    return lambda known: {name: value for name, value in known.items() if part not in name}


def with_bias(known):
    return known | {"model.layers.0.self_attn.q_proj.bias": torch.ones(16)}


def prefixed(known):
    return {f"module.{name}": value for name, value in known.items()}


@pytest.mark.full
@pytest.mark.parametrize(
    ("change", "settings", "said"),
    [
        (without("layers.1.mlp"), {}, "its weights lack model.layers.1.mlp.down_proj.weight"),
        (without("lm_head"), {}, "its weights lack lm_head.weight"),
        (prefixed, {}, "its weights lack lm_head.weight and 20 more"),
        (dict, {"num_hidden_layers": 3}, "its weights lack model.layers.2.input_layernorm.weight"),
        (dict, {"num_hidden_layers": 1}, "its weights hold model.layers.1.input_layernorm.weight"),
        (with_bias, {}, "its weights hold model.layers.0.self_attn.q_proj.bias, a bias"),
    ],
    ids=["no MLP", "no unembedding", "another prefix", "too few layers", "too many layers", "bias"],
)
def test_weights_that_are_not_the_model_are_refused(tmp_path, change, settings, said, offline):
    """Transformers would draw what is missing at random and leave out what is too much."""
    folder = resaved(tmp_path, change, **settings)
    assert refusal(folder, model={"bridge": True}).startswith(said)
    assert refusal(folder)


@pytest.mark.full
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["model.layers.1.self_attn.k_proj.weight", "model.norm.weight"])
def test_one_value_that_is_not_finite(tmp_path, name, value, offline):
    def damaged(known):
        known[name].view(-1)[5] = value
        return known

    folder = resaved(tmp_path, damaged)
    bridged = refusal(folder, model={"bridge": True})
    assert bridged == f"{name} holds values that are not finite"
    assert "values that are not finite" in refusal(folder)


def test_layers_that_a_model_without_a_head_leaves_out(tmp_path, offline):
    """Its names have no prefix."""
    source = made("gpt2").transformer
    source.save_pretrained(tmp_path)
    assert torch.equal(load_checkpoint(tmp_path).model.W_E, source.wte.weight)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"n_layer": 1}))
    assert "a layer that its configuration leaves out" in refusal(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("causal", [False, True])
def test_a_masked_language_model_is_not_a_causal_one(tmp_path, causal, offline):
    """The same BERT opens with a causal mask, where a position's logits are those of its prefix."""
    saved(tmp_path, "bert", is_decoder=causal)
    if causal:
        model, tokens = load_checkpoint(tmp_path).model, torch.tensor([[3, 4, 5, 6]])
        with torch.no_grad():
            torch.testing.assert_close(model(tokens)[:, :2], model(tokens[:, :2]))
    else:
        said = "BertLMHeadModel is not a causal language model: it reads later tokens"
        assert refusal(tmp_path) == said


@pytest.mark.full
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt_neox", "olmo", "gemma"])
def test_the_lens_of_the_last_layer_is_the_model(kind, tmp_path, offline):
    """The final norm is a layer norm in some of these models and an RMS norm in others; Gemma's
    multiplies by 1 + w.
    """
    from mechint.subject.activations import residual_hooks
    from probes._lens import Readout

    saved(tmp_path, kind)
    subject = load_checkpoint(tmp_path, task="modular-arithmetic", parameters={"p": 13}).subject()
    last = list(residual_hooks(subject.n_layers, subject.hooks).values())[-1]
    logits = Readout(subject).logits(subject.activation(last, "answer").double())
    torch.testing.assert_close(logits, subject.logits().double(), atol=1e-5, rtol=1e-5)


def test_a_model_that_the_bridge_cannot_run_is_refused_when_it_is_opened(tmp_path, offline):
    saved(tmp_path, "opt", do_layer_norm_before=False)
    said = refusal(tmp_path)
    assert said.startswith("this model cannot be bridged: ") and "\n" not in said


@pytest.mark.full
@pytest.mark.parametrize("before", [False, True], ids=["as OPT-350m", "with a final norm"])
def test_a_stream_that_is_narrowed_before_it_is_read_has_no_lens(tmp_path, before, offline):
    from mechint.registry import PROBES

    saved(tmp_path, "opt", word_embed_proj_dim=8, do_layer_norm_before=before)
    subject = load_checkpoint(tmp_path, task="modular-arithmetic", parameters={"p": 13}).subject()
    for probe in ("lens", "attribution"):
        assert "are not its final norm and W_U" in str(PROBES[probe]().applicable(subject))
    assert "not as wide as its residual" in str(PROBES["weights"]().applicable(subject))
