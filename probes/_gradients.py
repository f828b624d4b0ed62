"""The gradient of the training loss by weight: which parts of the model still change."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.probe import Need, Probe, Report
from mechint.probe.results import EACH, Effect, ProbeResult, Scope
from mechint.probes._llc.sampler import training_data
from mechint.probes.loss_gradient import loss_gradient, permute_where
from mechint.subject import Subject
from mechint.task import IGNORE, Batch, Task, rng

if TYPE_CHECKING:
    from mechint.planted import Planted
    from mechint.planted.calibration import Calibration

LEAST_BELOW = math.log10(2)
"""Powers of ten that the gradient has to lie below those of other answers."""
ENOUGH = 2000
"""With at least this many renamings the null renames the classes; with fewer it shuffles the
answers.
"""


RENAMED = "classes renamed at random"


@dataclass(frozen=True)
class Gradients(Probe):
    r"""How large is the gradient of the loss at every weight?

    norm(W) = |dL/dW|_2, L the mean cross-entropy of each output, averaged over outputs, or divided
    by ln(classes) and added (`weights="log"`, Eq. 12). Null: classes renamed at random, answers
    permuted among examples where there are few; a model that learned its answers has a smaller
    gradient. Over training: `--over-steps`.

    Cost: one forward and one backward, and as much per sample of the null.
    """

    name: ClassVar[str] = "gradients"
    topic: ClassVar[str] = "learning and capacity"
    source: ClassVar[str] = (
        "Mechanistic Interpretability on (Multi-task) Irreducible Integer Identifiers, Fig. "
        "18 and Eq. 12"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK, Need.ANSWERS)

    split: str = setting(
        "train",
        "examples of a finite task whose loss it is, all where the model's split is not known",
        choices=("train", "all"),
    )
    weights: str = setting(
        "equal", "mean over outputs, or sum of CE / ln(classes)", choices=("equal", "log")
    )
    permutations: int = setting(99, "samples of other answers for the null", low=1)

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        addition = Trial(
            "modular addition",
            library.addition,
            library.untrained(library.addition) | library.wrong_answers(library.addition),
            _unembedding_error,
            "relative error of the unembedding's gradient norm",
            tolerance=1e-3,
            settings={"split": "all"},
        )
        return Calibration((addition,), {"permutations": 99})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        # norm(W) = |∂L/∂W|₂, L the mean cross-entropy of each output, averaged over outputs or
        # divided by ln(classes) and added (Eq. 12 of the source); the null is the same of other
        # answers, so that what is learned has a smaller norm.
        data = training_data(subject, self.split)
        # the model's skill is asked of all answers that the loss has
        report = Report(self, subject.with_answer("all").with_data(data))
        loss, found = loss_gradient(subject, data, self._weights(subject.known_task, data.targets))
        names = (name for name, _ in subject.model.named_parameters())
        norms = {name: float(gradient.norm()) for name, gradient in zip(names, found, strict=True)}
        total, largest = math.hypot(*norms.values()), max(norms, key=lambda name: norms[name])
        other, how = self._other_answers(data)
        shuffled = []
        for i in range(self.permutations):
            targets = other(data.targets, rng("gradients null", seed, i))
            weights = self._weights(subject.known_task, targets)
            _, found = loss_gradient(subject, Batch(data.tokens, targets), weights)
            shuffled.append(math.hypot(*(float(gradient.norm()) for gradient in found)))
        report.update(
            {
                "gradients.total": total,
                "gradients.loss": loss,
                "gradients.norms": norms,
                "gradients.largest": largest,
                "gradients.largest_share": norms[largest] ** 2 / max(total**2, 1e-300),
            }
        )
        logs = np.log10(np.maximum(shuffled, 1e-300))  # (shuffle,)
        report.metric(
            "gradients.below_shuffled",
            float(logs.mean()) - math.log10(max(total, 1e-300)),
            # the shuffles against each other say how far they scatter
            null=logs.mean() - logs,
            how=how,
        )
        self._add_finding(report, int((data.targets != IGNORE).sum()), len(subject.data))

        sizes = [float(weight.detach().norm()) for weight in subject.model.parameters()]
        each = zip(norms.values(), sizes, strict=True)
        relative = [norm / size if size else math.inf if norm else 0.0 for norm, size in each]
        report.table(
            "weights",
            {"weight": list(norms), "norm": list(norms.values()), "relative": relative},
            "gradient norm, also over the weight's own",
        )
        report.figure(
            "norms",
            figures.bars(
                list(norms),
                {"gradient": list(norms.values())},
                title="Gradient norm of every weight",
                x_title="weight",
                y_title="gradient norm (nats per unit of weight)",
                y_log=max(norms.values()) > 0,
                highlight=[largest],
                caption="The L2 norm of the loss's gradient; the largest is colored.",
            ),
        )
        return report.result()

    def _add_finding(self, report: Report, n: int, every: int) -> None:
        """Report the norm against that of other answers; n: answers behind it; every: examples of
        the subject, of which the loss may have those of the training split alone.
        """
        metrics, used = report.metrics, len(report.subject.data)
        trained = f"the {used:,} of {every:,} inputs of the task's training split" * (used < every)
        loss = "the training split's loss" if trained else "the whole loss"
        below = metrics["gradients.below_shuffled"]
        renamed = report.nulls["gradients.below_shuffled"].how == RENAMED
        other = "other answers"
        if not renamed:  # as many inputs keep theirs as answers repeat
            answers = report.subject.data.targets
            shares = answers[answers != IGNORE].unique(return_counts=True)[1] / max(n, 1)
            other = f"its answers permuted, {float((shares**2).sum()):.0%} of which stay"
        report.finding(
            Claim(
                f"The gradient of {loss} is smaller than for {other}.",
                no=f"The gradient of {loss} is more than half of that for {other}."
                if below < LEAST_BELOW
                else f"The gradient of {loss} is no smaller than for {other}.",
                unclear="The size of the gradient is unclear.",
                doubt="it is zero to the precision of the weights"
                if not metrics["gradients.total"]
                else "",
            ),
            Effect(below, "powers of ten", f"below {other.partition(',')[0]}", 0.0, "as large"),
            null="gradients.below_shuffled",
            least=LEAST_BELOW,
            n=n,
            scope=Scope(used, inputs=trained) if trained else EACH,
        )

    def _weights(
        self, task: Task, targets: Int[Tensor, "example pos output"]
    ) -> Float[Tensor, "example pos output"]:
        """The weight of every answer in the loss."""
        read = targets != IGNORE
        count = read.sum((0, 1))  # (output,)
        classes = torch.tensor([output.n_classes for output in task.outputs], device=read.device)
        scale = (count > 0).sum() if self.weights == "equal" else classes.double().log()
        return read / (scale * count.clamp_min(1)).double()

    @staticmethod
    def _other_answers(data: Batch) -> tuple[Callable[[Tensor, np.random.Generator], Tensor], str]:
        """The function that replaces the answers in the null, and its description."""
        classes = [column[column != IGNORE].unique() for column in data.targets.flatten(0, 1).T]
        if math.prod(math.factorial(min(len(present), 20)) for present in classes) < ENOUGH:
            return _permuted, "answers permuted among the examples"
        return _renamed, RENAMED


def _permuted(targets: Tensor, draw: np.random.Generator) -> Tensor:
    """(example, pos, output) the answers of other examples; where these are read at other places,
    each at the place of its own.
    """
    if bool(((targets != IGNORE) == (targets[0] != IGNORE)).all()):
        return targets[torch.from_numpy(draw.permutation(len(targets))).to(targets.device)]
    moved = targets.clone()
    for column in moved.unbind(-1):
        permute_where(column, column != IGNORE, draw)
    return moved


def _renamed(targets: Tensor, draw: np.random.Generator) -> Tensor:
    """(example, pos, output) with the classes of each output exchanged."""
    renamed = targets.clone()
    for output in range(targets.shape[-1]):
        column = targets[..., output]
        present, index = column[column != IGNORE].unique(return_inverse=True)
        order = torch.from_numpy(draw.permutation(len(present))).to(targets.device)
        renamed[..., output][column != IGNORE] = present[order][index]
    return renamed


def _unembedding_error(result: ProbeResult, plant: Planted) -> float:
    """Relative error of ‖∂L/∂W_U‖ against its closed form Σ x (softmax − one-hot)ᵀ / n."""
    subject = plant.subject
    x = subject.activation("blocks.0.hook_resid_post", "answer").double()
    error = subject.logits().double().softmax(-1)
    error[range(len(error)), subject.targets[:, 0]] -= 1
    expected = float((x.T @ error / len(x)).norm())
    return abs(result.metrics["gradients.norms"]["unembed.W_U"] - expected) / max(expected, 1e-9)
