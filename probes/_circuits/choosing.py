"""Stand-ins, examples and graph of the circuits and attribution probes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool
from torch import Tensor

from mechint.config import ModelConfig, setting
from mechint.errors import DataError, ParameterError, counted, first_line
from mechint.interventions import EditedRuns, resumes
from mechint.models.protocol import describe
from mechint.probes._circuits.graph import Graph, Shape
from mechint.probes._circuits.scoring import ABLATIONS, Ablation
from mechint.subject.counterfactuals import (
    answered,
    asked_answer,
    choose_variable,
    pair_all,
    unpaired,
)
from mechint.subject.pairs import Pairs
from mechint.task import (
    FiniteTask,
    Variable,
    choose_answer,
)
from mechint.task.sides import sides

if TYPE_CHECKING:
    from mechint.probe import Probe
    from mechint.subject import Subject

ALL_INPUTS = 1 << 14
"""A circuit of a finite task with no more inputs is judged on all of them."""


def variable_setting() -> Any:
    """The setting `variable` of a probe that compares a base with a source."""
    return setting(None, "causal variable in which source and base differ; none: the whole answer")


def ablation_setting(replaced: str) -> Any:
    """The setting `ablation`: by what it is that `replaced` names is replaced."""
    return setting(
        None,
        f"what {replaced}; counterfactual where a variable is named, else mean",
        choices=ABLATIONS,
    )


def stand_in(
    probe: Probe,
    subject: Subject,
    ablation: str | None,
    variable: str | None,
    *,
    given_pairs: bool = False,
) -> tuple[Ablation, Variable | None]:
    """The stand-in for what is left out, and the variable that sources differ in, by the settings
    of a probe.

    given_pairs: pairs that the data state are taken unasked.

    Raises:
        ParameterError: a variable with no counterfactual, or a counterfactual of a task that names
            no variable.
    """
    paired = variable is not None or (
        given_pairs and bool(getattr(subject.known_task, "pairs", ()))
    )
    chosen = cast("Ablation", ablation or ("counterfactual" if paired else "mean"))
    if chosen != "counterfactual":
        if variable is not None:
            probe.reject("variable", f"none with ablation={chosen}")
        return chosen, None
    if not subject.known_task.variables:
        probe.reject("ablation", f"resample or mean: {subject.known_task.name} names no variables")
    return chosen, choose_variable(subject.known_task, variable)


def paired(
    subject: Subject,
    ablation: Ablation,
    variable: Variable | None,
    seed: int,
    only_correct: bool,
    least: int = 0,
) -> tuple[Pairs, float]:
    """Pairs in random order, those that are answered correctly with `only_correct`, and the share
    that is. Fewer than `least` examples have several sources each.

    Raises:
        DataError: they have fewer than two different bases.
    """
    task, data, parts = subject.known_task, subject.data, []
    rounds = max(1, math.ceil(least / max(len(data), 1)))
    for answer in _asked(subject, variable):
        if ablation == "mean":
            parts.append(unpaired(subject, data, answer))
            continue
        first = pair_all(subject, data, variable, seed, answer)
        parts.append(first)
        for round_seed in range(seed + 1, seed + rounds):
            other = pair_all(subject, data, variable, round_seed, answer)
            if torch.equal(other.source, first.source):
                break  # each example has one source, as prompts with one counterfactual
            parts.append(other)
    pairs = Pairs.cat(parts)
    right = answered(subject, pairs)
    share = float(right.double().mean()) if len(pairs) else 0.0
    # by a generator of the CPU, so that a GPU draws the same
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed))
    order = order.to(right.device)
    chosen = pairs[order[right[order]] if only_correct else order]
    if chosen.n_examples < 2:
        found = pairs.n_examples
        raise DataError(
            f"{subject.describe()}: of {len(data)} examples {found} have a source with another "
            f"answer, {pairs[right].n_examples} of these are answered correctly, and it takes two; "
            + (
                f"{task.when_wrong}, or set only_correct=false"
                if found > 1
                else "give it more examples"
            )
        )
    return chosen, share


def _asked(subject: Subject, variable: Variable | None) -> list[int | None]:
    """The answers that the subject is asked about: with "all", those that the variable reaches."""
    if subject.answer == "all":
        reached = None if variable is None else variable.answers
        return list(range(len(subject.answers)) if reached is None else reached)
    asked = asked_answer(subject)
    if variable is None:
        return [asked]
    return [choose_answer(subject.known_task, variable, asked)]


def split(
    subject: Subject, every: Pairs, searched: int, held_out: int, seed: int = 0
) -> tuple[Pairs, Pairs, Pairs]:
    """Pairs to search a circuit on, of half of all examples at most; pairs to judge it by, all of a
    finite task, else of other examples; and up to `searched` pairs of others, on which it is held
    against random circuits: on the examples of its search it would have the start of them. All
    pairs of one example are on one side, and every answer that several examples have on both. Where
    the inputs of a task are a sample (`FiniteTask.is_sample`), the sources of others are other
    examples, too.

    Raises:
        DataError: none can be searched on, or none held out.
    """
    task = subject.task
    finite, whole = isinstance(task, FiniteTask), False
    if isinstance(task, FiniteTask) and task.is_sample:
        found, inputs = sides(task, 1 / 2, seed), task.examples().tokens
        parts = (found.fitted, found.held_out)
        search, unseen = (every[every.made_of(inputs[part])] for part in parts)
    else:
        seen = _stratified(every, min(searched, every.n_examples // 2))
        search, unseen = every[seen], every[~seen]
        whole = finite and len(every) <= ALL_INPUTS
    search = search[:searched]
    if not (len(search) and len(unseen)):
        examples = counted(every.n_examples, "different example")
        raise DataError(
            f"{subject.describe()}: of {examples} {search.n_examples if len(search) else 0} can be "
            f"searched on and {unseen.n_examples if len(unseen) else 0} held out; expected some of "
            "each: give more examples"
        )
    return search, every if whole else unseen[:held_out], unseen[:searched]


def _stratified(pairs: Pairs, n: int) -> Bool[Tensor, " pair"]:
    """(pair,) which pairs are of `n` of the different examples, spread evenly over the answers, so
    that a rare answer stands on both sides.
    """
    examples, total = pairs.examples, pairs.n_examples
    first = torch.zeros(total, dtype=torch.int64, device=examples.device)
    rows = torch.arange(len(pairs), device=examples.device).flip(0)
    first[examples.flip(0)] = rows  # the first pair of each example
    answer = pairs.answers[first].unique(dim=0, return_inverse=True)[1]
    order = answer.argsort(stable=True)
    place = torch.arange(total + 1, device=examples.device) * n // total
    chosen = torch.zeros(total, dtype=torch.bool, device=examples.device)
    chosen[order] = place[1:] > place[:-1]
    return chosen[examples]


_shapes: WeakKeyDictionary[Any, ModelConfig | Shape | str] = WeakKeyDictionary()


def shape_of(model: Any) -> ModelConfig | Shape | str:
    """Shape that the graph of `model` is made from, or why none can be; found once, by runs of a
    bridge on a few tokens in which what heads and MLPs write has to add up to its stream.
    """
    if resumes(model):
        return model.config
    if model not in _shapes:
        try:
            _shapes[model] = _shape_of(model)
        except (ParameterError, NotImplementedError, KeyError) as error:  # the last two of bridges
            said = first_line(error, 120)
            _shapes[model] = f"edges between its components cannot be cut: {said}"
    return _shapes[model]


def _shape_of(model: Any) -> Shape:
    if not hasattr(model, "blocks"):
        raise ParameterError("a wrapped module shows no input of each head")
    device = next(model.parameters()).device
    stated = describe(model)
    n = min(4, stated.n_ctx or 4, stated.d_vocab or 4)
    tokens = torch.arange(n, device=device)[None]
    runs = EditedRuns(model, tokens, tokens[:, -1] * 0)
    first = "blocks.0."
    attn_only = f"{first}hook_mlp_out" not in model.hook_dict
    parallel = False
    for layer in range(runs.depth):
        block = f"blocks.{layer}."
        before, after = (runs.recorded(f"{block}hook_resid_{end}") for end in ("pre", "post"))
        heads, rest = runs.written_by(layer), after - before
        keys = runs.recorded(f"{block}hook_k_input").shape[2]
        rest = rest - heads.sum(-2)
        if not attn_only:
            read = runs.recorded(f"{block}hook_mlp_in")
            parallel = torch.equal(read, before)
            rest = rest - runs.recorded(f"{block}hook_mlp_out")
        if not (rest - rest[:, :1]).abs().max() <= 1e-4 * after.abs().max():
            raise ParameterError(
                f"block {layer} adds more to the residual stream than its heads and MLP write"
            )
    return Shape(runs.depth, before.shape[-1], heads.shape[2], keys, attn_only, parallel)


def graph_of(subject: Subject, pairs: Pairs, by_position: bool | None) -> Graph:
    """The graph of the subject's model, with an edge per position where `by_position` says so; when
    it is None, where positions have roles: a variable of the task stands at some, and all examples
    are read at the same one.
    """
    reads, config = tuple(pairs.reads.unique().tolist()), shape_of(subject.model)
    assert not isinstance(config, str)
    if by_position is None:
        variables = subject.known_task.variables.values()
        by_position = len(reads) == 1 and any(variable.positions for variable in variables)
    positions = reads[-1] + 1 if config.reads_back_only else pairs.base.shape[1]
    # position embeddings are the same in both runs, and so are all of their edges
    groups = positions if by_position else 1
    return Graph(config, groups, reads if by_position else (), ("pos",))
