"""How much attention and feed-forward layers change what passes through them, and whether two
models differ in it.

r_attn = ‖Attn(LN₁ x)‖ / ‖x‖ and r_ffwd = ‖FFN(LN₂ x₁)‖ / ‖x₁‖, x₁ = x after attention, at every
position of every example (joint-training, App. on norm ratios). Two models are compared at every
layer: Kolmogorov–Smirnov statistic, Jensen–Shannon divergence in bits of the histograms over common
bins (its square root is a distance, and some call that the divergence), Wasserstein-1 distance, and
Cohen's d = (mean − other mean) / pooled standard deviation with a bootstrap 95% interval. Positions
of one example depend on each other, so bootstrap and permutations move whole examples.

Cost: one forward a model; alone, one forward on `null_examples` for each of `null_models` untrained
models, stacked. Memory: one chunk of activations, and two numbers a layer, position and example.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from mechint import figures
from mechint.checkpoints import load
from mechint.config import setting
from mechint.models.forward import Forward
from mechint.models.rows import dense
from mechint.models.transformer import initialise
from mechint.probe import Need, Probe, unmet_need
from mechint.results import Figure, Null, ProbeResult, Table
from mechint.subject import Subject
from mechint.task import Batch, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

KINDS = {"attention": ("attn_out", "resid_pre"), "feed-forward": ("mlp_out", "resid_mid")}
"""Kind of sublayer → hooks of its output and of its input."""
HOOKED = tuple(f"hook_{hook}" for hooks in KINDS.values() for hook in hooks)


@dataclass(frozen=True)
class Norms(Probe):
    """How large is what each sublayer adds, relative to what it is given, and is that different in
    another model?

    Alone, the ratios of the last layer are held against those of the same architecture with initial
    weights; with `other`, against the same examples dealt to the two models at random. Detection: p
    ≤ 0.005 of the larger of the two.
    """

    name: ClassVar[str] = "norms"
    source: ClassVar[str] = (
        "Small Models, Smarter Learning: The Power of Joint Task Training, App. on norm ratios"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK, Need.RESIDUAL, Need.ATTENTION)

    other: str | None = setting(
        None, "checkpoint or run directory of a model to compare with, on the same task"
    )
    bins: int = setting(100, "bins of the histograms for the Jensen–Shannon divergence", low=2)
    bootstrap: int = setting(1000, "samples of the interval and of the permutation null", low=199)
    null_models: int = setting(
        199, "untrained models of the null, where there is no other model", low=19
    )
    null_examples: int = setting(128, "examples that they look at", low=2)

    def unmet(self, subject: Subject) -> str | None:
        reason = unmet_need(Need.REINITIALIZE, subject)
        if self.other is None and reason:
            return f"{reason}; name a model to compare it with as norms.other"
        if not sublayers(subject):
            return "none of its sublayers has hooks of both its input and its output"
        return None

    def detects(self, result: ProbeResult) -> bool:
        return min(null.p_value for null in result.null.values()) <= 0.005

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
            settings={"null_examples": 32},
        )
        small = {"null_models": 19, "null_examples": 16, "bootstrap": 199}
        return Calibration((doubling,), small)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        if self.other is not None:
            assert subject.task is not None
            task = subject.task
            return self.measure_pair(
                subject,
                load(self.other, task=task.name, device=str(subject.device), **task.to_dict()),
                seed,
            )
        return self._alone(subject, seed)

    # --- one model --------------------------------------------------------------------------------
    def _alone(self, subject: Subject, seed: int) -> ProbeResult:
        found = ratios(subject)
        means = {name: float(np.nanmean(values)) for name, values in found.items()}
        few = subject.with_data(subject.data[: self.null_examples])
        observed = {name: float(np.nanmean(values)) for name, values in ratios(few).items()}
        untrained = self._untrained(few, seed)
        null, metrics = {}, {f"norms.{name}": value for name, value in means.items()}
        for name in _last(found):
            samples = untrained[name]
            centre, spread = samples.mean(), samples.std(ddof=1) + 1e-12
            metric = f"norms.{name}.deviation"
            metrics[metric] = abs(observed[name] - centre) / spread
            null[metric] = Null.sampled(
                metric,
                metrics[metric],
                np.abs(samples - centre) / spread,
                "the same architecture with initial weights, in standard deviations",
            )
        last = _last(found)
        parts = ", ".join(
            f"{name} {means[name]:.3g} (untrained {untrained[name].mean():.3g})" for name in last
        )
        strongest = min(null.values(), key=lambda one: one.p_value)
        finding = (
            f"output over input norm in the last layer: {parts}; {strongest.p_text} against "
            "untrained weights"
        )
        return self.result(
            metrics=metrics,
            finding=finding,
            null=null,
            tables={"layers": _table(means, found)},
            figures=_densities({"": found}, last),
        )

    def _untrained(self, few: Subject, seed: int) -> dict[str, np.ndarray]:
        """Sublayer → (model,) mean ratios of models with initial weights; many stacked in one
        forward where the forward is ours.
        """
        first = int(rng("norms null", seed).integers(1 << 31))
        if unmet_need(Need.RESUME, few):
            each = [ratios(few.untrained(first + i)) for i in range(self.null_models)]
            return {
                name: np.array([np.nanmean(one[name]) for one in each]) for name in sublayers(few)
            }
        config, tokens, hooks = few.model.config, few.data.tokens, sublayers(few)
        size = max(
            1,
            few.memory // (32 * tokens.numel() * (config.d_mlp + config.d_model + tokens.shape[1])),
        )
        means: dict[str, list[np.ndarray]] = {name: [] for name in hooks}
        for start in range(0, self.null_models, size):
            drawn = [
                initialise(config, first + i)
                for i in range(start, min(start + size, self.null_models))
            ]
            stack = {
                name: torch.stack([one[name] for one in drawn]).to(few.device) for name in drawn[0]
            }
            norms: dict[str, torch.Tensor] = {}

            def keep(
                name: str, tensor: torch.Tensor, norms: dict[str, torch.Tensor] = norms
            ) -> torch.Tensor:
                if name.endswith(HOOKED):
                    norms[name] = tensor.norm(dim=-1).double()
                return tensor

            with torch.no_grad():
                same = tokens.expand(len(drawn), *tokens.shape)
                Forward(stack, config, keep).logits(dense(same))
            for name, (output, given) in hooks.items():
                ratio = (norms[output] / norms[given].clamp(min=1e-30)).cpu().numpy()
                means[name].append(
                    np.nanmean(
                        np.where(_beyond(few.data, slice(None), ratio.shape[-1]), np.nan, ratio),
                        axis=(1, 2),
                    )
                )
        return {name: np.concatenate(parts) for name, parts in means.items()}

    # --- two models -------------------------------------------------------------------------------
    def measure_pair(self, subject: Subject, other: Subject, seed: int) -> ProbeResult:
        """`subject` beside `other`, each on its own data; differences are subject minus other."""
        a, b = ratios(subject), ratios(other)
        names = [name for name in a if name in b]
        statistics = {name: self._statistics(a[name], b[name], seed) for name in names}
        metrics: dict[str, Any] = {
            f"norms.{name}.{key}": value
            for name, row in statistics.items()
            for key, value in row.items()
            if key != "null"
        }
        null = {}
        for name in _last(a):
            metric = f"norms.{name}.size"
            metrics[metric] = abs(statistics[name]["cohens_d"])
            null[metric] = Null.sampled(
                metric,
                metrics[metric],
                statistics[name]["null"],
                "the examples dealt to the two models at random: |Cohen's d|",
            )
        rows = [
            {key: value for key, value in statistics[name].items() if key != "null"}
            for name in names
        ]
        table = Table(
            {"sublayer": names, **{key: [row[key] for row in rows] for key in rows[0]}},
            "subject against other, every sublayer",
        )
        parts = "; ".join(
            f"{name}: d = {statistics[name]['cohens_d']:+.2f} "
            f"[{statistics[name]['d_low']:+.2f}, {statistics[name]['d_high']:+.2f}], "
            f"KS {statistics[name]['ks']:.3f}, {null[f'norms.{name}.size'].p_text}"
            for name in _last(a)
        )
        finding = f"norm ratios of the last layer, subject minus other: {parts}"
        shown = _densities({"subject ": a, "other ": b}, _last(a))
        return self.result(
            metrics=metrics, finding=finding, null=null, tables={"comparison": table}, figures=shown
        )

    def _statistics(self, a: np.ndarray, b: np.ndarray, seed: int) -> dict[str, Any]:
        """All that compares two (example, pos) samples."""
        from scipy import stats

        x, y = a[np.isfinite(a)], b[np.isfinite(b)]
        edges = np.histogram_bin_edges(np.concatenate([x, y]), bins=self.bins)
        p, q = (np.histogram(sample, edges)[0] / len(sample) for sample in (x, y))
        moments = np.concatenate([_moments(a), _moments(b)])
        draw = rng("norms", seed)
        first, n = np.arange(len(moments)) < len(a), len(moments)
        resampled = np.array(
            [
                _cohens_d(_bootstrap(moments[first], draw), _bootstrap(moments[~first], draw))
                for _ in range(self.bootstrap)
            ]
        )
        dealt = [draw.permutation(n) < len(a) for _ in range(self.bootstrap)]
        low, high = np.quantile(resampled, [0.025, 0.975])
        return {
            "mean": float(x.mean()),
            "other_mean": float(y.mean()),
            "ks": float(stats.ks_2samp(x, y).statistic),  # type: ignore[attr-defined]
            "js_divergence_bits": jensen_shannon(p, q),
            "wasserstein": float(stats.wasserstein_distance(x, y)),
            "cohens_d": _cohens_d(moments[first].sum(0), moments[~first].sum(0)),
            "d_low": float(low),
            "d_high": float(high),
            "null": np.array(
                [abs(_cohens_d(moments[mine].sum(0), moments[~mine].sum(0))) for mine in dealt]
            ),
        }


def sublayers(subject: Subject) -> dict[str, tuple[str, str]]:
    """ "L0 attention", "L0 feed-forward", … → hooks of the output and of the input."""
    known = subject.hooks
    every = {
        f"L{layer} {kind}": tuple(f"blocks.{layer}.hook_{hook}" for hook in hooks)
        for layer in range(subject.n_layers)
        for kind, hooks in KINDS.items()
    }
    return {
        name: (output, given)
        for name, (output, given) in every.items()
        if output in known and given in known
    }


def ratios(subject: Subject) -> dict[str, np.ndarray]:
    """Sublayer → (example, pos) ratios; NaN beyond an example's length."""
    wanted = sublayers(subject)
    found: dict[str, list[np.ndarray]] = {name: [] for name in wanted}
    for part, recorded in subject.stream([hook for pair in wanted.values() for hook in pair]):
        for name, (output, given) in wanted.items():
            ratio = recorded[output].double().norm(dim=-1) / recorded[given].double().norm(
                dim=-1
            ).clamp(min=1e-30)
            found[name].append(
                np.where(_beyond(subject.data, part, ratio.shape[1]), np.nan, ratio.cpu().numpy())
            )
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _beyond(data: Batch, part: slice, n_ctx: int) -> np.ndarray:
    """(example | 1, pos) bool: positions past the example's end."""
    if data.lengths is None:
        return np.zeros((1, n_ctx), bool)
    return np.arange(n_ctx) >= data.lengths[part].cpu().numpy()[:, None]


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    """Jensen–Shannon divergence in bits (0–1) of two distributions over the same bins.

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


def _bootstrap(moments: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return (
        np.bincount(draw.integers(0, len(moments), len(moments)), minlength=len(moments)) @ moments
    )


def _cohens_d(a: np.ndarray, b: np.ndarray) -> float:
    """Cohen's d from summed moments, with the pooled unbiased variance."""
    (n, total, squares), (m, other_total, other_squares) = a, b
    within = (squares - total**2 / n) + (other_squares - other_total**2 / m)
    spread = np.sqrt(max(within, 0.0) / max(n + m - 2, 1))
    difference = total / n - other_total / m
    return (
        float(difference / spread)
        if spread > 1e-12
        else float(np.sign(difference) * np.inf)
        if abs(difference) > 1e-12
        else 0.0
    )


def _last(found: dict[str, np.ndarray]) -> list[str]:
    """The sublayers of the last layer."""
    layer = max(int(name[1:].split()[0]) for name in found)
    return [name for name in found if name.startswith(f"L{layer} ")]


def _table(means: dict[str, float], found: dict[str, np.ndarray]) -> Table:
    quantiles = {name: np.nanquantile(values, [0.05, 0.5, 0.95]) for name, values in found.items()}
    columns = {
        key: [float(quantiles[name][i]) for name in found]
        for i, key in enumerate(("5%", "median", "95%"))
    }
    return Table(
        {"sublayer": list(means), "mean": list(means.values()), **columns},
        "ratio of output to input norm over examples and positions",
    )


def _densities(models: dict[str, dict[str, np.ndarray]], last: list[str]) -> dict[str, Figure]:
    shown = {}
    for name in last:
        kind = name.split(" ", 1)[1]
        samples = {f"{model}{name}": found[name] for model, found in models.items()}
        shown[kind] = figures.histogram(
            samples,
            title=f"Norm ratio of the last {kind} layer",
            x_title="output norm over input norm (ratio)",
            caption=(
                f"How much the {kind} layer changes what it is given, over examples and positions."
            ),
        )
    return shown
