"""The Fourier probe: which frequencies of a cyclic group a model's embedding, neurons, residual
stream and logits hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from mechint import figures
from mechint.config import setting
from mechint.probe import Need, Probe, unmet_need
from mechint.results import Figure, Null, ProbeResult, Table
from mechint.subject import Subject
from probes import answers
from probes.answers import Cycle
from probes.fourier import neurons, spectra
from probes.fourier.neurons import Neurons
from probes.fourier.spectra import KeyFrequencyRule, Spectrum

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

T = TypeVar("T")


@dataclass(frozen=True)
class Fourier(Probe):
    """At which frequencies do embedding, neurons, residual stream and logits vary with the operands
    and the answer?

    With w = 2πk/n, k = 1 … n//2 (for even n the last is the Nyquist frequency, a cosine only):

    - `embedding.share`: rows of W_E of the value tokens, centred; energy of their DFT at ±k over
      all energy.
    - `neurons.share`: ``mlp.hook_post`` at the read position over the grid of both operands,
      centred; energy in {1, cos wx, sin wx} ⊗ {1, cos wy, sin wy} without the constant over all
      energy (Nanda et al. 2023, Sec. 4.2). `neurons.clusters` counts the neurons of which one
      frequency holds at least `neuron_fraction`.
    - `logits.cosine`: cosine of the centred logits with cos w(answer − class) over all inputs and
      classes; `logits.share` is its square, the share of the logits' variance that the frequency
      explains.
    - `residual.modes`: per layer the number of frequencies whose share of the variance of the mean
      residual vector per answer exceeds `factor` times the uniform null 2/(n − 1) (capacity source,
      Fourier modes) and the permuted null.

    A frequency is key by `spectra.KeyFrequencyRule`: above `factor` times a flat spectrum, above the permuted
    null of all frequencies together at level `alpha`, for the logits also above the cosine `cosine`
    and above `factor` times the lower quartile of all energies; that last level keeps a lookup
    table, whose spectrum is flat, silent. Where every frequency is used alike the logits are those
    of a lookup table, and no frequency is called key. `active` counts ω > μ + kσ over the
    frequencies, ω the amplitude (square root of the share), k = `active_sigma` (remainders, Sec.
    4).

    Several outputs are measured each at their own modulus; metrics are then dictionaries by output.
    Cost: two forwards over the data a layer, n²(d_model + permutations) and a 2-D transform a
    neuron; memory: one chunk of activations and blocks of neurons within the subject's limit.
    """

    name: ClassVar[str] = "fourier"
    source: ClassVar[str] = (
        "Nanda et al. 2023, Progress measures for grokking, Sec. 4; capacity, Fourier modes; "
        "remainders, Sec. 4"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK, Need.ANSWERS, Need.EMBEDDING)
    quick: ClassVar[bool] = True

    factor: float = setting(
        2.0, "times the level of a flat spectrum that a key frequency or a mode exceeds", low=1
    )
    cosine: float = setting(
        0.01, "least cosine of the logits with a key frequency's wave", low=0, high=1
    )
    alpha: float = setting(0.002, "family-wise level against the permuted null", low=1e-6, high=1)
    permutations: int = setting(999, "permutations of the elements in the null", low=1)
    active_sigma: float = setting(2.0, "k of the rule for active frequencies, ω > μ + kσ", low=0)
    neuron_fraction: float = setting(
        0.85, "share of a neuron's energy that makes a frequency its own", low=0, high=1
    )
    neuron_mixtures: int = setting(
        32, "random mixtures of all neurons whose permuted spectra make the null", low=1
    )
    operand_permutations: int = setting(
        99, "permutations of the operands in the null of neurons and residual stream", low=1
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
    def rule(self) -> KeyFrequencyRule:
        return KeyFrequencyRule(self.factor, self.cosine, self.alpha, self.permutations)

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        addition = Trial(
            "modular addition",
            library.addition,
            library.untrained(library.addition) | library.no_waves(),
            library.misses(
                lambda result: result.metrics["logits.key_frequencies"],
                lambda plant: plant.truth["frequencies"],
            ),
            "frequencies missed or made up",
            settings={"permutations": 499, "operand_permutations": 19, "steps": 0},
            detects=lambda result: bool(result.metrics["logits.key_frequencies"]),
        )
        return Calibration((addition,), {"permutations": 99, "operand_permutations": 9})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        cycles = answers.cycles(subject)
        embedding = self._embedding(subject, self.rule, seed)
        grid = self._neurons(subject, seed)
        logits = {
            cycle.output: answers.logit_spectrum(subject, cycle, self.rule, seed)
            for cycle in cycles
        }
        residual = {cycle.output: self._residual(subject, cycle, seed) for cycle in cycles}
        metrics, nulls, tables, shown = self._report(embedding, grid, logits, residual)
        if embedding is not None:
            shown["embedding"] = _spectrum_figure(
                embedding, "Token embedding", "share of the embedding's energy (0–1)"
            )
        if grid is not None:
            shown["neurons"] = _spectrum_figure(
                grid.spectrum, "Neurons over the input grid", "share of the neurons' energy (0–1)"
            )
            shown["neuron_images"] = _neuron_images(grid)
        if self.steps and len(subject.series) > 1:
            tables["steps"] = self._over_steps(subject, cycles, seed)
            shown["steps"] = _steps_figure(tables["steps"], self.active_sigma)
        return self.result(
            metrics=metrics,
            finding=_finding(embedding, logits),
            null=nulls,
            tables=tables,
            figures=shown,
            provenance={"key_rule": dataclasses.asdict(self.rule)},
        )

    # --- the four spectra -------------------------------------------------------------------------
    def _embedding(self, subject: Subject, rule: KeyFrequencyRule, seed: int) -> Spectrum | None:
        order = answers.value_tokens(subject)
        if order is None:
            return None
        weights = subject.model.W_E.detach()[order].double().cpu().numpy()
        return spectra.share_spectrum(weights, rule, seed)

    def _neurons(self, subject: Subject, seed: int) -> Neurons | None:
        order = answers.value_tokens(subject)
        if order is None or unmet_need(Need.MLP, subject) or unmet_need(Need.GRID, subject):
            return None
        grid = subject.task.grid  # type: ignore[union-attr]
        if len(grid) != 2 or max(order) >= min(grid):
            return None
        settings = {
            "own": self.neuron_fraction,
            "mixtures": self.neuron_mixtures,
            "permutations": self.operand_permutations,
        }
        return neurons.measure(subject, np.array(order), self.rule, seed=seed, **settings)

    def _residual(self, subject: Subject, cycle: Cycle, seed: int) -> dict[str, Spectrum]:
        names = [
            "blocks.0.hook_resid_pre",
            *(f"blocks.{layer}.hook_resid_post" for layer in range(subject.n_layers)),
        ]
        hooks = [name for name in names if name in subject.model.hook_dict]
        return {
            hook: answers.residual_spectrum(
                subject, cycle, hook, self.rule, self.operand_permutations, seed
            )
            for hook in hooks
        }

    # --- what is reported -------------------------------------------------------------------------
    def _report(
        self,
        embedding: Spectrum | None,
        grid: Neurons | None,
        logits: Mapping[str, Spectrum],
        residual: Mapping[str, Mapping[str, Spectrum]],
    ) -> tuple[dict[str, Any], dict[str, Null], dict[str, Table], dict[str, Figure]]:
        metrics: dict[str, Any] = {}
        nulls: dict[str, Null] = {}
        tables: dict[str, Table] = {}
        shown: dict[str, Figure] = {}
        parts = {
            "embedding": (embedding, "tokens in random order"),
            "neurons": (
                grid and grid.spectrum,
                "tokens in random order on both axes, in random mixtures of all neurons",
            ),
        }
        for part, (spectrum, how) in parts.items():
            if spectrum is not None:
                metrics |= self._shares(part, spectrum)
                nulls[f"{part}.largest_share"] = spectrum.test(
                    f"{part}.largest_share", f"the largest share with {how}"
                )
                tables[part] = _table(
                    spectrum, f"{part}: one row a frequency", {"share": "of the energy, 0–1"}
                )
        if grid is not None:
            metrics["neurons.clusters"] = grid.clusters
        if logits:
            metrics |= {
                "logits.key_frequencies": _one_or_all(
                    {name: spectrum.keys for name, spectrum in logits.items()}
                ),
                "logits.cosine": _one_or_all(
                    {name: spectrum.by_frequency for name, spectrum in logits.items()}
                ),
                "logits.share": _one_or_all(
                    {
                        name: {k: value**2 for k, value in spectrum.by_frequency.items()}
                        for name, spectrum in logits.items()
                    }
                ),
                "logits.threshold": _one_or_all(
                    {name: spectrum.threshold for name, spectrum in logits.items()}
                ),
                "logits.explained": _one_or_all(
                    {name: explained(spectrum) for name, spectrum in logits.items()}
                ),
                "logits.largest_cosine": _one_or_all(
                    {name: float(spectrum.values.max()) for name, spectrum in logits.items()}
                ),
                "residual.modes": _one_or_all(
                    {
                        name: {hook: len(found.keys) for hook, found in layers.items()}
                        for name, layers in residual.items()
                    }
                ),
            }
            strongest = max(logits, key=lambda name: logits[name].values.max())
            how = "the largest cosine with the classes in random order" + (
                f", output {strongest!r}" if len(logits) > 1 else ""
            )
            nulls["logits.largest_cosine"] = logits[strongest].test("logits.largest_cosine", how)
            for name, spectrum in list(logits.items())[:1]:
                tables["logits"] = _table(
                    spectrum,
                    f"logits, {name}: one row a frequency",
                    {"cosine": "with cos w(answer − class), −1 … 1"},
                    "cosine",
                )
                shown["logits"] = _spectrum_figure(
                    spectrum, f"Logits, {name}", "cosine with cos w(answer − class) (−1 … 1)"
                )
            tables["residual"] = _residual_table(residual)
            shown["residual"] = _residual_figure(residual)
        return metrics, nulls, tables, shown

    def _shares(self, part: str, spectrum: Spectrum) -> dict[str, Any]:
        return {
            f"{part}.key_frequencies": spectrum.keys,
            f"{part}.share": spectrum.by_frequency,
            f"{part}.threshold": spectrum.threshold,
            f"{part}.largest_share": float(spectrum.values.max()),
            f"{part}.active": spectra.active(np.sqrt(spectrum.values), self.active_sigma),
        }

    def _over_steps(self, subject: Subject, cycles: list[Cycle], seed: int) -> Table:
        """Active and key frequencies at up to `steps` checkpoints of the run, first and last among
        them.
        """
        rule = dataclasses.replace(self.rule, permutations=min(self.permutations, 99))
        quick = dataclasses.replace(self, operand_permutations=1)
        columns: dict[str, list[Any]] = {
            "step": [],
            "embedding active": [],
            "neurons active": [],
            "embedding keys": [],
            "logit keys": [],
        }
        for step, now in answers.checkpoints(subject, self.steps):
            columns["step"].append(step)
            embedding, grid = quick._embedding(now, rule, seed), quick._neurons(now, seed)
            logits = [answers.logit_spectrum(now, cycle, rule, seed) for cycle in cycles]
            columns["embedding active"].append(
                len(spectra.active(np.sqrt(embedding.values), self.active_sigma))
                if embedding
                else 0
            )
            columns["neurons active"].append(
                len(spectra.active(np.sqrt(grid.spectrum.values), self.active_sigma)) if grid else 0
            )
            columns["embedding keys"].append(len(embedding.keys) if embedding else 0)
            columns["logit keys"].append(sum(len(spectrum.keys) for spectrum in logits))
        return Table(
            columns,
            (
                f"one row a checkpoint; active: ω > μ + {self.active_sigma:g}σ; logit keys of all "
                "outputs together"
            ),
            {"step": "optimiser steps"},
        )


def explained(spectrum: Spectrum) -> float:
    """Share of the centred logits' variance that the key frequencies' waves explain together, 0–1.

    It is the "trigonometric logit share" of Nanda et al. 2023: the waves are orthogonal, so squared
    cosines add.
    """
    return float(sum(spectrum.values[k - 1] ** 2 for k in spectrum.keys))


# --- words and pictures ---------------------------------------------------------------------------
def _one_or_all(values: dict[str, T]) -> T | dict[str, T]:
    return next(iter(values.values())) if len(values) == 1 else values


def _table(spectrum: Spectrum, caption: str, units: dict[str, str], column: str = "share") -> Table:
    k = list(range(1, len(spectrum.values) + 1))
    columns = {
        "frequency": k,
        column: spectrum.values.tolist(),
        "key": [i in spectrum.keys for i in k],
    }
    return Table(columns, caption, {"frequency": "cycles over the group", **units})


def _spectrum_figure(spectrum: Spectrum, title: str, y_title: str) -> Figure:
    k = list(range(1, len(spectrum.values) + 1))
    keys = _listed(spectrum.keys) if spectrum.keys else "none"
    return figures.bars(
        k,
        {"measured": spectrum.values},
        title=title,
        x_title="frequency (cycles over the group)",
        y_title=y_title,
        levels={"key above": spectrum.threshold},
        highlight=spectrum.keys,
        caption=f"Key frequencies, above the dashed line: {keys}.",
    )


def _neuron_images(grid: Neurons) -> Figure:
    shown = list(grid.strongest.items())[:4]
    return figures.image_grid(
        {
            f"layer {layer}, neuron {neuron}: frequency {k}": image
            for k, (layer, neuron, image) in shown
        },
        title="The strongest neurons over the input grid",
        x_title="second operand",
        y_title="first operand",
        z_title="activation",
        caption=(
            "One neuron for each of the strongest frequencies: stripes of one period are a "
            "frequency, noise is none."
        ),
        columns=2,
    )


def _residual_table(residual: Mapping[str, Mapping[str, Spectrum]]) -> Table:
    rows = [
        (name, hook, len(found.keys), found.keys)
        for name, layers in residual.items()
        for hook, found in layers.items()
    ]
    return Table(
        {
            "output": [r[0] for r in rows],
            "hook": [r[1] for r in rows],
            "modes": [r[2] for r in rows],
            "frequencies": [r[3] for r in rows],
        },
        "one row an output and layer: Fourier modes of the mean residual vector per answer",
        {"modes": "frequencies above the null"},
    )


def _residual_figure(residual: Mapping[str, Mapping[str, Spectrum]]) -> Figure:
    shown = dict(list(residual.items())[:8])
    hooks = list(next(iter(shown.values())))
    names = [
        "embedding" if hook.endswith("resid_pre") else f"layer {hook.split('.')[1]}"
        for hook in hooks
    ]
    return figures.bars(
        names,
        {name: [len(layers[hook].keys) for hook in hooks] for name, layers in shown.items()},
        title="Fourier modes in the residual stream, by answer",
        x_title="after",
        y_title="modes (frequencies above the null)",
        caption=(
            "How many frequencies of the answer the mean residual vector at the read position "
            "carries, after each layer."
        ),
    )


def _steps_figure(table: Table, k: float) -> Figure:
    columns = table.columns
    return figures.lines(
        columns["step"],
        {name: columns[name] for name in list(columns)[1:]},
        title="Active frequencies over steps",
        x_title="step (optimiser steps)",
        y_title="frequencies (number)",
        markers=True,
        caption=(
            f"Active: amplitude above mean + {k:g} standard deviations over the frequencies; key: "
            "above the null."
        ),
    )


def _listed(items: Any) -> str:
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _finding(embedding: Spectrum | None, logits: Mapping[str, Spectrum]) -> str:
    """The sentences of the finding, every number from the spectra."""
    parts = [_logit_words(logits)] if logits else []
    used = {k for spectrum in logits.values() for k in spectrum.keys} if len(logits) == 1 else None
    if embedding is None:
        return " ".join(parts)
    if not embedding.keys:
        return " ".join(
            [
                *parts,
                (
                    "The embedding has no key frequency (largest share "
                    f"{embedding.values.max():.1%}, threshold {embedding.threshold:.1%})."
                ),
            ]
        )
    shares = ", ".join(
        f"{k} ({embedding.values[k - 1]:.1%})"
        for k in sorted(embedding.keys, key=lambda k: -embedding.values[k - 1])
    )
    parts.append(f"The embedding holds its energy at {shares}.")
    unused = [k for k in embedding.keys if used is not None and k not in used]
    if unused:
        held = ", ".join(
            f"frequency {k} holds {embedding.values[k - 1]:.1%} of the embedding" for k in unused
        )
        parts.append(f"The model does not use all of it: {held} and the logits do not use it.")
    return " ".join(parts)


def _logit_words(logits: Mapping[str, Spectrum]) -> str:
    if len(logits) > 1:
        keyed = {name: spectrum.keys for name, spectrum in logits.items() if spectrum.keys}
        listed = "; ".join(f"{name}: {', '.join(map(str, keys))}" for name, keys in keyed.items())
        return f"{len(keyed)} of {len(logits)} outputs have key frequencies in their logits" + (
            f" ({listed})." if listed else "."
        )
    (spectrum,) = logits.values()
    p_value = spectrum.test("", "").p_value
    if not spectrum.keys:
        return (
            f"The logits have no key frequency (largest cosine {spectrum.values.max():.3f}, "
            f"threshold {spectrum.threshold:.3f})."
        )
    noun = "frequency" if len(spectrum.keys) == 1 else "frequencies"
    return (
        f"The logits use {noun} {_listed(spectrum.keys)}, which explain "
        f"{explained(spectrum):.1%} of their variance "
        f"(largest cosine {spectrum.values.max():.2f}, p = {p_value:.2g})."
    )
