"""Norm ratios against direct computation, and initial weights as their null."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from mechint.checkpoints import load_checkpoint
from mechint.config import ModelConfig
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.task import Batch
from probes._norms.probe import Norms, ratios, reads_centered


def small(seed: int = 0, **config: object) -> Subject:
    task = TASKS["modular-arithmetic"](p=11)
    settings = {
        "d_model": 16,
        "n_heads": 2,
        "d_vocab": 12,
        "d_vocab_out": 11,
        "normalization_type": "LN",
        **config,
    }
    return Subject(HookedTransformer(ModelConfig.from_dict(settings), seed=seed), task)


def test_ratios_are_output_over_input_norm() -> None:
    subject = small(n_layers=2, normalization_type=None)
    found = ratios(subject)
    assert list(found) == ["L0 attention", "L0 MLP", "L1 attention", "L1 MLP"]
    out, given = (
        subject.activation("blocks.1.hook_mlp_out"),
        subject.activation("blocks.1.hook_resid_mid"),
    )
    assert found["L1 MLP"] == pytest.approx(
        (out.norm(dim=-1) / given.norm(dim=-1)).numpy(), rel=1e-5
    )


@pytest.mark.parametrize("kind", ["LN", "LNPre", None])
def test_a_mean_that_no_one_reads_does_not_count(kind: str | None) -> None:
    """All of W_E raised: behind layer norms the same model, by its logits and by the ratios, which
    are those of the vectors in coordinates orthogonal to (1, …, 1). Without norms it is another.
    """
    subject = small(n_layers=2, normalization_type=kind)
    model = copy.deepcopy(subject.model)
    with torch.no_grad():
        model.weights()["embed.W_E"].add_(5 * float(model.weights()["embed.W_E"].std()))
    other = subject.with_model(model)
    assert torch.allclose(other.logits(), subject.logits(), atol=1e-4) == (kind is not None)
    found, shifted = ratios(subject), ratios(other)
    for name, values in found.items():
        assert np.allclose(shifted[name], values, rtol=1e-3) == (kind is not None)
    if kind is None:
        return
    basis = torch.linalg.svd(torch.ones(1, 16, dtype=torch.float64))[2][1:]  # (15, 16)
    out, given = (
        (subject.activation(f"blocks.1.hook_{hook}").double() @ basis.T).norm(dim=-1)
        for hook in ("mlp_out", "resid_mid")
    )
    assert found["L1 MLP"] == pytest.approx((out / given).numpy(), rel=1e-6)
    one, same = (Norms(null_models=19, null_examples=16).run(each) for each in (subject, other))
    for name, null in one.null.items():
        assert same.null[name].observed == pytest.approx(null.observed, rel=1e-2)


@pytest.mark.parametrize("name, centered", [("GPT2", True), ("Llama", False), ("Bert", False)])
def test_the_mean_counts_where_it_is_read(tmp_path: Path, name: str, centered: bool) -> None:
    """A root mean square norm keeps it; BERT's attention reads the stream, and its norms follow."""
    import transformers

    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 12}
    if name != "GPT2":
        shape["intermediate_size"] = 32
    more = {"is_decoder": True} if name == "Bert" else {"bos_token_id": 0, "eos_token_id": 0}
    config = getattr(transformers, f"{name}Config")(**shape, **more)
    head = "LlamaForCausalLM" if name == "Llama" else f"{name}LMHeadModel"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        getattr(transformers, head)(config).save_pretrained(tmp_path)
    assert reads_centered(small().with_model(load_checkpoint(tmp_path).model)) is centered


def test_padding_does_not_count() -> None:
    subject = small()
    lengths = torch.arange(len(subject.data)) % 3 + 1
    padded = Subject(
        subject.model,
        subject.task,
        data=Batch(subject.data.tokens, subject.data.targets, lengths=lengths),
    )
    found = ratios(padded)["L0 attention"]
    assert np.isfinite(found).sum(1).tolist() == lengths.tolist()


@pytest.mark.full
def test_without_input_there_is_no_ratio() -> None:
    """Without embeddings attention reads zeros, and its output is its bias."""
    subject = small(normalization_type=None).untrained(0)
    weights = subject.model.weights()
    with torch.no_grad():
        weights["embed.W_E"].zero_()
        weights["pos_embed.W_pos"].zero_()
        weights["blocks.0.attn.b_O"].fill_(1)
    result = Norms(null_models=199, null_examples=11).run(subject)
    attention, mlp = result.findings
    assert attention.verdict == "unclear" and "zero at every position" in attention.reason
    assert mlp.verdict != "unclear"
    assert set(result.tables["layers"].columns["sublayer"]) == {"L0 MLP"}
