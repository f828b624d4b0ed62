"""Whether circuits pair tokens with themselves: heads that copy, and queries that match.

Neither token embedding nor logits have a zero of their own: what all tokens share may as well stand
in the position embedding, and what all classes share no softmax sees. So both are centered, and
what is said of a head is what one token does there that another does not.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint.null import orderings
from mechint.probe import Report
from mechint.results import Null
from mechint.task import rng
from probes._weights import circuits
from probes._weights.circuits import Heads, eigenvalue_share, own_share
from probes._weights.composition import Composition

RENAMED = "classes renamed at random, the largest share of all heads"
QUERIES = "the tokens of the queries renamed at random"
MOST = 0.5
"""A circuit that copies or matches does so for more of the tokens: an eigenvalue share of 1 says
nothing of entries off the diagonal that are larger (a triangular matrix has it)."""


def centered(rows: Float[Tensor, "token d_model"]) -> Float[Tensor, "token d_model"]:
    """Without what all rows share."""
    return rows - rows.mean(0)


def add_copying(
    report: Report, heads: Heads, *, draws: int, tokens: int, seed: int
) -> dict[str, list]:
    """The sentence on the head that copies most, and columns of the table of heads.

    draws: samples of the null; tokens: at most, whose own class is looked up.
    """
    subject = report.subject
    classes, unembed = circuits.same_tokens(subject), circuits.unembedding(subject)
    if classes is None or unembed is None or len(classes[0]) < 2:
        return {}
    ids, columns = classes
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
    measured = f"(eigenvalue share {share:.2f}; {own[top]:.0%} of {_looked_up(len(ids), tokens)} "
    measured += "raise their own class most)"
    report.finding(
        f"The OV circuit of {name} copies tokens to their own class {measured}; {above} of "
        f"{len(shares)} heads do so beyond any renaming.",
        question="whether a head copies tokens to their own class",
        otherwise=(
            "No head is shown to copy most tokens to their own class with a larger eigenvalue "
            f"share than renamed classes can give; {name} comes closest {measured}."
        ),
        holds=bool(own[top] > MOST),
        null="copying",
        effect=share,
        at_chance=True,  # of the weights
    )
    return {"copying": shares.tolist(), "own class largest": own.tolist()}


def add_matching(
    report: Report, heads: Heads, composed: Composition, *, draws: int, tokens: int, seed: int
) -> None:
    """Whether the queries of the pair with the largest K-composition ask for their token.

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
    through = f"Through {heads.names[a]}, the QK circuit of {heads.names[b]}"
    measured = f"(eigenvalue share {share:.2f}; {own:.0%} of {_looked_up(len(left), tokens)} "
    measured += "score their own highest)"
    report.finding(
        f"{through} matches queries with their own token {measured}.",
        question=f"whether queries of {heads.names[b]} match their own token",
        otherwise=f"{through} is not shown to match most queries with their own token {measured}.",
        holds=own > MOST,
        null="matching",
        effect=share,
        at_chance=True,  # of the weights
    )


def _looked_up(n: int, most: int) -> str:
    return f"the first {most} tokens" if n > most else f"{n} tokens"
