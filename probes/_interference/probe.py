"""The interference probe: whether batches, outputs and background pull the same way."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.errors import ParameterError
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, Figure, Null, ProbeResult
from mechint.probes.loss_gradient import loss_gradient
from mechint.task import IGNORE, Batch, Task, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject


@dataclass(frozen=True)
class Interference(Probe):
    r"""Are batch gradients aligned with, opposed to, or orthogonal to the task's gradient?

    cos(g_batch, g_task) = <g_batch, g_task> / (|g_batch| |g_task|), with g_task the gradient of the
    mean loss over instances of the task, and g_batch that of training batches, whole and by output
    or by task and background tokens.
    Null: the batches' labels permuted within each group. Over training: `--over-steps`.

    Cost: a forward, and a backward per group, for the reference and every batch; as much per sample
    of the null.
    """

    name: ClassVar[str] = "interference"
    topic: ClassVar[str] = "learning and capacity"
    source: ClassVar[str] = "Yu et al. 2020, Gradient Surgery for Multi-Task Learning"
    needs: ClassVar[tuple[Need, ...]] = (Need.ANSWERS,)

    examples: int = setting(512, "instances of the task in the reference", low=2)
    batches: int = setting(8, "training batches", low=1)
    batch_size: int = setting(32, "examples per batch", low=2)
    null_samples: int = setting(99, "permutations of the labels", low=1)

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        underconfident = Trial(
            "underconfident addition",
            library.underconfident_addition,
            {
                "untrained, shuffled labels": library.untrained_on_shuffled,
                "half memorized": library.half_memorized,
            },
            lambda result, plant: float(result.metrics["cosine.batch"] <= 0),
            "sign of the cosine (0 right, 1 wrong)",
            # of 16 examples a batch may happen to pull the other way, and the probe is then silent
            settings={"examples": 128, "batches": 1, "batch_size": 64},
        )
        small = {"examples": 32, "batches": 2, "batch_size": 8, "null_samples": 99}
        return Calibration((underconfident,), small)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        assert subject.task is not None
        reference, batches = self._data(subject, seed)
        read = (reference.targets != IGNORE).float()
        mean = read / read.sum().clamp_min(1)  # the mean over all targets that are read
        direction = group_gradients(subject, reference, mean[None])
        found, together, groups, rows, total = self._batches(subject, direction, batches)
        report = Report(self, subject)
        if not bool(torch.isfinite(found[0]).any()):
            report.unclear(
                "The direction of the gradients is unclear.",
                "the gradients of the batches, or of the task, are zero",
            )
            return report.result()
        self._cosines(report, found, groups, self._null(subject, direction, batches, seed))
        report.metric("cosine.mean_gradient", together)
        report.update({"parameters": direction.shape[1], "batches": len(batches)})
        matrix = cosines(total[1:], total[1:]).cpu()
        report.table(
            "batches",
            {
                "batch": list(range(len(rows))),
                "task_positions": rows,
                **dict(zip(groups, found.tolist(), strict=True)),
            },
            "One row per batch: cosine of its gradient, whole and by part, with the reference; "
            "task_positions says where instances are.",
        )
        report.array("cosines", found.numpy())
        report.array("groups", matrix.numpy())
        report.figures |= interference_figures(groups, found, matrix, report.nulls)
        self._say(report, groups)
        return report.result()

    def _cosines(
        self, report: Report, found: Tensor, groups: Sequence[str], permuted: np.ndarray
    ) -> None:
        for i, name in enumerate(groups):
            value = float(found[i].nanmean())
            column = permuted[:, i] if i < permuted.shape[1] else np.zeros(0)
            column = column[np.isfinite(column)]
            tested = len(column) and bool(torch.isfinite(found[i]).any())
            report.metric(
                f"cosine.{name}",
                value,
                null=column if tested else None,
                how="labels permuted within the groups of every batch",
            )

    def _null(
        self, subject: Subject, direction: Tensor, batches: Sequence[Batch], seed: int
    ) -> np.ndarray:
        """(sample, 1 or 2) mean over the batches of the cosines with labels permuted, those of
        every batch anew in every sample.
        """
        drawn = [
            self._permuted(
                subject,
                direction,
                batch,
                [rng("labels", seed, which, k) for k in range(self.null_samples)],
            ).numpy()
            for which, batch in enumerate(batches)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a group that no batch has
            return np.nanmean(drawn, 0)

    def _say(self, report: Report, groups: Sequence[str]) -> None:
        """Report whether batches are aligned with the task's gradient."""
        metrics, null = report.metrics, report.nulls["cosine.batch"]
        least = min(metrics["cosine.batch"], metrics["cosine.mean_gradient"])
        report.finding(
            Claim(
                "Batch gradients are aligned with the task's.",
                no="Batch gradients are no more aligned with the task's than permuted labels give."
                if least > 0
                else "Batch gradients are not aligned with the task's.",
                at_chance=True,
            ),
            Effect(least, "", "cosine", null.mean, "permuted labels"),
            null="cosine.batch",
        )

    # --- what is measured -------------------------------------------------------------------------
    def _data(self, subject: Subject, seed: int) -> tuple[Batch, list[Batch]]:
        """Instances of the reference, and training batches."""
        assert subject.task is not None
        if "task" in subject.data.masks:
            stream = subject.task.stream("train", seed, self.batch_size)
            batches = [batch.to(subject.device) for batch in itertools.islice(stream, self.batches)]
            return subject.task.sample(self.examples, seed, "task").to(subject.device), batches
        order = torch.from_numpy(rng("interference", seed).permutation(len(subject.data))).to(
            subject.device
        )
        size = min(self.batch_size, len(order) // (2 * self.batches))
        if size < 2:
            raise ParameterError(
                f"interference: {len(order)} examples are too few for {self.batches} batches "
                "beside the reference; set batches lower"
            )
        held, used = order[size * self.batches :], order[: size * self.batches]
        return subject.data[held[: self.examples]], [
            subject.data[part] for part in used.split(size)
        ]

    def _batches(
        self, subject: Subject, direction: Tensor, batches: Sequence[Batch]
    ) -> tuple[Tensor, float, list[str], list[int], Tensor]:
        """(group, batch) cosines with the reference, that of the batches' mean gradient, the
        groups' names, every batch's number of task positions, and (group, parameter) gradients
        summed over the batches.
        """
        assert subject.task is not None
        columns, names, counts = [], [], []
        mean, total = torch.zeros_like(direction), torch.zeros(())
        for batch in batches:
            names, weights = with_whole(subject.task, batch)
            rows = group_gradients(subject, batch, weights)
            columns.append(cosines(rows, direction)[:, 0].cpu())
            mean += rows[:1] / weights[0].sum().clamp_min(1) / len(batches)
            total = total.to(rows) + rows
            counts.append(int(batch.masks["task"].sum()) if "task" in batch.masks else len(batch))
        return torch.stack(columns, 1), float(cosines(mean, direction)), names, counts, total

    def _permuted(
        self,
        subject: Subject,
        direction: Tensor,
        batch: Batch,
        generators: Sequence[np.random.Generator],
    ) -> Tensor:
        """(generator, 1 or 2) cosines of the whole batch, and of its task part, when the labels are
        permuted within every group.
        """
        assert subject.task is not None
        _, weights = with_whole(subject.task, batch)
        # the whole batch, and the task's part where there is a background
        asked = weights[: 1 + ("task" in batch.masks)]
        found = []
        for generator in generators:
            targets = batch.targets.clone()
            for group in weights[1:] if len(weights) > 1 else weights:
                where = group.nonzero(as_tuple=True)
                order = torch.from_numpy(generator.permutation(len(where[0]))).to(targets.device)
                targets[where] = targets[where][order]
            rows = group_gradients(subject, Batch(batch.tokens, targets), asked)
            found.append(cosines(rows, direction)[:, 0].cpu())
        return torch.stack(found)


# --- figures --------------------------------------------------------------------------------------
def interference_figures(
    groups: Sequence[str],
    found: Float[Tensor, "group batch"],
    matrix: Float[Tensor, "part part"],
    null: Mapping[str, Null],
) -> dict[str, Figure]:
    """Cosines by batch, and between the groups."""
    shown, axis, whole = (
        dict(enumerate(groups[:6])),
        "cosine with the reference (−1 to 1)",
        null["cosine.batch"],
    )
    result = {
        "batches": figures.lines(
            list(range(found.shape[1])),
            {name: found[i].tolist() for i, name in shown.items()},
            title="Batch gradients along the task's direction",
            x_title="batch (number)",
            y_title=axis,
            null=(whole.mean, whole.mean - 2 * whole.std, whole.mean + 2 * whole.std),
            markers=True,
            caption=(
                "Above zero a batch teaches the task, below it unlearns it. Gray: labels permuted."
            ),
        )
    }
    if len(matrix) > 1:
        result["groups"] = figures.heatmap(
            matrix.tolist(),
            x=list(groups[1:]),
            y=list(groups[1:]),
            title="Gradients of the parts against each other",
            x_title="part of the loss",
            y_title="part of the loss",
            z_title="cosine (−1 to 1)",
            diverging=True,
            limits=(-1, 1),
            square=True,
            caption="Red: the parts help each other; blue: they collide.",
        )
    return result


# --- gradients of groups of answers ---------------------------------------------------------------
def groups_of(task: Task, data: Batch) -> dict[str, Tensor]:
    """Name → weights like targets that pick one group's answers: outputs where there are several,
    else masks and the background.
    """
    read = (data.targets != IGNORE).float()
    if read.shape[-1] > 1:
        return {
            output.name: read * torch.eye(read.shape[-1], device=read.device)[i]
            for i, output in enumerate(task.outputs)
        }
    masks = {name: mask[..., None] * read for name, mask in data.masks.items()}
    if masks:
        masks["background"] = read * (1 - torch.stack(list(masks.values())).amax(0))
    return masks


def group_gradients(
    subject: Subject, data: Batch, weights: Float[Tensor, "group example pos output"]
) -> Float[Tensor, "group parameter"]:
    """The gradient of the loss under each row of weights, a backward each."""
    each = (loss_gradient(subject, data, part)[1] for part in weights)
    return torch.stack([torch.cat([one.flatten() for one in parts]) for parts in each])


def cosines(
    a: Float[Tensor, "row_a parameter"], b: Float[Tensor, "row_b parameter"]
) -> Float[Tensor, "row_a row_b"]:
    """(row of a, row of b) cosines in float64; NaN where a gradient is zero."""
    a, b = a.double(), b.double()
    return (a @ b.T) / (a.norm(dim=1)[:, None] * b.norm(dim=1)).where(
        a.norm(dim=1)[:, None] * b.norm(dim=1) > 0, torch.nan
    )


def with_whole(
    task: Task, batch: Batch
) -> tuple[list[str], Float[Tensor, "group example pos output"]]:
    """Names and weights (group, example, pos, output) of the whole batch and of its groups."""
    groups = groups_of(task, batch)
    return ["batch", *groups], torch.stack([(batch.targets != IGNORE).float(), *groups.values()])
