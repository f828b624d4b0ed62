"""The lens: what the residual stream already answers at every depth, and who wrote it there.

Logit lens (nostalgebraist 2020): the residual stream x after any layer goes through the final norm
and the unembedding, logits(x) = N(x) W_U + b_U, each x with a norm of its own. Direct logit
attribution (Elhage et al. 2021): the last x is a sum of what the embedding, every head and every
feed-forward layer wrote; with the scale s of the final norm held fixed the logits are the sum of
component · M / s + bias, M the norm's weights times W_U, centred over d_model where the norm
centres. Attributions are to the right class, above the mean class of its output. A head's part is
split over source positions by its pattern.

Cost: one forward, components × d_model × d_vocab_out multiplications an example. Memory: one chunk
of examples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mechint import figures
from mechint.activations import residual_hooks, writer_hooks
from mechint.config import setting
from mechint.probe import Need, Probe
from mechint.results import Figure, Null, ProbeResult, Table
from mechint.subject import At, Subject
from mechint.task import IGNORE, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


class Readout:
    """The final norm and the unembedding of a subject's model as one linear map and a scale, in
    float64.

    Of an RMS norm the mean is not taken out.
    """

    def __init__(self, subject: Subject) -> None:
        model, config = subject.model, subject.model.cfg
        weight = model.W_U.detach().double()
        self.bias = torch.zeros(weight.shape[1], dtype=torch.float64, device=weight.device)
        kind = config.normalization_type
        self.normed, self.eps = kind is not None, config.eps
        self.centered = self.normed and not kind.startswith("RMS")
        final = getattr(model, "ln_final", None)
        if getattr(final, "b", None) is not None:
            self.bias = final.b.detach().double() @ weight  # type: ignore[union-attr]
        if getattr(final, "w", None) is not None:
            weight = final.w.detach().double().unsqueeze(1) * weight  # type: ignore[union-attr]
        if getattr(model.unembed, "b_U", None) is not None:
            self.bias = self.bias + model.unembed.b_U.detach().double()
        self.matrix = weight - weight.mean(0) if self.centered else weight  # (d_model, d_vocab_out)

    def scale(self, x: Tensor) -> Tensor:
        """What the final norm divides x (example, d_model) by: (example, 1)."""
        if not self.normed:
            return x.new_ones(len(x), 1)
        if self.centered:
            x = x - x.mean(-1, keepdim=True)
        return (x.square().mean(-1, keepdim=True) + self.eps).sqrt()

    def error(self, subject: Subject, examples: int = 8) -> float:
        """Largest difference from the model's own logits, relative to the largest of these."""
        few = subject.with_data(subject.data[:examples])
        last = list(residual_hooks(subject.n_layers, subject.hooks).values())[-1]
        own = few.logits().double()
        mine = self.logits(few.activation(last, "answer").double())
        return float((mine - own).abs().max() / own.abs().max().clamp_min(1e-12))

    def logits(self, x: Tensor) -> Tensor:
        """The logit lens of x (example, d_model)."""
        return x @ self.matrix / self.scale(x) + self.bias


@dataclass
class _Sums:
    """What is added up over chunks: at every residual point, and for every component."""

    right: dict[str, float] = field(default_factory=dict)
    loss: dict[str, float] = field(default_factory=dict)
    attribution: dict[str, float] = field(default_factory=dict)
    null: dict[str, np.ndarray] = field(default_factory=dict)
    by_position: dict[str, np.ndarray] = field(default_factory=dict)
    error: float = 0.0


@dataclass(frozen=True)
class Lens(Probe):
    """What does the residual stream already answer after every layer, and which heads and layers
    wrote the answer?

    Detection: p ≤ 0.005 of the largest mean attribution of a component, against the same maximum
    with the answers of other inputs in place of the right ones.
    """

    name: ClassVar[str] = "lens"
    source: ClassVar[str] = (
        "nostalgebraist 2020, the logit lens; Elhage et al. 2021, A Mathematical Framework "
        "for Transformer Circuits"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK, Need.ANSWERS, Need.RESIDUAL, Need.EMBEDDING)
    quick: ClassVar[bool] = True

    permutations: int = setting(400, "samples of the null", low=19)

    def detects(self, result: ProbeResult) -> bool:
        return result.null["attribution.top"].p_value <= 0.005

    def unmet(self, subject: Subject) -> str | None:
        if not all(hasattr(subject.model, part) for part in ("cfg", "W_U", "unembed", "blocks")):
            return "the model has no unembedding and blocks of TransformerLens's names"
        if getattr(subject.model.cfg, "read_layers", None) is not None:
            return (
                "its output groups leave after different layers, so the last residual stream is "
                "not the sum that answers"
            )
        if Readout(subject).error(subject) > 1e-3:
            return "its logits are not its final norm and W_U on the last residual stream"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        induction = Trial(
            "induction head",
            library.induction,
            library.untrained(library.induction),
            library.misses(
                lambda result: [result.metrics["attribution.top_component"]],
                lambda plant: [library.head("induction")(plant)],
            ),
            "heads missed or made up",
        )
        return Calibration((induction,), {"permutations": 19})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        sums, readout = _Sums(), Readout(subject)
        known = subject.hooks
        points = residual_hooks(subject.n_layers, known)
        parts = writer_hooks(subject.n_layers, known)
        wanted: dict[str, At] = dict.fromkeys([*points.values(), *parts], "answer")
        for layer in range(subject.n_layers):
            wanted |= {
                f"blocks.{layer}.attn.hook_pattern": "answer",
                f"blocks.{layer}.attn.hook_v": None,
            }
        # rows are drawn one example after the other, so that chunks do not change them
        generator = rng("lens null", seed)
        read = int((subject.targets != IGNORE).sum())
        for part, found in subject.stream(list(wanted), wanted):
            draws = torch.from_numpy(
                generator.random((part.stop - part.start, self.permutations)) * len(subject.targets)
            ).long()
            self._add(sums, subject, readout, points, part, found, draws.to(subject.device))
        for totals in (sums.right, sums.loss, sums.attribution):
            totals.update({name: value / read for name, value in totals.items()})
        for arrays in (sums.null, sums.by_position):
            arrays.update({name: value / read for name, value in arrays.items()})
        return self._report(subject, sums)

    def _add(
        self,
        sums: _Sums,
        subject: Subject,
        readout: Readout,
        points: dict[str, str],
        part: slice,
        found: dict[str, Tensor],
        draws: Tensor,
    ) -> None:
        """Add one chunk."""
        targets = subject.targets[part]
        for name, hook in points.items():
            logits = readout.logits(found[hook].double())
            sums.right[name] = sums.right.get(name, 0.0) + float(
                subject.correct(logits, targets)[targets != IGNORE].sum()
            )
            sums.loss[name] = sums.loss.get(name, 0.0) + _total_loss(subject, logits, targets)
        last = found[list(points.values())[-1]].double()
        scale, total = readout.scale(last), torch.zeros_like(targets, dtype=torch.float64)
        for name, component in _components(subject, found):
            written = _centred(subject, component.double() @ readout.matrix / scale)
            mine = _at(subject, written, targets)
            total += mine
            sums.attribution[name] = sums.attribution.get(name, 0.0) + float(mine.sum())
            sums.null[name] = (
                sums.null.get(name, 0.0) + _drawn(subject, written, draws).cpu().numpy()
            )
        bias = _at(subject, _centred(subject, readout.bias.expand(len(targets), -1)), targets)
        sums.attribution["final biases"] = sums.attribution.get("final biases", 0.0) + float(
            bias.sum()
        )
        whole = _at(subject, _centred(subject, readout.logits(last)), targets)
        sums.error = max(sums.error, float((total + bias - whole).abs().max()))
        toward = _toward(subject, readout, targets) / scale
        for name, value in _positions(subject, found, toward):
            sums.by_position[name] = sums.by_position.get(name, 0.0) + value

    def _report(self, subject: Subject, sums: _Sums) -> ProbeResult:
        written = {name: value for name, value in sums.attribution.items() if name in sums.null}
        top = max(written, key=lambda name: written[name])
        null = Null.sampled(
            "attribution.top",
            written[top],
            np.stack(list(sums.null.values())).max(0),
            "the answers of inputs drawn at random in place of the right ones",
        )
        final = list(sums.right.values())[-1]
        ready = next(name for name, value in sums.right.items() if value >= 0.9 * final)
        metrics = {
            "lens.final_accuracy": final,
            "lens.ready_after": ready,
            "attribution.top_component": top,
            "attribution.top": written[top],
            "attribution.total": sum(sums.attribution.values()),
            "attribution.top_share": written[top]
            / max(1e-12, sum(abs(value) for value in written.values())),
            "attribution.error": sums.error,
        }
        finding = (
            f"the answer is there after {ready} (accuracy {sums.right[ready]:.2f}, at the end "
            f"{final:.2f}); {top} writes most of it, "
            f"{written[top]:.2f} nats of logit above the mean class (null {null.mean:.2f}, p "
            f"= {null.p_value:.3g})"
        )
        depths = {
            "after": list(sums.right),
            "accuracy": list(sums.right.values()),
            "loss": list(sums.loss.values()),
        }
        parts = {
            "component": list(sums.attribution),
            "attribution": list(sums.attribution.values()),
        }
        tables = {
            "lens": Table(depths, "the logit lens at every depth", {"loss": "nats"}),
            "attribution": Table(
                parts, "mean part of the right logit, above the mean class", {"attribution": "nats"}
            ),
        }
        arrays = (
            {"positions": np.stack(list(sums.by_position.values()))} if sums.by_position else {}
        )
        return self.result(
            metrics=metrics,
            finding=finding,
            null={"attribution.top": null},
            tables=tables,
            arrays=arrays,
            figures=_figures(sums, top),
        )


def _components(subject: Subject, found: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    """(name, what it wrote at the read position (example, d_model)) of everything that adds to the
    residual stream.
    """
    parts, model = [], subject.model
    for hook in writer_hooks(subject.n_layers, subject.hooks):
        value, layer = found[hook], hook.split(".")[1] if "." in hook else ""
        if hook.endswith("hook_z"):
            attention = model.blocks[int(layer) % model.cfg.n_layers].attn
            parts += [
                (f"L{layer}H{head}", value[:, head] @ attention.W_O[head].detach())
                for head in range(value.shape[1])
            ]
            if getattr(attention, "b_O", None) is not None:
                parts.append(
                    (f"L{layer} attention bias", attention.b_O.detach().expand(len(value), -1))
                )
        else:
            parts.append(
                (
                    f"L{layer} feed-forward"
                    if layer
                    else hook.removeprefix("hook_").replace("_", " "),
                    value,
                )
            )
    return parts


def _positions(
    subject: Subject, found: dict[str, Tensor], toward: Tensor
) -> list[tuple[str, np.ndarray]]:
    """(head, (pos,) sum over examples of its attribution to each source position) along `toward`
    (example, d_model).
    """
    parts, model = [], subject.model
    for layer in range(subject.n_layers):
        pattern, v = (
            found[f"blocks.{layer}.attn.hook_{which}"].double() for which in ("pattern", "v")
        )
        through = torch.einsum(
            "bm,hdm->bhd",
            toward,
            model.blocks[layer % model.cfg.n_layers].attn.W_O.detach().double(),
        )
        if v.shape[2] != pattern.shape[1]:  # grouped queries share keys and values
            v = v.repeat_interleave(pattern.shape[1] // v.shape[2], 2)
        values = torch.einsum("bhk,bkhd,bhd->hk", pattern, v, through)
        parts += [(f"L{layer}H{head}", row.cpu().numpy()) for head, row in enumerate(values)]
    return parts


def _centred(subject: Subject, logits: Tensor) -> Tensor:
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


def _drawn(subject: Subject, logits: Tensor, draws: Tensor) -> Tensor:
    """(sample,) sums over examples and outputs of the logits at the classes of the examples `draws`
    (example, sample).
    """
    assert subject.task is not None
    total = logits.new_zeros(draws.shape[1])
    for i, part in enumerate(subject.task.output_slices.values()):
        classes = subject.targets[:, i][draws]
        total += (logits[:, part].gather(1, classes.clamp(min=0)) * (classes != IGNORE)).sum(0)
    return total


def _toward(subject: Subject, readout: Readout, targets: Tensor) -> Tensor:
    """(example, d_model) the direction whose product with the residual stream is Σ over outputs of
    the right logit above the mean.
    """
    columns = _centred(subject, readout.matrix)
    assert subject.task is not None
    starts = [part.start for part in subject.task.output_slices.values()]
    return sum(
        (
            columns.T[targets[:, i].clamp(min=0) + start] * (targets[:, i : i + 1] != IGNORE)
            for i, start in enumerate(starts)
        ),
        torch.zeros(()),
    )


def _total_loss(subject: Subject, logits: Tensor, targets: Tensor) -> float:
    assert subject.task is not None
    parts = enumerate(subject.task.output_slices.values())
    return sum(
        float(F.cross_entropy(logits[:, part], targets[:, i], ignore_index=IGNORE, reduction="sum"))
        for i, part in parts
    )


def _figures(sums: _Sums, top: str) -> dict[str, Figure]:
    lens = figures.lines(
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
    names = list(sums.null)
    values = [sums.attribution[name] for name in names]
    null = np.stack(list(sums.null.values())).max(0)
    attribution = figures.bars(
        names,
        {"attribution": values},
        title="Direct logit attribution",
        x_title="component",
        y_title="right logit above the mean class (nats)",
        highlight=[top],
        null=(float(null.mean()), float(null.min()), float(null.max())),
        caption=(
            "What each head and layer adds to the right answer directly; the band is the largest "
            "of them when the answers are other inputs'."
        ),
    )
    result = {"lens": lens, "attribution": attribution}
    if sums.by_position:
        result["positions"] = figures.heatmap(
            np.stack(list(sums.by_position.values())),
            y=list(sums.by_position),
            title="Attribution by source position",
            x_title="source position",
            y_title="head",
            z_title="right logit above the mean class (nats)",
            diverging=True,
            caption="From which position each head carries what it adds to the answer.",
        )
    return result
