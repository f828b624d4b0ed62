"""Local Hugging Face directories through TransformerLens's bridge: the model's own logits, hooked,
with no network.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import torch

from mechint.checkpoints import load_checkpoint
from mechint.errors import CheckpointError
from mechint.probe import Need, unmet_need
from mechint.task import Batch


@pytest.fixture
def offline(monkeypatch):
    def refuse(*args, **options):
        raise OSError("no network in tests")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    )


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {
        "vocab_size": 50,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    return LlamaForCausalLM(LlamaConfig(**sizes, max_position_embeddings=16))


@pytest.mark.parametrize("make", [gpt2, llama], ids=["gpt2", "llama"])
def test_a_tiny_model_saved_to_disk(tmp_path, make, offline, capfd):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        source = make().eval()
    source.save_pretrained(tmp_path)
    capfd.readouterr()
    opened = load_checkpoint(tmp_path)
    assert capfd.readouterr().out == ""
    assert (opened.format, opened.task, opened.extra["d_vocab"], opened.extra["n_ctx"]) == (
        "huggingface",
        None,
        50,
        16,
    )
    tokens = torch.randint(50, (3, 8), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(
            opened.model(tokens), source(tokens).logits, atol=1e-5, rtol=1e-5
        )
    subject, data = opened.subject(), Batch(tokens, torch.full((3, 8, 1), -1))
    pattern = subject.activation("blocks.1.attn.hook_pattern", data=data)
    assert tuple(pattern.shape) == (3, 2, 8, 8) and torch.allclose(
        pattern.sum(-1), torch.ones(3, 2, 8), atol=1e-5
    )
    assert subject.activation("blocks.0.hook_resid_post", at=-1, data=data).shape == (3, 16)
    assert (
        subject.n_layers == 2
        and unmet_need(Need.EMBEDDING, subject) is None
        and "no task is known" in str(unmet_need(Need.GRID, subject))
    )


@pytest.mark.parametrize("given", ["pythia-70m", "./gpt2-small", "EleutherAI/pythia-70m"])
def test_a_directory_named_as_a_model_of_the_hub(tmp_path, monkeypatch, given, offline):
    """TransformerLens knows these names, by which the tokenizer would be another one."""
    from transformers import AutoTokenizer

    from mechint.models.bridge import _numbers

    source, folder = gpt2(), tmp_path / given
    source.save_pretrained(folder)
    _numbers(source.config).save_pretrained(folder)
    monkeypatch.chdir(tmp_path)
    opened = load_checkpoint(Path(given))
    assert opened.model.tokenizer.get_vocab() == AutoTokenizer.from_pretrained(folder).get_vocab()
    assert opened.model.tokenizer.decode([7]) == "7"


def test_rotated_positions_are_no_matrix(tmp_path, offline):
    """GPT-J's 2,048 positions need no weights, so small weights are whole."""
    from transformers import GPTJConfig, GPTJForCausalLM

    sizes = {"vocab_size": 20, "n_embd": 8, "n_layer": 1, "n_head": 2, "rotary_dim": 2}
    GPTJForCausalLM(
        GPTJConfig(**sizes, n_positions=2048, bos_token_id=0, eos_token_id=0)
    ).save_pretrained(tmp_path)
    assert load_checkpoint(tmp_path).extra["n_ctx"] == 2048


def test_damaged_weights_are_one_line(tmp_path, offline):
    gpt2().save_pretrained(tmp_path)
    weights = next(tmp_path.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match="this Hugging Face model cannot be opened") as caught:
        load_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)


def resaved(folder, change, **settings):
    """A tiny Llama in `folder` with its weights by name changed, and its configuration."""
    from safetensors.torch import load_file, save_file

    llama().save_pretrained(folder)
    weights, config = folder / "model.safetensors", folder / "config.json"
    save_file(change(load_file(weights)), weights, metadata={"format": "pt"})
    config.write_text(json.dumps(json.loads(config.read_text()) | settings))
    return folder


def refusal(folder):
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    return str(caught.value).removeprefix(f"{folder}: ")


def without(part):
    return lambda known: {name: value for name, value in known.items() if part not in name}


def with_bias(known):
    return known | {"model.layers.0.self_attn.q_proj.bias": torch.ones(16)}


def prefixed(known):
    return {f"module.{name}": value for name, value in known.items()}


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
    assert refusal(resaved(tmp_path, change, **settings)).startswith(said)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["model.layers.1.self_attn.k_proj.weight", "model.norm.weight"])
def test_one_value_that_is_not_finite(tmp_path, name, value, offline):
    def damaged(known):
        known[name].view(-1)[5] = value
        return known

    assert refusal(resaved(tmp_path, damaged)) == f"{name} holds values that are not finite"


def test_the_unembedding_may_be_the_embedding(tmp_path, offline):
    """A file without the head is whole where the configuration ties the two."""
    folder = resaved(tmp_path, without("lm_head"), tie_word_embeddings=True)
    model = load_checkpoint(folder).model
    torch.testing.assert_close(model.W_U, model.W_E.T)


def test_layers_that_a_model_without_a_head_leaves_out(tmp_path, offline):
    """Its names have no prefix."""
    source = gpt2().transformer
    source.save_pretrained(tmp_path)
    assert torch.equal(load_checkpoint(tmp_path).model.W_E, source.wte.weight)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"n_layer": 1}))
    assert refusal(tmp_path).startswith("its weights hold h.1.attn.c_attn.weight, a layer")


@pytest.mark.parametrize("causal", [False, True])
def test_a_masked_language_model_is_not_a_causal_one(tmp_path, causal, offline):
    """The same BERT opens with a causal mask, where a position's logits are those of its prefix."""
    from transformers import BertConfig, BertLMHeadModel

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 50}
    BertLMHeadModel(BertConfig(**sizes, num_attention_heads=2, is_decoder=causal)).save_pretrained(
        tmp_path
    )
    if causal:
        model, tokens = load_checkpoint(tmp_path).model, torch.tensor([[3, 4, 5, 6]])
        with torch.no_grad():
            torch.testing.assert_close(model(tokens)[:, :2], model(tokens[:, :2]))
    else:
        said = "BertLMHeadModel is not a causal language model: it reads later tokens"
        assert refusal(tmp_path) == said


def neox():
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 50}
    return GPTNeoXForCausalLM(
        GPTNeoXConfig(**sizes, num_attention_heads=2, max_position_embeddings=16)
    )


def olmo():
    from transformers import OlmoConfig, OlmoForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 50}
    return OlmoForCausalLM(
        OlmoConfig(**sizes, num_attention_heads=2, max_position_embeddings=16, pad_token_id=1)
    )


def gemma():
    from transformers import GemmaConfig, GemmaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 50}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    return GemmaForCausalLM(GemmaConfig(**sizes, **heads, max_position_embeddings=16))


MAKERS = {"gpt2": gpt2, "llama": llama, "gpt_neox": neox, "olmo": olmo, "gemma": gemma}


@pytest.fixture(params=MAKERS)
def directory(request, tmp_path, capfd):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        MAKERS[request.param]().save_pretrained(tmp_path)
    capfd.readouterr()
    return tmp_path


def test_analyze_ends_with_success(directory, offline, capfd):
    from mechint.cli import main

    def analyze(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["analyze", str(directory), *arguments])
        written = capfd.readouterr()
        assert not end.value.code, written.err
        return written.out

    assert "embedding" in analyze()
    task = ("--task", "modular-arithmetic", "--set", "p=13")
    unasked = analyze(*task)
    assert all(name in unasked for name in ("fourier", "irreps", "attention", "lens"))
    few = ("--set", "ablation.null_samples=9", "--set", "linear.permutations=19")
    named = analyze(*task, "--probe", "ablation", "--probe", "linear", "--probe", "lens", *few)
    assert "ablation" in named and "linear" in named


def test_the_lens_of_the_last_layer_is_the_model(directory, offline):
    """The final norm is a layer norm in some of these models and an RMS norm in others; Gemma's
    multiplies by 1 + w.
    """
    from mechint.activations import residual_hooks
    from probes._lens import Readout

    opened = load_checkpoint(directory, task="modular-arithmetic", parameters={"p": 13})
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in opened.model.parameters():
            weight += 0.3 * torch.randn(weight.shape, generator=noise)
    subject = opened.subject()
    last = list(residual_hooks(subject.n_layers, subject.hooks).values())[-1]
    logits = Readout(subject).logits(subject.activation(last, "answer").double())
    torch.testing.assert_close(logits, subject.logits().double(), atol=1e-5, rtol=1e-5)


def test_a_bridge_that_computes_another_model_is_refused(tmp_path, offline):
    """TransformerLens divides the scores of every GPT-2, whatever its configuration says."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 50, "n_positions": 3, "n_embd": 16, "n_layer": 2, "n_head": 2}
    noise = torch.Generator().manual_seed(0)
    for scaled in (True, False):
        model = GPT2LMHeadModel(GPT2Config(**sizes, scale_attn_weights=scaled))
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.3 * torch.randn(weight.shape, generator=noise)
        model.save_pretrained(tmp_path / str(scaled))
    load_checkpoint(tmp_path / "True")
    said = refusal(tmp_path / "False")
    assert "bridge does not compute this GPT2LMHeadModel: its logits are" in said
    assert "\n" not in said


def opt(**settings):
    from transformers import OPTConfig, OPTForCausalLM

    sizes = {"hidden_size": 16, "ffn_dim": 32, "num_hidden_layers": 2, "vocab_size": 50}
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": 16}
    return OPTForCausalLM(OPTConfig(**sizes, **settings))


def test_a_model_that_the_bridge_cannot_run_is_refused_when_it_is_opened(tmp_path, offline):
    opt(word_embed_proj_dim=16, do_layer_norm_before=False).save_pretrained(tmp_path)
    said = refusal(tmp_path)
    assert said.startswith("this Hugging Face model cannot be opened: ") and "\n" not in said


@pytest.mark.parametrize("before", [False, True], ids=["as OPT-350m", "with a final norm"])
def test_a_stream_that_is_narrowed_before_it_is_read_has_no_lens(tmp_path, before, offline):
    from mechint.registry import PROBES

    opt(word_embed_proj_dim=8, do_layer_norm_before=before).save_pretrained(tmp_path)
    subject = load_checkpoint(tmp_path, task="modular-arithmetic", parameters={"p": 13}).subject()
    for probe in ("lens", "attribution"):
        assert "are not its final norm and W_U" in str(PROBES[probe]().applicable(subject))
    assert "not as wide as its residual" in str(PROBES["weights"]().applicable(subject))
