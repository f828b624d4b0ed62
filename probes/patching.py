"""Activation patching and its linear estimate: where the information that decides the answer
sits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.counterfactuals import Pairs, answered, choose_variable, draw
from mechint.errors import UnknownNameError
from mechint.interventions import (
    RecordedForward,
    Replace,
    ResidSite,
    Site,
    activation_gradients,
    resumes,
    select_positions,
)
from mechint.probe import Need, Probe
from mechint.results import Null, ProbeResult, Table
from mechint.task import Task

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject

KINDS = ("resid_pre", "attention", "head", "mlp")
"""What may be patched."""


def patched(recorded: RecordedForward, source: RecordedForward, sites: Sequence[Site]) -> Tensor:
    """Logits (site, pair, d_vocab_out) of the recorded base inputs with each site alone taken from
    the source.
    """
    return recorded.under(
        [
            Replace(site, site.select(source.activations[site.hook], source.answer_positions))
            for site in sites
        ]
    )


def logit_difference(task: Task, logits: Tensor, pairs: Pairs) -> Tensor:
    """(..., pair) logit of the counterfactual label minus logit of the base's answer, mean over the
    outputs that change.
    """
    differences = []
    for output, columns in enumerate(task.output_slices.values()):
        part, changed = logits[..., columns], pairs.changed[:, output]
        index = [
            classes[:, output].clamp_min(0).expand(part.shape[:-1]).unsqueeze(-1)
            for classes in (pairs.labels, pairs.answers)
        ]
        label, answer = (part.gather(-1, classes).squeeze(-1) for classes in index)
        differences.append((label - answer) * changed)
    return sum(differences, torch.zeros_like(differences[0])) / pairs.changed.sum(-1).clamp_min(1)


def flipped(task: Task, logits: Tensor, pairs: Pairs) -> Tensor:
    """(..., pair) share of the changed outputs that are answered with the counterfactual label."""
    answers = torch.stack(
        [logits[..., columns].argmax(-1) for columns in task.output_slices.values()], -1
    )
    return ((answers == pairs.labels) & pairs.changed).sum(-1) / pairs.changed.sum(-1).clamp_min(1)


def attribution(
    subject: Subject, pairs: Pairs, source: RecordedForward, components: Sequence[Site]
) -> Tensor:
    """(component, pair) first-order estimate of each patch's change of the logit difference.

    (source activation - base activation) · gradient of the base's logit difference with respect to
    the activation (Nanda 2023, Attribution Patching); one backward for all components.
    """
    task = subject.task
    assert task is not None

    def score(logits: Tensor) -> Tensor:
        return logit_difference(task, select_positions(logits, pairs.reads), pairs).sum()

    names = {component.hook for component in components}
    products = {  # (pair, pos) or (pair, pos, head)
        name: ((source.activations[name] - value) * gradient).sum(-1)
        for name, (value, gradient) in activation_gradients(
            subject.model, pairs.base, names, score
        ).items()
    }
    chosen = [
        one.select(products[one.hook][..., None], pairs.reads).flatten(1).sum(1)
        for one in components
    ]
    return torch.stack(chosen)


@dataclass(frozen=True)
class Effects:
    """(component, pair) numbers of every patch; base and source (pair,) logit differences without a
    patch.
    """

    difference: np.ndarray
    flips: np.ndarray
    estimate: np.ndarray
    null: np.ndarray
    base: np.ndarray
    source: np.ndarray

    def recovered(self, difference: np.ndarray) -> np.ndarray:
        """(component,) 0: as the base; 1: as the source. A ratio of means over pairs."""
        span = self.source.mean() - self.base.mean()
        return (difference - self.base).mean(-1) / (span if abs(span) > 1e-12 else np.nan)


@dataclass(frozen=True)
class Patching(Probe):
    """Which layers, positions and heads carry the information that turns one answer into another?

    Pairs (base, source) differ in one causal variable (where it has fixed positions, in these
    tokens alone), and so in the answer. Each component's activation in the base run is replaced by
    its activation in the source run. Recovered = (LD_patched - LD_base) / (LD_source - LD_base), LD
    = logit of the source's answer - logit of the base's, means over pairs: 0 nothing, 1 all (the
    residual stream before the first block is 1 by construction, so it is shown and not ranked).
    Flips: share of pairs then answered as the source. Beside it stands attribution patching, its
    first-order estimate, with the rank correlation of the two. Null: activations of a wrong source
    (that of another pair) destroy information but carry none; the largest recovery over all
    components in resamples of the pairs. Found: p ≤ 0.01, and the model answers most pairs, drawn
    without selection, correctly; information flows through an untrained model too, but decides
    nothing there.

    Cost: two forwards to record, one backward for the estimate, then all components that enter the
    residual stream at one point run stacked, from there on, and as many again for the null. Memory:
    `subject.chunk` pairs at a time.
    """

    name: ClassVar[str] = "patching"
    source: ClassVar[str] = (
        "Vig et al. 2020; Meng et al. 2022 (ROME); Nanda 2023, Attribution Patching"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.VARIABLES, Need.ANSWERS, Need.RESUME)
    intervenes: ClassVar[bool] = True

    variable: str | None = setting(
        None, "causal variable that tells base from source; the task's first one when none"
    )
    components: tuple[str, ...] = setting(
        ("resid_pre", "head", "mlp"), "what is patched: resid_pre, attention, head, mlp"
    )
    layers: tuple[int, ...] | None = setting(None, "blocks; all when none", low=0)
    pairs: int = setting(256, "pairs", low=2)
    only_correct: bool = setting(
        True, "only pairs whose base and source the model answers correctly"
    )
    null_samples: int = setting(999, "resamples of the pairs under the null", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in self.components:
            if kind not in KINDS:
                raise UnknownNameError.of("patching component", kind, KINDS)
        if not self.components:
            self.reject("components", f"at least one of {', '.join(KINDS)}")

    def unmet(self, subject: Subject) -> str | None:
        return None if resumes(subject.model) else "its forward cannot be resumed"

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        # where no pair is answered correctly it refuses
        addition = Trial(
            "modular addition",
            library.addition,
            library.untrained(library.addition),
            library.misses(_strong, lambda plant: [library.head("a")(plant)]),
            "heads missed or made up",
            settings={"variable": "x", "pairs": 64},
        )
        # the first variable of composition stands at one position, and no two permutations differ
        # in one value alone
        suited = {"composition": {"variable": "2-hop of 0"}}
        return Calibration((addition,), {"pairs": 32, "null_samples": 19}, suited)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        assert subject.task is not None
        variable = choose_variable(subject.task, self.variable)
        components = list(self._components(subject))
        pairs = draw(
            subject, variable, self.pairs, seed, only_correct=self.only_correct, relation="minimal"
        )
        effects = _effects(subject, pairs, components)
        recovered, estimated = (
            effects.recovered(effects.difference),
            effects.recovered(effects.base + effects.estimate),
        )
        inner = [
            index
            for index, component in enumerate(components)
            if component.resid != ResidSite.pre(0)
        ] or list(range(len(components)))
        flips, top = effects.flips.mean(-1), max(inner, key=lambda index: float(recovered[index]))
        how = "largest recovery over the components when the source is that of another pair"
        null = Null.sampled(
            "recovered", recovered[top], _largest(effects, inner, self.null_samples, seed), how
        )
        correlation, any_pairs = (
            _spearman(recovered, estimated),
            draw(subject, variable, self.pairs, seed + 1, only_correct=False, relation="minimal"),
        )
        share = float(answered(subject, any_pairs).double().mean())
        metrics = {
            "recovered": float(recovered[top]),
            "flips": float(flips[top]),
            "component": str(components[top]),
            "components": len(components),
            "attribution_spearman": correlation,
            "variable": variable.name,
            "pairs": len(pairs),
            "answered": share,
            "found": null.p_value <= 0.01 and share > 0.5,
        }
        finding = (
            f"{components[top]} carries most of {variable.name}: patching it recovers "
            f"{recovered[top]:.0%} of the logit difference and flips {flips[top]:.0%} "
            f"of {len(pairs)} answers; a wrong source recovers {null.mean:.0%} (p = "
            f"{null.p_value:.2g}). Attribution patching ranks the {len(components)} "
            f"components with a Spearman correlation of {correlation:.2f}."
        )
        return self.result(
            metrics=metrics,
            finding=finding,
            null={"recovered": null},
            tables={
                "components": _table(
                    components, recovered, flips, estimated, effects.recovered(effects.null)
                )
            },
            arrays={"recovered": recovered, "flips": flips, "attribution": estimated},
            figures=_figures(components, recovered, estimated, variable.name),
        )

    def _components(self, subject: Subject) -> Iterator[Site]:
        config = subject.model.config
        for layer in range(config.depth) if self.layers is None else self.layers:
            for kind in self.components:
                if kind == "mlp" and config.attn_only:
                    continue
                subject.check_hook(Site.of(kind, layer).hook)
                for pos in range(subject.data.tokens.shape[1]):
                    yield from (
                        Site.of(kind, layer, pos, units)
                        for units in (
                            [(head,) for head in range(config.n_heads)] if kind == "head" else [()]
                        )
                    )


def _effects(subject: Subject, pairs: Pairs, components: Sequence[Site]) -> Effects:
    assert subject.task is not None
    names, parts = {component.hook for component in components}, []
    for rows in torch.arange(len(pairs), device=subject.device).split(subject.chunk):
        part = pairs[rows]
        base, source = (
            RecordedForward(subject.model, tokens, part.reads, names, subject.memory)
            for tokens in (part.base, part.source)
        )
        other = RecordedForward(
            subject.model, part.source.roll(1, 0), part.reads, names, subject.memory
        )
        logits = patched(base, source, components)
        numbers = (
            logit_difference(subject.task, logits, part),
            flipped(subject.task, logits, part),
            attribution(subject, part, source, components),
            logit_difference(subject.task, patched(base, other, components), part),
            logit_difference(subject.task, base.logits, part),
            logit_difference(subject.task, source.logits, part),
        )
        parts.append([number.double().cpu().numpy() for number in numbers])
    return Effects(*(np.concatenate(column, -1) for column in zip(*parts, strict=True)))


def _largest(effects: Effects, among: Sequence[int], n: int, seed: int) -> np.ndarray:
    """(n,) the largest recovery over the components `among` under wrong sources, in `n` resamples
    of the pairs.
    """
    generator = np.random.default_rng(seed)
    span = effects.source.mean() - effects.base.mean()
    wrong = (effects.null - effects.base)[list(among)]  # (component, pair)
    pairs = wrong.shape[1]
    draws = (generator.multinomial(pairs, np.full(pairs, 1 / pairs), n) / pairs).T
    return (wrong @ draws).max(0) / (span if abs(span) > 1e-12 else np.nan)


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Rank correlation; NaN where either is constant."""
    from scipy.stats import spearmanr

    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.asarray(spearmanr(a, b))[0])


def _table(
    components: Sequence[Site],
    recovered: np.ndarray,
    flips: np.ndarray,
    estimated: np.ndarray,
    wrong: np.ndarray,
) -> Table:
    columns: dict[str, Sequence[Any]] = {
        "kind": [component.kind for component in components],
        "layer": [component.layer for component in components],
        "pos": [component.pos for component in components],
        "head": [component.units[0] if component.units else None for component in components],
        "recovered": recovered.tolist(),
        "flips": flips.tolist(),
        "attribution": estimated.tolist(),
        "wrong_source": wrong.tolist(),
    }
    units = {
        name: "share of the logit difference"
        for name in ("recovered", "attribution", "wrong_source")
    } | {"flips": "share of pairs"}
    return Table(
        columns,
        (
            "One row a patched component; wrong_source patches in the activation of another "
            "pair's source."
        ),
        units,
    )


def _figures(
    components: Sequence[Site], recovered: np.ndarray, estimated: np.ndarray, variable: str
) -> dict[str, Any]:
    result = {}
    for kind in dict.fromkeys(component.kind for component in components):
        members = [index for index, component in enumerate(components) if component.kind == kind]
        rows = [
            f"{components[i].layer}" + "".join(f".{head}" for head in components[i].units)
            for i in members
        ]
        names, positions = list(dict.fromkeys(rows)), sorted({components[i].pos for i in members})
        z = np.full((len(names), len(positions)), np.nan)
        for row, i in zip(rows, members, strict=True):
            z[names.index(row), positions.index(components[i].pos)] = recovered[i]
        result[kind] = figures.heatmap(
            z,
            x=[str(pos) for pos in positions],
            y=names,
            title=f"Patching {kind}: {variable}",
            x_title="position (token index)",
            y_title="layer.head (index)" if kind == "head" else "layer (index)",
            z_title="logit difference recovered (0 base, 1 source)",
            diverging=True,
            caption=(
                "How much of the source's answer each activation carries into the base run: 1 all "
                "of it, 0 none."
            ),
        )
    result["attribution"] = figures.scatter(
        estimated,
        recovered,
        title="Attribution patching against activation patching",
        x_title="first-order estimate (share of the logit difference)",
        y_title="recovered by patching (share of the logit difference)",
        groups=[component.kind for component in components],
        text=[str(component) for component in components],
        caption="One point a component. Where the model is linear the points lie on the diagonal.",
    )
    return result


def _strong(result: ProbeResult) -> list[str]:
    """Heads whose patch recovers most of the answer, for the calibration."""
    columns = result.tables["components"].columns
    names = ("kind", "head", "layer", "recovered")
    return [
        f"L{layer}H{head}"
        for kind, head, layer, share in zip(*(columns[name] for name in names), strict=True)
        if kind == "head" and share > 0.5
    ]
