"""Alignments of causal variables with places in a model, and the measurement that tells if they
hold: `verify` makes every interchange, and resamples every other component.

Models are trained to hold an alignment by `mechint.training.enforced`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mechint.config import ModelConfig
from mechint.errors import ParameterError
from mechint.interventions import Site
from mechint.models.forward import Forward
from mechint.models.rows import RowLayout
from mechint.models.transformer import HookedTransformer
from mechint.planted.assembly import Planted
from mechint.subject import Subject
from mechint.subject.components import site_of
from mechint.task import IGNORE, SPLITS, Batch, FiniteTask, Task, find_variable, rng

LEAST = 0.99
"""Share of right answers, under every intervention, from which an alignment is the truth."""
STAGES = {"resid_pre": 0, "head": 1, "attention": 1, "mlp": 2, "neuron": 2}
"""Kinds of sites → where they stand within a block."""
AT_ONCE, POOL = 512, 8192
"""Pairs of inputs that are verified in one forward, and examples that are drawn from."""

Sites = Mapping[str, Site]
Weights = Mapping[str, Tensor]
"""Parameters of a stack of models, (model, …) by name."""
Kept = Mapping[str, Tensor]
"""Hook → its activation (model, example, pos, …)."""
Masks = Mapping[str, Tensor]
"""Hook → the parts (model, copy, 1, pos, …) of its activation that take another value, in every
copy of the examples.
"""


def sample_all(task: Task, n: int, seed: int) -> Batch:
    """`n` examples of all splits: an alignment concerns every input."""
    if isinstance(task, FiniteTask):
        return task.sample(n, seed, "all")
    parts = [task.sample(n, seed, split) for split in SPLITS]
    return Batch.cat(parts)[torch.from_numpy(rng("splits", seed).permutation(3 * n)[:n])]


def pairs_of(task: Task, pairs: int) -> tuple[Batch, Batch]:
    """All pairs of inputs where there are at most `pairs`, else as many drawn."""
    if isinstance(task, FiniteTask) and len(task.examples()) ** 2 <= pairs:
        index = torch.arange(len(task.examples()))
        both = torch.cartesian_prod(index, index)
        return task.examples()[both[:, 0]], task.examples()[both[:, 1]]
    return sample_all(task, pairs, 11), sample_all(task, pairs, 12)


# --- interventions --------------------------------------------------------------------------------
def record(
    weights: Weights, config: ModelConfig, tokens: Tensor, names: Iterable[str]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits, and the whole activations at the hooks `names`; differentiable."""
    found, wanted = dict[str, Tensor](), set(names)

    def keep(name: str, x: Tensor) -> Tensor:
        if name in wanted:
            found[name] = x
        return x

    tokens = tokens.expand(len(weights["embed.W_E"]), *tokens.shape)
    return Forward(weights, config, keep).logits(RowLayout.dense(tokens)), found


def exchange(
    weights: Weights, config: ModelConfig, tokens: Tensor, *edits: tuple[Kept, Masks]
) -> Float[Tensor, "model copy example pos d_vocab_out"]:
    """Logits of copies of the inputs, in each of which some sites have other values.

    edits: the values, and where they are taken; later ones over earlier ones.
    """
    copies = max(mask.shape[1] for _, masks in edits for mask in masks.values())

    def edit(name: str, x: Tensor) -> Tensor:
        chosen = [(masks[name], kept[name]) for kept, masks in edits if name in masks]
        if not chosen:
            return x
        x = x.unflatten(1, (copies, -1))
        for mask, value in chosen:
            x = torch.where(mask, value[:, None], x)
        return x.flatten(1, 2)

    tokens = tokens.repeat(copies, 1).expand(len(weights["embed.W_E"]), -1, -1)
    logits = Forward(weights, config, edit).logits(RowLayout.dense(tokens))
    return logits.unflatten(1, (copies, -1))


def masks_of(config: ModelConfig, chosen: Sequence[Sequence[Sequence[Site]]]) -> dict[str, Tensor]:
    """The parts of activations that are the sites chosen[model][copy]."""
    masks = dict[str, Tensor]()
    for model, copies in enumerate(chosen):
        for copy, sites in enumerate(copies):
            for site in sites:
                shape = {"head": (config.n_heads, 1), "neuron": (config.d_mlp or 0,)}
                if site.hook not in masks:
                    size = (len(chosen), len(copies), 1, config.n_ctx)
                    size += shape.get(site.kind, (1,))
                    masks[site.hook] = torch.zeros(size, dtype=torch.bool)
                where: Any = (model, copy, 0, site.pos, list(site.units) or slice(None))
                masks[site.hook][where] = True
    return masks


def program_given(task: Task, source: Batch, names: Sequence[str]) -> dict[str, Tensor]:
    """The values that the variables `names` have on the sources."""
    return {name: task.variables[name].value_of(source.tokens) for name in names}


# --- verification ---------------------------------------------------------------------------------
@torch.no_grad()
def verify(
    model: HookedTransformer,
    task: Task,
    sites: Sites,
    base: Batch,
    source: Batch,
    one_by_one: bool = True,
) -> dict[str, Any]:
    """Measure what holds of an alignment, on pairs of inputs.

    one_by_one: whether other components are resampled one by one, too.

    Returns:
        Shares of answers. "accuracy": right on the bases; "interchange": variable → those of the
        program when its site alone is exchanged; "changed": the same of answers that the exchange
        is to change; "all": with every site exchanged, so that all else is another input's;
        "outside": component → changed when it is resampled and the sites keep theirs; "resampled":
        with all of these at once. "least": the smallest share of answers as they should be;
        "verified": whether it is at least `LEAST`; "pairs": how many.
    """
    config, others, every = model.config, outside(model.config, sites), list(sites.values())
    lone = [[site] for site in others] if one_by_one else []
    weights = {name: value[None] for name, value in model.weights().items()}
    moved = masks_of(config, [[*([one] for one in every), every]])
    resampled = masks_of(config, [[*lone, others]])
    held = masks_of(config, [[every] * (len(lone) + 1)])
    parts: list[Tensor] = []
    for rows in torch.arange(len(base)).split(AT_ONCE):
        _, theirs = record(weights, config, source.tokens[rows], resampled | held)
        logits, own = record(weights, config, base.tokens[rows], held)
        swaps = exchange(weights, config, base.tokens[rows], (theirs, moved))
        whole = exchange(weights, config, base.tokens[rows], (theirs, resampled), (own, held))
        whole = torch.cat([logits[:, None], swaps, whole], 1)[0]
        said = [whole[..., part].argmax(-1) for part in task.output_slices.values()]
        parts.append(torch.stack(said, -1))
    plain, *said = torch.cat(parts, 1)  # each (pair, pos, output)
    asked, interchange, changed = base.targets != IGNORE, dict[str, float](), dict[str, float]()
    for name, answers in zip([*sites, "all"], said, strict=False):
        wanted = task.targets(
            base.tokens, program_given(task, source, [name] if name in sites else [*sites])
        )
        interchange[name] = _share(answers == wanted, asked)
        changed[name] = _share(answers == wanted, asked & (wanted != base.targets))
    lost = [_share(answers != plain, asked) for answers in said[len(sites) + 1 :]]
    accuracy = _share(plain == base.targets, asked)
    right = [accuracy, *interchange.values(), *changed.values(), *(1 - share for share in lost)]
    return {
        "accuracy": accuracy,
        "all": interchange.pop("all"),
        "interchange": interchange,
        "changed": {name: changed[name] for name in sites},
        "outside": dict(zip(map(str, others), lost[:-1], strict=False)),
        "resampled": lost[-1],
        "least": min(right),
        "pairs": len(base),
        "verified": min(right) >= LEAST,
    }


def _share(right: Bool[Tensor, "*shape"], among: Bool[Tensor, "*shape"]) -> float:
    """Share of True; 1 where there is nothing."""
    return float(right[among].double().mean()) if bool(among.any()) else 1.0


def outside(config: ModelConfig, sites: Sites) -> list[Site]:
    """Heads and MLPs up to the last of `sites`, at every position, that are none of them."""
    last, result = max(map(depth_of, sites.values())), list[Site]()
    for layer in range(config.n_layers):
        for pos in range(config.n_ctx):
            result += [Site.head(layer, head, pos) for head in range(config.n_heads)]
            result += [] if config.attn_only else [Site.mlp(layer, pos)]
    taken = list(sites.values())
    return [
        one for one in result if depth_of(one) <= last and not any(_meet(one, s) for s in taken)
    ]


def depth_of(site: Site) -> tuple[int, int]:
    """Layer, and stage within it, at which a site stands."""
    return site.layer or 0, STAGES[site.kind]


def _meet(one: Site, other: Site) -> bool:
    """Return whether two sites share a part of an activation."""
    same = one.pos == other.pos and depth_of(one) == depth_of(other)
    return same and (
        one.kind != other.kind
        or not set(one.units).isdisjoint(other.units or one.units)
        or not one.units
    )


# --- alignments -----------------------------------------------------------------------------------
def check_alignment(
    task: Task, config: ModelConfig, alignment: Mapping[str, Site | str]
) -> dict[str, Site]:
    """The alignment with its sites at positions; raises as `enforce` does."""
    sites: dict[str, Site] = {}
    for name, text in alignment.items():
        find_variable(task, name)
        site = site_of(text) if isinstance(text, str) else text
        if site.pos == "answer":
            site = dataclasses.replace(site, pos=_answers(task, name)[-1])
        if why := _unfit(task, config, name, site, sites):
            raise ParameterError(f"alignment of {task.name}: {name} at {site}: {why}")
        sites[name] = site
    if not _determine(task, tuple(sites)):
        names = ", ".join(sites) or "no variables"
        raise ParameterError(
            f"alignment of {task.name}: {names} do not determine the answers; align more variables"
        )
    if name := _stranded(task, config, sites):
        raise ParameterError(
            f"alignment of {task.name}: {name} at {sites[name]}: no head behind the last site "
            "carries it to the answer"
        )
    return sites


def _stranded(task: Task, config: ModelConfig, sites: Sites) -> str:
    """A variable that the answer needs and only a head of the last layer could carry there, where
    every one is resampled or is the site of another; "" where there is none.
    """
    if max(map(depth_of, sites.values())) < (config.n_layers - 1, 1):
        return ""
    away = [name for name, site in sites.items() if site.pos not in _answers(task, name)]
    needed = (
        one for one in away if not _determine(task, tuple(other for other in sites if other != one))
    )
    return next(needed, "")


@functools.lru_cache(maxsize=256)
def _determine(task: Task, names: tuple[str, ...]) -> bool:
    """Return whether inputs with equal variables have equal answers, on a sample."""
    sample = sample_all(task, POOL, 0)
    keys = torch.stack([sample.tokens[:, 0] * 0, *program_given(task, sample, names).values()], 1)
    whole = torch.cat([keys, sample.targets.flatten(1)], 1)
    return len(keys.unique(dim=0)) == len(whole.unique(dim=0))


@functools.lru_cache(maxsize=256)
def _answers(task: Task, name: str) -> list[int]:
    """Positions of the answers that the variable reaches."""
    positions, reached = (
        sample_all(task, 1, 0).answers.positions[0].tolist(),
        task.variables[name].answers,
    )
    return positions if reached is None else [positions[index] for index in reached]


def _tokens(task: Task, name: str) -> list[int]:
    """Positions of the tokens that determine a variable, its ancestors' included; the first answer
    where they are not fixed.
    """
    variable = task.variables[name]
    parents = [one for one in variable.parents if one in task.variables]
    found = [position for parent in parents for position in _tokens(task, parent)]
    return list(variable.positions) or found or _answers(task, name)[:1]


def _unfit(task: Task, config: ModelConfig, name: str, site: Site, earlier: Sites) -> str:
    """The reason why the site cannot hold the variable beside `earlier` ones; "" where it can."""
    if site.kind not in STAGES or not isinstance(site.pos, int):
        return "expected a head, an MLP or the residual stream before a block, at one position"
    (layer, stage), last = depth_of(site), config.n_layers - 1
    width = config.n_heads if site.kind == "head" else config.d_mlp or 0
    beyond = (
        layer > last or site.pos not in range(config.n_ctx) or max(site.units, default=0) >= width
    )
    if beyond or (stage == 2 and config.attn_only):
        return "the model has no such site"
    answers, program = _answers(task, name), task.own_program
    final = program is not None and any(name in row for row in program.answers)
    if config.reads_back_only and site.pos < max(_tokens(task, name)):
        return f"it stands before position {max(_tokens(task, name))}, which the variable needs"
    if config.reads_back_only and site.pos > min(answers):
        return f"it stands behind the answer at position {min(answers)}"
    if (final or layer == last) and [site.pos] != answers:
        return f"nothing reads it at position {', '.join(map(str, answers))}, where the answer is"
    if not final and (layer, stage) >= (last, 1 if config.attn_only else 2):
        return "nothing behind it computes the answer from the variable"
    for other, place in earlier.items():
        if _meet(site, place):
            return f"it is the site of {other}"
        behind = (
            depth_of(site) > depth_of(place)
            if place.pos == site.pos
            else layer > depth_of(place)[0]
        )
        if program is not None and program.depends(name, [other]) and not behind:
            return f"it is not behind the site of {other}, which the variable depends on"
    return ""


# --- files ----------------------------------------------------------------------------------------
def save_enforced(plant: Planted, path: str | Path) -> None:
    """Write the model as a checkpoint, with its truth among the metrics, where `truth_of` reads it.

    Raises:
        RunError: the file cannot be written.
    """
    from mechint.checkpoints.save import save_checkpoint

    subject, truth = plant.subject, dict(plant.truth)
    metrics = {"accuracy": truth["accuracy"], "truth": truth}
    config, weights = subject.model.config, subject.model.weights()
    save_checkpoint(
        path,
        config=config,
        weights=weights,
        task=subject.task,
        step=truth["steps"],
        metrics=metrics,
    )


def truth_of(subject: Subject) -> dict[str, Any]:
    """The truth that was enforced on the model and verified, as `enforce` returns it.

    Raises:
        ParameterError: its checkpoint states none.
    """
    truth = subject.provenance["checkpoint"].get("metrics", {}).get("truth")
    if truth is None:
        raise ParameterError(
            f"{subject.describe()}: no truth was enforced on it, by its checkpoint"
        )
    return truth
