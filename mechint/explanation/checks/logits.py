"""Tests of the logits: how much of them follows from features, beside the right answer."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.decide import Evidence
from mechint.explanation.measure import (
    Bench,
    Fit,
    centered,
    determination,
    r2,
    ridge,
)
from mechint.explanation.parts import Features
from mechint.explanation.records import BEATS, Test, judge_r2


def match(bench: Bench, fit: Fit, null: Fit | None, carried: bool = False) -> Test:
    """R² of the logits from the features, fitted on one half; the rival is the right answer.

    carried: whether each block of the features makes the change that is predicted of it when it is
    exchanged in the inputs, so that features which contain the right answer, as the sum over all
    frequencies does, need not exceed it.
    """
    own = bench.centered_logits
    mean = own[bench.fitted].mean(0)

    def of(features: Features | None) -> Evidence:
        assert features is not None
        weights, bias = bench.read(features)
        phi = features(bench.values(bench.judged)).double()
        return determination(own[bench.judged] - mean, phi @ weights + bias - mean)

    assert fit.part.features is not None
    other = None if null is None else of(null.part.features)
    found, rival = of(fit.part.features), right_answer(bench)
    if carried and of_answer(bench, fit.part.features):
        rival = None
    claims = (str(fit.part),)
    return judge_r2("match", fit.part.name, claims, found, null=other, rival=rival)


def program_answers(bench: Bench, rows: Tensor, features: Features | None) -> Int[Tensor, " n"]:
    """The answers of the program, of one output: by the logits that are read off features, or its
    own where there are none.
    """
    values = bench.values(rows)
    if features is None:
        return bench.labels(values)[:, 0].cpu()
    weights, bias = bench.read(features)
    return (features(values).double().cpu() @ weights + bias).argmax(1)


def template(bench: Bench, rows: Tensor) -> Float[Tensor, "n d_vocab_out"]:
    """1 at the right answers, above the mean class of their output."""
    labels = bench.targets(rows).cpu()
    found = torch.zeros(len(rows), bench.own_logits.shape[1]).double()
    for column, part in enumerate(bench.slices):
        asked = labels[:, column] >= 0
        found[asked.nonzero().flatten(), part.start + labels[asked, column]] = 1
    return centered(found, bench.slices)


def right_answer(bench: Bench) -> Evidence:
    """R² of the logits by one constant on the right answer."""
    own = bench.centered_logits
    mean = own[bench.fitted].mean(0)
    x, y = template(bench, bench.fitted), own[bench.fitted] - mean
    center = x.mean(0)
    scale = float(((x - center) * y).sum() / (x - center).square().sum().clamp_min(1e-12))
    return determination(own[bench.judged] - mean, scale * (template(bench, bench.judged) - center))


def of_answer(bench: Bench, features: Features) -> bool:
    """Return whether the right answer is linear in the features."""
    phi, held = (
        one - one.mean(0)
        for one in (
            features(bench.values(bench.fitted)).double().cpu(),
            template(bench, bench.fitted),
        )
    )
    return r2(held, phi @ ridge(phi, held)) > 1 - BEATS.value
