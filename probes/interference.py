"""Gradient interference: do the gradients of a task, of its outputs and of the background pull the
same way?
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from mechint import figures
from mechint.config import setting
from mechint.errors import MechintError, ParameterError
from mechint.interventions import detached_weights, resumes
from mechint.models.forward import Forward
from mechint.models.rows import dense
from mechint.probe import Need, Probe, unmet_need
from mechint.results import Figure, Null, ProbeResult, Table
from mechint.task import IGNORE, Batch, Task, rng
from probes.ablation import neuron_importance

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject

Weights = dict[str, Tensor]


def weighted_loss(
    p: Mapping[str, Tensor],
    config: Any,
    task: Task,
    tokens: Tensor,
    targets: Tensor,
    weights: Tensor,
) -> Tensor:
    """Σ weights · cross-entropy (nats) over targets (example, pos, output), those to IGNORE left
    out.
    """
    logits = Forward(p, config).logits(dense(tokens))
    losses = [
        F.cross_entropy(
            logits[..., part].flatten(0, 1),
            targets[..., output].flatten(),
            ignore_index=IGNORE,
            reduction="none",
        )
        for output, part in enumerate(task.output_slices.values())
    ]
    return (torch.stack(losses, -1) * weights.flatten(0, 1)).sum()


def groups_of(task: Task, data: Batch) -> Weights:
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


class Gradients:
    """Gradients of one model's loss with respect to all its parameters, or to those of some
    neurons, as flat vectors.

    Args:
        neurons: (layer, indices) restricts to the columns of W_in, entries of b_in and rows of
            W_out of these neurons.
    """

    def __init__(self, subject: Subject, neurons: tuple[int, Sequence[int]] | None = None) -> None:
        assert subject.task is not None
        self.task, self.config, self.p, self.memory, self.neurons = (
            subject.task,
            subject.model.config,
            detached_weights(subject.model),
            subject.memory,
            neurons,
        )
        if neurons is None:
            self.free = dict(self.p)
        else:
            layer = f"blocks.{neurons[0] % self.config.n_layers}.mlp"
            self.free = {
                name: value
                for name, value in self.p.items()
                if name in (f"{layer}.W_in", f"{layer}.b_in", f"{layer}.W_out")
            }

    def _loss(self, free: Weights, tokens: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        return weighted_loss({**self.p, **free}, self.config, self.task, tokens, targets, weights)

    def _flat(self, gradient: Mapping[str, Tensor]) -> Tensor:
        """(row, parameter) of gradients with a leading axis."""
        if self.neurons is None:
            return torch.cat([part.flatten(1) for part in gradient.values()], 1)
        index = list(self.neurons[1])
        return torch.cat(
            [
                (part[:, index] if name.endswith("W_out") else part[..., index]).flatten(1)
                for name, part in gradient.items()
            ],
            1,
        )

    def _rows(self) -> int:
        """Gradients held at a time."""
        return max(1, self.memory // (16 * sum(value.numel() for value in self.free.values())))

    def of_groups(self, data: Batch, weights: Tensor) -> Tensor:
        """(group, parameter) the gradient under each row of weights (group, example, pos,
        output).
        """
        function = vmap(grad(self._loss), in_dims=(None, None, None, 0))
        parts = [
            self._flat(function(self.free, data.tokens, data.targets, part))
            for part in weights.to(next(iter(self.p.values()))).split(self._rows())
        ]
        return _finite(torch.cat(parts))

    def of_examples(self, data: Batch) -> Tensor:
        """(example, parameter) the gradient of every example's own mean loss."""
        read = (data.targets != IGNORE).to(next(iter(self.p.values())))
        weights = read / read.sum((1, 2), keepdim=True).clamp_min(1)
        function = vmap(grad(self._loss), in_dims=(None, 0, 0, 0))
        parts = zip(
            *(
                tensor.unsqueeze(1).split(self._rows())
                for tensor in (data.tokens, data.targets, weights)
            ),
            strict=True,
        )
        return _finite(torch.cat([self._flat(function(self.free, *part)) for part in parts]))


def _finite(gradients: Tensor) -> Tensor:
    if not bool(torch.isfinite(gradients).all()):
        raise MechintError("interference: a gradient is not finite")
    return gradients


def cosines(a: Tensor, b: Tensor) -> Tensor:
    """(row of a, row of b) cosines in float64; NaN where a gradient is zero."""
    a, b = a.double(), b.double()
    return (a @ b.T) / (a.norm(dim=1)[:, None] * b.norm(dim=1)).where(
        a.norm(dim=1)[:, None] * b.norm(dim=1) > 0, torch.nan
    )


@dataclass(frozen=True)
class Interference(Probe):
    """Do batch gradients move the model along its task's reference direction, against it, or past
    it?

    The reference direction is the gradient of the mean loss over instances of the task, with
    respect to all parameters or to those of its most important neurons. Against it stands the
    gradient of training batches, whole and split: by output where the task has several, else into
    task tokens and background tokens (by the positions at which the loss is taken). cos > 0: the
    batch teaches the task; cos < 0: it unlearns it; near 0: it leaves it alone. Between groups, a
    matrix of cosines; over the checkpoints of a run, a series. Instances of the reference are never
    in the batches of a task without background. Gradients are exact, those of examples and groups
    vectorised (torch.func). Null: the same batches with labels permuted within each group.

    Cost: a forward, and a backward a group, for the reference and every batch; as much a null
    sample. Memory: gradients of parameters × groups (× examples in parts), within `subject.memory`.
    """

    name: ClassVar[str] = "interference"
    source: ClassVar[str] = (
        "Why Larger Models Learn More, Sec. 4 (gradient interference); Yu et al. 2020, "
        "Gradient Surgery"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.ANSWERS, Need.RESUME)

    neurons: int | None = setting(
        None,
        "only the parameters of so many most important neurons of one layer; all when none",
        low=1,
    )
    layer: int | None = setting(
        None, "the layer of these neurons; where they matter most when none", low=0
    )
    examples: int = setting(512, "instances of the task in the reference", low=2)
    batches: int = setting(8, "training batches", low=1)
    batch_size: int = setting(32, "examples a batch", low=2)
    series: int = setting(8, "checkpoints of a run, evenly spaced", low=1)
    null_samples: int = setting(99, "permutations of the labels", low=1)

    def unmet(self, subject: Subject) -> str | None:
        if not resumes(subject.model):
            return "its forward cannot be resumed"
        return unmet_need(Need.MLP, subject) if self.neurons else None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        underconfident = Trial(
            "underconfident addition",
            library.underconfident_addition,
            {"untrained, shuffled labels": library.untrained_on_shuffled},
            lambda result, plant: float(result.metrics["cosine.batch"] <= 0),
            "sign of the cosine (0 right, 1 wrong)",
            settings={"examples": 128, "batches": 4},
        )
        small = {"examples": 32, "batches": 2, "batch_size": 8, "null_samples": 5}
        return Calibration((underconfident,), small)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        assert subject.task is not None
        reference, batches = self._data(subject, seed)
        neurons = self._neurons(subject, reference)
        gradients = Gradients(subject, neurons)
        direction = gradients.of_groups(reference, _mean_weights(reference)[None])
        found, groups, rows = self._batches(gradients, direction, batches)
        matrix, examples = (
            _matrix(gradients, subject.task, batches),
            gradients.of_examples(reference[: min(256, len(reference))]),
        )
        coherence = cosines(examples, direction)[:, 0]
        samples = [
            self._permuted(gradients, direction, batches[k % len(batches)], rng("labels", seed, k))
            for k in range(self.null_samples)
        ]
        permuted = torch.stack(samples).numpy()
        null = {
            f"cosine.{name}": Null.sampled(
                f"cosine.{name}",
                float(found[i].nanmean()),
                column[np.isfinite(column)],
                "labels permuted within the group",
            )
            for i, (name, column) in enumerate(zip(groups, permuted.T, strict=False))
            if np.isfinite(column).any() and bool(torch.isfinite(found[i]).any())
        }
        metrics: dict[str, Any] = {
            f"cosine.{name}": float(found[i].nanmean()) for i, name in enumerate(groups)
        }
        metrics |= {
            "coherence": float(coherence.nanmean()),
            "parameters": direction.shape[1],
            "batches": len(batches),
        }
        metrics["found"] = null["cosine.batch"].p_value <= 0.01
        if neurons is not None:
            metrics |= {"neurons_layer": neurons[0], "neurons": list(neurons[1])}
        if len(matrix) > 1:
            off = matrix[~torch.eye(len(matrix), dtype=torch.bool)]
            metrics |= {
                "between_groups.mean": float(off.nanmean()),
                "between_groups.least": float(off.nan_to_num(1).min()),
            }
        steps, curve = (
            self._series(subject, seed, neurons)
            if len(subject.series) > 1
            else ([], np.zeros((0, len(groups))))
        )
        return self.result(
            metrics=metrics,
            finding=_finding(metrics, null["cosine.batch"], groups),
            null=null,
            tables={"batches": _table(groups, rows, found)},
            arrays={
                "cosines": found.numpy(),
                "groups": matrix.numpy(),
                "examples": coherence.numpy(),
                "steps": np.array(steps),
                "series": curve,
            },
            figures=_figures(groups, found, matrix, null, steps, curve),
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

    def _neurons(self, subject: Subject, reference: Batch) -> tuple[int, list[int]] | None:
        if self.neurons is None:
            return None
        importance = neuron_importance(subject, reference)
        layer = int(importance.sum(1).argmax()) if self.layer is None else self.layer
        if layer >= len(importance):
            raise ParameterError(
                f"interference: layer={layer}: the model has blocks 0 to {len(importance) - 1}"
            )
        return layer, importance[layer].topk(
            min(self.neurons, importance.shape[1])
        ).indices.tolist()

    def _batches(
        self, gradients: Gradients, direction: Tensor, batches: Sequence[Batch]
    ) -> tuple[Tensor, list[str], list[int]]:
        """(group, batch) cosines with the reference, the groups' names, and every batch's number of
        task positions.
        """
        columns, names, counts = [], [], []
        for batch in batches:
            names, weights = _with_whole(gradients.task, batch)
            columns.append(cosines(gradients.of_groups(batch, weights), direction)[:, 0].cpu())
            counts.append(int(batch.masks["task"].sum()) if "task" in batch.masks else len(batch))
        return torch.stack(columns, 1), names, counts

    def _permuted(
        self, gradients: Gradients, direction: Tensor, batch: Batch, generator: np.random.Generator
    ) -> Tensor:
        """(1 or 2,) cosines of the whole batch, and of its task part, when the labels are permuted
        within every group.
        """
        targets = batch.targets.clone()
        _, weights = _with_whole(gradients.task, batch)
        for group in weights[1:] if len(weights) > 1 else weights:
            where = group.nonzero(as_tuple=True)
            order = torch.from_numpy(generator.permutation(len(where[0]))).to(targets.device)
            targets[where] = targets[where][order]
        asked = weights[
            : 1 + ("task" in batch.masks)
        ]  # the whole batch, and the task's part where there is a background
        return cosines(gradients.of_groups(Batch(batch.tokens, targets), asked), direction)[
            :, 0
        ].cpu()

    def _series(
        self, subject: Subject, seed: int, neurons: tuple[int, Sequence[int]] | None
    ) -> tuple[list[int], np.ndarray]:
        """Steps, and (step, group) mean cosines at each of them: reference and batches anew from
        the weights of that step.
        """
        every = list(subject.series)
        steps = [
            every[i]
            for i in sorted(
                {round(i) for i in np.linspace(0, len(every) - 1, min(self.series, len(every)))}
            )
        ]
        reference, batches = self._data(subject, seed)
        curve = []
        for step in steps:
            gradients = Gradients(subject.at_step(step), neurons)
            direction = gradients.of_groups(reference, _mean_weights(reference)[None])
            curve.append(self._batches(gradients, direction, batches)[0].nanmean(1).numpy())
        return steps, np.stack(curve)


def _mean_weights(data: Batch) -> Tensor:
    read = (data.targets != IGNORE).float()
    return read / read.sum().clamp_min(1)


def _with_whole(task: Task, batch: Batch) -> tuple[list[str], Tensor]:
    """Names and weights (group, example, pos, output) of the whole batch and of its groups."""
    groups = groups_of(task, batch)
    return ["batch", *groups], torch.stack([(batch.targets != IGNORE).float(), *groups.values()])


def _matrix(gradients: Gradients, task: Task, batches: Sequence[Batch]) -> Tensor:
    """(group, group) cosines between the groups' gradients, summed over all batches."""
    total = sum(
        (gradients.of_groups(batch, _with_whole(task, batch)[1]) for batch in batches[1:]),
        gradients.of_groups(batches[0], _with_whole(task, batches[0])[1]),
    )
    return cosines(total[1:], total[1:]).cpu()


def _finding(metrics: Mapping[str, Any], null: Null, groups: Sequence[str]) -> str:
    parts = ", ".join(f"{name} {metrics[f'cosine.{name}']:+.2f}" for name in groups[1:4]) + (
        " …" if len(groups) > 4 else ""
    )
    text = (
        f"Over {metrics['batches']} batches the gradient's cosine with the task's reference "
        f"direction is {metrics['cosine.batch']:+.3f} "
        f"(labels permuted: {null.mean:+.3f}, p = {null.p_value:.2g})"
        + (f"; by part: {parts}" if parts else "")
    )
    if "between_groups.mean" in metrics:
        text += (
            f"; between the parts {metrics['between_groups.mean']:+.2f} on average, "
            f"{metrics['between_groups.least']:+.2f} at the least"
        )
    return text + "."


def _table(groups: Sequence[str], counts: Sequence[int], found: Tensor) -> Table:
    columns: dict[str, Sequence[Any]] = {
        "batch": list(range(len(counts))),
        "task_positions": list(counts),
    }
    columns |= {name: found[i].tolist() for i, name in enumerate(groups)}
    return Table(
        columns,
        (
            "One row a batch: cosine of its gradient, whole and by part, with the reference; "
            "task_positions says where instances are."
        ),
    )


def _figures(
    groups: Sequence[str],
    found: Tensor,
    matrix: Tensor,
    null: Mapping[str, Null],
    steps: Sequence[int],
    curve: np.ndarray,
) -> dict[str, Figure]:
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
                "Above zero a batch teaches the task, below it unlearns it. Grey: labels permuted."
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
    if len(steps):
        result["series"] = figures.lines(
            list(steps),
            {name: curve[:, i].tolist() for i, name in shown.items()},
            title="Interference through training",
            x_title="step",
            y_title=axis,
            markers=True,
            caption="Mean over batches at every checkpoint.",
        )
    return result
