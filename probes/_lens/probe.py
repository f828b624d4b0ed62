"""The lens: what the residual stream already answers at every depth, and who wrote it there.

Logit lens (nostalgebraist 2020): the residual stream x after any layer goes through the final norm
and the unembedding, logits(x) = N(x) W_U + b_U, each x with a norm of its own. Direct logit
attribution (Elhage et al. 2021): the last x is a sum of what the embedding, every head and every
MLP wrote; with the scale s of the final norm held fixed the logits are the sum of
component · M / s + bias, M the norm's weights times W_U, centered over d_model where the norm
centers. Attributions are to the right class, above the mean class of its output. A head's part is
split over source positions by its pattern; what its value bias adds is the same for every input and
counts as the attention's bias, with b_O (TransformerLens folds it into b_O).

Cost: one forward, components × d_model × d_vocab_out multiplications an example. Memory: one chunk
of examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from mechint.activations import residual_hooks, writer_hooks
from mechint.config import setting
from mechint.probe import Need, Probe, Report
from mechint.results import Null, ProbeResult
from mechint.subject import At, Subject
from mechint.task import IGNORE
from probes._lens.attribution import FINAL_BIASES, Sums
from probes._lens.nulls import OtherAnswers, above_chance, other_answers
from probes._lens.readout import Readout
from probes._lens.views import (
    attribution_figures,
    attribution_table,
    depth_figure,
    depth_table,
)
from probes.positions import position_names
from probes.ties import as_much, tied

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

MOST, CANCELED = 0.5, 2.0
"""More than this share of all sizes, or of the answers, is most of them; and sizes of so many times
their sum cancel."""
LEAST = 0.1
"""Least accuracy of a model from whose depths an answer is said to be read: as a share of the way
from chance to certainty."""


@dataclass(frozen=True)
class Lens(Probe):
    """What does the residual stream already answer after every layer, and which heads and layers
    wrote the answer?

    The answer counts as ready at the first depth whose accuracy makes up nine tenths of the way
    from chance to the accuracy at the end, where that makes up a tenth of the way from chance to
    certainty. Accuracy is the share of all answers asked for that are right; the test against
    chance counts each distinct example once, by its share of right answers. The largest mean
    attribution of a component is held, at p ≤ 0.005, against the same maximum with the classes
    renamed at random; where there are too few of them, with the operands' values renamed, or, where
    inputs are no grid of equal operands, the answers dealt out anew among the inputs. Its share is
    of the sizes of all attributions, that of the final biases included, which are the same for
    every input: it writes "most" where that is more than half, so that taking all from it that is
    written against the answer leaves it more than half of the whole. Components that write as much,
    to 1e-4, are named with it; so is the share of answers that it writes the largest part of, where
    that is no more than half. Where no component writes most and the sizes sum to more than twice
    the whole, parts cancel, as those of two heads with opposite W_O do, and the probe abstains.
    Both are said only of a model that answers better than chance. Where attributions do not add up
    to what they are parts of, by more than a thousandth of the largest score, as where a norm
    follows attention or MLP (OLMo 2), they are left out with all that is computed from them.
    """

    name: ClassVar[str] = "lens"
    source: ClassVar[str] = (
        "nostalgebraist 2020, the logit lens; Elhage et al. 2021, A Mathematical Framework "
        "for Transformer Circuits"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK, Need.ANSWERS, Need.RESIDUAL, Need.EMBEDDING)
    quick: ClassVar[bool] = True

    permutations: int = setting(
        400, "samples of the null; more where classes are renamed, which costs little", low=1
    )

    @property
    def significance(self) -> float:
        return 0.005

    def unmet(self, subject: Subject) -> str | None:
        if not all(hasattr(subject.model, part) for part in ("cfg", "W_U", "unembed", "blocks")):
            return "the model has no unembedding and blocks of TransformerLens's names"
        if getattr(subject.model.cfg, "read_layers", None) is not None:
            return (
                "its output groups leave after different layers, so the last residual stream is "
                "not the sum that answers"
            )
        if Readout.error(subject) > 1e-3:
            return "its logits are not its final norm and W_U on the last residual stream"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        induction = Trial(
            "induction head",
            library.induction,
            library.untrained(library.induction) | library.wrong_answers(library.addition),
            library.misses(
                lambda result: [result.metrics["attribution.top_component"]],
                lambda plant: [library.head("induction")(plant)],
            ),
            "heads missed or made up",
        )
        return Calibration((induction,), {"permutations": 199})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        sums, readout = Sums(), Readout(subject)
        known = subject.hooks
        points = residual_hooks(subject.n_layers, known)
        parts = writer_hooks(subject.n_layers, known)
        wanted: dict[str, At] = dict.fromkeys([*points.values(), *parts], "answer")
        for layer in range(subject.n_layers):
            wanted |= {
                f"blocks.{layer}.attn.hook_pattern": "answer",
                f"blocks.{layer}.attn.hook_v": None,
            }
        others = other_answers(subject, self.permutations, seed)
        for part, found in subject.stream(list(wanted), wanted):
            sums.add(subject, readout, points, part, found, others)
        sums.divide(int((subject.targets != IGNORE).sum()))
        return self._report(subject, sums, others)

    def _report(self, subject: Subject, sums: Sums, others: OtherAnswers) -> ProbeResult:
        report = Report(self, subject)
        self._depths(report, subject, sums)
        if sums.adds_up:
            self._writers(report, subject, sums, others)
        else:
            report.metric("attribution.error", sums.error, unit="nats")
            report.abstain(
                "who wrote the answer is not told: what the components write does not add up to "
                f"its logits (off by up to {sums.error:.2g} nats), as where a norm follows "
                "attention or MLP"
            )
        return report.result()

    def _depths(self, report: Report, subject: Subject, sums: Sums) -> None:
        """From which depth on the answer can be read."""
        final, null = list(sums.right.values())[-1], _final_accuracy(subject, sums)
        chance = null.mean
        enough = chance + 0.9 * (final - chance)
        ready = next(name for name, value in sums.right.items() if value >= min(enough, final))
        report.metric("lens.final_accuracy", final, null=null)
        report.metric("lens.ready_after", ready)
        report.table("lens", depth_table(sums))
        report.figure("lens", depth_figure(sums))
        report.finding(
            f"The answer can be read after {ready} (accuracy {sums.right[ready]:.2f}, at the end "
            f"{final:.2f}, chance {chance:.2f})",
            question="where the answer can be read",
            otherwise=(
                f"The answer is not said to be read at any depth: accuracy {final:.2f} at the end, "
                f"where {chance + LEAST * (1 - chance):.2f} is asked for, chance {chance:.2f}"
            ),
            null="lens.final_accuracy",
            effect=(final - chance) / max(1 - chance, 1e-12),
            least=LEAST,
            n=_examples(subject),
        )

    def _writers(self, report: Report, subject: Subject, sums: Sums, others: OtherAnswers) -> None:
        """Which component writes most of the answer."""
        written = {name: value for name, value in sums.attribution.items() if name in sums.null}
        names, values = list(written), np.array(list(written.values()))
        top, *ties = (names[index] for index in tied(values)[0])
        report.update({"attribution.top_component": top, "attribution.tied": ties})
        report.metric(
            "attribution.top",
            written[top],
            null=Null.sampled(
                "attribution.top",
                written[top],
                np.stack(list(sums.null.values())).max(0),
                others.how,
                others.arrangements,
            ),
            unit="nats",
        )
        total = sum(sums.attribution.values())
        size = sum(abs(one) for one in sums.attribution.values())
        share = written[top] / max(1e-12, size)
        report.update(
            {
                "attribution.final_biases": sums.attribution[FINAL_BIASES],
                "attribution.total": total,
                "attribution.top_share": share,
                "attribution.largest_on": sums.largest[top],
                "attribution.error": sums.error,
            }
        )
        report.table("attribution", attribution_table(sums))
        if sums.by_position:
            report.array("positions", np.stack(list(sums.by_position.values())))
        for name, figure in attribution_figures(sums, top, position_names(subject)).items():
            report.figure(name, figure)
        question = "which component writes the right answer"
        at_chance = not any(one.beats_chance for one in report.performance)
        if share <= MOST and size > CANCELED * abs(total) and not at_chance:
            least = names[int(values.argmin())]
            report.abstain(
                f"what components write cancels: {top} {written[top]:+.2f} nats{as_much(ties)}, "
                f"{least} {written[least]:+.2f}, of {total:.2f} in all above the mean class",
                question,
            )
            return
        report.finding(
            _who_writes(sums, top, ties, share, total),
            question=question,
            otherwise=(
                f"What the components write of the right answer is not told from what they write "
                f"of other answers in its place: at most {written[top]:.2f} nats above the mean "
                f"class ({top})"
            ),
            null="attribution.top",
            effect=written[top],
            n=_examples(subject),
        )


def _final_accuracy(subject: Subject, sums: Sums) -> Null:
    """The accuracy at the end beside chance, each answer's that of its own output."""
    rows, outputs = (subject.targets != IGNORE).nonzero().cpu().unbind(1)
    chance = np.array([level.accuracy for level in subject.chance.values()])
    return above_chance(
        torch.cat(sums.at_end).cpu().numpy(),
        chance[outputs],
        subject.distinct_examples.cpu()[rows].numpy(),
    )


def _examples(subject: Subject) -> int:
    """Distinct examples of which an answer is asked for."""
    return len(subject.distinct_examples[(subject.targets != IGNORE).any(1)].unique())


def _who_writes(sums: Sums, top: str, ties: Sequence[str], share: float, total: float) -> str:
    written, biases = sums.attribution[top], sums.attribution[FINAL_BIASES]
    nats = f"{written:.2f} nats of logit above the mean class{as_much(ties)}"
    more = (
        f"; the final biases, the same for every input, add more, {biases:.2f} nats"
        if biases > written
        else f", of {total:.2f} in all"
    )
    often, mostly = sums.largest[top], max(sums.largest, key=lambda name: sums.largest[name])
    if often <= MOST:
        other = f"; that of {mostly} is in {sums.largest[mostly]:.0%}" * (mostly != top)
        rarely = f"but the largest in only {often:.0%} of the answers{other}"
        return f"Of the components {top} writes the largest part on average, {rarely}: {nats}{more}"
    if biases > written:
        return f"Of the components {top} writes the largest part, {nats}{more}"
    return (
        f"{top} writes {'most of it' if share > MOST else 'the largest part of it'}, {nats}{more}"
    )
