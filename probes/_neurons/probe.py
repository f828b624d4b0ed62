"""The probe of neurons: which representation each computes with, and what its cluster is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mechint import figures
from mechint.config import setting
from mechint.errors import counted
from mechint.groups.finite import FiniteGroup
from mechint.groups.representations import representations
from mechint.probe import Need, Probe, Report
from mechint.results import Null, ProbeResult
from mechint.subject import Subject
from mechint.task import rng
from probes._fourier.spectra import Array
from probes._irreps.spectrum import element_orders
from probes._neurons import measures
from probes._neurons.ablation import add_ablation
from probes._neurons.reading import answer_sign, group_of, output_weights
from probes.operands import by_element

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


@dataclass(frozen=True)
class Neurons(Probe):
    """Into which clusters, one per frequency or representation, do the last layer's neurons fall?

    Over all pairs of the group's elements, for each neuron of ``mlp.hook_post`` at the answer that
    varies (`dead` are the others, constants included), in its own standard deviations:

    - its representation, the one whose matrix elements, of either operand or of both, hold the
      largest share of its variance; neurons with at least `own` are its cluster (`clusters`). On a
      cyclic group representations are frequencies.
    - `ablation`: rise of the loss in nats with the neurons of a cluster at their mean, on at most
      `examples` pairs; null of the largest: the largest of sets of the clusters' sizes, dealt
      without overlap among the neurons that vary. A cluster of more than half of them has no others
      to be held against, and is left out.
    - cyclic groups: phases φx and φy of the neuron as a function of either operand, A cos(wx + φx),
      and ψ of its weights on the classes' logits. A sum of cos(w(x + y) + φx + φy) cos(wc + ψ) over
      neurons is cos w(x + y − c) where ψ = φx + φy, and of cos(w(x − y) + φx − φy) is cos w(x − y −
      c) where ψ = φx − φy: `phase_alignment` is the mean cosine of φx ± φy − ψ in each cluster (1
      where it holds), the sign that of y in the answer. It is not given where the answer is neither
      the sum of the elements' exponents nor their difference.
    - other groups: `coset_share`, the largest share, over subgroups and sides, of the variance of
      the neuron as a function of one operand that lies between cosets, corrected for their number
      (coset concentration, Stander et al. 2024).

    `mean_share` is the mean over neurons of the largest share; its null puts the elements in random
    order, for both operands alike, and decides nothing where so few elements have too many orders
    that leave all shares as they are (`irreps.spectrum.element_orders`). Cost: one forward, n³ per
    neuron; memory: all neurons' values on all pairs, so n is at most `most`.
    """

    name: ClassVar[str] = "neurons"
    source: ClassVar[str] = (
        "Nanda et al. 2023, Progress measures for grokking, Sec. 4.2; Chughtai et al. 2023, A Toy "
        "Model of Universality, Sec. 5; Stander et al. 2024, Grokking Group Multiplication with "
        "Cosets"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.GRID, Need.ANSWERS, Need.MLP)
    intervenes: ClassVar[bool] = True

    own: float = setting(0.85, "share that makes a neuron one of its cluster", low=0, high=1)
    sample: int = setting(32, "neurons whose shares make the null", low=1)
    permutations: int = setting(99, "samples of the nulls", low=1)
    examples: int = setting(2048, "pairs on which an ablation's loss is taken", low=1)
    most: int = setting(256, "largest group", low=2)

    def unmet(self, subject: Subject) -> str | None:
        group, n = group_of(subject), getattr(subject.task, "grid", (0,))[0]
        if group is None or subject.task.grid != (group.order,) * 2:  # type: ignore[union-attr]
            return "its inputs are not all pairs of a group's elements"
        if n > self.most:
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
        group = group_of(subject)
        assert group is not None
        hook = f"blocks.{subject.n_layers - 1}.mlp.hook_post"
        activation = by_element(subject, subject.activation(hook, at="answer"))
        values, alive = measures.standardized(activation.cpu().numpy())
        shares = measures.block_shares(group, values)
        names = np.array(representations(group).names[1:])
        largest, which = shares.max(0), shares.argmax(0)
        mine = alive & (largest >= self.own)
        clusters = {
            str(names[i]): np.flatnonzero(mine & (which == i)) for i in sorted({*which[mine]})
        }
        report = Report(self, subject)
        report.metric("neurons", len(alive))
        report.metric("dead", int((~alive).sum()), unit="neurons that do not vary")
        report.metric("clusters", {name: len(some) for name, some in clusters.items()})
        clustered = float(mine.sum() / max(alive.sum(), 1))
        report.metric("clustered", clustered, unit="share of those that vary, 0–1")
        if not alive.any():
            report.abstain("no neuron of the last layer varies with the inputs")
            return report.result()
        self._add_shares(report, group, values[..., alive], seed)
        table = {
            "neuron": list(range(len(alive))),
            "representation": [
                str(name) if ok else "" for name, ok in zip(names[which], alive, strict=True)
            ],
            "share": largest.tolist(),
            "in cluster": mine.tolist(),
        }
        if group.is_cyclic:
            table |= self._phases(report, group, values, which, clusters)
        else:
            table |= self._cosets(report, group, values, seed)
        report.table("neurons", table, "one row per neuron of the last layer", {"share": "0–1"})
        sizes = {"examples": self.examples, "samples": self.permutations}
        add_ablation(report, hook, clusters, alive, **sizes, seed=seed)
        _draw(report, largest[alive], clusters)
        return report.result()

    def _add_shares(self, report: Report, group: FiniteGroup, values: Array, seed: int) -> None:
        """The mean of the largest shares over a sample of neurons, against permuted elements."""
        draw = rng("neurons null", seed)
        some = values[..., draw.permutation(values.shape[-1])[: self.sample]]
        null = []
        for _ in range(self.permutations):
            order = draw.permutation(group.order)
            null.append(
                float(measures.block_shares(group, some[np.ix_(order, order)]).max(0).mean())
            )
        observed = float(measures.block_shares(group, some).max(0).mean())
        how = "the elements in random order, for both operands alike"
        one = Null.sampled("mean_share", observed, null, how, element_orders(group))
        report.metric("mean_share", observed, null=one)
        clusters: Mapping[str, int] = report.metrics["clusters"]
        shown = ", ".join(f"{name} ({count})" for name, count in list(clusters.items())[:12])
        dead: int = report.metrics["dead"]
        others = f"; {dead} {'does' if dead == 1 else 'do'} not" if dead else ""
        report.finding(
            f"{report.metrics['clustered']:.0%} of the last layer's neurons that vary "
            f"({sum(clusters.values())} of {values.shape[-1]}{others}) fall into "
            f"{counted(len(clusters), 'cluster')}, one representation each (neurons): {shown}.",
            question="whether the last layer's neurons fall into clusters",
            otherwise=(
                f"One representation holds {observed:.0%} of the variance of a neuron that varies, "
                "on average, no more than shuffled elements can give."
                if clusters
                else "The last layer's neurons fall into no clusters: of those that vary, the "
                f"largest share of one representation is {observed:.0%} on average."
            ),
            holds=bool(clusters),
        )

    def _phases(
        self,
        report: Report,
        group: FiniteGroup,
        values: Array,
        which: Array,
        clusters: Mapping[str, Array],
    ) -> dict[str, list[float]]:
        """Columns of the table: phases of both operands and of the output, at each neuron's
        frequency.
        """
        written = output_weights(report.subject, group)
        columns = {"phase x": values.mean(1), "phase y": values.mean(0)}
        if written is not None and len(written) == values.shape[-1]:  # one layer away
            columns["phase out"] = written.T  # (class, neuron)
        found = {name: np.zeros(values.shape[-1]) for name in columns}
        for frequency in sorted({*(which + 1).tolist()}):
            some = np.flatnonzero(which + 1 == frequency)
            for name, of in columns.items():
                found[name][some] = measures.phases(group, of[:, some], frequency)
        sign = answer_sign(report.subject, group)
        if "phase out" in found and sign is not None:
            inputs = found["phase x"] + sign * found["phase y"]
            report.metric(
                "phase_alignment",
                {
                    name: measures.phase_alignment(inputs[some], found["phase out"][some])
                    for name, some in clusters.items()
                },
                unit="mean cosine, −1 … 1",
            )
        return {name: column.tolist() for name, column in found.items()}

    def _cosets(
        self, report: Report, group: FiniteGroup, values: Array, seed: int
    ) -> dict[str, list]:
        """Columns of the table: the partition into cosets that says most of a neuron as a function
        of the first operand or of the second; nothing of a neuron that varies with neither alone.
        """
        cosets = measures.partitions(group)
        if not cosets:
            return {}
        means = values.mean(1, dtype=np.float64), values.mean(0, dtype=np.float64)
        sides = [side * (side.std(0) > measures.VARIES) for side in means]  # (element, neuron)
        varies = np.logical_or(*(side.any(0) for side in sides))
        if not varies.any():
            report.abstain("no neuron varies with one operand", "whether cosets tell them apart")
            return {}
        sides = [side[:, varies] for side in sides]
        shares = np.maximum(*(measures.coset_shares(cosets, side) for side in sides))
        best, largest = shares.argmax(0), shares.max(0)
        draw = rng("neurons cosets", seed)
        some = draw.permutation(len(largest))[: self.sample]
        null = []
        for _ in range(self.permutations):
            order = draw.permutation(group.order)
            mixed = (measures.coset_shares(cosets, side[order][:, some]) for side in sides)
            null.append(float(np.maximum(*mixed).max(0).mean()))
        observed = float(largest[some].mean())
        how = "the elements in random order, over the same subgroups"
        report.metric("coset_share", float(largest.mean()), unit="adjusted share of variance, ≤ 1")
        one = Null.sampled("coset_share.sample", observed, null, how, element_orders(group))
        report.metric("coset_share.sample", observed, null=one)
        report.finding(
            f"Between the cosets of one subgroup each lies {observed:.0%} of the variance of a "
            "neuron that varies with one operand, as a function of it, on average.",
            question="whether the neurons vary between cosets",
            otherwise="Cosets say no more of the neurons than of shuffled elements.",
            null="coset_share.sample",
        )
        every = list(zip(varies, np.cumsum(varies) - 1, strict=True))
        return {
            "subgroup order": [cosets[best[i]].order if ok else 0 for ok, i in every],
            "cosets": [cosets[best[i]].side if ok else "" for ok, i in every],
            "coset share": [float(largest[i]) if ok else 0.0 for ok, i in every],
        }


def _draw(report: Report, largest: Array, clusters: Mapping[str, Array]) -> None:
    report.figure(
        "shares",
        figures.histogram(
            {"neurons": largest},
            title="How much of a neuron one representation holds",
            x_title="largest share of the variance (0–1)",
            caption="Neurons near 1 compute with one representation alone.",
        ),
    )
    names = list(clusters)
    report.figure(
        "clusters",
        figures.bars(
            names or ["none"],
            {"neurons": [len(clusters[name]) for name in names] or [0]},
            title="Clusters of neurons",
            x_title="representation",
            y_title="neurons (number)",
            caption="How many neurons compute with each representation alone.",
        ),
    )
