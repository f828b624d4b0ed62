"""Output over input norm of every sublayer, of a model and of untrained ones like it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint.models.forward import Forward
from mechint.models.initial import initialize
from mechint.models.rows import RowLayout
from mechint.probe import Need, unmet_need
from mechint.subject import Subject
from mechint.task import Batch, rng
from probes._weights.circuits import norm_of

KINDS = {"attention": ("attn_out", "resid_pre"), "MLP": ("mlp_out", "resid_mid")}
"""Kind of sublayer → hooks of its output and of its input."""
ROUNDING = 1e-6
"""Norm of what is left of a vector without its mean, over its own, up to which it is rounding."""
HOOKED = tuple(f"hook_{hook}" for hooks in KINDS.values() for hook in hooks)


def sublayers(subject: Subject) -> dict[str, tuple[str, str]]:
    """ "L0 attention", "L0 MLP", … → hooks of the output and of the input."""
    known = subject.hooks
    every = {
        f"L{layer} {kind}": tuple(f"blocks.{layer}.hook_{hook}" for hook in hooks)
        for layer in range(subject.n_layers)
        for kind, hooks in KINDS.items()
    }
    return {
        name: (output, given)
        for name, (output, given) in every.items()
        if output in known and given in known
    }


def last_layer(names: Iterable[str]) -> list[str]:
    """The sublayers of the last layer.

    >>> last_layer(["L8 attention", "L10 attention", "L10 MLP"])
    ['L10 attention', 'L10 MLP']
    """
    names = list(names)
    layer = max(int(name[1:].split()[0]) for name in names)
    return [name for name in names if name.startswith(f"L{layer} ")]


def reads_centered(subject: Subject) -> bool:
    """Whether all that reads the stream stands behind norms that take the mean over its coordinates
    out, so that a shift of all of them together is read by nothing. Not where attention reads the
    stream itself and the norms come after it (BERT).

    Cost: two forwards of two examples, of models with layer norms.
    """
    if not norm_of(subject.model, "blocks.0.ln1")[1]:
        return False
    found: list[Tensor] = []

    def keep(activation: Tensor, hook: Any) -> None:
        found.append(activation.double())

    output, given = next(iter(sublayers(subject).values()))
    for shift in (0.0, 1.0):
        hooks = [(given, lambda x, hook, shift=shift: x + shift * x.abs().max()), (output, keep)]
        subject.logits(subject.data[:2], hooks=hooks, at=None)
    plain, shifted = found
    return float((shifted - plain).abs().max()) <= 1e-3 * float(plain.abs().max())


def sizes(x: Float[Tensor, "*place d_model"], centered: bool) -> Float[Tensor, "*place"]:
    """Norms over the coordinates, without their mean where `centered`; 0 where rounding is left.

    >>> x = torch.tensor([[3.0, 1.0], [0.1, 0.1]])
    >>> sizes(x, True).tolist() == [2**0.5, 0.0], sizes(x, False)[0].item() == 10**0.5
    (True, True)
    """
    x = x.double()
    whole = x.norm(dim=-1)
    if not centered:
        return whole
    left = (x - x.mean(-1, keepdim=True)).norm(dim=-1)
    return torch.where(left > ROUNDING * whole, left, 0.0)


def ratios(
    subject: Subject, centered: bool | None = None
) -> dict[str, Float[np.ndarray, "example pos"]]:
    """Sublayer → ratios of output to input norm, `sizes` without their mean where it is not read;
    NaN beyond an example's length, and where the input is zero.

    centered: what `reads_centered` says of the architecture, where that is known.
    """
    wanted = sublayers(subject)
    centered = reads_centered(subject) if centered is None else centered
    found: dict[str, list[np.ndarray]] = {name: [] for name in wanted}
    for part, recorded in subject.stream([hook for pair in wanted.values() for hook in pair]):
        for name, (output, given) in wanted.items():
            ratio = _ratio(*(sizes(recorded[hook], centered) for hook in (output, given)))
            found[name].append(
                np.where(_beyond(subject.data, part, ratio.shape[1]), np.nan, ratio.cpu().numpy())
            )
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _ratio(output: Tensor, given: Tensor) -> Tensor:
    """Of two norms; NaN where there is no input."""
    return torch.where(given > 0, output / given, torch.nan)


def with_input(
    found: dict[str, Float[np.ndarray, "example pos"]],
) -> dict[str, Float[np.ndarray, "example pos"]]:
    """Those sublayers that have a ratio anywhere."""
    return {name: values for name, values in found.items() if np.isfinite(values).any()}


def share_with_input(data: Batch, values: Float[np.ndarray, "example pos"]) -> str:
    """At how many of the positions there is a ratio, in words; "" where at all."""
    own = data.own_positions()
    n, given = values.size if own is None else int(own.sum()), int(np.isfinite(values).sum())
    return f" at {given} of {n} positions, with zero input at the others" if given < n else ""


def mean_ratios(found: dict[str, Float[np.ndarray, "example pos"]]) -> dict[str, float]:
    """Sublayer → mean over the examples and positions that have a ratio; NaN where none has."""
    return {name: _mean(values) for name, values in found.items()}


def _mean(ratios: Float[np.ndarray, "example pos"]) -> float:
    return float(np.nanmean(ratios)) if np.isfinite(ratios).any() else np.nan


def untrained_ratios(
    subject: Subject, n_models: int, seed: int
) -> dict[str, Float[np.ndarray, " model"]]:
    """Sublayer → mean ratios of `n_models` models with initial weights on the subject's data; many
    stacked in one forward where the forward is ours.
    """
    first = int(rng("norms null", seed).integers(1 << 31))
    hooks = sublayers(subject)
    if unmet_need(Need.RESUME, subject):
        centered = reads_centered(subject)
        models = (subject.untrained(first + i) for i in range(n_models))
        each = [mean_ratios(ratios(model, centered)) for model in models]
        return {name: np.array([one[name] for one in each]) for name in hooks}
    size = _stacked_at_once(subject)
    means: dict[str, list[np.ndarray]] = {name: [] for name in hooks}
    for start in range(0, n_models, size):
        norms = _stacked_norms(subject, range(first + start, first + min(start + size, n_models)))
        for name, (output, given) in hooks.items():
            ratio = _ratio(norms[output], norms[given]).cpu().numpy()
            past = _beyond(subject.data, slice(None), ratio.shape[-1])
            each = np.where(past, np.nan, ratio)
            means[name].append(np.array([_mean(one) for one in each]))
    return {name: np.concatenate(parts) for name, parts in means.items()}


def _stacked_at_once(subject: Subject) -> int:
    """How many models one forward holds within the subject's memory, at least one."""
    config, tokens = subject.model.config, subject.data.tokens
    width = config.d_mlp + config.d_model + tokens.shape[1]
    return max(1, subject.memory // (32 * tokens.numel() * width))


def _stacked_norms(
    subject: Subject, seeds: Iterable[int]
) -> dict[str, Float[Tensor, "model example pos"]]:
    """Hook → norms of its activations in the models initialized from `seeds`."""
    config, tokens = subject.model.config, subject.data.tokens
    drawn = [initialize(config, seed) for seed in seeds]
    stack = {
        name: torch.stack([one[name] for one in drawn]).to(subject.device) for name in drawn[0]
    }
    norms: dict[str, Tensor] = {}
    centered = config.normalization_type is not None  # every norm of these models is a layer norm

    def keep(name: str, tensor: Tensor) -> Tensor:
        if name.endswith(HOOKED):
            norms[name] = sizes(tensor, centered)
        return tensor

    with torch.no_grad():
        same = tokens.expand(len(drawn), *tokens.shape)  # (model, example, pos)
        Forward(stack, config, keep).logits(RowLayout.dense(same))
    return norms


def _beyond(data: Batch, part: slice, n_ctx: int) -> np.ndarray:
    """(example | 1, pos) bool: positions past the example's end."""
    own = data.own_positions()
    return np.zeros((1, n_ctx), bool) if own is None else ~own[part].cpu().numpy()
