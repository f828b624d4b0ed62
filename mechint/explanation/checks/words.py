"""The words of rules on changed prompts, whose attention a model gives, too: with one token more,
and one repeat more.

A head that looks two back is at "position 6" on prompts of one length, and one that looks at every
match is at "the last match" where no prompt has two. The prompts do not tell; changed ones do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.decide import Evidence
from mechint.explanation.rules import rules_for
from mechint.explanation.source_program import SourceProgram, named_attention
from mechint.explanation.sources import Sources
from mechint.task import IGNORE, rng

HELD = 0.6
"""Share of its attention on the tokens that a rule names which a head has to keep, at least."""
CHANGED = 400
"""Prompts that are changed, at most."""
FEW, TOLD = 0.02, 0.7
"""Share of the inputs on which two rules bring different tokens, below which these are few; and
the share of them, at its lower end, that has to be answered as the program says."""


def find_untold_word(sources: Sources, program: SourceProgram, seed: int = 0) -> str:
    """The rule that a head does not follow on changed prompts, or on the few that tell it from
    another one, in words; "" where there is none.
    """
    heads = program.heads.items()
    rules = {head: one for head, one in heads if one.kind == "token" and one.weights is None}
    if not rules:
        return ""
    tokens, at = sources.tokens, sources.at
    right = program.right(tokens, at, sources.own)
    every = [one for one in rules_for(program.inputs) if one.kind == "token"]
    for rule, other in itertools.product(rules.values(), every):
        if not rule.tells(other):
            continue
        differ = rule.token(tokens, at) != other.token(tokens, at)
        told = Evidence.share(int(right[differ].sum()), int(differ.sum()))
        if 0 < told.n < FEW * len(right) and told.low < TOLD:
            said = f"{told.hits} of {told.n} are answered as it says"
            return f"few inputs tell {rule.name} from {other.name}: {said}"
    few = sources.among(slice(CHANGED))
    for words, other in change_prompts(few, program, seed):
        for head, rule in rules.items():
            before, after = (named_attention(one, head, rule).nanmean() for one in (few, other))
            if float(after) < HELD * float(before):
                return f"{head} attends to {rule.name} here, and not in prompts with {words}"
    return ""


def change_prompts(
    sources: Sources, program: SourceProgram, seed: int
) -> Iterator[tuple[str, Sources]]:
    """Words and prompts: with the token at the answer, or another operand, at one more place, and
    with one more operand, where the model takes as long ones.
    """
    subject, tokens, at = sources.subject, sources.tokens, sources.at
    operands, every = program.inputs.is_operand(tokens, at), torch.arange(len(tokens))
    draw = torch.from_numpy(rng("changed prompts", seed).random((2, *tokens.shape)))
    before = operands & (torch.arange(tokens.shape[1]) < at[:, None])
    kept = before.sum(1) > 1
    equal = before & (tokens == tokens[every, at][:, None])
    behind = before & (equal.flip(1).cumsum(1).flip(1) == 0) & equal.any(1, keepdim=True)
    place, other = (((one + behind) * before).argmax(1) for one in draw)
    data = subject.data[sources.rows.to(subject.device)]

    def made(new: Int[Tensor, "n pos"]) -> Sources:
        changed = replace(data, tokens=new.to(subject.device))
        return Sources(subject.with_data(changed[kept.to(subject.device)]))

    if not bool(kept.any()):
        return
    own = tokens[every, at]
    for words, token, asked in (
        ("its last token at one more place", own, operands[every, at]),
        ("one repeat more", tokens[every, other], kept),
    ):
        if bool(asked.all()):
            new = tokens.clone()
            new[every, place] = token
            yield words, made(new)
    if tokens.shape[1] < (subject.model_description.n_ctx or 0):
        places = torch.arange(tokens.shape[1] + 1)
        old = (places - (places > place[:, None]).long()).clamp(max=tokens.shape[1] - 1)
        longer = tokens.gather(1, old)
        longer[every, place] = tokens[every, other]
        front = torch.full_like(data.targets[:, :1], IGNORE)
        data = replace(
            data,
            targets=torch.cat([front, data.targets], 1),
            lengths=None if data.lengths is None else data.lengths + 1,
            weights=None,
            kinds=None,
        )
        longer_sources = made(longer)
        if torch.equal(longer_sources.at, at[kept] + 1):
            yield "one token more", longer_sources
