"""A recorded forward, from which edited forwards branch off: many interventions, each alone.

    recorded = RecordedForward(model, tokens, answer_positions)
    logits = recorded.under([Zero(Site.head(0, 1)), Zero(Site.head(0, 2))])  # (2, example, …)

Every patch and every ablation of a head, a layer, a neuron or a direction adds something to the
residual stream at one site. All that arrive at one site are stacked along the batch and share one
forward, which begins there, and which after the last attention computes only the rows that are
read. On a model that cannot resume, interventions are stacked likewise and run through plain hooks.
Exact: equal to a hooked forward from the tokens.

Cost: one forward to record; then the blocks that follow each site. Memory: `memory` bytes per
stacked forward.
"""

# hooks and torch.func are untyped
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.interventions import hooked
from mechint.interventions.resuming import (
    detached_weights,
    resume_by_weights,
    resumes,
    select_positions,
)
from mechint.interventions.sites import Position, ResidSite
from mechint.interventions.values import Add, Intervention
from mechint.models.forward import Forward
from mechint.models.protocol import describe
from mechint.models.rows import RowLayout


@dataclass(frozen=True)
class _Edit:
    """Add delta (example, [pos,] d_model) to the residual stream at `site`."""

    site: ResidSite
    delta: Tensor
    pos: Position


class RecordedForward:
    """A forward on `tokens`, recorded, from which edited forwards branch off.

    Args:
        model: any hooked model; nothing of it is touched. Hooks that are on it already run in
            every forward, and it does not resume while they are.
        tokens: (example, pos); the caller chunks the examples.
        answer_positions: (example,) where each example's logits are wanted.
        names: hooks to record besides the residual stream, kept in `activations`.
        memory: bytes that one stacked forward may take.
        until: the last block that is recorded; all when None. `logits` are computed when first
            asked for.
    """

    def __init__(
        self,
        model: Any,
        tokens: Int[Tensor, "example pos"],
        answer_positions: Int[Tensor, " example"],
        names: Iterable[str] = (),
        memory: int = 1 << 28,
        until: int | None = None,
    ) -> None:
        self.model, self.tokens, self.answer_positions = model, tokens, answer_positions
        self.memory, self.resumes, self.shape = memory, resumes(model), describe(model)
        self.depth = self.shape.n_layers
        self.activations: dict[str, Tensor] = {}
        self._residual: dict[ResidSite, Tensor] = {}
        with torch.no_grad():
            if self.resumes:
                self.weights, self.config = detached_weights(model), model.config
                self._record(set(names), self.depth - 1 if until is None else until)
            else:
                logits, self.activations = hooked.record(model, tokens, set(names))
                self.__dict__["logits"] = select_positions(logits, answer_positions)

    # --- recording --------------------------------------------------------------------------------
    @cached_property
    def logits(self) -> Float[Tensor, "example d_vocab_out"]:
        """At the answers, without an intervention."""
        start = max(self._residual)
        with torch.no_grad():
            return self._resume(self._residual[start], start, self.answer_positions)

    def _resume(self, x: Tensor, site: ResidSite, answer_positions: Tensor) -> Tensor:
        return resume_by_weights(self.weights, self.config, x, site, answer_positions)

    def _record(self, wanted: set[str], until: int) -> None:
        def keep(name: str, tensor: Tensor) -> Tensor:
            if name in wanted:
                self.activations[name] = tensor
            return tensor

        forward = Forward(self.weights, self.config, keep)
        x = forward.embed(RowLayout.dense(self.tokens))
        for block in range(until + 1):
            self._residual[ResidSite.pre(block)] = x
            x = forward.attend(block, x)
            self._residual[ResidSite.mid(block)] = x
            if block < until or wanted - set(self.activations):
                x = forward.feed_forward(block, x)
                self._residual[ResidSite.pre(block + 1)] = x

    def residual(self, site: ResidSite) -> Float[Tensor, "example pos d_model"]:
        """The residual stream at `site`; ParameterError after attention in a model that adds what
        attention writes to something else than the stream before.
        """
        site = site.at_depth(self.depth)
        if site not in self._residual:
            with torch.no_grad():
                self._residual[site] = self._missing(site)
        return self._residual[site]

    def _missing(self, site: ResidSite) -> Tensor:
        if self.resumes:  # after the last recorded block, which is not computed before it is needed
            before = ResidSite.mid(site.layer - 1)
            x = self._residual[before]
            return Forward(self.weights, self.config).feed_forward(before.layer, x)
        return hooked.residual(self.model, self.tokens, site, self.depth)

    # --- interventions ----------------------------------------------------------------------------
    def under(
        self, interventions: Sequence[Intervention]
    ) -> Float[Tensor, "intervention example d_vocab_out"]:
        """Logits at the answers under each intervention alone.

        The hooks of their sites must be among the `names` recorded, unless they are the residual
        stream's own.

        Raises:
            ParameterError: a position or unit that a site's activation does not have, or a value
                of another width.
        """
        linear = [
            index
            for index, one in enumerate(interventions)
            if self.resumes and one.site.resid is not None
        ]
        result = self.logits.new_empty(len(interventions), *self.logits.shape)
        each = 4 * self.tokens.numel() * self.logits.element_size() * (self.shape.d_model or 1)
        size = max(1, self.memory // each)
        for start in range(0, len(linear), size):  # changes are written as memory allows
            part = linear[start : start + size]
            result[part] = self._edited([self._edit(interventions[index]) for index in part])
        others = sorted(set(range(len(interventions))) - set(linear))
        if others:
            chosen = [interventions[index] for index in others]
            result[others] = hooked.logits_under_each(
                self.model,
                self.tokens,
                self.answer_positions,
                self.logits,
                self.activations,
                chosen,
                self._stack(ResidSite.pre(0)),
            )
        return result

    def _edit(self, intervention: Intervention) -> _Edit:
        site = intervention.site
        assert site.resid is not None
        resid, pos, n_ctx = site.resid.at_depth(self.depth), site.pos, self.tokens.shape[1]
        site.check_position(n_ctx)
        pos = pos if pos is None or pos == "answer" else pos % n_ctx
        change = self._change(intervention, resid)
        delta = site.write(change, self.weights, self.config.n_layers)
        return _Edit(resid, delta, pos)

    def _change(self, intervention: Intervention, resid: ResidSite) -> Tensor:
        """Change that the intervention makes to its part of the activation."""
        site = intervention.site
        if isinstance(intervention, Add):  # needs no activation, so that it need not be recorded
            rows = self.tokens.shape if site.pos is None else self.tokens.shape[:1]
            shape = (*rows, *site.part_shape(self.weights, self.config.n_layers))
            intervention.check_fits(shape)
            return intervention.delta.expand(shape)
        recorded = self.activations.get(site.hook)
        if recorded is None:
            assert ".hook_resid_" in site.hook, f"{site.hook} was not recorded"
            recorded = self.residual(resid)
        part = site.select(recorded, self.answer_positions)
        intervention.check_fits(part.shape)
        return intervention.replacement(part).to(part.dtype) - part

    def _edited(self, edits: Sequence[_Edit]) -> Tensor:
        """Logits (edit, example, d_vocab_out) under each edit alone."""
        result = self.logits.new_empty(len(edits), *self.logits.shape)
        by_site: dict[ResidSite, list[int]] = defaultdict(list)
        for index, edit in enumerate(edits):
            if self._idle(edit):
                result[index] = self.logits
            else:
                by_site[edit.site].append(index)
        with torch.no_grad():
            for site, members in by_site.items():
                for start in range(0, len(members), self._stack(site)):
                    part = members[start : start + self._stack(site)]
                    result[part] = self._branch(site, [edits[index] for index in part])
        return result

    def _stack(self, site: ResidSite) -> int:
        """Number of edits of `site` that fit one forward."""
        shape, (examples, positions) = self.shape, self.tokens.shape
        rows = examples if self._only_answers(site) else examples * positions
        per_edit = 4 * (rows * shape.width(positions, 1) + examples * self.logits.shape[-1])
        if not self.resumes:  # the logits of every position
            per_edit = 4 * rows * (shape.width(positions) + self.logits.shape[-1])
        return max(1, int(self.memory // per_edit))

    def _only_answers(self, site: ResidSite) -> bool:
        """Return whether positions no longer mix after `site`."""
        return self.resumes and site > ResidSite.pre(self.depth - 1)

    def _idle(self, edit: _Edit) -> bool:
        """Return whether the edited position cannot reach any answer."""
        if not isinstance(edit.pos, int):
            return False
        if self._only_answers(edit.site):
            return not bool((self.answer_positions == edit.pos).any())
        last = int(self.answer_positions.max())
        return self.config.reads_back_only and edit.pos > last

    def _branch(self, site: ResidSite, edits: Sequence[_Edit]) -> Tensor:
        base, positions = self.residual(site), self.answer_positions
        if self._only_answers(site):
            rows = select_positions(base, positions)
            x = torch.stack([rows + self._delta_at_answer(edit) for edit in edits])[:, :, None]
            positions = torch.zeros_like(positions)
        else:
            x = base.expand(len(edits), *base.shape).clone()
            for row, edit in zip(x, edits, strict=True):
                if edit.pos == "answer":
                    row[torch.arange(len(row), device=row.device), positions] += edit.delta
                else:
                    (row if edit.pos is None else row[:, edit.pos]).add_(edit.delta)
        logits = self._resume(x.flatten(0, 1), site, positions.repeat(len(edits)))
        return logits.unflatten(0, (len(edits), -1))

    def _delta_at_answer(self, edit: _Edit) -> Tensor:
        """(example, d_model) what the edit adds at the answer: nothing where it edits another
        position.
        """
        if edit.pos is None:
            return select_positions(edit.delta, self.answer_positions)
        if edit.pos == "answer":
            return edit.delta
        return edit.delta * (self.answer_positions == edit.pos)[:, None]
