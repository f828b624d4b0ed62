"""The probe clock-pizza: by which of two algorithms a model adds modulo n."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mechint import figures
from mechint.config import setting
from mechint.probe import Need, Probe, Report
from mechint.results import ProbeResult
from mechint.subject import Subject
from mechint.task import rng
from probes import answers
from probes._clock_pizza import measures
from probes._clock_pizza.measures import Triples
from probes._clock_pizza.verdict import Needed, add_finding
from probes._fourier import spectra
from probes._fourier.cosines import RELABELED
from probes._fourier.spectra import Array, KeyFrequencyRule, Spectrum
from probes.answers import Cycle
from probes.operands import embedding_rows, operand_positions

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


@dataclass(frozen=True)
class ClockPizza(Probe):
    """Does the model add its operands as a clock, as a pizza, as both or as neither?

    Every logit is taken less the mean over the classes, which no softmax sees.

    - `gradient_symmetricity`: cosine of the gradients of a logit at the embeddings of the two
      operands, mean over random triples of two operands and a class. A pizza adds the embeddings
      before anything else and has 1; a clock multiplies them and has less. With its 95% interval
      over triples (bootstrap), and no p-value: initial weights are symmetric too.
    - `distance_irrelevance`: of the logit of the right class, standard deviation over the pairs of
      one distance between the operands, mean over the distances, over that of all pairs;
      `distance_irrelevance_wrong`: of the largest wrong logit. A clock's logit does not depend on
      the distance, 1; a pizza's does, near 0. Over all pairs, so that nothing is left to chance.
    - `distance_effect`: standard deviation over the distances of the right logit's mean, over how
      far that logit stands above the mean of all.
    - `circularity`: for every frequency how round the ellipse is on which the embedding puts the
      tokens, 1 a circle, 1/2 a line.

    `mechanism` is "pizza" where the gradients are symmetric (at least `symmetric`) and distance is
    relevant (at most `relevant`, and an effect of at least `effect`); "clock" where they are not
    (at most `asymmetric`) and distance is irrelevant (at least `irrelevant`, or less effect);
    "both" with one sign of each; "neither" else, where a
    measure lies in between, as in many models with ordinary attention, where no frequency of the
    logits is key, so that the question does not arise, or where the loss does not rest on the
    key frequencies: taken down to these alone, the operands' embeddings have to keep the loss
    (`loss.key_frequencies_alone`) nearer to the model's own than to that of equal logits, and
    without them the loss (`loss.without_key_frequencies`) has to be nearer to the latter. A table
    of all pairs whose unembedding writes few frequencies fails that. The measures are of the whole
    model; layers deeper than one can be symmetric and irrelevant of distance at once.

    `effect` was chosen on plants alone: of 18 planted clocks (p = 17, 31 and 59, noise 0 to 0.1)
    the largest effect is 0.021, of 18 planted pizzas the smallest 0.23. All cut-offs were then held
    against models that had no part in them: 156 plants of other moduli, and the published models
    whose authors name the mechanism (``docs/nulls.md``).

    Cost: four forwards over the data, forward and backward on the triples. Memory: a chunk's
    gradients.
    """

    name: ClassVar[str] = "clock-pizza"
    source: ClassVar[str] = (
        "Zhong et al. 2023, The Clock and the Pizza, Sec. 4 (gradient symmetricity, distance "
        "irrelevance) and Appendix (circularity)"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.GRID, Need.ANSWERS, Need.EMBEDDING, Need.SYMMETRY)
    intervenes: ClassVar[bool] = True
    quick: ClassVar[bool] = True

    triples: int = setting(1024, "random triples of two operands and a class", low=2)
    permutations: int = setting(499, "samples of the null and of the interval", low=1)
    symmetric: float = setting(0.9, "symmetricity of a pizza, at least", low=0, high=1)
    asymmetric: float = setting(0.6, "symmetricity of a clock, at most", low=-1, high=1)
    irrelevant: float = setting(0.6, "distance irrelevance of a clock, at least", low=0)
    relevant: float = setting(0.4, "distance irrelevance of a pizza, at most", low=0)
    effect: float = setting(0.025, "effect of the distance below which it is irrelevant", low=0)
    alpha: float = setting(0.01, "level of the finding", low=1e-6, high=1)

    def unmet(self, subject: Subject) -> str | None:
        if "hook_embed" not in subject.model.hook_dict:
            return "the model has no hook_embed, at which gradients are taken"
        cycles, order = answers.cycles(subject), answers.value_tokens(subject)
        grid = subject.task.grid  # type: ignore[union-attr]
        if len(cycles) != 1 or order is None or cycles[0].n != len(order) or len(grid) != 2:
            return "it is not a sum of two operands in a cyclic group"
        if len(order) < 5 or max(order) >= min(grid):
            return f"its cyclic group has {len(order)} elements; expected at least 5"
        if operand_positions(subject) is None:
            return "its operands have no positions of their own"
        if self._sign(subject, cycles[0], order) is None:
            return "its answer is neither the sum nor the difference of the operands"
        return None

    @property
    def significance(self) -> float:
        return self.alpha

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
        return Calibration(trials, {"triples": 64, "permutations": 99})

    # --- measuring --------------------------------------------------------------------------------
    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        (cycle,) = answers.cycles(subject)
        order = answers.value_tokens(subject)
        assert order is not None
        logits = answers.logit_spectrum(
            subject, cycle, KeyFrequencyRule(permutations=self.permutations), seed
        )
        report = Report(self, subject)
        report.metric("key_frequencies", logits.keys)
        report.metric(
            "logits.largest_cosine",
            float(logits.values.max()),
            null=logits.test("logits.largest_cosine", RELABELED),
        )
        triples = self._gradients(subject, cycle, order, seed)
        self._add_symmetricity(report, triples, seed)
        self._add_irrelevance(report, cycle, order)
        self._add_circles(report, order, logits)
        measures_of = ("gradient_symmetricity", "distance_irrelevance", "distance_effect")
        symmetricity, irrelevance, effect = (report.metrics[name] for name in measures_of)
        measured = self.mechanism(symmetricity, irrelevance, effect)
        needed = Needed.of(subject, cycle, order, logits.keys)
        add_finding(report, logits, needed, measured, self.triples)
        return report.result()

    def _gradients(self, subject: Subject, cycle: Cycle, order: list[int], seed: int) -> Triples:
        positions = operand_positions(subject)
        assert positions is not None
        draw = rng("clock-pizza triples", seed)
        pairs = np.array(order)[draw.integers(len(order), size=(self.triples, 2))]
        examples = pairs[:, 0] * subject.task.grid[1] + pairs[:, 1]  # type: ignore[union-attr]
        classes = draw.integers(cycle.n, size=self.triples)
        columns = self._columns(subject, cycle)
        return measures.gradients(subject, examples, classes, positions, columns)

    def _columns(self, subject: Subject, cycle: Cycle) -> Array:
        """(class,) columns of the logits, by exponent."""
        assert subject.task is not None
        return subject.task.output_slices[cycle.output].start + np.array(cycle.classes)

    def _exponents(self, subject: Subject, cycle: Cycle) -> Array:
        """(example,) exponents of the answers; -1 where the answer is not on the cycle."""
        targets = subject.targets[:, cycle.index]
        return answers.answer_positions(cycle, targets)[0].cpu().numpy()

    def _sign(self, subject: Subject, cycle: Cycle, order: list[int]) -> int | None:
        grid = subject.task.grid  # type: ignore[union-attr]
        return measures.answer_sign(self._exponents(subject, cycle).reshape(grid), np.array(order))

    def _add_symmetricity(self, report: Report, triples: Triples, seed: int) -> None:
        draw, cosines = rng("clock-pizza interval", seed), triples.cosines
        means = [float(draw.choice(cosines, len(cosines)).mean()) for _ in range(self.permutations)]
        report.metric("gradient_symmetricity", float(cosines.mean()))
        report.metric("gradient_symmetricity.low", float(np.quantile(means, 0.025)))
        report.metric("gradient_symmetricity.high", float(np.quantile(means, 0.975)))
        report.array("gradient_cosines", cosines)
        report.figure(
            "gradients",
            figures.histogram(
                {"random triples": cosines},
                title="Gradients at the two operands",
                x_title="cosine of the gradients of one logit (−1 … 1)",
                caption="A pizza's gradients are alike, a clock's are not.",
            ),
        )

    def _add_irrelevance(self, report: Report, cycle: Cycle, order: list[int]) -> None:
        subject = report.subject
        sign, values = self._sign(subject, cycle, order), np.array(order)
        assert sign is not None
        grid = subject.task.grid  # type: ignore[union-attr]
        exponents = self._exponents(subject, cycle)
        found = measures.correct_and_wrong(subject, self._columns(subject, cycle), exponents)
        names = ("distance_irrelevance", "distance_irrelevance_wrong")
        for name, logit in zip(names, found, strict=True):
            by_distance = measures.by_distance(logit.reshape(grid), values, sign)
            report.metric(name, measures.distance_irrelevance(by_distance))
        correct = measures.by_distance(found[0].reshape(grid), values, sign)
        report.metric("distance_effect", measures.distance_effect(correct))
        report.figure(
            "distance",
            figures.heatmap(
                correct,
                title="Logit of the right class",
                x_title="first operand (exponent)",
                y_title="distance between the operands (exponent)",
                z_title="logit less the mean (nats)",
                caption="Rows of one color: the logit depends on the distance, as a pizza's does.",
                annotate=False,
            ),
        )

    def _add_circles(self, report: Report, order: list[int], logits: Spectrum) -> None:
        rows = embedding_rows(report.subject, order).cpu().numpy()
        n = len(order)
        shares = spectra.energies(rows) / max(float(((rows - rows.mean(0)) ** 2).sum()), 1e-24)
        frequencies = [k for k in range(1, n // 2 + 1) if 2 * k != n]  # which turn
        waves = spectra.waves(n)
        circles = {k: measures.circularity(rows, waves[k - 1]) for k in frequencies}
        report.metric("circularity", circles, unit="1 a circle, 1/2 a line")
        report.table(
            "frequencies",
            {
                "frequency": frequencies,
                "circularity": list(circles.values()),
                "embedding share": [float(shares[k - 1]) for k in frequencies],
                "logits cosine": [float(logits.values[k - 1]) for k in frequencies],
                "key": [k in logits.keys for k in frequencies],
            },
            "one row per frequency",
            {"frequency": "cycles over the group", "embedding share": "0–1"},
        )

    # --- the verdict ------------------------------------------------------------------------------
    def mechanism(self, symmetricity: float, irrelevance: float, effect: float = 1.0) -> str:
        """Which of the two the measures speak for.

        >>> ClockPizza().mechanism(0.99, 0.17), ClockPizza().mechanism(0.33, 0.85)
        ('pizza', 'clock')
        >>> ClockPizza().mechanism(0.97, 0.95), ClockPizza().mechanism(0.75, 0.5)
        ('both', 'neither')
        """
        none = effect < self.effect
        pizza = [symmetricity >= self.symmetric, irrelevance <= self.relevant and not none]
        clock = [symmetricity <= self.asymmetric, irrelevance >= self.irrelevant or none]
        if all(pizza) or all(clock):
            return "pizza" if all(pizza) else "clock"
        return "both" if any(pizza) and any(clock) else "neither"
