"""Interchange at one site: what does not depend on the subspace is computed once and kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import ParameterError
from mechint.interventions import EditedRuns, Replace, Site
from mechint.models.protocol import check_edits
from mechint.subject.activations import Recorder
from mechint.subject.pairs import Pairs
from mechint.task import IGNORE

if TYPE_CHECKING:
    from mechint.subject import Subject

NOT_A_VECTOR = ("hook_pattern", "hook_attn_scores", "hook_scale", "hook_result")


def swap(
    subspace: Float[Tensor, "d k"], base: Float[Tensor, "*n d"], source: Float[Tensor, "*n d"]
) -> Float[Tensor, "*n d"]:
    """base with its coordinates in `subspace`, orthonormal columns, taken from source."""
    return base + ((source - base) @ subspace) @ subspace.T


class SwapSite:
    """A site at which pairs are interchanged.

    base, source (pair, width): the activations at `hook` and the position, `width` that of all
    heads together. Runs with a changed base are computed from there (`EditedRuns`).

    Args:
        hook: an activation vector at every position.
        pos: a position; that of each example's answer when None.

    Raises:
        UnknownNameError: no such hook. ParameterError: not a vector per position, a hook that the
            model can only show, or no such position. MechintError: an activation is not finite.
    """

    def __init__(self, subject: Subject, pairs: Pairs, hook: str, pos: int | None) -> None:
        _check(subject, pairs, hook, pos)
        self.model, self.pairs, self.hook, self.pos = subject.model, pairs, hook, pos
        at = None if pos is None else pos % pairs.base.shape[1]
        self.site = Site(hook, "answer" if at is None else at)
        recorder = Recorder(subject.model, subject.chunk)
        where = (pairs.reads, pairs.source_reads) if at is None else (at, at)
        base, source = (
            recorder.record(tokens, [hook], there)[hook]
            for tokens, there in zip((pairs.base, pairs.source), where, strict=True)
        )
        self.shape, self.base, self.source = base.shape[1:], base.flatten(1), source.flatten(1)
        self.width = self.base.shape[-1]
        self.runs = EditedRuns(subject.model, pairs.base, pairs.reads)

    def __str__(self) -> str:
        return f"{self.hook} @ {'answer' if self.pos is None else self.pos}"

    def logits(
        self, replaced: Float[Tensor, "row width"], rows: Int[Tensor, " row"]
    ) -> Float[Tensor, "row d_vocab_out"]:
        """Logits of the base inputs `rows` with their activation replaced; differentiable."""
        edit = Replace(self.site, replaced.view(-1, *self.shape))
        logits = self.runs.under_one(edit, rows)
        if self.runs.engine != "native":
            return logits
        return logits + 0 * replaced.sum()  # a gradient, too, where no answer reads the site

    def swapped(
        self, subspace: Float[Tensor, "width k"], rows: Int[Tensor, " row"]
    ) -> Float[Tensor, "row d_vocab_out"]:
        """Logits of the base inputs `rows` with their coordinates in `subspace`, orthonormal
        columns, taken from their sources.
        """
        return self.logits(swap(subspace, self.base[rows], self.source[rows]), rows)


def _check(subject: Subject, pairs: Pairs, hook: str, pos: int | None) -> None:
    subject.check_hook(hook)
    check_edits(subject.model, [hook])
    outside = hook not in ("hook_embed", "hook_pos_embed") and not hook.startswith("blocks.")
    if outside or hook.endswith(NOT_A_VECTOR):
        raise ParameterError(
            f"das: hook={hook!r}: expected an activation vector at every position, inside a block"
        )
    n_ctx = pairs.base.shape[1]
    if pos is not None and not -n_ctx <= pos < n_ctx:
        raise ParameterError(f"das: pos={pos}: the inputs have positions 0 to {n_ctx - 1}")


def answers_under(
    subject: Subject,
    site: SwapSite,
    replaced: Float[Tensor, "row width"],
    labels: Int[Tensor, "row output"],
) -> Float[Tensor, "row output"]:
    """1 where the answer with the activations replaced is the label, 0 where it is not, NaN where
    there is none; all pairs in order, once or several times. Of prompts that state pairs it is the
    label where its logit is above that of the other answer of base and source.
    """
    parts, task = [], subject.task
    by_pair = task is not None and task.wrong_answers(site.pairs.base) is not None
    with torch.no_grad():
        for rows in torch.arange(len(replaced), device=subject.device).split(subject.chunk):
            logits = site.logits(replaced[rows], rows % len(site.pairs))
            correct = subject.correct(logits, labels[rows])
            if by_pair:
                pairs, own = site.pairs[rows % len(site.pairs)], labels[rows]
                other = torch.where(own == pairs.answers, pairs.source_answers, pairs.answers)
                a, b = (logits.gather(-1, classes.clamp_min(0)) for classes in (own, other))
                correct = torch.where(own == other, correct, a > b)
            parts.append(correct.float().masked_fill(labels[rows] == IGNORE, math.nan))
    return torch.cat(parts)


def interchange_accuracy(
    subject: Subject,
    site: SwapSite,
    subspace: Float[Tensor, "width k"] | None,
) -> Float[Tensor, "pair output"]:
    """1 where the answer under interchange of the subspace is the counterfactual label, NaN where
    there is none; None swaps the whole activation.
    """
    replaced = site.source if subspace is None else swap(subspace, site.base, site.source)
    return answers_under(subject, site, replaced, site.pairs.labels)


def mean(correct: Float[Tensor, " ..."]) -> float:
    """Mean of the entries that are not NaN."""
    return float(correct.double().nanmean())
