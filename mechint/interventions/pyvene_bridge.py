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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mechint.checkpoints.content import read_content
from mechint.checkpoints.reader import state_dict
from mechint.errors import CheckpointError, ParameterError
from mechint.models.foreign.untouched import plain_arithmetic
from mechint.models.protocol import check_edits, run_hooked
from mechint.subject.activations import select_positions
from mechint.system.files import read_json
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
        subspace: orthonormal columns. hook: an activation (batch, pos, width), or one with an axis
            of heads, which stand side by side in the columns. A save of such an intervention runs
            by `PyveneIntervention`: pyvene would load it without what joins the heads.

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
    swap = intervention.forward

    def swap_heads(base: Tensor, source: Tensor, *more: Any, **options: Any) -> Tensor:
        return swap(base.flatten(1), source.flatten(1), *more, **options).view_as(base)

    intervention.forward = swap_heads  # of one head it is the same
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
            CheckpointError: no whole save of one intervention, of a class in `KINDS`, at a hook or
                a component that `COMPONENTS` names.
        """
        directory = Path(directory)
        place = _place_in(directory)
        hook, (kind, width, rank) = _hook_of(directory, place), place["shape"]
        weights = _weights_in(directory, KINDS[kind](width, rank))
        made = getattr(_pyvene().models.interventions, kind)
        module = made(embed_dim=width, low_rank_dimension=rank)
        if weights:
            _check_weights(directory, weights, module.state_dict())
            module.load_state_dict(weights)
        if (layer := getattr(module, "rotate_layer", None)) is not None:
            rotation = layer.weight.detach().double()
            if not torch.allclose(
                rotation.T @ rotation, torch.eye(rotation.shape[1]).double(), atol=1e-3
            ):
                raise CheckpointError(f"{directory}: its rotation does not hold lengths")
        return cls(hook, module.eval())

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
            pair = (one.flatten(1)[:, None] for one in (before, replacing))
            after = self.module(*pair).view_as(before)
            return activation.index_put((rows, torch.as_tensor(positions)), after.to(activation))

        hooks: list[tuple[str, Callable[..., Tensor]]] = [(name, put)]
        with plain_arithmetic(base.device), torch.no_grad():
            return select_positions(run_hooked(model, base, hooks), read)


KINDS: dict[str, Callable[[int, int], int]] = {
    "VanillaIntervention": lambda width, rank: 0,
    "AdditionIntervention": lambda width, rank: 0,
    "SubtractionIntervention": lambda width, rank: 0,
    "SigmoidMaskIntervention": lambda width, rank: width,
    "RotatedSpaceIntervention": lambda width, rank: width * width,
    "BoundlessRotatedSpaceIntervention": lambda width, rank: width * width,
    "SigmoidMaskRotatedSpaceIntervention": lambda width, rank: width * width,
    "LowRankRotatedSpaceIntervention": lambda width, rank: width * rank,
}
"""Class of pyvene that makes an activation out of those of a base and of a source → the weights
that it has at least, by width and rank.
"""
ENTRIES = ("representations", "intervention_types", "intervention_dimensions")
"""Lists of a save's config.json, with an entry for each intervention."""
PLACE = ("layer", "component", "unit", "max_number_of_units", "low_rank_dimension")
"""Entries of a representation where it is a list."""
MAX_WIDTH = 1 << 20
"""Width of an activation, at most."""


def _place_in(directory: Path) -> dict[str, Any]:
    """The entries of a save's config.json for its one intervention, checked."""
    file = directory / "config.json"
    config = read_json(file, CheckpointError)
    entries: list[Any] = [config.get(key) if isinstance(config, dict) else None for key in ENTRIES]
    if not all(isinstance(values, list) and len(values) == 1 for values in entries):
        raise CheckpointError(
            f"{file}: no save of one intervention by pyvene: expected {', '.join(ENTRIES)}, a list "
            "of one each"
        )
    place, stated, width = (values[0] for values in entries)
    if isinstance(place, list):
        place = dict(zip(PLACE, place, strict=False))
    kind = str(stated).removesuffix("'>").rpartition(".")[2]
    if kind not in KINDS or not isinstance(place, dict):
        raise CheckpointError(
            f"{file}: {stated!r:.80} at {place!r:.80}; expected a place, and one of "
            f"{', '.join(KINDS)}"
        )
    rank = place.get("low_rank_dimension") if kind == "LowRankRotatedSpaceIntervention" else 1
    for name, size, high in (("width", width, MAX_WIDTH), ("low_rank_dimension", rank, width)):
        if type(size) is not int or not 0 < size <= high:
            raise CheckpointError(f"{file}: {name} {size!r:.80}; expected 1 to {high:,}")
    return {**place, "shape": (kind, width, rank)}


def _weights_in(directory: Path, least: int) -> dict[str, Tensor]:
    """The weights of the save, `least` numbers at least; none where its kind has none."""
    files = sorted(directory.glob("intkey_*.bin"))
    if len(files) != (least > 0):
        wanted = "one, with the weights" if least else "none, since its kind has no weights"
        raise CheckpointError(f"{directory}: {len(files)} files intkey_*.bin; expected {wanted}")
    if not files:
        return {}
    weights = state_dict(read_content(files[0])) or {}
    if (count := sum(value.numel() for value in weights.values())) < least:
        raise CheckpointError(f"{files[0]}: {count:,} numbers; expected at least {least:,}")
    return weights


def _check_weights(
    directory: Path, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    """CheckpointError unless names, shapes and types are those of the intervention, and its sizes
    those of the configuration.
    """
    kinds = [
        {name: (tuple(value.shape), value.is_floating_point()) for name, value in state.items()}
        for state in (found, expected)
    ]
    if kinds[0] != kinds[1]:
        known = ", ".join(f"{name} {tuple(value.shape)}" for name, value in expected.items())
        raise CheckpointError(f"{directory}: other weights; expected {known}")
    for name, value in found.items():
        same = name not in ("embed_dim", "interchange_dim") or int(value) == int(expected[name])
        if not same or not torch.isfinite(value).all():
            raise CheckpointError(
                f"{directory}: {name} is not finite, or not what its configuration says"
            )


def _hook_of(directory: Path, place: Mapping[str, Any]) -> str:
    """The hook of one of pyvene's representations."""
    component, layer = str(place.get("component")), place.get("layer")
    if component in COMPONENTS and type(layer) is int and 0 <= layer:
        return f"blocks.{layer}.{COMPONENTS[component]}"
    path, _, side = re.sub(r"\[(\d+)\]", r".\1", component).rpartition(".")
    if side == "output" and path.rpartition(".")[2].startswith("hook_"):
        return path
    known = ", ".join(COMPONENTS)
    raise CheckpointError(
        f"{directory}: component {component[:80]!r} of layer {layer!r:.20} has no hook name; "
        f"expected one of {known}, or the output of a hook point"
    )
