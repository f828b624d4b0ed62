"""The probe clock-pizza: by which of two algorithms a model adds modulo n."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim, first_of
from mechint.decide.null import why_undecidable
from mechint.groups.finite import cyclic
from mechint.groups.spectrum import Harmonics
from mechint.interventions import select_positions
from mechint.models.protocol import check_edits, gradients_of, run_hooked
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, ProbeResult
from mechint.probes import spectra
from mechint.probes.operands import (
    axis_tokens,
    embedding_rows,
    operand_positions,
    places_of,
    second_table,
)
from mechint.probes.removal import EmbeddingRemoval
from mechint.probes.spectra import (
    LARGEST_COSINE,
    MOST,
    PERMUTED_CLASSES,
    Array,
    Cycle,
    KeyRule,
    Spectrum,
    share_of_gain,
)
from mechint.probes.words import in_words, named
from mechint.subject import Subject
from mechint.subject.activations import slices
from mechint.task import IGNORE, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

Axes = tuple[list[int], list[int]]
"""Places of a group's elements on each axis of the grid, in the order of their exponents."""

PUBLISHED = {"clock": (0.33, 0.85), "pizza": (0.99, 0.17)}
"""Gradient symmetricity and distance irrelevance of the paper's models A (pizza) and B (clock)."""
MAX_TRIPLES = 2**15
"""Triples of two operands and a class of which all are taken, in about a second."""


@dataclass(frozen=True)
class ClockPizza(Probe):
    """Does the model combine its operands as a clock or as a pizza?

    With E_x the embedding of an operand and L_c a logit:

        gradient symmetricity = mean over (x, y, c) of cos(∂L_c/∂E_x, ∂L_c/∂E_y)
        distance irrelevance = mean over d of std(L_right at x − y = d) / std(L_right)

    A clock multiplies the operands' Fourier components, a pizza adds them first.
    """

    name: ClassVar[str] = "clock-pizza"
    topic: ClassVar[str] = "arithmetic and groups"
    source: ClassVar[str] = (
        "Zhong et al. 2023, The Clock and the Pizza, Sec. 4 (gradient symmetricity, distance "
        "irrelevance) and Appendix (circularity)"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.GRID, Need.ANSWERS, Need.EMBEDDING, Need.SYMMETRY)
    intervenes: ClassVar[bool] = True
    quick: ClassVar[bool] = True
    lead_rank: ClassVar[int] = 90

    triples: int = setting(1024, "random triples of two operands and a class", low=2)
    permutations: int = setting(499, "samples of the null and of the interval", low=1)
    symmetric: float = setting(0.9, "symmetricity of a pizza, at least", low=0, high=1)
    asymmetric: float = setting(0.6, "symmetricity of a clock, in size, at most", low=0, high=1)
    irrelevant: float = setting(0.6, "distance irrelevance of a clock, at least", low=0)
    relevant: float = setting(0.4, "distance irrelevance of a pizza, at most", low=0)
    effect: float = setting(0.025, "effect of the distance below which it is irrelevant", low=0)
    alpha: float = setting(0.01, "level of the finding", low=1e-6, high=1)

    def unmet(self, subject: Subject) -> str | None:
        if "hook_embed" not in subject.model.hook_dict:
            return "the model has no hook_embed, at which gradients are taken"
        cycles, order = spectra.cycles(subject), spectra.value_tokens(subject)
        grid = subject.known_task.grid
        if len(cycles) != 1 or order is None or cycles[0].n != len(order) or len(grid) != 2:
            return "it is not a sum of two operands in a cyclic group"
        if len(order) < 5:
            return f"its cyclic group has {len(order)} elements; expected at least 5"
        joined = getattr(getattr(subject.model, "config", None), "join", "")
        if second_table(subject) is not None or joined == "concat":
            return "its first layer reads an embedding each, whose coordinates gradients compare"
        if operand_positions(subject) is None:
            return "its operands have no positions of their own"
        if (axes := places_of(subject, order)) is None:
            return "its inputs are not all pairs of its cyclic group's elements"
        if sum_sign(subject, cycles[0], axes) is None:
            return "its answer is neither the sum nor the difference of the operands"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        def trial(mechanism: str, plant: Any, controls: Any) -> Trial:
            return Trial(
                f"{mechanism}, modular addition",
                plant,
                library.untrained(plant) | controls,
                lambda result, plant: float(result.metrics["mechanism"] != mechanism),
                "mechanism named (0 right, 1 wrong)",
                settings={"triples": 256},
            )

        trials = (
            # not all of `no_waves`: shuffled answers are no sum, and the probe refuses them
            trial(
                "clock",
                library.addition,
                library.lookup("modular-arithmetic", p=11)
                | {"lookup written in waves": library.lookup_in_waves},
            ),
            trial("pizza", library.pizza, {}),
        )
        return Calibration(trials, {"triples": 64, "permutations": 499})

    # --- measuring --------------------------------------------------------------------------------
    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        (cycle,), order = spectra.cycles(subject), spectra.value_tokens(subject)
        assert order is not None
        axes = places_of(subject, order)
        assert axes is not None
        rule, report = KeyRule(permutations=self.permutations), Report(self, subject)
        logits = spectra.cycle_spectrum(subject, cycle, rule, seed)
        report.metric("key_frequencies", logits.keys)
        report.metric(
            LARGEST_COSINE, logits.observed, null=logits.test(LARGEST_COSINE, PERMUTED_CLASSES)
        )
        self._add_symmetricity(report, cycle, axes, seed)
        self._add_irrelevance(report, cycle, axes)
        self._add_circles(report, order, logits)
        losses = key_losses(subject, cycle, axes, logits)
        report.metric("loss", losses.own, unit="nats")
        if not math.isnan(losses.alone):
            report.metric("loss.key_frequencies_alone", losses.alone, unit="nats")
            report.metric("loss.without_key_frequencies", losses.without, unit="nats")
        self._decide(report, cycle, axes, logits, losses)
        report.hero("symmetricity")
        return report.result()

    def _add_symmetricity(self, report: Report, cycle: Cycle, axes: Axes, seed: int) -> None:
        """As published, of the logit itself; and of the logit less the mean over the classes, which
        no softmax sees: over all triples where there are at most `MAX_TRIPLES`, else over random
        ones, with a 95% interval (bootstrap).
        """
        subject, n = report.subject, cycle.n
        draw = rng("clock-pizza triples", seed)
        width = subject.known_task.grid[1]
        every = n**3 <= MAX_TRIPLES
        x, y = (
            np.indices((n, n)).reshape(2, -1)
            if every
            else draw.integers(n, size=(self.triples, 2)).T
        )
        examples = np.array(axes[0])[x] * width + np.array(axes[1])[y]
        classes = np.indices((n, len(x)))[0] if every else draw.integers(n, size=(1, len(x)))
        turn, tokens, order = None, axis_tokens(subject), spectra.value_tokens(subject)
        shared = tokens is not None and not set(tokens[0]).isdisjoint(tokens[1])
        if order is not None and shared and sum_sign(subject, cycle, axes) == -1:
            turn = reflection(embedding_rows(subject, order))
        raw, centered = gradient_cosines(subject, examples, classes, cycle.columns(subject), turn)
        interval = None
        if not every:
            draw = rng("clock-pizza interval", seed)
            means = [draw.choice(centered, len(centered)).mean() for _ in range(self.permutations)]
            low, high = (float(end) for end in np.quantile(means, [0.025, 0.975]))
            report.metric("gradient_symmetricity.low", low)
            report.metric("gradient_symmetricity.high", high)
            interval = low, high
        report.metric("gradient_symmetricity", float(raw.mean()))
        report.metric("gradient_symmetricity.centered", float(centered.mean()))
        report.array("gradient_cosines", centered)
        report.figure(
            "symmetricity",
            figures.between(
                mean := float(centered.mean()),
                {f"published {name}": values[0] for name, values in PUBLISHED.items()},
                interval=interval,
                bands={
                    f"clock ≤ {self.asymmetric:g}": (
                        -self.asymmetric * (mean < 0),
                        self.asymmetric,
                    ),
                    f"pizza ≥ {self.symmetric:g}": (self.symmetric, 1.0),
                },
                x_range=(min(-0.02, 1.1 * mean), 1.05),
                title="Between clock and pizza",
                x_title="gradient symmetricity (−1 … 1)",
                caption="A clock multiplies the operands' Fourier components, a pizza adds them. "
                "Mean cosine of the gradients of a logit at the two operands"
                + ", with its 95% interval" * (not every)
                + ", beside those of the paper's clock and pizza; gray: the values of each.",
            ),
        )

    def _add_irrelevance(self, report: Report, cycle: Cycle, axes: Axes) -> None:
        """Of the right logit and of the largest wrong one, as published; of these less the mean
        over the classes; and how large the effect of the distance is.
        """
        subject = report.subject
        exponents = cycle.exponents(subject).cpu().numpy()
        sign = sum_sign(subject, cycle, axes)
        assert sign is not None
        logits = subject.logits()[:, cycle.columns(subject)].double().cpu().numpy()
        right = np.eye(cycle.n, dtype=bool)[exponents]
        grid = subject.known_task.grid

        def distances(values: Array) -> Array:
            return by_distance(values.reshape(grid)[np.ix_(*axes)], list(range(cycle.n)), sign)

        for ending, of in (("", logits), (".centered", logits - logits.mean(1, keepdims=True))):
            wrong = np.where(right, -np.inf, of).max(1)
            report.metric(f"distance_irrelevance{ending}", irrelevance(distances(of[right])))
            report.metric(f"distance_irrelevance_wrong{ending}", irrelevance(distances(wrong)))
        centered = distances((logits - logits.mean(1, keepdims=True))[right])
        report.metric("distance_effect", distance_effect(centered))
        means = centered.mean(1)
        report.figure(
            "distance",
            figures.lines(
                list(range(len(centered))),
                {"mean": means},
                bands={"mean": tuple(np.quantile(centered, [0.025, 0.975], axis=1))},
                title="Right logit by distance of the operands",
                x_title=f"distance between the operands (mod {len(centered)})",
                y_title="right logit less the mean (nats)",
                # logits that are all equal span nothing
                y_range=(min(0.0, float(centered.min())), 1.05 * float(centered.max()))
                if centered.any()
                else None,
                caption="Mean and 95% of the inputs at each distance, which explains "
                f"{means.var() / max(centered.var(), 1e-24):.0%} of the variance, more of a "
                "pizza's than of a clock's.",
            ),
        )

    def _add_circles(self, report: Report, order: list[int], logits: Spectrum) -> None:
        """Report the roundness of the ellipse on which each frequency puts the tokens."""
        rows = embedding_rows(report.subject, order).cpu().numpy()
        harmonics, n = Harmonics(cyclic(len(order))), len(order)
        energy = harmonics.energies(rows) / max(float(((rows - rows.mean(0)) ** 2).sum()), 1e-24)
        turning = [k for k in range(1, n // 2 + 1) if 2 * k != n]
        circles = {k: circularity(rows, harmonics.rows([k])) for k in turning}
        report.metric("circularity", circles, unit="1 a circle, 1/2 a line")
        report.table(
            "frequencies",
            {
                "frequency": turning,
                "circularity": list(circles.values()),
                "embedding share": [float(energy[k - 1]) for k in turning],
                "logits cosine": [logits.by_label[k] for k in turning],
                "key": [k in logits.keys for k in turning],
            },
            "one row per frequency",
            {"frequency": "cycles over the group", "embedding share": "0–1"},
        )

    # --- deciding ---------------------------------------------------------------------------------
    def mechanism(self, symmetricity: float, irrelevance: float, effect: float = 1.0) -> str:
        """The one of the two that the measures speak for.

        >>> ClockPizza().mechanism(0.99, 0.17), ClockPizza().mechanism(0.33, 0.85)
        ('pizza', 'clock')
        >>> ClockPizza().mechanism(0.97, 0.95), ClockPizza().mechanism(0.75, 0.5)
        ('both', 'neither')
        """
        none = effect < self.effect
        pizza = [symmetricity >= self.symmetric, irrelevance <= self.relevant and not none]
        clock = [abs(symmetricity) <= self.asymmetric, irrelevance >= self.irrelevant or none]
        if all(pizza) or all(clock):
            return "pizza" if all(pizza) else "clock"
        return "both" if any(pizza) and any(clock) else "neither"

    def _decide(
        self, report: Report, cycle: Cycle, axes: Axes, logits: Spectrum, losses: KeyLosses
    ) -> None:
        """The metric `mechanism` and the finding.

        A clock or a pizza computes with the key frequencies of its operands' embeddings: they have
        to be necessary and sufficient. A table of all pairs can have a clock's logits; its
        embeddings do not suffice.
        """
        metrics, keys = report.metrics, logits.keys
        value = metrics["gradient_symmetricity.centered"]
        low, high = (metrics.get(f"gradient_symmetricity.{end}", value) for end in ("low", "high"))
        irrelevance, effect = (
            metrics[name] for name in ("distance_irrelevance.centered", "distance_effect")
        )
        measured = self.mechanism(value, irrelevance, effect)
        ends = (self.mechanism(end, irrelevance, effect) for end in (low, high))
        # the one whose bar lies within the interval of the symmetricity
        spanned = next((end for end in ends if end in PUBLISHED), "")
        bar = math.copysign(self.asymmetric, value) if spanned == "clock" else self.symmetric
        learned = any(skill.beats_chance for skill in report.performance)
        shown = bool(keys) and losses.necessary and losses.sufficient
        few = why_undecidable([report.nulls[LARGEST_COSINE]], KeyRule().alpha) or ""
        partly = learned and keys and losses.necessary and not losses.sufficient
        doubt = first_of(
            (
                keys and math.isnan(losses.alone),
                "every frequency of the logits is key, so that none is left to take away",
            ),
            (few, few),
            (not keys, logits.undecided),
            (
                partly and measured != "neither",
                f"key frequencies {named(keys, 5)} of the logits are, in the embedding, "
                "necessary, not sufficient: loss "
                f"{losses.without:.2g} nats without them, {losses.alone:.2g} with them alone, "
                f"{losses.share:.0%} of what it gains",
            ),
            (
                learned and shown and measured == "both",
                "symmetric gradients speak for a pizza, irrelevant distances for a clock",
            ),
            (
                learned and shown and measured == "neither" and spanned,
                f"the gradient symmetricity, {value:.3f}, has a 95% interval from {low:.3f} to "
                f"{high:.3f}, which holds the bar of a {spanned}, {bar:g}",
            ),
        )
        mechanism = measured if shown and measured in PUBLISHED else "neither"
        verb = operation(report.subject, cycle, axes)
        if doubt:
            mechanism = "both" if measured == "both" else "unclear"
        report.metric("mechanism", mechanism)
        named_one, frequencies = (
            mechanism in PUBLISHED,
            in_words(len(logits.named_keys), "frequency"),
        )
        report.finding(
            Claim(
                f"The model {verb} as a {mechanism}.",
                no=first_of(
                    (
                        not keys,
                        f"The model {verb} neither as a clock nor as a pizza: no frequency is key.",
                    ),
                    (
                        not losses.necessary,
                        "Neither clock nor pizza: the loss does not need the key frequencies.",
                    ),
                    (True, f"The model {verb} neither as a clock nor as a pizza."),
                ),
                unclear=f"The measures speak for a {measured}; whether it {verb} as one is unclear."
                if doubt and keys and measured in PUBLISHED
                else f"Whether the model {verb} as a clock or as a pizza is unclear.",
                doubt=doubt,
                lead=f"It {verb} as a {mechanism}, with {frequencies}.",
                caveat="; ".join(
                    filter(
                        None,
                        (
                            spectra.say_order(spectra.value_tokens(report.subject)),
                            f"key frequencies alone give {min(losses.share, 1):.1%} of its gain, "
                            f"{spectra.MOST:.0%} asked" * (losses.share < 0.995),
                        ),
                    )
                ),
                causal=named_one,
                outputs=[cycle.output],
            ),
            Effect(
                value,
                label="gradient symmetricity",
                baseline=PUBLISHED["pizza"][0],
                baseline_label=f"published clock {PUBLISHED['clock'][0]}, pizza",
                interval=None if low == high == value else (low, high),
            )
            if named_one
            else None,
            null=LARGEST_COSINE,
            least=-1.0,
            holds=named_one,
            n=self.triples,
        )


def sum_sign(subject: Subject, cycle: Cycle, axes: Axes) -> int | None:
    """`answer_sign` of the exponents of the subject's answers."""
    exponents = subject.grid(cycle.exponents(subject)).cpu().numpy()
    return answer_sign(exponents[np.ix_(*axes)], list(range(cycle.n)))


def operation(subject: Subject, cycle: Cycle, axes: Axes) -> str:
    """The verb of the task; none of sums where the operands are not exponents in their order, as in
    a product.
    """
    if axes[0] != sorted(axes[0]):
        return "computes"
    return "adds" if sum_sign(subject, cycle, axes) == 1 else "subtracts"


@dataclass(frozen=True)
class KeyLosses:
    """Losses (nats) over n classes: of the model, with the key frequencies alone in the operands'
    embeddings, and without them; NaN where none is key or all are.
    """

    n: int
    own: float
    alone: float = math.nan
    without: float = math.nan

    @property
    def necessary(self) -> bool:
        """True if the loss without them is nearer to that of equal logits than to the model's."""
        return self.without > (self.own + math.log(self.n)) / 2

    @property
    def share(self) -> float:
        """The share that they alone give back of what the model gains over equal logits."""
        return share_of_gain(self.own, self.alone, self.n)

    @property
    def sufficient(self) -> bool:
        """True if they alone give back `MOST` of it."""
        return self.share >= MOST


def key_losses(subject: Subject, cycle: Cycle, places: Axes, logits: Spectrum) -> KeyLosses:
    """The losses of the cycle's output.

    places: where on both axes of the grid the operands stand, by exponent.
    """
    targets = torch.full_like(subject.targets, IGNORE)
    targets[:, cycle.index] = subject.targets[:, cycle.index]
    axes = axis_tokens(subject)
    assert axes is not None
    both = zip(axes, places, strict=True)
    edited = EmbeddingRemoval.of(subject, *([axis[i] for i in some] for axis, some in both))
    assert edited is not None  # `ClockPizza.unmet` asks for hook_embed
    loss = edited.loss(np.empty((0, cycle.n)), targets)
    others = [k for k in logits.labels if k not in logits.keys]
    if not logits.keys or not others:
        return KeyLosses(cycle.n, loss)
    rows = (cycle.harmonics.rows(some) for some in (others, logits.keys))
    return KeyLosses(cycle.n, loss, *(edited.loss(some, targets) for some in rows))


def gradient_cosines(
    subject: Subject,
    examples: Int[np.ndarray, " row"],
    chosen: Int[np.ndarray, "k row"],
    columns: list[int],
    turn: Float[Tensor, "d_embed d_embed"] | None = None,
) -> tuple[Float[np.ndarray, " triple"], Float[np.ndarray, " triple"]]:
    """Cosines of the gradients, at the embeddings of the two operands, of the logit of each class
    `chosen[:, i]` on example `examples[i]`; and of that logit less the mean of all classes'.

    columns: of the classes; turn: `reflection` of a difference, which is a sum of x and -y: the
    second gradient is then that at the embedding of -y. Gradients are taken at ``hook_embed``: of
    the token's embedding alone, not of its position's.
    """
    positions = operand_positions(subject)
    assert positions is not None
    check_edits(subject.model, ["hook_embed"])
    rows, picked = (torch.from_numpy(indices).to(subject.device) for indices in (examples, chosen))
    found: list[list[Array]] = [[], []]
    for part in slices(len(rows), subject.chunk):
        leaf: list[Tensor] = []

        def keep(activation: Tensor, hook: Any, leaf: list[Tensor] = leaf) -> Tensor:
            leaf.append(activation.detach().clone().requires_grad_())
            return leaf[0]

        with torch.enable_grad():
            logits = run_hooked(
                subject.model, subject.data[rows[part]].tokens, [("hook_embed", keep)]
            )
            logits = select_positions(logits, subject.answer_positions[rows[part]])[:, columns]
            one_each = (logits.gather(1, classes[:, None]) for classes in picked[:, part])
            mean, *own = (
                gradients_of(score.sum(), leaf, all_used=True, retain_graph=True)[0]
                for score in (logits.mean(1), *one_each)
            )
        each = torch.stack(own)
        for cosines, gradient in zip(found, (each, each - mean), strict=True):
            first, second = (gradient[:, :, position].double() for position in positions)
            if turn is not None:  # twice turned is what the embeddings span
                first, second = first @ (turn @ turn).T, second @ turn.T
            norms = (first.norm(dim=-1) * second.norm(dim=-1)).clamp_min(1e-30)
            cosines.append(((first * second).sum(-1) / norms).cpu().numpy())
    raw, centered = (np.concatenate(parts, 1).ravel() for parts in found)
    return raw, centered


def reflection(rows: Float[Tensor, "n d_embed"]) -> Float[Tensor, "d_embed d_embed"]:
    """The linear map of the embedding of each element, row i that of the exponent i, to that of its
    inverse, by least squares.

    >>> circle = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1]])
    >>> reflection(circle).round().tolist()
    [[1.0, 0.0], [0.0, -1.0]]
    """
    return torch.linalg.pinv(rows) @ rows.roll(-1, 0).flip(0)


def by_distance(
    grid: Float[np.ndarray, "n n"], order: list[int], sign: int
) -> Float[np.ndarray, "distance first"]:
    """Values over a grid of two operands by what the answer does not say.

    order lists the operands by exponent; sign is 1 where the answer is the sum of the exponents, so
    that their difference is the distance, and -1 where it is their difference and the sum is the
    distance. Row d holds the values at distance d, one for each first operand.

    >>> by_distance(np.arange(9.0).reshape(3, 3), [0, 1, 2], 1).tolist()
    [[0.0, 4.0, 8.0], [1.0, 5.0, 6.0], [2.0, 3.0, 7.0]]
    """
    m, places = len(order), np.array(order)
    first, distance = np.meshgrid(np.arange(m), np.arange(m))
    return grid[places[first], places[(sign * first + distance) % m]]


def answer_sign(exponents: Int[np.ndarray, "n n"], order: list[int]) -> int | None:
    """1 where the answer's exponent is the sum of the operands' (up to a constant), -1 where it is
    their difference, None elsewhere; for at least 3 elements.
    """
    m, inner = len(order), exponents[np.ix_(order, order)]
    x, y = np.ogrid[:m, :m]
    for sign in (1, -1):
        if ((inner - x - sign * y - inner[0, 0]) % m == 0).all():
            return sign
    return None


def irrelevance(values: Float[np.ndarray, "distance first"]) -> float:
    """Standard deviation over the pairs of one distance, mean over the distances, over that of all
    pairs: near 1 the distance tells nothing about the value (a clock), near 0 everything (a pizza).
    1 where nothing varies.

    >>> irrelevance(np.array([[1.0, 1.0], [3.0, 3.0]]))
    0.0
    """
    spread = float(values.std())
    return float(values.std(1).mean() / spread) if spread > 1e-12 else 1.0


def distance_effect(values: Float[np.ndarray, "distance first"]) -> float:
    """The change of the right logit with the distance, relative to how far it stands out of all
    classes': standard deviation over the distances of its mean, over its mean. Where it is near 0
    the irrelevance compares rounding errors.

    >>> distance_effect(np.array([[1.0, 1.0], [3.0, 3.0]]))
    0.5
    """
    margin = abs(float(values.mean()))
    return float(values.mean(1).std() / margin) if margin > 1e-12 else 0.0


def circularity(rows: Float[np.ndarray, "n d_model"], waves: Float[np.ndarray, "wave n"]) -> float:
    """Roundness of the ellipse on which a frequency puts the tokens: 1 a circle, 1/2 a line.

    rows in the order of the frequency's orthonormal cosine and sine, `waves`. With s1, s2 the
    singular values of waves @ rows it is (s1 + s2)² / (2 (s1² + s2²)), the share of the energy that
    turns one way.

    >>> round(circularity(np.eye(2), np.eye(2)), 3), round(circularity(np.eye(2), np.eye(2)[:1]), 3)
    (1.0, 0.5)
    """
    singular = np.linalg.svd(waves @ rows, compute_uv=False)
    energy = float((singular**2).sum())
    return float(singular.sum() ** 2 / (2 * energy)) if energy > 1e-24 else 0.5
