"""The interventions: small frozen values that say what becomes of an activation at a site."""

from __future__ import annotations

import abc
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
class Intervention(abc.ABC):
    """A replacement for the part of an activation that `site` names.

    A site may be given as text, ``Zero("L0H2")`` (`mechint.subject.components.site_of`). Tensors
    with a leading example axis follow the examples of the forward they are used in.
    """

    site: Site

    def __post_init__(self) -> None:
        if isinstance(self.site, str):
            from mechint.subject.components import site_of

            object.__setattr__(self, "site", site_of(self.site))

    @abc.abstractmethod
    def replacement(self, part: Float[Tensor, "example ..."]) -> Float[Tensor, "example ..."]:
        """Replacement of `part`, as `Site.select` gives it; the same shape."""

    def apply(
        self, activation: Float[Tensor, "example ..."], answer_positions: Int[Tensor, " example"]
    ) -> Float[Tensor, "example ..."]:
        """A copy of the whole activation at the site's hook with the part replaced.

        Raises:
            ParameterError: a position or unit that the activation does not have, or a value of
                another width.
        """
        part = self.site.select(activation, answer_positions)
        self.check_fits(part.shape)
        new = self.replacement(part).to(activation.dtype)
        return self.site.insert(activation, new, answer_positions)

    def check_fits(self, part: Sequence[int]) -> None:
        """ParameterError where a tensor of the intervention does not fit a part of this shape."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, Tensor):
                continue
            if field.name == "basis":  # the last axis of the part is multiplied by it
                fits = value.dim() == 2 and len(value) == part[-1]
            elif field.name in PER_EXAMPLE:
                ends = zip(reversed(value.shape), reversed(part), strict=False)
                fits = value.dim() <= len(part) and all(a in (1, b) for a, b in ends)
            else:
                continue
            if not fits:
                raise ParameterError(
                    f"{type(self).__name__} at {self.site}: {field.name} of shape "
                    f"{tuple(value.shape)} does not fit the activation there, {tuple(part)}"
                )

    def of_examples(self, rows: slice | Int[Tensor, " row"], n: int, axes: int) -> Intervention:
        """The intervention on some of `n` examples: values given per example are cut to them.

        axes: of the site's part, examples included. A value with fewer has no examples, even where
        its first axis is as long; it is broadcast.
        """
        kept = {
            field.name: value[rows]
            for field in dataclasses.fields(self)
            if field.name in PER_EXAMPLE
            and isinstance(value := getattr(self, field.name), Tensor)
            and value.dim() == axes
            and len(value) == n
        }
        return dataclasses.replace(self, **kept)


PER_EXAMPLE = ("value", "delta", "toward")
"""Fields that are broadcast to the site's part, and whose first axis may be the examples."""


@dataclass(frozen=True)
class Zero(Intervention):
    """Set to zero.

    >>> x = torch.ones(1, 2, 3)
    >>> Zero(Site("hook_embed", pos=0)).apply(x, torch.tensor([1])).tolist()
    [[[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]]
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

    def of_examples(self, rows: slice | Int[Tensor, " row"], n: int, axes: int) -> Mean:
        return self


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
class ProjectOut(Intervention):
    """Remove the coordinates in a subspace, or take them from elsewhere: x + B Bᵀ (toward − x).

    basis: (d, k), orthonormal columns, of the last axis. toward: 0 when None (the subspace is
    projected out); another run's activation is an interchange of the subspace (Geiger et al. 2024),
    the mean a mean ablation of it.

    Raises:
        ParameterError: columns that are not orthonormal, which would remove more than all of it.

    >>> x = torch.tensor([[[3.0, 4.0]]])
    >>> out = ProjectOut(Site("hook_embed"), torch.tensor([[1.0], [0.0]]))
    >>> out.apply(x, torch.tensor([0])).tolist()
    [[[0.0, 4.0]]]
    """

    basis: Float[Tensor, "d k"]
    toward: Float[Tensor, " ..."] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _orthonormal(self.basis.detach()):
            raise ParameterError(
                f"ProjectOut at {self.site}: the columns of basis, of shape "
                f"{tuple(self.basis.shape)}, are not orthonormal; torch.linalg.qr(basis)[0] has "
                "columns that are, of the same span"
            )

    def replacement(self, part: Float[Tensor, "*part"]) -> Float[Tensor, "*part"]:
        basis = self.basis.to(part)
        difference = -part if self.toward is None else self.toward.to(part) - part
        return part + (difference @ basis) @ basis.T


@dataclass(frozen=True)
class Take(Intervention):
    """Set to what it is in the unedited run of another input: `source` (row,) of the inputs of
    `EditedRuns`. Its own input holds it: ``Take(Site("blocks.0.attn.hook_pattern"), rows)`` is a
    frozen pattern.
    """

    source: Int[Tensor, " row"]

    def replacement(self, part: Float[Tensor, "*part"]) -> Float[Tensor, "*part"]:
        raise ParameterError(f"Take at {self.site}: only EditedRuns has runs of other inputs")


@dataclass(frozen=True)
class Compute(Intervention):
    """Set to ``function(part, at)``, or left as it is where that is None; `at`
    (`mechint.interventions.runs.At`) says which cases and positions the part has. The function may
    change the part in place and return it.
    """

    function: Callable[[Tensor, Any], Tensor | None]

    def replacement(self, part: Float[Tensor, "*part"]) -> Float[Tensor, "*part"]:
        raise ParameterError(f"Compute at {self.site}: only EditedRuns says where its part stands")


def _orthonormal(basis: Tensor) -> bool:
    """Return whether `basis` is a matrix of orthonormal columns, to the rounding of float16."""
    if basis.dim() != 2:
        return False
    products = basis.double().T @ basis.double()
    return torch.allclose(products, torch.eye(len(products)).to(products), atol=1e-3)


def hooks_of(
    interventions: Sequence[Intervention],
    answer_positions: Int[Tensor, " example"],
    part: tuple[slice, int] | None = None,
) -> list[tuple[str, Callable[..., Any]]]:
    """Forward hooks that apply the interventions, in their order, in one run_with_hooks.

    part: (rows, n) where the forward has only these rows of the `n` examples that the
    interventions were made for.
    """
    hooks: list[tuple[str, Callable[..., Any]]] = []
    for intervention in interventions:

        def edit(activation: Tensor, hook: Any, one: Intervention = intervention) -> Tensor:
            if part is not None:
                one = one.of_examples(*part, one.site.axes(activation))
            return one.apply(activation, answer_positions)

        hooks.append((intervention.site.hook, edit))
    return hooks
