"""The probe neurons: which frequency or representation each neuron of the last layer computes with,
and what its cluster is worth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.errors import counted
from mechint.groups.finite import FiniteGroup
from mechint.groups.spectrum import Harmonics, element_orders
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, Null, ProbeResult
from mechint.probes import removal
from mechint.probes._clock_pizza import probe as clock_pizza
from mechint.probes.operands import axis_tokens, by_element
from mechint.probes.spectra import HALF, Array, permuted
from mechint.subject import Subject
from mechint.task import FiniteTask, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

VARIES = 1e-6
"""Standard deviation of a neuron that varies, relative to its largest value: rounding in single
precision gives a constant about a tenth of it."""
AT_ONCE = 64
"""Neurons at a time in double precision."""


@dataclass(frozen=True)
class Neurons(Probe):
    """With which frequency or representation does each neuron of the last layer compute?

    For a neuron h(x, y) over all pairs of elements, E_ij its energy in representation i of x and j
    of y, 0 the constant:

        share(i) = (E_ii + E_i0 + E_0i) / Σ E          phases: h ~ cos(wx + φx), cos(wy + φy)

    Neurons of which one holds `own` are its cluster.
    """

    name: ClassVar[str] = "neurons"
    topic: ClassVar[str] = "arithmetic and groups"
    source: ClassVar[str] = (
        "Nanda et al. 2023, Progress measures for grokking, Sec. 4.2; Chughtai et al. 2023, A Toy "
        "Model of Universality, Sec. 5"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.GRID, Need.ANSWERS, Need.MLP)
    intervenes: ClassVar[bool] = True
    lead_rank: ClassVar[int] = 30

    own: float = setting(0.85, "share that makes a neuron one of its cluster", low=0, high=1)
    sample: int = setting(32, "neurons whose shares make the null", low=1)
    permutations: int = setting(99, "samples of the nulls", low=1)
    examples: int = setting(512, "pairs on which an ablation's loss is taken", low=1)
    most: int = setting(256, "largest group", low=2)

    def unmet(self, subject: Subject) -> str | None:
        group = group_of(subject)
        if group is None or subject.known_task.grid != (group.order,) * 2:
            return "its inputs are not all pairs of a group's elements"
        if (n := group.order) > self.most:
            return f"its group has {n} elements; neurons.most allows {self.most}"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        addition = Trial(
            "modular addition",
            library.addition,
            library.untrained(library.addition) | library.no_waves(),
            library.misses(
                lambda result: [int(name) for name in result.metrics["clusters"]],
                lambda plant: plant.truth["frequencies"],
            ),
            "clusters missed or made up",
        )
        return Calibration((addition,), {"sample": 8, "examples": 128})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        # share(i) = (E_ii + E_i0 + E_0i) / Σ E of each neuron over all pairs of elements, E_ij its
        # energy in representation i of x and j of y (Nanda et al. 2023, Sec. 4.2; Chughtai et al.
        # 2023, Sec. 5).
        group, report = group_of(subject), Report(self, subject)
        assert group is not None
        harmonics = Harmonics(group)
        hook = f"blocks.{subject.n_layers - 1}.mlp.hook_post"
        activation = by_element(subject, subject.activation(hook, at="answer"))
        values, alive = standardized(activation.cpu().numpy())
        shares = block_shares(harmonics, values)
        largest, which = shares.max(0), shares.argmax(0)
        mine = alive & (largest >= self.own)
        names = [str(label) for label in harmonics.labels]
        clusters = {names[i]: np.flatnonzero(mine & (which == i)) for i in sorted({*which[mine]})}
        report.metric("neurons", len(alive))
        report.metric("dead", int((~alive).sum()), unit="neurons that do not vary")
        report.metric("clusters", {name: len(some) for name, some in clusters.items()})
        clustered = float(mine.sum() / max(alive.sum(), 1))
        report.metric("clustered", clustered, unit="share of those that vary, 0–1")
        if not alive.any():
            report.unclear(
                "What the neurons compute with is unclear.",
                "no neuron of the last layer varies with the inputs",
            )
            return report.result()
        noun = "frequency" if group.is_cyclic else "representation"
        self._add_shares(report, harmonics, values[..., alive], noun, seed)
        table: dict[str, Any] = {
            "neuron": [f"L{subject.n_layers - 1} MLP[{i}]" for i in range(len(alive))],
            noun: [names[i] if ok else "" for i, ok in zip(which, alive, strict=True)],
            "share": largest.tolist(),
            "in cluster": mine.tolist(),
        }
        if group.is_cyclic:
            table |= self._phases(report, group, values, which, clusters)
        report.table("neurons", table, "one row per neuron of the last layer", {"share": "0–1"})
        self._ablate(report, hook, clusters, alive, noun, seed)
        draw(report, clusters, noun)
        return report.result()

    # --- what neurons compute -------------------------------------------------------------------
    def _add_shares(
        self, report: Report, harmonics: Harmonics, values: Array, noun: str, seed: int
    ) -> None:
        """The mean of the largest shares over a sample of neurons, against permuted elements."""
        draw, order = rng("neurons null", seed), harmonics.group.order
        some = values[..., draw.permutation(values.shape[-1])[: self.sample]]

        def mean_share(x: Array) -> float:
            return float(block_shares(harmonics, x).max(0).mean())

        orders = permuted(draw, self.permutations, order)
        null = Null.sampled(
            "mean_share",
            mean_share(some),
            [mean_share(some[np.ix_(o, o)]) for o in orders],
            "the elements permuted, for both operands alike",
            element_orders(harmonics.group),
        )
        report.metric("mean_share", null.observed, null=null)
        clusters: Mapping[str, int] = report.metrics["clusters"]
        share, bar = report.metrics["clustered"], f"{self.own:.0%}"
        report.finding(
            Claim(
                f"{share:.0%} of the neurons that vary have {bar} of their variance in one {noun}.",
                no=f"The neurons do not vary with one {noun} each."
                if clusters
                else f"No neuron has {bar} of its variance in one {noun}.",
                unclear=f"Whether neurons vary with one {noun} each is unclear.",
                lead=share >= HALF,
            ),
            Effect.of(
                null,
                label=f"share of the variance of {counted(some.shape[-1], 'neuron')}"
                f"{' drawn' * (some.shape != values.shape)} in one {noun}",
                than="permuted elements",
            ),
            holds=bool(clusters),
            null="mean_share",
        )

    def _phases(
        self,
        report: Report,
        group: FiniteGroup,
        values: Array,
        which: Array,
        clusters: Mapping[str, Array],
    ) -> dict[str, list[float]]:
        """Columns of the table: phases of both operands and of the weights on the logits, at each
        neuron's frequency.

        A sum of cos(w(x + y) + φx + φy) cos(wc + ψ) over neurons is cos w(x + y − c) where ψ = φx +
        φy; `phase_alignment` is the mean cosine of φx ± φy − ψ in each cluster, the sign that of y
        in the answer.
        """
        written = output_weights(report.subject, group)
        columns = {"phase x": values.mean(1), "phase y": values.mean(0)}
        if written is not None and len(written) == values.shape[-1]:  # one layer away
            columns["phase out"] = written.T  # (class, neuron)
        found = {name: np.zeros(values.shape[-1]) for name in columns}
        for frequency in sorted({*(which + 1).tolist()}):
            some = np.flatnonzero(which + 1 == frequency)
            for name, of in columns.items():
                found[name][some] = phases(group, of[:, some], frequency)
        sign = answer_sign(report.subject, group)
        if "phase out" in found and sign is not None:
            differences = found["phase x"] + sign * found["phase y"] - found["phase out"]
            report.metric(
                "phase_alignment",
                {name: float(np.cos(differences[some]).mean()) for name, some in clusters.items()},
                unit="mean cosine, −1 … 1",
            )
        return {name: column.tolist() for name, column in found.items()}

    # --- what clusters are worth ----------------------------------------------------------------
    def _ablate(
        self,
        report: Report,
        hook: str,
        clusters: Mapping[str, Int[np.ndarray, " _index"]],
        alive: Bool[np.ndarray, " neuron"],
        noun: str,
        seed: int,
    ) -> None:
        """Rise of the loss with each cluster at its mean, and of the largest beside random sets.

        The null permutes the clusters among the neurons that vary. Sets of a cluster's complement
        alone would be less spread: a third of the neurons, where each adds its own to the loss,
        would beat them at p ≤ 0.01 in 8% of cases.
        """
        if not clusters:
            return
        subject, draw = report.subject, rng("neurons ablation", seed)
        some = removal.sample_examples(subject, self.examples, draw)
        mean = subject.activation(hook, at="answer").mean(0)
        base = removal.mean_loss(some)

        def rises_without(sets: Sequence[Array]) -> Array:
            return removal.losses_at_mean(some, hook, mean, sets) - base

        every = list(clusters.values())
        rises = dict(zip(clusters, rises_without(every).tolist(), strict=True))
        report.metric("loss", base, unit="nats")
        report.metric("ablation", rises, unit="nats")
        varying, alpha = np.flatnonzero(alive), self.significance
        sizes = {
            name: len(neurons)
            for name, neurons in clusters.items()
            if enough_others(len(neurons), len(varying), alpha)
        }
        first = max(sizes or rises, key=lambda name: rises[name])
        size = counted(len(clusters[first]), "neuron")
        these = f"the {size} with {self.own:.0%} in {noun} {first}"
        unclear = f"Whether the model needs {these} is unclear."
        if not sizes:
            report.unclear(unclear, "too few other neurons vary to compare with as many")
            return
        ends = np.cumsum(list(sizes.values()))
        drawn = [np.split(draw.permutation(varying), ends)[:-1] for _ in range(self.permutations)]
        null = rises_without([neurons for sets in drawn for neurons in sets])
        null = null.reshape(self.permutations, -1).max(1)
        how = f"the largest of {counted(len(sizes), 'random set')} of neurons as large"
        report.metric("ablation.largest", rises[first], null=null, how=how, unit="nats")
        report.finding(
            Claim(
                f"The model needs {these} together.",
                no=f"The model needs {these} no more than others.",
                unclear=unclear,
                causal=True,
            ),
            Effect.of(
                report.nulls["ablation.largest"],
                "nats",
                "rise of the loss with them at their mean",
                "random sets as large",
            ),
            null="ablation.largest",
            n=len(some.data),
            scope=report.scope(len(some.data), len(clusters[first]), len(varying)),
        )


def draw(report: Report, clusters: Mapping[str, Array], noun: str) -> None:
    """The sizes of the clusters."""
    names = list(clusters)
    report.figure(
        "clusters",
        figures.bars(
            names or ["none"],
            {"neurons": [len(clusters[name]) for name in names] or [0]},
            title="Clusters of neurons",
            x_title=noun,
            y_title="neurons (number)",
            caption=f"Neurons of which one {noun} holds most of the variance, on average "
            f"{report.metrics['mean_share']:.3g}.",
        ),
    )
    report.hero("clusters")


def enough_others(size: int, alive: int, alpha: float) -> bool:
    """Return whether `size` of `alive` neurons can be held against as many: at most half of them,
    of more sets than 1/alpha.

    >>> [enough_others(size, 60, 0.01) for size in (1, 2, 30, 31, 60)]
    [False, True, True, False, False]
    """
    return 2 * size <= alive and math.comb(alive, size) * alpha >= 1


# --- single neurons -------------------------------------------------------------------------------
def standardized(
    values: Float[np.ndarray, "n n neuron"],
) -> tuple[Float[np.ndarray, "n n neuron"], Bool[np.ndarray, " neuron"]]:
    """Each neuron less its mean over all pairs, in its standard deviations, and whether it varies;
    zeros where it does not. In single precision, from sums in double: a large constant, as of a
    neuron that is always on, leaves no rounding behind.

    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> values, varies = standardized(np.stack([x, 1e-13 * x, 0 * x + 0.3], -1))
    >>> varies.tolist(), bool(np.allclose(values[..., 0], values[..., 1]))
    ([True, True, False], True)
    """
    found = np.empty(values.shape, np.float32)
    varies = np.zeros(values.shape[-1], bool)
    for start in range(0, values.shape[-1], AT_ONCE):  # doubles of all would be twice the memory
        some = slice(start, start + AT_ONCE)
        part = values[..., some].astype(np.float64)
        largest = np.abs(part).max((0, 1))
        part -= part.mean((0, 1))
        spread = part.std((0, 1))
        varies[some] = spread > VARIES * largest
        found[..., some] = np.where(varies[some], part / np.where(varies[some], spread, 1), 0)
    return found, varies


def block_shares(
    harmonics: Harmonics, x: Float[np.ndarray, "n n neuron"]
) -> Float[np.ndarray, "h neuron"]:
    """Share of each neuron's variance in each component of either operand or both."""
    blocks, total = harmonics.grid_energies(x)
    return blocks / np.maximum(total, 1e-20)


def phases(
    group: FiniteGroup, values: Float[np.ndarray, "n column"], frequency: int
) -> Float[np.ndarray, " column"]:
    """The φ of A cos(wt + φ), the part of each column at a frequency of a cyclic group, t the
    logarithm of the element; radians, −π … π.

    >>> from mechint.groups.finite import cyclic
    >>> wave = np.cos(2 * np.pi * 2 * np.arange(7) / 7 + 0.5)[:, None]
    >>> phases(cyclic(7), wave, 2).round(6).tolist()
    [0.5]
    """
    angles = 2 * np.pi * frequency * group.logarithms / group.order
    return np.arctan2(-(np.sin(angles) @ values), np.cos(angles) @ values)


# --- the task and the weights ---------------------------------------------------------------------
def group_of(subject: Subject) -> FiniteGroup | None:
    """The group whose elements the operands are, in the order of `operands.element_places`."""
    task = subject.task
    if not isinstance(task, FiniteTask) or len(task.outputs) != 1 or len(task.grid) != 2:
        return None
    if task.outputs[0].group is not None:
        return task.outputs[0].group
    symmetry, axes = task.symmetry, axis_tokens(subject)
    if symmetry is None or axes is None or any({*symmetry.tokens} != {*axis} for axis in axes):
        return None
    return symmetry.group


def classes_of(subject: Subject, group: FiniteGroup) -> list[int]:
    """The class of the answer that each element of the group is."""
    task = subject.known_task
    if task.outputs[0].group is not None or task.symmetry is None:
        return list(range(group.order))
    return list(task.symmetry.tokens)


def answer_sign(subject: Subject, group: FiniteGroup) -> int | None:
    """1 where the answer's exponent in a cyclic group is the sum of the operands', -1 where it is
    their difference, the second from the first, None elsewhere.
    """
    targets = by_element(subject, subject.targets[:, 0]).cpu().numpy()
    classes = classes_of(subject, group)
    if not {*targets.flatten().tolist()} <= {*classes}:  # no answer, or none in the group
        return None
    element = np.zeros(max(classes) + 1, dtype=np.int64)
    element[classes] = np.arange(len(classes))
    exponents = group.logarithms[element[targets]]
    if exponents[group.identity, group.identity] != 0:  # moved on by a constant
        return None
    return clock_pizza.answer_sign(exponents, np.argsort(group.logarithms).tolist())


def output_weights(
    subject: Subject, group: FiniteGroup
) -> Float[np.ndarray, "neuron class"] | None:
    """(neuron, class) what the last layer's neurons add to the logits, None where layer norm or the
    architecture stand between.
    """
    model = subject.model
    config = getattr(model, "config", None)
    if getattr(model, "W_U", None) is None or getattr(config, "normalization_type", None):
        return None
    weights: Tensor = model.W_U.detach().double()[:, classes_of(subject, group)]
    name = f"blocks.{subject.n_layers - 1}.mlp.W_out"
    written = dict(model.named_parameters()).get(name)
    return (weights if written is None else written.detach().double() @ weights).cpu().numpy()
