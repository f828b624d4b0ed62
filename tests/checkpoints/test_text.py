"""Text given to the model of a directory goes through the directory's own tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

import mechint
from mechint.errors import CheckpointError

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


KINDS = ("native", "bridge", "memory", "bridge in memory")


def opened(folder: Path, kind: str, **settings: Any) -> Any:
    if kind == "native":
        return mechint.load(folder, data=[TEXT], **settings).model
    if kind == "bridge":
        return mechint.load(folder, data=[TEXT], model={"bridge": True}, **settings).model
    source, tokenizer = theirs(folder), AutoTokenizer.from_pretrained(folder)
    if kind == "bridge in memory":
        source.config.scale_attn_by_inverse_layer_idx = True
        for layer, block in enumerate(source.transformer.h):
            block.attn.scaling = block.attn.scaling / (layer + 1)
    return mechint.load(source, data=[TEXT], tokenizer=tokenizer, **settings).model


def theirs(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_what_the_tokenizer_of_its_directory_makes_of_it(folder: Path, kind: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    model = opened(folder, kind)
    assert len(ids[0]) < len(TEXT) and torch.equal(model.to_tokens(TEXT), ids)
    with torch.no_grad():
        expected = model(ids)
        if kind != "bridge in memory":
            torch.testing.assert_close(expected, theirs(folder)(ids).logits, atol=1e-4, rtol=1e-4)
    loss = torch.nn.functional.cross_entropy(expected[0, :-1], ids[0, 1:])
    _, cache = model.run_with_cache(TEXT)
    zero = [("blocks.0.hook_mlp_out", lambda value, hook: value * 0)]
    stack = cache["blocks.1.hook_resid_post"][None, :, -1]
    of = int(tokenizer.encode(" of")[0])
    pairs = [
        (model(TEXT), expected),
        (model([TEXT]), expected),
        (model(TEXT, return_type="both")[0], expected),
        (model(TEXT, return_type="loss"), loss),
        (model.run_with_cache(TEXT)[0], expected),
        (cache["pattern", 0], model.run_with_cache(ids)[1]["pattern", 0]),
        (model.run_with_hooks(TEXT, fwd_hooks=zero), model.run_with_hooks(ids, fwd_hooks=zero)),
        (model(TEXT, stop_at_layer=1), model(ids, stop_at_layer=1)),
        (model.to_tokens([TEXT, TEXT]), ids.expand(2, -1)),
        (model.tokens_to_residual_directions(" of"), model.W_U[:, of]),
        (
            cache.logit_attrs(stack, " of", pos_slice=-1),
            cache.logit_attrs(stack, torch.tensor(of), pos_slice=-1),
        ),
        (
            cache.logit_attrs(stack, " of", "The", pos_slice=-1),
            cache.logit_attrs(
                stack, *map(torch.tensor, (of, model.to_single_token("The"))), pos_slice=-1
            ),
        ),
        (
            model.generate(
                TEXT, max_new_tokens=2, do_sample=False, verbose=False, return_type="tokens"
            ),
            model.generate(ids, max_new_tokens=2, do_sample=False, verbose=False),
        ),
    ]
    for number, (found, right) in enumerate(pairs):
        torch.testing.assert_close(
            found.detach(), right.detach(), atol=1e-4, rtol=1e-4, msg=str(number)
        )
    assert model.to_string(ids[0]) == TEXT and model.to_string(ids) == [TEXT]
    assert model.to_str_tokens(TEXT) == [tokenizer.decode([token]) for token in ids[0]]
    assert model.to_str_tokens(ids[0]) == model.to_str_tokens(TEXT)
    assert (model.to_single_token(" of"), model.to_single_str_token(of)) == (of, " of")
    assert model.generate(TEXT, max_new_tokens=2, do_sample=False, verbose=False).startswith(TEXT)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_bos_is_put_as_asked(folder: Path, kind: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.bos_token = "!"
    tokenizer.save_pretrained(folder)
    bos, plain = tokenizer.bos_token_id, tokenizer.encode(TEXT)
    model = opened(folder, kind)
    assert model.to_tokens(TEXT)[0].tolist() == plain
    assert model.to_tokens(TEXT, prepend_bos=True)[0].tolist() == [bos, *plain]
    asked = opened(folder, kind, prepend_bos=True)
    assert asked.to_tokens(TEXT)[0].tolist() == [bos, *plain]
    assert asked.to_tokens(TEXT, prepend_bos=False)[0].tolist() == plain
    assert asked.to_single_token(" of") == model.to_single_token(" of")


def test_a_tokenizer_of_a_stranger_that_is_empty_or_grows_is_refused(folder: Path) -> None:
    place = folder / "tokenizer.json"
    whole = json.loads(place.read_text())
    doubled = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    sequence = {"type": "Sequence", "normalizers": [doubled] * 24}
    empty = {**whole["model"], "vocab": {}, "merges": []}
    for change, said in (
        ({"normalizer": sequence}, "makes far longer texts"),
        ({"model": empty}, "knows no tokens"),
    ):
        place.write_text(json.dumps(whole | change))
        with pytest.raises(CheckpointError, match=said):
            mechint.load(folder, data=[TEXT])
