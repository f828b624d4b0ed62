"""The bench of an audit: halves of the inputs, additive fits, edited forwards."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.decide import Evidence, Skill, best_constant
from mechint.explanation.parts import AT, Features, Part, Values
from mechint.explanation.sources import in_one_cycle, places_read
from mechint.interventions import Add, Intervention, Replace, Site, logits_under
from mechint.probe.results import Scope
from mechint.subject import Subject
from mechint.task import IGNORE, GeneratedTask, Program, first_of_each, rng

SOURCE_DRAWS = 16
"""Sources that are tried for each input, until one changes the answer."""
MIN_INPUTS = 24
"""Judged inputs, at least; of few in all, so many are judged, and a third or more fitted."""
MAX_EXAMPLES = 3000
"""Distinct inputs that an audit looks at, half of them judged."""

MIN_CLASS, FEW_RIGHT, HALF_RIGHT = 20, 0.75, 0.5
"""Inputs of a class that may forbid a program to stand, at least, and share of them to be right: of
a program over sources, and of one that is read off noisy logits or of a task."""
SMALL = 0.01
"""Share of the inputs from which a class may hide in errors that no class tells."""
LARGE, LARGE_RIGHT = 0.1, 0.9
"""Share of the inputs from which a class is large, and share of it that has to be right."""

MIN_POPULATION = 16
"""Inputs, at least, that count as all of their form where they are every combination."""

Columns = slice | Tensor
"""Columns of features."""


@dataclass(frozen=True)
class Fit:
    """Mean activation and weights (feature, width) of a part; center (feature,) of its features."""

    part: Part
    weights: Float[Tensor, "feature width"]
    center: Float[Tensor, " feature"]

    def written(self, values: Values, columns: Columns | None = None) -> Float[Tensor, "n width"]:
        """The activation that the features write at the site; of some columns alone."""
        assert self.part.features is not None
        phi = self.part.features(values).double() - self.center
        columns = slice(None) if columns is None else columns
        return phi[:, columns] @ self.weights[columns]

    def without(self, block: str) -> Columns:
        """The columns of all blocks but one."""
        columns = torch.arange(len(self.weights))
        cut = self.part.blocks.get(block)
        return columns if cut is None else torch.cat([columns[: cut.start], columns[cut.stop :]])


@dataclass(frozen=True, eq=False)
class Bench:
    """A subject's inputs in two halves, with activations and forwards under edits.

    One is made for each `explain` (`Bench.of`), and every fit, search and audit is on it.

    fitted, judged: rows of the subject's data. Everything that is chosen or fitted looks at
    `fitted` alone. whole: these are all inputs of their form, and both halves are all of them, so
    that a count of them has no interval.
    """

    subject: Subject
    program: Program
    fitted: Int[Tensor, " fitted"]
    judged: Int[Tensor, " judged"]
    seed: int = 0
    whole: bool = False

    @classmethod
    def of(
        cls, subject: Subject, program: Program, seed: int = 0, examples: int = MAX_EXAMPLES
    ) -> Bench:
        """Distinct inputs of a subject, `examples` at most, halved at random."""
        subject = at_readout(subject)
        first = first_of_each(subject.data.tokens).cpu().numpy()
        rows = rng("explain halves", seed).permutation(first)[:examples]
        half = min(len(rows) // 2, max(len(rows) - MIN_INPUTS, len(rows) // 3))
        fitted, judged = torch.from_numpy(rows[:half]), torch.from_numpy(rows[half:])
        return cls(subject, program, fitted, judged, seed)

    def population(self, examples: int = MAX_EXAMPLES) -> Bench:
        """All inputs as both halves, where they are all of their form; else the same halves, as of
        examples that a task generates, of which a trained model may answer a few wrong.
        """
        rows = torch.cat([self.fitted, self.judged]).sort().values
        lengths = self.subject.answer_positions.cpu()[rows] + 1
        few = not MIN_POPULATION <= len(rows) < examples
        drawn = isinstance(self.subject.task, GeneratedTask)
        if few or drawn or not is_population(self.tokens(rows).cpu(), lengths):
            return self
        return replace(self, fitted=rows, judged=rows, whole=True)

    def inner(self) -> Bench:
        """A bench whose halves are those of the fitting half, for choices between fits."""
        half = len(self.fitted) // 2
        return replace(self, fitted=self.fitted[:half], judged=self.fitted[half:])

    def under(self, program: Program) -> Bench:
        """The same halves under another program."""
        return self if program is self.program else replace(self, program=program)

    def among(self, kept: Callable[[Values], Bool[Tensor, " n"]] | None) -> Bench:
        """The inputs of both halves whose values are `kept`; all of them when None."""
        return self if kept is None else self._keeping(lambda rows: kept(self.values(rows)))

    @property
    def scope(self) -> Scope:
        """The inputs that are judged, where these are not all, and the answer, of several."""
        return Scope(None if self.whole else len(self.judged), self.subject.asked)

    def joint(self, heads: int) -> Scope:
        """The scope of an edit of so many heads at once."""
        shape = self.subject.model_description
        return Scope(
            components=(heads, self.subject.n_layers * (shape.n_heads or 0)), together=heads > 1
        )

    def where(self, holds: Callable[[Tensor, Tensor], Bool[Tensor, " n"]]) -> Bench:
        """The inputs of both halves of whose tokens and answer positions a condition holds."""
        at = self.subject.answer_positions.cpu()
        return self._keeping(lambda rows: holds(self.tokens(rows).cpu(), at[rows]))

    def _keeping(self, flags: Callable[[Tensor], Bool[Tensor, " n"]]) -> Bench:
        fitted, judged = (rows[flags(rows)] for rows in (self.fitted, self.judged))
        return replace(self, fitted=fitted, judged=judged)

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
        """The values, with the position of the answer as `AT`: what keys take."""
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

    @cached_property
    def accuracy(self) -> float:
        """The model's own accuracy on the judged half, all outputs of an answer together."""
        return self.kept(self.own_logits[self.judged], self.targets(self.judged)).value

    @cached_property
    def chance(self) -> float:
        """Accuracy of the best constant answer on the judged half, counted in the same way."""
        return constant(self.targets(self.judged))

    @cached_property
    def skill(self) -> Skill:
        """The model's accuracy on the judged half beside chance."""
        return Skill(self.accuracy, self.chance, len(self.judged))

    @cached_property
    def constant(self) -> bool:
        """True where one answer is right of all inputs, and the model gives it."""
        return self.accuracy == self.chance == 1.0

    def skill_at(self, labels: Int[Tensor, "n output"]) -> Skill:
        """The model's accuracy beside chance of the answers `labels`, which an edit is to give."""
        return Skill(self.accuracy, constant(labels), len(self.judged))

    def kept(self, logits: Tensor, labels: Tensor) -> Evidence:
        """The share of answers that are those of `labels`, as evidence."""
        return counted_share(self.right(logits, labels))

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

    def fits(self, parts: Iterable[Part]) -> dict[str, Fit]:
        """A part in words, name and site → its fit, of those with features."""
        return {str(part): self.fit(part) for part in parts if part.features is not None}

    def fit_features(self, part: Part, features: Features) -> Fit:
        """Fit `features` at the site of a part, by least squares on the fitted half."""
        phi = features(self.values(self.fitted)).double().cpu()
        held = self.activation(part.site, self.fitted)
        center, mean = phi.mean(0), held.mean(0)
        weights = ridge(phi - center, held - mean)
        moved = replace(part, features=features)
        return Fit(moved, weights, center)

    @cached_property
    def slices(self) -> list[slice]:
        """The classes of each output."""
        assert self.subject.task is not None
        return list(self.subject.task.output_slices.values())

    @cached_property
    def centered_logits(self) -> Float[Tensor, "example d_vocab_out"]:
        """Logits of every example above the mean class of their output."""
        return centered(self.own_logits, self.slices)

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
        logits = self.logits(self.judged, edits)
        return centered(logits, self.slices) - self.centered_logits[self.judged]

    def edit(self, fit: Fit, old: Values, new: Values, columns: Columns | None = None) -> Add:
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
        return in_one_cycle(torch.from_numpy(draw.permutation(n)))


def answers_of(program: Program, subject: Subject) -> tuple[str | None, ...]:
    """The variable by which a program gives each output of the answer that is asked about."""
    return program.answers[subject.answer if isinstance(subject.answer, int) else -1]


def labels_of(answers: Sequence[str | None], values: Values) -> Int[Tensor, "n output"]:
    """The values of `answers`, IGNORE where one is None."""
    some = next(iter(values.values()))
    columns = [torch.full_like(some, IGNORE) if name is None else values[name] for name in answers]
    return torch.stack(columns, 1)


def at_readout(subject: Subject) -> Subject:
    """The subject with its answers at the position that its readout reads, where that is one."""
    places = places_read(subject)
    if len(places) != 1:
        return subject
    targets = torch.full_like(subject.data.targets, IGNORE)
    targets[:, places[0]] = subject.targets
    return subject.with_data(replace(subject.data, targets=targets, weights=None, kinds=None))


def is_population(tokens: Int[Tensor, "n pos"], lengths: Int[Tensor, " n"]) -> bool:
    """Return whether inputs are every combination of the tokens of each place, of each length, up
    to which the places have the same tokens; and of several tokens, or lengths.

    >>> rows = torch.cartesian_prod(torch.arange(3), torch.arange(4))
    >>> is_population(rows, torch.full((12,), 2)), is_population(rows[1:], torch.full((11,), 2))
    (True, False)
    """
    places = [set(tokens[lengths > place, place].tolist()) for place in range(int(lengths.max()))]
    sizes = itertools.accumulate(map(len, places), operator.mul)
    counts = torch.bincount(lengths, minlength=len(places) + 1)[1:].tolist()
    return all(n in (0, size) for n, size in zip(counts, sizes, strict=True))


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


def constant(answers: Int[Tensor, "n output"]) -> float:
    """Accuracy of the best constant answer, all outputs together."""
    return best_constant(answers.cpu().numpy(), IGNORE)


def counted_share(right: Bool[Tensor, " n"]) -> Evidence:
    """The share of inputs that are right, as evidence."""
    return Evidence.share(int(right.sum()), len(right))


def failing_class(
    right: Bool[Tensor, " n"],
    classes: Mapping[str, Tensor],
    few_right: float = FEW_RIGHT,
    large_right: float = LARGE_RIGHT,
) -> str:
    """The class of inputs of which fewest are right, where it is certain that these are fewer than
    `few_right`, or `large_right` of a large class; "" where there is none, so that no average hides
    one.

    classes: words, with {} for a value → (n,) values, or (n, value) flags of those that an input
    has.

    >>> answers = torch.arange(900) % 30
    >>> failing_class(answers != 2, {"the answer {}": answers})
    '0 of 30 inputs with the answer 2 are answered as it says'
    >>> failing_class(answers != 2, {"length {}": torch.arange(900) // 450})
    ''
    """
    return failing_inputs(right, classes, few_right, large_right)[0]


def failing_inputs(
    right: Bool[Tensor, " n"], classes: Mapping[str, Tensor], few_right: float, large_right: float
) -> tuple[str, Bool[Tensor, " n"] | None]:
    """The class that `failing_class` gives in words, and flags of its inputs."""
    worst, found = (1.0, ""), None
    for words, held in classes.items():
        flags = held if held.dim() == 2 else held[:, None] == held.unique()
        values = range(held.shape[1]) if held.dim() == 2 else held.unique().tolist()
        counts, hits = flags.sum(0), (flags & right[:, None]).sum(0)
        for i in (counts >= MIN_CLASS).nonzero().flatten().tolist():
            share = Evidence.share(int(hits[i]), int(counts[i]))
            least = large_right if share.n >= LARGE * len(right) else few_right
            if share.high < least and share.value < worst[0]:
                named = f"{share.hits} of {share.n} inputs with {words.format(values[i])}"
                worst = share.value, f"{named} are answered as it says"
                found = flags[:, i]
    return worst[1], found


def squares(held: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(input,) sums of squares."""
    return held.square().sum(1).cpu().numpy()


def determination(held: Tensor, predicted: Tensor) -> Evidence:
    """R² of centered values, as evidence."""
    return Evidence.determination(squares(held - predicted), squares(held))


def partial(bench: Bench, reads: Fit, entering: Sequence[Fit], name: str) -> Evidence:
    """R² of the change of the logits that block `name` of the part that reads them predicts, when
    it is exchanged in the `entering` parts that have it.
    """
    features, columns = reads.part.features, reads.part.blocks[name]
    assert features is not None
    own, other = bench.exchanged
    edits = [bench.edit(one, own, other, one.part.blocks[name]) for one in entering]
    moved = (features(other) - features(own)).double()[:, columns]
    weights, _ = bench.read(features)
    return determination(bench.change(edits), moved @ weights[columns])
