"""The lens: what the residual stream answers at every depth, and which component wrote it.

Logit lens (nostalgebraist 2020): logits(x) = N(x) W_U + b_U after every layer. Direct logit
attribution (Elhage et al. 2021): with the scale s of the final norm held fixed, the last stream is
a sum of components c, and the right logit above the mean class is the sum of c · M / s + bias, M
the norm's weights times W_U. What b_V adds is the same for every input and counts as the
attention's bias.

Cost: one forward, components × d_model × d_vocab_out multiplications an example. Memory: one chunk
of examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from mechint import figures
from mechint.activations import residual_hooks, writer_hooks
from mechint.config import setting
from mechint.probe import Need, Probe, Report
from mechint.results import Effect, Figure, Null, ProbeResult
from mechint.subject import At, Subject
from mechint.task import IGNORE
from probes._lens.attribution import FINAL_BIASES, Sums
from probes._lens.nulls import OtherInputs, Renamed, above_chance, other_answers
from probes._lens.readout import Readout
from probes.ties import tied
from probes.words import listed

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
    r"""After which layer can the answer be read, and which component writes it?

    The lens at depth l is logits_l = N(x_l) W_U + b_U; the answer is readable from the first depth
    with nine tenths of the final accuracy above chance. A component c writes
    c M_y / s - mean_k c M_k / s of the right class y. Null: the same with the classes renamed
    (permuted inputs where they are few). Not available where a norm follows attention or MLP.
    """

    name: ClassVar[str] = "lens"
    topic: ClassVar[str] = "layers and components"
    source: ClassVar[str] = (
        "nostalgebraist 2020, the logit lens; Elhage et al. 2021, A Mathematical Framework "
        "for Transformer Circuits"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK, Need.ANSWERS, Need.RESIDUAL, Need.EMBEDDING)
    quick: ClassVar[bool] = True
    lead_rank: ClassVar[int] = 10
    level: ClassVar[float] = 0.005

    permutations: int = setting(
        400, "samples of the null; more where classes are renamed, which costs little", low=1
    )

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
            wanted[f"blocks.{layer}.attn.hook_pattern"] = "answer"
        others = other_answers(subject, self.permutations, seed)
        for part, found in subject.stream(list(wanted), wanted):
            sums.add(subject, readout, points, part, found, others)
        sums.divide(int((subject.targets != IGNORE).sum()))
        return self._report(subject, sums, others)

    def _report(self, subject: Subject, sums: Sums, others: Renamed | OtherInputs) -> ProbeResult:
        report = Report(self, subject)
        self._depths(report, subject, sums)
        if sums.adds_up:
            self._writers(report, subject, sums, others)
        else:
            report.metric("attribution.error", sums.error, unit="nats")
            report.unclear(
                "Who writes the answer cannot be told.",
                f"components do not add up to the logits (off by {sums.error:.2g} nats), as where "
                "a norm follows attention or MLP",
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
        columns = {"after": list(sums.right), "accuracy": list(sums.right.values())}
        columns["loss"] = list(sums.loss.values())
        report.table("lens", columns, "the logit lens at every depth", {"loss": "nats"})
        report.figure("lens", depth_figure(sums))
        report.hero("lens")
        report.finding(
            f"The answer can be read after {ready}.",
            no="The answer cannot be read at any depth.",
            null="lens.final_accuracy",
            effect=Effect(
                final, label="accuracy at the end", baseline=chance, baseline_label="chance"
            ),
            least=chance + LEAST * (1 - chance),
            details={
                f"accuracy after {ready}": sums.right[ready],
                "accuracy at the end": final,
                "chance": chance,
            },
            n=_examples(subject),
        )

    def _writers(
        self, report: Report, subject: Subject, sums: Sums, others: Renamed | OtherInputs
    ) -> None:
        """Report the component that writes most of the answer."""
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
        report.table(
            "attribution",
            {"component": list(sums.attribution), "attribution": list(sums.attribution.values())},
            "mean part of the right logit, above the mean class",
            {"attribution": "nats"},
        )
        report.figure("attribution", attribution_figure(sums, top))
        at_chance = not any(one.beats_chance for one in report.performance)
        if share <= MOST and size > CANCELED * abs(total) and not at_chance:
            least = names[int(values.argmin())]
            report.unclear(
                "Which component writes the answer cannot be told.",
                f"components cancel: {top} {written[top]:+.2f}, {least} {written[least]:+.2f}, "
                f"of {total:.2f} nats in all",
            )
            return
        often = sums.largest[top]
        verb = "writes the largest part of the answer"
        if share > MOST and often > MOST:
            verb = "writes most of the answer"
        biases = sums.attribution[FINAL_BIASES]
        caveats = {
            f"the largest part in only {often:.0%} of answers": often <= MOST,
            "the final biases add more, the same for every input": biases > written[top],
            f"{listed(ties[:2])} write as much": bool(ties),
        }
        report.metric("attribution.writer", top)
        report.finding(
            f"{top} {verb}.",
            no="No component writes more of the answer than of others.",
            null="attribution.top",
            effect=Effect(written[top], "nats", "right logit", total, "all components and biases"),
            details={"share of all sizes": share, "final biases": biases, "largest on": often},
            caveat=next((words for words, holds in caveats.items() if holds), ""),
            n=_examples(subject),
        )
        if share > MOST and often > MOST:
            report.lead(f"{top} writes the answer.")


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


def depth_figure(sums: Sums) -> Figure:
    """Accuracy by depth."""
    return figures.lines(
        list(sums.right),
        {"accuracy": list(sums.right.values())},
        title="Logit lens: what is answered after each layer",
        x_title="depth",
        y_title="accuracy (0–1)",
        markers=True,
        y_range=(0, 1.05),
        caption=(
            "Accuracy when the residual stream is unembedded there; where it jumps, the answer is "
            "written."
        ),
    )


def attribution_figure(sums: Sums, top: str) -> Figure:
    """Attribution by component."""
    names = list(sums.attribution)
    values = [sums.attribution[name] for name in names]
    null = np.stack(list(sums.null.values())).max(0)
    return figures.bars(
        names,
        {"attribution": values},
        title="Direct logit attribution",
        x_title="component",
        y_title="right logit above the mean class (nats)",
        highlight=[top],
        null=(float(null.mean()), float(null.min()), float(null.max())),
        caption=(
            "What each head and layer adds to the right answer directly; the band is the largest "
            "of them, the final biases apart, when the answers are other inputs'."
        ),
    )
