"""Subspaces as pyvene interventions, and pyvene interventions on a subject (Wu et al. 2024).

    intervenable = result.to_pyvene(subject.model)                 # a pyvene IntervenableModel
    intervenable({"tokens": base}, [{"tokens": source}],
                 {"sources->base": (pos, pos)})                    # runs in pyvene
    intervenable.save("subspace/")

    swap = PyveneIntervention.load("subspace/")                    # made by anyone, in pyvene
    swap.logits(subject, base, source, positions=pos)              # runs on a subject

The intervention itself is pyvene's module; only the place where it acts is translated, between
pyvene's components and hook names.
"""

# pyvene is untyped
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mechint.errors import CheckpointError, ParameterError
from mechint.models.foreign.untouched import plain_arithmetic
from mechint.models.protocol import check_edits
from mechint.subject.activations import select_positions
from mechint.task import IGNORE, Batch

if TYPE_CHECKING:
    from mechint.subject import Subject

COMPONENTS = {
    "block_input": "hook_resid_pre",
    "block_output": "hook_resid_post",
    "attention_output": "hook_attn_out",
    "mlp_output": "hook_mlp_out",
    "mlp_activation": "mlp.hook_post",
}
"""pyvene's component of a known architecture → hook within a block."""


def _pyvene() -> Any:
    """pyvene, which prints and warns when it is imported."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        import pyvene

    return pyvene


def to_pyvene(
    model: Any, subspace: Float[Tensor, "width k"], hook: str
) -> Any:  # a pyvene.IntervenableModel
    """pyvene's model of `model` with an interchange of the subspace at one hook and position.

    Args:
        model: any hooked model; pyvene calls it with keywords, e.g. ``{"tokens": tokens}`` for a
            HookedTransformer.
        subspace: orthonormal columns. hook: an activation (batch, pos, width).

    Raises:
        ParameterError: the columns are not orthonormal, or the model has no such hook.

    >>> from mechint.config import ModelConfig
    >>> from mechint.models import build
    >>> model = build(ModelConfig(d_model=8, n_heads=2))
    >>> made = to_pyvene(model, torch.eye(8)[:, :2], "blocks.0.hook_resid_mid")
    >>> next(iter(made.interventions.values())).rotate_layer.weight.shape
    torch.Size([8, 2])
    """
    pyvene = _pyvene()
    width, dimension = subspace.shape
    eye = torch.eye(dimension, dtype=subspace.dtype, device=subspace.device)
    if not torch.allclose(subspace.T @ subspace, eye, atol=1e-4):
        raise ParameterError("to_pyvene: the columns of the subspace are not orthonormal")
    point = model.hook_dict.get(hook)
    path = next((name for name, module in model.named_modules() if module is point), None)
    if path is None:
        raise ParameterError(f"to_pyvene: the model has no module at hook {hook}")
    intervention = pyvene.LowRankRotatedSpaceIntervention(
        embed_dim=width, low_rank_dimension=dimension
    )
    intervention = intervention.to(subspace)
    intervention.rotate_layer.weight = subspace  # its parametrization holds it orthonormal
    component = re.sub(r"\.(\d+)", r"[\1]", path) + ".output"
    place = {"component": component, "unit": "pos", "low_rank_dimension": dimension}
    config = pyvene.IntervenableConfig([{**place, "intervention": intervention}])
    return pyvene.IntervenableModel(config, model)


@dataclass(frozen=True)
class PyveneIntervention:
    """A pyvene intervention, of any kind that takes a base and a source, at one hook."""

    hook: str
    module: nn.Module

    @classmethod
    def load(cls, directory: str | Path) -> PyveneIntervention:
        """The intervention that ``IntervenableModel.save`` wrote.

        Raises:
            CheckpointError: no such save of one intervention, of a class of pyvene's own, at a
                hook or a component that `COMPONENTS` names.
        """
        pyvene, directory = _pyvene(), Path(directory)
        if not (directory / "config.json").is_file():
            raise CheckpointError(f"{directory}: no config.json; expected a save of pyvene")
        config = pyvene.IntervenableConfig.from_pretrained(str(directory))
        if len(config.representations) != 1:
            raise CheckpointError(
                f"{directory}: {len(config.representations)} interventions; expected one"
            )
        (place,), (kind,) = config.representations, config.intervention_types
        name = re.sub(r".*\.|'>$", "", str(kind))
        made = getattr(pyvene.models.interventions, name, None)
        if not (
            isinstance(made, type) and issubclass(made, pyvene.models.interventions.Intervention)
        ):
            raise CheckpointError(f"{directory}: {kind} is no intervention of pyvene")
        (width,) = config.intervention_dimensions
        module = made(embed_dim=width, low_rank_dimension=place.low_rank_dimension)
        for file in directory.glob("intkey_*.bin"):
            module.load_state_dict(torch.load(file, weights_only=True, map_location="cpu"))
        return cls(_hook_of(directory, place), module.eval())

    def logits(
        self,
        subject: Subject,
        base: Int[Tensor, "pair pos"],
        source: Int[Tensor, "pair pos"],
        *,
        positions: int | Int[Tensor, " pair"],
        read: int | Int[Tensor, " pair"] = -1,
    ) -> Float[Tensor, "pair d_vocab_out"]:
        """Logits at `read` of the inputs `base` with their activation at `positions` replaced by
        what the intervention makes of it and of the source's.

        Raises:
            ParameterError: a hook that the subject's model lacks or can only show.
        """
        name, model = subject.check_hook(self.hook), subject.model
        check_edits(model, [name])
        no_targets = torch.full((*source.shape, 1), IGNORE, device=source.device)
        activations = subject.activation(name, data=Batch(source, no_targets))
        replacing = select_positions(activations, positions)

        def put(activation: Tensor, hook: Any) -> Tensor:
            rows = torch.arange(len(activation), device=activation.device)
            before = select_positions(activation, positions)
            after = self.module(before[:, None], replacing[:, None])[:, 0]
            return activation.index_put((rows, torch.as_tensor(positions)), after.to(activation))

        hooks: list[tuple[str, Callable[..., Tensor]]] = [(name, put)]
        with plain_arithmetic(base.device), torch.no_grad():
            return select_positions(model.run_with_hooks(base, fwd_hooks=hooks), read)


def _hook_of(directory: Path, place: Any) -> str:
    """The hook of one of pyvene's representations."""
    component = str(place.component)
    if component in COMPONENTS:
        return f"blocks.{place.layer}.{COMPONENTS[component]}"
    path, _, side = re.sub(r"\[(\d+)\]", r".\1", component).rpartition(".")
    if side == "output" and path.rpartition(".")[2].startswith("hook_"):
        return path
    known = ", ".join(COMPONENTS)
    raise CheckpointError(
        f"{directory}: component {component!r} has no hook name; expected one of {known}, or the "
        "output of a hook point"
    )
