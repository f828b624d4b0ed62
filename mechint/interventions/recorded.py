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
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.interventions.resuming import (
    check_adds,
    detached_weights,
    record,
    resume_by_weights,
    resumes,
    select_positions,
)
from mechint.interventions.sites import Position, ResidSite
from mechint.interventions.values import Add, Intervention
from mechint.models.forward import Forward
from mechint.models.protocol import check_edits, describe, run_hooked
from mechint.models.rows import RowLayout
from mechint.system.progress import counting_within

Read = Callable[[Tensor], Tensor]
"""From logits (intervention, example, d_vocab_out) to (intervention, example, …)."""


def as_they_are(logits: Tensor) -> Tensor:
    """Keep the logits."""
    return logits


class _Edit(NamedTuple):
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
                logits, self.activations = record(model, tokens, set(names))
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
        """The residual stream at `site`; ParameterError as of `check_adds`."""
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
        names = [site.writer(self.depth)]
        if site.after_attention:
            check_adds(self.model, self.tokens, site.layer)
            names.append(f"blocks.{site.layer}.hook_resid_pre")
        return torch.stack(list(record(self.model, self.tokens, names)[1].values())).sum(0)

    # --- interventions ----------------------------------------------------------------------------
    def under(
        self, interventions: Sequence[Intervention], read: Read | None = None
    ) -> Float[Tensor, "intervention example ..."]:
        """Logits at the answers under each intervention alone, or what `read` makes of them.

        read: called with the logits (some, example, d_vocab_out) of as many interventions as one
        forward takes; of shape (some, example, …). The logits of all of them are then never kept.

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
        read = as_they_are if read is None else read
        own = read(self.logits[None])
        result = own.repeat(len(interventions), *[1] * (own.dim() - 1))
        each = 4 * self.tokens.numel() * self.logits.element_size() * (self.shape.d_model or 1)
        size = max(1, self.memory // each)
        for start in range(0, len(linear), size):  # changes are written as memory allows
            part = linear[start : start + size]
            edits = [self._edit(interventions[index]) for index in part]
            self._edited(edits, read, result, part)
        others = sorted(set(range(len(interventions))) - set(linear))
        check_edits(self.model, [interventions[index].site.hook for index in others])
        self._hooked({index: interventions[index] for index in others}, read, result)
        return result

    def _hooked(self, interventions: dict[int, Intervention], read: Read, result: Tensor) -> None:
        """Fill the rows of `result` by plain hooks, on stacked copies of the inputs; one that
        changes nothing of what was recorded keeps its row.
        """
        positions, n = self.answer_positions, len(self.answer_positions)
        changing = [index for index, one in interventions.items() if self._changes(one)]
        at_once = self._stack(ResidSite.pre(0))

        def editing(row: int, one: Intervention) -> Any:
            def edit(activation: Tensor, hook: Any) -> Tensor:
                rows, activation = slice(row * n, (row + 1) * n), activation.clone()
                activation[rows] = one.apply(activation[rows], positions)
                return activation

            return one.site.hook, edit

        with counting_within("interventions") as count:
            for start in range(0, len(changing), at_once):
                count(start, len(changing))
                part = changing[start : start + at_once]
                hooks = [editing(row, interventions[index]) for row, index in enumerate(part)]
                with torch.no_grad():
                    tokens = self.tokens.repeat(len(part), 1)
                    logits = run_hooked(self.model, tokens, hooks)
                logits = select_positions(logits, positions.repeat(len(part)))
                result[part] = read(logits.unflatten(0, (len(part), -1)))

    def _changes(self, one: Intervention) -> bool:
        """Return whether an intervention changes the activation, where that was recorded."""
        before = self.activations.get(one.site.hook)
        return before is None or not torch.equal(one.apply(before, self.answer_positions), before)

    def _edit(self, intervention: Intervention) -> _Edit:
        site, layers = intervention.site, self.config.n_layers
        assert site.resid is not None
        resid, pos, n_ctx = site.resid.at_depth(self.depth), site.pos, self.tokens.shape[1]
        site.check_position(n_ctx)
        if isinstance(intervention, Add):  # needs no activation, so that it need not be recorded
            rows = self.tokens.shape if pos is None else self.tokens.shape[:1]
            shape = (*rows, *site.part_shape(self.weights, layers))
            intervention.check_fits(shape)
            change = intervention.delta.expand(shape)
        else:
            recorded = self.activations.get(site.hook)
            if recorded is None:
                assert ".hook_resid_" in site.hook, f"{site.hook} was not recorded"
                recorded = self.residual(resid)
            part = site.select(recorded, self.answer_positions)
            intervention.check_fits(part.shape)
            change = intervention.replacement(part).to(part.dtype) - part
        pos = pos % n_ctx if isinstance(pos, int) else pos
        return _Edit(resid, site.write(change, self.weights, layers), pos)

    def _edited(
        self, edits: Sequence[_Edit], read: Read, result: Tensor, at: Sequence[int]
    ) -> None:
        """Fill the rows `at` of `result` with what `read` makes of each edit alone."""
        by_site: dict[ResidSite, list[int]] = defaultdict(list)
        for index, edit in enumerate(edits):
            if not self._idle(edit):
                by_site[edit.site].append(index)
        done = 0
        with torch.no_grad(), counting_within("interventions") as count:
            for site, members in by_site.items():
                for start in range(0, len(members), self._stack(site)):
                    part = members[start : start + self._stack(site)]
                    logits = self._branch(site, [edits[index] for index in part])
                    result[[at[index] for index in part]] = read(logits)
                    done += len(part)
                    count(done, len(edits))

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
        """(example, d_model) what the edit adds at the answer, nothing if it edits elsewhere."""
        if edit.pos is None:
            return select_positions(edit.delta, self.answer_positions)
        if edit.pos == "answer":
            return edit.delta
        return edit.delta * (self.answer_positions == edit.pos)[:, None]
