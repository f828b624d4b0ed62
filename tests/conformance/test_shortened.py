"""Every kind of bridge: interventions on forwards that leave out blocks and logits are those of
whole forwards.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mechint.interventions import Add, RecordedForward, Replace, Site, Zero
from mechint.interventions.values import Intervention, hooks_of
from mechint.models.protocol import hook_names, read_only_hooks
from tests.conformance.test_edits import LATE, model_of
from tests.conformance.test_models import KINDS, inputs

BRIDGES = ("gpt2", "gpt_neox", "llama", "olmo", "native bridge", *LATE)
READS = torch.tensor([2, 1, 2, 0, 2])


def interventions(model: Any, tokens: Tensor) -> list[Intervention]:
    """One of every sort in both blocks, in an order that is not that of the blocks."""
    hooks = hook_names(model) - set(read_only_hooks(model))
    width = model.cfg.d_model
    every = [
        Zero(Site.head(1, 1)),
        Zero(Site.head(0, 0, pos=0)),
        Zero(Site.mlp(1, pos="answer")),
        Zero(Site.mlp(0)),
        Add(Site.resid_pre(1, pos=1), torch.linspace(-1, 1, width)),
        Add(Site("hook_embed"), torch.linspace(-1, 1, width)),
        Replace(Site.attention(1), torch.ones(len(tokens), tokens.shape[1], width)),
    ]
    return [one for one in every if one.site.hook in hooks]


def recorded(model: Any, tokens: Tensor, chosen: list[Intervention]) -> RecordedForward:
    return RecordedForward(model, tokens, READS[: len(tokens)], {one.site.hook for one in chosen})


@pytest.mark.parametrize("kind", BRIDGES)
def test_each_intervention_is_that_of_a_whole_forward(kind: str) -> None:
    model, tokens = model_of(kind), inputs(kind)
    chosen, reads = interventions(model, tokens), READS[: len(tokens)]
    assert len(chosen) >= 5
    branching = recorded(model, tokens, chosen)
    found, rows = branching.under(chosen), torch.arange(len(tokens))
    for one, logits in zip(chosen, found, strict=True):
        with torch.no_grad():
            whole = model.run_with_hooks(tokens, fwd_hooks=hooks_of([one], reads))[rows, reads]
        assert torch.allclose(logits, whole, atol=2e-6), one.site
        assert not torch.allclose(logits, branching.logits, atol=1e-5), one.site
    assert not [name for name, module in model.named_modules() if "forward" in vars(module)]


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "llama"])
def test_what_stands_before_an_intervention_is_not_computed(kind: str) -> None:
    model, tokens = model_of(kind), inputs(kind)
    late = [Zero(Site.head(1, head)) for head in (0, 1)]
    branching = recorded(model, tokens, late)
    branching.under(late)  # checks once that the model may begin there
    ran: list[tuple[int, int]] = []
    handles = [
        block.original_component.register_forward_hook(
            lambda module, given, output, index=index: ran.append((index, len(given[0])))
        )
        for index, block in enumerate(model.blocks)
    ]
    widths: list[int] = []
    head = model.unembed.original_component.register_forward_pre_hook(
        lambda module, given: widths.append(given[0].shape[1])
    )
    branching.under([Zero(Site.head(1, 1, pos=0)), *late])
    for handle in (*handles, head):
        handle.remove()
    assert ran == [(1, 3 * len(tokens))] and widths == [1]


def test_hooks_of_the_user_see_every_block() -> None:
    model, tokens = model_of("gpt2"), inputs("gpt2")
    late, seen = [Zero(Site.head(1, 0))], list[int]()
    branching = recorded(model, tokens, late)
    plain = branching.under(late)
    model.add_hook("blocks.0.hook_mlp_out", lambda x, hook: seen.append(len(x)))
    try:
        own = recorded(model, tokens, late)
        assert not own.shortened.possible
        assert torch.allclose(own.under(late), plain, atol=1e-6)
    finally:
        model.reset_hooks()
    assert seen[-2:] == [len(tokens)] * 2 and branching.shortened.possible


def test_what_changes_nothing_runs_nothing() -> None:
    """A patch from an input that is the same up to there, as pairs of prompts are."""
    model, tokens = model_of("gpt2"), inputs("gpt2")
    hook = "blocks.0.attn.hook_z"
    branching = RecordedForward(model, tokens, READS, [hook])
    other = tokens.clone()
    other[:, -1] = (other[:, -1] + 1) % 20
    source = RecordedForward(model, other, READS, [hook])
    before, after = (
        Replace(site, site.select(source.activations[hook], READS))
        for site in (Site.head(0, 0, pos=0), Site.head(0, 0, pos=tokens.shape[1] - 1))
    )
    branching.under([after])  # checks once what may be left out
    runs: list[int] = []
    handle = model.original_model.register_forward_hook(lambda module, *_: runs.append(1))
    same, changed = branching.under([before, after])
    handle.remove()
    assert len(runs) == 1
    assert torch.equal(same, branching.logits)
    at_end = tokens.shape[1] - 1 == READS
    assert not torch.allclose(changed[at_end], branching.logits[at_end])


def test_the_bridges_are_those_of_the_table() -> None:
    bridges = {kind for kind in KINDS if hasattr(model_of(kind), "original_model")}
    assert bridges <= set(BRIDGES)
