"""The probe of weights: what heads copy, who reads whom, and what singular directions are worth."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mechint.config import setting
from mechint.probe import Need, Probe, Report
from mechint.reporting import AT_CHANCE, best_output
from mechint.results import ProbeResult
from mechint.subject import Subject
from probes._weights import circuits, composition, directions, own_tokens, views
from probes._weights.circuits import Heads
from probes._weights.composition import KINDS, Composition
from probes.words import first_of

if TYPE_CHECKING:
    from mechint.planted.assembly import Planted
    from mechint.planted.calibration import Calibration

TURNED = "what is read turned at random within what all heads share; the largest z of all pairs"


@dataclass(frozen=True)
class Weights(Probe):
    """Which heads copy tokens, which read what another wrote, and which of their singular
    directions is the loss sensitive to?

    Norms are folded into the weights that read behind them.

    - Circuits: W_E W_V W_O W_U (OV) and W_E W_Q W_Kᵀ W_Eᵀ (QK) of every head, without what all
      tokens or all classes share. `copying` is the eigenvalue share Σλ / Σ|λ| of the OV circuit,
      between tokens and the classes of the same name; its null renames the classes. A head copies
      where, besides, more than half of the tokens raise their own class most (`copying.own`).
    - Composition: ‖A B‖ / (‖A‖ ‖B‖) of every head's QK (Q-, K-composition) or OV circuit (V) with
      what every earlier head writes: overlap of two subspaces, no path that was cut; null: heads
      turned within what all heads read and write, so that a subspace shared by all is no overlap
      of two. Of the weights as they stand: without norms, another basis of the residual stream
      leaves the model's answers as they are and makes other scores. `matching` is the eigenvalue
      share of the QK circuit of the pair with the largest K-composition, its keys read through the
      earlier head: 1 where queries ask for their own token (an induction head), which more than
      half of them have to score highest (`matching.own`).
    - Directions: rise of the loss with each of the `directions` largest singular directions of the
      OV and QK circuits at its mean, against changes of the same size along random directions of
      the residual stream. Blocks passed through repeatedly are edited in every pass.

    p-values are corrected for the number of heads, pairs or directions by the largest of each draw.
    Rotary and relative positions are left out: a QK circuit is that of a query and key at one
    place. Cost: draws × (one product of all heads' weights + eigenvalues of d_head × d_head per
    head), and 2 × directions × heads × removals forwards on `examples` examples.
    """

    name: ClassVar[str] = "weights"
    source: ClassVar[str] = (
        "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; Millidge & Black "
        "2022, The Singular Value Decompositions of Transformer Weight Matrices are Highly "
        "Interpretable"
    )
    needs: ClassVar[tuple[Need, ...]] = (
        Need.ATTENTION,
        Need.EMBEDDING,
        Need.RESIDUAL,
        Need.HEAD_WEIGHTS,
    )
    intervenes: ClassVar[bool] = True

    draws: int = setting(199, "samples of the nulls of copying and composition", low=1)
    directions: int = setting(2, "singular directions of each circuit that are tested", low=0)
    removals: int = setting(99, "random directions beside each", low=1)
    examples: int = setting(64, "examples on which the loss is taken", low=1)
    rise: float = setting(0.01, "rise of the loss in nats from which a direction counts", low=0)
    tokens: int = setting(512, "tokens whose own logit is looked up", low=1)
    most: int = setting(1024, "largest width of the residual stream", low=1)

    def unmet(self, subject: Subject) -> str | None:
        width = subject.model_description.d_model or 0
        if width > self.most:
            return f"its residual stream is {width} wide; weights.most allows {self.most}"
        if not {"blocks.0.attn.hook_q", "blocks.0.attn.hook_z"} <= subject.hooks:
            return "the model has no hooks at its heads' queries and outputs"
        heads = Heads.of(subject)
        if circuits.embedding(subject).shape[-1] != heads.o.shape[-1]:
            return "its token embedding is not as wide as its residual stream"
        if len(subject.data) and not circuits.describes(subject, heads):
            return "its queries and outputs are not its first norm, W_Q and W_O alone"
        one_layer = heads.n_loops == 1 and heads.places[-1][0] == 0
        if one_layer and not len(subject.answers) and circuits.same_tokens(subject) is None:
            return "it has one layer of heads, no class that is a token, and no answers"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        def trial(name: str, kind: str, plant: Any, other: Mapping[str, Any]) -> Trial:
            return Trial(
                f"{name} ({kind}-composition)",
                plant,
                library.untrained(plant) | library.in_one_subspace(plant) | dict(other),
                lambda result, one: float(
                    result.metrics[f"composition.{kind}.pair"] not in _planted_pairs(one)
                ),
                "whether the pair is another",
                settings={"directions": 0},
                detects=lambda result: result.null[f"composition.{kind}"].p_value <= 0.01,
            )

        induction, doubling = library.induction, library.pointer_doubling
        trials = (
            trial("induction head", "K", induction, library.another("pointer doubling", doubling)),
            trial("pointer doubling", "Q", doubling, library.another("induction head", induction)),
        )
        return Calibration(trials, {"draws": 99, "directions": 1, "examples": 16})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        report, heads = Report(self, subject), Heads.of(subject)
        report.metric("heads", len(heads.places))
        table: dict[str, list] = {"head": heads.names}
        sizes = {"draws": self.draws, "tokens": self.tokens}
        table |= own_tokens.add_copying(report, heads, **sizes, seed=seed)
        report.table("heads", table | views.sizes(heads), "one row per head")
        composed = composition.compose(heads, self.draws, seed)
        if composed is not None:
            self._composition(report, heads, composed)
            if np.nanmin(composed.p_values("K")) <= self.significance:
                own_tokens.add_matching(report, heads, composed, **sizes, seed=seed)
        self._directions(report, heads, seed)
        views.draw_circuits(report, heads, composed)
        return report.result()

    def _composition(self, report: Report, heads: Heads, composed: Composition) -> None:
        names, pairs = heads.names, []
        rows: dict[str, list] = {name: [] for name in ("kind", "writer", "reader", "score")}
        rows |= {"z": [], "p corrected": []}
        for kind in KINDS:
            p_values = composed.p_values(kind)
            for a, b in np.argwhere(~np.isnan(p_values)):
                found = composed.score[kind][a, b], composed.z[kind][a, b], p_values[a, b]
                row = (kind, names[a], names[b], *map(float, found))
                for name, value in zip(rows, row, strict=True):
                    rows[name].append(value)
                if p_values[a, b] <= self.significance:
                    pairs.append(f"{kind} {names[a]}→{names[b]}")
            self._sentence(report, kind, heads, composed)
        report.metric("composition.pairs", pairs)
        report.table("composition", rows, "one row per pair of heads and kind of composition")
        report.array("composition_scores", np.stack([composed.score[kind] for kind in KINDS]))

    def _sentence(self, report: Report, kind: str, heads: Heads, composed: Composition) -> None:
        a, b = composed.best(kind)
        score, z = float(composed.score[kind][a, b]), float(composed.z[kind][a, b])
        first, second = heads.names[a], heads.names[b]
        part = {"Q": "queries", "K": "keys", "V": "values"}[kind]
        report.metric(f"composition.{kind}.score", score)
        report.metric(f"composition.{kind}.pair", f"{first}→{second}")
        report.metric(
            f"composition.{kind}", z, null=composed.null, how=TURNED, unit="standard deviations"
        )
        question = f"whether the {part} of a head overlap with what another writes"
        if z == 0:
            report.abstain(
                "no turn within the subspace that all heads share changes by how much: of heads "
                "that write or read nothing, or fill it evenly",
                question,
            )
            return
        expected = float(composed.expected[kind][a, b])
        report.finding(
            f"{kind}-composition, in the weights as they stand: what the {part} of {second} read "
            f"overlaps with what {first} writes more than within the subspace that all heads "
            f"share, score {score:.2f} where turned heads have {expected:.2f}.",
            question=question,
            otherwise=(
                f"{kind}-composition is not shown: in the weights as they stand, the score that "
                f"stands out most, {score:.2f} ({first}→{second}), is within those of heads turned "
                "in the subspace that all share."
            ),
            null=f"composition.{kind}",
            effect=z,
            at_chance=True,  # of the weights
        )

    def _directions(self, report: Report, heads: Heads, seed: int) -> None:
        subject = report.subject
        if not self.directions or subject.task is None or not len(subject.answers):
            return
        skill = best_output(report.performance)
        if report.nulls and (skill is None or not skill.beats_chance):
            report.abstain(f"no direction was tested: {AT_CHANCE}")
            return
        chosen = directions.leading(heads, self.directions)
        if not chosen:
            return
        found = directions.removals(subject, heads, chosen, self.removals, self.examples, seed)
        top = int(found.rise.argmax())
        one, rise = chosen[top], float(found.rise[top])
        beyond = (found.p_values <= self.significance) & (found.rise > self.rise)
        sensitive = int(beyond.sum())
        how = "as much taken away along random directions, the largest rise of all directions"
        report.metric("directions.tested", len(chosen))
        report.metric("directions.sensitive", sensitive)
        report.metric("loss", found.loss, unit="nats")
        report.metric("directions.largest", rise, null=found.null, how=how, unit="nats")
        name = f"singular direction {one.index} of the {one.circuit} circuit of "
        name += heads.names[one.head]
        if ties := directions.as_large(heads, one):
            name += f" (one choice of basis: its singular value ties with that of {first_of(ties)})"
        passes = f" in each of its {heads.n_loops} passes" * (heads.n_loops > 1)
        measured = f"With {name} at its mean{passes} the loss"
        report.finding(
            f"{measured} rises by {rise:.2g} nats; {sensitive} of {len(chosen)} directions raise "
            f"it by more than {self.rise:g} nats and more than random ones do.",
            question="whether the model needs one singular direction",
            otherwise=(
                f"{measured} changes by {rise:+.2g} nats, the most of {len(chosen)} directions; "
                f"none raises it by more than {self.rise:g} nats and more than random ones do."
            ),
            null="directions.largest",
            effect=rise,
            least=self.rise,
            n=found.examples,
            causal=True,
        )
        views.add_directions(report, heads, found)


def _planted_pairs(plant: Planted) -> set[str]:
    """Heads of adjacent layers, each of which reads what the one before wrote."""
    names = ["L{}H{}".format(*place) for place in plant.truth["heads"].values()]
    return {f"{a}→{b}" for a, b in itertools.pairwise(names)}
