"""Tests of a program over sources: on composed inputs, and on attention made to follow it.

All counts are of the model's own answers, above the most frequent answer that the program gives
there. A test that follows from coverage can only refute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from mechint.decide import Bound, Evidence, Skill
from mechint.explanation.measure import MIN_INPUTS
from mechint.explanation.records import KEEPS, Test, judge_share
from mechint.explanation.rules import count_tokens
from mechint.explanation.source_program import SourceProgram, pattern_of
from mechint.explanation.sources import (
    EMBEDDING,
    Measured,
    Sources,
    composed,
    kept_without,
    moved_key,
    reads,
    routed,
    scrubbed,
    swapped,
)
from mechint.probe.results import Scope

FAITHFUL = Bound(0.96, above_chance=True)
"""Own answers kept when all sources that are said not to matter come from another input."""
MOVED = Bound(0.75, above_chance=True)
"""Answers that follow a moved key, where one group brings everything."""
CHANGED = 0.02
"""Share of inputs whose answer an interchange has to change; of fewer the variable is untested."""
PAIRS = 1000
"""Pairs of inputs, at least, that are made of fewer inputs, each with several others; and pairs
whose answer an interchange changes, before no more others are taken."""
SHOWN = 3
"""Inputs on which a token is brought, before a key may be moved to it: others were never asked."""


def source_tests(
    sources: Sources, program: SourceProgram, seed: int = 0, whole: bool = False
) -> list[Test]:
    """Every test of a program, on inputs that nothing was fitted to; or on the whole population of
    inputs, each of which has to be answered as it says, and is paired with several others.
    """
    groups, compute = program.groups, program.function.strict
    parts, every = program.part_claims(), [*program.part_claims(), *program.route_claims()]
    right = program.right(sources.tokens, sources.at, sources.own)
    covered = Measured.of(right, sources.own)
    if not groups:
        return constancy(sources, program, covered, whole)
    bound = Bound(1 - 0.5 / len(sources)) if whole else KEEPS
    found = [share("coverage", "the program's", every, covered, bound, refutes=True, whole=whole)]
    judged, sources = sources, sources.repeated(PAIRS)
    if program.rest:
        found.append(faithfulness(sources, program, seed))
    found += attention(sources if whole else judged, program, seed, whole)
    found += interchanges(sources, program, seed)
    mixed = Measured(0, 0)  # one group alone is another input, and no mixed one
    if program.rest or not program.alone:
        mixed = composed(sources, groups, compute, program.rest, seed)
    what = "groups of sources"
    said = f"mix {what} of inputs: the answer follows, {mixed.left} impossible ones left out"
    said = said if mixed.left else ""
    found.append(share("composed inputs", what, parts, mixed, refutes=program.alone, headline=said))
    same = scrubbed(sources, groups, program.rest, seed).alone
    found.append(share("causal scrubbing", "what the program reads", parts, same, refutes=True))
    found += moved_key_of(judged, program, seed)
    unknown = program.ambiguous_claims
    return [keep_clear_claims(test, unknown) for test in found] if unknown else found


def constancy(
    sources: Sources, program: SourceProgram, covered: Measured, whole: bool
) -> list[Test]:
    """The one answer on all inputs, and when every source comes from an input of its own; shares of
    all, since chance of one answer is all.
    """
    kept = kept_without(sources.repeated(PAIRS), program.rest, each=True)
    covered, kept = (replace(one, chance=0.0) for one in (covered, kept))
    bound, claims = replace(FAITHFUL, above_chance=False), program.part_claims()
    return [
        share("coverage", "the program's", claims, covered, bound, refutes=True, whole=whole),
        share("composed inputs", "the sources", claims, kept, bound),
    ]


def keep_clear_claims(test: Test, unknown: Collection[str]) -> Test:
    """The test of the claims that are not among those of which the prompts tell nothing; where no
    other is left it can only refute.
    """
    clear = tuple(claim for claim in test.of if claim not in unknown)
    return replace(test, of=clear) if clear else replace(test, refutes=True)


def share(
    kind: str,
    target: str,
    of: Sequence[str],
    measured: Measured,
    bound: Bound = KEEPS,
    *,
    whole: bool = False,
    **fields: Any,
) -> Test:
    """The test of a count; of the whole population it has no interval."""
    found = Evidence.share(measured.hits, measured.n)
    if whole:
        found = replace(found, given=(found.value, found.value))
    null = Evidence.share(measured.null_hits or 0, measured.null_n) if measured.null_n else None
    skill = Skill(1.0, measured.chance, measured.n, 0.0 if whole else -1.0)
    if skill.reason and found.high < bound.value:  # too few, whatever a constant would give
        skill = replace(skill, chance=0.0)
    least = 1 if whole else MIN_INPUTS
    return judge_share(
        kind, target, tuple(of), found, skill, bound=bound, null=null, least=least, **fields
    )


def together(sources: Sources, names: Collection[str]) -> Scope:
    """The scope of an edit of several sources at once."""
    return Scope(components=(len(names), len(sources.names)), together=len(names) > 1)


def faithfulness(sources: Sources, program: SourceProgram, seed: int) -> Test:
    """All that is said not to matter comes from one other input; the null: what is said to."""
    kept = kept_without(sources, program.rest, "judged", seed)
    used = list(dict.fromkeys(source for group in program.groups for source in group.sources))
    null = kept_without(sources, used, "judged null", seed)
    measured = Measured(kept.hits, kept.n, null.hits, null.n, kept.chance)
    own = program.inputs.own(sources.tokens, sources.at)
    varies = program.rest != (EMBEDDING,) or len(own.unique()) > 1
    held = dict.fromkeys([*used, *(one for one in sources.names if one not in program.rest)])
    target = f"the output of {', '.join(held)}, all others of another input"
    return share(
        "faithfulness",
        target,
        program.part_claims(),
        measured,
        FAITHFUL,
        refutes=not varies,
        scope=together(sources, program.rest),
    )


def attention(
    sources: Sources, program: SourceProgram, seed: int, whole: bool = False
) -> list[Test]:
    """All heads attend, jointly, as their rules say; and those that read fixed positions read these
    and no others. Nothing could fail of a head of which all keys are named, where it has one, or by
    weights of its own; nor of tokens read alone where all others are the same in all inputs.
    """
    masks = {head: one.keys(sources.tokens, sources.at) for head, one in program.heads.items()}
    single = bool((sources.visible.sum(1) == 1).all())
    heads = {
        head: one
        for head, one in program.heads.items()
        if not bool((masks[head] | ~sources.visible).all())
        or not (single or isinstance(one.weights, str))
    }
    if not heads:
        claims = program.route_claims()
        none = share("path patching", ", ".join(claims), claims, Measured(0, 0))
        return [none] if claims else []
    fixed = [head for head in program.fixed if head in heads]
    several = sources.repeated(PAIRS)  # the keys of several others for each input, as a null
    measured, null = (
        routed(
            some,
            {head: pattern_of(some, head, rule) for head, rule in heads.items()},
            fixed,
            seed,
            partial(says_otherwise, some, program),
            program.rest,
        )
        for some in (sources, several)
    )
    measured = replace(measured, null_hits=null.null_hits, null_n=null.null_n)
    # without a null the prompts do not tell these rules from constant ones
    claims, silent = program.route_claims(heads), not measured.null_n
    target = claims[0] if len(claims) == 1 else f"attention of {', '.join(heads)} as named"
    joint = together(sources, heads)
    found = [
        share("path patching", target, claims, measured, refutes=silent, whole=whole, scope=joint)
    ]
    read = [head for head in fixed if heads[head].fixed]
    if read:
        # what a head of layer 0 brings from a key is that token's
        first = {head for head in read if head.startswith("L0H")}
        groups = [i for i, one in enumerate(program.groups) if first.issuperset(one.sources)]
        parts = (claim for i in groups for claim in program.part_claims(i))
        claims = (*program.route_claims(read), *parts)
        measured = reads(sources, {head: masks[head] for head in read}, program.rest)
        if len(read) < len(program.heads):  # the others may keep the answer
            measured = measured.alone
        if first.issuperset(read) and all(alike(sources, masks[head]) for head in read):
            measured = Measured(0, 0)
        silent = not measured.null_n
        target = f"{', '.join(read)}: the named keys alone"
        joint = together(sources, read)
        found.append(
            share(
                "path patching", target, claims, measured, refutes=silent, whole=whole, scope=joint
            )
        )
    return found


def alike(sources: Sources, named: Bool[Tensor, "example pos"]) -> bool:
    """Return whether there are keys that are not named, and each holds one token in all inputs."""
    free = sources.visible & ~named
    return bool(free.any()) and bool((sources.tokens == sources.tokens[0])[free].all())


def says_otherwise(
    sources: Sources, program: SourceProgram, patterns: Mapping[str, Tensor]
) -> Bool[Tensor, " example"]:
    """Flags of inputs whose answer is another one by the program where heads attend by these
    patterns; of all where it does not say what they would bring.
    """
    own = program.values(sources.tokens, sources.at)
    values, before = dict(own), program.function.strict(own)
    for group, several in zip(program.groups, program.variables, strict=True):
        head = next((one for one in group.sources if one in patterns), None)
        if head is None:
            continue
        rule, pattern = program.heads[head], patterns[head].nan_to_num(0.0)
        if len(several) != 1 or isinstance(rule.weights, str):
            return torch.ones(len(before), dtype=torch.bool)
        name = several[0].name
        if rule.kind == "token":
            place = (pattern.argmax(1) + rule.shift).clamp(0, pattern.shape[1] - 1)
            values[name] = sources.tokens.gather(1, place[:, None])[:, 0]
        else:  # as many tokens as before: a head reads shares
            shown = (pattern > 0) & program.inputs.is_operand(sources.tokens, sources.at)
            counts = count_tokens(sources.tokens, shown, program.inputs.d_vocab)
            total = own[name].sum(1, keepdim=True)
            values[name] = counts * total // counts.sum(1, keepdim=True).clamp(min=1)
    after = program.function.strict(values)
    return (after != before) & (after >= 0) & (before >= 0)


def interchanges(sources: Sources, program: SourceProgram, seed: int) -> list[Test]:
    """Each group, or each of its keys, from another input."""
    found = []
    for index, (group, variables) in enumerate(zip(program.groups, program.variables, strict=True)):
        said = [one.python for one in variables]
        used = [one.python for one in variables if program.function.uses(one)]
        whole: list[tuple[int | None, str]] = [
            (None, ", ".join(used) + " together" * (len(used) > 1))
        ]
        keys = list(zip(group.keys, said, strict=True)) if group.keys else whole
        for key, target in keys:
            compute = program.function.strict
            measured = swapped(sources, program.groups, index, compute, key, seed, PAIRS)
            if measured.n < CHANGED * len(sources):
                measured = Measured(0, 0)
            half = "half of " if group.mask is not None else ""
            refutes = program.alone and key is None and not half
            claims = program.part_claims(index)
            found.append(share("interchange", f"{half}{target}", claims, measured, refutes=refutes))
    return found


def moved_key_of(judged: Sources, program: SourceProgram, seed: int) -> list[Test]:
    """The heads of the one group that brings everything, by one token rule, are made to attend to
    another operand.
    """
    if not program.alone:
        return []
    (group,), (variables,) = program.groups, program.variables
    heads = [source for source in group.sources if source in program.heads]
    rules = [program.heads[head] for head in heads]
    if not rules or any(one.kind != "token" or one.fixed for one in rules):
        return []
    (variable,), shift, sources = variables, rules[0].shift, judged.repeated(PAIRS)
    own = program.values(sources.tokens, sources.at)
    brought = program.values(judged.tokens, judged.at)[variable.name]  # each input once

    def answer(key: Tensor) -> Tensor:
        place = (key + shift).clamp(0, sources.tokens.shape[1] - 1)
        moved = sources.tokens.gather(1, place[:, None])[:, 0]
        return program.function.compute({**own, variable.name: moved})

    key = rules[0].key(sources.tokens, sources.at)
    token, number = brought.unique(return_counts=True)
    free = program.inputs.is_operand(sources.tokens, sources.at)
    free &= torch.isin(sources.tokens.roll(-shift, 1), token[number >= SHOWN])
    if shift:  # a token stands beside its key only where keys are, and of such a key
        rows = (key >= 0).nonzero().flatten()
        free &= torch.isin(torch.arange(free.shape[1]), key[rows])
        free &= torch.isin(sources.tokens, sources.tokens[rows, key[rows]])
    measured = moved_key(sources, heads, key, free, answer, seed)
    return [share("moved key", ", ".join(heads), program.part_claims(), measured, MOVED)]
