"""Lists of prompts and models that are in memory already; BOS; names of tokens."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mechint
from mechint import planted
from mechint.errors import CheckpointError, DataError, ParameterError
from mechint.prompts.reading import token_names

PAIR = {"prompt": "The capital of France is", "answer": " Paris"}
PAIR["counterfactual"] = {"prompt": "The capital of Italy is", "answer": " Rome"}  # type: ignore[assignment]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A byte-level BPE of a few words, which has BOS and does not put it itself."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    texts = ["The capital of France is Paris", "The capital of Italy is Rome", "Paris", "Rome"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<s>"], initial_alphabet=alphabet)
    made.train_from_iterator(texts * 9, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="<s>")


@pytest.fixture(scope="module")
def gpt2(tokenizer: Any) -> Any:
    """A tiny GPT-2 of transformers that answers Paris and Rome, with their space."""
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = {"n_layer": 1, "n_head": 2, "n_embd": 32, "n_positions": 16}
        model = GPT2LMHeadModel(GPT2Config(**sizes, vocab_size=len(tokenizer), bos_token_id=0))
        texts = ["The capital of France is Paris", "The capital of Italy is Rome"]
        tokens = torch.tensor([tokenizer.encode(text) for text in texts])
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(120):
            loss = model(tokens, labels=tokens).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def directory(gpt2: Any, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "gpt2-tiny"
    gpt2.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_model_of_transformers_takes_a_list(gpt2: Any, tokenizer: Any) -> None:
    subject = mechint.load(gpt2, data=[PAIR], tokenizer=tokenizer)
    assert subject.accuracy() == {"next token": 1.0} and len(subject.task.pairs) == 2
    logits = gpt2(subject.data.tokens).logits
    torch.testing.assert_close(subject.model(subject.data.tokens), logits, atol=1e-4, rtol=1e-4)


def test_a_directory_takes_texts_ids_and_dicts(directory: Path, tokenizer: Any) -> None:
    text = "The capital of France is Paris"
    texts = mechint.load(directory, data=[text]).task.prompts
    assert texts == mechint.load(directory, data=[tokenizer.encode(text)]).task.prompts
    assert texts == mechint.load(directory, data=[np.array(tokenizer.encode(text))]).task.prompts
    with pytest.raises(DataError, match="item 2: a set, expected"):
        mechint.load(directory, data=[text, {1, 2}])
    with pytest.raises(DataError, match="data, item 1: expected an object"):
        mechint.load(directory, data=[{"question": "x"}])


def test_bos_is_one_rule_for_prompts_and_model(directory: Path, tokenizer: Any) -> None:
    """The tokenizer's own encode puts none, so neither does the bridge (users 1.4)."""
    text = PAIR["prompt"]
    for prepend in (None, True, False):
        more = {} if prepend is None else {"prepend_bos": prepend}
        subject = mechint.load(directory, data=[PAIR], model={"bridge": True}, **more)
        tokens = subject.data.tokens[0].tolist()
        assert tokens == subject.model.to_tokens(text)[0].tolist()
        assert (tokens[0] == tokenizer.bos_token_id) == bool(prepend)


def test_an_answer_without_its_space_names_the_models_choice(directory: Path) -> None:
    pair = [{"prompt": PAIR["prompt"], "answer": "Paris"}]
    with pytest.warns(UserWarning, match="the model's first choice is ' Paris'"):
        mechint.load(directory, data=pair)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mechint.load(directory, data=[PAIR])


def test_modules_of_ones_own_need_hooks() -> None:
    subject = planted.modular_addition(5, (1,)).subject
    ours = mechint.load(subject.model, task="modular-arithmetic", p=5)
    assert ours.accuracy() == subject.accuracy()
    module = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 5))
    hooked = mechint.load(module, "modular-arithmetic", p=5, hooks={"hook_embed": "0"})
    assert hooked.activation("hook_embed").shape[-1] == 4
    with pytest.raises(ParameterError, match="a Sequential needs hooks"):
        mechint.load(module)
    with pytest.raises(ParameterError, match="got a int; expected a path, or a model"):
        mechint.load(3)
    with pytest.raises(CheckpointError, match="hf download gpt2 --local-dir gpt2"):
        mechint.load("gpt2")


def test_names_of_tokens_are_texts_and_all_different(tokenizer: Any) -> None:
    """Half of the bytes decode to one replacement character."""
    names = token_names(tokenizer)
    assert len(set(names)) == len(names) == len(tokenizer)
    assert {" Paris", "Paris"} < set(names) and not any("\ufffd" in name for name in names)
