"""The probe of the token embedding's geometry: ranks, similarity, residues, circles, positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mechint.config import setting
from mechint.errors import counted
from mechint.probe import Need, Probe, Report
from mechint.results import ProbeResult
from mechint.subject import Subject
from probes._embedding import drawing, measures, values
from probes._embedding.residues import RESIDUES, SEPARATED
from probes._fourier.spectra import Array
from probes.operands import has_own

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

ROUND = 0.8
"""Least circularity of what is called a circle."""
FIRST = " of the first operand"
RANK_SAMPLES = 99
"""Gaussian embeddings that the ranks are held against; each takes singular values of its own."""


@dataclass(frozen=True)
class Embedding(Probe):
    """How are the value tokens laid out in the embedding: its rank, its order by parity, residue
    and on a circle?

    Over the rows of W_E of the n value tokens (all tokens, at most `tokens`, where the task names
    none); of the first operand's, which the sentences then say, where the second has tokens or a
    table of its own. Parity, residues and circles are about an order: they are measured where the
    tokens are numbers or a cyclic group acts on them in their order, not where elements are merely
    listed.

    - `svd.rank_50`, `svd.rank_90`: least number of singular values of the centered rows that hold
      50% and 90% of the variance (Irreducible Integer Identifiers, Sec. 5); null: Gaussian rows of
      the same lengths, fewer is surprising, counted in fractions so that ranks do not tie;
    - similarity: Pearson correlation of every two rows, n×n; comparable between models of any
      width, so `average_similarity` averages it over models (Joint Task Training);
    - `parity.separation`, `mod_4.separation`: of the first `components` principal components of the
      similarity matrix, the largest share of a component's variance that lies between even and odd
      (η², 0–1); null: tokens in random order; and of what a component varies within even and within
      odd, the largest share between residues mod 4, since parity alone separates those as well;
      null: even and odd tokens in random order, each among themselves;
    - `cyclic.correlation`: the largest correlation of the off-diagonal similarities with a cyclic
      Whittaker–Shannon matrix S[x, y] = Σ_{|k| ≤ (m−1)/2} cos(2πku(x − y)/n)/m, the overlaps of
      m-sample periodic sinc pulses at positions ux·m/n, over widths m = 3, 5, 7, 9 and digit orders
      u (Joint Task Training, Fig. 33); `cyclic.share`: share of the similarities' variance that
      depends on (x − y) mod n alone; null: tokens in random order, with the same search;
    - `cyclic.frequencies`: the frequencies k over the values at which the rows' energy stands out
      by the rule of the probe fourier: on each the tokens lie on an ellipse, k times around;
      `cyclic.frequency_share`: the share of the energy at each; `cyclic.circularity`: how round
      the ellipse is, 1 a circle, 1/2 a line, which numbers in order lie on; called a circle from
      0.8 on (one axis a third of the other);
    - `position.correlation`: Pearson correlation of the position embeddings of `positions`
      (Irreducible Integer Identifiers, Fig. 8): high where the operands commute; null: coordinates
      in random order, two-sided.

    Similarities and the correlation of positions are over the coordinates of the stream as they
    stand: another basis of it, or a vector moved from the tokens to the positions, can leave the
    model the function that it is and change them.

    Few tokens can be told in few orders: p ≤ 0.002 takes 8 of them on a circle, 13 for parity and
    14 for residues mod 4; with fewer the probe abstains.

    Cost: singular values of n × d_model, and n² per permutation; no forward. Memory: n² numbers.
    """

    name: ClassVar[str] = "embedding"
    source: ClassVar[str] = (
        "Small Models, Smarter Learning: The Power of Joint Task Training, embedding PCA and "
        "Fig. 33; Mechanistic Interpretability on (Multi-task) Irreducible Integer Identifiers, "
        "Sec. 5 and Fig. 8"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.EMBEDDING,)
    quick: ClassVar[bool] = True

    components: int = setting(4, "principal components in which residues are looked for", low=1)
    positions: tuple[int, int] = setting(
        (0, 1), "the two positions whose embeddings are compared", low=0
    )
    tokens: int = setting(512, "most tokens looked at where the task names no values", low=4)
    permutations: int = setting(499, "samples of the nulls", low=1)
    alpha: float = setting(
        0.002, "level at which the finding calls a number surprising", low=1e-6, high=1
    )

    def unmet(self, subject: Subject) -> str | None:
        tokens = values.value_tokens(subject, self.tokens)
        if len(tokens) < 4:
            return f"it has {len(tokens)} value tokens; their layout can be told from 4 on"
        rows = subject.model.W_E.detach()[tokens]
        if not bool((rows != rows[:1]).any()):
            return "the embeddings of its value tokens are all the same"
        return None

    @property
    def significance(self) -> float:
        return self.alpha

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        addition = Trial(
            "modular addition",
            library.addition,
            library.untrained(library.addition)
            | library.lookup("modular-arithmetic", p=11)
            | {"half memorized": library.half_memorized},
            lambda result, plant: float(
                abs(result.metrics["svd.rank_90"] - 2 * len(plant.truth["frequencies"]))
            ),
            "dimensions missed or made up",
            settings={"permutations": 399},
            detects=lambda result: result.null["cyclic.share"].p_value <= 0.005,
        )
        return Calibration((addition,), {"permutations": 19})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        tokens = values.value_tokens(subject, self.tokens)
        rows = subject.model.W_E.detach()[tokens].double().cpu().numpy()
        left, singular, _ = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
        report = Report(self, subject)
        ranks = measures.rank_nulls(rows, min(self.permutations, RANK_SAMPLES), seed)
        report.metric("svd.rank_50", measures.rank(singular, 0.5), null=ranks["svd.rank_50"])
        report.metric("svd.rank_90", measures.rank(singular, 0.9), null=ranks["svd.rank_90"])
        report.metric("svd.singular_values", singular[:64].tolist())
        similar = measures.similarity(rows)
        if values.in_order(subject):
            self._add_layout(report, similar, seed)
            shares = measures.circles(rows, self.alpha, 499, seed)
            report.metric("cyclic.frequencies", list(shares))
            report.metric("cyclic.frequency_share", shares, unit="share of the energy, 0–1")
            report.metric("cyclic.circularity", {k: measures.roundness(rows, k) for k in shares})
        weights = getattr(subject.model, "W_pos", None)
        if weights is not None and max(self.positions) < len(weights):
            positions = weights.detach().double().cpu().numpy()
            null = measures.position_correlation(positions, self.positions, self.permutations, seed)
            report.metric("position.correlation", null.observed, null=null)
        scores = measures.components_of(similar)
        report.array("similarity", similar)
        report.array("components", scores[:, : max(self.components, 2)])
        report.array("singular_vectors", left[:, :8])
        drawing.draw(report, similar, scores, singular, rows, tokens, self.alpha)
        whose = FIRST if has_own(subject, tokens) else ""
        every = len(values.value_tokens(subject, len(subject.model.W_E)))
        n = str(every) if len(tokens) == every else f"the first {len(tokens)} of {every:,}"
        self._add_findings(report, n, 0 if weights is None else len(weights), whose)
        return report.result()

    def _add_layout(self, report: Report, similar: Array, seed: int) -> None:
        """What the similarity matrix has to do with the order of the values."""
        found, nulls = measures.layout(
            similar, components=self.components, permutations=self.permutations, seed=seed
        )
        report.update(found)
        report.nulls |= nulls

    def _add_findings(self, report: Report, n: str, n_positions: int, whose: str) -> None:
        metrics: Mapping[str, Any] = report.metrics
        held = (
            f"Half of the variance of {n} token embeddings{whose} lies in "
            f"{counted(metrics['svd.rank_50'], 'dimension')}, 90% in {metrics['svd.rank_90']}"
        )
        report.finding(
            f"{held}, fewer than Gaussian rows of the same lengths take.",
            question="whether the tokens lie in fewer dimensions than Gaussian rows",
            otherwise=f"{held}.",
            null="svd.rank_50",
            alpha=max(self.alpha, 1 / (1 + RANK_SAMPLES)),
            at_chance=True,
        )
        if "cyclic.share" in metrics:
            self._add_order_findings(report, whose)
        if "position.correlation" in metrics:
            first, second = self.positions
            words = (
                f"The embeddings of positions {first} and {second} of {n_positions} correlate "
                f"{metrics['position.correlation']:+.2f}"
            )
            report.finding(
                f"{words}.",
                question=f"whether the embeddings of positions {first} and {second} correlate",
                otherwise=f"{words}, which coordinates in random order may do as well.",
                null="position.correlation",
                at_chance=True,
            )

    def _add_order_findings(self, report: Report, whose: str) -> None:
        """Whether the similarities follow the order of the values."""
        metrics: Mapping[str, Any] = report.metrics
        for name in RESIDUES:
            share, component = metrics[f"{name}.separation"], metrics[f"{name}.component"]
            words, of = name.replace("_", " "), SEPARATED[name].format(component)
            report.finding(
                f"The similarities{whose} separate {words}: {share:.0%} of {of}.",
                question=f"whether the similarities separate {words}",
                otherwise=(
                    f"The similarities{whose} over these coordinates do not separate {words}."
                ),
                null=f"{name}.separation",
                at_chance=True,
            )
        report.finding(
            _circle_sentence(metrics, whose),
            question="whether the similarities follow a cyclic order",
            otherwise=f"The similarities{whose} over these coordinates follow no cyclic order.",
            null="cyclic.correlation",
            at_chance=True,
        )

    def measure_average(self, subjects: Sequence[Subject], seed: int) -> ProbeResult:
        """The layout of the similarity matrix averaged over `subjects`, models of one task's values
        and of any width.

        Raises:
            DataError: no model, or models with different numbers of value tokens.
        """
        similar = measures.average_similarity(subjects)
        report = Report(self, subjects[0])
        self._add_layout(report, similar, seed)
        found = report.metrics
        report.array("similarity", similar)
        report.array("components", measures.components_of(similar)[:, : max(self.components, 2)])
        share = (
            f"{found['parity.separation']:.0%} of component {found['parity.component']} lies "
            "between even and odd"
        )
        report.finding(
            f"Averaged over {len(subjects)} models, {share}.",
            question="whether the averaged similarities separate even from odd",
            otherwise=f"Averaged over {len(subjects)} models, no more than chance: {share}.",
            null="parity.separation",
            at_chance=True,
        )
        return report.result()


def _circle_sentence(metrics: Mapping[str, Any], whose: str) -> str:
    """How many circles the tokens lie on, and the cyclic pattern that fits best."""
    flat = {k: one for k, one in metrics["cyclic.circularity"].items() if one < ROUND}
    frequencies = [k for k in metrics["cyclic.frequencies"] if k not in flat]
    pattern = (
        f"correlation {metrics['cyclic.correlation']:.2f} with a cyclic Whittaker–Shannon matrix "
        f"of width {metrics['cyclic.width']} in steps of {metrics['cyclic.order']}"
    )
    if flat and not frequencies:
        k, one = max(flat.items(), key=lambda item: item[1])
        return (
            f"The tokens{whose} follow an order, at frequency {k} along a line rather than on a "
            f"circle (circularity {one:.2f}): {pattern}."
        )
    if not frequencies:
        return f"The similarities{whose} follow a cyclic order: {pattern}."
    energy = sum(metrics["cyclic.frequency_share"][k] for k in frequencies)
    held = f"{energy:.0%} of {'their' if whose else 'the'} embedding's energy"
    if len(frequencies) == 1:
        (k,) = frequencies
        return f"The tokens{whose} lie on a circle of frequency {k} ({held}): {pattern}."
    shown = ", ".join(map(str, frequencies[:8])) + (", …" if len(frequencies) > 8 else "")
    return (
        f"The tokens{whose} lie on {len(frequencies)} circles at once, of frequencies {shown} "
        f"({held}); of single cyclic patterns the best has {pattern}."
    )
