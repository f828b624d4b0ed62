"""The Fourier probe: which frequencies of a cyclic group a model's embedding, neurons, residual
stream and logits hold.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mechint.config import setting
from mechint.probe import Need, Probe, Report, unmet_need
from mechint.results import ProbeResult, Table
from mechint.subject import Subject
from probes import answers
from probes._fourier import drawing, neurons, reporting, spectra
from probes._fourier.neurons import Neurons
from probes._fourier.removals import RemovalNull, removals
from probes._fourier.spectra import KeyFrequencyRule, Spectrum
from probes.answers import Cycle
from probes.operands import embedding_rows, own_orders

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


@dataclass(frozen=True)
class Fourier(Probe):
    """At which frequencies do embedding, neurons, residual stream and logits vary with the operands
    and the answer?

    With w = 2πk/n, k = 1 … n//2 (for even n the last is the Nyquist frequency, a cosine only):

    - `embedding.share`: rows of W_E of the value tokens, beside those of the second operand where
      it has its own, centered; energy of their DFT at ±k over all energy.
    - `neurons.share`: ``mlp.hook_post`` at the read position over the grid of both operands,
      centered; energy in {1, cos wx, sin wx} ⊗ {1, cos wy, sin wy} without the constant over all
      energy (Nanda et al. 2023, Sec. 4.2). `neurons.clusters` counts the neurons of which one
      frequency holds at least `neuron_fraction`.
    - `logits.cosine`: cosine of the centered logits with cos w(answer − class) over all inputs and
      classes; `logits.share` is its square, the share of the logits' variance that the frequency
      explains.
    - `residual.modes`: per layer the number of frequencies whose share of the variance of the mean
      residual vector per answer exceeds `factor` times the uniform null 2/(n − 1) and the permuted
      null.
    - `embedding.removal`: what a frequency is worth to the model, the rise of the loss in nats on
      all inputs when it is projected out of the rows of W_E, for every frequency that is key in the
      embedding or the logits; `embedding.removal_unnamed`: of all other frequencies together;
      `embedding.removal_harmonics`: of the second harmonics 2k of the logits' key frequencies
      together, without those that are key themselves. A key frequency of the embedding that is not
      one of the logits is often such a harmonic, and needed (Zhong et al. 2023, accompanying
      pizzas). `embedding.removal_named`, all named ones together, and the harmonics are held
      against the removal of as many random directions among the unnamed frequencies, for which
      both are taken on at most `removal_examples` inputs. `neurons.removal`: the same as
      `embedding.removal` out of the last layer's neurons, as functions of the two operands;
      `unembedding.removal`: out of the columns of W_U.

    A frequency is key by `spectra.KeyFrequencyRule`: above `factor` times a flat spectrum, above
    the permuted null of all frequencies together at level `alpha`; for the logits in place of the
    first above the cosine `cosine` and `cosines.flat_level`: a lookup table has all frequencies.
    Their null orders the classes at random, with and without the answers (with them, what is known
    by heart stays right). A key is key on inputs not trained on, too, if these show every answer
    (`logits.unseen_cosine`): held-out ones, those answered wrong where the split is not known.
    `active` counts ω > μ + kσ over the frequencies, ω the amplitude (square root of the share),
    k = `active_sigma`.

    Several outputs are measured each at their own modulus; metrics are dictionaries by output, and
    the sentence is on those that stand out of the nulls of all together (`logits.largest_z`).
    Cost: a forward over the data, one per removal, n²(d_model + permutations), a 2-D transform per
    neuron; memory: a chunk of activations and blocks of neurons within the subject's limit.
    """

    name: ClassVar[str] = "fourier"
    source: ClassVar[str] = (
        "Nanda et al. 2023, Progress measures for grokking via mechanistic interpretability, "
        "Sec. 4; Zhong et al. 2023, The Clock and the Pizza (second harmonics); Mechanistic "
        "Interpretability on (Multi-task) Irreducible Integer Identifiers, Sec. 4 (active)"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK, Need.ANSWERS, Need.EMBEDDING)
    quick: ClassVar[bool] = True
    intervenes: ClassVar[bool] = True

    factor: float = setting(
        2.0, "times the level of a flat spectrum that a key frequency or a mode exceeds", low=1
    )
    cosine: float = setting(
        0.01, "least cosine of the logits with a key frequency's wave", low=0, high=1
    )
    alpha: float = setting(0.002, "family-wise level against the permuted null", low=1e-6, high=1)
    permutations: int = setting(499, "permutations of the elements in the null", low=1)
    active_sigma: float = setting(2.0, "k of the rule for active frequencies, ω > μ + kσ", low=0)
    neuron_fraction: float = setting(
        0.85, "share of a neuron's energy that makes a frequency its own", low=0, high=1
    )
    neuron_mixtures: int = setting(
        16, "random mixtures of all neurons whose permuted spectra make the null", low=1
    )
    operand_permutations: int = setting(
        99, "permutations of the operands in the null of neurons and residual stream", low=1
    )
    least_rise: float = setting(
        1e-3,
        "rise of the loss, in nats, above which the finding says that a removal matters",
        low=0,
    )
    removal_samples: int = setting(
        99, "random directions removed in the null of the removals, tested at p ≤ 0.01", low=1
    )
    removal_examples: int = setting(
        512, "inputs on which removals are held against random ones", low=1
    )
    steps: int = setting(20, "checkpoints of a run that are looked at; 0 for none", low=0)

    def unmet(self, subject: Subject) -> str | None:
        task = subject.task
        assert task is not None
        if answers.cycles(subject) or (task.symmetry is not None and task.symmetry.group.is_cyclic):
            return None
        return "no cyclic group acts on its tokens or answers" + (
            "; the probe irreps serves other groups" if task.symmetry else ""
        )

    @property
    def significance(self) -> float:
        return self.alpha

    @property
    def rule(self) -> KeyFrequencyRule:
        """When a frequency counts as key, from the probe's settings."""
        return KeyFrequencyRule(self.factor, self.cosine, self.alpha, self.permutations)

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library, trained
        from mechint.planted.calibration import Calibration, Trial

        def keys(result: ProbeResult) -> list[int]:
            return result.metrics["logits.key_frequencies"]

        half = {
            "half_trained": trained.half_trained,
            "false_claims": trained.not_needed(keys),
        }
        plants: dict[str, Any] = {
            "modular addition": (library.addition, library.no_waves(), half),
            "modular addition, second harmonic": (library.harmonics, {}, {}),
        }
        settings = {
            "permutations": 499,
            "operand_permutations": 19,
            "removal_samples": 9,
            "steps": 0,
        }
        trials = (
            Trial(
                name,
                plant,
                library.untrained(plant) | controls,
                library.misses(keys, lambda plant: plant.truth["frequencies"]),
                "frequencies missed or made up",
                settings=settings,
                detects=lambda result: bool(keys(result)),
                **more,
            )
            for name, (plant, controls, more) in plants.items()
        )
        return Calibration(tuple(trials), {"permutations": 99, "operand_permutations": 9})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        cycles = answers.cycles(subject)
        order = answers.value_tokens(subject)
        report = Report(self, subject)
        report.provenance["key_rule"] = dataclasses.asdict(self.rule)
        subject.keep([*_read(subject, cycles), *(_residuals(subject) if cycles else ())], "answer")
        embedding = self._embedding(subject, self.rule, seed)
        grid = self._neurons(subject, seed)
        logits = {
            cycle.output: answers.logit_spectrum(subject, cycle, self.rule, seed)
            for cycle in cycles
        }
        if embedding is not None:
            reporting.add_shares(
                report, "embedding", embedding, "tokens in random order", self.active_sigma
            )
        if grid is not None:
            how = "tokens in random order on both axes, in random mixtures of all neurons"
            reporting.add_shares(report, "neurons", grid.spectrum, how, self.active_sigma)
            reporting.add_neurons(report, grid)
        if logits:
            reporting.add_logits(report, cycles, logits)
            reporting.add_residual(
                report, {cycle.output: self._residual(subject, cycle, seed) for cycle in cycles}
            )
        if embedding is not None:
            reporting.add_embedding_finding(report, embedding)
            null = RemovalNull(self.removal_samples, self.removal_examples, seed)
            orders = own_orders(subject, order or [])
            if removed := removals(subject, cycles, orders, embedding, logits, null):
                reporting.add_removals(report, removed, self.least_rise)
        if self.steps and len(subject.series) > 1:
            table, shares = self._over_steps(subject, cycles, seed)
            report.table("steps", table)
            report.figure("steps", drawing.over_steps(table, self.active_sigma))
            if shares.columns:
                report.table("embedding over steps", shares)
                report.figure("embedding over steps", drawing.shares_over_steps(shares))
        return report.result()

    # --- the four spectra -------------------------------------------------------------------------
    def _embedding(self, subject: Subject, rule: KeyFrequencyRule, seed: int) -> Spectrum | None:
        order = answers.value_tokens(subject)
        if order is None:
            return None
        weights = embedding_rows(subject, *own_orders(subject, order)).cpu().numpy()
        return spectra.share_spectrum(weights, rule, seed)

    def _neurons(self, subject: Subject, seed: int) -> Neurons | None:
        order = _on_grid(subject)
        if order is None:
            return None
        settings = {
            "own": self.neuron_fraction,
            "mixtures": self.neuron_mixtures,
            "permutations": self.operand_permutations,
        }
        return neurons.measure(subject, np.array(order), self.rule, seed=seed, **settings)

    def _residual(self, subject: Subject, cycle: Cycle, seed: int) -> dict[str, Spectrum]:
        return {
            hook: answers.residual_spectrum(
                subject, cycle, hook, self.rule, self.operand_permutations, seed
            )
            for hook in _residuals(subject)
        }

    def _over_steps(self, subject: Subject, cycles: list[Cycle], seed: int) -> tuple[Table, Table]:
        """Active and key frequencies at up to `steps` checkpoints of the run, first and last among
        them; and every frequency's share of the embedding's energy there.
        """
        few = dataclasses.replace(self.rule, permutations=min(self.permutations, 99))
        quick = dataclasses.replace(self, operand_permutations=1)
        columns: dict[str, list[Any]] = {
            "step": [],
            "embedding active": [],
            "neurons active": [],
            "embedding keys": [],
            "logit keys": [],
        }
        shares: dict[str, list[Any]] = {}
        for step, now in answers.checkpoints(subject, self.steps):
            columns["step"].append(step)
            now.keep(_read(now, cycles), "answer")
            embedding, grid = quick._embedding(now, few, seed), quick._neurons(now, seed)
            logits = [answers.logit_spectrum(now, cycle, self.rule, seed).keys for cycle in cycles]
            columns["embedding active"].append(
                len(spectra.active(np.sqrt(embedding.values), self.active_sigma))
                if embedding
                else 0
            )
            columns["neurons active"].append(
                len(spectra.active(np.sqrt(grid.spectrum.values), self.active_sigma)) if grid else 0
            )
            columns["embedding keys"].append(len(embedding.keys) if embedding else 0)
            if embedding is not None:
                shares.setdefault("step", []).append(step)
                for k, share in enumerate(embedding.values.tolist(), start=1):
                    shares.setdefault(str(k), []).append(share)
            columns["logit keys"].append(sum(map(len, logits)))
        unit = {"step": "optimizer steps"}
        active = (
            f"one row per checkpoint; active: ω > μ + {self.active_sigma:g}σ; logit keys of all "
            "outputs together"
        )
        each = "one row per checkpoint, one column per frequency: share of the embedding's energy"
        return Table(columns, active, unit), Table(shares, each, unit if shares else {})


def _on_grid(subject: Subject) -> list[int] | None:
    """The tokens of the elements in order, where neurons can be seen over a grid of two operands;
    None elsewhere.
    """
    order = answers.value_tokens(subject)
    if order is None or unmet_need(Need.MLP, subject) or unmet_need(Need.GRID, subject):
        return None
    grid = subject.task.grid  # type: ignore[union-attr]
    return None if len(grid) != 2 or max(order) >= min(grid) else order


def _read(subject: Subject, cycles: list[Cycle]) -> list[str]:
    """What is read at every checkpoint, at the answer: logits and neurons."""
    layers = range(subject.n_layers) if _on_grid(subject) is not None else ()
    return [answers.LOGITS] * bool(cycles) + [f"blocks.{i}.mlp.hook_post" for i in layers]


def _residuals(subject: Subject) -> list[str]:
    """The residual stream before, between and after the blocks, as far as the model has it."""
    after = [f"blocks.{layer}.hook_resid_post" for layer in range(subject.n_layers)]
    return [name for name in ("blocks.0.hook_resid_pre", *after) if name in subject.hooks]
