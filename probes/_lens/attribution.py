"""Sums over the examples: the lens at every depth, and what each component wrote."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from einops import einsum, repeat
from jaxtyping import Float
from torch import Tensor, nn

from mechint.activations import writer_hooks
from mechint.subject import Subject
from mechint.task import ACCURACY, IGNORE, LOSS, answer_scores
from probes._lens.nulls import OtherInputs, Renamed
from probes._lens.readout import MOST_SUM_ERROR, Readout
from probes.ties import TIE

FINAL_BIASES = "final biases"
"""What the final norm and the unembedding add, whatever the input: no component of the model."""


@dataclass
class Sums:
    """Sums over chunks: at every residual point, and for every component.

    at_end: of each chunk, (answer,) which are right at the last point; largest: how many answers a
    component writes the largest part of, those that tie with it too; score: the largest size of a
    right logit above the mean class; error: the largest difference between one and the sum of its
    parts.
    """

    right: dict[str, float] = field(default_factory=dict)
    at_end: list[Tensor] = field(default_factory=list)
    loss: dict[str, float] = field(default_factory=dict)
    attribution: dict[str, float] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    null: dict[str, np.ndarray] = field(default_factory=dict)
    score: float = 0.0
    error: float = 0.0

    @property
    def adds_up(self) -> bool:
        """True if the parts sum up to the score. They do not where what an activation adds to the
        residual stream is not itself, or times W_O, as where a norm follows the layer; then they
        are not what the components write.
        """
        return self.error <= MOST_SUM_ERROR * self.score

    def divide(self, n: int) -> None:
        """Turn sums into means over `n` answers."""
        for totals in (self.right, self.loss, self.attribution, self.largest):
            totals.update({name: value / n for name, value in totals.items()})
        self.null.update({name: value / n for name, value in self.null.items()})

    def add(
        self,
        subject: Subject,
        readout: Readout,
        points: dict[str, str],
        part: slice,
        found: dict[str, Float[Tensor, "row ..."]],
        others: Renamed | OtherInputs,
    ) -> None:
        """Add one chunk: `found` its activations, `others` the answers of the null."""
        assert subject.task is not None
        targets = subject.targets[part]
        for name, hook in points.items():
            scores = answer_scores(subject.task, readout.logits(found[hook].double()), targets)
            right = scores[..., ACCURACY][targets != IGNORE] == 1
            self.right[name] = self.right.get(name, 0.0) + float(right.sum())
            self.loss[name] = self.loss.get(name, 0.0) + float(scores[..., LOSS].nansum())
        self.at_end.append(right)  # of the last point
        last = found[list(points.values())[-1]].double()
        scale, parts = readout.scale(last), dict[str, Tensor]()
        for name, component in _components(subject, found):
            written = _centered(subject, component.double() @ readout.matrix / scale)
            mine = _at(subject, written, targets)
            parts[name] = mine
            self.attribution[name] = self.attribution.get(name, 0.0) + float(mine.sum())
            self.null[name] = self.null.get(name, 0.0) + others.sums(part, written)
        each = torch.stack(list(parts.values()))  # (component, example, output)
        most, total = each.max(0).values, each.sum(0)
        stands_first = (each >= most - TIE * most.abs()) & (targets != IGNORE)
        for name, count in zip(parts, stands_first.flatten(1).sum(1).tolist(), strict=True):
            self.largest[name] = self.largest.get(name, 0.0) + count
        bias = _at(subject, _centered(subject, readout.bias.expand(len(targets), -1)), targets)
        self.attribution[FINAL_BIASES] = self.attribution.get(FINAL_BIASES, 0.0) + float(bias.sum())
        whole = _at(subject, _centered(subject, readout.logits(last)), targets)
        self.score = max(self.score, float(whole.abs().max()))
        self.error = max(self.error, float((total + bias - whole).abs().max()))


def _components(subject: Subject, found: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    """(name, what it wrote at the read position (example, d_model)) of everything that adds to the
    residual stream.

    What b_V gives a head is the same for every input, since a pattern sums to one, and could as
    well stand in b_O: it counts as the attention's bias, whichever of the two a training left it
    in.
    """
    parts, model = [], subject.model
    for hook in writer_hooks(subject.n_layers, subject.hooks):
        value, layer = found[hook], hook.split(".")[1] if "." in hook else ""
        if hook.endswith("hook_z"):
            attention = model.blocks[int(layer) % model.cfg.n_layers].attn
            through, bias = attention.W_O.detach(), getattr(attention, "b_O", None)
            bias = None if bias is None else bias.detach().expand(len(value), -1)
            constant = _value_bias(attention, value.shape[1])
            if constant is not None:
                seen = found[hook.replace("hook_z", "hook_pattern")].sum(-1, keepdim=True)
                constant = seen * constant  # (example, head, d_head)
                value = value - constant
                added = einsum(constant, through, "example head d, head d model -> example model")
                bias = added if bias is None else bias + added
            parts += [
                (f"L{layer}H{head}", value[:, head] @ through[head])
                for head in range(value.shape[1])
            ]
            if bias is not None:
                parts.append((f"L{layer} attention bias", bias))
        else:
            parts.append(
                (
                    f"L{layer} MLP" if layer else hook.removeprefix("hook_").replace("_", " "),
                    value,
                )
            )
    return parts


def _value_bias(attention: nn.Module, heads: int) -> Tensor | None:
    """(head, d_head) b_V, the same for heads that share values; None where there is none."""
    try:
        bias = getattr(attention, "b_V", None)
    except NotImplementedError:  # values from a latent have no bias of their own
        return None
    if bias is None:
        return None
    return repeat(bias.detach(), "key d -> (key shared) d", shared=heads // len(bias))


def _centered(subject: Subject, logits: Tensor) -> Tensor:
    """Logits above the mean class of their output."""
    assert subject.task is not None
    return torch.cat(
        [
            logits[:, part] - logits[:, part].mean(1, keepdim=True)
            for part in subject.task.output_slices.values()
        ],
        1,
    )


def _at(subject: Subject, logits: Tensor, classes: Tensor) -> Tensor:
    """(example, output) the logits at `classes` (example, output), zero where none is read."""
    assert subject.task is not None
    starts = torch.tensor(
        [part.start for part in subject.task.output_slices.values()], device=logits.device
    )
    return logits.gather(1, classes.clamp(min=0) + starts) * (classes != IGNORE)
