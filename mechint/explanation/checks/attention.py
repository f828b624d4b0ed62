"""Tests of attention: routes to a key, and patterns that may be any other's."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.decide import Bound, Evidence, Skill
from mechint.explanation.claims import inputs_of
from mechint.explanation.measure import (
    MIN_INPUTS,
    Bench,
    constant,
    counted_share,
    failing_inputs,
)
from mechint.explanation.parts import AT, Copy, Route
from mechint.explanation.records import Test, judge_share
from mechint.explanation.sources import Sources, moved_key
from mechint.interventions import Replace, Site
from mechint.task import rng

FOLLOWS, STAYS = Bound(0.75), Bound(0.1, "below")
"""Share of answers that have to become the token of a moved key, and that may stay."""
MOST = Bound(0.75)
"""Share of inputs of which the named token has to get more attention than any other one."""


def route(bench: Bench, claim: Route) -> list[Test]:
    """Accuracy when the heads attend as the route says: to one key from the answer, beside the keys
    of other inputs, and whether each of them has its most attention there; or accuracy with the
    patterns of other inputs, which only tells what attention does.
    """
    rows, heads = bench.judged, torch.tensor(claim.heads)
    site = Site(f"blocks.{claim.layer}.attn.hook_pattern")
    own = bench.subject.activation(site.hook)[rows]  # (example, head, query, key)
    every, at = torch.arange(len(rows))[:, None], bench.subject.answer_positions[rows].cpu()
    labels = bench.targets(rows)

    def kept(attention: Tensor) -> Tensor:
        edit = Replace(site, attention.transpose(1, 2))  # a site's positions stand second
        return bench.logits(rows, [edit])

    skill = bench.skill_at(labels)
    if claim.key is None:
        other = own.clone()
        other[:, heads] = own[bench.order("route", len(rows))][:, heads]
        found = bench.kept(kept(other), labels)
        told = judge_share("attention", claim.where, (), found, skill)
        said = {"yes": "may be that of any other input", "no": "depends on the input"}
        depends = said.get(told.verdict, "may or may not depend on the input")
        return [replace(told, headline=f"Attention of {claim.where} {depends}.")]
    keys = claim.key(bench.tokens(rows), bench.at_answer(rows)).cpu()
    reached = []
    for chosen in (keys, draw_other_keys(bench, keys, at)):
        hard = own.clone()
        hard[every, heads, at[:, None]] = one_hot_keys(chosen, own)[:, None]
        reached.append(bench.kept(kept(hard), labels))
    found, null = reached
    of, tokens = (str(claim),), bench.tokens(rows).cpu()
    most = torch.stack([is_most(own[every[:, 0], one, at].cpu(), tokens, keys) for one in heads])
    most = most[most.sum(1).argmin()]
    joint = bench.joint(len(heads))
    asked = [judge_share("path patching", str(claim), of, found, skill, null=null, scope=joint)]
    apart = find_apart_from_place(bench, claim, keys)
    if apart is not None:
        asked = [replace(asked[0], refutes=int(apart.sum()) < MIN_INPUTS)]
    ends = {"own {}": tokens[every[:, 0], at], "first {}": tokens[:, 0]}
    worst = failing_inputs(most, ends, MOST.value, MOST.value)[1]
    for some in [torch.ones_like(most), *(one for one in (apart, worst) if one is not None)]:
        share = counted_share(most[some])
        certain = Skill(1.0, 0.0, share.n)
        asked.append(
            judge_share("attention", str(claim), of, share, certain, bound=MOST, refutes=True)
        )
    return asked


def is_most(
    pattern: Float[Tensor, "n key"], tokens: Int[Tensor, "n key"], keys: Int[Tensor, " n"]
) -> Bool[Tensor, " n"]:
    """Return whether the token at the key gets more attention than any other one, all positions
    of a token together.
    """
    mass = torch.zeros(len(tokens), int(tokens.max()) + 1).to(pattern)
    mass.scatter_add_(1, tokens, pattern)
    named = tokens.gather(1, keys[:, None])
    return mass.gather(1, named)[:, 0] > mass.scatter(1, named, -1.0).amax(1)


def find_apart_from_place(
    bench: Bench, claim: Route, keys: Int[Tensor, " n"]
) -> Bool[Tensor, " n"] | None:
    """The inputs on which the token at the key is not the one at the place that tells it best,
    counted from the start or back from the answer; None where it is that place itself, which the
    key is where the tokens before the answer are permuted, too.
    """
    assert claim.key is not None
    tokens, values = bench.tokens(bench.judged).cpu(), bench.at_answer(bench.judged)
    at, places = values[AT].cpu(), torch.arange(tokens.shape[1])
    draw = torch.from_numpy(rng("explain permuted keys", bench.seed).random(tokens.shape))
    order = torch.where(places < at[:, None], draw, 1.0 + places).argsort(1)
    permuted = tokens.gather(1, order)
    moved = claim.key(permuted.to(bench.subject.device), values).cpu()
    alike = list[tuple[int, bool, Tensor]]()
    for place in range(int(at.min()) + 1):
        for fixed in (torch.full_like(at, place), at - place):
            there, now = (
                one.gather(1, fixed[:, None]) == one.gather(1, key[:, None])
                for one, key in ((tokens, keys), (permuted, moved))
            )
            alike.append((int(there.sum()), bool(now.all()), ~there[:, 0]))
    _, by_place, apart = max(alike, key=lambda one: one[:2])
    return None if by_place else apart


def copied(bench: Bench, claim: Copy, sources: Sources) -> list[Test]:
    """The share of the model's answers that are the token at the key; and where the head is made to
    attend to another operand, of those that become its token, beside those that stay.
    """
    tokens, at = sources.tokens, bench.at_answer(bench.judged)
    assert claim.route.key is not None
    keys = claim.route.key(tokens, at).cpu()
    there = tokens.gather(1, keys[:, None])[:, 0]
    skill = Skill(1.0, constant(sources.own[:, None]), len(tokens))
    found = counted_share(there == sources.own)
    head = claim.route.where
    operands = inputs_of(tokens, sources.at).is_operand(tokens, sources.at)
    moved = moved_key(
        sources, [head], keys, operands, lambda at: tokens.gather(1, at[:, None])[:, 0]
    )
    of = (str(claim),)
    return [
        judge_share("coverage", "the token at the key", of, found, skill),
        judge_share(
            "moved key",
            head,
            of,
            Evidence.share(moved.hits, moved.n),
            skill,
            bound=FOLLOWS,
            null=Evidence.share(moved.null_hits or 0, moved.null_n),
            null_bound=STAYS,
            scope=bench.joint(1),
        ),
    ]


def draw_other_keys(
    bench: Bench, keys: Int[Tensor, " n"], at: Int[Tensor, " n"]
) -> Int[Tensor, " n"]:
    """The keys of other inputs; where these are the same, another position up to the answer's."""
    other = keys[bench.order("route null", len(keys))]
    draw = torch.from_numpy(rng("explain route null", bench.seed).integers(1, 1 << 30, len(keys)))
    another = (keys + 1 + draw % at.clamp(min=1)) % (at + 1)
    return torch.where(other == keys, another, other)


def one_hot_keys(keys: Int[Tensor, " n"], pattern: Tensor) -> Float[Tensor, "n key"]:
    """All attention on one key."""
    return torch.nn.functional.one_hot(keys, pattern.shape[-1]).to(pattern)
