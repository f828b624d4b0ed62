"""Tests of the logits: how much of them follows from features or terms, beside the right answer."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.decide import Bound, Decision, Evidence, Skill
from mechint.explanation.measure import (
    Bench,
    Fit,
    centered,
    constant,
    counted_share,
    determination,
    least_covered,
    r2,
    ridge,
)
from mechint.explanation.parts import Features, Templates
from mechint.explanation.records import BEATS, MATCH, Determination, Share

AGREE = Bound(0.9)
"""Share of the model's answers that fitted templates have to give."""
TERMS = "terms"
"""The claim that the logits are a sum of terms."""


def match(bench: Bench, fit: Fit, null: Fit | None, carried: bool = False) -> Determination:
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
    return Determination.judged("match", fit.part.name, claims, found, null=other, rival=rival)


def coverage(bench: Bench, features: Features | None) -> tuple[str, ...]:
    """The answers of which the program gives least, in words: by the logits that are read off
    features, or its own. Of one output.
    """
    if len(bench.slices) > 1 or bench.answers == (None,):
        return ()
    own, values = bench.own_logits[bench.judged].argmax(1), bench.values(bench.judged)
    if features is None:
        said = bench.labels(values)[:, 0].cpu()
    else:
        weights, bias = bench.read(features)
        said = (features(values).double().cpu() @ weights + bias).argmax(1)
    return least_covered(said == own, {"answer": own})


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


def terms(bench: Bench, own: Templates, spare: Templates | None) -> list[Determination | Share]:
    """R² of the logits from a few terms with one fitted constant each, and the share of the model's
    answers that they give; the rival is the right answer. Untested where the terms are the right
    answer on these inputs.
    """
    slices = bench.slices
    logits = bench.centered_logits
    mean, judged = logits[bench.fitted].mean(0), bench.judged

    def of(templates: Templates) -> tuple[Evidence, Evidence]:
        weights, center = fit_terms(bench, templates)
        found = torch.einsum("j,jnc->nc", weights, made_terms(bench, templates, judged) - center)
        same = [
            (found + mean)[:, s].argmax(1) == bench.own_logits[judged][:, s].argmax(1)
            for s in slices
        ]
        return determination(logits[judged] - mean, found), counted_share(torch.stack(same).all(0))

    found, agrees = of(own)
    other, other_agrees = (None, None) if spare is None else of(spare)
    rival = right_answer(bench)
    if abs(found.value - rival.value) < BEATS.value:
        same = Decision("untested", "the terms are the right answer on these inputs")
        return [
            Determination(
                kind="match",
                target=TERMS,
                of=(TERMS,),
                decision=same,
                found=found,
                bound=MATCH,
                null=other,
                rival=rival,
            )
        ]
    answers = torch.stack([bench.own_logits[judged][:, s].argmax(1) for s in slices], 1)
    skill = Skill(1.0, constant(answers), len(judged))
    return [
        Determination.judged("match", TERMS, (TERMS,), found, null=other, rival=rival),
        Share.judged("agreement", TERMS, (TERMS,), agrees, skill, bound=AGREE, null=other_agrees),
    ]


def fit_terms(
    bench: Bench, templates: Templates
) -> tuple[Float[Tensor, " template"], Float[Tensor, "template 1 d_vocab_out"]]:
    """The constant of each term, fitted on one half, and the terms' means there."""
    logits = bench.centered_logits[bench.fitted]
    made = made_terms(bench, templates, bench.fitted)
    center = made.mean(1, keepdim=True)
    x = (made - center).flatten(1).T
    return ridge(x, (logits - logits.mean(0)).flatten()[:, None])[:, 0], center


def made_terms(
    bench: Bench, templates: Templates, rows: Int[Tensor, " n"]
) -> Float[Tensor, "template n d_vocab_out"]:
    """Terms above the mean class of their output."""
    made = templates(bench.tokens(rows), bench.at_answer(rows))
    return torch.stack([centered(one.double().cpu(), bench.slices) for one in made])
