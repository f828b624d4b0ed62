"""Directories as transformers reads them: its logits, natively where they can be, or a refusal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import mechint
from mechint.checkpoints import load_checkpoint
from mechint.errors import CheckpointError, DataError, ParameterError
from mechint.models.transformer import HookedTransformer
from tests.checkpoints.test_llama import made as made_like_llama
from tests.conformance.architectures import made as tiny

LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
TIED = {"tie_word_embeddings": True}


def made(kind: str, **settings: Any) -> Any:
    return tiny("gpt2", **settings) if kind == "GPT2" else made_like_llama(kind, **settings)


def right(folder: Path, tokens: Tensor) -> Tensor:
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(tokens).logits


def rows(length: int, n_tokens: int = 20) -> Tensor:
    return torch.randint(n_tokens, (2, length), generator=torch.Generator().manual_seed(3))


def check(folder: Path, length: int = 12, *, native: bool = True) -> Any:
    opened = load_checkpoint(folder, data=rows(length).tolist())
    expected = right(folder, rows(length))
    with torch.no_grad():
        off = (opened.model(rows(length)) - expected).abs().max()
    assert off < 1e-4 * (expected.max() - expected.min())
    assert isinstance(opened.model, HookedTransformer) == native, opened.extra
    return opened


def weights(folder: Path, change: Callable[[dict[str, Tensor]], Any], name: str = "model") -> None:
    values = load_file(folder / "model.safetensors")
    change(values)
    save_file(values, folder / f"{name}.safetensors", metadata={"format": "pt"})


def configured(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("GPT2", {}),
        ("Llama", {}),
        ("Llama", {"rope_parameters": LLAMA3}),
        ("Llama", {"attention_bias": True}),
        ("Mistral", {}),
        ("Qwen2", {}),
        ("Qwen3", {}),
    ],
    ids=["GPT-2", "Llama", "Llama 3", "biases", "Mistral", "Qwen2", "Qwen3"],
)
def test_what_is_expressed_is_native(kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    made(kind, **settings).save_pretrained(tmp_path)
    check(tmp_path, 16 if kind == "GPT2" else 60)


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("Llama", {"mlp_bias": True}, "model.layers.0.mlp.gate_proj.bias"),
        ("Mistral", {"sliding_window": 8}, "sliding_window=8"),
        ("Gemma2", {}, "model_type=gemma2"),
        ("GPTNeoX", {"num_key_value_heads": 4}, "model_type=gpt_neox"),
        (
            "Llama",
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
            "rope_type=linear",
        ),
    ],
)
def test_what_a_hooked_transformer_lacks_goes_through_the_bridge(
    kind: str, settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    made(kind, **settings).save_pretrained(tmp_path)
    assert said in check(tmp_path, native=False).extra["through the bridge for"]


@pytest.mark.parametrize("kind", ["GPT2", "Llama"])
def test_a_head_of_its_own_beside_a_tie_is_kept(kind: str, tmp_path: Path) -> None:
    made(kind, **TIED).save_pretrained(tmp_path)

    def add(known: dict[str, Tensor]) -> None:
        shape = next(value for name, value in known.items() if "wte" in name or "embed" in name)
        known["lm_head.weight"] = torch.randn(
            shape.shape, generator=torch.Generator().manual_seed(5)
        )

    weights(tmp_path, add)
    check(tmp_path)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("GPT2", "transformer.wte.weight"), ("Llama", "model.embed_tokens.weight")],
)
def test_a_tie_of_which_the_head_alone_was_kept(kind: str, name: str, tmp_path: Path) -> None:
    made(kind, **TIED).save_pretrained(tmp_path)
    weights(tmp_path, lambda known: known.update({"lm_head.weight": known.pop(name)}))
    check(tmp_path)


def test_files_that_are_not_the_models_are_not_read(tmp_path: Path) -> None:
    made("Llama").save_pretrained(tmp_path / "one")
    made("Llama").save_pretrained(tmp_path / "several", max_shard_size="8KB")
    assert not (tmp_path / "several" / "model.safetensors").exists()

    def noise(known: dict[str, Tensor]) -> None:
        known.update({name: torch.randn_like(value) for name, value in known.items()})

    for stray in ("pruned", "model_old", "optimizer", "tf", "z"):
        weights(tmp_path / "one", noise, stray)
    values = load_file(tmp_path / "one" / "z.safetensors")
    save_file(values, tmp_path / "several" / "z.safetensors", metadata={"format": "pt"})
    check(tmp_path / "one")
    check(tmp_path / "several")
    index = tmp_path / "several" / "model.safetensors.index.json"
    named = json.loads(index.read_text())
    named["weight_map"]["lm_head.weight"] = "../one/z.safetensors"
    index.write_text(json.dumps(named))
    with pytest.raises(CheckpointError, match=r"names '../one/z.safetensors', no file beside it"):
        load_checkpoint(tmp_path / "several")
    index.unlink()
    with pytest.raises(CheckpointError, match="a Hugging Face configuration without weights"):
        load_checkpoint(tmp_path / "several")


@pytest.mark.parametrize("kind", ["Llama", "Mistral", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("spelled", ["rope_type", "type"])
def test_a_rotary_base_inside_rope_scaling(kind: str, spelled: str, tmp_path: Path) -> None:
    made(kind).save_pretrained(tmp_path)
    given = json.loads((tmp_path / "config.json").read_text())
    given.pop("rope_parameters")
    (tmp_path / "config.json").write_text(json.dumps(given))
    configured(tmp_path, rope_scaling={spelled: "default", "rope_theta": 500.0})
    assert check(tmp_path).config.rotary_base == 500.0


@pytest.mark.parametrize(
    "changed",
    [{"head_dim": n} for n in (16, 0, -8, 10**9)]
    + [{"num_attention_heads": n} for n in (1, 3, 8, 10**9)]
    + [{"num_hidden_layers": 10**9}, {"vocab_size": 10**9}, {"hidden_size": 10**9}]
    + [{"intermediate_size": 10**9}, {"quantization_config": {"quant_method": "fp8"}}],
    ids=str,
)
def test_sizes_that_are_not_those_of_the_files(changed: dict[str, Any], tmp_path: Path) -> None:
    made("Llama").save_pretrained(tmp_path)
    configured(tmp_path, **changed)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_window_that_no_input_exceeds_is_none(tmp_path: Path) -> None:
    made("Mistral", sliding_window=8).save_pretrained(tmp_path)
    opened = check(tmp_path, 8)
    assert opened.config.n_ctx == 8 and opened.extra["sliding_window"].startswith("8,")
    with pytest.raises(ParameterError, match="n_ctx=8"):
        opened.model(rows(9))
    check(tmp_path, 9, native=False)
    assert not isinstance(load_checkpoint(tmp_path).model, HookedTransformer)
    source = made("Mistral", sliding_window=8)
    assert isinstance(mechint.load(source, data=rows(8).tolist()).model, HookedTransformer)


def test_a_model_whose_logits_are_others_is_bridged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a converter were wrong: its norms have another epsilon than the module's."""
    from mechint.checkpoints.formats import huggingface

    made("Llama").save_pretrained(tmp_path)
    own = huggingface._llama_fields
    monkeypatch.setattr(huggingface, "_llama_fields", lambda given: {**own(given), "eps": 0.5})
    opened = check(tmp_path, native=False)
    assert "from the model's own" in opened.extra["through the bridge for"]


def test_an_adapter_is_to_be_merged(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    save_file({"a": torch.zeros(2)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"a LoRA adapter.*merge it into its base model"):
        load_checkpoint(tmp_path)


def test_a_number_is_no_answer_to_a_text(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(20)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made("Llama").save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0").save_pretrained(tmp_path)
    with pytest.raises(DataError, match="the number 4 after a text"):
        mechint.load(tmp_path, data=[{"prompt": "w1 w3", "answer": 4}])
    subject = mechint.load(tmp_path, data=[{"prompt": [1, 3], "answer": 4}])
    assert subject.data.answers.targets.tolist() == [[[4]]]


def test_a_damaged_safetensors_file_of_mechint_is_refused(tmp_path: Path) -> None:
    """Every bit of the tensors counts; a file without a digest opens as before."""
    from safetensors import safe_open

    from mechint.checkpoints import save_checkpoint
    from mechint.config import ModelConfig

    model = HookedTransformer(ModelConfig(d_model=4, n_heads=1, d_vocab=5, d_vocab_out=5))
    file = tmp_path / "own.safetensors"
    given = {"config": model.config, "weights": model.weights(), "task": None}
    save_checkpoint(file, **given, step=3, metrics={})
    assert load_checkpoint(file).step == 3
    whole = file.read_bytes()
    start = len(whole) - sum(4 * value.numel() for value in model.parameters())
    for place in torch.randint(start, len(whole), (20,)).tolist():
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match="the file is damaged"):
            load_checkpoint(file)
    file.write_bytes(whole)
    with safe_open(file, "pt") as opened:
        header = json.loads(opened.metadata()["mechint"])
    del header["sha256"]
    save_file(load_file(file), file, metadata={"mechint": json.dumps(header)})
    assert load_checkpoint(file).step == 3


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / b"caf\xe9.pt".decode(errors="surrogateescape")
    file.write_bytes(b"PK\x03\x04")
    with pytest.raises(CheckpointError, match="a file name that is not UTF-8"):
        load_checkpoint(file)
