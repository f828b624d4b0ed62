"""The one spelling of a model's components, and which of them a model lets one reach.

    str(Site.head(0, 1))                 # "L0H1"
    site_of("L0 MLP[37] @ answer")       # Site.neurons(0, [37], "answer")
    list_components(subject)             # heads, attention layers and MLPs as sites

A head is ``L0H1``, a layer's attention ``L0 attention``, its MLP ``L0 MLP``, a neuron ``L0
MLP[37]``, the residual stream ``L0 resid_post``, any other hook of a block ``L0 attn.hook_q``. A
position follows behind an @. `str` of a Site writes it, `site_of` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mechint.errors import NotApplicableError, ParameterError, UnknownNameError
from mechint.interventions.sites import HOOKS, KINDS, Position, Site

if TYPE_CHECKING:
    from mechint.subject import Subject

DEFAULT = ("attention", "head", "mlp")
"""Kinds of components that are looked at where none are named."""
CALLED = {"attention": "attention layers", "head": "heads", "mlp": "MLPs", "neuron": "neurons"}
SPELLING = "L0H1, L0 MLP, L0 MLP[37], L0 attention, L0 resid_post, embed; with @ 2 or @ answer"
OUTSIDE = {"embed": "hook_embed", "pos_embed": "hook_pos_embed"}
"""Name of what stands outside the blocks → its hook."""

_TEXT = re.compile(
    r"(?:L(?P<layer>\d+)(?:H(?P<heads>\d+(?:,\d+)*)| (?P<kind>[\w.]+)(?:\[(?P<units>[\d,]+)\])?)"
    r"|(?P<hook>[\w.]+))(?: @ (?P<pos>answer|-?\d+))?"
)


def site_of(text: str) -> Site:
    """The site that `text` spells; the inverse of `str`.

    >>> site_of("L0H1"), site_of("L2 MLP @ answer").hook
    (Site(hook='blocks.0.attn.hook_z', pos=None, units=(1,)), 'blocks.2.hook_mlp_out')

    Raises:
        ParameterError: it is no component.
    """
    match = _TEXT.fullmatch(text.strip())
    named = match is not None and (match["hook"] or "hook_")
    if match is None or not (named in OUTSIDE or "hook_" in str(named)):
        raise ParameterError(f"component {text!r}: expected one such as {SPELLING}")
    place = match["pos"]
    pos: Position = int(place) if place not in (None, "answer") else place  # type: ignore[assignment]
    if match["hook"]:
        return Site(OUTSIDE.get(match["hook"], match["hook"]), pos)
    layer = int(match["layer"])
    if match["heads"]:
        return Site.of("head", layer, pos, _numbers(match["heads"]))
    kind, units = match["kind"], _numbers(match["units"])
    if kind == "MLP":
        return Site.of("neuron" if units else "mlp", layer, pos, units)
    kind = {"heads": "head", "neurons": "neuron"}.get(kind, kind)
    hook = HOOKS.get(kind, kind)
    if hook not in KINDS and "hook_" not in hook:
        raise ParameterError(f"component {text!r}: expected one such as {SPELLING}")
    return Site(f"blocks.{layer}.{hook}", pos, units)


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(",")) if text else ()


@dataclass(frozen=True)
class Components:
    """Components of a model as sites, layer by layer; left_out: what the model has and gives no
    hook for, in words.
    """

    sites: tuple[Site, ...]
    left_out: tuple[str, ...] = ()

    @property
    def caveat(self) -> str:
        """A clause about `left_out`; "" where it is nothing."""
        if not self.left_out:
            return ""
        return f"not looked at, for want of a hook: {', '.join(self.left_out)}"


def list_components(
    subject: Subject,
    kinds: Sequence[str] | None = None,
    *,
    default: Sequence[str] = DEFAULT,
    layers: Sequence[int] | None = None,
) -> Components:
    """The components of these kinds, layer by layer, heads one by one.

    Args:
        kinds: those asked for, each of which the model has to give in every layer; None for those
            of `default`, of which `left_out` names what the model has and does not give.
        layers: blocks; all when None.

    Raises:
        UnknownNameError: no such kind. ParameterError: no such layer. NotApplicableError: a kind
            that was asked for and that the model does not have, or has no hook for.

    >>> from mechint.planted import modular_addition
    >>> subject = modular_addition(11, (3,)).subject
    >>> print(*list_components(subject, ["head", "mlp"]).sites)
    L0H0 L0H1 L0 MLP
    """
    shape, hooks = subject.model_description, subject.hooks
    has = {"head": bool(shape.n_heads), "attention": bool(shape.n_heads), "mlp": bool(shape.d_mlp)}
    asked = default if kinds is None else kinds
    for kind in asked:
        if kind not in HOOKS:
            raise UnknownNameError.of("kind of component", kind, HOOKS)
    outside = [layer for layer in layers or () if layer >= shape.n_layers]
    if outside:
        raise ParameterError(
            f"layers={outside[0]}: {subject.describe()} has layers 0 to {shape.n_layers - 1}"
        )
    sites: list[Site] = []
    missing: dict[str, list[int]] = {}
    for layer in range(shape.n_layers) if layers is None else layers:
        for kind in asked:
            site = Site.of(kind, layer)
            if site.hook not in hooks:
                missing.setdefault(kind, []).append(layer)
            elif kind == "head":
                sites += [Site.head(layer, head) for head in range(shape.n_heads or 0)]
            else:
                sites.append(site)
    every = shape.n_layers if layers is None else len(layers)
    said = {
        kind: CALLED.get(kind, kind)
        + ("" if len(where) == every else f" of layers {', '.join(map(str, where))}")
        for kind, where in missing.items()
    }
    if kinds is not None and missing:
        kind, where = next(iter(missing.items()))
        why = f"no hook {Site.of(kind, where[0]).hook} runs in its forward"
        if not has.get(kind, True):
            why = "the model has none"
        offered = [one for one in default if one not in missing]
        more = f"; ask for {', '.join(offered)}" if offered else ""
        raise NotApplicableError(f"{subject.describe()}: {said[kind]}: {why}{more}")
    if asked and not sites:
        named = ", ".join(CALLED.get(kind, kind) for kind in asked)
        raise NotApplicableError(f"{subject.describe()}: has no hook for {named}")
    left_out = tuple(text for kind, text in said.items() if has.get(kind, True))
    return Components(tuple(sites), left_out)
