"""Tiny causal language models of transformers, by model type, and where their named sites are in
modules of transformers: written by hand from its source, in its words alone.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY = 20
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 1}
SIZES = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim"), 16),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "moe_intermediate_size"), 24),
    **dict.fromkeys(("shared_expert_intermediate_size", "intermediate_size_mlp"), 24),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 2),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), 2
    ),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 2),
    **dict.fromkeys(("num_experts_per_tok", "num_key_value_heads"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 16),
    **{"vocab_size": VOCABULARY, "head_dim": 8, "sliding_window": 64, **ENDS},
}
"""Of every configuration, as far as it has fields of these names."""

LLAMA = {
    "hook_embed": "model.embed_tokens",
    "block": "model.layers",
    "hook_attn_out": "self_attn",
    "attn.hook_z": "self_attn.o_proj:input",
    "hook_mlp_out": "mlp",
    "mlp.hook_post": "mlp.down_proj:input",
}
"""Sites of a model like Llama; those of a block by their path in it."""
FULLY = {**LLAMA, "mlp.hook_post": "mlp.fc2:input"}
GPT2 = {
    "hook_embed": "transformer.wte",
    "block": "transformer.h",
    "hook_attn_out": "attn",
    "attn.hook_z": "attn.c_proj:input",
    "hook_mlp_out": "mlp",
    "mlp.hook_post": "mlp.c_proj:input",
}
GPTJ = {**GPT2, "attn.hook_z": "attn.out_proj:input", "mlp.hook_post": "mlp.fc_out:input"}
BLOOM = {
    "hook_embed": "transformer.word_embeddings_layernorm",
    "block": "transformer.h",
    "hook_attn_out": "self_attention.dense",
    "attn.hook_z": "self_attention.dense:input",
    "hook_mlp_out": "mlp.dense_4h_to_h",
    "mlp.hook_post": "mlp.dense_4h_to_h:input",
}
"""Its attention and its MLP add the stream to what they write themselves."""
NEOX = {
    **BLOOM,
    "hook_embed": "gpt_neox.embed_in",
    "block": "gpt_neox.layers",
    "hook_attn_out": "attention",
    "attn.hook_z": "attention.dense:input",
    "hook_mlp_out": "mlp",
}
OPT = {
    "hook_embed": "model.decoder.embed_tokens",
    "block": "model.decoder.layers",
    "hook_attn_out": "self_attn",
    "attn.hook_z": "self_attn.out_proj:input",
    "hook_mlp_out": "fc2",
    "mlp.hook_post": "fc2:input",
}
NORMED = {
    **LLAMA,
    "hook_attn_out": "post_attention_layernorm",
    "hook_mlp_out": "post_feedforward_layernorm",
}
"""A norm follows attention and MLP before the stream takes what they write."""
EXPERTS = {name: path for name, path in LLAMA.items() if name != "mlp.hook_post"}
STREAM = {"block": "backbone.layers", "hook_embed": "backbone.embeddings"}
MULTIPLIED = {
    name: path for name, path in LLAMA.items() if name not in ("hook_attn_out", "hook_mlp_out")
}
"""A multiplier stands between what attention and MLP write and the stream."""

LATENT = {
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 2,
    "qk_rope_head_dim": 2,
    "v_head_dim": 8,
    "num_key_value_heads": 2,
    "head_dim": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
"""Latent attention, whose queries are half as wide as its values."""
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 8),
}


@dataclass(frozen=True)
class Architecture:
    """settings: of its configuration, beside `SIZES`; without: sizes that it does not take; layers:
    layer → sites by hook, in place of `sites`.
    """

    sites: dict[str, str] = field(default_factory=lambda: LLAMA)
    settings: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    layers: dict[int, dict[str, str]] = field(default_factory=dict)

    def names(self) -> dict[str, str]:
        """Hook → the path of its module, ":input" where it is what the module is given."""
        found = {"hook_embed": self.sites["hook_embed"]}
        for layer in range(2):
            sites = self.layers.get(layer, self.sites)
            block = f"{self.sites['block']}.{layer}"
            found[f"blocks.{layer}.hook_resid_pre"] = f"{block}:input"
            if sites.get("hook_resid_post") != "none":
                found[f"blocks.{layer}.hook_resid_post"] = block
            for name, path in sites.items():
                if name not in ("hook_embed", "block", "hook_resid_post"):
                    found[f"blocks.{layer}.{name}"] = f"{block}.{path}"
        return found


A = Architecture
ARCHITECTURES: dict[str, Architecture] = {
    "afmoe": A(
        {**NORMED, "hook_mlp_out": "post_mlp_layernorm"},
        layers={
            1: {
                **EXPERTS,
                "hook_attn_out": "post_attention_layernorm",
                "hook_mlp_out": "post_mlp_layernorm",
            }
        },
    ),
    "apertus": A(),
    "arcee": A(),
    "bitnet": A(),
    "bloom": A(BLOOM),
    "codegen": A(
        GPTJ, {"n_head": 4, "num_attention_heads": 4, "rotary_dim": 4}, without=("head_dim",)
    ),
    "cohere": A(),
    "cohere2": A(),
    "deepseek_v2": A(settings=LATENT, layers={1: EXPERTS}),
    "deepseek_v3": A(settings=LATENT, layers={1: EXPERTS}),
    "ernie4_5": A(),
    "ernie4_5_moe": A(layers={1: EXPERTS}),
    "exaone4": A(NORMED),
    "falcon": A(
        {**BLOOM, "hook_embed": "transformer.word_embeddings", "hook_mlp_out": "mlp"},
        without=("head_dim", "num_key_value_heads"),
    ),
    "falcon_h1": A(
        {**LLAMA, "hook_mlp_out": "feed_forward", "mlp.hook_post": "feed_forward.down_proj:input"},
        {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}
        | {"mamba_n_groups": 1, "mamba_chunk_size": 8},
    ),
    "falcon_mamba": A(STREAM),
    "flex_olmo": A({**EXPERTS, **{k: NORMED[k] for k in ("hook_attn_out", "hook_mlp_out")}}),
    "gemma": A(),
    "gemma2": A(NORMED),
    "gemma3_text": A(NORMED),
    "gemma4_text": A(
        NORMED,
        {"num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "full_attention"]}
        | {"hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": VOCABULARY}
        | {"num_global_key_value_heads": 1, "global_head_dim": 8},
        without=("head_dim",),
    ),
    "glm": A(),
    "glm4": A(
        {**LLAMA, "hook_attn_out": "post_self_attn_layernorm", "hook_mlp_out": "post_mlp_layernorm"}
    ),
    "glm4_moe": A(layers={1: EXPERTS}),
    "glm4_moe_lite": A(settings=LATENT, layers={1: EXPERTS}),
    "gpt2": A(GPT2),
    "gpt_bigcode": A(GPT2),
    "gpt_neo": A(
        {**GPT2, "attn.hook_z": "attn.attention.out_proj:input"},
        {"attention_types": [[["global", "local"], 1]]},
    ),
    "gpt_neox": A(NEOX),
    "gpt_oss": A(EXPERTS),
    "gptj": A(GPTJ, {"rotary_dim": 4}),
    "granite": A(MULTIPLIED, {"residual_multiplier": 0.3}),
    "granitemoe": A(
        {name: path for name, path in MULTIPLIED.items() if name != "mlp.hook_post"},
        {"residual_multiplier": 0.3},
    ),
    "hunyuan_v1_dense": A(),
    "jais2": A(),
    "jetmoe": A(
        {name: EXPERTS[name] for name in ("hook_embed", "block", "hook_mlp_out")}
        | {"hook_attn_out": "self_attention"}
    ),
    "laguna": A(layers={1: EXPERTS}),
    "lfm2": A(
        {
            **LLAMA,
            "hook_attn_out": "self_attn",
            "attn.hook_z": "self_attn.out_proj:input",
            "hook_mlp_out": "feed_forward",
            "mlp.hook_post": "feed_forward.w2:input",
        },
        {"layer_types": ["full_attention", "full_attention"]},
    ),
    "llama": A(settings={"attention_bias": True, "mlp_bias": True}),
    "llama4_text": A({**EXPERTS, "hook_mlp_out": "feed_forward"}),
    "mamba": A(STREAM),
    "mamba2": A(
        STREAM, {"num_heads": 4, "head_dim": 8, "n_groups": 1, "state_size": 8, "chunk_size": 8}
    ),
    "minimax_m2": A(EXPERTS),
    "ministral3": A(),
    "mistral": A(),
    "mixtral": A(EXPERTS),
    "modernbert-decoder": A(
        {
            "hook_embed": "model.embeddings.norm",
            "block": "model.layers",
            "hook_attn_out": "attn",
            "attn.hook_z": "attn.Wo:input",
            "hook_mlp_out": "mlp",
            "mlp.hook_post": "mlp.Wo:input",
        }
    ),
    "mpt": A(
        {
            "hook_embed": "transformer.wte",
            "block": "transformer.blocks",
            "hook_attn_out": "attn",
            "attn.hook_z": "attn.out_proj:input",
            "hook_mlp_out": "ffn.down_proj",
            "mlp.hook_post": "ffn.down_proj:input",
        }
    ),
    "nanochat": A(FULLY),
    "nemotron": A(),
    "nemotron_h": A(
        {"block": "model.layers", "hook_embed": "model.embeddings"},
        {"layers_block_type": ["mamba", "attention"], "mamba_num_heads": 4, "mamba_head_dim": 8}
        | {"ssm_state_size": 8, "n_groups": 1, "chunk_size": 8},
    ),
    "olmo": A(),
    "olmo2": A(NORMED),
    "olmo3": A(NORMED),
    "olmoe": A(EXPERTS),
    "openai-gpt": A({**GPT2, "hook_embed": "transformer.tokens_embed", "hook_resid_post": "none"}),
    "opt": A(OPT),
    "phi": A({**FULLY, "attn.hook_z": "self_attn.dense:input"}),
    "phi3": A(),
    "qwen2": A(),
    "qwen2_moe": A(EXPERTS),
    "qwen3": A(),
    "qwen3_5_text": A(
        settings=LINEAR,
        layers={0: {name: LLAMA[name] for name in ("hook_mlp_out", "mlp.hook_post")}},
    ),
    "qwen3_moe": A(EXPERTS),
    "qwen3_next": A(EXPERTS, LINEAR, layers={0: {"hook_mlp_out": "mlp"}}),
    "rwkv": A({"block": "rwkv.blocks", "hook_embed": "rwkv.embeddings"}),
    "seed_oss": A(),
    "smollm3": A(),
    "stablelm": A(),
    "starcoder2": A({**LLAMA, "mlp.hook_post": "mlp.c_proj:input"}),
    "vaultgemma": A(),
    "xglm": A({**OPT, "hook_embed": "model.embed_tokens", "block": "model.layers"}),
    "youtu": A(settings=LATENT),
}
"""Model type → how it is built and where its sites are."""

REFUSED = {
    "bart": "cannot be run",
    "bert": "reads later tokens",
    "biogpt": "no bridge for a BioGptForCausalLM",
    "roformer": "reads later tokens",
    "xlm": "reads later tokens",
}
"""Model type → what its refusal says."""


def made(kind: str, **settings: Any) -> Any:
    """A tiny model of this type, every weight random, on the CPU."""
    import transformers

    known = ARCHITECTURES.get(kind, Architecture())
    blank = transformers.AutoConfig.for_model(kind)
    taken = set(vars(blank)) | set(type(blank).attribute_map)
    sizes = {name: size for name, size in SIZES.items() if name in taken - set(known.without)}
    config = type(blank)(**{**sizes, **known.settings, **settings})
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        build = transformers.AutoModelForCausalLM.from_config
        model = build(config, attn_implementation="eager").eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.2 * torch.randn(weight.shape)
    return model


class Reference:
    """The model by itself, each prompt without padding, and edits by hooks of torch at modules."""

    def __init__(self, kind: str, model: Any, prompts: list[list[int]]) -> None:
        self.model, self.paths = copy.deepcopy(model), ARCHITECTURES[kind].names()
        self.groups: dict[int, list[int]] = {}
        for index, prompt in enumerate(prompts):
            self.groups.setdefault(len(prompt), []).append(index)
        self.tokens = {
            length: torch.tensor([prompts[row] for row in rows])
            for length, rows in self.groups.items()
        }
        self.n = len(prompts)

    def forward(self, length: int, edits: dict[str, Any]) -> Tensor:
        """Logits at the end of the prompts of this length; edits: hook → function of the
        activation (example, pos, width), None where it is only looked at.
        """
        handles = [self._attach(hook, length, edit) for hook, edit in edits.items()]
        try:
            return self.model(self.tokens[length], use_cache=False).logits[:, -1]
        finally:
            for handle in handles:
                handle.remove()

    def _attach(self, hook: str, length: int, edit: Any) -> Any:
        path, _, side = self.paths[hook].partition(":")
        module: nn.Module = self.model.get_submodule(path)

        def edited(x: Tensor) -> Tensor | None:
            rows = x.reshape(-1, length, x.shape[-1])  # some modules are given them in one row
            new = edit(rows)
            return None if new is None else new.reshape(x.shape)

        def before(_: Any, args: Any, named: Any) -> Any:
            if args:
                new = edited(args[0])
                return None if new is None else ((new, *args[1:]), named)
            new = edited(named["hidden_states"])
            return None if new is None else (args, {**named, "hidden_states": new})

        def after(_: Any, args: Any, out: Any) -> Any:
            if isinstance(out, Tensor):
                return edited(out)
            new = edited(out[0])
            return None if new is None else type(out)((new, *out[1:]))

        if side:
            return module.register_forward_pre_hook(before, with_kwargs=True)
        return module.register_forward_hook(after)

    def logits(self, hook: str | None = None, edit: Any = None) -> Tensor:
        """(prompt, vocabulary) at the end of each prompt, under `edit`, if any."""
        result = torch.zeros(self.n, VOCABULARY)
        with torch.no_grad():
            for length, rows in self.groups.items():
                result[rows] = self.forward(length, {hook: edit} if hook else {})
        return result

    def activations(self) -> dict[str, dict[int, Tensor]]:
        """Hook → length → the activation (example, pos, width) of the prompts of that length."""
        seen: dict[str, dict[int, Tensor]] = {hook: {} for hook in self.paths}
        with torch.no_grad():
            for length in self.groups:

                def keep(hook: str, length: int = length) -> Any:
                    return lambda x: seen[hook].__setitem__(length, x.clone())

                self.forward(length, {hook: keep(hook) for hook in self.paths})
        return seen

    def gradients(self) -> dict[str, dict[int, Tensor]]:
        """As `activations`: of the sum of the squares of all logits at the ends."""
        found: dict[str, dict[int, Tensor]] = {hook: {} for hook in self.paths}
        for length in self.groups:
            added: dict[str, Tensor] = {}

            def plus_nothing(hook: str, added: dict[str, Tensor] = added) -> Any:
                def edit(x: Tensor) -> Tensor:
                    added[hook] = torch.zeros_like(x, requires_grad=True)
                    return x + added[hook]

                return edit

            logits = self.forward(length, {hook: plus_nothing(hook) for hook in self.paths})
            names = list(added)
            parts = torch.autograd.grad(logits.square().sum(), [added[name] for name in names])
            for name, part in zip(names, parts, strict=True):
                found[name][length] = part
        return found
