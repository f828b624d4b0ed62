"""Text given to the model of a directory goes through the directory's own tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import mechint

TEXT = "The capital of France"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small GPT-2 with a byte-level BPE tokenizer that merges " of" and "The"."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("T", "h"), ("Th", "e"), ("\u0120", "o"), ("\u0120o", "f")]
    words = [*letters, *("".join(pair) for pair in merges)]
    bpe = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=bpe).save_pretrained(tmp_path)
    config = GPT2Config(
        vocab_size=len(words),
        n_positions=32,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize("bridged", [False, True])
def test_a_text_is_what_the_tokenizer_of_its_directory_makes_of_it(
    folder: Path, bridged: bool
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(folder).eval()(ids).logits
    model = mechint.load(folder, data=[TEXT], model={"bridge": True} if bridged else None).model
    assert len(ids[0]) < len(TEXT) and torch.equal(model.to_tokens(TEXT), ids)
    found = [model(TEXT), model.run_with_cache(TEXT)[0], model(ids)]
    for logits in found:
        torch.testing.assert_close(logits.detach(), expected, atol=1e-4, rtol=1e-4)
    assert "".join(model.to_str_tokens(TEXT)).replace("\u0120", " ") == TEXT
    assert model.to_single_token(" of") == int(tokenizer.encode(" of")[0])
    assert model.generate(TEXT, max_new_tokens=2, do_sample=False, verbose=False).startswith(TEXT)
