"""Tests of attention: routes to a key, patterns that may be any other's, tags that are moved."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.decide import Bound, Decision, Evidence, Skill
from mechint.explanation.claims import operands
from mechint.explanation.measure import Bench, constant, counted_share, moved_tag
from mechint.explanation.parts import AT, Copy, Link, Route
from mechint.explanation.records import Share
from mechint.explanation.sources import Sources, moved_key
from mechint.interventions import Replace, Site
from mechint.task import rng

MOVED, MOVED_NULL = Bound(0.8), Bound(0.05, "below")
"""Share of answers that have to follow a tag that is moved, and that may follow a wrong one."""
FOLLOWS, STAYS = Bound(0.75), Bound(0.1, "below")
"""Share of answers that have to become the token of a moved key, and that may stay."""
MOST = Bound(0.75)
"""Share of inputs of which the named token has to get more attention than any other one."""
RAISES = Bound(0.9)
"""Share of inputs of which each of several heads, moved alone, has to raise the token there."""


def route(bench: Bench, claim: Route, linked: bool = False) -> list[Share]:
    """Accuracy when the heads attend as the route says: to one key from the answer, beside the keys
    of other inputs, and whether each of them has its most attention there; or accuracy with the
    patterns of other inputs, which only tells what attention does. linked: a link says how the key
    is found.
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
        return [Share.judged("attention", claim.where, (), found, skill)]
    keys = claim.key(bench.tokens(rows), bench.at_answer(rows)).cpu()
    reached = []
    for chosen in (keys, other_keys(bench, keys, at)):
        hard = own.clone()
        hard[every, heads, at[:, None]] = one_hot_keys(chosen, own)[:, None]
        reached.append(bench.kept(kept(hard), labels))
    found, null = reached
    of, tokens = (str(claim),), bench.tokens(rows).cpu()
    test = Share.judged("route", str(claim), of, found, skill, null=null)
    if not linked and (place := told_by_place(bench, claim, keys)):
        test = replace(test, decision=Decision("untested", place), contradicts=False)
    most = min(
        (counted_share(is_most(own[every[:, 0], one, at].cpu(), tokens, keys)) for one in heads),
        key=lambda one: one.value,
    )
    certain = Skill(1.0, 0.0, len(rows))
    return [
        test,
        Share.judged("most attention", str(claim), of, most, certain, bound=MOST, refutes=True),
    ]


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


def told_by_place(bench: Bench, claim: Route, keys: Int[Tensor, " n"]) -> str:
    """The reason for which the inputs do not tell a key from a place: the token at the key stands
    at one place in all of them, counted from the start or back from the answer, and not where the
    tokens before the answer are permuted; "" otherwise.
    """
    assert claim.key is not None
    rows = bench.judged
    tokens, values = bench.tokens(rows).cpu(), bench.at_answer(rows)
    at = values[AT].cpu()
    places, draw = torch.arange(tokens.shape[1]), rng("explain permuted keys", bench.seed)
    order = torch.from_numpy(draw.random(tokens.shape))
    order = torch.where(places < at[:, None], order, 1.0 + places).argsort(1)
    permuted = tokens.gather(1, order)
    moved = claim.key(permuted.to(bench.subject.device), values).cpu()
    for start, words in ((torch.zeros_like(at), "position {}"), (at, "{} before the answer")):
        for place in places.tolist():
            fixed = start - place if words[0] == "{" else start + place
            if bool((fixed < 0).any()):
                break
            there, now = (
                one.gather(1, fixed[:, None]) == one.gather(1, key[:, None])
                for one, key in ((tokens, keys), (permuted, moved))
            )
            if bool(there.all()) and not bool(now.all()):
                return f"in all inputs it is the token at {words.format(place)}"
    return ""


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
    alone = [raises(sources, one, keys) for one in heads] if len(heads) > 1 else []
    return [
        *(
            Share.judged("raised", one, of, share, Skill(1.0, 0.0, share.n), bound=RAISES)
            for one, share in zip(heads, alone, strict=False)
        ),
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


def raises(sources: Sources, head: str, keys: Int[Tensor, " n"]) -> Evidence:
    """The share of inputs of which a head that attends to another operand than its key raises the
    logit of the token there over that of the token at its key.
    """
    tokens = sources.tokens
    own = tokens.gather(1, keys[:, None])
    free = operands(tokens) & sources.visible & (tokens != own)
    draw = torch.from_numpy(rng("explain raised", head).random(free.shape))
    other = (draw * free).argmax(1)
    moved = sources.attending(head, one_hot_keys(other, sources.pattern(head)))
    change = sources.logits({head: moved}) - sources.own_logits
    raised = change.gather(1, tokens.gather(1, other[:, None])) > change.gather(1, own)
    return counted_share(raised[free.any(1)][:, 0])


def other_keys(bench: Bench, keys: Int[Tensor, " n"], at: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """The keys of other inputs; where these are the same, another position up to the answer's."""
    other = keys[bench.order("route null", len(keys))]
    draw = torch.from_numpy(rng("explain route null", bench.seed).integers(1, 1 << 30, len(keys)))
    another = (keys + 1 + draw % at.clamp(min=1)) % (at + 1)
    return torch.where(other == keys, another, other)


def one_hot_keys(keys: Int[Tensor, " n"], pattern: Tensor) -> Float[Tensor, "n key"]:
    """All attention on one key."""
    return torch.nn.functional.one_hot(keys, pattern.shape[-1]).to(pattern)
