"""Spectra of what a model holds about a group, and the rule by which a component is called key.

One rule serves frequencies and representations, embeddings and logits. A component is key where it
exceeds, at once,

- a level: `factor` times its share of a flat spectrum (energies); `cosine` and the level that the
  cosines of noise and of lookup tables stay below, `flat_level` (logits);
- what permuted elements reach at any component, at level `alpha`, found round by round with the
  keys found before taken out (`step_down`);
- for logits, the same again on inputs that the model cannot have memorized.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from mechint.decide import NEAR
from mechint.groups.finite import cyclic
from mechint.groups.spectrum import Harmonics, Label
from mechint.probe.results import Null
from mechint.subject import Subject
from mechint.subject.activations import LOGITS
from mechint.task import FiniteTask, rng

Array = NDArray[Any]
LARGEST_COSINE = "logits.largest_cosine"
"""The metric of every probe whose null decides about key frequencies of the logits."""
PERMUTED_CLASSES = "the largest cosine with permuted classes, with and without the answers"
SAME_ENERGIES = "any order of the elements has these energies"
TIE = 1e-12
"""Cosines nearer than this are the same: a lookup table's, summed in another order."""


@dataclass(frozen=True)
class KeyRule:
    """The numbers of the rule; see the module."""

    factor: float = 2.0
    cosine: float = 0.01
    alpha: float = 0.002
    permutations: int = 499


@dataclass(frozen=True)
class Spectrum:
    """One value per component, and which components are key.

    values (h,): share of the energy, or cosine; keys: labels, in the group's order; thresholds
    (h,): what a key has to exceed; levels (h,): what it exceeds whatever permuted samples do; null
    (sample,): the largest value of each permuted sample, a share in units of a flat one's;
    observed: the largest value in these units; arrangements: see
    `Null`; unseen: the same on `where`, inputs that the model cannot have memorized.
    """

    labels: list[Label]
    values: Float[np.ndarray, " h"]
    keys: list[Label]
    thresholds: Float[np.ndarray, " h"]
    null: Float[np.ndarray, " sample"]
    observed: float
    arrangements: float = math.inf
    levels: Float[np.ndarray, " h"] | float = math.inf
    where: str = "all inputs"
    unseen: Spectrum | None = None

    @property
    def by_label(self) -> dict[Label, float]:
        """Component → its value."""
        return dict(zip(self.labels, self.values.tolist(), strict=True))

    @property
    def strongest(self) -> list[Label]:
        """The keys, largest value first."""
        return sorted(self.keys, key=lambda label: -self.by_label[label])

    @property
    def explained(self) -> float:
        """Share of the logits' variance along the keys, the "trigonometric logit share" of Nanda et
        al. 2023: characters are orthogonal, so squared cosines add.
        """
        return sum(self.by_label[label] ** 2 for label in self.keys)

    @property
    def named_keys(self) -> list[Label]:
        """The keys that hold at least a hundredth of what all explain: those that a sentence names.

        A key of less stands out of its null, and does next to nothing.
        """
        least = NAMED_SHARE * self.explained
        return [label for label in self.keys if self.by_label[label] ** 2 >= least]

    @property
    def named_share(self) -> float:
        """The share of the logits' variance along those that a sentence names."""
        return sum(self.by_label[label] ** 2 for label in self.named_keys)

    @property
    def is_flat_in_any_order(self) -> bool:
        """Return whether no order of the elements changes the largest value."""
        return bool(np.ptp(self.null) < 1e-6)

    @property
    def unnamed_keys(self) -> list[Label]:
        """The components above their level, or above all permuted samples, that would be named, of
        which it is not told whether they are key.
        """
        least = np.minimum(self.levels, self.null.max())
        above = self.values > np.maximum(least, math.sqrt(NAMED_SHARE * self.explained))
        return [k for k, a in zip(self.labels, above, strict=True) if a and k not in self.keys]

    @property
    def undecided(self) -> str:
        """The reason for which the rule could find no key in these logits, whatever they were made
        of; "" where it could, or did.

        Squared cosines sum to at most 1. If most are about equal (a flat spectrum), the largest
        possible one is below the threshold, so no frequency could ever be key: say so instead of
        "no". Nor is a largest one denied that few permuted samples reach.
        """
        if self.keys:
            return ""
        size = np.sort(np.abs(self.values))
        quartile = int(0.25 * (len(size) - 1)) if len(size) else 0
        # three quarters of them are at least as large as the lower quartile
        others = float(np.square(np.full(len(size) - quartile - 1, size[quartile])).sum())
        room, level = math.sqrt(max(0.0, 1 - others)), float(self.thresholds.min(initial=math.inf))
        if level >= room:
            return (
                f"no frequency can stand out of a flat spectrum: a key exceeds {level:.2g}, and "
                f"beside the others one has at most {room:.2g}"
            )
        null, samples = self.test("", ""), len(self.null)
        if null.p_value <= NEAR and samples < self.arrangements:
            of = f"{null.p_text} of the largest against {samples} permuted samples"
            return of if 1 / samples < null.p_value else f"{of}, yet none is far above the others"
        return "" if self.unseen is None else self.unseen.undecided

    def test(self, metric: str, how: str, scale: float = 1.0) -> Null:
        """The largest value against those of the permuted samples, in units of 1/`scale`."""
        return Null.sampled(
            metric, scale * self.observed, scale * self.null, how, self.arrangements
        )


# --- the rule -------------------------------------------------------------------------------------
def share_spectrum(
    harmonics: Harmonics, x: Float[np.ndarray, "n ..."], rule: KeyRule, seed: int
) -> Spectrum:
    """Shares of the energy of the centered x (n, …); the null permutes the elements."""
    x = x.reshape(len(x), -1) - x.reshape(len(x), -1).mean(0)
    total, flat = max(float((x**2).sum()), 1e-24), harmonics.flat
    orders = permuted(rng("share null", seed), rule.permutations, len(x))

    def null_without(keys: list[Label]) -> Array:
        # the rest has no energy in these components: what an order brings there is the others'
        rest, others = harmonics.without(x, keys), ~np.isin(harmonics.labels, keys)
        energies = harmonics.permuted_energies(rest @ rest.T / total, orders)[:, others]
        held = (rest**2).sum() / total / np.maximum(energies.sum(1), 1e-300)
        return (energies / flat[others]).max(1) * held

    excess = harmonics.energies(x) / total / flat
    found = step_down(harmonics, excess, rule.factor * np.ones_like(flat), rule.alpha, null_without)
    return dataclasses.replace(found, values=excess * flat, thresholds=found.thresholds * flat)


def cosine_spectrum(harmonics: Harmonics, logits: LogitSums, rule: KeyRule, seed: int) -> Spectrum:
    """Cosines of logits with the characters χ(answer · class⁻¹), over all inputs and classes.

    The null permutes the classes, once with the answers and once without; the harder of the two
    counts. With the answers permuted alike right answers stay right: where they are memorized, they
    raise this null as they do the cosines.
    """
    characters, n = harmonics.characters, harmonics.group.order
    norms = np.sqrt(max(logits.squares, 1e-24) * logits.rows * (characters**2).sum(1))
    values = harmonics.correlate(logits.sums) / norms
    lookup = np.sqrt(harmonics.flat)  # cosines of a lookup table
    levels = np.maximum(rule.cosine, flat_level(values / lookup, rule.alpha) * lookup)
    orders = permuted(rng("relabeling null", seed), rule.permutations, n)

    def null_without(keys: list[Label]) -> Array:
        rest = harmonics.without(logits.sums.T, keys).T
        alone = (harmonics.correlate(rest, orders) / norms).max(1)
        alike = (harmonics.correlate_permuted(rest, orders) / norms).max(1)
        largest = np.array([alone, alike])
        return max(largest + TIE, key=lambda null: round(upper_quantile(null, rule.alpha), 6))

    return step_down(harmonics, values, levels, rule.alpha, null_without)


def step_down(
    harmonics: Harmonics,
    values: Float[np.ndarray, " h"],
    levels: Float[np.ndarray, " h"],
    alpha: float,
    null_without: Callable[[list[Label]], Array],
) -> Spectrum:
    """Call components key round by round, each against a null from which the keys found before are
    taken out: a strong key, permuted, spreads over all components and would hide the weaker ones.
    The first round holds the family-wise level alone (Romano and Wolf 2005).

    levels: what a key exceeds in any case; null_without(keys) -> (sample,) largest values.
    """
    keys, threshold, first = np.zeros(len(values), bool), np.inf, None
    labels = harmonics.labels
    # a component that too few arrangements tell apart is key of none
    told = np.array([harmonics.arrangements(k) * alpha >= 1 for k in labels])
    told |= ~(told & (values > levels)).any()
    while True:
        null = null_without([k for k, key in zip(labels, keys, strict=True) if key])
        first = null if first is None else first
        threshold = min(threshold, upper_quantile(null, alpha))
        found = (values > np.maximum(levels, threshold)) & told
        if found.sum() == keys.sum() or found.all():
            break
        keys = found
    asked = (values > levels) & told
    candidates = [k for k, is_asked in zip(labels, asked, strict=True) if is_asked]
    largest = [labels[int(values.argmax())]] if len(values) else []
    return Spectrum(
        labels,
        values,
        [k for k, key in zip(labels, found, strict=True) if key],
        np.maximum(levels, threshold),
        first,
        float(values.max(initial=0.0)),
        min(map(harmonics.arrangements, candidates or largest), default=math.inf),
        levels,
    )


def flat_level(values: Float[np.ndarray, " h"], alpha: float) -> float:
    """The level that the largest of the amplitudes `values` exceeds with probability `alpha` where
    they are those of noise.

    The energies of noise at different frequencies are exponentially distributed (Fisher 1929): of F
    of them the largest exceeds ln(F/alpha) times their mean with probability at most alpha. The
    mean is estimated from the lower quartile, ln(4/3) times the mean, which up to three quarters of
    key frequencies do not raise.

    >>> round(flat_level(np.ones(29), 0.002), 2)
    5.77
    """
    quartile = np.quantile(np.abs(values), 0.25, method="lower") if len(values) else 0.0
    return float(quartile) * math.sqrt(math.log(max(len(values), 1) / alpha) / math.log(4 / 3))


def upper_quantile(null: Float[np.ndarray, " sample"], alpha: float) -> float:
    """The value that a null of largest values exceeds with probability `alpha`.

    The empirical level where there are at least 1/alpha - 1 samples; with fewer the Gumbel
    distribution of their mean and standard deviation.
    """
    allowed = int(alpha * (len(null) + 1) + 1e-9)
    if allowed >= 1:
        return float(np.sort(null)[-allowed])
    euler = 0.5772156649015329
    return float(
        null.mean() - null.std() * np.sqrt(6) / np.pi * (euler + np.log(-np.log1p(-alpha)))
    )


def permuted(generator: np.random.Generator, samples: int, n: int) -> Int[np.ndarray, "sample n"]:
    """`samples` random orders of n elements."""
    return np.array([generator.permutation(n) for _ in range(samples)])


# --- logits by answer -----------------------------------------------------------------------------
@dataclass(frozen=True)
class LogitSums:
    """Logits, centered over classes for every input and then over inputs, summed by answer.

    sums (n, n): answer × class, both in the group's order; rows: inputs; squares: Σ of all squares.
    """

    sums: Float[np.ndarray, "n n"]
    rows: int
    squares: float


def sum_logits(
    subject: Subject, answers: Sequence[Int[Tensor, " row"]], columns: Sequence[int]
) -> list[LogitSums | None]:
    """For each of `answers` the sums over the rows whose answer is an element (0 … n-1; -1 leaves a
    row out); None where some element is no answer, which then has no mean to compare.

    columns: those of the elements' logits.
    Cost: one forward over the subject's data for all, a chunk at a time.
    """
    n, device = len(columns), subject.device
    of_elements = torch.tensor(columns, device=device)
    sums = torch.zeros(len(answers), n + 1, n, dtype=torch.float64, device=device)
    squares = [0.0] * len(answers)
    for part, found in subject.stream([LOGITS], at="answer"):
        logits = found[LOGITS][:, of_elements].double()
        logits -= logits.mean(1, keepdim=True)
        norms = torch.linalg.vector_norm(logits, dim=1).square()
        for i, answer in enumerate(answers):
            sums[i].index_add_(0, answer[part] % (n + 1), logits)  # what is left out: row n
            squares[i] += float(norms[answer[part] >= 0].sum())
    made: list[LogitSums | None] = []
    for answer, summed, square in zip(answers, sums[:, :n], squares, strict=True):
        counts = torch.bincount(answer[answer >= 0], minlength=n)
        rows = int(counts.sum())
        mean = summed.sum(0) / max(rows, 1)
        centered = (summed - counts[:, None] * mean).cpu().numpy()
        whole = LogitSums(centered, rows, square - rows * float(mean.square().sum()))
        made.append(whole if bool((counts > 0).all()) else None)
    return made


def unmemorized(subject: Subject, output: int) -> tuple[str, Bool[Tensor, " row"]] | None:
    """The rows whose answers the model cannot have memorized, and what they are: held-out inputs
    where the split is known, else those that it answers wrong. None where the data were drawn from
    held-out examples to begin with.
    """
    if not isinstance(subject.task, FiniteTask):
        return None
    if subject.split is None:
        return "inputs answered wrong", ~subject.correct()[:, output]
    held_out = torch.ones(len(subject.data), dtype=torch.bool, device=subject.device)
    held_out[subject.split["train"].to(subject.device)] = False
    return "held-out inputs", held_out[subject.answer_examples]


def logit_spectrum(
    subject: Subject,
    harmonics: Harmonics,
    answers: Int[Tensor, " row"],
    columns: Sequence[int],
    rule: KeyRule,
    seed: int,
    rest: tuple[str, Bool[Tensor, " row"]] | None,
) -> Spectrum:
    """`cosine_spectrum` of the subject's logits. A key over all inputs has to be key on the `rest`
    of `unmemorized`, too: of memorized pairs some components stand out because of the random
    weights they were learned with.
    """
    some = [answers] if rest is None else [answers, answers.where(rest[1], -1)]
    whole, *others = sum_logits(subject, some, columns)
    assert whole is not None  # every element is an answer
    found = cosine_spectrum(harmonics, whole, rule, seed)
    unseen = next(iter(others), None)
    if rest is None or unseen is None:
        return found
    own = dataclasses.replace(cosine_spectrum(harmonics, unseen, rule, seed), where=rest[0])
    keys = [key for key in found.keys if key in own.keys]
    return dataclasses.replace(found, keys=keys, unseen=own)


# --- cyclic groups --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Cycle:
    """A cyclic group on the classes of an output: ``classes[i]`` is the class of generatorⁱ."""

    output: str
    index: int
    classes: tuple[int, ...]

    @property
    def n(self) -> int:
        """Number of elements."""
        return len(self.classes)

    @property
    def harmonics(self) -> Harmonics:
        """Frequencies 1 … n//2."""
        return Harmonics(cyclic(self.n))

    def columns(self, subject: Subject) -> list[int]:
        """Columns of the elements' logits."""
        start = subject.known_task.output_slices[self.output].start
        return [start + label for label in self.classes]

    def exponents(self, subject: Subject) -> Int[Tensor, " row"]:
        """Exponent of every answer with respect to the generator; -1 where it is no power of it, as
        zero is none for a product modulo a prime.
        """
        targets = subject.targets[:, self.index]
        exponent = torch.full((max(int(targets.max()), *self.classes) + 2,), -1)
        exponent[list(self.classes)] = torch.arange(self.n)
        return exponent.to(targets.device)[targets]  # IGNORE = -1 reads the last, no class's


def cycles(subject: Subject) -> list[Cycle]:
    """The outputs whose classes a cyclic group acts on, where the data have every answer."""
    task, found = subject.known_task, list[Cycle]()
    for index, output in enumerate(task.outputs):
        group, classes = output.group, np.arange(output.n_classes)
        if (
            group is None
            and task.symmetry is not None
            and len(task.outputs) == 1
            and max(task.symmetry.tokens) < output.n_classes
        ):
            group, classes = task.symmetry.group, np.array(task.symmetry.tokens)
        if group is not None and group.is_cyclic and group.order > 1:
            cycle = Cycle(output.name, index, tuple(classes[np.argsort(group.logarithms)].tolist()))
            exponents = cycle.exponents(subject)
            if len(exponents[exponents >= 0].unique()) == cycle.n:
                found.append(cycle)
    return found


def cycle_spectrum(subject: Subject, cycle: Cycle, rule: KeyRule, seed: int) -> Spectrum:
    """The cosines of one output's logits with cos w(answer − class), and its key frequencies."""
    return logit_spectrum(
        subject,
        cycle.harmonics,
        cycle.exponents(subject),
        cycle.columns(subject),
        rule,
        seed,
        unmemorized(subject, cycle.index),
    )


def value_tokens(subject: Subject) -> list[int] | None:
    """Tokens of the cyclic group that acts on the operands, in the order of their logarithms; None
    where there is none.
    """
    symmetry = subject.task.symmetry if subject.task else None
    if symmetry is None or not symmetry.group.is_cyclic or symmetry.group.order < 2:
        return None
    return [symmetry.tokens[i] for i in np.argsort(symmetry.group.logarithms)]


def say_order(tokens: Sequence[int] | None) -> str:
    """The order in which tokens have frequencies, as a caveat; "" where that is of their numbers.

    >>> say_order([1, 5, 4, 6, 2, 3]), say_order(range(4))
    ('over tokens in the order 1, 5, 4, …', '')
    """
    listed = list(tokens or ())
    first = ", ".join(map(str, listed[:3]))
    return f"over tokens in the order {first}, …" * (listed != sorted(listed))


NAMED_SHARE = 0.01
"""Share of what all keys explain from which a key is named."""
HALF = 0.5
"""Share below which a part does not lead an account."""
MOST = 0.9
"""Share of the gain from which a part carries the loss, and not only part of it."""


def share_of_gain(own: float, part: float, n: int) -> float:
    """The share of what a loss is below that of n equal logits which a part of the logits gives
    back; NaN of a loss that is not below it.

    >>> share_of_gain(0.0, math.log(10) / 4, 10)
    0.75
    """
    chance = math.log(n)
    return (chance - part) / (chance - own) if own < chance else math.nan
