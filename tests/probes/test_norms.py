"""Norm ratios against direct computation, their comparison against scipy, and planted
differences.
"""

from __future__ import annotations

import copy
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial.distance import jensenshannon

from mechint.checkpoints import load_checkpoint, save_checkpoint
from mechint.config import ModelConfig
from mechint.errors import CheckpointError
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.task import Batch, rng
from probes._norms.probe import (
    Norms,
    compare_samples,
    jensen_shannon,
    ratios,
    reads_centered,
    untrained_means,
)


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


def scaled(subject: Subject, weight: str, factor: float) -> Subject:
    model = copy.deepcopy(subject.model)
    with torch.no_grad():
        model.weights()[weight].mul_(factor)
    return subject.with_model(model)


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


def test_the_statistics_are_scipy_s() -> None:
    a, b = small(0), small(1)
    result = Norms(bootstrap=199).compare(a, b)
    x, y = (ratios(subject)["L0 attention"].ravel() for subject in (a, b))
    got = {
        key.rpartition(".")[2]: value
        for key, value in result.metrics.items()
        if key.startswith("norms.L0 attention.")
    }
    assert got["ks"] == pytest.approx(stats.ks_2samp(x, y).statistic)
    assert got["wasserstein"] == pytest.approx(stats.wasserstein_distance(x, y))
    edges = np.linspace(min(x.min(), y.min()), max(x.max(), y.max()), 101)
    histograms = [np.histogram(sample, edges)[0] for sample in (x, y)]
    assert got["js_divergence_bits"] == pytest.approx(
        jensenshannon(*histograms, base=2) ** 2, abs=1e-9
    )
    pooled = np.sqrt(
        ((len(x) - 1) * x.var(ddof=1) + (len(y) - 1) * y.var(ddof=1)) / (len(x) + len(y) - 2)
    )
    assert got["cohens_d"] == pytest.approx((x.mean() - y.mean()) / pooled)
    assert got["d_low"] < got["cohens_d"] < got["d_high"]


def test_jensen_shannon_of_equal_distributions_is_zero() -> None:
    assert jensen_shannon(np.array([0.2, 0.8]), np.array([0.2, 0.8])) == 0


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Two samples of one normal distribution: d is 0, and a 95% interval misses it in about 5% of
    60 draws.
    """
    draw = np.random.default_rng(0)
    missed = 0
    for seed in range(60):
        a, b = draw.normal(size=(80, 2)), draw.normal(size=(80, 2))
        row = compare_samples(a, b, bins=100, draws=199, seed=seed)
        missed += not row["d_low"] <= 0 <= row["d_high"]
    assert missed <= 9  # 1% of binomial(60, 0.05) lies above 8


def test_a_planted_factor_is_measured_and_a_copy_is_not_told_apart() -> None:
    subject = small()
    louder = scaled(subject, "blocks.0.attn.W_O", 1.5)
    result = Norms(bootstrap=199).compare(louder, subject)
    assert result.metrics["norms.L0 attention.mean"] / result.metrics[
        "norms.L0 attention.other_mean"
    ] == pytest.approx(1.5, rel=1e-5)
    assert result.null["norms.L0 attention.size"].p_value <= 0.005
    same = Norms(bootstrap=199).compare(subject, subject.with_model(copy.deepcopy(subject.model)))
    assert same.metrics["norms.L0 attention.cohens_d"] == 0
    assert min(null.p_value for null in same.null.values()) == 1.0


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


@pytest.mark.full
def test_positions_without_input_are_left_out_and_said() -> None:
    """The last token of modular arithmetic is always "="; here it alone has an input."""
    subject = small(normalization_type=None).untrained(0)
    weights = subject.model.weights()
    with torch.no_grad():
        weights["pos_embed.W_pos"].zero_()
        weights["embed.W_E"][:-1].zero_()
    found = ratios(subject)["L0 attention"]
    assert np.isnan(found[:, :2]).all()
    out, given = (
        subject.activation(f"blocks.0.hook_{hook}")[:, 2].norm(dim=-1)
        for hook in ("attn_out", "resid_pre")
    )
    assert found[:, 2] == pytest.approx((out / given).numpy(), rel=1e-5)
    result = Norms(null_models=199, null_examples=11).run(subject)
    assert result.findings[0].details["positions with an input"] == "11 of 33"
    pair = Norms(bootstrap=199).compare(subject, subject)
    assert pair.metrics["norms.L0 attention.mean"] == pytest.approx(found[:, 2].mean())


@pytest.mark.full
def test_alone_the_examples_are_of_the_whole_task_and_the_sentence_is_of_them() -> None:
    """The first operand of the first examples has a large embedding, few of the others have."""
    subject = small().untrained(0)
    with torch.no_grad():
        subject.model.weights()["embed.W_E"][0] *= 20
    result = Norms(null_models=199, null_examples=11).run(subject, seed=3)
    some = np.sort(rng("norms examples", 3).permutation(121)[:11])
    found = ratios(subject)["L0 attention"]
    tested, whole, first = found[some].mean(), found.mean(), found[:11].mean()
    effect = result.findings[0].effect
    assert effect is not None and effect.value == pytest.approx(tested)
    assert abs(tested - whole) < abs(first - whole)
    null = untrained_means(subject.with_data(subject.data[torch.from_numpy(some)]), 199, 3)[
        "L0 attention"
    ]
    deviation = abs(tested - null.mean()) / null.std(ddof=1)
    assert result.null["norms.L0 attention.deviation"].observed == pytest.approx(deviation)
    assert effect.baseline == pytest.approx(null.mean())


def test_the_null_deals_samples_of_the_sizes_that_were_compared() -> None:
    """2 of 6 numbers can be dealt in 15 ways: the null has no |d| but theirs."""
    every, ways = 2.0 ** np.arange(6), []
    for chosen in itertools.combinations(range(6), 2):
        a, b = every[list(chosen)], np.delete(every, chosen)
        spread = np.sqrt((a.var() * 2 + b.var() * 4) / 4)
        ways.append(abs(a.mean() - b.mean()) / spread)
    found = compare_samples(every[:2, None], every[2:, None], bins=3, draws=199, seed=0)
    assert set(found["null"].round(6)) == set(np.round(ways, 6))


def test_the_effect_size_survives_a_large_mean() -> None:
    """Sums of squares of numbers near 1e8 hold nothing of a variance of 1e-2."""
    draw = np.random.default_rng(0)
    a, b = draw.normal(0, 0.1, (9, 2)), draw.normal(0.1, 0.1, (8, 2))
    near = compare_samples(a, b, bins=5, draws=19, seed=0)
    far = compare_samples(a + 1e8, b + 1e8, bins=5, draws=19, seed=0)
    assert far["cohens_d"] == pytest.approx(near["cohens_d"], rel=1e-5)


def test_models_of_different_depth_are_compared_where_both_have_layers() -> None:
    """The last layer of the deeper one is missing in the other: that was a KeyError."""
    deep, shallow, first = small(0, n_layers=2), small(1), ("L0 attention", "L0 MLP")
    for one, other in ((deep, shallow), (shallow, deep)):
        found = Norms(bootstrap=199).compare(one, other)
        assert set(found.null) == {f"norms.{name}.size" for name in first}
        for name in first:
            samples = [ratios(subject)[name] for subject in (one, other)]
            expected = samples[0].mean() - samples[1].mean()
            mean, other_mean = (found.metrics[f"norms.{name}.{i}mean"] for i in ("", "other_"))
            assert mean - other_mean == pytest.approx(expected, rel=1e-6)


def test_the_other_model_is_loaded_from_its_path(tmp_path: Path) -> None:
    subject, other = small(0), small(1)
    path = tmp_path / "other.pt"
    save_checkpoint(
        path,
        config=other.model.config,
        weights=other.model.weights(),
        task=other.task,
        step=0,
        metrics={},
    )
    loaded, at_hand = (
        Norms(other=str(path), bootstrap=199).run(subject),
        Norms(bootstrap=199).compare(subject, other),
    )
    assert dict(loaded.metrics) == pytest.approx(dict(at_hand.metrics))
    with pytest.raises(CheckpointError, match="nowhere"):
        Norms(other=str(tmp_path / "nowhere.pt")).run(subject)
