"""Nanda's progress measures: how far a model has got in computing by waves, before its test
accuracy shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.probe import Need, Probe
from mechint.results import Null, ProbeResult, Table
from mechint.subject import Subject
from mechint.task import FiniteTask, rng
from probes import answers
from probes.answers import Cycle
from probes.fourier import spectra
from probes.fourier.spectra import KeyFrequencyRule

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


@dataclass(frozen=True)
class Progress(Probe):
    """How much of the loss do the key frequencies carry: restricted and excluded loss, Gini,
    weights, trigonometric share?

    L is the logits (input, class), μ their mean over all inputs (the bias of the mean logits), P
    the orthogonal projection, over the inputs, on cos w·answer and sin w·answer of the key
    frequencies, w = 2πk/n:

    - restricted loss: cross-entropy of μ + P(L − μ): the waves of the key frequencies alone;
    - excluded loss, all keys: of L − P(L − μ): everything but them; excluded loss, one key: the
      same for one frequency. With `keep_bias` false μ is left out of the restricted logits;
    - trigonometric share: share of the variance of the logits, centred over classes and inputs,
      along cos w(answer − class);
    - Gini coefficient of the amplitudes of the token embedding's Fourier components, 0 (flat) … 1
      (one component);
    - sum of squared weights.

    Key frequencies are found by the rule of the probe fourier, or given as `keys`. All losses in
    nats, float64, on the training split, the test split and all inputs (the split is the one the
    model was trained with; where it is not known, on all inputs alone). Source: Nanda et al. 2023,
    Sec. 5.1 and App. C; the published code's variants: "excluded, all keys" on the training set.
    The null: as many frequencies as there are keys, drawn from the others. Cost: one forward
    over the data, the null included. Memory: all logits at once.
    """

    name: ClassVar[str] = "progress"
    source: ClassVar[str] = (
        "Nanda et al. 2023, Progress measures for grokking via mechanistic interpretability, Sec. 5"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.FINITE, Need.ANSWERS, Need.EMBEDDING)

    keys: tuple[int, ...] | None = setting(
        None, "key frequencies; found in the logits when none", low=1
    )
    output: str | None = setting(
        None,
        (
            "the output that is looked at; of those with a cyclic group the one with most classes "
            "when none"
        ),
    )
    keep_bias: bool = setting(True, "whether the restricted logits keep the mean logits")
    samples: int = setting(50, "random sets of frequencies in the null", low=1)
    steps: int = setting(20, "checkpoints of a run that are looked at; 0 for none", low=0)

    def unmet(self, subject: Subject) -> str | None:
        cycles = answers.cycles(subject)
        if not cycles:
            return "no cyclic group acts on its answers"
        if self.output is not None and self.output not in {cycle.output for cycle in cycles}:
            return (
                f"output {self.output!r} has no cyclic group (those that have: "
                f"{', '.join(cycle.output for cycle in cycles)})"
            )
        chosen = self._cycle(subject)
        wrong = [k for k in self.keys or () if k > chosen.n // 2]
        return (
            f"frequency {wrong[0]} is above n/2 = {chosen.n // 2} of output {chosen.output!r}"
            if wrong
            else None
        )

    def _cycle(self, subject: Subject) -> Cycle:
        return max(
            (cycle for cycle in answers.cycles(subject) if self.output in (None, cycle.output)),
            key=lambda cycle: cycle.n,
        )

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        addition = Trial(
            "modular addition",
            library.addition,
            library.untrained(library.addition) | library.no_waves(),
            library.misses(
                lambda result: result.metrics["key_frequencies"],
                lambda plant: plant.truth["frequencies"],
            ),
            "frequencies missed or made up",
            settings={"steps": 0},
            detects=lambda result: bool(result.metrics["key_frequencies"]),
        )
        return Calibration((addition,), {"samples": 9})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        cycle = self._cycle(subject)
        keys = (
            list(self.keys)
            if self.keys is not None
            else answers.logit_spectrum(subject, cycle, KeyFrequencyRule(), seed).keys
        )
        measures = measure_progress(subject, cycle, keys, self.keep_bias)
        metrics: dict[str, Any] = {
            "key_frequencies": keys,
            **measures,
            "weights.sum_of_squares": _sum_of_squares(subject.model),
            **_gini(subject),
        }
        nulls = self._null(subject, cycle, keys, metrics, seed)
        tables = {"losses": _loss_table(measures)}
        shown = {"excluded": _excluded_figure(measures, keys)}
        if self.steps and len(subject.series) > 1:
            tables["steps"] = self._over_steps(subject, cycle, keys)
            shown["steps"] = _steps_figure(tables["steps"])
        return self.result(
            metrics=metrics,
            finding=_finding(metrics, keys, nulls),
            null=nulls,
            tables=tables,
            figures=shown,
        )

    def _null(
        self,
        subject: Subject,
        cycle: Cycle,
        keys: Sequence[int],
        metrics: Mapping[str, Any],
        seed: int,
    ) -> dict[str, Null]:
        """The trigonometric share of as many other frequencies, and the loss without them."""
        others = [k for k in range(1, cycle.n // 2 + 1) if k not in keys]
        how = f"{len(keys)} frequencies drawn from those that are not key"
        if not keys or len(others) < len(keys):
            return {
                "trigonometric_share": Null(
                    "trigonometric_share",
                    metrics["trigonometric_share"],
                    0.0,
                    0.0,
                    1.0,
                    "no other frequencies to draw from",
                )
            }
        logits, exponents, _ = _logits(subject, cycle)
        cosines = answers.logit_spectrum(
            subject, cycle, KeyFrequencyRule(permutations=1), seed
        ).values
        generator = rng("progress null", seed)
        drawn = [
            generator.choice(others, len(keys), replace=False).tolist() for _ in range(self.samples)
        ]
        shares = [float(np.square(cosines[np.array(some) - 1]).sum()) for some in drawn]
        losses = [
            _loss(logits - _projected(logits, exponents, cycle.n, some), exponents)
            for some in drawn
        ]
        return {
            "trigonometric_share": Null.sampled(
                "trigonometric_share", metrics["trigonometric_share"], shares, how
            ),
            "excluded_loss.all": Null.sampled(
                "excluded_loss.all", metrics["excluded_loss.all"], losses, how
            ),
        }

    def _over_steps(self, subject: Subject, cycle: Cycle, keys: Sequence[int]) -> Table:
        """The measures at up to `steps` checkpoints, with the key frequencies of the subject
        itself.
        """
        columns: dict[str, list[Any]] = {}
        for step, now in answers.checkpoints(subject, self.steps):
            measures = measure_progress(now, cycle, keys, self.keep_bias)
            gini = _gini(now).get("embedding.gini", float("nan"))
            row = {
                "step": step,
                **{
                    name: measures[name]
                    for name in measures
                    if not isinstance(measures[name], dict)
                },
                "embedding.gini": gini,
            }
            row["weights.sum_of_squares"] = _sum_of_squares(now.model)
            for name, value in row.items():
                columns.setdefault(name, []).append(value)
        return Table(
            columns,
            f"one row a checkpoint; key frequencies {list(keys)} of the last",
            {"step": "optimiser steps", "loss.train": "nats"},
        )


# --- the measures ---------------------------------------------------------------------------------
def measure_progress(
    subject: Subject, cycle: Cycle, keys: Sequence[int], keep_bias: bool = True
) -> dict[str, Any]:
    """Loss, restricted loss, excluded losses (nats) on train, test and all inputs, and the
    trigonometric share (0–1).
    """
    logits, exponents, splits = _logits(subject, cycle)
    mean = logits.mean(0)
    waves = _projected(logits, exponents, cycle.n, keys)
    variants = {
        "loss": logits,
        "restricted_loss": waves + mean if keep_bias else waves,
        "excluded_loss": logits - waves,
    }
    found: dict[str, Any] = {}
    for name, values in variants.items():
        found |= {
            f"{name}.{split}": _loss(values[index], exponents[index])
            for split, index in splits.items()
        }
    each = {k: _projected(logits, exponents, cycle.n, [k]) for k in keys}
    for split in ("train", "all"):
        if split in splits:
            index = splits[split]
            found[f"excluded_loss.each.{split}"] = {
                k: _loss((logits - wave)[index], exponents[index]) for k, wave in each.items()
            }
    centred = logits - logits.mean(1, keepdim=True)
    centred = centred - centred.mean(0)
    angles = (
        2
        * np.pi
        / cycle.n
        * (exponents[:, None] - torch.arange(cycle.n, device=exponents.device)).double()
    )
    squares = centred.square().sum().clamp_min(1e-24)
    shares = [
        float(
            (centred * (wave := torch.cos(k * angles))).sum().square()
            / (squares * wave.square().sum())
        )
        for k in keys
    ]
    found["trigonometric_share"] = sum(shares)
    return found


def _logits(subject: Subject, cycle: Cycle) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Logits (example, n) float64 in the order of the cycle and exponents of the answers, where
    they lie on it; split → rows.
    """
    task = subject.task
    assert isinstance(task, FiniteTask)
    where, on = answers.answer_positions(cycle, subject.targets[:, cycle.index])
    columns = task.output_slices[cycle.output].start + torch.tensor(
        cycle.classes, device=subject.device
    )
    logits = subject.logits()[on][:, columns].double()
    row = torch.cumsum(on, 0) - 1
    splits = {name: index.to(on.device) for name, index in (subject.split or {}).items()}
    chosen = {
        name: row[index[on[index]]]
        for name, index in splits.items()
        if name in ("train", "test") and bool(on[index].any())
    }
    return logits, where[on], {**chosen, "all": torch.arange(len(logits), device=on.device)}


def _projected(logits: Tensor, exponents: Tensor, n: int, keys: Sequence[int]) -> Tensor:
    """The centred logits projected, over the inputs, on the waves of `keys` in the answer."""
    if not len(keys):
        return torch.zeros_like(logits)
    angles = (
        2
        * np.pi
        / n
        * torch.outer(
            exponents.double(),
            torch.tensor(list(keys), dtype=torch.float64, device=exponents.device),
        )
    )
    paired = [i for i, k in enumerate(keys) if 2 * k != n]  # the Nyquist frequency has no sine
    waves = torch.cat([angles.cos(), angles.sin()[:, paired]], 1)
    basis = torch.linalg.qr(waves - waves.mean(0))[0]
    return basis @ (basis.T @ (logits - logits.mean(0)))


def _loss(logits: Tensor, exponents: Tensor) -> float:
    return float(F.cross_entropy(logits, exponents))


def gini(values: np.ndarray) -> float:
    """Gini coefficient of non-negative values: 0 when all are equal, near 1 when one holds
    everything.

    >>> gini(np.array([1.0, 1.0, 1.0])), gini(np.array([0.0, 0.0, 0.0, 1.0]))
    (0.0, 0.75)
    """
    ordered = np.sort(values)
    n = len(ordered)
    return float(
        2 * (np.arange(1, n + 1) * ordered).sum() / (n * max(ordered.sum(), 1e-24)) - (n + 1) / n
    )


def _gini(subject: Subject) -> dict[str, float]:
    order = answers.value_tokens(subject)
    if order is None:
        return {}
    rows = subject.model.W_E.detach()[order].double().cpu().numpy()
    return {"embedding.gini": gini(np.sqrt(spectra.energies(rows)))}


def _sum_of_squares(model: Any) -> float:
    return float(
        sum(parameter.detach().double().square().sum() for parameter in model.parameters())
    )


# --- words and pictures ---------------------------------------------------------------------------
def _loss_table(measures: Mapping[str, Any]) -> Table:
    rows = [name for name in measures if "loss" in name and not isinstance(measures[name], dict)]
    return Table(
        {"loss": rows, "value": [measures[name] for name in rows]},
        "one row a loss: variant and split",
        {"value": "nats"},
    )


def _excluded_figure(measures: Mapping[str, Any], keys: Sequence[int]) -> Any:
    each = measures["excluded_loss.each.all"]
    names = ["none", *(f"frequency {k}" for k in keys), "all keys", "all but keys"]
    values = [
        measures["loss.all"],
        *(each[k] for k in keys),
        measures["excluded_loss.all"],
        measures["restricted_loss.all"],
    ]
    return figures.bars(
        names,
        {"loss": np.maximum(values, 1e-12)},
        title="Loss with frequencies taken out",
        x_title="taken out of the logits",
        y_title="loss (nats)",
        y_log=True,
        caption=(
            "A key frequency is needed when the loss rises without it; the keys suffice when it "
            "stays low with nothing but them."
        ),
    )


def _steps_figure(table: Table) -> Any:
    shown = [
        name
        for name in ("loss.train", "loss.test", "restricted_loss.all", "excluded_loss.train")
        if name in table.columns
    ]
    return figures.lines(
        table.columns["step"],
        {name: np.maximum(table.columns[name], 1e-12) for name in shown},
        title="Progress measures over steps",
        x_title="step (optimiser steps)",
        y_title="loss (nats)",
        y_log=True,
        markers=True,
        caption=(
            "The restricted loss falls before the test loss when the circuit forms; the excluded "
            "loss rises when it carries the training set."
        ),
    )


def _finding(metrics: Mapping[str, Any], keys: Sequence[int], nulls: Mapping[str, Null]) -> str:
    if not keys:
        return (
            "The logits have no key frequency: there is nothing to restrict the loss of "
            f"{metrics['loss.all']:.2g} nats to."
        )
    words = ", ".join(map(str, keys))
    return (
        f"With the waves of frequencies {words} alone the loss is "
        f"{metrics['restricted_loss.all']:.2g} nats, without them "
        f"{metrics['excluded_loss.all']:.2g} "
        f"(of the model: {metrics['loss.all']:.2g}); they explain "
        f"{metrics['trigonometric_share']:.1%} of the logits' variance "
        f"({nulls['trigonometric_share'].p_text} against as many other frequencies)."
    )
