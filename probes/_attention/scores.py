"""Attention patterns, and scores of heads on the keys of a kind; nulls move these keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from mechint.interventions import Mean, Site, logits_under
from mechint.models.foreign.wrapped import WrappedModule
from mechint.models.protocol import read_only_hooks
from mechint.subject import Subject
from mechint.subject.activations import slices
from mechint.subject.components import site_of
from mechint.task import IGNORE, Batch, FiniteTask, rng

KINDS = ("previous_token", "same_token", "induction")
BY_CONTENT = ("same_token", "induction")
"""Kinds that are defined by the token at a key, not by its place."""
MIN_PIECE = 3
"""Tokens of the shortest piece that is repeated: with two, the key is the token before."""
MADE_EXAMPLES, MADE_LENGTH = 32, 64
"""Examples of repeated random tokens, and their positions at most."""
LANGUAGE_EXAMPLES, LANGUAGE_PIECE, LEAST_PIECE = 8, 50, 10
"""The same of a language model; mean length of its pieces (Olsson et al. 2022), and the least."""
COPYING_EXAMPLES = 12
"""Further ones on which it is asked to repeat."""
LANGUAGE_LEAST = 0.4
"""Least score by which a head of a language model is of a kind: many attend a little to all."""


# --- patterns -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class AttentionPatterns:
    """Attention of every head, layers one after another.

    names (heads,): "L0H1"; mean (heads, query, key) over the examples that reach the query, zeros
    where none does; sample (examples,
    heads, query, key) of a few examples, their tokens (examples, pos) and lengths (examples,).
    """

    names: list[str]
    mean: NDArray[np.float64]
    sample: NDArray[np.float32]
    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def causal(self) -> bool:
        """True if no query ever looks ahead."""
        return not np.triu(self.mean, 1).any()


def kept_rows(subject: Subject, examples: int, seed: int) -> Int[np.ndarray, " row"]:
    """The examples kept whole, ascending: drawn at random from all inputs of a finite task, which
    stand in order; the first of a generated one, which are random as they come.
    """
    n = len(subject.data)
    if n <= examples or not isinstance(subject.task, FiniteTask):
        return np.arange(min(n, examples))
    return np.sort(rng("attention examples", seed).permutation(n)[:examples])


def collect(subject: Subject, rows: Int[np.ndarray, " row"]) -> AttentionPatterns:
    """The patterns of all heads over the subject's data; those of the examples `rows` are kept
    whole.

    Cost: one forward over the data for as many layers as the patterns of one example fit an eighth
    of the subject's memory, mostly all. Memory: one chunk of patterns, and the examples kept.
    """
    data = subject.data
    n, ctx = data.tokens.shape
    inside = data.own_positions()
    hooks = [f"blocks.{layer}.attn.hook_pattern" for layer in range(subject.n_layers)]
    sums: dict[str, Tensor] = {}
    samples: dict[str, list[Tensor]] = {hook: [] for hook in hooks}
    # layers whose patterns of one example fit an eighth of the subject's memory, at least one
    each = 4 * (subject.model_description.n_heads or 1) * ctx * ctx
    for some in slices(len(hooks), max(1, subject.memory // (8 * each))):
        for part, streamed in subject.stream(hooks[some]):
            kept = torch.from_numpy(rows[(rows >= part.start) & (rows < part.stop)] - part.start)
            for hook, pattern in streamed.items():
                own = pattern if inside is None else pattern * inside[part][:, None, :, None]
                total = own.sum(0, dtype=torch.float64)
                sums[hook] = sums[hook] + total if hook in sums else total
                samples[hook].append(pattern[kept.to(pattern.device)])
    names = [
        f"L{layer}H{head}" for layer, hook in enumerate(hooks) for head in range(len(sums[hook]))
    ]
    chosen = data[torch.from_numpy(rows).to(data.tokens.device)]
    reach = np.full(ctx, n) if inside is None else inside.sum(0).cpu().numpy()
    return AttentionPatterns(
        names,
        torch.cat([sums[hook] for hook in hooks]).cpu().numpy() / np.maximum(reach, 1)[:, None],
        torch.cat([torch.cat(parts) for parts in samples.values()], 1).cpu().numpy(),
        chosen.tokens.cpu().numpy(),
        np.full(len(rows), ctx) if chosen.lengths is None else chosen.lengths.cpu().numpy(),
    )


# --- scores ---------------------------------------------------------------------------------------
def targets(
    tokens: Int[np.ndarray, "example pos"], lengths: Int[np.ndarray, " example"], kind: str
) -> Bool[np.ndarray, "example query key"]:
    """(example, query, key) whether the key is one that a head of `kind` attends to.

    previous_token: key = query - 1; same_token: an earlier key with the query's token; induction:
    the key after an earlier occurrence of the query's token (Olsson et al. 2022). No key lies
    beyond an example's length.

    >>> targets(np.array([[5, 7, 5]]), np.array([3]), "induction")[0].astype(int).tolist()
    [[0, 0, 0], [0, 0, 0], [0, 1, 0]]
    """
    n, ctx = tokens.shape
    query, key = np.arange(ctx)[:, None], np.arange(ctx)[None, :]
    if kind == "previous_token":
        hit = np.broadcast_to(key == query - 1, (n, ctx, ctx))
    else:
        hit = (tokens[:, :, None] == tokens[:, None, :]) & (key < query)
        if kind == "induction":
            hit = np.concatenate([np.zeros((n, ctx, 1), bool), hit[:, :, :-1]], 2)
    inside = np.arange(ctx) < lengths[:, None]
    return hit & inside[:, :, None] & inside[:, None, :]


def arrangements(hit: Bool[np.ndarray, "example query key"], causal: bool) -> float:
    """Ways to place the keys of the queries that have one: the product over queries of the keys
    that each may attend to, inf beyond a million.
    """
    ctx, total = hit.shape[-1], 1.0
    for query in np.nonzero(hit.any((0, 2)))[0]:
        total *= query + 1 if causal else ctx
        if total > 1e6:
            return math.inf
    return total


def position_null(
    attention: Float[np.ndarray, "example head query key"],
    hit: Bool[np.ndarray, "example query key"],
    causal: bool,
    seed: int,
    samples: int,
) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, "sample head"]]:
    """Mean attention (head,) on the keys that are hit over the queries that have one, and the same
    (sample, head) with each query's keys in random order, the same order for all heads.

    The products of attention with what is hit are summed over examples once, for every pair of a
    key and the key that takes its place, so that a sample only looks them up.
    """
    heads, ctx = attention.shape[1], hit.shape[-1]
    asked = max(int(hit.any(-1).sum()), 1)
    generator, keys = rng("attention null", seed), np.arange(ctx)
    null, observed = np.zeros((samples, heads)), np.zeros(heads)
    for query in np.nonzero(hit.any((0, 2)))[0]:
        rows = attention[:, :, query].astype(np.float64)  # (example, head, key)
        counted = np.nonzero(hit[:, query].any(0))[0]  # few of the keys, in any example
        product = np.einsum("nhj,nk->hjk", rows, hit[:, query, counted].astype(np.float64))
        free = query + 1 if causal else ctx
        order = np.tile(keys, (samples, 1))
        order[:, :free] = generator.permuted(order[:, :free], axis=1)
        taken = np.empty_like(order)
        np.put_along_axis(taken, order, np.broadcast_to(keys, order.shape), axis=1)
        every = np.arange(len(counted))
        observed += product[:, counted, every].sum(-1)
        null += product[:, taken[:, counted], every].sum(-1).T
    return observed / asked, null / asked


@dataclass(frozen=True)
class AttentionExamples:
    """Attention (example, head, query, key) of some examples, and the keys (example, query, key)
    that count in each; lengths (example,); made: whether the tokens are random ones, repeated.
    """

    attention: NDArray[np.float32]
    hit: NDArray[np.bool_]
    lengths: NDArray[np.int64]
    made: bool = False

    def on_others(
        self, attention: Float[np.ndarray, "example query key"]
    ) -> Float[np.ndarray, "example other"]:
        """(example, other) summed attention of an example on the keys that count in another."""
        inside = np.arange(self.hit.shape[1]) < self.lengths[:, None]
        rows = (attention * inside[:, :, None]).reshape(len(self.hit), -1)
        return (rows @ self.hit.reshape(len(self.hit), -1).T.astype(rows.dtype)).astype(float)

    def asked(self) -> Float[np.ndarray, "example other"]:
        """(example, other) queries inside an example that have a key that counts in another."""
        inside = np.arange(self.hit.shape[1]) < self.lengths[:, None]
        return inside.astype(np.float64) @ self.hit.any(-1).T.astype(np.float64)

    def separate_content(self, alpha: float, least: float) -> bool:
        """Return whether a head that attends only to the keys that count would lose more than
        `least` on those of other examples, in enough ways for a null at `alpha`.
        """
        perfect = self.hit / np.maximum(self.hit.sum(-1, keepdims=True), 1)
        kept = self.on_others(perfect).sum() / max(self.asked().sum(), 1)
        packed = np.packbits(self.hit.reshape(len(self.hit), -1), axis=1)
        counts = np.unique(packed, axis=0, return_counts=True)[1]
        ways = math.lgamma(len(self.hit) + 1) - sum(math.lgamma(count + 1) for count in counts)
        return 1 - kept > least and ways + math.log(alpha) > -1e-9


def content_null(
    examples: AttentionExamples, seed: int, samples: int
) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, "sample head"]]:
    """Mean attention (head,) on the keys that count, less that on the keys of a random example,
    and the same (sample, head) with the keys permuted among the examples.

    What a head does by position it does on the keys of any example.
    """
    asked, order = examples.asked(), np.arange(len(examples.hit))
    on_others = np.stack([examples.on_others(each) for each in examples.attention.swapaxes(0, 1)])
    generator = rng("attention examples dealt", seed)
    by_place = on_others.mean((1, 2)) / max(asked.mean(), 1e-12)
    scores = [
        on_others[:, order, other].mean(1) / max(asked[order, other].mean(), 1e-12) - by_place
        for other in (order, *(generator.permutation(order) for _ in range(samples)))
    ]
    return scores[0], np.stack(scores[1:])


@dataclass(frozen=True)
class MadeExamples:
    """Random tokens, repeated (example, pos), and what a model's heads attend to on them, computed
    once for all kinds.
    """

    subject: Subject
    tokens: NDArray[np.int64]
    further: NDArray[np.int64]

    @classmethod
    def draw(cls, subject: Subject, patterns: AttentionPatterns, seed: int) -> MadeExamples | None:
        """Those that `repeated_tokens` makes, and further ones, of a language model not the same,
        on which answers are asked for; None where it makes none.
        """
        tokens = repeated_tokens(subject, patterns, seed)
        if tokens is None or not is_language(subject):
            return None if tokens is None else cls(subject, tokens, tokens)
        further = repeated_tokens(subject, patterns, seed + 1, COPYING_EXAMPLES)
        return cls(subject, tokens, tokens if further is None else further)

    @cached_property
    def attention(self) -> Float[np.ndarray, "example head query key"]:
        """Attention of all layers' heads, from one forward."""
        hooks = [f"blocks.{layer}.attn.hook_pattern" for layer in range(self.subject.n_layers)]
        found = self.subject.activations(hooks, None, batch_of(self.subject, self.tokens))
        return torch.cat([layer.float().cpu() for layer in found.values()], 1).numpy()

    def of(self, kind: str) -> AttentionExamples:
        """With the keys that count for `kind`."""
        lengths = np.full(len(self.tokens), self.tokens.shape[1])
        hit = targets(self.tokens, lengths, kind)
        return AttentionExamples(self.attention, hit, lengths, made=True)


def content_examples(
    subject: Subject,
    patterns: AttentionPatterns,
    made: MadeExamples | None,
    kind: str,
    *,
    alpha: float,
    least: float,
) -> AttentionExamples | None:
    """Examples that separate content from position: the subject's own, else random tokens repeated
    at varying distances, these always of a language model, whose texts repeat little and at the
    same places; None where neither does.
    """
    hit = targets(patterns.tokens, patterns.lengths, kind)
    own = AttentionExamples(patterns.sample, hit, patterns.lengths)
    if not is_language(subject) and own.separate_content(alpha, least):
        return own
    others = None if made is None else made.of(kind)
    return others if others is not None and others.separate_content(alpha, least) else None


def is_language(subject: Subject) -> bool:
    """Return whether no task of ours says what the model's inputs are."""
    return subject.task is None or subject.task.name == "prompts"


def repeated_tokens(
    subject: Subject, patterns: AttentionPatterns, seed: int, n_language: int = LANGUAGE_EXAMPLES
) -> Int[np.ndarray, "made pos"] | None:
    """(made, pos) random pieces, each repeated; their lengths lie between a quarter and three
    quarters of the sequence. None where there are too few tokens or positions.

    The tokens are those of the subject's examples; for a language model, which knows no task of
    ours, all of its vocabulary but special tokens and what fills short examples, in pieces of some
    fifty tokens, twice.
    """
    tokens, lengths = patterns.tokens, patterns.lengths
    first = int((tokens[:, 0] == tokens[0, 0]).all()) if len(tokens) > 1 else 0
    inside = np.arange(tokens.shape[1]) < lengths[:, None]
    pool, n = np.setdiff1d(tokens[inside], tokens[0, :first]), int(lengths.max()) - first
    if is_language(subject):
        rows = language_repeats(subject, seed, n_language)
        if rows is not None:
            return rows
        first, pool = min(first, _opening(subject)), _language_pool(subject)
        n = (subject.model_description.n_ctx or 2 * LANGUAGE_PIECE) - first
        n = min(MADE_LENGTH, n)
    low, high = max(MIN_PIECE, n // 4), min(len(pool), 3 * n // 4)
    if high <= low:
        return None
    draw = rng("attention repeated tokens", seed)
    rows = [
        np.resize(draw.permutation(pool)[: draw.integers(low, high + 1)], n)
        for _ in range(MADE_EXAMPLES)
    ]
    return np.concatenate([np.repeat(tokens[:1, :first], MADE_EXAMPLES, 0), np.stack(rows)], 1)


def batch_of(subject: Subject, tokens: Int[np.ndarray, "example pos"]) -> Batch:
    """The tokens as examples of the subject, read at the last position."""
    targets = torch.full((*tokens.shape, subject.data.targets.shape[-1]), IGNORE)
    targets[:, -1] = 0
    return Batch(torch.from_numpy(tokens), targets).to(subject.data.tokens.device)


def _opening(subject: Subject) -> int:
    """Tokens that the tokenizer puts before every text."""
    return int(getattr(subject.task, "begins_with_bos", False))


def _language_pool(subject: Subject) -> Int[np.ndarray, " token"]:
    """Tokens of the vocabulary that may be drawn: no special ones, nor what begins every text or
    fills the shorter ones; of a module whose vocabulary is not known those of its examples.
    """
    data, shape = subject.data, subject.model_description
    tokens = data.tokens.cpu().numpy()
    own = data.own_positions()
    inside = np.ones(tokens.shape, bool) if own is None else own.cpu().numpy()
    if shape.d_vocab is None or isinstance(subject.model, WrappedModule):
        return np.setdiff1d(tokens[inside], tokens[:1, : _opening(subject)])
    special = np.array([*getattr(subject.task, "special_ids", ())], dtype=np.int64)
    outside = (tokens[:1, : _opening(subject)].ravel(), tokens[~inside], special)
    return np.setdiff1d(np.arange(shape.d_vocab), np.concatenate(outside))


def language_repeats(
    subject: Subject, seed: int, n: int = LANGUAGE_EXAMPLES
) -> Int[np.ndarray, "made pos"] | None:
    """(made, pos) pieces of some fifty random tokens of the vocabulary, of different lengths,
    repeated to twice fifty, behind what begins every text; of fewer tokens where the model reads
    or knows fewer, None below `LEAST_PIECE`.
    """
    shape, first = subject.model_description, _opening(subject)
    opening = subject.data.tokens[:1, :first].cpu().numpy()
    pool = _language_pool(subject)
    positions = (shape.n_ctx or 2 * LANGUAGE_PIECE) - first
    size = min(LANGUAGE_PIECE, positions // 2, len(pool))
    if size < LEAST_PIECE:
        return None
    draw, spread = rng("attention repeated tokens", seed), size // 7
    pieces = np.linspace(size - spread, min(size + spread, len(pool)), n)
    rows = [draw.choice(pool, int(piece), replace=False) for piece in pieces]
    made = np.stack([np.resize(row, 2 * size) for row in rows]).astype(np.int64)
    return np.concatenate([np.repeat(opening, n, 0), made], 1)


# --- copying --------------------------------------------------------------------------------------
def copied_answers(
    subject: Subject, data: Batch, heads: Sequence[str], *, everywhere: bool = False
) -> tuple[Float[np.ndarray, " example"], Float[np.ndarray, " example"]] | None:
    """(example,) 1 where the class that the model gives is the token after an earlier occurrence of
    the last token, else 0, and the same with the heads ("L1H0", …) at their mean over the examples;
    None where classes are no tokens, or the model's heads cannot be edited.

    everywhere: the share of all positions whose token is there earlier, and the heads at their mean
    over examples and positions.
    """
    task, model = subject.task, subject.model
    sites = [site_of(head) for head in heads]
    tokens_out = task is None or (len(task.outputs) == 1 and task.d_vocab_out <= task.d_vocab)
    editable = subject.hooks - set(read_only_hooks(model))
    if not tokens_out or not editable.issuperset(site.hook for site in sites):
        return None
    if everywhere:
        return _copied_everywhere(subject, data, sites)
    one = subject.with_answer(-1).with_data(data)
    tokens, rows = one.data.tokens.cpu().numpy(), np.arange(len(one.data))
    at = one.answer_positions.cpu().numpy()
    earlier = targets(tokens, at + 1, "induction")[rows, at]

    def copied(logits: Float[Tensor, "example d_vocab_out"]) -> Float[np.ndarray, " example"]:
        given = logits.argmax(-1).cpu().numpy()
        return ((tokens == given[:, None]) & earlier).any(1).astype(float)

    return copied(one.logits()), copied(logits_under(one, [Mean(site) for site in sites]))


def _copied_everywhere(
    subject: Subject, data: Batch, sites: Sequence[Site]
) -> tuple[Float[np.ndarray, " example"], Float[np.ndarray, " example"]]:
    """`copied_answers` at every position of the examples, which are of one length."""
    tokens = data.tokens.cpu().numpy()
    earlier = targets(tokens, np.full(len(tokens), tokens.shape[1]), "induction")
    values = subject.activations(list(dict.fromkeys(site.hook for site in sites)), None, data)
    means = {site: site.select(values[site.hook], data.tokens[:, 0]).mean((0, 1)) for site in sites}

    def put(x: Tensor, hook: Any, site: Site) -> Tensor:
        x = x.clone()
        x[:, :, list(site.units) or slice(None)] = means[site]
        return x

    edits = [(site.hook, partial(put, site=site)) for site in sites]

    def copied(edits: Sequence[Any]) -> Float[np.ndarray, " example"]:
        shares = []
        for row in range(len(tokens)):  # one at a time, whose logits are of every position
            logits = subject.logits(data[row : row + 1], edits, None)
            given = logits[0].argmax(-1).cpu().numpy()
            hit = (tokens[row] == given[:, None]) & earlier[row]
            shares.append(hit.any(1)[earlier[row].any(1)].mean())
        return np.array(shares)

    return copied([]), copied(edits)


# --- operands -------------------------------------------------------------------------------------
def preference(means: Float[np.ndarray, "head operand"]) -> Float[np.ndarray, " head"]:
    """(head,) (A_a - A_b) / (A_a + A_b) of mean attention to the first two operands: 1 attends to
    the first alone, -1 to the second.
    """
    return (means[:, 0] - means[:, 1]) / np.maximum(means[:, 0] + means[:, 1], 1e-12)


def operand_means(
    subject: Subject, data: Batch, operands: list[int]
) -> Float[np.ndarray, "head operand"]:
    """Mean attention from the answer's position to each operand, 0–1, all heads by layer."""
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(subject.n_layers)]
    layers = subject.activations(names, "answer", data).values()
    return np.concatenate([layer.double().mean(0)[:, operands].cpu().numpy() for layer in layers])
