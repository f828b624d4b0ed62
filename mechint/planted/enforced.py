"""Models trained to hold each causal variable of their task in a place of our choice, by strict
interchange-intervention training (Geiger et al. 2022; Gupta et al. 2024, InterpBench).

    plant = enforce(task, {"pair_0": "L0H1 @ 4", "pair_1": "L0H0 @ 3"}, config, seed=0)
    plant.truth["verified"], plant.truth["interchange"]

The loss is the cross-entropy of the task; of interchanges, in which the sites of some variables
carry what they carry for another input and the answer is that of the task's program with that
input's values; and of resampling, in which other heads and MLPs up to the last site carry what they
carry for another input, the sites keep theirs, and the answer stays. The variables together
determine the answers, so that an interchange of all of them asks for the other input's answer,
whatever all else says.

What was enforced is truth only if it holds afterwards: `verify` makes every interchange, and
resamples every other component. Cost: two forwards and a backward of `2 * batch_size` examples per
step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mechint.components import site_of
from mechint.config import ModelConfig
from mechint.errors import ParameterError
from mechint.interventions import Site
from mechint.models.transformer import HookedTransformer
from mechint.planted.assembly import Planted
from mechint.subject import Subject
from mechint.task import IGNORE, SPLITS, Batch, FiniteTask, Task, find_variable, rng

LEAST, ENOUGH = 0.99, 0.998
"""Share of right answers, under every intervention, from which an alignment is the truth, and at
which training stops.
"""
STAGES = {"resid_pre": 0, "head": 1, "attention": 1, "mlp": 2, "neuron": 2}
"""Kinds of sites → where they stand within a block."""
CHECKED, EVERY, POOL = 512, 50, 8192
"""Pairs of a check while training, steps between checks, and examples that are trained on."""

Sites = Mapping[str, Site]
Kept = Mapping[str, Tensor]
"""Hook → its activation (example, pos, …)."""


def enforce(
    task: Task,
    alignment: Mapping[str, Site | str],
    config: ModelConfig,
    seed: int = 0,
    *,
    natural: bool = False,
    steps: int = 2000,
    batch_size: int = 64,
    lr: float = 3e-3,
    pairs: int = 4096,
) -> Planted:
    """Train a model of `task` to hold each variable at its site, and nothing elsewhere.

    Args:
        alignment: variable → site, such as "L0H1 @ 4", "L0 MLP @ answer" or "L1 resid_pre @ 2".
            Together the variables must determine every answer.
        config: of the model; vocabulary, positions and classes are the task's.
        seed: of the initial weights and of what is drawn.
        natural: train on the task alone; with the same seed, the twin that nobody constrained.
        steps: at most; training stops where what is asked for holds on a sample.
        pairs: that the alignment is verified on, where the task has more.

    Returns:
        The model, with what `verify` finds, "alignment" (variable → site), "seed", "steps" and
        "natural" as its truth, which is one only where "verified" is True. Training and
        verification draw from all splits.

    Raises:
        UnknownNameError: a variable that the task lacks. ParameterError: a site that cannot hold
            its variable, or variables that do not determine the answers.

    >>> import tasks
    >>> config = ModelConfig(d_model=16, n_heads=2, n_ctx=3, d_vocab=4, d_vocab_out=3)
    >>> plant = enforce(tasks.modular_arithmetic(p=3), {"answer": "L0 MLP @ 2"}, config, steps=1)
    >>> plant.truth["alignment"], plant.truth["verified"]
    ({'answer': 'L0 MLP @ 2'}, False)
    """
    sites = check_alignment(task, config, alignment)
    model, draw = HookedTransformer(config, seed=seed), rng("enforced", task.name, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr, betas=(0.9, 0.98), weight_decay=0.01)
    pool = _sample(task, POOL, seed)
    check = _sample(task, CHECKED, seed + 1), _sample(task, CHECKED, seed + 2)
    others, step = outside(config, sites), 0
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, step / 50, 1.1 - step / steps)
        index = torch.from_numpy(draw.integers(0, len(pool), (2, batch_size)))
        base, source = pool[index[0]], pool[index[1]]
        if natural:
            loss = _loss(model(base.tokens), base.targets, task)
        else:
            swapped = draw.permutation(list(sites))[: draw.integers(1, len(sites) + 1)].tolist()
            share = draw.choice([0.1, 0.5, 1.0])
            chosen = [one for one in others if draw.random() < share]
            loss = _strict_loss(model, task, base, source, sites, swapped, chosen)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % EVERY == 0:
            found = verify(model, task, sites, *check, one_by_one=False)
            if found["accuracy" if natural else "least"] > ENOUGH and (
                natural or verify(model, task, sites, *check)["least"] > ENOUGH
            ):
                break
    optimizer.zero_grad()
    truth = {
        "mechanism": "enforced by training",
        "alignment": {name: str(site) for name, site in sites.items()},
        **verify(model, task, sites, *_judged(task, pairs, seed)),
        **{"seed": seed, "steps": step, "natural": natural},
    }
    return Planted(Subject(model.eval(), task, provenance={"metrics": {"truth": truth}}), truth)


def _sample(task: Task, n: int, seed: int) -> Batch:
    """`n` examples of all splits: an alignment concerns every input."""
    if isinstance(task, FiniteTask):
        return task.sample(n, seed, "all")
    parts = [task.sample(n, seed, split) for split in SPLITS]
    return Batch.cat(parts)[torch.from_numpy(rng("splits", seed).permutation(3 * n)[:n])]


def _judged(task: Task, pairs: int, seed: int) -> tuple[Batch, Batch]:
    """All pairs of inputs where there are at most `pairs`, else as many drawn."""
    if isinstance(task, FiniteTask) and len(task.examples()) ** 2 <= pairs:
        index = torch.arange(len(task.examples()))
        both = torch.cartesian_prod(index, index)
        return task.examples()[both[:, 0]], task.examples()[both[:, 1]]
    return _sample(task, pairs, 2 * seed + 11), _sample(task, pairs, 2 * seed + 12)


# --- interventions --------------------------------------------------------------------------------
def _record(model: Any, tokens: Tensor, sites: Sequence[Site]) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits, and the whole activations at the hooks of the sites; differentiable."""
    found: dict[str, Tensor] = {}
    names = dict.fromkeys(site.hook for site in sites)
    hooks = [(name, lambda x, hook: found.update({hook.name: x})) for name in names]
    return model.run_with_hooks(tokens, fwd_hooks=hooks), found


def _exchange(
    model: Any, tokens: Tensor, *edits: tuple[Kept, Sequence[Sequence[Site]]]
) -> Float[Tensor, "copy example pos d_vocab_out"]:
    """Logits of copies of the inputs, in each of which some sites have other values.

    edits: the values, and for each copy the sites that take theirs; later ones over earlier ones.
    """
    copies, places = len(edits[0][1]), dict[str, list[tuple[Tensor, Tensor]]]()
    for values, chosen in edits:
        for name in dict.fromkeys(site.hook for sites in chosen for site in sites):
            mask = torch.zeros(copies, 1, *values[name].shape[1:], dtype=torch.bool)
            for row, sites in zip(mask[:, 0], chosen, strict=True):
                for site in sites:
                    if site.hook == name:
                        where: Any = (site.pos, list(site.units) or slice(None))
                        row[where] = True
            places.setdefault(name, []).append((mask, values[name]))

    def edit(x: Tensor, hook: Any) -> Tensor:
        x = x.unflatten(0, (copies, -1))
        for mask, value in places[hook.name]:
            x = torch.where(mask, value, x)
        return x.flatten(0, 1)

    hooks = [(name, edit) for name in places]
    return model.run_with_hooks(tokens.repeat(copies, 1), fwd_hooks=hooks).unflatten(
        0, (copies, -1)
    )


def _given(task: Task, source: Batch, names: Sequence[str]) -> dict[str, Tensor]:
    return {name: task.variables[name].value_of(source.tokens) for name in names}


def _strict_loss(
    model: HookedTransformer,
    task: Task,
    base: Batch,
    source: Batch,
    sites: Sites,
    swapped: Sequence[str],
    chosen: Sequence[Site],
) -> Float[Tensor, ""]:
    """Cross-entropy of both batches, and on the bases with an interchange of the variables
    `swapped`, and with the components `chosen` resampled.
    """
    n, both, every = len(base), Batch.cat([base, source]), list(sites.values())
    logits, kept = _record(model, both.tokens, [*every, *chosen])
    own, theirs = ({k: v[part] for k, v in kept.items()} for part in (slice(n), slice(n, None)))
    moved = [sites[name] for name in swapped]
    after = _exchange(model, base.tokens, (theirs, [moved, chosen]), (own, [[], every]))
    labels = task.targets(base.tokens, _given(task, source, swapped))
    wanted = torch.cat([labels, base.targets])
    return _loss(logits, both.targets, task) + 2 * _loss(after.flatten(0, 1), wanted, task)


def _loss(logits: Tensor, targets: Tensor, task: Task) -> Tensor:
    parts = enumerate(task.output_slices.values())
    return sum(
        F.cross_entropy(
            logits[..., part].flatten(0, 1), targets[..., i].flatten(), ignore_index=IGNORE
        )
        for i, part in parts
    )  # type: ignore[return-value]


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
    others, every = outside(model.config, sites), list(sites.values())
    lone = [[site] for site in others] if one_by_one else []
    parts: list[Tensor] = []
    for rows in torch.arange(len(base)).split(CHECKED):
        _, theirs = _record(model, source.tokens[rows], [*every, *others])
        logits, own = _record(model, base.tokens[rows], every)
        swaps = _exchange(model, base.tokens[rows], (theirs, [*([one] for one in every), every]))
        resampled = (theirs, [*lone, others]), (own, [every] * (len(lone) + 1))
        whole = torch.cat([logits[None], swaps, _exchange(model, base.tokens[rows], *resampled)])
        said = [whole[..., part].argmax(-1) for part in task.output_slices.values()]
        parts.append(torch.stack(said, -1))
    plain, *said = torch.cat(parts, 1)  # each (pair, pos, output)
    asked, interchange, changed = base.targets != IGNORE, dict[str, float](), dict[str, float]()
    for name, answers in zip([*sites, "all"], said, strict=False):
        wanted = task.targets(
            base.tokens, _given(task, source, [name] if name in sites else [*sites])
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
    if not _determine(task, list(sites)):
        names = ", ".join(sites) or "no variables"
        raise ParameterError(
            f"alignment of {task.name}: {names} do not determine the answers; align more variables"
        )
    return sites


def random_alignment(
    task: Task, config: ModelConfig, seed: int, variables: Sequence[str] | None = None
) -> dict[str, Site]:
    """Draw sites among the heads and MLPs that can hold the variables, no two in one component.

    variables: parents before children; when None, some drawn that together determine the answers,
    none of which can be left out, answers only where there are no others.

    Raises:
        ParameterError: the model has no such sites.

    >>> import tasks
    >>> config = ModelConfig(d_model=16, n_heads=2, n_ctx=6, d_vocab=8, d_vocab_out=2, n_layers=2)
    >>> drawn = random_alignment(tasks.palindromes(n=6, half_length=2), config, seed=1)
    >>> sorted(drawn)
    ['pair_0', 'pair_1']
    """
    draw = rng("alignment", task.name, seed)
    names = list(task.variables) if variables is None else list(variables)
    if variables is None:
        shuffled = draw.permutation(names).tolist()
        for name in sorted(shuffled, key=lambda name: name not in _final(task)):
            fewer = [one for one in names if one != name]
            names = fewer if _determine(task, fewer) else names
    everywhere = outside(config, {"": Site.mlp(config.n_layers - 1, config.n_ctx)})
    sites, missing = dict[str, Site](), ""
    for _ in range(100):  # sites drawn first may leave none for the last variables
        sites.clear()
        for name in names:
            taken = {(site.hook, site.units) for site in sites.values()}
            free = [site for site in everywhere if (site.hook, site.units) not in taken]
            fit = [site for site in free if not _unfit(task, config, name, site, sites)]
            if not fit:
                missing = name
                break
            sites[name] = fit[int(draw.integers(len(fit)))]
        if len(sites) == len(names):
            return sites
    raise ParameterError(f"alignment of {task.name}: no head or MLP is left for {missing}")


def _final(task: Task) -> set[str | None]:
    """Variables that are answers."""
    return {name for row in (task.own_program.answers if task.own_program else ()) for name in row}


def _determine(task: Task, names: Sequence[str]) -> bool:
    """Return whether inputs with equal variables have equal answers, on a sample."""
    sample = _sample(task, POOL, 0)
    keys = torch.stack([sample.tokens[:, 0] * 0, *_given(task, sample, names).values()], 1)
    whole = torch.cat([keys, sample.targets.flatten(1)], 1)
    return len(keys.unique(dim=0)) == len(whole.unique(dim=0))


def _answers(task: Task, name: str) -> list[int]:
    """Positions of the answers that the variable reaches."""
    positions, reached = (
        _sample(task, 1, 0).answers.positions[0].tolist(),
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
    answers, final, program = _answers(task, name), name in _final(task), task.own_program
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
