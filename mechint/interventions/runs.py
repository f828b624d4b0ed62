"""Runs of a model under edits: recorded once, and computed again only from where an edit acts.

    runs = EditedRuns(model, tokens, reads)
    runs.under([Take(Site.head(l, h), source) for l, h in heads], rows, classes=answers)

A variant is one edit, or several that act together; a case is a variant on an input. A case is
computed from the first block that an edit reaches, from the first position that it changes up to
the answer, and behind the last attention at the answer alone. Cases that begin alike are stacked.
Every engine gives the numbers of a hooked forward from the tokens:

    native    a model whose mathematics is held (`resumes`): all of the above
    blocks    a bridge: blocks before the edit hand on their input, and the final norm and the
              unembedding see the answers alone; each first block is tried once
    whole     any hooked model, and one with hooks of others on it: from the tokens

Cost: one forward on the inputs; then the blocks and positions behind each edit.
"""

# split and unique of torch, and hooks, are untyped
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mechint.errors import ParameterError
from mechint.interventions.resuming import check_adds, detached_weights, record, resumes
from mechint.interventions.sites import Site
from mechint.interventions.values import (
    PER_EXAMPLE,
    Add,
    Compute,
    Intervention,
    Mean,
    Replace,
    Take,
)
from mechint.models.forward import Forward
from mechint.models.layers import heads, linear, no_hook, norm
from mechint.models.protocol import (
    check_edits,
    describe,
    gradients_of,
    has_hooks_attached,
    run_hooked,
)
from mechint.models.rows import RowLayout
from mechint.subject.activations import select_positions
from mechint.system.progress import counting_within

Engine = Literal["native", "blocks", "whole"]
Variant = Intervention | Sequence[Intervention]
Read = Callable[[Tensor, Tensor], Tensor]
"""From logits (case, …) and the row of each case to what is kept of them, (case, …)."""

STACK = 1 << 24
"""Bytes that one stacked forward may take; larger ones leave the cache and are slower."""
NOT_APART = "this model does not show what a receiver reads apart from the residual stream"
FEW = 32
"""Cases that run together although they begin at different positions."""

_STAGES = (
    ("attn.hook_z", "hook_q_input", "hook_k_input", "hook_v_input", "attn.hook_result"),
    ("hook_attn_out",),
    ("hook_resid_mid", "hook_mlp_in", "mlp.hook_pre", "mlp.hook_pre_linear", "ln2"),
    ("mlp.hook_post",),
    ("hook_mlp_out",),
    ("hook_resid_post",),
)
HEADS, ATTENTION, MIDDLE, NEURONS, MLP, END = range(1, 7)
"""Stages of a block at which a run can begin with what was recorded before; 0 is its start."""
_APART = ("hook_q_input", "hook_k_input", "hook_v_input")

_STARTS = {"native": ("resid_pre", "attn_out"), "blocks": ("resid_pre",), "whole": ()}
"""Hooks of every block that are recorded with the first run."""
_WHOLE = -1

_tried: WeakKeyDictionary[Any, dict[int, bool]] = WeakKeyDictionary()
"""Model → block → whether a run that begins there was found to give the model's logits; `_WHOLE`: a
run by the mathematics of its configuration.
"""


@dataclass
class At:
    """The cases that an edit is given, and where they stand.

    variants, rows, inputs, reads: (case,) numbers of the variant, of the row that was asked for,
    of the input, and the position of its answer. first, last: the positions computed; `answers`:
    only each answer's. n: rows asked for. state: kept during one stacked forward.
    """

    variants: Int[Tensor, " case"]
    rows: Int[Tensor, " case"]
    inputs: Int[Tensor, " case"]
    reads: Int[Tensor, " case"]
    first: int
    last: int
    n: int
    answers: bool = False
    state: dict[Any, Any] = field(default_factory=dict)

    @property
    def positions(self) -> Int[Tensor, "case n"]:
        """The positions of the columns of an activation at all positions computed."""
        if self.answers:
            return self.reads[:, None]
        places = torch.arange(self.first, self.last + 1, device=self.reads.device)
        return places.expand(len(self.reads), -1)

    def of(self, cases: slice | Tensor) -> At:
        """Only these cases; the state is shared."""
        names = ("variants", "rows", "inputs", "reads")
        return dataclasses.replace(self, **{name: getattr(self, name)[cases] for name in names})

    def grid(self) -> tuple[Tensor, Tensor] | None:
        """The variants and the rows of which the cases are every combination, in this order; None
        where they are no such product.
        """
        variants = self.variants.unique_consecutive()
        rows = self.rows[: len(self.rows) // len(variants)]
        products = variants.repeat_interleave(len(rows)), rows.repeat(len(variants))
        whole = torch.equal(products[0], self.variants) and torch.equal(products[1], self.rows)
        return (variants, rows) if whole else None

    def window(self, recorded: Shaped[Tensor, "input pos ..."]) -> Shaped[Tensor, "case n ..."]:
        """Part of what was recorded: the cases' inputs at the positions computed."""
        if self.answers:
            return recorded[self.inputs, self.reads][:, None]
        return recorded[:, self.first : self.last + 1][self.inputs]


Edits = Mapping[str, Sequence[tuple[slice | Tensor, Intervention]]]
"""Hook → the cases and the edit of each, in order."""


class EditedRuns:
    """A model's runs on some inputs, from which edited runs branch off.

    Args:
        model: any hooked model, in evaluation mode; nothing of it is changed.
        tokens: (input, pos), each input once: a pair is two rows of it.
        reads: (input,) the position of each input's answer.
        names: hooks to record at once; others are recorded when an edit asks for them.
        stack: bytes that one stacked forward may take; what is recorded and the result are apart.
        engine: the fastest that the model allows when None.
    """

    def __init__(
        self,
        model: Any,
        tokens: Int[Tensor, "input pos"],
        reads: Int[Tensor, " input"],
        names: Collection[str] = (),
        *,
        stack: int = STACK,
        engine: Engine | None = None,
    ) -> None:
        self.model, self.tokens, self.reads, self.stack = model, tokens, reads, stack
        self.shape = describe(model)
        self.depth = self.shape.n_layers
        self.engine = engine or self._choose_engine()
        if self.engine == "native":
            self.weights, self.config = detached_weights(model), model.config
            self.causal = self.config.reads_back_only
        else:
            self.causal = self.engine == "blocks"  # what is no causal model is no bridge
        self._kept: dict[str, Tensor] = {}
        self._kept_projected: dict[int, dict[str, Tensor]] = {}
        self._outputs: dict[int, Any] = {}
        self._gains: dict[int, Tensor] = {}
        if names:
            self.record(names)

    def __len__(self) -> int:
        return len(self.tokens)

    def _choose_engine(self) -> Engine:
        two = self.tokens[:2]
        if resumes(self.model) and self._agrees(
            _WHOLE,
            lambda: Forward(detached_weights(self.model), self.model.config).logits(
                RowLayout.dense(two)
            ),
            lambda: self.model(two),
        ):
            return "native"
        blocks = _blocks(self.model)
        return "whole" if blocks is None or has_hooks_attached(self.model) else "blocks"

    def _agrees(
        self, start: int, run: Callable[[], Tensor], expected: Callable[[], Tensor]
    ) -> bool:
        """Return whether `run`, on at most two inputs, gives the model's logits, as it does not
        where a subclass computes something else than its configuration says, or where later blocks
        of a bridge read earlier ones; tried once.
        """
        tried = _tried.setdefault(self.model, {})
        if start not in tried:
            with torch.no_grad():
                logits = expected()
                try:
                    off = (run() - logits).abs().max()
                    tried[start] = bool(off <= 1e-4 * (logits.max() - logits.min()))
                except Exception:  # a module of others that cannot be skipped, in whatever way
                    tried[start] = False
        return tried[start]

    # --- recording --------------------------------------------------------------------------------
    def recorded(self, hook: str) -> Float[Tensor, "input pos ..."]:
        """The activation of the unedited runs."""
        if hook not in self._kept and (self.engine == "native" or hook in self.model.hook_dict):
            self.record({hook})
        if hook not in self._kept:
            raise ParameterError(f"hook {hook}: it does not run in a forward of this model")
        return self._kept[hook]

    def record(self, names: Collection[str]) -> None:
        """Keep the activations `names`, all by one forward, and with the first call what every
        edited run needs; no forward where nothing is missing.
        """
        names = set(names) - set(self._kept)
        if not self._kept:
            ends = _STARTS[self.engine]
            names |= {f"blocks.{layer}.hook_{end}" for layer in range(self.depth) for end in ends}
        if not names:
            return
        run = self._record_native if self.engine == "native" else self._record_hooked
        every = torch.arange(len(self), device=self.tokens.device)
        with torch.no_grad():
            for rows in every.split(self._at_once(logits=False)):
                run(names, rows)

    def _keep(self, name: str, rows: Int[Tensor, " row"], x: Tensor) -> None:
        if len(rows) == len(self):
            self._kept[name] = x.expand(len(self), *x.shape[1:])
        else:
            if name not in self._kept:
                self._kept[name] = x.new_empty(len(self), *x.shape[1:])
            self._kept[name][rows] = x

    def _record_native(self, names: set[str], rows: Int[Tensor, " row"]) -> None:
        def keep(name: str, x: Tensor) -> Tensor:
            if name in names:
                self._keep(name, rows, x)
            return x

        forward, last = Forward(self.weights, self.config, keep), max(map(self._place, names))
        x = forward.embed(RowLayout.dense(self.tokens[rows]))
        for layer in range(self.depth):
            x = forward.attend(layer, x)
            if layer < self.depth - 1 or last >= (layer, MIDDLE):
                x = forward.feed_forward(layer, x)

    def _record_hooked(self, names: set[str], rows: Int[Tensor, " row"]) -> None:
        blocks = _blocks(self.model) if self.engine == "blocks" else None
        handles = [
            block.register_forward_hook(self._see_output(layer))
            for layer, block in enumerate(blocks or ())
        ]
        try:
            with _showing_reads(self.model, names):
                logits, activations = record(
                    self.model, self.tokens[rows], sorted(names - {"logits"})
                )
        finally:
            for handle in handles:
                handle.remove()
        activations["logits"] = select_positions(logits, self.reads[rows])
        for name, x in activations.items():
            self._keep(name, rows, x)

    def _see_output(self, layer: int) -> Callable[..., None]:
        def see(module: Any, inputs: Any, output: Any) -> None:
            self._outputs[layer] = output[1:] if isinstance(output, tuple) else None

        return see

    @cached_property
    def logits(self) -> Float[Tensor, "input d_vocab_out"]:
        """At the answers, without an edit."""
        if self.engine == "native":
            return self._read_out(self.end, None)
        self.record(["logits"])
        return self._kept["logits"]

    @cached_property
    def end(self) -> Float[Tensor, "input d_model"]:
        """The residual stream behind the last block at the answers."""
        last = self.depth - 1
        if self.engine != "native":
            return select_positions(self.recorded(f"blocks.{last}.hook_resid_post"), self.reads)
        with torch.no_grad():
            pre, attention = (
                select_positions(self.recorded(f"blocks.{last}.hook_{part}"), self.reads)
                for part in _STARTS["native"]
            )
            return Forward(self.weights, self.config).feed_forward(last, pre + attention)

    def base(
        self, rows: Int[Tensor, " row"], classes: Int[Tensor, "row k"] | None = None
    ) -> Float[Tensor, "row d_vocab_out"]:
        """Logits at the answers of the inputs `rows` without an edit, of `classes` alone if any."""
        if self.engine == "native" and classes is not None:
            return self._read_out(self.end[rows], classes)
        return _pick(self.logits[rows], classes)

    def written(
        self,
        layer: int,
        z: Float[Tensor, "*row head d_head"],
        scale: Tensor | None = None,
        units: Sequence[int] = (),
    ) -> Float[Tensor, "*row head d_model"]:
        """Output of each head of block `layer`, or of each of its heads `units`, to the residual
        stream when they give z.

        scale: (*row, 1) that of the norm behind attention, at `behind(layer)`, where there is one.

        Raises:
            ParameterError: what attention adds to the stream is not the sum of its heads.
        """
        block = self.model.blocks[layer % getattr(self.model.cfg, "n_layers", layer + 1)]
        each = torch.einsum(
            "...hd,hdm->...hm", z, block.attn.W_O.detach()[list(units) or slice(None)].to(z)
        )
        if self.engine == "native":
            return each
        if layer not in self._gains:
            self._gains[layer] = z.new_ones(())  # `_gain` asks what is written without it
            self._gains[layer] = self._gain(layer)
        gain = self._gains[layer]
        return each if scale is None else each * (gain / scale)[..., None, :]

    def _gain(self, layer: int) -> Float[Tensor, " d_model"]:
        """The weight of the norm behind attention of block `layer`, by least squares."""
        behind, few = self.behind(layer), slice(0, 8)
        z, out = (
            self.recorded(f"blocks.{layer}.{n}")[few] for n in ("attn.hook_z", "hook_attn_out")
        )
        scale = self.recorded(behind)[few] if behind else None
        total = self.written(layer, z, scale).sum(-2)
        gain = torch.ones_like(total[0, 0])
        if behind:
            gain = (total * out).sum((0, 1)) / total.square().sum((0, 1))
        rest = out - gain * total
        if not (rest - rest[0, 0]).abs().max() <= 1e-4 * out.abs().max():  # without a bias
            kind = type(getattr(self.model, "original_model", self.model)).__name__
            raise ParameterError(
                f"heads of block {layer}: what attention adds to the residual stream is not the "
                f"sum of what its heads write in a {kind}; edit hook_attn_out of the block"
            )
        return gain

    def written_by(
        self, layer: int, units: Sequence[int] = (), *, answers: bool = False
    ) -> Float[Tensor, "input *pos head d_model"]:
        """Output of each head, or each of `units`, of block `layer` to the stream of the unedited
        runs, at all positions or at the answers.
        """
        behind, z = self.behind(layer), self.recorded(f"blocks.{layer}.attn.hook_z")
        both = [z[:, :, list(units) or slice(None)], *([self.recorded(behind)] if behind else [])]
        if answers:
            both = [select_positions(activation, self.reads) for activation in both]
        return self.written(layer, both[0], both[1] if behind else None, units)

    def behind(self, layer: int) -> str | None:
        """The hook at the scale of a norm between what heads write and the residual stream."""
        name = f"blocks.{layer}.ln1_post.hook_scale"
        return name if name in self.model.hook_dict else None

    # --- edited runs ------------------------------------------------------------------------------
    def under(
        self,
        variants: Sequence[Variant],
        rows: Int[Tensor, " row"] | None = None,
        *,
        classes: Int[Tensor, "row k"] | None = None,
        read: Read | None = None,
    ) -> Float[Tensor, "variant row ..."]:
        """Logits at the answers of the inputs `rows`, all when None, under each variant.

        Args:
            classes: only these logits: no vocabulary is multiplied out.
            read: what is kept of the logits of some cases; all logits never exist together.

        Values of edits with a row axis follow `rows`; a `Mean` without a value takes that of the
        unedited runs.

        Raises:
            ParameterError: a position or unit that an activation does not have, a value of another
                width, or a hook that the model can only show.
        """
        if rows is None:
            rows = torch.arange(len(self), device=self.tokens.device)
        read = read or (lambda logits, rows: logits)
        sets = [
            [variant] if isinstance(variant, Intervention) else [*variant] for variant in variants
        ]
        prepared = {id(edit): self._prepared(edit, rows) for edits in sets for edit in edits}
        sets = [[prepared[id(edit)] for edit in edits] for edits in sets]
        self._prepare({edit.site.hook for edits in sets for edit in edits}, sets)
        cases, result = list(self._cases(sets, rows, classes is None)), None
        with torch.no_grad(), counting_within("runs") as count:
            if sum(len(at.rows) for _, at in cases) < len(sets) * len(rows) or not cases:
                base = read(self.base(rows, classes), torch.arange(len(rows)).to(rows))
                result = base.expand(len(sets), *base.shape).clone()
            for done, (start, at) in enumerate(cases):
                count(done, len(cases))
                chosen = None if classes is None else classes[at.rows]
                part = read(self._run(start, at, self._by_hook(sets, at), chosen), at.rows)
                if result is None:
                    result = part.new_empty(len(sets), len(rows), *part.shape[1:])
                result[at.variants, at.rows] = part.to(result.dtype)
        assert result is not None
        return result

    def under_one(
        self, edit: Intervention, rows: Int[Tensor, " row"]
    ) -> Float[Tensor, "row d_vocab_out"]:
        """Logits at the answers of the inputs `rows` under one edit, all in one forward, as in a
        step of training; differentiable in the edit's values.
        """
        edit = self._prepared(edit, rows)
        self._prepare({edit.site.hook})
        reads, pos = self.reads[rows], edit.site.pos
        first, last = int(reads.min()), int(reads.max())
        first = first if pos == "answer" else min(first, pos if isinstance(pos, int) else 0)
        every = torch.arange(len(rows), device=rows.device)
        at = At(every * 0, every, rows, reads, *self._window(first, last), len(rows))
        start, edits = self._place(edit.site.hook), {edit.site.hook: [(slice(None), edit)]}
        return self._run(start, at, edits, None)

    def _window(self, first: int, last: int) -> tuple[int, int]:
        """The positions that are computed for those from `first` to `last`."""
        whole = self.engine != "native" or not self.causal
        return (0, self.tokens.shape[1] - 1) if whole else (first, last)

    def _prepared(self, edit: Intervention, rows: Tensor) -> Intervention:
        """The edit at a position counted from the first, of a hook that runs, with its mean."""
        site = edit.site
        site.check_position(self.tokens.shape[1])
        if isinstance(site.pos, int):
            site = dataclasses.replace(site, pos=site.pos % self.tokens.shape[1])
        if site.hook == "logits":
            last = f"blocks.{self.depth - 1}.hook_resid_post"
            site = dataclasses.replace(site, hook=last)
        if isinstance(edit, Mean) and edit.value is None:
            part = site.select(self.recorded(site.hook)[rows], self.reads[rows])
            edit = Mean(site, part.mean(0))
        return edit if site == edit.site else dataclasses.replace(edit, site=site)

    def _prepare(self, used: Collection[str], sets: Sequence[Sequence[Intervention]] = ()) -> None:
        """Check that the hooks `used` can be edited, and record what the edits begin with."""
        known, native = self.model.hook_dict, self.engine == "native"
        reading = {name for name in used if name.endswith((*_APART, "hook_mlp_in"))}
        for name in sorted(set(used) - known.keys()):
            if name not in reading:
                raise ParameterError(f"hook {name}: the model has none of this name")
            within = native and self._place(name)[0] < self.depth
            if not within or (self.config.attn_only and name.endswith("mlp_in")):
                raise ParameterError(f"hook {name}: {NOT_APART}; edit what a component writes")
        check_edits(self.model, sorted(set(used) - reading))
        needed = {edit.site.hook for edits in sets for edit in edits if isinstance(edit, Take)}
        if native:
            needed |= self._beginnings(used)
        self.record(needed)

    def _beginnings(self, used: Collection[str]) -> set[str]:
        """Hooks whose recorded activation a run with edits at `used` begins with."""
        begins = {HEADS: "attn.hook_z", NEURONS: "mlp.hook_post", MLP: "hook_mlp_out"}
        begins |= {END: "hook_resid_post"}
        places = [self._place(name) for name in used]
        hooks = {f"blocks.{layer}.{begins[stage]}" for layer, stage in places if stage in begins}
        if {"hook_embed", "hook_pos_embed"} & set(used):
            hooks |= {"hook_embed"}
            hooks |= {"hook_pos_embed"} if self.config.embeds_positions else set()
        return hooks

    def _place(self, hook: str) -> tuple[int, int]:
        """The block and the stage in it from which on an edit at `hook` changes a run."""
        if not hook.startswith("blocks."):
            return (self.depth - 1, END) if hook.startswith(("ln_final", "unembed")) else (0, 0)
        _, layer, point = hook.split(".", 2)
        for stage, points in enumerate(_STAGES, 1):
            if point.startswith(points):
                return int(layer), stage
        return int(layer), 0

    def _first_changed(
        self, edit: Intervention, rows: Int[Tensor, " row"], reads: Int[np.ndarray, " row"]
    ) -> Int[np.ndarray, " row"]:
        """The first position of each row that the edit changes; as many as there are where none."""
        n_ctx, pos = self.tokens.shape[1], edit.site.pos
        first = np.zeros_like(reads)
        if isinstance(edit, Take):
            differ = (self.tokens[rows] != self.tokens[edit.source]).cpu().numpy()
            first = np.where(differ.any(1), differ.argmax(1) * self.causal, n_ctx)
        place = reads if pos is None or pos == "answer" else np.asarray(pos)
        if pos is not None:
            first = np.where(first <= place, place, n_ctx)
        if not self.causal:
            return first
        layer, stage = self._place(edit.site.hook)
        behind = stage > 0 and not edit.site.hook.endswith(("hook_k_input", "hook_v_input"))
        if layer == self.depth - 1 and behind and pos is not None:  # nothing but the answer is read
            first = np.where(place == reads, first, n_ctx)
        return np.where(first > reads, n_ctx, first)

    def _cases(
        self, sets: Sequence[Sequence[Intervention]], rows: Tensor, every_logit: bool
    ) -> Iterator[tuple[tuple[int, int], At]]:
        """Starts of cases, and the cases, as many as are stacked; those that no edit changes are
        left out. In cases of one stack the same heads read something else than the stream.
        """
        n, n_ctx, reads = len(rows), self.tokens.shape[1], self.reads[rows].cpu().numpy()
        used = {id(edit): edit for edits in sets for edit in edits}
        firsts = {number: self._first_changed(edit, rows, reads) for number, edit in used.items()}
        places = {number: self._place(edit.site.hook) for number, edit in used.items()}
        apart = {number: self._heads_apart(edit.site) for number, edit in used.items()}
        by_start: dict[Any, list[np.ndarray]] = defaultdict(list)
        for variant, edits in enumerate(sets):
            numbers = [id(edit) for edit in edits]
            first = np.minimum.reduce([firsts[edit] for edit in numbers] or [reads + n_ctx])
            changed = np.flatnonzero(first < n_ctx)
            if len(changed):
                # (case, 4): first position that changes, the answer's, the variant, the row
                case = [first[changed], reads[changed], 0 * changed + variant, changed]
                heads = frozenset[tuple[int, int]]().union(*(apart[edit] for edit in numbers))
                start = min(places[edit] for edit in numbers), heads
                by_start[start].append(np.stack(case, 1))
        for (start, heads), parts in by_start.items():
            table = np.concatenate(parts)
            if not (self.engine == "native" and self.causal):
                table[:, :2] = 0, n_ctx - 1
            # a stack computes one span of positions: cases that begin and end alike stand together
            order = (place := table[:, 0] * n_ctx + table[:, 1]).argsort(kind="stable")
            table, place = table[order], place[order]
            most_apart = max(Counter(layer for layer, _ in heads).values(), default=0)
            places_at, variants_at = _changes(place), _changes(table[:, 2])
            begin = 0
            while begin < len(table):
                first, last = table[begin, :2].tolist()
                most = self._at_once(start, last + 1 - first, every_logit, most_apart)
                # up to where the next place begins, or a few cases of other places with it
                end = places_at[np.searchsorted(places_at, begin, "right")]
                stop = min(begin + most, max(end, min(begin + FEW, len(table))))
                # all rows of a variant, where so many fit
                whole = variants_at[np.searchsorted(variants_at, stop, "right") - 1]
                stop = int(whole if begin < whole < stop else stop)
                last, cases = int(table[begin:stop, 1].max()), torch.from_numpy(table[begin:stop])
                _, _, variants, index = cases.to(rows.device).unbind(1)
                inputs, begin = rows[index], stop
                yield start, At(variants, index, inputs, self.reads[inputs], first, last, n)

    def _heads_apart(self, site: Site) -> set[tuple[int, int]]:
        """Blocks and heads that read something else than the stream under an edit at the site."""
        if self.engine != "native" or not site.hook.endswith(_APART):
            return set()
        site.check_units(self.config.n_heads)
        return {(site.layer or 0, head) for head in site.units or range(self.config.n_heads)}

    def _at_once(
        self,
        start: tuple[int, int] = (0, 0),
        positions: int | None = None,
        logits: bool = True,
        apart: int = 0,
    ) -> int:
        """Number of cases in one stacked forward, where `apart` heads read streams of their own."""
        n_ctx, shape = self.tokens.shape[1], self.shape
        vocabulary = (shape.d_vocab_out or 0) * logits
        if self.engine == "native":
            n = 1 if start >= (self.depth - 1, HEADS) and not apart else positions or n_ctx
            width, d_model = shape.width(n_ctx, 1), shape.d_model or 0
            each = n * (width + 4 * apart * d_model) + 2 * n_ctx * d_model + vocabulary
        else:  # the logits of every position
            each = n_ctx * (shape.width(n_ctx) + (shape.d_vocab_out or 0)) // 8
        return max(1, self.stack // (4 * each + 1))

    def _by_hook(self, sets: Sequence[Sequence[Intervention]], at: At) -> Edits:
        """Edits by hook; one that several variants share is made once on the cases of all."""
        variants = at.variants.cpu().numpy()
        order = variants.argsort(kind="stable")
        numbers, starts = np.unique(variants[order], return_index=True)
        shared: dict[tuple[int, int], tuple[Intervention, list[np.ndarray]]] = {}
        for variant, cases in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            for place, edit in enumerate(sets[variant]):
                shared.setdefault((place, id(edit)), (edit, []))[1].append(cases)
        hooks: dict[str, list[tuple[slice | Tensor, Intervention]]] = defaultdict(list)
        for (_, _), (edit, parts) in sorted(shared.items(), key=lambda one: one[0][0]):
            cases = parts[0] if len(parts) == 1 else np.concatenate(parts)
            low, high = int(cases[0]), int(cases[0]) + len(cases)
            follow = np.array_equal(cases, np.arange(low, high))  # makes views
            where = slice(low, high) if follow else torch.from_numpy(cases).to(at.rows.device)
            hooks[edit.site.hook].append((where, edit))
        return hooks

    def _run(
        self, start: tuple[int, int], at: At, edits: Edits, classes: Tensor | None
    ) -> Float[Tensor, "case d_vocab_out"]:
        if self.engine == "native":
            return self._run_native(start, at, edits, classes)
        skips = self.engine == "blocks" and self._may_skip(start[0])
        return self._run_hooked(start[0] if skips else None, at, edits, classes)

    # --- edits ------------------------------------------------------------------------------------
    def _edited(self, hook: str, x: Tensor, at: At, edits: Edits) -> Tensor:
        """A copy of the activation x (case, pos, …) with all edits at `hook` made."""
        if hook not in edits:
            return x
        new = x.clone()
        turned = hook.endswith(("hook_pattern", "hook_attn_scores"))
        view = new.transpose(1, 2) if turned else new
        return new if self._edit_all(view, at, edits[hook], turned) else x

    def _edit_all(
        self,
        x: Tensor,
        at: At,
        edits: Sequence[tuple[slice | Tensor, Intervention]],
        turned: bool = False,
    ) -> bool:
        """Edit the activation x (case, pos, …) in place; return whether any edit changed it."""
        changed = False
        for where, edit in edits:
            part = x[where]  # a view of a slice, a copy of scattered cases
            changed |= self._edit(part, at.of(where), edit, turned)
            if isinstance(where, Tensor):
                x[where] = part
        return changed

    def _edit(self, part: Tensor, at: At, edit: Intervention, turned: bool) -> bool:
        """Edit the activation `part` (case, pos, …) in place; return whether it was changed."""
        site, pos, column = edit.site, edit.site.pos, at.reads
        index: tuple[Any, ...] = (slice(None), slice(None))
        if pos is not None:
            if pos != "answer":
                column = torch.tensor(pos, device=at.reads.device).expand(at.n)[at.rows]
            low, high = (at.reads, at.reads) if at.answers else (at.first, at.last)
            inside = (column >= low) & (column <= high)
            if not inside.any():
                return False
            if part.shape[1] == 1 and inside.all():
                index = slice(None), 0
            else:  # only the cases whose position is among those computed
                at, column, there = at.of(inside), column[inside], inside.nonzero()[:, 0]
                index = there, column * 0 if at.answers else column - at.first
        n_ctx = self.tokens.shape[1]
        # the shape that values of the edit have to fit: of all rows, at every position or at one
        whole = [at.n, n_ctx, *part.shape[2:]] if pos is None else [at.n, *part.shape[2:]]
        if turned:
            whole[-1] = n_ctx
        units: tuple[Any, ...] = ()
        if site.units:
            axis = (1 + (pos is None)) if site.per_head else len(whole) - 1
            site.check_units(whole[axis])
            whole[axis] = len(site.units)
            span = _span(site.units)
            if isinstance(span, list) and isinstance(index[0], Tensor):
                index = tuple(axis_index[:, None] for axis_index in index)
            units = (*[slice(None)] * (axis - 1 - (pos is None)), span)
        old = part[(*index, *units)]
        if isinstance(edit, Compute):
            new = edit.function(old, at)
        else:
            local = self._local(edit, at, column, whole, units, part.shape[-1] if turned else None)
            new = local.replacement(old)
        copied = any(isinstance(part_index, Tensor | list) for part_index in (*index, *units))
        if new is not None and (copied or new is not old):
            part[(*index, *units)] = new.to(part.dtype)
        return new is not None

    def _local(
        self,
        edit: Intervention,
        at: At,
        column: Int[Tensor, " case"],
        whole: Sequence[int],
        units: tuple[Any, ...],
        keys: int | None,
    ) -> Intervention:
        """The edit with its values at the cases and positions of a part; checked against the shape
        of the part at all positions, `whole`. keys: how many a pattern has here.
        """
        site, turned, rows = edit.site, keys is not None, at.rows
        if isinstance(edit, Take):
            x, rows = self.recorded(site.hook), edit.source[rows]
            x = (x.transpose(1, 2) if turned else x)[(slice(None), slice(None), *units)]
            edit, given = Replace(site, x), {"value": x}
        else:
            edit.check_fits(whole)
            values = {name: getattr(edit, name, None) for name in PER_EXAMPLE}
            given = {name: x.expand(*whole) for name, x in values.items() if isinstance(x, Tensor)}
        taken = rows is not at.rows
        for name, x in given.items():
            if site.pos is not None:
                x = x[rows, column] if taken else x[rows]
            elif at.answers:
                x = x[rows, at.reads][:, None]
            else:
                x = x[:, at.first : at.last + 1][rows]
            given[name] = x[..., :keys] if turned else x
        return dataclasses.replace(edit, **given) if given else edit

    # --- native -----------------------------------------------------------------------------------
    def _run_native(
        self, start: tuple[int, int], at: At, edits: Edits, classes: Tensor | None
    ) -> Tensor:
        layer, stage = start
        plain = Forward(self.weights, self.config)

        def edit(name: str, x: Tensor) -> Tensor:
            return self._edited(name, x, at, edits)

        hooked = Forward(self.weights, self.config, edit)
        last = self.depth - 1
        apart = {name.split(".")[1] for name in edits if name.endswith(_APART)}
        at.answers = layer == last and stage > 0 and str(last) not in apart
        end = "post" if stage == END else "pre"
        x = at.window(self.recorded(f"blocks.{layer}.hook_resid_{end}"))
        if MIDDLE <= stage < END:
            x = x + at.window(self.recorded(f"blocks.{layer}.hook_attn_out"))
        if {"hook_embed", "hook_pos_embed"} & set(edits):
            x = edit("hook_embed", at.window(self.recorded("hook_embed")))
            if self.config.embeds_positions:
                x = x + edit("hook_pos_embed", at.window(self.recorded("hook_pos_embed")))
        for index in range(layer, self.depth):
            name = f"blocks.{index}"
            begin = stage if index == layer else 0
            if begin <= ATTENTION:
                if begin == 0:
                    x = edit(f"{name}.hook_resid_pre", x)
                inside = any(hook.startswith((f"{name}.attn.", f"{name}.ln1")) for hook in edits)
                ends = index == last and not at.answers
                out = self._attend(index, begin, x, at, edits, hooked if inside else plain)
                if ends:
                    x = select_positions(x, at.reads - at.first)[:, None]
                x = x + edit(f"{name}.hook_attn_out", out)
            if begin < END:
                inside = any(hook.startswith((f"{name}.mlp.", f"{name}.ln2")) for hook in edits)
                x = self._feed_forward(index, begin, x, at, hooked if inside else plain, edit)
            x = edit(f"{name}.hook_resid_post", x)
        norms = any(name.startswith(("ln_final", "unembed")) for name in edits)
        return self._read_out(x if norms else x[:, 0], classes, edit if norms else no_hook)

    def _attend(
        self, layer: int, begin: int, x: Tensor, at: At, edits: Edits, forward: Forward
    ) -> Tensor:
        """Output of attention of block `layer`, at the answers alone in the last one: recorded, of
        z recorded, or computed.
        """
        name = f"blocks.{layer}"
        if begin == ATTENTION:
            return at.window(self.recorded(f"{name}.hook_attn_out"))
        stood, n_heads = dataclasses.replace(at), self.config.n_heads
        reading = {letter: edits.get(f"{name}.hook_{letter.lower()}_input", ()) for letter in "QKV"}
        asked = [edit.site.units for several in reading.values() for _, edit in several]
        apart = sorted({head for units in asked for head in units or range(n_heads)})
        reading = {
            letter: [(where, _among(edit, apart)) for where, edit in several]
            for letter, several in reading.items()
        }
        if begin == HEADS or len(apart) == n_heads:
            at.answers |= layer == self.depth - 1
        if begin == HEADS:
            z = at.window(self.recorded(f"{name}.attn.hook_z"))
        elif len(apart) == n_heads:
            z = x.new_empty(*at.positions.shape, n_heads, self.config.d_head or 0)
        else:
            z = self._mix(layer, x, at, forward)
        if apart:
            for hook in edits:
                within = hook.startswith(f"{name}.attn.")
                if within and not hook.endswith(("hook_z", "hook_result")):
                    raise ParameterError(
                        f"{hook}: what heads of a block read and how they attend are edited one at "
                        "a time"
                    )
            plain = Forward(self.weights, self.config)
            anew = self._mix(layer, x, stood, plain, apart, reading, begin == HEADS)
            z[:, :, _span(tuple(apart))] = anew
        z = self._edited(f"{name}.attn.hook_z", z, at, edits)
        if f"{name}.attn.hook_result" not in edits:
            return forward.write_heads(layer, z)
        weights = f"blocks.{layer % self.config.n_layers}.attn"
        each = torch.einsum("cphd,hdm->cphm", z, self.weights[f"{weights}.W_O"])
        each = self._edited(f"{name}.attn.hook_result", each, at, edits).sum(-2)
        bias = self.weights.get(f"{weights}.b_O")
        return each if bias is None else each + bias

    def _mix(
        self,
        layer: int,
        x: Tensor,
        at: At,
        forward: Forward,
        apart: Sequence[int] | None = None,
        reading: Edits | None = None,
        recorded: bool = False,
    ) -> Float[Tensor, "case pos head d_head"]:
        """Outputs of heads of block `layer`, at the answers alone in the last one, as `at` then
        says: of all heads of the stream x, or of the heads `apart`, whose queries, keys and values
        read the stream with the edits `reading`. recorded: the stream is not edited before.
        """
        name, attn = f"blocks.{layer}.attn", f"blocks.{layer % self.config.n_layers}.attn"
        index = slice(None) if apart is None else _span(tuple(apart))
        normed = x if recorded else self._normed(layer, x, forward.hook)
        projected: dict[str, Tensor] = {}
        for letter in "KVQ":
            asked = (reading or {}).get(letter, ())
            ends = letter == "Q" and layer == self.depth - 1 and not at.answers
            if recorded and not asked:  # as in the unedited runs
                at.answers |= ends
                there = at if letter == "Q" else dataclasses.replace(at, first=0)
                projected[letter] = there.window(self._projected(layer)[letter][:, :, index])
                continue
            here = x if asked else normed
            if ends:
                here, at.answers = select_positions(here, at.reads - at.first)[:, None], True
            weight, bias = (self.weights.get(f"{attn}.{kind}_{letter}") for kind in "Wb")
            assert weight is not None
            bias = None if bias is None else bias[index]
            if asked:  # a stream of its own for each head, never a view of x
                here = here[:, :, None].repeat(1, 1, len(weight[index]), 1)
                self._edit_all(here, at, asked)
                here = self._normed(layer, here)
                y = torch.einsum("cphd,hdk->cphk", here, weight[index])
                y = y if bias is None else y + bias
            else:
                y = heads(here, weight[index], bias)  # (case, pos, head, d_head)
            y = forward.hook(f"{name}.hook_{letter.lower()}", y)
            y = forward.place(letter, name, attn, y, at.positions[: None if at.answers else 1])
            # keys and values before the first changed position are those of the unedited runs
            if letter != "Q" and at.first:
                past = self._projected(layer)[letter][at.inputs, : at.first]
                y = torch.cat([past[:, :, index], y], 1)
            projected[letter] = y
        return forward.mix(name, projected["Q"], projected["K"], projected["V"], at.positions)

    def _normed(
        self, layer: int, x: Tensor, hook: Callable[[str, Tensor], Tensor] = no_hook
    ) -> Tensor:
        weights = f"blocks.{layer % self.config.n_layers}.ln1"
        return norm(self.weights, weights, f"blocks.{layer}.ln1", self.config, x, hook)

    def _projected(self, layer: int) -> dict[str, Tensor]:
        """Queries, keys and values (input, pos, head, d_head) of the unedited runs."""
        if layer not in self._kept_projected:
            with torch.no_grad():
                attn = f"blocks.{layer % self.config.n_layers}.attn"
                normed = self._normed(layer, self.recorded(f"blocks.{layer}.hook_resid_pre"))
                parts = Forward(self.weights, self.config).project("", attn, normed, None)
            self._kept_projected[layer] = dict(zip("QKV", parts, strict=True))
        return self._kept_projected[layer]

    def _feed_forward(
        self,
        layer: int,
        begin: int,
        x: Tensor,
        at: At,
        forward: Forward,
        edit: Callable[[str, Tensor], Tensor],
    ) -> Tensor:
        """The stream x with what the MLP of block `layer` adds: recorded, of recorded neurons, or
        computed.
        """
        if self.config.attn_only:
            return x
        name = f"blocks.{layer}"
        if begin == NEURONS:
            weights = f"blocks.{layer % self.config.n_layers}.mlp"
            post = edit(f"{name}.mlp.hook_post", at.window(self.recorded(f"{name}.mlp.hook_post")))
            bias = self.weights.get(f"{weights}.b_out")
            out = linear(post, self.weights[f"{weights}.W_out"], bias)
        elif begin == MLP:
            out = at.window(self.recorded(f"{name}.hook_mlp_out"))
        else:
            x = edit(f"{name}.hook_resid_mid", x)
            out = forward.mlp(layer, edit(f"{name}.hook_mlp_in", x))
        return x + edit(f"{name}.hook_mlp_out", out)

    def _read_out(
        self,
        x: Float[Tensor, "case ... d_model"],
        classes: Int[Tensor, "case k"] | None,
        hook: Callable[[str, Tensor], Tensor] = no_hook,
    ) -> Tensor:
        """Logits of the last stream, (case, d_vocab_out) or (case, k) of `classes`."""
        if classes is None or hook is not no_hook:
            logits = Forward(self.weights, self.config).unembed(x, hook=hook)
            return _pick(logits[:, 0] if x.dim() == 3 else logits, classes)
        normed = norm(self.weights, "ln_final", "", self.config, x, no_hook)
        columns = self.weights["unembed.W_U"].T[classes]
        logits = torch.einsum("cd,ckd->ck", normed, columns)
        bias = self.weights.get("unembed.b_U")
        return logits if bias is None else logits + bias[classes]

    # --- any hooked model -------------------------------------------------------------------------
    def _run_hooked(
        self, start: int | None, at: At, edits: Edits, classes: Tensor | None
    ) -> Tensor:
        """Logits by hooks, from the tokens or from the recorded stream before block `start`."""

        def hook_of(name: str) -> tuple[str, Callable[..., Any]]:
            return name, lambda x, hook: self._edited(name, x, at, edits)

        hooks = [hook_of(name) for name in edits]
        tokens = self.tokens[at.inputs]
        with _showing_reads(self.model, edits):
            if start is None:
                logits = run_hooked(self.model, tokens, hooks)
                return _pick(select_positions(logits, at.reads), classes)
            return _pick(self._from_block(start, at, hooks), classes)

    def _from_block(self, start: int, at: At, hooks: list[Any]) -> Tensor:
        """Logits at the answers, blocks before `start` handing on what they are given."""
        stream = self.recorded(f"blocks.{start}.hook_resid_pre")[at.inputs]
        put = [(f"blocks.{start}.hook_resid_pre", lambda x, hook: stream)] if start else []
        cases = torch.arange(len(stream), device=stream.device)
        end = f"blocks.{self.depth - 1}.hook_resid_post"
        cut = [(end, lambda x, hook: x[cases, at.reads][:, None])]
        blocks = list(_blocks(self.model) or ())[:start]
        try:
            for layer, block in enumerate(blocks):
                # not by setattr, which TransformerLens hands on to the module inside
                block.__dict__["forward"] = _hand_on(self._outputs.get(layer))
            tokens = self.tokens[at.inputs]
            return run_hooked(self.model, tokens, [*put, *hooks, *cut])[:, 0]
        finally:
            for block in blocks:
                block.__dict__.pop("forward", None)

    def _may_skip(self, start: int) -> bool:
        """Return whether a run from block `start` gives the bridge's logits."""
        rows = torch.arange(min(2, len(self)), device=self.tokens.device)
        at = At(rows, rows, rows, self.reads[rows], 0, self.tokens.shape[1] - 1, len(rows))
        return self._agrees(
            start, lambda: self._from_block(start, at, []), lambda: self.logits[rows]
        )

    # --- gradients --------------------------------------------------------------------------------
    def gradients(
        self,
        hooks: Collection[str],
        score: Callable[[Tensor, Tensor], Tensor],
        rows: Int[Tensor, " row"],
        *,
        classes: Int[Tensor, "row k"] | None = None,
        first: int = 0,
        under: Sequence[Intervention] = (),
    ) -> Iterator[tuple[Tensor, dict[str, tuple[Tensor, Tensor, Tensor]]]]:
        """Some rows at a time, one forward and backward each: their numbers, and hook → activation,
        gradient of ``score(logits, numbers)`` (row,) there, and positions (row, pos) of either.

        first: the position from which gradients are wanted. Where no later position reads an
        activation, as behind the last attention, only that of the answer may be given. under: edits
        in whose runs they are taken.
        """
        under = [self._prepared(edit, rows) for edit in under]
        self._prepare({*hooks, *(edit.site.hook for edit in under)})
        size = max(1, 16 * self._at_once(logits=classes is None) // max(1, self.depth))
        for part in torch.arange(len(rows), device=rows.device).split(size):
            inputs = rows[part]
            reads = self.reads[inputs]
            window = self._window(first, int(reads.max()))
            at = At(torch.zeros_like(part), part, inputs, reads, *window, len(rows))
            watched_values: dict[str, list[Tensor]] = {}

            def watch(name: str, found: dict[str, list[Tensor]] = watched_values) -> Any:
                # the gradient of a zero that is added is that of the activation, whatever made it
                def add_zero(x: Tensor, cases: At) -> Tensor:
                    zero = torch.zeros_like(x, requires_grad=True)
                    found[name] = [x.detach(), zero, cases.positions]
                    return x + zero

                return add_zero

            watched = [Compute(Site(name), watch(name)) for name in hooks]
            edits = self._by_hook([[*under, *watched]], at)
            with torch.enable_grad():
                logits = self._run((0, 0), at, edits, None if classes is None else classes[part])
                zeros = [zero for _, zero, _ in watched_values.values()]
                slopes = gradients_of(score(logits, part).sum(), zeros)
            yield (
                part,
                {
                    name: (value, zero.detach() if slope is None else slope, places)
                    for (name, (value, zero, places)), slope in zip(
                        watched_values.items(), slopes, strict=True
                    )
                },
            )


def path(
    runs: EditedRuns,
    sender: Site,
    receivers: Sequence[Site],
    source: Int[Tensor, " row"],
    rows: Int[Tensor, " row"],
) -> list[Add]:
    """Edits under which the receivers alone read what `sender` writes in the runs of `source`
    instead of its own (path patching, Wang et al. 2023); those before it are left out.

    Args:
        sender: heads, or what attention or an MLP writes, at the receivers' positions.
        receivers: sites of reading (`Site.read`), at one position, or at all.
        source, rows: the input that each row takes it from, and its own.

    Raises:
        ParameterError: the model does not add what the sender writes to the residual stream.
    """
    layer = sender.layer
    if layer is None or sender.kind not in ("head", "attention", "mlp"):
        raise ParameterError(f"path from {sender}: expected heads, attention or an MLP")
    if sender.kind == "head":
        check_adds(runs.model, runs.tokens, layer)
        written = runs.written_by(layer, sender.units).sum(-2)
    else:
        written = runs.recorded(sender.hook)
    change = written[source] - written[rows]
    order = 2 * layer + (sender.kind == "mlp")
    edits = []
    for receiver in receivers:
        at = runs.depth if receiver.layer is None else receiver.layer
        if 2 * at + (receiver.hook[-6:] == "mlp_in") > order:
            part = Site(receiver.hook, receiver.pos).select(change, runs.reads[rows])
            per_head = receiver.hook.endswith(_APART)
            edits.append(Add(receiver, part.unsqueeze(-2) if per_head else part))
    return edits


# --- modules of others ----------------------------------------------------------------------------
def _blocks(model: Any) -> Any:
    """The blocks of a bridge, whose input may be set; None of any other model."""
    has = all(hasattr(model, name) for name in ("blocks", "ln_final", "unembed", "original_model"))
    return model.blocks if has else None


def _hand_on(rest: Any) -> Callable[..., Any]:
    """A forward of a block that gives back its input, with what else it gave in the recording."""

    def forward(x: Any = None, *args: Any, hidden_states: Any = None, **more: Any) -> Any:
        stream = hidden_states if x is None else x
        return stream if rest is None else (stream, *rest)

    return forward


@contextlib.contextmanager
def _showing_reads(model: Any, names: Collection[str]) -> Generator[None]:
    """Let a bridge show what heads and MLPs read apart from the stream, where edits ask for it and
    it does not already; afterwards it is as it was.
    """
    switches = {
        "set_use_split_qkv_input": any(name.endswith(_APART) for name in names),
        "set_use_hook_mlp_in": any(name.endswith("hook_mlp_in") for name in names),
    }
    on = [
        name
        for name, wanted in switches.items()
        if wanted and hasattr(model, name) and not getattr(model.cfg, name.removeprefix("set_"))
    ]
    try:
        for name in on:
            try:
                getattr(model, name)(True)
            except NotImplementedError as error:  # by its kind of attention
                raise ParameterError(NOT_APART) from error
        yield
    finally:
        for name in on:
            getattr(model, name)(False)


def _among(edit: Intervention, units: Sequence[int]) -> Intervention:
    """The edit where its units are numbered within `units`."""
    numbers = tuple(units.index(unit) for unit in edit.site.units)
    return dataclasses.replace(edit, site=dataclasses.replace(edit.site, units=numbers))


def _changes(column: Int[np.ndarray, " case"]) -> Int[np.ndarray, " change"]:
    """Places of values that differ from the one before, the first, and the number of values."""
    return np.r_[0, np.flatnonzero(np.diff(column)) + 1, len(column)]


def _span(units: tuple[int, ...]) -> slice | list[int]:
    """The units as an index: a slice where they follow each other, which makes views."""
    follow = units == tuple(range(units[0], units[0] + len(units)))
    return slice(units[0], units[-1] + 1) if follow else list(units)


def _pick(logits: Tensor, classes: Tensor | None) -> Tensor:
    return logits if classes is None else logits.gather(-1, classes)
