"""Every architecture of transformers that opens: what a named site holds, what the model answers
without it and how it depends on it are what hooks on the model of transformers say, each prompt by
itself; what does not open is refused in one line.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import mechint
from mechint.errors import DataError, MechintError, NotApplicableError
from mechint.interventions import (
    EditedRuns,
    Intervention,
    Mean,
    Site,
    Zero,
    fill_means,
    logits_under,
)
from mechint.interventions.sites import KINDS
from mechint.models.protocol import read_only_hooks
from mechint.probe import run
from mechint.subject import Subject
from mechint.subject.components import list_components
from tests.conformance.architectures import ARCHITECTURES, REFUSED, VOCABULARY, Reference, made

COMMON = ("bloom", "deepseek_v3", "gemma2", "gpt2", "gpt_neox", "granitemoe", "llama", "mamba")
COMMON += ("mixtral", "opt", "qwen3", "qwen3_next")
"""Types that `make test-all` runs; `make slow` runs all."""


def every_kind(full: Sequence[str]) -> pytest.MarkDecorator:
    """All types as the parameter `kind`: those of `full` in `make test-all`, the rest slow."""
    marks = {kind: pytest.mark.full if kind in full else pytest.mark.slow for kind in ARCHITECTURES}
    return pytest.mark.parametrize(
        "kind", [pytest.param(kind, marks=mark) for kind, mark in marks.items()]
    )


kinds = every_kind(COMMON)
HEAD, NEURONS = (1,), (0, 5)


@cache
def opened(kind: str) -> tuple[Subject, Reference]:
    """The model with prompts of four lengths, filled up on the right, and the same model for hooks
    of torch.
    """
    noise = torch.Generator().manual_seed(7)
    lengths = torch.randint(2, 5, (7,), generator=noise)
    lengths[0] = 6
    assert set(lengths.tolist()) == {2, 3, 4, 6}
    prompts = [torch.randint(3, VOCABULARY, (int(n),), generator=noise).tolist() for n in lengths]
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = made(kind)
        reference = Reference(kind, model, prompts)
        subject = mechint.load(model, data=[{"prompt": one, "answer": 3} for one in prompts])
    rows = [prompts.index(row[:n]) for row, n in zip(*_rows(subject), strict=True)]
    subject = subject.with_data(subject.data[torch.tensor(rows).argsort()])  # in their order
    return subject, reference


def _rows(subject: Subject) -> tuple[list[list[int]], list[int]]:
    tokens = subject.data.tokens.tolist()
    lengths = subject.data.lengths
    return tokens, [len(tokens[0])] * len(tokens) if lengths is None else lengths.tolist()


def sites(subject: Subject, reference: Reference) -> list[Site]:
    """The sites of the table: one head, two neurons, all of the others; each is served."""
    heads = subject.model_description.n_heads
    found = []
    for hook in reference.paths:
        assert hook in subject.hooks and hook not in read_only_hooks(subject.model), hook
        units = {"attn.hook_z": HEAD, "mlp.hook_post": NEURONS}.get(hook.partition(".")[2][2:], ())
        assert hook[-1] != "z" or heads
        found.append(Site(hook, None, units))
    return found


def part(site: Site, width: int, heads: int | None) -> Any:
    """The entries of the last axis, as transformers has it, that the site is."""
    if site.units == HEAD:
        assert heads
        return slice(width // heads, 2 * width // heads)
    return list(site.units) or slice(None)


def means(seen: dict[int, Tensor]) -> Tensor:
    """(pos, width) over the prompts that have the position."""
    longest = max(seen)
    return torch.stack(
        [
            torch.cat([x[:, pos] for n, x in seen.items() if n > pos]).mean(0)
            for pos in range(longest)
        ]
    )


@kinds
def test_sites_are_ablated_as_hooks_in_transformers_do(kind: str) -> None:
    subject, reference = opened(kind)
    plain, seen = reference.logits(), reference.activations()
    torch.testing.assert_close(subject.logits(), plain, atol=1e-4, rtol=1e-4)
    named, heads = sites(subject, reference), subject.model_description.n_heads
    edits: list[Intervention] = []
    expected, silent = [], set[str]()
    for site in named:
        mean = means(seen[site.hook])
        chosen = part(site, mean.shape[-1], heads)
        for kept in (torch.zeros_like(mean), mean):

            def edit(x: Tensor, kept: Tensor = kept, chosen: Any = chosen) -> Tensor:
                x = x.clone()
                x[..., chosen] = kept[: x.shape[1], chosen]
                return x

            expected.append(reference.logits(site.hook, edit))
            edits.append(Zero(site) if kept is not mean else Mean(site))
            if (expected[-1] - plain).abs().max() < 1e-3:
                silent.add(site.hook)
            found = logits_under(subject, [edits[-1]])
            torch.testing.assert_close(
                found, expected[-1], atol=1e-4, rtol=1e-4, msg=lambda said, s=site: f"{s}: {said}"
            )
    assert not silent
    whole = fill_means(subject, edits)
    positions = subject.answer_positions
    hooks = [site.hook for site in named]
    stacked = EditedRuns(subject.model, subject.data.tokens, positions, hooks)
    torch.testing.assert_close(stacked.under(whole), torch.stack(expected), atol=1e-4, rtol=1e-4)


@kinds
def test_sites_are_read_and_differentiated_as_in_transformers(kind: str) -> None:
    subject, reference = opened(kind)
    hooks, positions = list(reference.paths), subject.answer_positions
    runs = EditedRuns(subject.model, subject.data.tokens, positions)
    every = torch.arange(len(positions))
    ((_, found),) = runs.gradients(hooks, lambda logits, rows: logits.square().sum(-1), every)
    wanted = reference.activations(), reference.gradients()
    for hook in hooks:
        *both, places = found[hook]
        for mine, theirs in zip(both, wanted, strict=True):
            for length, rows in reference.groups.items():
                at = places[rows]
                own = theirs[hook][length][torch.arange(len(at))[:, None], at.clamp(max=length - 1)]
                torch.testing.assert_close(
                    mine[rows].flatten(2)[at < length], own[at < length], atol=1e-3, rtol=1e-3
                )


@kinds
def test_what_an_architecture_lacks_is_refused_by_name(kind: str) -> None:
    """No other site of a named kind is served, and none is served that another unit of measure
    would be read from.
    """
    subject, reference = opened(kind)
    read_only = read_only_hooks(subject.model)
    for layer in range(2):
        for hook, name in KINDS.items():
            full = f"blocks.{layer}.{hook}"
            if name != "resid_mid" and full in subject.hooks and full not in read_only:
                assert full in reference.paths, full
        for name in ("attention", "mlp", "head", "neuron"):
            site = Site.of(name, layer)
            if site.hook in reference.paths:
                assert list_components(subject, [name], layers=[layer]).sites
                continue
            with pytest.raises(NotApplicableError) as caught:
                list_components(subject, [name], layers=[layer])
            assert "\n" not in str(caught.value)


@pytest.mark.full
@pytest.mark.parametrize("kind", REFUSED)
def test_other_types_are_refused_in_one_line(kind: str) -> None:
    with pytest.raises(MechintError, match=REFUSED[kind]) as caught:
        mechint.load(made(kind), data=[{"prompt": [3, 4], "answer": 5}])
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.full
@pytest.mark.parametrize("kind", ["glm4_moe", "mamba", "qwen3_next"])
def test_ablation_serves_what_not_every_block_has(kind: str) -> None:
    """Blocks with a mixture of experts or another mixer; none of a kind is refused."""
    subject, _ = opened(kind)
    settings = {"null_samples": 9}
    if kind == "mamba":
        with pytest.raises(NotApplicableError, match="has no hook for") as caught:
            run("ablation", subject, **settings)
        assert "\n" not in str(caught.value)
        return
    table = run("ablation", subject, **settings).tables["effects"].columns["component"]
    assert "L1H1" in table and ("L0H1" in table) == (kind == "glm4_moe")


@pytest.mark.full
def test_neurons_of_a_mixture_are_not_served() -> None:
    """Behind a multiplier or a norm its output, as wide as the stream, stood under their name."""
    for kind in ("granitemoe", "flex_olmo"):
        subject, _ = opened(kind)
        assert not any(name.endswith("mlp.hook_post") for name in subject.hooks)
        assert subject.model_description.d_mlp is None


@pytest.mark.full
def test_prompts_whose_filler_matters_are_refused() -> None:
    """Phi-3 rotates by other angles from the fourth token on here, whatever the tokens are."""
    rope = {"rope_type": "longrope", "rope_theta": 10000.0}
    factors = {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4}
    model = made("phi3", original_max_position_embeddings=4, rope_parameters=rope | factors)
    short, long = {"prompt": [3, 4, 5], "answer": 6}, {"prompt": [3, 4, 5, 9, 9, 9], "answer": 7}
    with torch.no_grad():
        alone = model(torch.tensor([short["prompt"]])).logits[:, -1]
    for one in (short, long):
        assert len(mechint.load(copy.deepcopy(model), data=[one]).data) == 1
    with pytest.raises(DataError, match="item 1: what fills this prompt up") as caught:
        mechint.load(copy.deepcopy(model), data=[short, long])
    assert "\n" not in str(caught.value)
    torch.testing.assert_close(mechint.load(model, data=[short]).logits(), alone)
