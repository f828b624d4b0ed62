"""Counterfactual pairs that a model answers: what interchange interventions and activation patching
are measured on.

An intervention on a pair that the model gets wrong says nothing about its algorithm, so such pairs
are left out. At most half of the independent pairs leave the answer as it is: an intervention that
does nothing then scores one half, not more.

Cost: two forwards per pair drawn.
"""

from __future__ import annotations

from collections import Counter

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mechint.errors import DataError
from mechint.subject import Subject
from mechint.subject.pairs import Pairs, differences
from mechint.task import (
    IGNORE,
    Batch,
    Counterfactuals,
    Relation,
    Task,
    Variable,
    choose_answer,
    find_variable,
    rng,
)
from mechint.task.truth import ROUNDS, candidates, fitting, minimal_sources


def choose_variable(task: Task, name: str | None) -> Variable:
    """The causal variable `name` of `task`, its first one when None; UnknownNameError for a name it
    lacks.
    """
    return next(iter(task.variables.values())) if name is None else find_variable(task, name)


def asked_answer(subject: Subject) -> int | None:
    """The `answer` of `draw` that the subject is asked about; None where it says no more than the
    last one.
    """
    return None if subject.answer in (-1, "all") else int(subject.answer)


def asked_of(subject: Subject, variable: Variable) -> str:
    """The name of the answer that pairs of a variable are read at; "" where an example has one."""
    task = subject.task
    if task is None or task.n_answers < 2:
        return ""
    return task.answer_names[choose_answer(task, variable, asked_answer(subject))]


def draw(
    subject: Subject,
    variable: Variable,
    n: int,
    seed: int,
    *,
    only_correct: bool = True,
    relation: Relation | str = Relation.INDEPENDENT,
    answer: int | None = None,
    among: Batch | None = None,
    least: int | None = None,
) -> Pairs:
    """`n` different pairs for an interchange of `variable`, in random order.

    Args:
        only_correct: only pairs whose base and source the model answers correctly in every output,
            and the base changed to the source's value of the variable, too, where there is such an
            input: what an interchange can give at most is then all of them.
        relation: what the source is to the base. "minimal": the variable differs and as little
            else as the task allows, the answer changes, and is read at one position; where the
            variable has fixed positions the label is the source's own answer. "independent": an
            example drawn whatever the base is (see `Relation`). "same": the variable, and so the
            label, is the base's own while the inputs differ, the control of an interchange.
        answer: index of the answer that pairs are about; the last one the variable reaches when
            None.
        among: the examples that independent pairs are made of; the task's own when None.
        least: as many will do where a small task has no more; `n` when None.

    Where the task states its minimal pairs one by one, all of them where they are fewer than `n`.

    Raises:
        NotApplicableError: the answer cannot depend on the variable.
        DataError: fewer than `least` such pairs among ``ROUNDS * n`` drawn, or none of those
            stated; says what was missing.
    """
    task = subject.task
    assert task is not None
    relation, index = Relation(relation), choose_answer(task, variable, answer)
    stated = task.stated_pairs(variable) if relation is Relation.MINIMAL else None
    if stated is not None:
        return _stated(subject, variable, stated, n, seed, only_correct, index)
    kept: list[Pairs] = []
    limit = {Relation.MINIMAL: 0, Relation.INDEPENDENT: n // 2, Relation.SAME: n}
    room = {True: n, False: limit[relation]}
    seen: set[tuple[int, ...]] = set()
    tally = Counter(drawn=0, fitting=0, correct=0)
    for part in range(ROUNDS):
        drawn = candidates(
            task, variable, n, ROUNDS * seed + part, task.probe_split, relation, among=among
        )
        pairs = _fitting(subject, drawn, relation, index, tally)
        keep = _right(subject, variable, pairs, only_correct)
        tally["correct"] += int(keep.sum())
        kept.append(pairs[_choose(pairs, keep, room, seen)])
        if sum(map(len, kept)) == n:
            return _shuffled(Pairs.cat(kept), seed)
        if tally["drawn"] >= 2 * n and not tally["fitting"]:
            break  # what two rounds do not show at all is not there
    found = _balanced(Pairs.cat(kept), relation)
    if len(found) >= (n if least is None else least):
        return _shuffled(found, seed)
    tally["kept"] = len(found)
    of = "" if among is None else f" of {len(among)} examples"
    raise DataError(
        f"{subject.describe()}: {tally['kept']} of {n} pairs{of} for the variable "
        f"{variable.name} at the answer {task.answer_names[index]}: "
        f"{_missing(tally, relation, only_correct, task, among, least)}"
    )


def _shuffled(pairs: Pairs, seed: int) -> Pairs:
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed))
    return pairs[order.to(pairs.base.device)]


def _balanced(pairs: Pairs, relation: Relation) -> Pairs:
    """All of the pairs, but of independent ones no more that keep the answer than change it."""
    if relation is not Relation.INDEPENDENT or not len(pairs):
        return pairs
    changed = pairs.changed.any(-1)
    few = (~changed).cumsum(0) <= changed.sum()
    return pairs[changed | few]


def _right(
    subject: Subject, variable: Variable, pairs: Pairs, only_correct: bool
) -> Bool[Tensor, " pair"]:
    """(pair,) which pairs are kept: those answered correctly, counterfactual included; or all."""
    if not only_correct:
        return torch.ones_like(pairs.reads).bool()
    return answered(subject, pairs) & counterfactual_answered(subject, variable, pairs)


def counterfactual_answered(
    subject: Subject, variable: Variable, pairs: Pairs
) -> Bool[Tensor, " pair"]:
    """(pair,) bool: the model gives the label to the base in which the variable alone has the
    source's value; True where there is no such input.
    """
    values = variable.value_of(pairs.source)
    if variable.change is not None:
        tokens = variable.change(pairs.base, values)
    elif variable.positions:
        tokens, where = pairs.base.clone(), list(variable.positions)
        tokens[:, where] = pairs.source[:, where]
    else:
        return torch.ones_like(pairs.reads).bool()
    made = variable.value_of(tokens) == values
    return ~made | _answered(subject, tokens, pairs.reads, pairs.labels, pairs.answers)


def _stated(
    subject: Subject,
    variable: Variable,
    stated: Counterfactuals,
    n: int,
    seed: int,
    only_correct: bool,
    answer: int,
) -> Pairs:
    """At most `n` of the stated pairs, in random order."""
    assert subject.task is not None
    tally = Counter(drawn=0, fitting=0)
    pairs = _fitting(subject, stated, Relation.MINIMAL, answer, tally)
    keep = _right(subject, variable, pairs, only_correct)
    if not bool(keep.any()):
        raise DataError(
            f"{subject.describe()}: of {len(stated.base)} stated pairs {len(pairs)} change the "
            f"answer, none of them with both answers right; {subject.task.when_wrong}, or set "
            "only_correct=false"
        )
    return _shuffled(pairs[keep], seed)[:n]


def pair_all(
    subject: Subject, base: Batch, variable: Variable | None, seed: int, answer: int | None = None
) -> Pairs:
    """Every example of `base` that can be, paired with a source that changes its answer, in order.

    Args:
        variable: the source differs from the base in it and in as little else as the task allows;
            None: the source is another example of `base`, drawn among those whose answer is read
            at the same position (resampling), and the label is its answer.
        answer: index of the answer that pairs are about; the last one where None.

    Pairs are not selected by what the model answers; see `answered`.
    """
    task = subject.task
    assert task is not None
    index = -1 if answer is None else answer
    reads, answers = base.answers.at(index)
    other = base[partners(reads, seed)]
    source = other
    if variable is not None:
        source = minimal_sources(task, variable, base, other, seed, task.probe_split)
    source_reads, source_answers = source.answers.at(index)
    labels = source_answers
    if variable is not None:
        wanted = variable.label(base.tokens, variable.value_of(source.tokens))
        labels = wanted[torch.arange(len(base), device=reads.device), reads.clamp_min(0)]
    parts = (base.tokens, source.tokens, reads, source_reads, answers, source_answers, labels)
    pairs = Pairs(*parts, base.lengths)
    fits = (reads == source_reads) & (reads != IGNORE)
    fits &= (pairs.changed & (answers != IGNORE)).any(-1)
    return pairs[fits].to(subject.device)


def unpaired(subject: Subject, base: Batch, answer: int | None = None) -> Pairs:
    """Every example of `base` that has the answer, as its own source: for what is compared with a
    mean over examples.
    """
    reads, answers = base.answers.at(-1 if answer is None else answer)
    parts = (base.tokens, base.tokens, reads, reads, answers, answers, answers)
    return Pairs(*parts, base.lengths)[reads != IGNORE].to(subject.device)


def partners(reads: Int[Tensor, " example"], seed: int | None) -> Int[Tensor, " example"]:
    """(example,) another example whose answer is read at the same position, each taken once; the
    example itself where there is no other.

    seed: of the random order in which each is given the one before it; None: as they stand.

    >>> partners(torch.tensor([2, 2, 4, 2]), None).tolist()
    [3, 0, 2, 1]
    """
    generator = None if seed is None else rng("partners", seed)
    result = torch.arange(len(reads))
    for position in reads.unique().tolist():
        members = (reads == position).nonzero().flatten().cpu()
        if generator is not None:
            members = members[torch.from_numpy(generator.permutation(len(members)))]
        result[members] = members.roll(1)
    return result.to(reads.device)


def _missing(
    tally: Counter[str],
    relation: Relation,
    only_correct: bool,
    task: Task,
    among: Batch | None,
    least: int | None,
) -> str:
    """The thing that ran out, and the remedy."""
    drawn, fit, correct = tally["drawn"], tally["fitting"], tally["correct"]
    kind = {
        Relation.MINIMAL: "change the answer",
        Relation.INDEPENDENT: "have the answer",
        Relation.SAME: "keep the variable",
    }[relation]
    if not fit:
        return f"of {drawn} drawn none can {kind}; ask about another variable or answer"
    counts = f"of {drawn} drawn {fit} {kind}"
    if only_correct:
        counts += f", {correct} of these are answered correctly"
    if only_correct and 2 * correct < fit:
        return f"{counts}; {task.when_wrong}, or set only_correct=false"
    alike = "too many of them alike"
    if relation == Relation.INDEPENDENT:
        alike += ", or with one answer on both sides"
    if least is not None:
        return f"{counts}, {alike}; at least {least} are needed: ask about another variable"
    both = " in all (pairs plus held_out, where there is one)" if among is None else ""
    return f"{counts}, {alike}; ask for at most {tally['kept']}{both}"


def _choose(
    pairs: Pairs, keep: Tensor, room: dict[bool, int], seen: set[tuple[int, ...]]
) -> list[int]:
    """Indices of new pairs among those to `keep`; `room` says how many more there may be, in all
    and of unchanged ones.
    """
    chosen = []
    changes = pairs.changed.any(-1).tolist()
    keys = torch.cat((pairs.base, pairs.source), 1).tolist()
    for index in keep.nonzero().flatten().tolist():
        key = tuple(keys[index])
        if room[True] and (changes[index] or room[False]) and key not in seen:
            seen.add(key)
            chosen.append(index)
            room[True] -= 1
            room[False] -= not changes[index]
    return chosen


def _fitting(
    subject: Subject, drawn: Counterfactuals, relation: Relation, answer: int, tally: Counter[str]
) -> Pairs:
    """Those of the pairs drawn that are what `relation` promises and have the answer; `tally`
    counts both.
    """
    n = len(drawn.base)
    reads, answers = drawn.base.answers.at(answer)
    source_reads, source_answers = drawn.source.answers.at(answer)
    fits = fitting(drawn, relation, answer) & (reads != IGNORE) & (source_reads != IGNORE)
    if relation == Relation.MINIMAL:
        fits &= reads == source_reads
    tally["drawn"] += n
    tally["fitting"] += int(fits.sum())
    labels = drawn.labels[torch.arange(n, device=reads.device), reads.clamp_min(0)]
    parts = (drawn.base.tokens, drawn.source.tokens, reads, source_reads, answers, source_answers)
    return Pairs(*parts, labels, drawn.base.lengths)[fits].to(subject.device)


def answered(subject: Subject, pairs: Pairs) -> Bool[Tensor, " pair"]:
    """(pair,) bool: base and source are both answered correctly in every output that is read;
    where the task says which answers theirs are held against, above the other's, if that differs.
    """
    base, source = pairs.answers, pairs.source_answers
    right = _answered(subject, pairs.base, pairs.reads, base, source)
    return right & _answered(subject, pairs.source, pairs.source_reads, source, base)


def _answered(
    subject: Subject,
    tokens: Int[Tensor, "pair pos"],
    reads: Int[Tensor, " pair"],
    targets: Int[Tensor, "pair output"],
    others: Int[Tensor, "pair output"],
) -> Bool[Tensor, " pair"]:
    task = subject.task
    assert task is not None
    by_pair = task.wrong_answers(tokens) is not None
    pairs = Pairs(tokens, tokens, reads, reads, targets, targets, others)
    result = torch.ones(len(tokens), dtype=torch.bool, device=subject.device)
    for rows in torch.arange(len(tokens), device=subject.device).split(subject.chunk):
        difference, logits = differences(subject.model, task, pairs[rows])
        right = subject.correct(logits, targets[rows])
        if by_pair:
            right = torch.where(targets[rows] == others[rows], right, difference[:, None] < 0)
        result[rows] = (right | (targets[rows] == IGNORE)).all(-1)
    return result
