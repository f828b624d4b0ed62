"""Forgeries: models and claims about them whose sentence is false; none may stand.

Twenty-five were written by somebody who had read the audits and not their tests, and committed with
their seeds before any was run; two of them could not be built and were replaced. Two more try the
mends of those that stood. Twenty, of
`OF_THE_AUTHOR`, are by the author of the tests for sums over all frequencies, who knew the tests of
audits. Bounds are those of `mechint.explanation`; inputs of a model by hand are `ROWS` distinct
prompts, half of them judged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import mechint
from benchmarks.audits import ThreeSum
from benchmarks.far_sum import FarSum
from benchmarks.induced import subject_of
from mechint import planted
from mechint.config.model import ModelConfig
from mechint.explanation import Audit, Explanation, Part, audit, explain, head, site
from mechint.explanation.measure import Bench
from mechint.interventions import Site
from mechint.models.transformer import HookedTransformer
from mechint.planted.library import lookup, lookup_in_waves, product
from mechint.planted.trained import sums_by_heart
from mechint.subject import Subject
from mechint.task import Program, Step
from probes.explanations.representations import Bilinear, Frequencies, GroupProducts, Setting

MODELS = Path(__file__).parents[2] / "examples" / "models"

ROWS = 1200
"""Distinct prompts of a forgery, at most."""
SHARP = 30.0
"""Attention score by which a head prefers its keys, and logit of an answer."""


@dataclass(frozen=True)
class Forged:
    """One forgery. audits: of it; false: whether an audit that stands says what is false."""

    what: str
    audits: Callable[[], Sequence[Audit]]
    false: Callable[[Audit], bool] = lambda found: True

    @property
    def said(self) -> list[str]:
        """The false sentences that stand."""
        found = [one for one in self.audits() if one.standing == "stands" and self.false(one)]
        return [str(one.explanation.name) for one in found]


# --- models by hand -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Head:
    """token, place: scores of keys by their token and their position. brings: token → vector, and
    moves: position → vector, what is written of a key.
    """

    token: Sequence[float] = ()
    place: Sequence[float] = ()
    brings: Tensor | None = None
    moves: Tensor | None = None


Neuron = tuple[Mapping[tuple[int, int], float], float, Mapping[int, float]]
"""(head, component of what it writes) → weight, -1 for the token at the answer; bias; answer →
weight."""


def by_hand(
    n: int, ctx: int, heads: Sequence[Head], neurons: Sequence[Neuron] = (), direct: Any = None,
    classes: int = 0, bias: Sequence[float] = (), scores: Tensor | None = None,
) -> HookedTransformer:  # fmt: skip
    """A layer on n tokens and `ctx` positions, the last of which answers.

    direct: (head, component, answer) weights of the logits, without the MLP. scores: (head, query
    token, place), scores of places by the token at the answer.
    """
    classes, size = classes or n, max(n, ctx)
    out = n + ctx + size * len(heads)
    model = empty(
        d_model=out + classes, n_heads=len(heads), d_head=size, d_mlp=max(len(neurons), 1),
        d_vocab=n, d_vocab_out=classes, n_ctx=ctx,
    )  # fmt: skip
    model.embed.W_E[:, :n] = torch.eye(n)
    model.pos_embed.W_pos[:, n : n + ctx] = torch.eye(ctx)
    attention, mlp = model.blocks[0].attn, model.blocks[0].mlp
    for index, one in enumerate(heads):
        start = n + ctx + size * index
        if scores is not None:  # component of a place, asked by the token at the answer
            attention.W_Q[index, :n, :ctx] = scores[index]
            attention.W_K[index, n : n + ctx, :ctx] = torch.eye(ctx)
        else:
            attention.W_Q[index, n + ctx - 1, 0] = 1.0
            if len(one.token):
                attention.W_K[index, :n, 0] = torch.tensor(one.token).float()
            if len(one.place):
                attention.W_K[index, n : n + ctx, 0] = torch.tensor(one.place).float()
        if one.brings is not None:
            attention.W_V[index, :n, : one.brings.shape[1]] = one.brings.float()
        if one.moves is not None:
            attention.W_V[index, n : n + ctx, : one.moves.shape[1]] = one.moves.float()
        attention.W_O[index, :, start : start + size] = torch.eye(size)
    for unit, (reads, constant, writes) in enumerate(neurons):
        for (index, part), weight in reads.items():
            mlp.W_in[part if index < 0 else n + ctx + size * index + part, unit] = weight
        mlp.b_in[unit] = constant
        for answer, weight in writes.items():
            mlp.W_out[unit, out + answer] = weight
    for index, part, answer, weight in direct or ():
        model.unembed.W_U[n + ctx + size * index + part, answer] += weight
    model.unembed.W_U[out:, :] += torch.eye(classes)
    if len(bias):
        model.unembed.b_U[:] = torch.tensor(bias).float()
    return model


def empty(**shape: Any) -> Any:
    """A model whose weights are 0, to be written."""
    model = HookedTransformer(ModelConfig(**{"n_layers": 1, "attn_scale": 1.0, **shape}), seed=0)
    for weight in model.parameters():
        weight.requires_grad_(False).zero_()
    return model


def two_layers(n: int, ctx: int, reads: tuple[tuple[int, int], ...]) -> Any:
    """Heads of two layers that bring tokens, the second one the answer; of each the position that
    asks and the key, by place.
    """
    place, there, out = n + 1, n + ctx + 2, 2 * (n + 1) + ctx + 1
    model = empty(
        d_model=out + n + 1, n_heads=1, d_head=n + ctx + 1, d_vocab=n + 1, d_vocab_out=n + 1,
        n_ctx=ctx + 1, n_layers=2, attn_only=True,
    )  # fmt: skip
    model.embed.W_E[:, : n + 1] = torch.eye(n + 1)
    model.pos_embed.W_pos[:, place : place + ctx + 1] = torch.eye(ctx + 1)
    for layer, start in enumerate((there, out)):
        attention = model.blocks[layer].attn
        attention.W_V[0, : n + 1, : n + 1] = torch.eye(n + 1)
        attention.W_O[0, : n + 1, start : start + n + 1] = torch.eye(n + 1)
    for layer, (query, key) in enumerate(reads):
        model.blocks[layer].attn.W_Q[0, place + query, 0] = SHARP
        model.blocks[layer].attn.W_K[0, place + key, 0] = 1.0
    model.unembed.W_U[out:] = SHARP * torch.eye(n + 1)
    return model


def copies(index: int, n: int, weight: float = SHARP) -> list[tuple[int, int, int, float]]:
    """Logits of the tokens that a head writes."""
    return [(index, token, token, weight) for token in range(n)]


def at(place: int, ctx: int, score: float = SHARP) -> list[float]:
    """Scores of a head that attends to one position."""
    return [score * (i == place) for i in range(ctx)]


def cells(table: Callable[[int, int], int], n: int) -> list[Neuron]:
    """A neuron for each pair of what the first two heads write."""
    return [
        ({(0, a): 2.0, (1, b): 2.0}, -3.0, {table(a, b): SHARP}) for a in range(n) for b in range(n)
    ]


def rows_of(seed: int, n: int, length: int, mark: bool = True, count: int = 4 * ROWS) -> Tensor:
    """Random tokens, and a mark at the end."""
    drawn = np.random.default_rng(seed).integers(0, n, (count, length))
    tokens = torch.from_numpy(drawn)
    return torch.cat([tokens, torch.full((count, 1), n)], 1) if mark else tokens


def rising(n: int, mark: bool = True, sign: int = 1) -> list[float]:
    """Scores by the size of a token; the mark has the least."""
    return [sign * SHARP * i for i in range(n)] + ([-SHARP * (n + 1)] if mark else [])


# --- claims of one's own --------------------------------------------------------------------------
def mean_as_largest() -> list[Audit]:
    """All keys alike; neurons take the largest token of what is there."""
    n, ctx = 8, 5
    writes = torch.eye(n + 1)[:, :n] * ctx  # 1 and more where a token is there
    largest: list[Neuron] = []
    for token in range(n):
        reads = {(0, token): 1.0} | {(0, i): -9.0 for i in range(token + 1, n)}
        largest.append((reads, 0.0, {token: SHARP}))
    model = by_hand(n + 1, ctx + 1, [Head(brings=writes)], largest, classes=n + 1)
    subject = subject_of(model, rows_of(1, n, ctx))
    return [
        audit(subject, head(0, 0).copies("largest token")),
        audit(subject, head(0, 0).attends("largest token")),
    ]


def first_is_largest(seed: int, rare: float = 0.0) -> list[Audit]:
    """Attention to the first token, in prompts whose first token is the largest but for a rare
    few, a share of them.
    """
    n, ctx = 9, 5
    one = Head(place=at(0, ctx + 1), brings=torch.eye(n + 1))
    model, rows = by_hand(n + 1, ctx + 1, [one], direct=copies(0, n)), rows_of(seed, n, ctx)
    body = rows[:, :ctx].clone()
    first = body.argmax(1, keepdim=True)
    body[:, :1] = rows.gather(1, first)
    body.scatter_(1, first, rows[:, :1])
    kept = torch.rand(len(rows), 1, generator=_draw(seed)) < rare
    rows[:, :ctx] = torch.where(kept, rows[:, :ctx], body)
    return [audit(subject_of(model, rows), head(0, 0).copies("largest token"))]


def passenger(seed: int, weight: float = 0.0) -> list[Audit]:
    """A head that copies, and one that attends there and writes little or nothing."""
    n, ctx = 9, 5
    two = [Head(rising(n), brings=torch.eye(n + 1))] * 2
    model = by_hand(n + 1, ctx + 1, two, direct=[*copies(0, n), *copies(1, n, weight)])
    return [audit(subject_of(model, rows_of(seed, n, ctx)), head(0, 0, 1).copies("largest token"))]


def passenger_elsewhere() -> list[Audit]:
    """A head that copies the largest token, and one at the first that writes nothing."""
    n, ctx = 9, 5
    two = [Head(rising(n), brings=torch.eye(n + 1)), Head(place=at(0, ctx + 1))]
    model = by_hand(n + 1, ctx + 1, two, direct=copies(0, n))
    return [audit(subject_of(model, rows_of(4, n, ctx)), head(0, 0, 1).attends("largest token"))]


def heads_that_cancel() -> list[Audit]:
    """Two heads at the smallest token that cancel, said to copy the largest with one that does."""
    n, ctx = 9, 5
    one = torch.eye(n + 1)
    least = [*rising(n, sign=-1)[:-1], -2 * SHARP * n]
    heads = [Head(least, brings=one), Head(least, brings=one), Head(rising(n), brings=one)]
    direct = [*copies(0, n, 50.0), *copies(1, n, -50.0), *copies(2, n)]
    model = by_hand(n + 1, ctx + 1, heads, direct=direct)
    return [audit(subject_of(model, rows_of(5, n, ctx)), head(0, 0, 1, 2).copies("largest token"))]


def copy_of_the_place() -> list[Audit]:
    """A head writes where it attends, not the token there; one key in five holds another token."""
    ctx = 6
    brings_place = torch.zeros(ctx + 1, ctx + 2)
    brings_place[:, 1:] = torch.eye(ctx + 1)
    head_ = Head(rising(ctx + 1), moves=brings_place)
    model = by_hand(ctx + 2, ctx + 1, [head_], direct=copies(0, ctx + 1))
    kept = torch.rand(4 * ROWS, ctx, generator=_draw(6)) < 0.8
    tokens = torch.where(kept, torch.arange(1, ctx + 1), 0)
    rows = torch.cat([tokens, torch.full((len(tokens), 1), ctx + 1)], 1)
    return [audit(subject_of(model, rows), head(0, 0).copies("largest token"))]


def constant_distance() -> list[Audit]:
    """A list and its beginning again: a head looks back by the length of the list."""
    n, period = 10, 5
    model = by_hand(n, period + 3, [Head(place=at(3, period + 3), brings=torch.eye(n))],
                    direct=copies(0, n))  # fmt: skip
    order = torch.rand(4 * ROWS, n, generator=_draw(7)).argsort(1)[:, :period]
    rows = torch.cat([order, order[:, :3]], 1)
    return [audit(subject_of(model, rows), head(0, 0).copies("token after an earlier equal one"))]


def tied_operands() -> list[Audit]:
    """Two heads bring two numbers that are one in every prompt; each is said to bring the other."""
    n, ctx = 7, 4
    heads = [Head(place=at(p, ctx + 1), brings=torch.eye(n + 1)) for p in (0, 3)]
    model = by_hand(n + 1, ctx + 1, heads, cells(lambda a, b: (a + 3 * b) % n, n))
    rows = rows_of(8, n, ctx)
    rows[:, 3] = rows[:, 0]
    steps = (
        Step("first", n, lambda t: t[:, 0], (), "", (0,)),
        Step("last", n, lambda t: t[:, 3], (), "", (3,)),
        Step("sum", n + 1, lambda t, a, b: (3 * a + b) % n, ("first", "last")),
    )
    program = Program("sum", steps, (("sum",),))
    parts = (_whole("first", 1), _whole("last", 0))
    return [audit(subject_of(model, rows), Explanation("crossed", program, parts))]


def bag_as_sum() -> list[Audit]:
    """A head brings both tokens side by side, and a table of all triples answers: said to bring
    their sum.
    """
    subject = subject_of(_triples(6), rows_of(9, 6, 3, mark=False))
    program = ThreeSum(n=6).own_program
    assert program is not None
    return [audit(subject, Explanation("half", program, (_whole("half", 0),)))]


def bag_as_sum_unasked() -> list[Audit]:
    """The same model, with a task that states the program: nobody names a part."""
    return explain(Subject(_triples(5), ThreeSum(n=5)))


def one_class_of_four() -> list[Audit]:
    """A head brings small first tokens and another one large ones: one is said to bring all."""
    n, ctx = 8, 4
    small, large = torch.eye(n + 1), torch.eye(n + 1)
    small[6:], large[:6] = 0, 0
    heads = [Head(place=at(0, ctx + 1), brings=one) for one in (small, large)]
    both, bias = [*copies(0, n), *copies(1, n)], [0.0] * n + [5.0]
    model = by_hand(n + 1, ctx + 1, heads, direct=both, bias=bias)
    return [audit(subject_of(model, rows_of(11, n, ctx)), head(0, 0).copies("first token"))]


# --- programs that nobody told --------------------------------------------------------------------
def tied_behind(step: int) -> list[Audit]:
    """Two layers: the first brings t[0] to position 1 and nothing reads it; the second copies t[1].
    In all prompts t[1] is t[0] plus `step`.
    """
    n, ctx = 8, 4
    model = two_layers(n, ctx, ((1, 0), (ctx, 1)))
    rows = rows_of(12 + step, n, ctx)
    rows[:, 1] = (rows[:, 0] + step) % n
    return explain(subject_of(model, rows))


def says_first(found: Audit) -> bool:
    """The answer is said to be made of t[0], which nothing reads, without a word of t[1]."""
    notes = " ".join(found.explanation.notes)
    return "t[0]" in str(found.explanation.name) and "t[1]" not in notes


def one_large_token() -> list[Audit]:
    """The smallest of all tokens of 6 and more, which are attended to; prompts have one."""
    n, ctx = 9, 5
    score = [0.0] * 6 + [SHARP] * 3 + [0.0]
    smallest: list[Neuron] = []
    for token in range(6, n):
        reads = {(0, token): 3.0} | {(0, i): -9.0 for i in range(6, token)}
        smallest.append((reads, 0.0, {token: SHARP}))
    model = by_hand(n + 1, ctx + 1, [Head(score, brings=torch.eye(n + 1))], smallest)
    rows = rows_of(14, 6, ctx + 1, mark=False)
    rows[:, ctx] = n
    draw = np.random.default_rng(14)
    place = torch.from_numpy(draw.integers(0, ctx, len(rows)))
    rows[torch.arange(len(rows)), place] = torch.from_numpy(draw.integers(6, n, len(rows)))
    return explain(subject_of(model, rows))


def names_no_other(found: Audit) -> bool:
    """The largest is said, and no note names another rule."""
    return "max" in str(found.explanation.name) and not any(
        "told from" in one for one in found.explanation.notes
    )


def sorted_lists() -> list[Audit]:
    """Attention to the last number of sorted lists, as the program says and the claim does not."""
    n, ctx = 12, 5
    model = by_hand(n + 1, ctx + 1, [Head(place=at(ctx - 1, ctx + 1), brings=torch.eye(n + 1))],
                    direct=copies(0, n))  # fmt: skip
    rows = rows_of(15, n, ctx)
    rows[:, :ctx] = rows[:, :ctx].sort(1).values
    subject = subject_of(model, rows)
    return [*explain(subject), audit(subject, head(0, 0).copies("largest token"))]


def says_largest(found: Audit) -> bool:
    """The largest is said to be copied, and not the last."""
    program = found.explanation.over_sources
    return program is None or "max" in program.title


def swapped_duties() -> list[Audit]:
    """Two heads exchange the numbers that they bring, by the token at the answer; the answer is a
    difference.
    """
    n, ctx = 7, 4
    scores = torch.zeros(2, n + 2, ctx + 1)
    for own, order in ((n, (0, 2)), (n + 1, (2, 0))):
        for index in range(2):
            scores[index, own, order[index]] = SHARP
    heads = [Head(brings=torch.eye(n + 2))] * 2
    model = by_hand(n + 2, ctx + 1, heads, cells(lambda a, b: (a - b) % n, n), scores=scores)
    rows = rows_of(16, n, ctx)
    rows[:, ctx] = n + torch.randint(2, (len(rows),), generator=_draw(16))
    return explain(subject_of(model, rows))


def disagrees(model_answer: Callable[[Tensor], Tensor], fresh: Tensor) -> Callable[[Audit], bool]:
    """Whether a program over sources gives less than 98% of the right answers on fresh prompts."""

    def false(found: Audit) -> bool:
        program = found.explanation.over_sources
        if program is None:
            return True
        last = torch.full((len(fresh),), fresh.shape[1] - 1)
        right = program.answer(fresh, last) == model_answer(fresh)
        return float(right.double().mean()) < 0.98

    return false


def swapped_truth(t: Tensor) -> Tensor:
    """Difference of the first and third number, or of the third and the first."""
    plain = (t[:, 0] - t[:, 2]) % 7
    return torch.where(t[:, 4] == 7, plain, (-plain) % 7)


def swapped_wrong(found: Audit) -> bool:
    """It gives other answers on fresh prompts."""
    rows = rows_of(116, 7, 4)
    rows[:, 4] = 7 + torch.randint(2, (len(rows),), generator=_draw(116))
    return disagrees(swapped_truth, rows)(found)


def needle_wrong(found: Audit) -> bool:
    """The second head is said not to matter."""
    program = found.explanation.over_sources
    return program is None or "L0H1" in program.rest


def sink_wrong(found: Audit) -> bool:
    """It gives other answers on fresh prompts."""
    rows = rows_of(118, 9, 4)
    return disagrees(sink_truth, torch.cat([torch.full((len(rows), 1), 10), rows], 1))(found)


def says_half(found: Audit) -> bool:
    """A part is said to hold the sum of the first two."""
    return any("half" in part.variables for part in found.explanation.parts)


def needle_in_scale() -> list[Audit]:
    """LayerNorm: a second head writes a vector that no logit reads, so long for one token in
    sixteen that a bias answers in place of the copy.
    """
    n, ctx = 16, 4
    long = torch.zeros(n + 1, n + 1)
    long[3, 0], long[3, 1] = 4000.0, -4000.0
    config_heads = [
        Head(place=at(0, ctx + 1), brings=torch.eye(n + 1)),
        Head(place=at(1, ctx + 1), brings=long),
    ]
    bias = [1.0] + [0.0] * n
    base = by_hand(n + 1, ctx + 1, config_heads, direct=copies(0, n, 60.0), bias=bias)
    config = dataclasses.replace(base.config, normalization_type="LN")
    model, own = HookedTransformer(config, seed=0), dict(base.named_parameters())
    for name, weight in model.named_parameters():
        scaled = name.endswith(".w")  # gains of norms are 1
        weight.requires_grad_(False)
        weight.copy_(own[name] if name in own else torch.full_like(weight, float(scaled)))
    model.blocks[0].attn.W_Q.mul_(10)
    return explain(subject_of(model, rows_of(17, n, ctx)))


def sink() -> list[Audit]:
    """The largest number of 5 and more, else the mark at the start, which answers 0."""
    n, ctx = 9, 4
    score = [0.0] * 5 + [SHARP * (2 + i) for i in range(4)] + [0.0, SHARP]
    brings = torch.eye(n + 2)
    brings[n + 1] = torch.eye(n + 2)[0]
    model = by_hand(n + 2, ctx + 2, [Head(score, brings=brings)], direct=copies(0, n))
    rows = torch.cat([torch.full((4 * ROWS, 1), n + 1), rows_of(18, n, ctx)], 1)
    return explain(subject_of(model, rows))


def sink_truth(t: Tensor) -> Tensor:
    """The largest number of 5 and more, else 0."""
    most = torch.where(t < 9, t, 0).amax(1)
    return torch.where(most >= 5, most, 0)


def cell_never_shown() -> list[Audit]:
    """A sum mod 3 but for one cell, which no prompt has."""
    heads = [Head(place=at(p, 5), brings=torch.eye(4)) for p in (0, 2)]

    def table(a: int, b: int) -> int:
        return 0 if (a, b) == (2, 2) else (a + b) % 3

    model = by_hand(4, 5, heads, cells(table, 3), classes=4)
    rows = rows_of(19, 3, 4)
    rows = rows[(rows[:, 0] != 2) | (rows[:, 2] != 2)]
    return explain(subject_of(model, torch.unique(rows, dim=0)))


def frequent_by_bias() -> list[Audit]:
    """0 by a bias for seven prompts of eight, else a random table of three tokens."""
    n, ctx = 8, 3
    heads = [Head(place=at(p, ctx + 1), brings=torch.eye(n + 1)) for p in range(3)]
    draw = np.random.default_rng(20)
    neurons: list[Neuron] = []
    for a, b, c in draw.integers(0, n, (64, 3)).tolist():
        reads = {(0, a): 2.0, (1, b): 2.0, (2, c): 2.0}
        neurons.append((reads, -5.0, {int(draw.integers(1, n)): SHARP}))
    model = by_hand(n + 1, ctx + 1, heads, neurons, bias=[5.0] + [0.0] * n)
    return explain(subject_of(model, rows_of(20, n, ctx)))


def random_table() -> list[Audit]:
    """Random answers to all triples of six numbers, each by a neuron: accuracy 1."""
    n = 6
    heads = [Head(place=at(p, 4), brings=torch.eye(n + 1)) for p in range(3)]
    draw = np.random.default_rng(21)
    neurons: list[Neuron] = []
    for a, b, c in np.ndindex(n, n, n):
        reads = {(0, a): 2.0, (1, b): 2.0, (2, c): 2.0}
        neurons.append((reads, -5.0, {int(draw.integers(n)): SHARP}))
    model = by_hand(n + 1, 4, heads, neurons)
    return explain(subject_of(model, rows_of(21, n, 3)))


def query_from_before() -> list[Audit]:
    """Two layers: a head of the first brings t[0] to the answer, where it is the query by which one
    of the second finds its key, and nothing else: it is said not to matter.
    """
    n, ctx = 5, 6
    model = two_layers(n, ctx, ((ctx, 0),))
    second, place, there = model.blocks[1].attn, n + 1, n + ctx + 2
    for token in range(n):  # the token names the position after its own number
        second.W_Q[0, there + token, token + 1] = SHARP
        second.W_K[0, place + token + 1, token + 1] = 1.0
    return explain(subject_of(model, rows_of(22, n, ctx)))


def stays_without_first(found: Audit) -> bool:
    """L0H0 is said not to matter, with no word of the heads that look by it."""
    lines = [one.target for one in found.tests if one.kind == "faithfulness"]
    return any("L0H0" in one and "later heads held" not in one for one in lines)


# --- programs of tasks ----------------------------------------------------------------------------
def clock_of_exchanged_numbers() -> list[Audit]:
    """A planted clock that takes six numbers for one another: a third of its sums are wrong."""
    subject = planted.modular_addition(31, (3, 8, 12)).subject
    with torch.no_grad():
        subject.model.embed.W_E[:6] = subject.model.embed.W_E[:6].roll(1, 0)
    return explain(subject, family="frequencies")


def nonsense_that_matters_once() -> list[Audit]:
    """A lookup table of a sum, and a number that the program adds for one input in a hundred."""
    n, subject = 5, planted.lookup_table(FarSum(n=5), rotation_seed=24, seed=24).subject

    def answer(t: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        rare = (t[:, 1] == 0) & (t[:, 2] == c) & (a == 0) & (b < 3)
        return (a + b + c * rare) % n

    steps = (
        Step("a", n, lambda t: t[:, 0], (), "", (0,)),
        Step("b", n, lambda t: t[:, 3], (), "", (3,)),
        Step("nonsense", n, lambda t: (2 * t[:, 1] + t[:, 2]) % n),
        Step("sum", n, answer, ("a", "b", "nonsense")),
    )
    program = Program("sum", steps, (("sum",),))
    parts = (_whole("a", 0), _whole("b", 3), _whole("nonsense", 1))
    return [audit(subject, Explanation("nonsense", program, parts))]


def renamed_answers() -> list[Audit]:
    """A planted clock whose answers are permuted: the task's sum is none of its answers."""
    subject = planted.modular_addition(31, (3, 8, 12)).subject
    order = torch.from_numpy(np.random.default_rng(25).permutation(31))
    with torch.no_grad():
        subject.model.unembed.W_U[:] = subject.model.unembed.W_U[:, order]
    return explain(subject, family="frequencies")


# --- claims of somebody who knew the tests --------------------------------------------------------
Last = Callable[[Setting, Any], Any]


def example(name: str) -> Subject:
    """A shipped model."""
    return mechint.load(MODELS / f"{name}.pt")


def plant(seed: int = 5) -> Subject:
    """Addition mod 23 by frequencies 2, 5 and 9."""
    return planted.modular_addition(23, (2, 5, 9), noise=0.05, rotation_seed=seed).subject


def by(
    subject: Subject,
    keys: list[str] | None = None,
    inputs: list[str] | None = None,
    last: Last | None = None,
    family: Any = Frequencies,
) -> Audit:
    """The answer by some representations, by all when None; others in the inputs."""
    setting, made = Setting.of(subject), family()
    assert setting is not None
    bench = Bench.of(subject, subject.task.own_program)  # type: ignore[union-attr]
    keys = setting.names() if keys is None else keys
    return audit(subject, made.make(bench, setting, keys, inputs or keys, last))


def claimed(subject: Subject, *claims: Any, **more: Any) -> Audit:
    """Claims about heads and sites, on fewer inputs."""
    return audit(subject, *claims, examples=1000, **more)


def rescaled(subject: Subject) -> Subject:
    """A model whose logits of each class are scaled by a factor of their own."""
    weights = dict(subject.model.named_parameters())["unembed.W_U"]
    with torch.no_grad():
        weights.mul_(torch.linspace(0.6, 1.4, weights.shape[1]))
    return subject


def minus(tokens: torch.Tensor) -> torch.Tensor:
    """The difference of the operands, of a model that adds."""
    return (tokens[:, 0] - tokens[:, 1]) % 23


def tens(tokens: torch.Tensor) -> torch.Tensor:
    """Something that the model does not hold: a parity of both operands."""
    return (tokens[:, 0] + tokens[:, 1]) % 2


def summed(tokens: torch.Tensor, tens: torch.Tensor) -> torch.Tensor:
    """The sum, from the tokens alone."""
    return (tokens[:, 0] + tokens[:, 1]) % 23 + 0 * tens


OF_THE_AUTHOR: dict[str, Callable[[], Audit]] = {
    "a frequency is left out": lambda: by(example("clock"), ["7", "9"]),
    "a frequency is added": lambda: by(example("clock"), ["5", "7", "9", "12"]),
    "second harmonics": lambda: by(example("clock"), ["14", "11", "5"]),
    "all of three frequencies": lambda: by(example("clock")),
    "those of another model": lambda: by(example("pizza"), ["7", "9", "12"]),
    "harmonics in the inputs of a clock": lambda: by(
        plant(), ["2", "5", "9"], ["2", "5", "9", "4", "10"]
    ),
    "other inputs than answers": lambda: by(plant(), ["2", "5", "9"], ["1", "3", "4"]),
    "a table by all frequencies": lambda: by(lookup("modular-arithmetic", p=23)["lookup"](3)),
    "a rescaled table by all": lambda: by(
        rescaled(lookup("modular-arithmetic", p=23)["lookup"](4))
    ),
    "a table that writes two waves": lambda: by(lookup_in_waves(6), ["2", "3"]),
    "sums by heart, by all": lambda: by(sums_by_heart(7, 13)),
    "one representation for another": lambda: by(
        product(0.05, 8).subject, ["sign"], family=GroupProducts
    ),
    "bilinear in all of them": lambda: by(product(0.05, 9).subject, family=Bilinear),
    "the head copies the first token": lambda: claimed(
        example("maximum"), head(0, 0).copies("first token")
    ),
    "the head attends to the smallest": lambda: claimed(
        example("maximum"), head(0, 0).attends("smallest token")
    ),
    "a carry where nothing has met": lambda: claimed(
        example("digits"), site("L0 resid_pre @ answer").holds("carry_0")
    ),
    "a sum at the last layer": lambda: claimed(
        example("digits"), site("L1 resid_post @ answer").holds("sum_1")
    ),
    "a first layer that finds the match": lambda: claimed(
        example("induction"), head(0, 0).copies("token after an earlier equal pair")
    ),
    "subtraction": lambda: claimed(
        plant(), site("L0 resid_post @ answer").holds("minus"), program=minus
    ),
    "a parity on the way": lambda: claimed(
        plant(), site("L0 resid_mid @ answer").holds("tens"), program=[tens, summed]
    ),
}


# --- parts of these -------------------------------------------------------------------------------
def _one(made: Callable[[], Audit]) -> list[Audit]:
    return [made()]


def _draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _whole(name: str, index: int) -> Part:
    return Part(name, Site.of("head", 0, "answer", (index,)), (name,))


def _triples(n: int) -> HookedTransformer:
    """Two tokens alike by one head, and a neuron for each of these with the answer's own token."""
    neurons: list[Neuron] = []
    for a in range(n):
        for b in range(a, n):
            for own in range(n):
                pair = {(0, a): 4.0} if a == b else {(0, a): 4.0, (0, b): 4.0}
                reads, weight = {**pair, (-1, own): 4.0}, 3.0 if a == b else 1.0
                neurons.append((reads, -6.0, {(a + b + own) % n: SHARP * weight}))
    return by_hand(n, 3, [Head(place=[0.0, 0.0, -SHARP], brings=torch.eye(n))], neurons)


FORGERIES: tuple[Forged, ...] = (
    Forged(
        "attention to all alike, said to be on the largest, which the MLP takes", mean_as_largest
    ),
    Forged(
        "attention to the first place, where the largest always is", partial(first_is_largest, 2)
    ),
    Forged(
        "a head that attends right and writes nothing, beside one that copies",
        partial(passenger, 3),
    ),
    Forged("a head that attends elsewhere, beside one that copies", passenger_elsewhere),
    Forged("attention to the first place, mostly the largest", partial(first_is_largest, 26, 0.06)),
    Forged("a head that adds a hundredth, beside one that copies", partial(passenger, 27, 0.3)),
    Forged("two heads elsewhere that cancel, beside one that copies", heads_that_cancel),
    Forged("a head that writes the place of its key and not the token", copy_of_the_place),
    Forged("attention at a constant distance, said to find an equal token", constant_distance),
    Forged(
        "two numbers that are one in all inputs, each head said to bring the other", tied_operands
    ),
    Forged(
        "tokens side by side in one head before a lookup table, said to be their sum", bag_as_sum
    ),
    Forged("the same, of a task that states the sum, unasked", bag_as_sum_unasked, says_half),
    Forged("a head that brings three classes of four, said to copy all", one_class_of_four),
    Forged(
        "t[1] copied, equal to t[0], which an earlier layer puts beside it",
        partial(tied_behind, 0),
        says_first,
    ),
    Forged(
        "t[1] copied, t[0] + 1 in all inputs, which is put beside it",
        partial(tied_behind, 1),
        says_first,
    ),
    Forged(
        "tokens above a bound, of which the prompts have one: the largest",
        one_large_token,
        names_no_other,
    ),
    Forged("the last number of sorted lists, said to be the largest", sorted_lists, says_largest),
    Forged("two heads that exchange their duties by the last token", swapped_duties, swapped_wrong),
    Forged(
        "a needle that shrinks the copy through LayerNorm's scale", needle_in_scale, needle_wrong
    ),
    Forged("the largest number, or a sink where none is large", sink, sink_wrong),
    Forged("a sum but for one cell that no prompt has", cell_never_shown),
    Forged("a bias that answers the most frequent, else a random table", frequent_by_bias),
    Forged("a random table of three numbers by heart", random_table),
    Forged(
        "a head that is the query of a later one, said not to matter",
        query_from_before,
        stays_without_first,
    ),
    Forged("a clock that takes six numbers for one another", clock_of_exchanged_numbers),
    Forged("a nonsense variable that a program uses once in a hundred", nonsense_that_matters_once),
    Forged("a clock whose answers are permuted", renamed_answers),
    *(Forged(what, partial(_one, made)) for what, made in OF_THE_AUTHOR.items()),
)
