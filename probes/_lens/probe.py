"""The logit lens: what the residual stream answers at every depth (nostalgebraist 2020).

Cost: one forward. Memory: one chunk of examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mechint import figures
from mechint.decide import Claim
from mechint.errors import percent
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, Null, ProbeResult
from mechint.probes._weights.circuits import fold, norm_of, norm_scale
from mechint.subject import Subject
from mechint.subject.activations import residual_hooks
from mechint.task import ACCURACY, IGNORE, LOSS, answer_scores, logits_of

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

ENOUGH = 0.9
"""Share of the way from chance to the accuracy at the end, from which the answer can be read."""
LEAST = 0.1
"""Least accuracy of a model from whose depths an answer is said to be read: as a share of the way
from chance to certainty."""


class Readout:
    """The final norm and the unembedding of a subject's model as one linear map and a scale, in
    float64.

    Of an RMS norm the mean is not taken out.
    """

    def __init__(self, subject: Subject) -> None:
        self.model = model = subject.model
        weight = model.W_U.detach().double()
        self.bias = torch.zeros(weight.shape[1], dtype=torch.float64, device=weight.device)
        scale, centered = norm_of(model, "ln_final")
        final = getattr(model, "ln_final", None)
        if getattr(final, "b", None) is not None:
            self.bias = final.b.detach().double() @ weight  # type: ignore[union-attr]
        bias = getattr(getattr(model, "unembed", model), "b_U", None)
        if bias is not None:
            self.bias = self.bias + bias.detach().double()
        scale = None if scale is None else scale.to(weight.device)
        self.matrix = fold(scale, centered, weight)  # (d_model, d_vocab_out)

    def scale(self, x: Float[Tensor, "example d_model"]) -> Float[Tensor, "example 1"]:
        """The number by which the final norm divides x (example, d_model): (example, 1)."""
        return norm_scale(self.model, x)

    @classmethod
    def unmet(cls, subject: Subject) -> str | None:
        """The reason for which logits are not read off the last stream; None elsewhere."""
        wrapped = not hasattr(subject.model, "cfg")
        if getattr(subject.model, "W_U", None) is None or not hasattr(subject.model, "blocks"):
            given = ": give weights of W_U and b_U to mechint.wrap" if wrapped else ""
            return f"the model has no unembedding and blocks of TransformerLens's names{given}"
        if getattr(getattr(subject.model, "cfg", None), "read_layers", None) is not None:
            return "its output groups leave after different layers, so no one stream answers"
        if cls.error(subject) > 1e-3:
            norm = "W_U and b_U" if wrapped else "its final norm and W_U"
            return f"its logits are not {norm} on the last residual stream"
        return None

    @classmethod
    def error(cls, subject: Subject, examples: int = 8) -> float:
        """Largest difference of a readout's logits from the model's own, relative to the largest of
        these; infinite where W_U is not as wide as the stream, which another map then narrows.
        """
        few = subject.with_data(subject.data[:examples])
        last = list(residual_hooks(subject.n_layers, subject.hooks).values())[-1]
        own, stream = few.logits().double(), few.activation(last, "answer").double()
        if len(subject.model.W_U) != stream.shape[-1]:
            return math.inf
        mine = cls(subject).logits(stream)
        return float((mine - own).abs().max() / own.abs().max().clamp_min(1e-12))

    def logits(self, x: Float[Tensor, "example d_model"]) -> Float[Tensor, "example d_vocab_out"]:
        """The logit lens of x (example, d_model)."""
        return x @ self.matrix / self.scale(x) + self.bias


@dataclass(frozen=True)
class Lens(Probe):
    r"""After which layer can the answer be read from the residual stream?

    The lens at depth l is logits_l = N(x_l) W_U + b_U, N the final norm; the answer is readable
    from the first depth with nine tenths of the final accuracy above chance. Null: the best
    constant answer, binomial over distinct examples. What each component writes to the answer is
    the probe attribution's.
    """

    name: ClassVar[str] = "lens"
    topic: ClassVar[str] = "layers and components"
    source: ClassVar[str] = "nostalgebraist 2020, the logit lens"
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK, Need.ANSWERS, Need.RESIDUAL, Need.EMBEDDING)
    quick: ClassVar[bool] = True
    lead_rank: ClassVar[int] = 10
    level: ClassVar[float] = 0.005

    def unmet(self, subject: Subject) -> str | None:
        return Readout.unmet(subject)

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        induction = Trial(
            "induction head",
            library.induction,
            library.untrained(library.induction) | library.wrong_answers(library.addition),
            lambda result, plant: float(result.metrics["lens.ready_after"] != "L1 attention"),
            "whether the depth is another",
        )
        return Calibration((induction,), {})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        if subject.margins is not None:
            return self._by_pair(subject)
        points, readout = residual_hooks(subject.n_layers, subject.hooks), Readout(subject)
        right, losses = ({name: list[np.ndarray]() for name in points} for _ in range(2))
        for part, found in subject.stream(list(points.values()), at="answer"):
            targets = subject.targets[part]
            for name, hook in points.items():
                scores = answer_scores(
                    subject.known_task, readout.logits(found[hook].double()), targets
                )
                read = scores[targets != IGNORE].cpu().numpy()  # (answer, 2)
                right[name].append(read[:, ACCURACY] == 1)
                losses[name].append(read[:, LOSS])
        each = {name: np.concatenate(parts) for name, parts in right.items()}
        accuracy = {name: float(values.mean()) for name, values in each.items()}
        report = Report(self, subject)
        self._say(report, each, "can be read after")
        columns = {"after": list(points), "accuracy": list(accuracy.values())}
        columns["loss"] = [float(np.concatenate(parts).mean()) for parts in losses.values()]
        report.table("lens", columns, "the logit lens at every depth", {"loss": "nats"})
        report.figure(
            "lens",
            figures.lines(
                list(points),
                {"accuracy": columns["accuracy"]},
                title="Logit lens: what is answered after each layer",
                x_title="depth",
                y_title="accuracy (0–1)",
                markers=True,
                y_range=(0.0, 1.05),
                caption="Accuracy when the residual stream is unembedded there; where it jumps, "
                "the answer is written.",
            ),
        )
        return report.result()

    def _by_pair(self, subject: Subject) -> ProbeResult:
        """The lens where each answer is held against the other of its pair: their difference and
        the answer's rank among all tokens, by depth.
        """
        wrong = subject.known_task.wrong_answers(subject.data.tokens)
        assert wrong is not None
        points, readout = residual_hooks(subject.n_layers, subject.hooks), Readout(subject)
        wrong = wrong[subject.answer_examples]
        classes = torch.cat((subject.targets[:, :1], wrong), 1)  # (row, 1 + wrong answers)
        asked = (wrong != IGNORE).any(-1) & (classes[:, 0] != IGNORE)
        margins, ranks = ({name: list[np.ndarray]() for name in points} for _ in range(2))
        matrix, bias = readout.matrix.float(), readout.bias.float()
        for part, found in subject.stream(list(points.values()), at="answer"):
            rows = asked[part]
            held = classes[part][rows]
            for name, hook in points.items():
                x = found[hook][rows]
                logits = x.float() @ matrix / readout.scale(x.double()).float() + bias
                both = logits_of(subject.known_task, logits, held)
                right = both[:, :1]
                best = both[:, 1:].masked_fill(held[:, 1:] == IGNORE, -torch.inf).amax(-1)
                margins[name].append((right[:, 0] - best).double().cpu().numpy())
                ranks[name].append((logits > right).sum(-1).cpu().numpy())
        report = Report(self, subject)
        joined = {name: np.concatenate(parts) for name, parts in margins.items()}
        above = {name: values > 0 for name, values in joined.items()}
        self._say(report, above, "are above the other after")
        columns: dict[str, list[Any]] = {
            "after": list(points),
            "right by pair": [float(values.mean()) for values in above.values()],
            "difference": [float(values.mean()) for values in joined.values()],
            "rank": [float(np.concatenate(parts).mean()) for parts in ranks.values()],
            "first choice": [float((np.concatenate(p) == 0).mean()) for p in ranks.values()],
        }
        caption = "the logit lens at every depth; rank 0 is the first choice, means over answers"
        report.table("lens", columns, caption, {"difference": "nats"})
        for name, y_title, caption, log in (
            ("difference", "right answer above the other's (nats)", "Mean difference", False),
            ("rank", "rank of the right answer", "Mean rank of the answer", True),
        ):
            values = columns[name] if not log else [value + 1 for value in columns[name]]
            report.figure(
                name,
                figures.lines(
                    list(points),
                    {name: values},
                    title=f"Logit lens: {name} after each layer",
                    x_title="depth",
                    y_title=y_title + ", from 1" * log,
                    y_log=log,
                    caption=f"{caption} when the residual stream is unembedded there; where it "
                    "jumps, the answer is written.",
                ),
            )
        return report.result()

    def _say(
        self, report: Report, right: Mapping[str, Bool[np.ndarray, " answer"]], are: str
    ) -> None:
        """Record the accuracy at the end with its null, and say after which depth the answers that
        are right there and at the end are.
        """
        subject, end = report.subject, list(right.values())[-1]
        final = float(end.mean())
        outputs = report.performance
        chance = float(
            np.average([skill.chance for skill in outputs], weights=[o.n for o in outputs])
        )
        own = subject.task is not None and subject.task.own_choices
        read = "its first choices" if own else "its right answers"
        n = len(subject.distinct_examples[(subject.targets != IGNORE).any(1)].unique())
        p_value = min(1.0, *(skill.p_value * skill.questions for skill in outputs))
        rival = "the best constant answer" if subject.margins is None else "a coin"
        how = f"{rival}, binomial over distinct examples"
        std = math.sqrt(chance * (1 - chance) / n)
        null = Null("lens.final_accuracy", final, chance, std, p_value, how)
        enough = min(chance + ENOUGH * (final - chance), final)
        both = {name: float((values & end).mean()) for name, values in right.items()}
        ready = next(name for name, value in both.items() if value >= enough)
        both = {name: value / max(final, 1e-12) for name, value in both.items()}
        before = [*both.values()][: [*both].index(ready)]
        less = f", {percent(max(before))} before" if before else ""
        report.metric("lens.final_accuracy", final, null=null)
        report.metric("lens.ready_after", ready)
        report.finding(
            Claim(
                f"{percent(both[ready])} of {read} {are} {ready}{less}.",
                no="The model's answers are hardly better than chance: no depth is told.",
                unclear="The depth from which the answer can be read is unclear.",
            ),
            Effect(
                final, "", f"{'share of them' if own else 'accuracy'} at the end", chance, "chance"
            ),
            null="lens.final_accuracy",
            least=chance + LEAST * (1 - chance),
            n=n,
        )
