"""The bench of an audit: halves of the inputs, additive fits, edited forwards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.explanation.parts import AT, Features, Link, Part, Values
from mechint.interventions import Add, Intervention, Replace, Site, logits_under
from mechint.subject import Subject
from mechint.task import IGNORE, Batch, GeneratedTask, Program, rng

SOURCE_DRAWS = 16
"""Sources that are tried for each input, until one changes the answer."""
MIN_INPUTS = 24
"""Judged inputs, at least; of few in all, so many are judged, and a third or more fitted."""
MAX_EXAMPLES, FEW_EXAMPLES = 3000, 512
"""Distinct inputs that an audit looks at, half of them judged; and so few that more are drawn."""


@dataclass(frozen=True)
class Fit:
    """Mean activation and weights (feature, width) of a part; center (feature,) of its features."""

    part: Part
    weights: Float[Tensor, "feature width"]
    center: Float[Tensor, " feature"]
    explained: float
    """R² at the site on the judged half."""

    def written(self, values: Values, columns: slice | None = None) -> Float[Tensor, "n width"]:
        """The activation that the features write at the site; of some columns alone."""
        assert self.part.features is not None
        phi = self.part.features(values).double() - self.center
        columns = slice(None) if columns is None else columns
        return phi[:, columns] @ self.weights[columns]


@dataclass
class Bench:
    """A subject's inputs in two halves, with activations and forwards under edits.

    fitted, judged: rows of the subject's data. Everything that is chosen or fitted looks at
    `fitted` alone.
    """

    subject: Subject
    program: Program
    seed: int = 0
    examples: int = MAX_EXAMPLES
    fitted: Tensor = field(init=False)
    judged: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.subject = with_more_inputs(self.subject, self.seed)
        tokens = self.subject.data.tokens.cpu().numpy()
        _, first = np.unique(tokens, axis=0, return_index=True)
        rows = rng("explain halves", self.seed).permutation(np.sort(first))[: self.examples]
        half = min(len(rows) // 2, max(len(rows) - MIN_INPUTS, len(rows) // 3))
        self.fitted, self.judged = torch.from_numpy(rows[:half]), torch.from_numpy(rows[half:])

    # --- program ----------------------------------------------------------------------------------
    def tokens(self, rows: Tensor) -> Int[Tensor, "n pos"]:
        """Tokens of the rows."""
        return self.subject.data.tokens[rows.to(self.subject.device)]

    def values(
        self, rows: Tensor, given: Mapping[str, Tensor] | None = None
    ) -> dict[str, Int[Tensor, " n"]]:
        """Every variable of the program on the rows, with some set."""
        return self.program.run(self.tokens(rows), given)

    def at_answer(self, rows: Tensor) -> dict[str, Int[Tensor, " n"]]:
        """The values, with the position of the answer as `AT`: what keys and templates take."""
        positions = self.subject.answer_positions[rows.to(self.subject.device)]
        return {**self.values(rows), AT: positions}

    @property
    def answers(self) -> tuple[str | None, ...]:
        """The variable that answers each output; None for outputs that it does not compute."""
        return answers_of(self.program, self.subject)

    def labels(self, values: Values) -> Int[Tensor, "n output"]:
        """The answers that the program gives, IGNORE for outputs that it does not compute."""
        return labels_of(self.answers, values)

    def targets(self, rows: Tensor) -> Int[Tensor, "n output"]:
        """The task's own answers."""
        return self.subject.targets[rows.to(self.subject.device)]

    # --- forwards ---------------------------------------------------------------------------------
    def logits(
        self, rows: Tensor, edits: Sequence[Intervention] = ()
    ) -> Float[Tensor, "n d_vocab_out"]:
        """Logits at the answer of the rows under edits made for them, in order."""
        if not edits:
            return self.own_logits[rows]
        data = self.subject.data[rows.to(self.subject.device)]
        return logits_under(self.subject, edits, data=data).double().cpu()

    @cached_property
    def own_logits(self) -> Float[Tensor, "example d_vocab_out"]:
        """Logits of every example of the subject's data."""
        return self.subject.logits().double().cpu()

    def right(self, logits: Tensor, labels: Tensor) -> Bool[Tensor, " n"]:
        """Return whether every output that the labels name is answered as they say."""
        labels = labels.to(logits.device)
        found = self.subject.correct(logits, labels)
        return (found | (labels == IGNORE)).all(1)

    def share(self, logits: Tensor, labels: Tensor) -> float:
        """Share of answers that are those of `labels`."""
        return float(self.right(logits, labels).double().mean())

    @cached_property
    def accuracy(self) -> float:
        """The model's own accuracy on the judged half."""
        return self.share(self.own_logits[self.judged], self.targets(self.judged))

    @cached_property
    def chance(self) -> float:
        """Accuracy of the best constant answer."""
        return max((level.accuracy for level in self.subject.chance.values()), default=0.0)

    # --- activations ------------------------------------------------------------------------------
    def activation(self, site: Site, rows: Tensor) -> Float[Tensor, "n width"]:
        """The activation at the site on the rows, units together."""
        at: Any = site.pos
        found = self.subject.activation(site.hook, at)[rows]
        if site.units:
            found = found[:, list(site.units)]
        return found.flatten(1).double().cpu()

    def fit(self, part: Part) -> Fit:
        """Fit a part with features on the fitted half."""
        assert part.features is not None
        return self.fit_features(part, part.features)

    def fit_features(self, part: Part, features: Features) -> Fit:
        """Fit `features` at the site of a part, by least squares on the fitted half."""
        phi = features(self.values(self.fitted)).double().cpu()
        held = self.activation(part.site, self.fitted)
        center, mean = phi.mean(0), held.mean(0)
        weights = ridge(phi - center, held - mean)
        judged = features(self.values(self.judged)).double().cpu() - center
        error = self.activation(part.site, self.judged) - mean
        explained = r2(error, judged @ weights)
        moved = Part(part.name, part.site, part.variables, features, part.blocks, part.reads)
        return Fit(moved, weights, center, explained)

    @cached_property
    def centered_logits(self) -> Float[Tensor, "example d_vocab_out"]:
        """Logits of every example above the mean class of their output."""
        assert self.subject.task is not None
        return centered(self.own_logits, list(self.subject.task.output_slices.values()))

    def read(
        self, features: Features
    ) -> tuple[Float[Tensor, "feature d_vocab_out"], Float[Tensor, " d_vocab_out"]]:
        """Weights and bias by which centered logits follow from `features`: least squares on the
        fitted half.
        """
        phi = features(self.values(self.fitted)).double().cpu()
        held = self.centered_logits[self.fitted]
        weights = ridge(phi - phi.mean(0), held - held.mean(0))
        return weights, held.mean(0) - phi.mean(0) @ weights

    @cached_property
    def exchanged(self) -> tuple[dict[str, Int[Tensor, " n"]], dict[str, Int[Tensor, " n"]]]:
        """Values of the judged half, and those of the inputs that each takes a block from."""
        order = self.order("partial", len(self.judged))
        return self.values(self.judged), self.values(self.judged[order])

    def change(self, edits: Sequence[Intervention]) -> Float[Tensor, "n d_vocab_out"]:
        """The change of the centered logits of the judged half under edits made for it."""
        assert self.subject.task is not None
        slices = list(self.subject.task.output_slices.values())
        logits = self.logits(self.judged, edits)
        return centered(logits, slices) - self.centered_logits[self.judged]

    def edit(self, fit: Fit, old: Values, new: Values, columns: slice | None = None) -> Add:
        """The edit that takes a part from the values `old` to `new`, and leaves the rest."""
        delta = (fit.written(new, columns) - fit.written(old, columns)).float()
        site = fit.part.site
        if site.units and site.kind == "head":
            delta = delta.reshape(len(delta), len(site.units), -1)
        return Add(site, delta.to(self.subject.device))

    def sources(self, names: Sequence[str], base: Tensor) -> Int[Tensor, " n"]:
        """Rows to take the variables `names` from, one for each of `base`: the first random one of
        a few that changes the program's answer, where one does.
        """
        own = self.labels(self.values(base))
        rows, done = base.clone(), torch.zeros(len(base), dtype=torch.bool)
        for sample in range(SOURCE_DRAWS):
            drawn = base[self.order(f"source {' '.join(names)}", len(base), sample)]
            found = self.values(drawn)
            new = self.values(base, {name: found[name] for name in names})
            changes = (self.labels(new) != own).any(1).cpu() & ~done
            rows = torch.where(changes if sample else torch.ones_like(done), drawn, rows)
            done |= changes
        return rows

    def exchange(self, site: Site, rows: Tensor) -> Replace:
        """The edit that takes the whole site from other rows of the subject's data."""
        at: Any = site.pos
        held = self.subject.activation(site.hook, at)[rows]
        return Replace(site, held[:, list(site.units)] if site.units else held)

    def order(self, name: str, n: int, sample: int = 0) -> Tensor:
        """A random order of n rows without fixed points, where there are several."""
        draw = rng("explain", name, self.seed, sample)
        cycle = draw.permutation(n)
        order = np.empty(n, np.int64)
        order[cycle] = np.roll(cycle, 1)
        return torch.from_numpy(order)


def answers_of(program: Program, subject: Subject) -> tuple[str | None, ...]:
    """The variable by which a program gives each output of the answer that is asked about."""
    return program.answers[subject.answer if isinstance(subject.answer, int) else -1]


def labels_of(answers: Sequence[str | None], values: Values) -> Int[Tensor, "n output"]:
    """The values of `answers`, IGNORE where one is None."""
    some = next(iter(values.values()))
    columns = [torch.full_like(some, IGNORE) if name is None else values[name] for name in answers]
    return torch.stack(columns, 1)


def with_more_inputs(subject: Subject, seed: int) -> Subject:
    """The subject with inputs of the training split, too, where a generated task gave few: whether
    a program is what a model runs does not depend on what it was trained on.
    """
    task = subject.task
    few = len(subject.data.tokens.unique(dim=0)) < FEW_EXAMPLES
    if not isinstance(task, GeneratedTask) or subject.data_given or not few:
        return subject
    more = task.sample(MAX_EXAMPLES, seed, "train").to(subject.device)
    return subject.with_data(Batch.cat([subject.data, more]))


def ridge(x: Tensor, y: Tensor, penalty: float = 1e-8) -> Float[Tensor, "feature width"]:
    """Least squares of y on x with a penalty that only breaks ties between columns."""
    gram = x.T @ x
    scale = gram.diagonal().mean().clamp_min(1e-12)
    return torch.linalg.solve(gram + penalty * scale * torch.eye(len(gram)).double(), x.T @ y)


def r2(held: Tensor, predicted: Tensor) -> float:
    """1 - |held - predicted|² / |held|², of centered values."""
    total = float(held.square().sum())
    return 1 - float((held - predicted).square().sum()) / total if total > 0 else 0.0


def centered(logits: Tensor, slices: Sequence[slice]) -> Tensor:
    """Logits above the mean class of their output."""
    return torch.cat([logits[:, s] - logits[:, s].mean(1, keepdim=True) for s in slices], 1)


def inner_bench(bench: Bench, program: Program | None = None) -> Bench:
    """A bench whose halves are those of the fitting half; program: another one than its own."""
    inner = Bench(bench.subject, program or bench.program, bench.seed, bench.examples)
    half = len(bench.fitted) // 2
    inner.fitted, inner.judged = bench.fitted[:half], bench.fitted[half:]
    return inner


def partial(bench: Bench, reads: Fit, entering: Sequence[Fit], name: str) -> float:
    """R² of the change of the logits that block `name` of the part that reads them predicts, when
    it is exchanged in the `entering` parts that have it.
    """
    features, columns = reads.part.features, reads.part.blocks[name]
    assert features is not None
    own, other = bench.exchanged
    edits = [bench.edit(one, own, other, one.part.blocks[name]) for one in entering]
    moved = (features(other) - features(own)).double()[:, columns]
    weights, _ = bench.read(features)
    return r2(bench.change(edits), moved @ weights[columns])


def moved_tag(bench: Bench, link: Link, rows: Tensor) -> tuple[float, float, int]:
    """Share of answers that are the token of another position, with the tag of the key moved there;
    the same for the tag of a third position; and of how many inputs: those that have a key whose
    answer the model gives, and other positions to move it to.
    """
    tokens = bench.tokens(rows).cpu()
    values = bench.at_answer(rows)
    keys, at = link.key(bench.tokens(rows), values).cpu(), values[AT].cpu()
    every, places = torch.arange(len(rows)), torch.arange(tokens.shape[1])
    answer = tokens[every, keys]
    outputs = bench.own_logits[rows].argmax(1)
    free = (places[1:] < at[:, None]) & (tokens[:, 1:] != answer[:, None])
    kept = ((free.sum(1) >= 2) & (keys > 0) & (outputs == answer)).nonzero().flatten()
    if not len(kept):
        return math.nan, math.nan, 0
    rows, keys, free, tokens = rows[kept], keys[kept], free[kept], tokens[kept]
    draw = torch.from_numpy(rng("explain link", bench.seed).random(free.shape))
    first, second = (draw * free).argsort(1, descending=True)[:, :2].T + 1
    every, heads = torch.arange(len(rows))[:, None], torch.tensor(link.heads)
    site = Site(f"blocks.{link.layer}.attn.hook_z")
    held = bench.subject.activation(site.hook)[rows]

    def follows(source: Tensor) -> float:
        new = held.clone()
        new[every, first[:, None], heads] = held[every, source[:, None], heads]
        new[every, source[:, None], heads] = held[every, first[:, None], heads]
        found = bench.logits(rows, [Replace(site, new)]).argmax(1)
        return float((found == tokens[every[:, 0], first]).double().mean())

    return follows(keys), follows(second), len(rows)
