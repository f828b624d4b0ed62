"""Effects of single heads and of sets of them on pairs of prompts, and what they look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.interventions.suffix import Head, SuffixRuns
from mechint.probes._attention import scores
from mechint.subject import Subject
from mechint.subject.pairs import Pairs
from mechint.task import rng

MARKS = {
    "answer": "the answer's token",
    "other": "the other answer's token",
    "changed": "the token that differs",
    "after": "the token after an earlier equal one",
    "equal": "an earlier equal token",
    "previous": "the token before",
    "first": "the first token",
    "itself": "itself",
}
"""Places of a prompt that a head may attend to; of those that are one place the first counts."""


@dataclass(frozen=True)
class PairRuns:
    """Runs on pairs of prompts, those of one length and one first difference together.

    units (pair,): a number of the two prompts of each pair, so that a pair both ways is one sample.
    """

    groups: tuple[SuffixRuns, ...]
    units: Int[np.ndarray, " pair"]
    n_layers: int
    n_heads: int

    @classmethod
    def of(cls, subject: Subject, pairs: Pairs) -> PairRuns:
        """Runs of the subject's model, which reads back only, on pairs read at their ends."""
        rows: dict[tuple[int, int], list[int]] = {}
        units: dict[frozenset[tuple[int, ...]], int] = {}
        numbers: list[int] = []
        for row, (base, source, read) in enumerate(
            zip(pairs.base.tolist(), pairs.source.tolist(), pairs.reads.tolist(), strict=True)
        ):
            base, source = base[: read + 1], source[: read + 1]
            first = next(
                i for i, both in enumerate(zip(base, source, strict=True)) if len({*both}) > 1
            )
            rows.setdefault((read + 1, first), []).append(row)
            both = frozenset((tuple(base), tuple(source)))
            numbers.append(units.setdefault(both, len(units)))
        groups, order = [], []
        for (length, first), members in sorted(rows.items()):
            some = pairs[torch.tensor(members, device=pairs.base.device)]
            classes = torch.stack([some.answers[:, 0], some.labels[:, 0]], 1)
            own, other = some.base[:, :length], some.source[:, :length]
            groups.append(SuffixRuns(subject.model, own, other, classes, first))
            order += members
        shape = subject.model_description
        return cls(tuple(groups), np.array(numbers)[order], shape.n_layers, shape.n_heads or 0)

    def _all(self, parts: Iterable[Tensor]) -> np.ndarray:
        return torch.cat([part.detach() for part in parts]).double().cpu().numpy()

    @cached_property
    def base(self) -> Float[np.ndarray, " pair"]:
        """Differences of the bases: the source's answer above the base's, nats."""
        return self._all(one.base for one in self.groups)

    @cached_property
    def span(self) -> float:
        """Mean difference of the sources less that of the bases."""
        return float((self._all(one.source for one in self.groups) - self.base).mean())

    # --- shares of the difference -----------------------------------------------------------------
    def moved(self, heads: Sequence[Head], wrong: bool = False) -> Float[np.ndarray, " pair"]:
        """Share of the mean difference that `heads` move, pair by pair, when they are taken from
        the source; `wrong`: from another pair's source, NaN where a group has no other.
        """
        parts = []
        for group in self.groups:
            others = _others(group) if wrong else group.other
            if others is None:
                parts.append(torch.full((len(group),), torch.nan))
            else:
                parts.append(group.patched(heads, others) - group.base)
        return self._all(parts) / self.span

    @cached_property
    def first_order(self) -> Float[np.ndarray, "layer head"]:
        """The same to first order, of every head: mean over the pairs."""
        return self._all(one.first_order for one in self.groups).mean(0) / self.span

    @cached_property
    def direct(self) -> Float[np.ndarray, "pair layer head"]:
        """Share that what each head writes at the answer moves straight at the logits, by pair."""
        return self._all(one.direct for one in self.groups) / self.span

    def through_queries(
        self, sender: Head, receivers: Sequence[Head]
    ) -> Float[np.ndarray, " pair"]:
        """Share that `sender` moves through the queries of `receivers` at the answer alone."""
        found = (one.through_queries(sender, receivers) - one.base for one in self.groups)
        return self._all(found) / self.span

    def by_unit(self, values: Float[np.ndarray, " pair"]) -> Float[np.ndarray, " unit"]:
        """Means over both ways of each pair; NaN where neither has a value."""
        there, n = ~np.isnan(values), self.units.max() + 1
        totals = np.bincount(self.units[there], values[there], minlength=n)
        counts = np.bincount(self.units[there], minlength=n)
        return np.divide(totals, counts, out=np.full(n, np.nan), where=counts > 0)

    def interval(self, values: Float[np.ndarray, " pair"]) -> tuple[float, float]:
        """Mean and half the width of its 95% interval over the pairs of prompts."""
        each = self.by_unit(values)
        return float(each.mean()), 1.96 * float(each.std(ddof=1)) / len(each) ** 0.5

    # --- what they look at ------------------------------------------------------------------------
    @cached_property
    def attention(self) -> dict[str, dict[str, Float[np.ndarray, "pair layer head"]]]:
        """ "answer" or "changed", where the query stands → mark → attention to it, by pair; NaN of
        pairs that do not have one.
        """
        found: dict[str, dict[str, list[np.ndarray]]] = {"answer": {}, "changed": {}}
        for group in self.groups:
            prompts = group.tokens[group.own].cpu().numpy()
            for query, patterns, at in (
                ("answer", group.from_last, prompts.shape[1] - 1),
                ("changed", group.from_first, group.first),
            ):
                marks = _marks(prompts, group.classes.cpu().numpy(), group.first, at)
                each = torch.stack([one[group.own] for one in patterns], 1).cpu().numpy()
                for mark, there in marks.items():
                    total = np.einsum("blhp,bp->blh", each, there.astype(each.dtype))
                    total[~there.any(1)] = np.nan
                    found[query].setdefault(mark, []).append(total)
        every = {
            query: {mark: np.concatenate(rows) for mark, rows in marks.items()}
            for query, marks in found.items()
        }
        return {
            query: {mark: rows for mark, rows in marks.items() if not np.isnan(rows).all()}
            for query, marks in every.items()
        }


def _others(group: SuffixRuns) -> Int[Tensor, " pair"] | None:
    """For each pair the source of another pair of its group that is neither its source nor its
    base, and has another answer, where there is one.
    """
    other, found = group.other.clone(), torch.zeros(len(group), dtype=torch.bool)
    for strict in (True, False):
        for shift in range(1, len(group)):
            candidate = group.other.roll(shift)
            fits = (candidate != group.other) & (candidate != group.own) & ~found
            if strict:
                fits &= (group.classes[:, 1].roll(shift)[:, None] != group.classes).all(1)
            other, found = torch.where(fits, candidate, other), found | fits
    return other if bool(found.all()) else None


def _marks(
    prompts: Int[np.ndarray, "pair pos"],
    classes: Int[np.ndarray, "pair 2"],
    first: int,
    query: int,
) -> Mapping[str, np.ndarray]:
    """Mark → (pair, pos) where it is, as the query at position `query` sees it; each place once."""
    place = np.broadcast_to(np.arange(prompts.shape[1]), prompts.shape)
    before = place < query
    equal = before & (prompts == prompts[:, query, None])
    after = before & np.concatenate([np.zeros_like(equal[:, :1]), equal[:, :-1]], 1)
    seen = {
        "answer": before & (prompts == classes[:, :1]),
        "other": before & (prompts == classes[:, 1:]),
        "changed": before & (place == first),
        "after": after,
        "equal": equal,
        "previous": place == query - 1,
        "first": place == 0,
        "itself": place == query,
    }
    if query == first:  # of the token that differs itself, what it repeats comes first
        seen = {mark: seen[mark] for mark in ("after", "equal", *seen)}
    taken = np.zeros(prompts.shape, bool)
    marks = {}
    for mark, there in seen.items():
        marks[mark] = there & ~taken
        taken |= there
    return marks


def induction_scores(subject: Subject, seed: int) -> Float[np.ndarray, "example layer head"] | None:
    """Mean attention to what followed an earlier equal token, of every head, on random tokens
    repeated (Olsson et al. 2022); None where the model reads too few tokens for them.
    """
    rows = scores.language_repeats(subject, seed)
    if rows is None:
        return None
    made = scores.MadeExamples(subject, rows, rows)
    hit = made.of("induction").hit  # (example, query, key)
    total = np.einsum("nhqk,nqk->nh", made.attention, hit.astype(np.float32))
    each = total / hit.any(-1).sum(-1)[:, None]
    return each.reshape(len(each), subject.n_layers, -1)


def random_heads(among: Sequence[Head], n: int, draws: int, seed: int) -> list[list[Head]]:
    """`draws` sets of n of the heads."""
    generator = rng("random heads", seed)
    return [
        [among[i] for i in generator.choice(len(among), n, replace=False)] for _ in range(draws)
    ]
