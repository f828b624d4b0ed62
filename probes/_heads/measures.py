"""Effects of single heads and of sets of them on pairs of prompts, and what they look at."""

# arguments are unpacked from tuples, and some values are typed more widely than they are
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import ParameterError
from mechint.interventions import EditedRuns, Intervention, Replace, Site, Take, path
from mechint.interventions.resuming import check_adds
from mechint.models.protocol import Capability
from mechint.probes._attention import scores
from mechint.probes._lens.readout import Readout
from mechint.subject import Subject
from mechint.subject.activations import Recorder
from mechint.subject.pairs import Pairs
from mechint.task import rng

Head = tuple[int, int]
"""Block and head."""

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
    """Runs on pairs of prompts, each read at its end.

    own, other (pair,): inputs of `runs`; classes (pair, 2): the answers of base and source; first
    (pair,): the first position that differs; units (pair,): a number of the two prompts of each
    pair, so that a pair both ways is one sample.
    """

    subject: Subject
    runs: EditedRuns
    own: Int[Tensor, " pair"]
    other: Int[Tensor, " pair"]
    classes: Int[Tensor, "pair 2"]
    first: Int[Tensor, " pair"]
    units: Int[np.ndarray, " pair"]

    @classmethod
    def of(cls, subject: Subject, pairs: Pairs) -> PairRuns:
        """Runs of the subject's model on pairs that are read at one position."""
        prompts = torch.cat([pairs.base, pairs.source])
        read = torch.cat([pairs.reads, pairs.reads])[:, None]
        prompts, index = torch.cat([prompts, read], 1).unique(dim=0, return_inverse=True)
        own, other = index.split(len(pairs))
        both = torch.stack([own, other]).sort(0).values
        units = both.unique(dim=1, return_inverse=True)[1].cpu().numpy()
        classes = torch.stack([pairs.answers[:, 0], pairs.labels[:, 0]], 1)
        first = (pairs.base != pairs.source).int().argmax(1)
        runs = EditedRuns(subject.model, prompts[:, :-1], prompts[:, -1])
        return cls(subject, runs, own, other, classes, first, units)

    def __len__(self) -> int:
        return len(self.own)

    @cached_property
    def groups(self) -> list[Int[Tensor, " _row"]]:
        """Pairs of one length and one first difference."""
        shapes = torch.stack([self.runs.reads[self.own], self.first], 1)
        _, group = shapes.unique(dim=0, return_inverse=True)
        return [(group == one).nonzero().flatten() for one in range(int(group.max()) + 1)]

    @cached_property
    def heads(self) -> list[Head]:
        """Heads that the model shows, block by block."""
        shape = self.subject.model_description
        layers = [n for n in range(shape.n_layers) if Site.of("head", n).hook in self.subject.hooks]
        return [(layer, head) for layer in layers for head in range(shape.n_heads or 0)]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of blocks, and of heads in one."""
        return self.subject.n_layers, self.subject.model_description.n_heads or 0

    @cached_property
    def base(self) -> Float[np.ndarray, " pair"]:
        """Differences of the bases: the source's answer above the base's, nats."""
        return _numbers(self.runs.base(self.own, self.classes).diff(dim=-1)[:, 0])

    @cached_property
    def span(self) -> float:
        """Mean difference of the sources less that of the bases."""
        source = self.runs.base(self.other, self.classes).diff(dim=-1)[:, 0]
        return float((_numbers(source) - self.base).mean())

    def _moved(
        self, variants: Sequence[Sequence[Intervention]]
    ) -> Float[np.ndarray, "variant pair"]:
        """Share of the mean difference that each set of edits moves, pair by pair."""
        logits = self.runs.under(variants, self.own, classes=self.classes)
        return (_numbers(logits.diff(dim=-1)[..., 0]) - self.base) / self.span

    # --- shares of the difference -----------------------------------------------------------------
    def each(self, heads: Sequence[Head]) -> dict[Head, Float[np.ndarray, " pair"]]:
        """Head → the share that it alone moves when it is taken from the source."""
        taken = [[Take(Site.head(*head), self.other)] for head in heads]
        return dict(zip(heads, self._moved(taken), strict=True))

    def moved(self, heads: Sequence[Head], wrong: bool = False) -> Float[np.ndarray, " pair"]:
        """Share of the mean difference that `heads` move together, pair by pair, when they are
        taken from the source; `wrong`: from another pair's source from the first difference on, NaN
        of a pair that has no other.
        """
        by_layer: dict[int, list[int]] = {}
        for layer, head in heads:
            by_layer.setdefault(layer, []).append(head)
        sites = [Site.of("head", layer, units=units) for layer, units in by_layer.items()]
        if not wrong:
            return self._moved([[Take(site, self.other) for site in sites]])[0]
        places = torch.arange(self.runs.tokens.shape[1], device=self.first.device)
        behind = (places >= self.first[:, None])[..., None, None]
        edits = []
        for site in sites:
            z = self.runs.recorded(site.hook)[:, :, list(site.units)]
            edits.append(Replace(site, torch.where(behind, z[self.wrong], z[self.own])))
        there = _numbers(self.wrong != self.own) > 0
        return np.where(there, self._moved([edits])[0], np.nan)

    @cached_property
    def wrong(self) -> Int[Tensor, " pair"]:
        """The source of another pair of one shape with each; its own base where there is none."""
        found = self.own.clone()
        for rows in self.groups:
            others = _others(self.own[rows], self.other[rows], self.classes[rows])
            found[rows] = self.own[rows] if others is None else others
        return found

    @cached_property
    def first_order(self) -> Float[np.ndarray, "layer head"]:
        """What every head moves to first order (attribution patching, Nanda 2023): mean over the
        pairs.
        """
        total = torch.zeros(self.shape, dtype=torch.float64)
        layers = {layer: Site.of("head", layer).hook for layer, _ in self.heads}
        for rows, parts in self.runs.gradients(
            [*layers.values()],
            lambda logits, rows: logits.diff(dim=-1)[:, 0],
            self.own,
            classes=self.classes,
            first=int(self.first.min()),
        ):
            for layer, hook in layers.items():
                value, slope, places = parts[hook]
                there = self.runs.recorded(hook)[self.other[rows][:, None], places]
                total[layer] += ((there - value) * slope).sum((0, 1, 3)).cpu()
        return total.numpy() / (len(self) * self.span)

    # --- ways to the answer -----------------------------------------------------------------------
    @cached_property
    def shows_writing(self) -> bool:
        """True where what heads write is shown, and reaches the final norm as it is."""
        if Capability.HEAD_WEIGHTS not in self.subject.capabilities or Readout.unmet(self.subject):
            return False
        try:
            for layer in {layer for layer, _ in self.heads}:
                check_adds(self.subject.model, self.runs.tokens, layer)
                self.runs.written_by(layer, answers=True)
        except ParameterError:
            return False
        return True

    @cached_property
    def direct(self) -> Float[np.ndarray, "pair layer head"]:
        """Share that what each head writes at the answer moves straight at the logits, the final
        norm's scale held (Elhage et al. 2021), by pair; NaN where that is not shown.
        """
        found = torch.full((len(self), *self.shape), torch.nan, dtype=torch.float64)
        if not self.shows_writing:
            return found.numpy()
        readout = Readout(self.subject)
        columns = readout.matrix.T[self.classes]  # (pair, 2, d_model)
        directions = columns[:, 1] - columns[:, 0]
        directions = directions / readout.scale(self.runs.end[self.own].double())
        for layer in {layer for layer, _ in self.heads}:
            written = self.runs.written_by(layer, answers=True)
            change = (written[self.other] - written[self.own]).double()
            found[:, layer] = torch.einsum("bhm,bm->bh", change, directions).cpu()
        return found.numpy() / self.span

    @cached_property
    def shows_reading(self) -> bool:
        """True where queries can read something else than the residual stream."""
        name = Site.read("q", self.heads[0][0], 0).hook
        return self.runs.engine == "native" or name in self.subject.model.hook_dict

    def through_queries(
        self, sender: Head, receivers: Sequence[Head]
    ) -> Float[np.ndarray, " pair"]:
        """Share that `sender` moves through the queries of `receivers` at the answer alone."""
        queries = [Site.read("q", *receiver, pos="answer") for receiver in receivers]
        edits = path(self.runs, Site.head(*sender), queries, self.other, self.own)
        return self._moved([edits])[0]

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
        found: dict[str, dict[str, np.ndarray]] = {"answer": {}, "changed": {}}
        layers = sorted({layer for layer, _ in self.heads})
        hooks = [f"blocks.{layer}.attn.hook_pattern" for layer in layers]
        recorder = Recorder(self.subject.model, self.subject.chunk)
        tokens = self.runs.tokens[self.own]
        for query, places in (("answer", self.runs.reads[self.own]), ("changed", self.first)):
            seen = recorder.record(tokens, hooks, places)
            patterns = torch.stack([seen[hook] for hook in hooks], 1).cpu().numpy()
            for rows in self.groups:
                prompts, at = tokens[rows].cpu().numpy(), rows.cpu().numpy()
                first, place = int(self.first[rows[0]]), int(places[rows[0]])
                marks = _marks(prompts, self.classes[rows].cpu().numpy(), first, place)
                for mark, there in marks.items():
                    total = np.einsum("blhp,bp->blh", patterns[at], there.astype(patterns.dtype))
                    total[~there.any(1)] = np.nan
                    every = np.full((len(self), *self.shape), np.nan)
                    every = found[query].setdefault(mark, every)
                    every[np.ix_(at, layers)] = total
        return {
            query: {mark: rows for mark, rows in marks.items() if not np.isnan(rows).all()}
            for query, marks in found.items()
        }


def _numbers(values: Tensor) -> np.ndarray:
    return values.detach().double().cpu().numpy()


def _others(
    own: Int[Tensor, " pair"], source: Int[Tensor, " pair"], classes: Int[Tensor, "pair 2"]
) -> Int[Tensor, " pair"] | None:
    """For each pair the source of another pair that is neither its source nor its base, and has
    another answer, where there is one.
    """
    other, found = source.clone(), torch.zeros_like(own, dtype=torch.bool)
    for strict in (True, False):
        for shift in range(1, len(own)):
            candidate = source.roll(shift)
            fits = (candidate != source) & (candidate != own) & ~found
            if strict:
                fits &= (classes[:, 1].roll(shift)[:, None] != classes).all(1)
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
