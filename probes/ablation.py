"""Ablation: which layers, heads, neurons and directions does each answer need?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.errors import MechintError, UnknownNameError
from mechint.interventions import Edit, Point, Stream, at, frozen, last_read, unsupported
from mechint.models import forward
from mechint.probe import Need, Probe, unmet_need
from mechint.results import Null, ProbeResult, Table
from mechint.task import IGNORE, Batch, Task, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject

HOOKS = {
    "attention": "hook_attn_out",
    "head": "attn.hook_z",
    "mlp": "hook_mlp_out",
    "neuron": "mlp.hook_post",
    "direction": "hook_resid_pre",
}
"""Kind of component → the hook within a block that is ablated."""
STRONGEST = 4
"""Of how many components, those with the largest effect, the null is drawn."""


@dataclass(frozen=True)
class Component:
    """What is ablated: an attention layer, head, feed-forward layer, neurons or a direction of the
    residual stream.

    `members` are the head's index, the neurons' or the principal component's; `direction`
    (d_model,) a unit vector.
    """

    kind: str
    layer: int
    members: tuple[int, ...] = ()
    direction: Tensor | None = None

    @property
    def hook(self) -> str:
        return f"blocks.{self.layer}.{HOOKS[self.kind]}"

    @property
    def point(self) -> Point:
        """Where on the residual stream the ablation arrives."""
        return {
            "direction": Point(self.layer),
            "mlp": Point(self.layer + 1),
            "neuron": Point(self.layer + 1),
        }.get(self.kind, Point(self.layer, 1))

    def __str__(self) -> str:
        return f"{self.kind} {self.layer}" + "".join(f".{member}" for member in self.members)

    def write(self, change: Tensor, stream: Stream) -> Tensor:
        """(example, pos, d_model) what a change of the activation at `hook` adds to the residual
        stream.
        """
        weights = f"blocks.{self.layer % stream.config.n_layers}"
        if self.kind == "head":
            return change[:, :, self.members[0]] @ stream.p[f"{weights}.attn.W_O"][self.members[0]]
        if self.kind == "neuron":
            return (
                change[..., list(self.members)]
                @ stream.p[f"{weights}.mlp.W_out"][list(self.members)]
            )
        if self.direction is not None:
            return (change @ self.direction)[..., None] * self.direction
        return change


def removal(activation: Tensor, mode: str, mean: Tensor | None, order: Tensor) -> Tensor:
    """The change of activation (example, pos, …) that ablates it: to zero, to the mean, or to
    another example's in `order`.
    """
    if mode == "zero":
        return -activation
    return (mean if mean is not None else activation[order]) - activation


def answer_scores(task: Task, logits: Tensor, targets: Tensor) -> Tensor:
    """(..., example, output, 2) accuracy and loss (nats, float64) of every answer; NaN where none
    is read.
    """
    columns = []
    for output, part in enumerate(task.output_slices.values()):
        answers, wanted = logits[..., part], targets[:, output].expand(logits.shape[:-1])
        loss = F.cross_entropy(
            answers.double().flatten(0, -2), wanted.flatten(), ignore_index=IGNORE, reduction="none"
        ).view(wanted.shape)
        score = torch.stack(((answers.argmax(-1) == wanted).double(), loss), -1)
        columns.append(score.masked_fill((wanted == IGNORE)[..., None], math.nan))
    return torch.stack(columns, -2)


def neuron_importance(subject: Subject, data: Batch) -> Tensor:
    """(layer, neuron) mean over examples of Σ_pos |∂loss/∂a · a|, a the neuron's activation, loss
    summed over outputs (nats).
    """
    assert subject.task is not None
    p, config = frozen(subject.model), subject.model.config
    total = torch.zeros(config.depth, config.d_mlp or 0, dtype=torch.float64, device=subject.device)
    for part in _chunks(subject, data):
        kept: dict[str, Tensor] = {}

        def keep(name: str, tensor: Tensor, kept: dict[str, Tensor] = kept) -> Tensor:
            if name.endswith("mlp.hook_post"):
                kept[name] = tensor
            return tensor

        layout, reads = forward.dense(part.tokens), last_read(part.targets)
        with torch.enable_grad():
            x = forward.embed(p, layout).requires_grad_()
            logits = at(forward.read_out(p, config, x, layout, keep), reads)
            loss = answer_scores(subject.task, logits, at(part.targets, reads))[..., 1].nansum()
            gradients = torch.autograd.grad(loss, list(kept.values()))
        total += torch.stack(
            [
                (gradient * value.detach()).abs().sum((0, 1)).double()
                for gradient, value in zip(gradients, kept.values(), strict=True)
            ]
        )
    return total / len(data)


def _chunks(subject: Subject, data: Batch) -> Iterator[Batch]:
    for start in range(0, len(data), subject.chunk):
        yield data[slice(start, start + subject.chunk)]


@dataclass(frozen=True)
class Ablation(Probe):
    """Which ablation breaks which answer: what does every output lose without a layer, head, neuron
    or direction?

    A component's activation is replaced, at all positions, by zero, by its mean over examples (per
    position) or by that of another example ("resample", the null intervention); effect = accuracy
    and loss with the ablation minus without, every output apart. Neurons are ranked by mean
    |∂loss/∂a · a| and the first of them ablated one by one and together; directions are principal
    components of the residual stream before each block. Null: the same changes of the residual
    stream, rotated at random (equal norms, no meaning); for the neurons, random sets of the same
    size in the same layer.

    Cost: one forward to record; then all components that enter the residual stream at one point run
    stacked from there on. Memory: `subject.chunk` examples at a time, stacked forwards within
    `subject.memory`.
    """

    name: ClassVar[str] = "ablation"
    source: ClassVar[str] = "Nanda et al. 2023, Sec. 4; Chan et al. 2022 (resampling ablation)"
    needs: ClassVar[tuple[Need, ...]] = (Need.ANSWERS, Need.RESUME)
    intervenes: ClassVar[bool] = True

    components: tuple[str, ...] = setting(
        ("attention", "head", "mlp"), "what is ablated: attention, head, mlp, direction"
    )
    mode: str = setting("mean", "what replaces an activation", choices=("zero", "mean", "resample"))
    neurons: int = setting(16, "most important neurons, ablated one by one and together", low=0)
    directions: int = setting(
        4, "principal components a block, where directions are ablated", low=1
    )
    examples: int = setting(1024, "examples, drawn from the subject's", low=2)
    null_examples: int = setting(64, "examples of the null", low=2)
    null_samples: int = setting(99, "rotations, and random sets of neurons", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in self.components:
            if kind not in ("attention", "head", "mlp", "direction"):
                raise UnknownNameError.of(
                    "ablation component", kind, ("attention", "head", "mlp", "direction")
                )

    def unmet(self, subject: Subject) -> str | None:
        if unsupported(subject.model):
            return unsupported(subject.model)
        return (
            None
            if self.components or (self.neurons and not unmet_need(Need.MLP, subject))
            else "nothing is left to ablate"
        )

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        roles = ("previous token", "induction")
        induction = Trial(
            "induction head",
            library.induction,
            library.untrained(library.induction),
            library.misses(_needed, lambda plant: [library.head(role)(plant) for role in roles]),
            "heads missed or made up",
            settings={"examples": 256, "null_examples": 64},
        )
        small = {"examples": 64, "null_examples": 16, "null_samples": 9, "neurons": 4}
        return Calibration((induction,), small)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        assert subject.task is not None
        data = _sample(subject.data, self.examples, seed)
        importance = (
            None
            if unmet_need(Need.MLP, subject) or not self.neurons
            else neuron_importance(subject, data)
        )
        components = self._components(subject, data, importance)
        base, ablated = self._scores(subject, data, components, seed)
        effect = ablated - base  # (component, output, 2)
        outputs = [output.name for output in subject.task.outputs]
        total = effect[..., 1].nanmean(-1)
        top = int(total.argmax())
        null = {
            "largest_loss_increase": self._rotated(
                subject, _sample(data, self.null_examples, seed), components, total, seed
            )
        }
        metrics: dict[str, Any] = {
            "largest_loss_increase": float(total[top]),
            "accuracy_change": float(effect[top, :, 0].nanmean()),
            "component": str(components[top]),
            "mode": self.mode,
            "accuracy": float(base[:, 0].nanmean()),
            "loss": float(base[:, 1].nanmean()),
            "examples": len(data),
            "found": null["largest_loss_increase"].p_value <= 0.01,
        }
        if len(outputs) > 1:
            metrics["breaks_by_output"] = {
                name: str(components[int(effect[:, i, 1].argmax())])
                for i, name in enumerate(outputs)
            }
        if importance is not None:
            chosen = self._chosen(importance)
            metrics["important_neurons"] = list(chosen.members)
            null["neurons_loss_increase"] = self._random_sets(subject, data, chosen, seed)
            metrics["neurons_layer"], metrics["neurons_loss_increase"] = (
                chosen.layer,
                null["neurons_loss_increase"].observed,
            )
        return self.result(
            metrics=metrics,
            finding=_finding(metrics, null),
            null=null,
            tables={"effects": _table(components, outputs, base, effect)},
            arrays={
                "loss_change": effect[..., 1].numpy(),
                "accuracy_change": effect[..., 0].numpy(),
            }
            | ({} if importance is None else {"neuron_importance": importance.cpu().numpy()}),
            figures=_figures(components, outputs, effect, self.mode),
        )

    # --- what is ablated --------------------------------------------------------------------------
    def _components(
        self, subject: Subject, data: Batch, importance: Tensor | None
    ) -> list[Component]:
        config, result = subject.model.config, []
        for layer in range(config.depth):
            for kind in self.components:
                if kind == "direction":
                    stream = Stream(
                        subject.model,
                        data.tokens[: subject.chunk],
                        last_read(data.targets)[: subject.chunk],
                    )
                    rows = at(stream.residual(Point(layer)), stream.reads)
                    axes = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)[2][
                        : self.directions
                    ]
                    result += [
                        Component(kind, layer, (number,), axis) for number, axis in enumerate(axes)
                    ]
                elif kind == "head":
                    result += [Component(kind, layer, (head,)) for head in range(config.n_heads)]
                elif kind != "mlp" or not config.attn_only:
                    result.append(Component(kind, layer))
        if importance is not None:
            chosen = self._chosen(importance)
            result += [Component("neuron", chosen.layer, (neuron,)) for neuron in chosen.members]
        return result

    def _chosen(self, importance: Tensor) -> Component:
        """The most important neurons of the layer whose neurons matter most together."""
        layer = int(importance.sum(1).argmax())
        return Component(
            "neuron",
            layer,
            tuple(importance[layer].topk(min(self.neurons, importance.shape[1])).indices.tolist()),
        )

    # --- what it does -----------------------------------------------------------------------------
    def _streams(
        self, subject: Subject, data: Batch, components: Sequence[Component], seed: int
    ) -> Iterator[tuple[Batch, Stream, dict[str, Tensor]]]:
        """Chunk by chunk: the examples, their recorded forward, and hook → the change that ablates
        it.
        """
        names = {component.hook for component in components}
        means = _means(subject, data, names) if self.mode == "mean" else {}
        for part in _chunks(subject, data):
            stream = Stream(
                subject.model, part.tokens, last_read(part.targets), names, subject.memory
            )
            order = torch.from_numpy(rng("resample", seed).permutation(len(part))).to(
                subject.device
            )
            changes = {
                name: removal(value, self.mode, means.get(name), order)
                for name, value in stream.activations.items()
            }
            if not all(bool(torch.isfinite(change).all()) for change in changes.values()):
                raise MechintError(f"ablation: activations of {subject.describe()} are not finite")
            yield part, stream, changes

    def _scores(
        self, subject: Subject, data: Batch, components: Sequence[Component], seed: int
    ) -> tuple[Tensor, Tensor]:
        """(output, 2) accuracy and loss without ablation, (component, output, 2) with each
        component alone ablated.
        """
        assert subject.task is not None
        plain, ablated = [], []
        for part, stream, changes in self._streams(subject, data, components, seed):
            targets = at(part.targets, stream.reads)
            logits = _edited(stream, components, changes)
            plain.append(answer_scores(subject.task, stream.logits, targets))
            ablated.append(answer_scores(subject.task, logits, targets))
        return torch.cat(plain).nanmean(0).cpu(), torch.cat(ablated, 1).nanmean(1).cpu()

    def _rotated(
        self,
        subject: Subject,
        data: Batch,
        components: Sequence[Component],
        total: Tensor,
        seed: int,
    ) -> Null:
        """The largest loss increase when the strongest components' changes are rotated at
        random.
        """
        assert subject.task is not None
        strongest = [
            components[index]
            for index in total.topk(min(STRONGEST, len(components))).indices.tolist()
        ]
        generator, width = torch.Generator().manual_seed(seed), subject.model.config.d_model
        samples: list[float] = []
        (part, stream, changes), *_ = self._streams(subject, data, strongest, seed)
        targets = at(part.targets, stream.reads)
        plain = answer_scores(subject.task, stream.logits, targets)[..., 1].nanmean()
        written = [(one.point, one.write(changes[one.hook], stream)) for one in strongest]
        for _ in range(self.null_samples):
            rotation = torch.linalg.qr(
                torch.randn(width, width, generator=generator, dtype=torch.float64)
            )[0].to(stream.logits)
            logits = stream.edited([Edit(point, delta @ rotation) for point, delta in written])
            samples.append(
                float(
                    (
                        answer_scores(subject.task, logits, targets)[..., 1].flatten(1).nanmean(1)
                        - plain
                    ).max()
                )
            )
        how = (
            f"the changes that the {len(strongest)} strongest ablations make, rotated at random, "
            f"on {len(part)} examples"
        )
        return Null.sampled("largest_loss_increase", float(total.max()), samples, how)

    def _random_sets(self, subject: Subject, data: Batch, chosen: Component, seed: int) -> Null:
        """The loss increase when as many random neurons of the layer are ablated together."""
        generator = rng("neurons", seed)
        width, size = subject.model.config.d_mlp, len(chosen.members)
        sets = [
            tuple(generator.choice(width, size, replace=False).tolist())
            for _ in range(self.null_samples)
        ]
        base, ablated = self._scores(
            subject,
            _sample(data, 2 * self.null_examples, seed),
            [chosen] + [Component("neuron", chosen.layer, one) for one in sets],
            seed,
        )
        increase = (ablated - base)[..., 1].nanmean(-1)
        return Null.sampled(
            "neurons_loss_increase",
            float(increase[0]),
            increase[1:].numpy(),
            f"random sets of {size} neurons of layer {chosen.layer}",
        )


def _edited(stream: Stream, components: Sequence[Component], changes: dict[str, Tensor]) -> Tensor:
    """Logits (component, example, d_vocab_out) with each component alone ablated; the changes are
    written as memory allows.
    """
    each = stream.tokens.numel() * stream.config.d_model * 4
    size = max(1, stream.memory // each)
    parts = [components[start : start + size] for start in range(0, len(components), size)]
    return torch.cat(
        [
            stream.edited([Edit(one.point, one.write(changes[one.hook], stream)) for one in part])
            for part in parts
        ]
    )


def _means(subject: Subject, data: Batch, names: set[str]) -> dict[str, Tensor]:
    """Hook → mean activation (pos, …) over all examples."""
    sums: dict[str, Tensor] = {}
    for part in _chunks(subject, data):
        for name, value in Stream(
            subject.model, part.tokens, last_read(part.targets), names
        ).activations.items():
            sums[name] = sums.get(name, 0) + value.sum(0)
    return {name: value / len(data) for name, value in sums.items()}


def _sample(data: Batch, n: int, seed: int) -> Batch:
    """At most `n` examples, drawn without replacement."""
    if len(data) <= n:
        return data
    return data[
        torch.from_numpy(np.sort(rng("ablation", seed).permutation(len(data))[:n])).to(
            data.tokens.device
        )
    ]


def _finding(metrics: dict[str, Any], null: dict[str, Null]) -> str:
    first = null["largest_loss_increase"]
    text = (
        f"{metrics['mode'].capitalize()} ablation of {metrics['component']} does most harm: "
        f"loss +{metrics['largest_loss_increase']:.3g} nats, accuracy "
        f"{metrics['accuracy_change']:+.1%}; changes of the same size in random directions "
        f"add {first.mean:.3g} nats (p = {first.p_value:.2g})."
    )
    if "neurons_loss_increase" in null:
        second = null["neurons_loss_increase"]
        text += (
            f" The {len(metrics['important_neurons'])} most important neurons of layer "
            f"{metrics['neurons_layer']} together: +{second.observed:.3g} nats, "
            f"as many random ones +{second.mean:.3g} (p = {second.p_value:.2g})."
        )
    return text


def _table(
    components: Sequence[Component], outputs: Sequence[str], base: Tensor, effect: Tensor
) -> Table:
    rows = [(one, i) for one in range(len(components)) for i in range(len(outputs))]
    columns: dict[str, Sequence[Any]] = {
        "component": [str(components[one]) for one, _ in rows],
        "output": [outputs[i] for _, i in rows],
        "accuracy_change": [float(effect[one, i, 0]) for one, i in rows],
        "loss_change": [float(effect[one, i, 1]) for one, i in rows],
        "accuracy": [float(base[i, 0] + effect[one, i, 0]) for one, i in rows],
    }
    return Table(
        columns,
        "One row a component and output: with the ablation minus without.",
        {"loss_change": "nats", "accuracy_change": "share", "accuracy": "share"},
    )


def _figures(
    components: Sequence[Component], outputs: Sequence[str], effect: Tensor, mode: str
) -> dict[str, Any]:
    names = [str(component) for component in components]
    words = {
        "x": names,
        "title": f"{mode.capitalize()} ablation",
        "x_title": "component (layer.index)",
    }
    if len(outputs) == 1:
        caption = "The higher the bar, the more the answer needs the component."
        return {
            "loss": figures.bars(
                series={"ablated": effect[:, 0, 1].tolist()},
                y_title="loss increase (nats)",
                caption=caption,
                **words,
            )
        }
    return {
        "accuracy": figures.heatmap(
            effect[..., 0].T.tolist(),
            y=list(outputs),
            y_title="output",
            z_title="accuracy change (share)",
            diverging=True,
            caption="Which ablation breaks which output: the bluer, the more its accuracy falls.",
            **words,
        )
    }


def _needed(result: ProbeResult) -> list[str]:
    """Heads without which the loss grows by more than half a nat, for the calibration."""
    columns = result.tables["effects"].columns
    return [
        "L{}H{}".format(*name.removeprefix("head ").split("."))
        for name, change in zip(columns["component"], columns["loss_change"], strict=True)
        if name.startswith("head ") and change > 0.5
    ]
