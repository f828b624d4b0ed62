"""The probe norms: how much each sublayer changes its input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, ProbeResult
from mechint.probes._weights.circuits import norm_of
from mechint.probes.removal import sample_examples
from mechint.subject import Subject
from mechint.task import Batch, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

KINDS = {"attention": ("attn_out", "resid_pre"), "MLP": ("mlp_out", "resid_mid")}
"""Kind of sublayer → hooks of its output and of its input."""
ROUNDING = 1e-6
"""Norm of what is left of a vector without its mean, over its own, up to which it is rounding."""
Ratios = Mapping[str, Float[np.ndarray, "_example _pos"]]
"""Sublayer → output over input norm; NaN beyond an example's length and where the input is zero."""


@dataclass(frozen=True)
class Norms(Probe):
    """How large is what each sublayer adds, relative to what it is given?

    At every position of every example, with x₁ the stream after attention:

        r_attention = ‖Attn(LN₁ x)‖ / ‖x‖          r_MLP = ‖MLP(LN₂ x₁)‖ / ‖x₁‖

    where all readers are layer norms, without the mean over the coordinates. The last layer is held
    against initial weights.
    """

    name: ClassVar[str] = "norms"
    topic: ClassVar[str] = "layers and components"
    source: ClassVar[str] = (
        "Small Models, Smarter Learning: The Power of Joint Task Training, App. on norm ratios"
    )
    needs: ClassVar[tuple[Need, ...]] = (
        Need.TASK,
        Need.RESIDUAL,
        Need.ATTENTION,
    )
    level: ClassVar[float] = 0.005

    null_models: int = setting(
        199, "untrained models of the null, or models in random order", low=19
    )
    null_examples: int = setting(128, "examples that they look at, drawn at random", low=2)

    def unmet(self, subject: Subject) -> str | None:
        if not sublayers(subject):
            return "none of its sublayers has hooks of both its input and its output"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        doubling = Trial(
            "composition by doubling",
            library.pointer_doubling,
            library.untrained(library.pointer_doubling),
            # the written head adds one unit vector to the sum of four orthogonal ones
            lambda result, plant: abs(result.metrics["norms.L0 attention"] - 0.5),
            "error of the first layer's ratio, 1/2 by construction",
            tolerance=0.01,
            settings={"null_examples": 4},
        )
        small = {"null_models": 19, "null_examples": 16}
        return Calibration((doubling,), small)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        found, report = ratios(subject), Report(self, subject)
        shown = {name: values for name, values in found.items() if np.isfinite(values).any()}
        report.update({f"norms.{name}": mean(values) for name, values in shown.items()})
        few = sample_examples(subject, self.null_examples, rng("norms examples", seed))
        observed, untrained = ratios(few), untrained_means(few, self.null_models, seed)
        known = subject.knows_initialization
        beside = "untrained" if known else "in random order"
        of_control = f"{'those' if known else 'that'} of {subject.control}"
        for name in last_layer(found):
            samples, own = untrained[name], mean(observed[name])
            unclear = f"Whether the norms of {name} differ from {of_control} is unclear."
            if not np.isfinite([own, *samples]).all():
                report.unclear(unclear, f"the input of {name} is zero at every position")
                continue
            center = float(samples.mean())
            metric = f"norms.{name}.deviation"
            report.metric(
                metric,
                abs(own - center),
                null=np.abs(samples - center),
                how=subject.control,
            )
            report.finding(
                Claim(
                    f"The norm ratio of {name} differs from that of {subject.control}.",
                    no=f"The norm ratio of {name} is like that of {subject.control}.",
                    unclear=unclear,
                    at_chance=True,
                ),
                Effect(own, "", "output over input norm", center, beside),
                null=metric,
                least=-1.0,
                n=len(few.data),
                scope=replace(report.scope(len(few.data)), answers=""),
            )
        if shown:
            quantiles = np.array(
                [np.nanquantile(values, [0.05, 0.5, 0.95]) for values in shown.values()]
            )
            columns = {"sublayer": list(shown), "mean": [mean(values) for values in shown.values()]}
            columns |= dict(zip(("5%", "median", "95%"), quantiles.T.tolist(), strict=True))
            caption = "ratio of output to input norm over examples and positions"
            report.table("layers", columns, caption)
        self._draw(report, shown)
        return report.result()

    def _draw(self, report: Report, found: Ratios) -> None:
        """Histograms of the last layer's ratios, a figure for each kind of sublayer."""
        for name in last_layer(found) if found else ():
            report.figure(
                name.split(" ", 1)[1],
                figures.histogram(
                    {name: found[name]},
                    title=f"Norm ratio of {name}",
                    x_title="output norm over input norm (ratio)",
                    caption=f"How much {name} changes what it is given.",
                ),
            )


# --- ratios ---------------------------------------------------------------------------------------
def sublayers(subject: Subject) -> dict[str, tuple[str, str]]:
    """ "L0 attention", "L0 MLP", … → hooks of the output and of the input."""
    every = {
        f"L{layer} {kind}": (f"blocks.{layer}.hook_{out}", f"blocks.{layer}.hook_{given}")
        for layer in range(subject.n_layers)
        for kind, (out, given) in KINDS.items()
    }
    return {name: pair for name, pair in every.items() if subject.hooks.issuperset(pair)}


def last_layer(names: Iterable[str]) -> list[str]:
    """The sublayers of the last layer.

    >>> last_layer(["L8 attention", "L10 attention", "L10 MLP"])
    ['L10 attention', 'L10 MLP']
    """
    names = list(names)
    layer = max(int(name[1:].split()[0]) for name in names)
    return [name for name in names if name.startswith(f"L{layer} ")]


def reads_centered(subject: Subject) -> bool:
    """Return whether all that reads the stream stands behind norms that take the mean over its
    coordinates out, so that a shift of all of them together is read by nothing. Not where attention
    reads the stream itself and the norms come after it (BERT).

    Cost: two forwards of two examples, of models with layer norms.
    """
    if not norm_of(subject.model, "blocks.0.ln1")[1]:
        return False
    found: list[Tensor] = []

    def keep(activation: Tensor, hook: Any) -> None:
        found.append(activation.double())

    output, given = next(iter(sublayers(subject).values()))
    for shift in (0.0, 1.0):
        hooks = [(given, lambda x, hook, shift=shift: x + shift * x.abs().max()), (output, keep)]
        subject.logits(subject.data[:2], hooks=hooks, at=None)
    plain, shifted = found
    return float((shifted - plain).abs().max()) <= 1e-3 * float(plain.abs().max())


def sizes(x: Float[Tensor, "*place d_model"], centered: bool) -> Float[Tensor, "*place"]:
    """Norms over the coordinates, without their mean where `centered`; 0 where rounding is left.

    >>> x = torch.tensor([[3.0, 1.0], [0.1, 0.1]])
    >>> sizes(x, True).tolist() == [2**0.5, 0.0], sizes(x, False)[0].item() == 10**0.5
    (True, True)
    """
    x = x.double()
    whole = x.norm(dim=-1)
    if not centered:
        return whole
    left = (x - x.mean(-1, keepdim=True)).norm(dim=-1)
    return torch.where(left > ROUNDING * whole, left, 0.0)


def ratios(
    subject: Subject, centered: bool | None = None
) -> dict[str, Float[np.ndarray, "example pos"]]:
    """Sublayer → output over input norm; NaN beyond an example's length, and where the input is
    zero.

    centered: what `reads_centered` says of the architecture, where that is known.
    """
    wanted = sublayers(subject)
    centered = reads_centered(subject) if centered is None else centered
    found: dict[str, list[np.ndarray]] = {name: [] for name in wanted}
    for part, recorded in subject.stream([hook for pair in wanted.values() for hook in pair]):
        for name, pair in wanted.items():
            output, given = (sizes(recorded[hook], centered) for hook in pair)
            ratio = torch.where(given > 0, output / given, torch.nan).cpu().numpy()
            found[name].append(np.where(beyond(subject.data, part, ratio.shape[1]), np.nan, ratio))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def beyond(data: Batch, part: slice, n_ctx: int) -> np.ndarray:
    """(example | 1, pos) bool: positions past the example's end."""
    own = data.own_positions()
    return np.zeros((1, n_ctx), bool) if own is None else ~own[part].cpu().numpy()


def mean(values: Float[np.ndarray, "example pos"]) -> float:
    """Mean over the examples and positions that have a ratio; NaN where none has."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else math.nan


def untrained_means(
    subject: Subject, n_models: int, seed: int
) -> dict[str, Float[np.ndarray, " model"]]:
    """Sublayer → mean ratios of `n_models` models of `controls_in_turn` on the subject's data."""
    first = int(rng("norms null", seed).integers(1 << 31))
    centered = reads_centered(subject)
    models = subject.controls_in_turn(range(first, first + n_models))
    each = [ratios(model, centered) for model in models]
    return {
        name: np.array([mean(of_model[name]) for of_model in each]) for name in sublayers(subject)
    }
