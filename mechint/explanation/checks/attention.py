"""Tests of attention: routes to a key, patterns that may be any other's, tags that are moved."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.decide import Bound, Evidence, Skill
from mechint.explanation.claims import operands
from mechint.explanation.measure import Bench, constant, counted_share, moved_tag
from mechint.explanation.parts import Copy, Link, Route
from mechint.explanation.records import Share
from mechint.explanation.sources import Sources, moved_key
from mechint.interventions import Replace, Site
from mechint.task import rng

MOVED, MOVED_NULL = Bound(0.8), Bound(0.05, "below")
"""Share of answers that have to follow a tag that is moved, and that may follow a wrong one."""
FOLLOWS, STAYS = Bound(0.75), Bound(0.1, "below")
"""Share of answers that have to become the token of a moved key, and that may stay."""


def route(bench: Bench, claim: Route) -> Share:
    """Accuracy when the heads attend as the route says: to one key from the answer, beside the keys
    of other inputs; or with the patterns of other inputs, which only tells what attention does.
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
        return Share.judged("attention", claim.where, (), found, skill)
    keys = claim.key(bench.tokens(rows), bench.at_answer(rows)).cpu()
    reached = []
    for chosen in (keys, other_keys(bench, keys, at)):
        hard = own.clone()
        hard[every, heads, at[:, None]] = one_hot_keys(chosen, own)[:, None]
        reached.append(bench.kept(kept(hard), labels))
    found, null = reached
    return Share.judged("route", str(claim), (str(claim),), found, skill, null=null)


def link(bench: Bench, claim: Link) -> Share:
    """Share of answers that follow the tag when it is moved, beside the tag of a third position."""
    found, null = moved_tag(bench, claim, bench.judged)
    return Share.judged(
        "link",
        str(claim),
        (str(claim),),
        found,
        bench.skill,
        bound=MOVED,
        null=null,
        null_bound=MOVED_NULL,
    )


def copied(bench: Bench, claim: Copy, sources: Sources) -> list[Share]:
    """The share of the model's answers that are the token at the key; and where the heads are made
    to attend to another operand, of those that become its token, beside those that stay.
    """
    tokens, at = sources.tokens, bench.at_answer(bench.judged)
    assert claim.route.key is not None
    keys = claim.route.key(tokens, at).cpu()
    there = tokens.gather(1, keys[:, None])[:, 0]
    skill = Skill(1.0, constant(sources.own[:, None]), len(tokens))
    found = counted_share(there == sources.own)
    heads = claim.route.where.split(", ")
    moved = moved_key(
        sources, heads, keys, operands(tokens), lambda at: tokens.gather(1, at[:, None])[:, 0]
    )
    of = (str(claim),)
    return [
        Share.judged("copied", "the token at the key", of, found, skill),
        Share.judged(
            "moved key",
            ", ".join(heads),
            of,
            Evidence.share(moved.hits, moved.n),
            skill,
            bound=FOLLOWS,
            null=Evidence.share(moved.null_hits or 0, moved.null_n),
            null_bound=STAYS,
        ),
    ]


def other_keys(bench: Bench, keys: Int[Tensor, " n"], at: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """The keys of other inputs; where these are the same, another position up to the answer's."""
    other = keys[bench.order("route null", len(keys))]
    draw = torch.from_numpy(rng("explain route null", bench.seed).integers(1, 1 << 30, len(keys)))
    another = (keys + 1 + draw % at.clamp(min=1)) % (at + 1)
    return torch.where(other == keys, another, other)


def one_hot_keys(keys: Int[Tensor, " n"], pattern: Tensor) -> Float[Tensor, "n key"]:
    """All attention on one key."""
    return torch.nn.functional.one_hot(keys, pattern.shape[-1]).to(pattern)
