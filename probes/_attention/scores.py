"""Kinds of heads: what each looks at, and how much of its attention is there, against keys in
random order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Float, Int

from mechint.task import rng
from probes._attention.patterns import Patterns

SCORES = ("previous_token", "same_token", "induction")


def targets(
    tokens: Int[np.ndarray, "example pos"], lengths: Int[np.ndarray, " example"], score: str
) -> Bool[np.ndarray, "example query key"]:
    """(example, query, key) whether the key is what a head of that kind looks at; no key beyond an
    example's length.

    previous_token: key = query - 1; same_token: an earlier key with the query's token; induction:
    the key after an earlier occurrence of the query's token (Olsson et al. 2022).

    >>> targets(np.array([[5, 7, 5]]), np.array([3]), "induction")[0].astype(int).tolist()
    [[0, 0, 0], [0, 0, 0], [0, 1, 0]]
    """
    n, ctx = tokens.shape
    query, key = np.arange(ctx)[:, None], np.arange(ctx)[None, :]
    if score == "previous_token":
        hit = np.broadcast_to(key == query - 1, (n, ctx, ctx))
    else:
        same = (tokens[:, :, None] == tokens[:, None, :]) & (key < query)
        hit = (
            same
            if score == "same_token"
            else np.concatenate([np.zeros((n, ctx, 1), bool), same[:, :, :-1]], 2)
        )
    inside = np.arange(ctx) < lengths[:, None]
    return hit & inside[:, :, None] & inside[:, None, :]


def mass(
    pattern: Float[np.ndarray, "example head query key"], hit: Bool[np.ndarray, "example query key"]
) -> Float[np.ndarray, " head"]:
    """(heads,) mean attention on the keys that are hit, over the queries that have one; zeros where
    none has.
    """
    asked = hit.any(-1).sum()
    return np.einsum("nhqk,nqk->h", pattern, hit.astype(pattern.dtype)) / max(int(asked), 1)


def shuffled_keys(
    ctx: int, causal: bool, seed: int, samples: int
) -> Iterator[Int[np.ndarray, "query key"]]:
    """(query, key) an order of the keys each query may look at, anew for every query and sample."""
    generator = rng("attention null", seed)
    for _ in range(samples):
        noise = generator.random((ctx, ctx))
        if causal:  # keys ahead sort last, in their own order
            noise = np.where(
                np.arange(ctx)[None] > np.arange(ctx)[:, None], 1 + np.arange(ctx)[None], noise
            )
        yield noise.argsort(1)


def arrangements(
    hit: Bool[np.ndarray, "example query key"], causal: bool, lengths: Int[np.ndarray, " example"]
) -> float:
    """In how many ways the keys of the queries that are asked can stand, as far as it matters: the
    product over queries of the keys that each may look at (inf beyond a million).

    hit (example, query, key). A null of fewer arrangements than 1/α cannot decide at α.
    """
    ctx, total = hit.shape[-1], 1.0
    asked = hit.any((0, 2))
    for query in np.nonzero(asked)[0]:
        total *= query + 1 if causal else min(ctx, int(lengths.max()))
        if total > 1e6:
            return float("inf")
    return total


def score(
    patterns: Patterns, kind: str, seed: int, samples: int
) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, "sample head"]]:
    """(heads,) mass of one of `SCORES`, and (samples, heads) with each query's keys in random
    order, the same for all heads.

    Of every query the products of attention with what is hit are summed over examples once, for all
    pairs of a key and another key in its place; a sample only looks them up. So does what is
    observed, the keys as they stand: where few orders are told apart, many a sample equals it to
    the last bit.
    """
    hit = targets(patterns.tokens, patterns.lengths, kind)
    n_heads, ctx = len(patterns.names), hit.shape[-1]
    asked = max(int(hit.any(-1).sum()), 1)
    as_they_stand = np.tile(np.arange(ctx), (ctx, 1))
    shuffled = shuffled_keys(ctx, patterns.causal, seed, samples)
    scores, orders = [], itertools.chain([as_they_stand], shuffled)
    size = max(1, (1 << 25) // (8 * ctx * ctx))
    while block := list(itertools.islice(orders, size)):
        order = np.stack(block)  # (sample, query, key)
        total = np.zeros((len(order), n_heads))
        for query in np.nonzero(hit.any((0, 2)))[0]:
            rows = patterns.sample[:, :, query].astype(np.float64)  # (example, head, key)
            product = np.einsum("nhj,nk->hjk", rows, hit[:, query].astype(np.float64))
            # the key that stands at place j of the order is taken for the key j
            total += product[:, np.arange(ctx), order[:, query]].sum(-1).T
        scores.append(total / asked)
    every = np.concatenate(scores)  # (sample, head)
    return every[0], every[1:]


def dealings(
    queries: Int[np.ndarray, " query"], keys: Int[np.ndarray, " query"], causal: bool
) -> float:
    """In how many ways the keys can be dealt to the queries, none to a query before it (causal);
    equal keys are one (inf beyond a million).

    >>> dealings(np.array([3, 4, 5]), np.array([2, 1, 0]), True)
    6.0
    >>> dealings(np.array([1, 2, 3]), np.array([0, 1, 2]), True)
    4.0
    >>> dealings(np.array([1, 2, 3]), np.array([0, 0, 0]), True)
    1.0
    """
    log = -sum(math.lgamma(one + 1) for one in np.unique(keys, return_counts=True)[1])
    for place, query in enumerate(np.sort(queries)):
        allowed = int((keys <= query).sum()) if causal else len(keys)
        log += math.log(allowed - place)
    return float(round(math.exp(log))) if log < math.log(1e6) else float("inf")


def deal(
    queries: Int[np.ndarray, " query"],
    keys: Int[np.ndarray, " query"],
    causal: bool,
    generator: np.random.Generator,
) -> Int[np.ndarray, " query"]:
    """(query,) the keys dealt anew, all of `dealings` alike."""
    if not causal or keys.max() <= queries.min():
        return generator.permutation(keys)
    dealt, left = np.empty_like(keys), np.sort(keys)
    for place in np.argsort(queries):  # the first queries have the fewest keys to choose from
        chosen = generator.integers(0, np.searchsorted(left, queries[place], "right"))
        dealt[place] = left[chosen]
        left = np.delete(left, chosen)
    return dealt


def stated(
    patterns: Patterns, target: list[int]
) -> tuple[Int[np.ndarray, " query"], Int[np.ndarray, " query"], bool]:
    """The queries with a target, their keys, and whether keys are dealt to later queries alone; a
    target of -1 is none.
    """
    queries = np.array([q for q, key in enumerate(target) if key >= 0], int)
    keys = np.array([key for key in target if key >= 0], int)
    # a key that was stated ahead of its query is looked at by no causal head, wherever it is dealt
    return queries, keys, patterns.causal and bool((keys <= queries).all())


def agreement(
    patterns: Patterns, target: list[int], seed: int, samples: int
) -> tuple[
    Float[np.ndarray, " head"], Float[np.ndarray, " head"], Float[np.ndarray, "sample head"]
]:
    """Mean attention (heads,) on key ``target[query]``, share (heads,) of queries whose largest
    weight is there, and the null.

    Null (samples, heads): the mass with the targets dealt out anew among the queries that may look
    there, the same for all heads.
    """
    queries, keys, causal = stated(patterns, target)
    generator = rng("target null", seed)
    null = [
        patterns.mean[:, queries, deal(queries, keys, causal, generator)].mean(1)
        for _ in range(samples)
    ]
    return (
        patterns.mean[:, queries, keys].mean(1),
        patterns.argmax[:, queries, keys].mean(1),
        np.array(null),
    )
