"""Forwards resumed from a site equal hooked forwards from the tokens, over shapes of models."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mechint.config import ModelConfig
from mechint.interventions import (
    Add,
    EditedRuns,
    Intervention,
    Mean,
    ProjectOut,
    Replace,
    Site,
    Zero,
    hooks_of,
    resumes,
    select_positions,
)
from mechint.models.transformer import HookedTransformer

CONFIGS = st.builds(
    ModelConfig,
    n_layers=st.integers(1, 3),
    n_loops=st.integers(1, 2),
    d_model=st.just(8),
    n_heads=st.sampled_from([1, 2]),
    d_vocab=st.just(7),
    d_vocab_out=st.just(5),
    n_ctx=st.just(4),
    act_fn=st.sampled_from(["relu", "gelu"]),
    normalization_type=st.sampled_from([None, "LN", "LNPre"]),
    attn_only=st.booleans(),
    attention_dir=st.sampled_from(["causal", "bidirectional"]),
    attention_rate=st.sampled_from([1.0, 0.5]),
    use_bias=st.booleans(),
    init_mode=st.just("d_model"),
)


def hooked(
    model: HookedTransformer, tokens: torch.Tensor, positions: torch.Tensor, one: Intervention
) -> torch.Tensor:
    """The same intervention by a plain hooked forward."""
    with torch.no_grad():
        logits = model.run_with_hooks(tokens, fwd_hooks=hooks_of([one], positions))
    return select_positions(logits, positions)


def every_intervention(model: HookedTransformer, generator: torch.Generator) -> list[Intervention]:
    """Each kind of intervention at each kind of site, at all positions, at one, and at the
    answer.
    """

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    basis = torch.linalg.qr(random(8, 2))[0]
    result: list[Intervention] = []
    for layer in range(model.config.depth):
        for pos in (None, 0, 3, "answer"):
            heads = Site.of("head", layer, pos, (0,))
            resid = Site.resid_pre(layer, pos)
            spread = () if pos is not None else (4,)
            result += [Zero(heads), Mean(Site.attention(layer, pos))]
            result += [ProjectOut(resid, basis), Replace(resid, random(5, *spread, 8))]
            result += [Add(Site.attention(layer, pos), random(5, *spread, 8))]
            result += [Add(resid, random(8)), Add(heads, random(1, model.config.d_head))]
            every = Site.of("head", layer, pos)
            for site in (heads, every):  # one vector for each head, of one or of each example
                result += [Add(site, random(model.config.d_head))]
                result += [Add(site, random(5, *spread and (1,), 1, model.config.d_head))]
            result.append(Add(every, random(1, model.config.d_head)))
            if not model.config.attn_only:
                result += [Zero(Site.neurons(layer, (1, 3), pos)), Zero(Site.mlp(layer, pos))]
                last = Site.of("resid_post", layer, pos)
                result += [ProjectOut(last, basis, random(5, *spread, 8))]
    return [*result, Zero(Site("hook_pos_embed", 1)), Zero(Site("blocks.0.attn.hook_v"))]


def model_and_tokens(
    config: ModelConfig, seed: int
) -> tuple[HookedTransformer, torch.Tensor, torch.Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, config.d_vocab, (5, config.n_ctx), generator=generator)
    reads = torch.randint(0, config.n_ctx, (5,), generator=generator)
    return HookedTransformer(config, seed=seed).double(), tokens, reads, generator


@pytest.mark.full
@settings(max_examples=20)
@given(config=CONFIGS, seed=st.integers(0, 1000), stack=st.sampled_from([1, 1 << 28]))
def test_under_equals_hooked(config: ModelConfig, seed: int, stack: int) -> None:
    model, tokens, positions, generator = model_and_tokens(config, seed)
    chosen = every_intervention(model, generator)
    names = {one.site.hook for one in chosen}
    recorded = EditedRuns(model, tokens, positions, names, stack=stack)
    assert torch.allclose(recorded.logits, select_positions(model(tokens), positions), atol=1e-10)
    for one, branched in zip(chosen, recorded.under(chosen), strict=True):
        expected = hooked(model, tokens, positions, one)
        assert torch.allclose(branched, expected, atol=1e-10), one.site


class Foreign:
    """A hooked model that only runs from its tokens."""

    def __init__(self, model: HookedTransformer) -> None:
        self.run_with_hooks, self.cfg = model.run_with_hooks, model.cfg
        self.hook_dict = model.hook_dict


def test_output_groups_that_left_early_keep_their_answer() -> None:
    config = ModelConfig(
        n_layers=2,
        d_model=8,
        n_heads=2,
        d_vocab=7,
        d_vocab_out=5,
        n_ctx=4,
        output_sizes=(2, 3),
        read_layers=(1, 2),
    )
    model, tokens, positions, generator = model_and_tokens(config, 0)
    sites = [Site.attention(0), Site.mlp(0), Site.resid_pre(1), Site.attention(1), Site.mlp(1)]
    edits = [
        Add(site, torch.randn(5, 4, 8, generator=generator, dtype=torch.float64)) for site in sites
    ]
    recorded = EditedRuns(model, tokens, positions, {site.hook for site in sites})
    for one, branched in zip(edits, recorded.under(edits), strict=True):
        assert torch.allclose(branched, hooked(model, tokens, positions, one), atol=1e-10)
        late = one.site in sites[2:]
        assert torch.equal(branched[:, :2], recorded.logits[:, :2]) == late


def test_constant_attention_reads_positions_after_the_answer() -> None:
    """Zeroing one of them was taken to change nothing, in a causal model too."""
    sizes = {"d_model": 8, "n_heads": 2, "d_vocab": 7, "d_vocab_out": 5, "n_ctx": 4}
    config = ModelConfig(**sizes, attention_rate=0.5, init_mode="d_model")
    model, tokens, _, _ = model_and_tokens(config, 0)
    reads, later = torch.ones(5, dtype=torch.int64), Zero(Site.resid_pre(0, pos=3))
    recorded = EditedRuns(model, tokens, reads)
    found = recorded.under([later])[0]
    assert torch.allclose(found, hooked(model, tokens, reads, later), atol=1e-10)
    assert (found - recorded.logits).abs().max() > 0.01


def test_gradients_by_finite_differences() -> None:
    config = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_vocab=7, d_vocab_out=5, n_ctx=4)
    model, tokens, positions, generator = model_and_tokens(config, 2)
    site, step = Site.head(0, 1), 1e-5

    def score(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return logits[:, 3].square()

    rows = torch.arange(len(tokens))
    for one in (model, Foreign(model)):
        runs = EditedRuns(one, tokens, positions)
        ((_, found),) = runs.gradients([site.hook, "hook_embed"], score, rows)
        _, gradient, places = found[site.hook]
        size = (*tokens.shape, 1, config.d_head)
        direction = torch.randn(size, generator=generator, dtype=torch.float64)
        up, down = (
            float(score(runs.under([Add(site, sign * step * direction)])[0], rows).sum())
            for sign in (1, -1)
        )
        expected = (up - down) / (2 * step)
        product = gradient[:, :, [1]] * direction[rows[:, None], places]
        assert float(product.sum()) == pytest.approx(expected, rel=1e-6)


def test_a_model_with_hooks_on_it_runs_them() -> None:
    """Half the neurons at zero, once by a hook and once by weights: the same forwards."""
    config = ModelConfig(d_model=8, n_heads=2, d_vocab=7, d_vocab_out=5, n_ctx=4, act_fn="relu")
    hooked, tokens, positions, _ = model_and_tokens(config, 0)
    edited, *_ = model_and_tokens(config, 0)
    cut = edited.W_in.shape[-1] // 2
    with torch.no_grad():
        edited.get_parameter("blocks.0.mlp.W_out")[cut:] = 0
    assert resumes(hooked)

    def silence(activation: torch.Tensor, hook: object) -> torch.Tensor:
        return activation.index_fill(-1, torch.arange(cut, activation.shape[-1]), 0)

    hooked.add_hook("blocks.0.mlp.hook_post", silence)
    assert not resumes(hooked) and resumes(edited)
    basis = torch.eye(8, 1, dtype=torch.float64)
    sites = [Zero(Site.head(0, 0)), Zero(Site.mlp(0)), ProjectOut(Site.resid_pre(0, 1), basis)]
    recorded = {one.site.hook for one in sites}
    runs = [EditedRuns(one, tokens, positions, recorded) for one in (hooked, edited)]
    assert torch.allclose(runs[0].logits, runs[1].logits, atol=1e-12)
    assert torch.allclose(runs[0].under(sites), runs[1].under(sites), atol=1e-12)
    names = ["blocks.0.attn.hook_z", "hook_embed"]
    rows = torch.arange(len(tokens))
    ((_, theirs),), ((_, found),) = (
        one.gradients(names, lambda logits, rows: logits.square().sum(-1), rows) for one in runs
    )
    for name in names:
        *both, places = found[name]
        for one, other in zip(theirs[name], both, strict=False):
            assert torch.allclose(one[rows[:, None], places], other, atol=1e-12)
    hooked.reset_hooks()
    assert resumes(hooked)
