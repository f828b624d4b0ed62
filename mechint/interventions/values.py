"""The interventions: small frozen values that say what becomes of an activation at a site."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import ParameterError
from mechint.interventions.sites import Site


@dataclass(frozen=True)
class Intervention:
    """A replacement for the part of an activation that `site` names.

    A site may be given as text, ``Zero("L0H2")`` (`mechint.subject.components.site_of`). Tensors
    with a leading example axis follow the examples of the forward they are used in.
    """

    site: Site

    def __post_init__(self) -> None:
        if isinstance(self.site, str):
            from mechint.subject.components import site_of

            object.__setattr__(self, "site", site_of(self.site))

    def replacement(self, part: Float[Tensor, "example ..."]) -> Float[Tensor, "example ..."]:
        """Replacement of `part`, as `Site.select` gives it; the same shape."""
        raise ParameterError(
            f"{type(self).__name__} at {self.site}: it is made by EditedRuns alone"
        )

    def check_fits(self, part: Sequence[int]) -> None:
        """ParameterError where a tensor of the intervention does not fit a part of this shape."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, Tensor) or field.name not in PER_EXAMPLE:
                continue
            ends = zip(reversed(value.shape), reversed(part), strict=False)
            if value.dim() > len(part) or not all(a in (1, b) for a, b in ends):
                raise ParameterError(
                    f"{type(self).__name__} at {self.site}: {field.name} of shape "
                    f"{tuple(value.shape)} does not fit the activation there, {tuple(part)}"
                )


PER_EXAMPLE = ("value", "delta")
"""Fields that are broadcast to the site's part, and whose first axis may be the examples."""


@dataclass(frozen=True)
class Zero(Intervention):
    """Set to zero.

    >>> Zero(Site("hook_embed", pos=0)).replacement(torch.ones(1, 3)).tolist()
    [[0.0, 0.0, 0.0]]
    """

    def replacement(self, part: Float[Tensor, "*part"]) -> Float[Tensor, "*part"]:
        return torch.zeros_like(part)


@dataclass(frozen=True)
class Mean(Intervention):
    """Set to the mean over examples: `value`, or, when None, the mean over those of the forward.

    `fill_means` computes the value over all examples of a subject, and leaves out padding, which a
    forward cannot tell from tokens.
    """

    value: Float[Tensor, " ..."] | None = None

    def replacement(self, part: Float[Tensor, "*part"]) -> Float[Tensor, "*part"]:
        mean = part.mean(0) if self.value is None else self.value
        return mean.expand_as(part)


@dataclass(frozen=True)
class Replace(Intervention):
    """Set to `value`, (example, …) as the site's part or broadcastable to it: another run's
    activation for activation patching (interchange), other examples' for resampling.
    """

    value: Float[Tensor, " ..."]

    def replacement(self, part: Float[Tensor, "*part"]) -> Float[Tensor, "*part"]:
        return self.value.to(part).expand_as(part)


@dataclass(frozen=True)
class Add(Intervention):
    """Add `delta`, broadcastable to the site's part and as wide, as in steering."""

    delta: Float[Tensor, " ..."]

    def replacement(self, part: Float[Tensor, "*part"]) -> Float[Tensor, "*part"]:
        return part + self.delta


@dataclass(frozen=True)
class Take(Intervention):
    """Set to what it is in the unedited run of another input: `source` (row,) of the inputs of
    `EditedRuns`. Its own input holds it: ``Take(Site("blocks.0.attn.hook_pattern"), rows)`` is a
    frozen pattern.
    """

    source: Int[Tensor, " row"]


@dataclass(frozen=True)
class Compute(Intervention):
    """Set to ``function(part, at)``, or left as it is where that is None; `at`
    (`mechint.interventions.runs.At`) says which cases and positions the part has. The function may
    change the part in place and return it.
    """

    function: Callable[[Tensor, Any], Tensor | None]
