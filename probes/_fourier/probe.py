"""The probe fourier: which frequencies of a cyclic group a model computes with, and needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Float

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.decide.null import MaxNull
from mechint.groups.finite import cyclic
from mechint.groups.spectrum import Harmonics, element_orders
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, Null, ProbeResult
from mechint.probes import removal, spectra
from mechint.probes._spectrum_findings import (
    add_embedding_finding,
    add_logits_finding,
)
from mechint.probes.operands import embedding_rows, own_orders
from mechint.probes.removal import EmbeddingRemoval, Removals
from mechint.probes.spectra import (
    HALF,
    LARGEST_COSINE,
    Cycle,
    KeyRule,
    Spectrum,
)
from mechint.probes.words import in_words, named
from mechint.subject import Subject

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

T = TypeVar("T")


@dataclass(frozen=True)
class Fourier(Probe):
    """At which frequencies do embedding and logits vary, and which does the model need?

    With w = 2πk/n, k = 1 … n//2, for embedding rows E[x] and logits L:

        share_E(k) = ‖Σ_x E[x] e^(−iwx)‖² / ‖E‖²         cos_L(k) = cos(L, cos w(answer − class))
    """

    name: ClassVar[str] = "fourier"
    topic: ClassVar[str] = "arithmetic and groups"
    source: ClassVar[str] = (
        "Nanda et al. 2023, Progress measures for grokking via mechanistic interpretability, Sec. 4"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK, Need.ANSWERS, Need.EMBEDDING)
    quick: ClassVar[bool] = True
    intervenes: ClassVar[bool] = True
    lead_rank: ClassVar[int] = 80

    factor: float = setting(
        2.0, "times its share of a flat spectrum that a key frequency exceeds", low=1
    )
    cosine: float = setting(0.01, "least cosine of the logits with a key frequency", low=0, high=1)
    alpha: float = setting(0.002, "family-wise level against the permuted null", low=1e-6, high=1)
    permutations: int = setting(499, "permutations of the elements in the null", low=1)
    least_rise: float = setting(
        1e-3, "rise of the loss, in nats, above which a removal matters", low=0
    )
    removal_samples: int = setting(
        99, "random directions removed in the null of the removals, tested at p ≤ 0.01", low=1
    )
    removal_examples: int = setting(
        2048, "inputs on which removals are held against random ones", low=1
    )

    def unmet(self, subject: Subject) -> str | None:
        task = subject.known_task
        if spectra.cycles(subject) or spectra.value_tokens(subject):
            return None
        return "no cyclic group acts on its tokens or answers" + (
            "; irreps serves other groups" if task.symmetry else ""
        )

    @property
    def rule(self) -> KeyRule:
        """The rule by which a frequency counts as key."""
        return KeyRule(self.factor, self.cosine, self.alpha, self.permutations)

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library, trained
        from mechint.planted.calibration import Calibration, Trial

        def keys(result: ProbeResult) -> list[int]:
            return result.metrics["logits.key_frequencies"]

        half = {"half_trained": trained.half_trained, "false_claims": trained.not_needed(keys)}
        plants: dict[str, Any] = {
            "modular addition": (library.addition, library.no_waves(), half),
            "modular addition, second harmonic": (library.harmonics, {}, {}),
        }
        trials = (
            Trial(
                name,
                plant,
                library.untrained(plant) | controls,
                library.misses(keys, lambda plant: plant.truth["frequencies"]),
                "frequencies missed or made up",
                settings={"permutations": 499, "removal_samples": 9},
                detects=lambda result: bool(keys(result)),
                **more,
            )
            for name, (plant, controls, more) in plants.items()
        )
        return Calibration(tuple(trials), {"permutations": 99})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        cycles, order = spectra.cycles(subject), spectra.value_tokens(subject)
        report, edited = Report(self, subject), None
        if order is not None:
            edited = EmbeddingRemoval.of(subject, *own_orders(subject, order))
        logits = {
            cycle.output: spectra.cycle_spectrum(subject, cycle, self.rule, seed)
            for cycle in cycles
        }
        shown: dict[str, Spectrum] = {}
        if logits:
            add_logits(report, cycles, logits)
            shown["logits"] = next(iter(logits.values()))
        if order is not None:
            rows = embedding_rows(subject, *own_orders(subject, order)).cpu().numpy()
            harmonics = Harmonics(cyclic(len(order)))
            embedding = spectra.share_spectrum(harmonics, rows, self.rule, seed)
            shown = {"embedding": embedding, **shown}
            add_embedding(report, embedding, harmonics)
            if edited is not None:
                self._remove(report, cycles, logits, embedding, harmonics, edited, seed)
        draw_spectra(report, shown)
        return report.result()

    # --- what the model needs -------------------------------------------------------------------
    def _remove(
        self,
        report: Report,
        cycles: Sequence[Cycle],
        logits: Mapping[str, Spectrum],
        embedding: Spectrum,
        harmonics: Harmonics,
        edited: EmbeddingRemoval,
        seed: int,
    ) -> None:
        """The loss without each key frequency in the embedding, all of them, and all others."""
        n = harmonics.group.order
        # where operands and answers are of one group, the logits' frequencies are the operands'
        own = cycles[0] if len(cycles) == 1 and cycles[0].n == n else None
        keys: list[Any] = logits[own.output].keys if own else []
        key = sorted({*embedding.keys, *keys})
        others = [k for k in harmonics.labels if k not in key]
        removals = Removals(report, edited, harmonics, self.removal_samples, seed)
        needed = removals.add(key, others, key, self.removal_examples, self.least_rise)
        if key:
            removal.add_finding(report, "frequency", needed, others, self.least_rise)
            draw_removals(report, key, needed, others)


# --- embedding and logits -------------------------------------------------------------------------
def add_embedding(report: Report, spectrum: Spectrum, harmonics: Harmonics) -> None:
    """Shares of the embedding's energy, and the finding on its key frequencies."""
    name, flat = "embedding.largest_share", float(harmonics.flat[0])
    null = spectrum.test(name, "the largest share with permuted tokens", flat)
    report.metric("embedding.key_frequencies", spectrum.keys)
    report.metric("embedding.share", spectrum.by_label, unit="share of the energy, 0–1")
    strip = np.array(list(spectrum.by_label.values()))
    report.array("strip", strip, f"energy of the embedding by frequency, 1 … {len(strip)}")
    report.metric("embedding.threshold", float(spectrum.thresholds.max()))
    report.metric(name, float(spectrum.values.max()), null=null)
    add_embedding_finding(report, spectrum, harmonics, "frequency", "embedding", name)


def add_logits(report: Report, cycles: Sequence[Cycle], logits: Mapping[str, Spectrum]) -> None:
    """Cosines of each output's logits, and the finding on their key frequencies."""
    of = {
        "key_frequencies": lambda one: one.keys,
        "cosine": lambda one: one.by_label,
        "share": lambda one: {k: v**2 for k, v in one.by_label.items()},
        "threshold": lambda one: float(one.thresholds.max()),
        "explained": lambda one: one.explained,
    }
    for name, value in of.items():
        values = {output: value(spectrum) for output, spectrum in logits.items()}
        report.metric(f"logits.{name}", one_or_all(values))
    if len(logits) > 1:
        largest = {output: float(spectrum.values.max()) for output, spectrum in logits.items()}
        report.metric(LARGEST_COSINE, largest)
        add_outputs(report, cycles, logits)
        return
    (one,) = logits.values()
    report.metric("frequencies", " ".join(map(str, one.keys)) or "none")
    add_logits_finding(report, one, "frequency", one.keys)


def add_outputs(report: Report, cycles: Sequence[Cycle], logits: Mapping[str, Spectrum]) -> None:
    """The finding on several outputs of different moduli, all of them together.

    A cosine says different things at different moduli: modulo 2 and 3 it is 1 wherever answers are
    right, and one of two or of six orders of the classes reaches that. Outputs are compared by how
    far each stands out of its own null.
    """
    alpha = report.probe.significance
    tested = {
        cycle.output: logits[cycle.output]
        for cycle in cycles
        if element_orders(cyclic(cycle.n)) >= len(logits) / alpha
    }
    if not tested:
        report.unclear(
            "Key frequencies of the outputs are unclear.",
            f"all outputs have too few classes for p ≤ {alpha:g}",
        )
        return
    name, (z, null) = "logits.largest_z", largest_z(tested)
    report.metric(
        name,
        z,
        null=Null.sampled(
            name,
            max(z.values()),
            null,
            "the largest of all outputs, answers and classes permuted alike",
        ),
        unit="standard deviations of Fisher's z of the largest cosine's null",
    )
    test = MaxNull(np.array([*z.values()]), null[:, None])
    p_values = dict(zip(z, test.p_values, strict=True))
    learned = {row.output for row in report.performance if row.beats_chance}
    found = {
        output: spectrum.keys
        for output, spectrum in tested.items()
        if spectrum.keys and p_values[output] <= alpha * (1 + 1e-9) and output in learned
    }
    shares = {output: logits[output].named_share for output in found}
    named_keys = {
        output: [key for key in keys if key in logits[output].named_keys]
        for output, keys in found.items()
    }
    said = [
        f"of {output} use {in_words(len(keys), 'frequency')}, {shares[output]:.0%} of their "
        f"variance: {named(keys)}"
        for output, keys in named_keys.items()
    ]
    which = "; ".join(said) if len(said) <= 2 else f"of {named([*found], 6)} use frequencies"
    few = [cycle.output for cycle in cycles if cycle.output not in tested]
    report.finding(
        Claim(
            f"The logits {which}.",
            no=f"No frequency stands out in the logits of {named([*tested], 6)}.",
            unclear="Key frequencies of the outputs are unclear.",
            lead=min(shares.values(), default=0.0) >= HALF,
            caveat=f"not asked of {named(few, 6)}: too few classes" if few else "",
            outputs=list(found) or None,
        ),
        None if found else Effect.of(report.nulls[name], "", "largest z", "permuted classes"),
        holds=bool(found),
        null=name,
    )


def largest_z(
    logits: Mapping[str, Spectrum],
) -> tuple[dict[str, float], Float[np.ndarray, " sample"]]:
    """Output → its largest cosine in standard deviations of its null, by Fisher's z (on which small
    moduli, whose null reaches far, compare with large ones); and (sample,) the largest of all
    outputs in each sample of the null.

    What was observed counts as one more sample of the null, so that ranks are those of a
    permutation test (Westfall and Young 1993).
    """
    cosines = np.array([[spectrum.values.max(), *spectrum.null] for spectrum in logits.values()])
    z = np.arctanh(np.clip(cosines, -1 + 1e-9, 1 - 1e-9))  # (output, 1 + sample)
    z = (z - z.mean(1, keepdims=True)) / np.maximum(z.std(1, keepdims=True), 1e-12)
    return dict(zip(logits, z[:, 0].tolist(), strict=True)), z[:, 1:].max(0)


def one_or_all(values: dict[str, T]) -> T | dict[str, T]:
    """The one value there is, or all of them by output."""
    return next(iter(values.values())) if len(values) == 1 else values


# --- figures --------------------------------------------------------------------------------------
def draw_spectra(report: Report, shown: Mapping[str, Spectrum]) -> None:
    """The spectra above each other, with the key frequencies of the last, the logits where there
    are any.
    """
    columns, keys = dict[str, Any](), list[Any]()
    for name, spectrum in shown.items():
        columns[name] = spectrum.values.tolist()
        keys = getattr(spectrum, "keys", keys)
    k = list(range(1, max(map(len, columns.values())) + 1))
    titles = {"embedding": "embedding: share of energy (0–1)", "logits": "logits: cosine (−1 … 1)"}
    report.figure(
        "spectra",
        figures.stacked(
            [
                figures.Panel(titles[name], {name: (k[: len(values)], values)}, bars=True)
                for name, values in columns.items()
            ],
            x_title="frequency (cycles over the group)",
            title="Spectra",
            caption=(
                f"Key frequencies: {named(keys)}." if keys else "No frequency is key in the last."
            ),
            marks={str(key): key for key in keys},
        ),
    )
    report.hero("spectra")
    if len({len(values) for values in columns.values()}) == 1:
        report.table(
            "spectra",
            {"frequency": k, **columns, "key": [frequency in keys for frequency in k]},
            "one row per frequency: share of the energy of the embedding, cosine of logits",
            {"frequency": "cycles over the group"},
        )


def draw_removals(
    report: Report, key: Sequence[Any], needed: Sequence[Any], others: Sequence[Any]
) -> None:
    """The energy of each key frequency and the loss without it, without those that are `needed`
    together, and without all others, beside the unharmed loss and the null.
    """
    metrics, base, share = report.metrics, report.metrics["loss"], report.metrics["embedding.share"]
    sets = {str(k): [k] for k in sorted(key, key=lambda k: -share[k])}
    rises = {name: metrics["embedding.removal"][k] for name, (k,) in sets.items()}
    if len(needed) > 1:
        name = f"{'all' if len(needed) == len(key) else 'these'} {len(needed)}"
        sets[name], rises[name] = [*needed], metrics["embedding.removal_named"]
    name = f"other {len(others)}"
    sets[name], rises[name] = [*others], metrics["embedding.removal_unnamed"]
    report.table(
        "summary",
        {
            "frequency": list(sets),
            "energy": [f"{sum(share[k] for k in some):.1%}" for some in sets.values()],
            "loss without": [f"{rise:+.2g}" for rise in rises.values()],
        },
        "the key frequencies: their energy, and how the loss changes without them",
        {"loss without": "nats"},
    )
    null = report.nulls.get("embedding.removal_named")
    band = None
    if null is not None:
        middle = max(base + null.mean, 1e-12)
        spread = 2 * null.std
        band = (middle, max(middle - spread, min(base, middle) / 2, 1e-12), middle + spread)
    report.figure(
        "removal",
        figures.bars(
            list(rises),
            {"embedding": [max(base + rise, 1e-12) for rise in rises.values()]},
            title="Loss without a frequency",
            x_title="frequency projected out",
            y_title="loss (nats)",
            y_log=True,
            levels={"nothing projected out": max(base, 1e-12)},
            null=band,
            caption=(
                "Loss with a frequency projected out of the embedding; gray: as many random "
                "directions of the other frequencies as all keys have."
            ),
        ),
    )
