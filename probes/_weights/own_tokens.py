"""Heads that copy tokens to their own class, and queries that match their own token.

Embeddings are centered over tokens and logits over classes: what all tokens share may as well be
in the position embedding, and what all classes share cancels in the softmax.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint.null import orderings
from mechint.probe import Report
from mechint.results import Effect, Null
from mechint.subject import Subject
from mechint.task import IGNORE, FiniteTask, rng
from probes._weights import circuits
from probes._weights.circuits import Heads, eigenvalue_share, own_share
from probes._weights.composition import HeadComposition

RENAMED = "classes renamed at random, the largest share of all heads"
QUERIES = "the tokens of the queries renamed at random"
MOST = 0.5
"""A circuit that copies or matches does so for more of the tokens: an eigenvalue share of 1 says
nothing of entries off the diagonal that are larger (a triangular matrix has it)."""


def centered(rows: Float[Tensor, "token d_model"]) -> Float[Tensor, "token d_model"]:
    """Rows minus their mean."""
    return rows - rows.mean(0)


def add_copying(
    report: Report, heads: Heads, *, draws: int, tokens: int, seed: int
) -> dict[str, list]:
    """Report the head that copies most, among tokens that can be answers; columns of the table of
    heads.

    draws: samples of the null; tokens: at most, whose own class is looked up.
    """
    subject = report.subject
    classes, unembed = circuits.same_tokens(subject), circuits.unembedding(subject)
    if classes is None or unembed is None or len(classes[0]) < 2:
        return {}
    ids, columns = _answerable(subject, *classes)
    if len(ids) < 2:
        return {}
    left = centered(circuits.embedding(subject)[ids]) @ heads.v  # (head, token, d_head)
    right = heads.o @ centered(unembed[:, columns].T).T  # (head, d_head, class)
    shares, own = eigenvalue_share(left, right), np.array(own_share(left, right, tokens))
    draw, null = rng("weights classes", seed), []
    for _ in range(draws):
        order = torch.from_numpy(draw.permutation(len(ids)))
        null.append(float(eigenvalue_share(left[:, order], right).max()))
    ranked = shares.numpy().copy()
    if bool((own > MOST).any()):
        ranked[own <= MOST] = -np.inf
    top = int(ranked.argmax())
    name, share = heads.names[top], float(shares[top])
    report.metric("copying.head", name)
    one = Null.sampled("copying", share, null, RENAMED, orderings(len(ids)))
    report.metric("copying", share, null=one, unit="−1 … 1")
    report.metric("copying.own", float(own[top]), unit="share of tokens, 0–1")
    above = int(((shares.numpy() > max(null)) & (own > MOST)).sum())
    report.metric("copying.heads", above)
    holds = bool(own[top] > MOST)
    report.finding(
        f"{heads.names[top]} copies tokens"
        + (f", one of {above} heads that do." if above > 1 else "."),
        no="No head copies tokens.",
        holds=holds,
        null="copying",
        effect=Effect(share, "", "eigenvalue share", float(np.mean(null)), "renamed classes"),
        details={
            "tokens that raise their own class most": f"{own[top]:.0%} of {min(len(ids), tokens)}",
            "heads that copy": above,
        },
        at_chance=True,  # of the weights
    )
    if holds and float(one.p_value) <= report.probe.significance:
        report.lead(f"{heads.names[top]} copies tokens to the answer.")
    return {"copying": shares.tolist(), "own class largest": own.tolist()}


def add_matching(
    report: Report, heads: Heads, composed: HeadComposition, *, draws: int, tokens: int, seed: int
) -> None:
    """Report whether the queries of the pair with the largest K-composition match their own token.

    draws: samples of the null; tokens: at most, whose own score is looked up.
    """
    a, b = composed.best("K")
    embed = centered(circuits.embedding(report.subject))
    left = embed @ heads.q[b]  # (token, d_head)
    right = (embed @ heads.v[a] @ heads.o[a] @ heads.k[b]).T
    share = float(eigenvalue_share(left, right))
    (own,) = own_share(left[None], right[None], tokens)
    draw = rng("weights tokens", seed)
    null = [
        float(eigenvalue_share(left[torch.from_numpy(draw.permutation(len(left)))], right))
        for _ in range(draws)
    ]
    one = Null.sampled("matching", share, null, QUERIES, orderings(len(left)))
    report.metric("matching", share, null=one, unit="−1 … 1")
    report.metric("matching.own", own, unit="share of tokens, 0–1")
    report.finding(
        f"{heads.names[b]} matches queries with their own token through {heads.names[a]}.",
        no=f"{heads.names[b]} does not match queries with their own token.",
        holds=own > MOST,
        null="matching",
        effect=Effect(share, "", "eigenvalue share", float(np.mean(null)), "renamed tokens"),
        details={"tokens that score their own highest": f"{own:.0%} of {min(len(left), tokens)}"},
        at_chance=True,  # of the weights
    )


def _answerable(
    subject: Subject, ids: list[int], columns: list[int]
) -> tuple[list[int], list[int]]:
    """The tokens, with their classes' columns, that are the answer of some example; all of them
    for a language model, whose prompts are a sample.

    Tokens that never are an answer, such as brackets and operators, cannot be copied to one.
    """
    task = subject.task
    sampled = task is None or (isinstance(task, FiniteTask) and task.is_sample)
    if sampled or not len(subject.answers):
        return ids, columns
    assert task is not None
    asked: set[int] = set()
    for part, targets in zip(task.output_slices.values(), subject.targets.T, strict=True):
        asked |= {part.start + one for one in targets[targets != IGNORE].unique().tolist()}
    kept = [pair for pair in zip(ids, columns, strict=True) if pair[1] in asked]
    return [one for one, _ in kept], [column for _, column in kept]
