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
from mechint.decide.null import largest_excess, standardized
from mechint.errors import ParameterError
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, Figure, Null, ProbeResult
from mechint.probes._llc.sampler import training_data
from mechint.probes.loss_gradient import loss_gradient, permute_where
from mechint.task import IGNORE, Batch, Task, Variable, find_variable, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject

MIN_HALVES = 0.5
"""Cosine of two halves below which each half's gradient is more noise than what both share."""


@dataclass(frozen=True)
class Interference(Probe):
    r"""Are batch gradients aligned with, opposed to, or orthogonal to the task's gradient?

    cos(g_batch, g_task) = <g_batch, g_task> / (|g_batch| |g_task|), with g_task the gradient of the
    mean loss over instances of the task, and g_batch that of training batches, whole and by output
    or by task and background tokens.
    Null: the batches' labels permuted within each group. Over training: `--over-steps`.

    With a variable: cos(g_a, g_b), g_v the gradient of the mean loss at the answers of inputs on
    which it has the value v, as the operation of ListOps. Null: answers permuted among the inputs
    of each value, which keeps what format and frequent answers have in common. Beside it, cosines
    of two halves of one value: what the size of the sample allows.

    Cost: a forward, and a backward per group, for the reference and every batch; as much per sample
    of the null.
    """

    name: ClassVar[str] = "interference"
    topic: ClassVar[str] = "learning and capacity"
    source: ClassVar[str] = "Yu et al. 2020, Gradient Surgery for Multi-Task Learning"
    needs: ClassVar[tuple[Need, ...]] = (Need.ANSWERS,)

    examples: int = setting(
        512, "instances of the task in the reference; with a variable, of each value", low=2
    )
    batches: int = setting(8, "training batches", low=1)
    batch_size: int = setting(32, "examples per batch", low=2)
    null_samples: int = setting(99, "permutations of the labels", low=1)
    variable: str | None = setting(
        None, "causal variable whose values are compared; none: batches with the task"
    )

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
        if self.variable is not None:
            return self._by_value(subject, find_variable(subject.known_task, self.variable), seed)
        reference, batches = self._data(subject, seed)
        direction = group_gradients(subject, reference, _read(reference)[None])
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
        found = list[np.ndarray]()
        for which, batch in enumerate(batches):
            _, weights = with_whole(subject.known_task, batch)
            # the whole batch, and the task's part where there is a background
            asked = weights[: 1 + ("task" in batch.masks)]
            for k in range(self.null_samples):
                generator, targets = rng("labels", seed, which, k), batch.targets.clone()
                for group in weights[1:] if len(weights) > 1 else weights:
                    permute_where(targets, group, generator)
                rows = group_gradients(subject, Batch(batch.tokens, targets), asked)
                found.append(cosines(rows, direction)[:, 0].cpu().numpy())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a group that no batch has
            return np.nanmean(np.reshape(found, (len(batches), self.null_samples, -1)), 0)

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

    # --- by the value of a variable ---------------------------------------------------------------
    def _by_value(self, subject: Subject, variable: Variable, seed: int) -> ProbeResult:
        """Cosines of the gradients of two values of the variable, and of two halves of one."""
        used = subject.with_data(training_data(subject, "train"))
        inputs = used.data.tokens[used.answer_examples]
        values = variable.value_of(inputs).cpu()
        order = torch.from_numpy(rng("interference values", seed).permutation(len(values)))
        by_value = [order[values[order] == value] for value in values.unique()]
        size = min(self.examples, *map(len, by_value)) // 2
        if size < 2 or len(by_value) < 2:
            raise ParameterError(
                f"interference: variable={variable.name}: {len(by_value)} values of at least "
                f"{min(map(len, by_value))} inputs; expected two or more of four or more"
            )
        rows = torch.stack([part[: 2 * size] for part in by_value])  # (value, row)
        tokens, positions = (column[rows.flatten()] for column in (inputs, used.answer_positions))

        def cosines_with(answers: np.ndarray) -> Float[np.ndarray, "value value"]:
            """Between the halves of two values, mean of four; of one value, between its two.

            answers (value, row): the rows whose answers the inputs have.
            """
            given = used.targets[torch.from_numpy(answers).flatten()]
            targets = torch.full((*tokens.shape, given.shape[1]), IGNORE, device=tokens.device)
            targets[torch.arange(len(tokens)), positions] = given
            halves = map(Batch, tokens.split(size), targets.split(size))
            each = torch.cat(
                [group_gradients(subject, half, _read(half)[None]) for half in halves]
            )  # (value half, parameter)
            four = cosines(each, each).unflatten(1, (-1, 2)).unflatten(0, (-1, 2))
            of_one = four[:, 0, :, 1].diagonal()
            return four.mean((1, 3)).diagonal_scatter(of_one).cpu().numpy()

        draws = (rng("interference answers", seed, k) for k in range(self.null_samples))
        null = np.stack([cosines_with(draw.permuted(rows.numpy(), axis=1)) for draw in draws])
        report, texts = Report(self, subject), dict(enumerate(variable.names))
        present = values.unique().tolist()
        names = [texts.get(value, f"{variable.name} {value}") for value in present]
        self._say_by_value(report, names, cosines_with(rows.numpy()), null)
        report.metric("inputs_by_value", 2 * size)
        return report.result()

    def _say_by_value(
        self,
        report: Report,
        names: Sequence[str],
        observed: Float[np.ndarray, "value value"],
        null: Float[np.ndarray, "sample value value"],
    ) -> None:
        """Report which values have gradients more, or less, aligned than permuted answers give,
        family-wise over their pairs.
        """
        mean, (a, b), halves = null.mean(0), np.triu_indices(len(names), 1), observed.diagonal()
        pairs = [f"{first} and {second}" for first, second in itertools.combinations(names, 2)]
        # the cosine of a gradient that is mostly noise spreads more than its null
        clear = np.minimum(halves[a], halves[b]) >= MIN_HALVES
        least = int(halves.argmin())
        doubt = f"the cosine of two halves of {names[least]} is {halves[least]:.2g}"
        level = self.significance * (1 + 1e-9)
        if clear.any():
            for word, sign in (("more", 1), ("less", -1)):
                values = np.where(clear, sign * observed[a, b], np.nan)  # (pair,)
                test, spread = standardized(values, sign * null[:, a, b])
                best, called = int(np.nanargmax(test.observed)), test.p_values <= level
                how = "answers permuted among the inputs of each value, the largest of all pairs"
                excess = largest_excess(f"cosine.{word}_aligned", test, spread, best, how)
                report.metric(excess.metric, excess.observed, null=excess)
                said = f"{word} aligned than with answers permuted"
                report.finding(
                    Claim(
                        f"Gradients of {'; '.join(np.array(pairs)[called][:3])} are {said}.",
                        no=f"No two values of {self.variable} have gradients {said}.",
                        unclear=f"Whether gradients are {said} is unclear.",
                        doubt="" if called.any() or clear.all() else doubt,
                        at_chance=True,
                    ),
                    Effect(
                        float(observed[a, b][best]),
                        label=f"cosine of {pairs[best]}",
                        baseline=float(mean[a, b][best]),
                        baseline_label="answers permuted",
                    ),
                    null=excess.metric,
                    least=-1.0,
                )
        else:
            report.unclear("Whether gradients of its values are aligned is unclear.", doubt)
        report.metric("cosine.halves", dict(zip(names, halves.tolist(), strict=True)))
        report.table(
            "values",
            {
                "values": pairs,
                "cosine": observed[a, b].tolist(),
                "answers permuted": mean[a, b].tolist(),
                "halves of the first": halves[a].tolist(),
                "halves of the second": halves[b].tolist(),
            },
            f"one row per two values of {self.variable}: cosine of the gradients of their answers",
        )
        report.array("values", observed)
        report.figure("values", part_cosines(names, observed, f"value of {self.variable}"))

    # --- what is measured -------------------------------------------------------------------------
    def _data(self, subject: Subject, seed: int) -> tuple[Batch, list[Batch]]:
        """Instances of the reference, and training batches."""
        if "task" in subject.data.masks:
            stream = subject.known_task.stream("train", seed, self.batch_size)
            batches = [batch.to(subject.device) for batch in itertools.islice(stream, self.batches)]
            return subject.known_task.sample(self.examples, seed, "task").to(
                subject.device
            ), batches
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
        columns, names, counts = [], [], []
        mean, total = torch.zeros_like(direction), torch.zeros(())
        for batch in batches:
            names, weights = with_whole(subject.known_task, batch)
            rows = group_gradients(subject, batch, weights)
            columns.append(cosines(rows, direction)[:, 0].cpu())
            mean += rows[:1] / weights[0].sum().clamp_min(1) / len(batches)
            total = total.to(rows) + rows
            counts.append(int(batch.masks["task"].sum()) if "task" in batch.masks else len(batch))
        return torch.stack(columns, 1), float(cosines(mean, direction)), names, counts, total


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
        result["groups"] = part_cosines(groups[1:], matrix.numpy(), "part of the loss")
    return result


def part_cosines(
    names: Sequence[str], matrix: Float[np.ndarray, "part part"], title: str
) -> Figure:
    """The cosines of the gradients of every two parts as a heat map."""
    return figures.heatmap(
        matrix.tolist(),
        x=list(names),
        y=list(names),
        title="Gradients of the parts against each other",
        x_title=title,
        y_title=title,
        z_title="cosine (−1 to 1)",
        diverging=True,
        limits=(-1, 1),
        square=True,
        caption="Red: the parts help each other; blue: they collide.",
    )


# --- gradients of groups of answers ---------------------------------------------------------------
def groups_of(task: Task, data: Batch) -> dict[str, Tensor]:
    """Name → weights like targets that pick one group's answers: outputs where there are several,
    else masks and the background.
    """
    read = _read(data)
    if read.shape[-1] > 1:
        return {
            output.name: read * torch.eye(read.shape[-1], device=read.device)[i]
            for i, output in enumerate(task.outputs)
        }
    masks = {name: mask[..., None] * read for name, mask in data.masks.items()}
    if masks:
        masks["background"] = read * (1 - torch.stack(list(masks.values())).amax(0))
    return masks


def _read(data: Batch) -> Float[Tensor, "example pos output"]:
    """1 where a target is read, 0 elsewhere."""
    return (data.targets != IGNORE).float()


def group_gradients(
    subject: Subject, data: Batch, weights: Float[Tensor, "group example pos output"]
) -> Float[Tensor, "group parameter"]:
    """The gradient of the loss under each row of weights, a backward each."""
    each = (loss_gradient(subject, data, part)[1] for part in weights)
    return torch.stack([torch.cat([gradient.flatten() for gradient in parts]) for parts in each])


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
    return ["batch", *groups], torch.stack([_read(batch), *groups.values()])
