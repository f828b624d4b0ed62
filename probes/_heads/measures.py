"""Effects of heads, MLPs and sets of them on pairs of prompts, and what heads look at."""

# arguments are unpacked from tuples, and some values are typed more widely than they are
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.errors import ParameterError
from mechint.explanation.rules import Inputs, by_match
from mechint.interventions import EditedRuns, Intervention, Site, Take, path
from mechint.interventions.resuming import check_adds
from mechint.models.protocol import Capability, read_only_hooks
from mechint.probes._attention import scores
from mechint.probes._effects import Effects, units_of
from mechint.probes._lens.probe import Readout
from mechint.probes._patching.measures import wrong_sources
from mechint.subject import Subject
from mechint.subject.activations import Recorder, select_positions
from mechint.subject.components import list_components
from mechint.subject.pairs import Pairs
from mechint.task import ANY, IGNORE, logits_of

MARKS = {
    "answer": "the answer's token",
    "other": "the other answer's token",
    "changed": "the token that differs",
    "after": "the token after an earlier equal one",
    "equal": "the last earlier equal token",
    "previous": "the token before",
    "first": "the first token",
    "itself": "itself",
}
"""Places of a prompt that a head may attend to; one may be several of them."""


@dataclass(frozen=True)
class PairRuns:
    """Runs on pairs of prompts, read at the end of each and behind later tokens of its answers.

    own, other, wrong (read,): inputs of `runs`: the base, the source, and that of another pair;
    classes (read, 2): the answers of base and source; first (read,): the first position that
    differs; units (read,): a number of the two prompts of each pair, alike both ways.
    """

    subject: Subject
    runs: EditedRuns
    own: Int[Tensor, " read"]
    other: Int[Tensor, " read"]
    wrong: Int[Tensor, " read"]
    classes: Int[Tensor, "read 2"]
    first: Int[Tensor, " read"]
    units: Int[np.ndarray, " read"]

    @classmethod
    def of(cls, subject: Subject, pairs: Pairs) -> PairRuns:
        """Runs of the subject's model on pairs that are read at one position."""
        every, pair = subject.known_task.spelled(pairs)
        wrong, _ = subject.known_task.spelled(replace(pairs, source=wrong_sources(pairs)))
        prompts = torch.cat([every.base, every.source, wrong.source])
        prompts = torch.cat([prompts, every.reads.repeat(3)[:, None]], 1)
        prompts, index = prompts.unique(dim=0, return_inverse=True)
        inputs = index.split(len(every))
        classes = torch.stack([every.answers[:, 0], every.labels[:, 0]], 1)
        first = (every.base != every.source).int().argmax(1)
        runs = EditedRuns(subject.model, prompts[:, :-1], prompts[:, -1])
        units = units_of(pairs)[pair.cpu().numpy()]
        return cls(subject, runs, *inputs, classes, first, units)

    def __len__(self) -> int:
        return len(self.own)

    @cached_property
    def heads(self) -> list[Site]:
        """Heads that the model shows, block by block."""
        return [*list_components(self.subject, default=("head",)).sites]

    @cached_property
    def mlps(self) -> list[Site]:
        """MLPs whose output the model lets one edit."""
        may = self.subject.hooks - set(read_only_hooks(self.subject.model))
        every = [Site.mlp(layer) for layer in range(self.subject.n_layers)]
        return [site for site in every if site.hook in may]

    @cached_property
    def base(self) -> Float[np.ndarray, " read"]:
        """Differences of the bases: the source's answer above the base's, nats."""
        return _numbers(self._difference(self.runs.base(self.own, self.columns)))

    @cached_property
    def end(self) -> Float[np.ndarray, " read"]:
        """Differences of the sources."""
        return _numbers(self._difference(self.runs.base(self.other, self.columns)))

    @cached_property
    def answers(self) -> Int[Tensor, "read 2 m"]:
        """Right classes of the base and of the source."""
        return self.subject.known_task.alternatives(self.classes)

    @cached_property
    def columns(self) -> Int[Tensor, "read column"] | None:
        """Classes whose logits are read; None where all are, as of answers of several tokens."""
        several = bool((self.classes == ANY).any())
        return None if several else self.answers.flatten(1).clamp_min(0)

    def _difference(
        self, logits: Float[Tensor, "*variant read column"], reads: Any = slice(None)
    ) -> Float[Tensor, "*variant read"]:
        """The source's answer above the base's, of logits of the columns."""
        if self.columns is None:
            return logits_of(self.subject.known_task, logits, self.classes[reads]).diff(dim=-1)[
                ..., 0
            ]
        answers = self.answers[reads]
        each = logits.unflatten(-1, answers.shape[1:]).masked_fill(answers == IGNORE, -torch.inf)
        return each.logsumexp(-1).diff(dim=-1)[..., 0]

    # --- effects ----------------------------------------------------------------------------------
    def under(self, variants: Sequence[Sequence[Intervention]], rows: Any = slice(None)) -> Effects:
        """Effects of edits that act together, which are of the reads `rows`."""
        rows = torch.arange(len(self), device=self.own.device)[rows]
        at, columns = rows.cpu().numpy(), None if self.columns is None else self.columns[rows]

        def read(logits: Tensor, some: Tensor) -> Tensor:
            return self._difference(logits, rows[some])

        changed = _numbers(self.runs.under(variants, self.own[rows], classes=columns, read=read))
        return Effects(self.base[at], self.end[at], changed, self.units[at])

    def measure(
        self,
        sets: Sequence[Sequence[Site]],
        rows: Any = slice(None),
        source: Int[Tensor, " read"] | None = None,
    ) -> Effects:
        """Effects of each set, taken together from the source, or from another input."""
        source = (self.other if source is None else source)[rows]
        return self.under([[Take(site, source) for site in _together(some)] for some in sets], rows)

    def from_wrong_source(self, sites: Sequence[Site]) -> Effects:
        """Effects of each site, taken from another pair's source; NaN of a pair that has no
        other.
        """
        found = self.measure([[site] for site in sites], source=self.wrong)
        there = _numbers((self.wrong != self.own) & (self.wrong != self.other)) > 0
        return replace(found, changed=np.where(there, found.changed, np.nan))

    def at_changed_tokens(self, sites: Sequence[Site]) -> Effects:
        """Effects of each site, taken from the source at the first token that differs alone."""
        places = tuple(self.first.tolist())
        return self.measure([[replace(site, pos=places)] for site in sites])

    def first_order(self) -> dict[Site, float]:
        """Head → its effect to first order (attribution patching, Nanda 2023): sum over the pairs,
        nats.
        """
        hooks = list(dict.fromkeys(site.hook for site in self.heads))
        total: dict[str, Any] = dict.fromkeys(hooks, 0.0)
        for rows, parts in self.runs.gradients(
            hooks,
            self._difference,
            self.own,
            classes=self.columns,
            first=int(self.first.min()),
        ):
            for hook, (value, slope, places) in parts.items():
                there = self.runs.recorded(hook)[self.other[rows][:, None], places]
                total[hook] += ((there - value) * slope).sum((0, 1, 3)).cpu()
        return {site: float(total[site.hook][site.units[0]]) for site in self.heads}

    # --- ways to the answer -----------------------------------------------------------------------
    def straight(self, sites: Sequence[Site]) -> Effects | None:
        """Effects of what each writes at the answer straight at the logits, the final norm's scale
        held (Elhage et al. 2021); None where what heads write is not shown, or reaches the final
        norm otherwise.
        """
        if Capability.HEAD_WEIGHTS not in self.subject.capabilities or Readout.unmet(self.subject):
            return None
        try:
            for layer in {site.layer for site in self.heads}:
                check_adds(self.subject.model, self.runs.tokens, layer)
                self.runs.written_by(layer, answers=True)
        except ParameterError:
            return None
        readout, reads = Readout(self.subject), self.runs.reads
        scale = readout.scale(self.runs.end[self.own].double())
        logits = self.runs.base(self.own, self.columns).double()
        directions = None if self.columns is None else readout.matrix.T[self.columns]
        changed = []
        for site in sites:
            if site.kind == "head":
                layer, units = site.layer or 0, site.units
                written = self.runs.written_by(layer, units, answers=True)[:, 0]
            else:
                written = select_positions(self.runs.recorded(site.hook), reads)
            change = (written[self.other] - written[self.own]).double() / scale
            moved = (
                change @ readout.matrix
                if directions is None
                else torch.einsum("rcd,rd->rc", directions, change)
            )
            changed.append(_numbers(self._difference(logits + moved)))
        return Effects(self.base, self.end, np.stack(changed), self.units)

    @cached_property
    def shows_reading(self) -> bool:
        """True where queries can read something else than the residual stream."""
        name = Site.read("q", self.heads[0].layer, 0).hook
        return self.runs.engine == "native" or name in self.subject.model.hook_dict

    def through_queries(self, sender: Site, receivers: Sequence[Sequence[Site]]) -> Effects:
        """Effects of `sender` through the queries of each set of heads at the answer alone."""
        edits = []
        for some in receivers:
            queries = [Site.read("q", site.layer, *site.units, pos="answer") for site in some]
            edits.append(path(self.runs, sender, queries, self.other, self.own))
        return self.under(edits)

    # --- what they look at ------------------------------------------------------------------------
    @cached_property
    def attention(self) -> dict[str, dict[str, Float[np.ndarray, "read layer head"]]]:
        """ "answer" or "changed", where the query stands → mark → attention to it, by read; NaN of
        those that do not have one.
        """
        found: dict[str, dict[str, np.ndarray]] = {}
        hooks = [
            f"blocks.{layer}.attn.hook_pattern"
            for layer in range(self.subject.n_layers)
            if Site.of("head", layer).hook in self.subject.hooks
        ]
        recorder = Recorder(self.subject.model, self.subject.chunk)
        tokens = self.runs.tokens[self.own]
        for query, places in (("answer", self.runs.reads[self.own]), ("changed", self.first)):
            seen = recorder.record(tokens, hooks, places)
            patterns = torch.stack([seen[hook] for hook in hooks], 1).double().cpu()
            marks = _marks(tokens.cpu(), self.answers.cpu(), self.first.cpu(), places.cpu())
            found[query] = {}
            for mark, there in marks.items():
                total = torch.einsum("blhp,bp->blh", patterns, there.double())
                total[~there.any(1)] = torch.nan
                if bool(there.any()):
                    found[query][mark] = total.numpy()
        return found


def _together(sites: Sequence[Site]) -> list[Site]:
    """The sites, heads of one layer as one."""
    units: dict[tuple[str, Any], list[int]] = defaultdict(list)
    for site in sites:
        units[site.hook, site.pos].extend(site.units)
    return [Site(hook, pos, tuple(some)) for (hook, pos), some in units.items()]


def _numbers(values: Tensor) -> np.ndarray:
    return values.detach().double().cpu().numpy()


def _marks(
    tokens: Int[Tensor, "pair pos"],
    answers: Int[Tensor, "pair 2 m"],
    first: Int[Tensor, " pair"],
    query: Int[Tensor, " pair"],
) -> dict[str, Bool[Tensor, "pair pos"]]:
    """Mark → where it is, as the query sees it; earlier equal tokens as the rules of programs."""
    place, query = torch.arange(tokens.shape[1]).expand_as(tokens), query[:, None]
    inputs = Inputs(tokens, query[:, 0], True, int(tokens.max()) + 1)
    equal, after, *_ = by_match(inputs)
    own, other = (tokens[:, None, :, None] == answers[:, :, None]).any(-1).unbind(1)
    return {
        "answer": (place < query) & own,
        "other": (place < query) & other,
        "changed": (place < query) & (place == first[:, None]),
        "after": after.keys(tokens, query[:, 0]),
        "equal": equal.keys(tokens, query[:, 0]),
        "previous": place == query - 1,
        "first": place == 0,
        "itself": place == query,
    }


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
