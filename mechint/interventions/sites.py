"""Sites of interventions: activations by hook name, or parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import ParameterError
from mechint.subject.activations import check_positions, select_positions

Position = int | Literal["answer"] | tuple[int, ...] | None
"""One position, that of each example's answer, one of each row (`EditedRuns`), or every one."""

KINDS = {
    "hook_attn_out": "attention",
    "hook_mlp_out": "mlp",
    "attn.hook_z": "head",
    "mlp.hook_post": "neuron",
    "hook_resid_pre": "resid_pre",
    "hook_resid_mid": "resid_mid",
    "hook_resid_post": "resid_post",
}
"""Hook within a block → what the activation is called."""
_BEHIND = ("attention", "head", "attn.hook_result", "resid_mid")
_STREAM = {"resid_pre": 0, **dict.fromkeys(_BEHIND, 1), "mlp": 2, "neuron": 2, "resid_post": 2}
HOOKS = {kind: hook for hook, kind in KINDS.items()}
HEADS = (
    *("hook_q", "hook_k", "hook_v", "hook_z", "hook_result", "hook_pattern", "hook_attn_scores"),
    *("hook_rot_q", "hook_rot_k", "hook_q_input", "hook_k_input", "hook_v_input"),
)
"""Hooks whose units are heads; the units of all others are the entries of their last axis."""


@dataclass(frozen=True)
class Site:
    """An activation, or a part of it: the hook's name, a position, and heads or neurons.

    Args:
        hook: e.g. "blocks.0.attn.hook_z".
        pos: a position, "answer" for that of each example's answer, None for all.
        units: heads of an attention hook, entries of the last axis of any other; () for all.

    >>> print(Site.head(1, 3), "|", Site.mlp(0, pos=2), "|", Site("hook_embed", "answer"))
    L1H3 | L0 MLP @ 2 | embed @ answer
    """

    hook: str
    pos: Position = None
    units: tuple[int, ...] = ()

    @classmethod
    def of(cls, kind: str, layer: int, pos: Position = None, units: Sequence[int] = ()) -> Site:
        """By kind: attention, mlp, head, neuron, resid_pre, resid_mid or resid_post."""
        if kind not in HOOKS:
            raise ParameterError(f"site kind {kind!r}: expected one of {', '.join(HOOKS)}")
        return cls(f"blocks.{layer}.{HOOKS[kind]}", pos, tuple(units))

    @classmethod
    def attention(cls, layer: int, pos: Position = None) -> Site:
        """Output of an attention layer to the residual stream."""
        return cls.of("attention", layer, pos)

    @classmethod
    def head(cls, layer: int, head: int, pos: Position = None) -> Site:
        """The output z of one head, before W_O."""
        return cls.of("head", layer, pos, (head,))

    @classmethod
    def mlp(cls, layer: int, pos: Position = None) -> Site:
        """Output of an MLP to the residual stream."""
        return cls.of("mlp", layer, pos)

    @classmethod
    def neurons(cls, layer: int, neurons: Sequence[int], pos: Position = None) -> Site:
        """The activations of MLP neurons, after the nonlinearity."""
        return cls.of("neuron", layer, pos, neurons)

    @classmethod
    def resid_pre(cls, layer: int, pos: Position = None) -> Site:
        """The residual stream before a block."""
        return cls.of("resid_pre", layer, pos)

    @classmethod
    def read(
        cls, kind: str, layer: int | None = None, head: int | None = None, pos: Position = None
    ) -> Site:
        """The input of one receiver, "q", "k" or "v" of a head, "mlp" or "logits", which an edit
        there changes while the residual stream stays as it is (`EditedRuns`).

        >>> print(Site.read("q", 1, 3), "|", Site.read("mlp", 0, pos="answer"))
        L1 hook_q_input[3] | L0 hook_mlp_in @ answer
        """
        if kind == "logits":
            return cls("logits", pos)
        if kind not in ("q", "k", "v", "mlp"):
            raise ParameterError(f"site {kind!r} of reading: expected q, k, v, mlp or logits")
        hook = "hook_mlp_in" if kind == "mlp" else f"hook_{kind}_input"
        return cls(f"blocks.{layer}.{hook}", pos, () if head is None else (head,))

    # --- what it is -------------------------------------------------------------------------------
    @property
    def layer(self) -> int | None:
        """The block the hook is in; None outside the blocks."""
        parts = self.hook.split(".")
        return int(parts[1]) if parts[0] == "blocks" else None

    @property
    def kind(self) -> str:
        """Name of the kind of activation: head, mlp, …; the hook itself where it has no name."""
        name = self.hook.split(".", 2)[2] if self.layer is not None else self.hook
        return KINDS.get(name, name)

    def __str__(self) -> str:
        """The spelling that ``mechint.subject.components.site_of`` reads."""
        place = "" if self.pos is None else f" @ {self.pos}"
        if self.layer is None:
            return {"hook_embed": "embed", "hook_pos_embed": "pos_embed"}.get(
                self.hook, self.hook
            ) + place
        numbers = ",".join(map(str, self.units))
        if self.kind == "head" and self.units:
            return f"L{self.layer}H{numbers}{place}"
        name = {"head": "heads", "mlp": "MLP", "neuron": "neurons"}.get(self.kind, self.kind)
        if self.units:
            name = {"neuron": "MLP", "mlp": "hook_mlp_out"}.get(self.kind, name) + f"[{numbers}]"
        return f"L{self.layer} {name}{place}"

    @cached_property
    def resid(self) -> int | None:
        """Place on the residual stream that a change reaches linearly: 2 · layer before a block,
        2 · layer + 1 behind its attention; None inside a layer.
        """
        if self.hook in ("hook_embed", "hook_pos_embed"):
            return 0
        if self.layer is None or self.kind not in _STREAM:
            return None
        return 2 * self.layer + _STREAM[self.kind]

    # --- its part of an activation ----------------------------------------------------------------
    @property
    def per_head(self) -> bool:
        """True where the activation has an axis of heads."""
        return self.hook.endswith(HEADS)

    def _canonical(self, activation: Tensor) -> Tensor:
        """A view (example, pos, [head,] …) of the activation: patterns have the head first."""
        turned = self.hook.endswith(("hook_pattern", "hook_attn_scores"))
        return activation.transpose(1, 2) if turned else activation

    def select(
        self,
        activation: Float[Tensor, "#example *activation"],
        answer_positions: Int[Tensor, " example"],
    ) -> Float[Tensor, "#example *part"]:
        """(example, [pos,] …) this part of the activation (example, pos, …); units keep their
        axis.

        answer_positions: (example,), used where `pos` is "answer".

        Raises:
            ParameterError: a position or a unit that the activation does not have.
        """
        view = self._canonical(activation)
        if self.pos == "answer":
            view = select_positions(view, answer_positions)
        elif isinstance(self.pos, tuple):
            view = select_positions(view, torch.tensor(self.pos, device=view.device))
        elif self.pos is not None:
            self.check_position(view.shape[1])
            view = view[:, self.pos]
        if not self.units:
            return view
        axis = (1 if self.pos is not None else 2) if self.per_head else view.dim() - 1
        self.check_units(view.shape[axis])
        return view.index_select(axis, torch.tensor(self.units, device=view.device))

    def check_position(self, n_ctx: int) -> None:
        """ParameterError where `pos` is a position that `n_ctx` of them lack."""
        if self.pos is not None and self.pos != "answer":
            for pos in {*self.pos} if isinstance(self.pos, tuple) else {self.pos}:
                check_positions(self.hook, pos, n_ctx)

    def check_units(self, count: int) -> None:
        """ParameterError where a unit is none of the `count` that the activation has."""
        outside = [unit for unit in self.units if not 0 <= unit < count]
        if outside:
            raise ParameterError(
                f"{self}: {outside[0]} is not among the {count} that {self.hook} has"
            )
