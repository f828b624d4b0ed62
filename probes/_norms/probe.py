"""The probe norms: how much each sublayer changes its input, also beside another model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.checkpoints import load
from mechint.config import setting
from mechint.errors import DataError
from mechint.null import groupings
from mechint.probe import Need, Probe, Report, unmet_need
from mechint.results import Effect, Null, ProbeResult
from mechint.subject import Subject
from mechint.task import Batch, rng
from probes._weights.circuits import norm_of
from probes.removal import sample_examples

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

    where all readers are layer norms, without the mean over the coordinates. Alone, the last layer
    is held against initial weights; beside `other`, against examples permuted between the models.
    Source: Joint Task Training, App. on norm ratios.
    """

    name: ClassVar[str] = "norms"
    topic: ClassVar[str] = "layers and components"
    source: ClassVar[str] = (
        "Small Models, Smarter Learning: The Power of Joint Task Training, App. on norm ratios"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK, Need.RESIDUAL, Need.ATTENTION)
    lead_rank: ClassVar[int] = 5

    other: str | None = setting(
        None, "checkpoint or run directory of a model to compare with, on the same task"
    )
    bins: int = setting(100, "bins of the histograms for the Jensen–Shannon divergence", low=2)
    bootstrap: int = setting(1000, "samples of the interval and of the permutation null", low=199)
    null_models: int = setting(
        199, "untrained models of the null, where there is no other model", low=19
    )
    null_examples: int = setting(128, "examples that they look at, drawn at random", low=2)

    def unmet(self, subject: Subject) -> str | None:
        reason = unmet_need(Need.REINITIALIZE, subject)
        if self.other is None and reason:
            return f"{reason}; name a model to compare it with as norms.other"
        if not sublayers(subject):
            return "none of its sublayers has hooks of both its input and its output"
        return None

    @property
    def significance(self) -> float:
        return 0.005

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
        small = {"null_models": 19, "null_examples": 16, "bootstrap": 199}
        return Calibration((doubling,), small)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        if self.other is not None:
            other = load(self.other, task=subject.task, device=str(subject.device))
            return self.measure_pair(subject, other, seed)
        found, report = ratios(subject), Report(self, subject)
        shown = with_input(found)
        report.update({f"norms.{name}": mean(values) for name, values in shown.items()})
        few = sample_examples(subject, self.null_examples, rng("norms examples", seed))
        observed, untrained = ratios(few), untrained_means(few, self.null_models, seed)
        for name in last_layer(found):
            samples, own = untrained[name], mean(observed[name])
            unclear = f"Whether the norms of {name} differ from untrained ones is unclear."
            if not np.isfinite([own, *samples]).all():
                report.unclear(unclear, f"the input of {name} is zero at every position")
                continue
            center, spread = float(samples.mean()), float(samples.std(ddof=1)) + 1e-12
            metric = f"norms.{name}.deviation"
            report.metric(
                metric,
                abs(own - center) / spread,
                null=np.abs(samples - center) / spread,
                how="the same architecture with initial weights, in standard deviations",
            )
            positions = few.data.own_positions()
            given = np.isfinite(observed[name]).sum()
            n = observed[name].size if positions is None else int(positions.sum())
            verdict = report.finding(
                f"The norm ratio of {name} differs from that of untrained models.",
                no=f"The norm ratio of {name} lies within those of untrained models.",
                unclear=unclear,
                null=metric,
                effect=Effect(own, "", "output over input norm", center, "untrained"),
                least=-1.0,
                details={"positions with an input": f"{given} of {n}"},
                n=len(few.data),
                at_chance=True,
            )
            if verdict == "yes":
                report.lead(f"{name} writes {own:.2g} of the norm that it reads.")
        if shown:
            report.table("layers", *layers_table(shown))
        self._draw(report, {"": shown})
        return report.result()

    def measure_pair(self, subject: Subject, other: Subject, seed: int) -> ProbeResult:
        """`subject` beside `other`, each on its own data; differences are subject minus other.

        Raises:
            DataError: they have no sublayer in common.
        """
        a, b = with_input(ratios(subject)), with_input(ratios(other))
        statistics = {
            name: compare_samples(a[name], b[name], bins=self.bins, draws=self.bootstrap, seed=seed)
            for name in a
            if name in b
        }
        if not statistics:
            raise DataError(
                f"norms: {subject.describe()} and {other.describe()} share no sublayer "
                f"that has an input: {', '.join(a) or 'none'} and {', '.join(b) or 'none'}"
            )
        report = Report(self, subject)
        for name, row in statistics.items():
            report.update({f"norms.{name}.{key}": row[key] for key in row if key != "null"})
        for name in last_layer(statistics):
            row, metric = statistics[name], f"norms.{name}.size"
            size = abs(row["cohens_d"])
            how = "the examples permuted between the two models: |Cohen's d|"
            ways = groupings([len(a[name]), len(b[name])])
            null = Null.sampled(metric, size, row["null"], how, ways)
            report.metric(metric, size, null=null)
            report.finding(
                f"The norm ratio of {name} differs between the models.",
                no=f"The norm ratio of {name} is not shown to differ between the models.",
                unclear=f"Whether the norm ratios of {name} differ is unclear.",
                null=metric,
                effect=Effect(size, "standard deviations", "|Cohen's d|", null.mean),
                details={
                    "Cohen's d": row["cohens_d"],
                    "95% interval": f"{row['d_low']:+.2f} to {row['d_high']:+.2f}",
                    "means": f"{row['mean']:.3g}, other {row['other_mean']:.3g}",
                    "Kolmogorov–Smirnov": row["ks"],
                },
                n=min(len(subject.data), len(other.data)),
                at_chance=True,
            )
        keys = [key for key in next(iter(statistics.values())) if key != "null"]
        columns = {key: [row[key] for row in statistics.values()] for key in keys}
        report.table(
            "comparison",
            {"sublayer": list(statistics), **columns},
            "subject against other, every sublayer",
        )
        common = set(statistics)
        self._draw(
            report,
            {
                label: {name: values for name, values in one.items() if name in common}
                for label, one in (("subject ", a), ("other ", b))
            },
        )
        return report.result()

    def _draw(self, report: Report, models: Mapping[str, Ratios]) -> None:
        """Histograms of the last layer's ratios, a figure for each kind of sublayer."""
        every = next(iter(models.values()))
        for name in last_layer(every) if every else ():
            kind = name.split(" ", 1)[1]
            report.figure(
                kind,
                figures.histogram(
                    {f"{label}{name}": found[name] for label, found in models.items()},
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


def with_input(found: Ratios) -> dict[str, Float[np.ndarray, "example pos"]]:
    """Those sublayers that have a ratio anywhere."""
    return {name: values for name, values in found.items() if np.isfinite(values).any()}


def mean(values: Float[np.ndarray, "example pos"]) -> float:
    """Mean over the examples and positions that have a ratio; NaN where none has."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else math.nan


def untrained_means(
    subject: Subject, n_models: int, seed: int
) -> dict[str, Float[np.ndarray, " model"]]:
    """Sublayer → mean ratios of `n_models` models with initial weights on the subject's data."""
    first = int(rng("norms null", seed).integers(1 << 31))
    centered = reads_centered(subject)
    each = [ratios(subject.untrained(first + i), centered) for i in range(n_models)]
    return {name: np.array([mean(one[name]) for one in each]) for name in sublayers(subject)}


def layers_table(found: Ratios) -> tuple[dict[str, Sequence[Any]], str]:
    """Mean and quantiles of every sublayer's ratios, and the caption."""
    quantiles = np.array([np.nanquantile(one, [0.05, 0.5, 0.95]) for one in found.values()])
    columns: dict[str, Sequence[Any]] = {
        "sublayer": list(found),
        "mean": [mean(values) for values in found.values()],
        **dict(zip(("5%", "median", "95%"), quantiles.T.tolist(), strict=True)),
    }
    return columns, "ratio of output to input norm over examples and positions"


# --- two models -----------------------------------------------------------------------------------
def compare_samples(
    a: Float[np.ndarray, "example pos"],
    b: Float[np.ndarray, "other_example other_pos"],
    *,
    bins: int,
    draws: int,
    seed: int,
) -> dict[str, Any]:
    """Everything that compares `a` with `b`, NaN left out; differences are a minus b.

    Positions of one example depend on each other, so bootstrap and permutations move whole
    examples. `d_low` and `d_high` bound Cohen's d in 95% of `draws` bootstrap samples; `null`
    (draw,) is |d| with the examples permuted between the two samples.
    """
    from scipy import stats

    x, y = a[np.isfinite(a)], b[np.isfinite(b)]
    edges = np.histogram_bin_edges(np.concatenate([x, y]), bins=bins)
    p, q = (np.histogram(sample, edges)[0] / len(sample) for sample in (x, y))
    center = np.concatenate([x, y]).mean()  # of large numbers sums of squares keep no variance
    first, second = _moments(a - center), _moments(b - center)
    both, draw = np.concatenate([first, second]), rng("norms", seed)

    def again(moments: np.ndarray) -> np.ndarray:
        return moments[draw.integers(0, len(moments), len(moments))].sum(0)

    resampled = np.array([_cohens_d(again(first), again(second)) for _ in range(draws)])
    chosen = [draw.permutation(len(both)) < len(a) for _ in range(draws)]
    between = "linear" if np.isfinite(resampled).all() else "nearest"  # of infinities there is none
    low, high = np.quantile(resampled, [0.025, 0.975], method=between)
    return {
        "mean": float(x.mean()),
        "other_mean": float(y.mean()),
        "ks": float(stats.ks_2samp(x, y).statistic),  # type: ignore[attr-defined]
        "js_divergence_bits": jensen_shannon(p, q),
        "wasserstein": float(stats.wasserstein_distance(x, y)),
        "cohens_d": _cohens_d(first.sum(0), second.sum(0)),
        "d_low": float(low),
        "d_high": float(high),
        "null": np.array([abs(_cohens_d(both[one].sum(0), both[~one].sum(0))) for one in chosen]),
    }


def jensen_shannon(p: Float[np.ndarray, " bin"], q: Float[np.ndarray, " bin"]) -> float:
    """Jensen–Shannon divergence in bits (0–1) of two distributions over the same bins; its square
    root is a distance, and some call that the divergence.

    >>> jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    1.0
    """
    middle = (p + q) / 2

    def divergence(one: np.ndarray) -> float:
        held = one > 0
        return float((one[held] * np.log2(one[held] / middle[held])).sum())

    return (divergence(p) + divergence(q)) / 2


def _moments(sample: np.ndarray) -> np.ndarray:
    """(example, 3): how many numbers, their sum, the sum of their squares."""
    return np.stack([np.isfinite(sample).sum(1), np.nansum(sample, 1), np.nansum(sample**2, 1)], 1)


def _cohens_d(a: np.ndarray, b: np.ndarray) -> float:
    """Cohen's d from summed moments, with the pooled unbiased variance; infinite where neither
    sample varies by more than rounding.
    """
    (n, total, squares), (m, other_total, other_squares) = a, b
    within = (squares - total**2 / n) + (other_squares - other_total**2 / m)
    spread = np.sqrt(max(within, 0.0) / max(n + m - 2, 1))
    difference = total / n - other_total / m
    if spread > 1e-12 and within > 1e-12 * (squares + other_squares):
        return float(difference / spread)
    return float(np.sign(difference) * np.inf) if abs(difference) > 1e-12 else 0.0
