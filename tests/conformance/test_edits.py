"""Every kind of model: an edit at a hook does what the hook is named after, or is refused; asked by
noise where `read_only_hooks` asks autograd.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from mechint.errors import ParameterError
from mechint.interventions import EditedRuns, Site, Zero, logits_under
from mechint.models.protocol import hook_names, read_only_hooks
from mechint.subject import Subject
from mechint.subject.pairs import Pairs
from mechint.task import Batch
from probes._das._swap import SwapSite
from probes._das.search import default_places
from tests.conformance.test_models import KINDS, huggingface, inputs, kinds, made

LATE = ("opt", "gptj", "gpt_neo")
"""Their attention is a module that has used its pattern before TransformerLens is shown it."""


@cache
def model_of(kind: str) -> Any:
    if kind in KINDS:
        return made(kind)
    name, _, behind = kind.partition(", ")
    narrow = {"word_embed_proj_dim": 8, "do_layer_norm_before": False}
    return huggingface(name, **(narrow if behind else {}))


def edited(model: Any, tokens: Tensor, name: str, edit: Any) -> Tensor:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TransformerLens warns of edits that it drops
        return model.run_with_hooks(tokens, fwd_hooks=[(name, lambda x, hook: edit(x))])


@pytest.mark.parametrize("kind", kinds(*KINDS, *LATE, "opt, norms behind"))
def test_noise_at_a_hook_changes_the_logits_unless_it_can_only_be_read(kind: str) -> None:
    model, tokens = model_of(kind), inputs(kind)
    why, dropped = read_only_hooks(model), set[str]()
    numbers: set[str] = set()  # as against tokens
    noise = torch.Generator().manual_seed(3)
    with torch.no_grad():
        plain = model(tokens)

    for name in hook_names(model):

        def noisy(x: Any, name: str = name) -> Any:
            if not isinstance(x, Tensor) or not x.is_floating_point():
                return x
            numbers.add(name)
            return x + torch.randn(x.shape, generator=noise)

        try:
            same = torch.equal(edited(model, tokens, name, noisy), plain)
        except (AttributeError, ValueError, IndexError):  # TransformerLens cannot put it back
            same = True
        if same:
            dropped.add(name)
    assert dropped & numbers == {name for name, reason in why.items() if "does not reach" in reason}
    if kind in LATE:
        parts = ("hook_pattern", "hook_attn_scores")
        assert {f"blocks.{layer}.attn.{part}" for layer in (0, 1) for part in parts} <= dropped


@pytest.mark.parametrize("kind", kinds(*KINDS, *LATE))
def test_the_whole_stream_of_another_input_gives_its_answers(kind: str) -> None:
    model, tokens = model_of(kind), inputs(kind)
    other = tokens.flip(0)
    known = [name for name in hook_names(model) if ".hook_resid_" in name]
    for name in known:
        found: dict[str, Tensor] = {}
        wanted = edited(model, other, name, lambda x, found=found: found.setdefault("x", x))
        swapped = edited(model, tokens, name, lambda x, found=found: found["x"])
        same = torch.allclose(swapped, wanted, atol=1e-5)
        assert same == (name not in read_only_hooks(model)), name


def subject_of(kind: str) -> Subject:
    tokens = inputs(kind)
    return Subject(model_of(kind), None, data=Batch(tokens, torch.full((*tokens.shape, 1), 1)))


REFUSED = {"gpt2": "blocks.1.hook_resid_mid", "opt": "blocks.0.attn.hook_pattern"}


@pytest.mark.parametrize("kind", kinds(*REFUSED))
def test_what_can_only_be_read_is_refused_wherever_it_is_edited(kind: str) -> None:
    name, subject = REFUSED[kind], subject_of(kind)
    model, tokens, reads = subject.model, subject.data.tokens, torch.full((5,), 2)
    none = torch.zeros(5, 0, dtype=torch.int64)
    pairs = Pairs(tokens, tokens.flip(0), reads, reads, none, none, none)
    zero = Zero(Site(name))
    for ask in (
        lambda: logits_under(subject, [zero]),
        lambda: EditedRuns(model, tokens, reads, [name]).under([zero]),
        lambda: list(EditedRuns(model, tokens, reads).gradients([name], lambda *_: reads, reads)),
        lambda: subject.logits(hooks=[(name, lambda activation, hook: 0 * activation)]),
        lambda: SwapSite(subject, pairs, name, None),
    ):
        with pytest.raises(ParameterError, match=f"hook {name}: ") as caught:
            ask()
        assert "\n" not in str(caught.value)
    seen: list[Tensor] = []
    read = subject.logits(hooks=[(name, lambda activation, hook: seen.append(activation))])
    assert len(seen) == 1 and torch.equal(read, subject.logits())
    assert torch.equal(subject.activation(name), seen[0])


@pytest.mark.parametrize("kind", kinds("transformer", "gpt2", "gpt_neox"))
def test_alignment_search_looks_where_the_stream_can_be_edited(kind: str) -> None:
    import tasks

    task = tasks.make("modular-arithmetic", p=7)
    subject = Subject(made(kind), task)
    variable = next(iter(task.variables.values()))
    places = {hook for hook, _ in default_places(subject, variable, None)}
    mids = {f"blocks.{layer}.hook_resid_mid" for layer in (0, 1)}
    posts = {f"blocks.{layer}.hook_resid_post" for layer in (0, 1)}
    assert posts <= places and (mids <= places) == (kind == "transformer")
    assert kind == "transformer" or not mids & places
