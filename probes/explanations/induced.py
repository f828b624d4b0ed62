"""Programs that nobody told: what heads attend to, and a small function of what they bring."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from mechint.decide import Evidence, Skill
from mechint.explanation import Audit, Explanation, Family
from mechint.explanation.checks.composed import FAITHFUL, PAIRS
from mechint.explanation.functions import (
    CELL,
    Fitting,
    Function,
    ProgramVariable,
    best_function,
)
from mechint.explanation.measure import MIN_INPUTS, Bench
from mechint.explanation.propose import NoProgramError
from mechint.explanation.rules import (
    MIN_MASS,
    IndistinguishableRule,
    Inputs,
    Rule,
    Weights,
    changed_inputs,
    count_tokens,
    equal_rules,
    is_constant,
    last_of_set,
    read_positions,
    rules_for,
    weighted_tokens,
)
from mechint.explanation.source_program import (
    MAX_GROUPS,
    MAX_VARIABLES,
    Condition,
    SourceProgram,
    always,
    looks_apart,
    pattern_of,
    token_at,
)
from mechint.explanation.sources import (
    EMBEDDING,
    Group,
    Sources,
    compose,
    draw_rows,
    kept_without,
    missing_hooks,
    place_of,
)
from mechint.subject import Subject

MAX_HEADS, MAX_LAYERS, MAX_SYMBOLS = 48, 3, 1000
"""Heads of a model, layers with a head that matters, and tokens, at most."""
SEARCHED = 400
"""Inputs on which rules are compared."""
NEAR = 12
"""Rules nearest to a pattern that are tried at once."""
GOOD, TIE = 0.95, 0.05
"""Share of own answers from which no further rules are tried, and by which rules are alike."""
SILENT = 0.35
"""Share of inputs on which a rule may say nothing."""
OWN_WEIGHTS, MAX_READ = 0.25, 5
"""Distance that weights of its own count for, and positions that are read by such, at most."""
GAIN = 0.03
"""Share of own answers by which all heads together have to gain from another rule."""
BROUGHT = 0.15
"""Mean attention from which a position before a key brings its token there."""
SHIFT_GAIN, SHIFT_BELOW = 0.1, 0.9
"""Gain from a token beside the key, tried where a function fits fewer answers than the second."""
MODULI = (2, 3, 4)
"""Numbers modulo which the place of the answer is tried as a variable, where nothing else fits."""
MAX_BRANCHES, MAX_LISTED = 4, 4
"""Branches of a program, and tokens of the condition of one, at most."""
OWN = "its own token"
"""The rule of a head that attends to the answer's own position."""
OTHER = "other tokens"
"""Changed inputs that tell tokens apart which are tied in the prompts."""
COMPOSED_SETS = 2
"""Sets of composed inputs beside the natural ones, on which functions are fitted."""


class Induced(Family):
    """Which small program over what heads bring to the answer gives the model's own answers?

    It knows no task. Heads that matter are found, the rule by which each attends, and the smallest
    function of what they bring, on natural and on composed inputs.
    """

    name: ClassVar[str] = "induced"
    needs_program: ClassVar[bool] = False

    def applies(self, subject: Subject) -> bool:
        task, shape = subject.task, subject.model_description
        return (
            task is not None
            and len(task.outputs) == 1
            and isinstance(subject.answer, int)
            and subject.n_layers > 0
            and (shape.d_vocab or 0) <= MAX_SYMBOLS
            and not missing_hooks(subject)
        )

    def propose(self, bench: Bench) -> Iterator[Explanation]:
        sources = Sources(bench.subject, bench.fitted)
        if len(sources.heads) > MAX_HEADS:
            raise NoProgramError(f"programs are found of at most {MAX_HEADS} heads")
        found = branched(sources)
        if isinstance(found, Refusal):
            raise NoProgramError(found.reason)
        yield explanation_of(found, bench)

    def complete(self, bench: Bench, found: Audit) -> tuple[Explanation | None, tuple[str, ...]]:
        """Branches by the token at the answer, where no class of inputs asks for them."""
        program = found.explanation.over_sources
        if program is None or program.otherwise is not None:
            return None, ()
        made = split(Sources(bench.subject, bench.fitted), program)
        return (None, ()) if made is None else (explanation_of(made, bench), ("branches",))

    def carried(self, bench: Bench, found: Explanation) -> Explanation:
        assert found.over_sources is not None
        program = found.over_sources
        return explanation_of(carried(program, Sources(bench.subject, bench.fitted)), bench)


def explanation_of(program: SourceProgram, bench: Bench) -> Explanation:
    """The explanation by a program over sources."""
    program = looks_apart(Sources(bench.subject, bench.fitted), program)
    notes = [note for one in program.branches for note in one.notes()]
    pool = f"L0H{bench.subject.model_description.n_heads}"
    if any(pool in (*one.heads, *one.rest) for one in program.branches):
        notes.append(f"{pool} stands for the embeddings, which the readout pools")
    return Explanation(
        program.title,
        dataclasses.replace(program.steps(), answers=_rows(bench.subject)),
        tuple({str(part): part for one in program.branches for _, part in one.parts()}.values()),
        tuple({str(one): one for b in program.branches for one in b.routes()}.values()),
        Induced.name,
        notes=tuple(dict.fromkeys(notes)),
        over_sources=program,
    )


def _rows(subject: Subject) -> tuple[tuple[str | None, ...], ...]:
    """The step that gives each answer of an example: that which is asked about."""
    n = len(subject.answers)
    asked = subject.answer if isinstance(subject.answer, int) else -1
    return tuple(("answer" if index == asked % n else None,) for index in range(n))


@dataclass(frozen=True)
class Refusal:
    """The reason why there is no program, with the nearest one where there is one."""

    reason: str


def induce(sources: Sources) -> SourceProgram | Refusal:
    """A program of the model's own answers on these inputs, on which all of it is chosen."""
    if not len(sources):
        return Refusal("there are no inputs to fit a program on")
    if bool((sources.own == sources.own[0]).all()):
        return always(sources, Search(sources).inputs)
    return Search(sources).program()


def branched(sources: Sources, most: int = MAX_BRANCHES) -> SourceProgram | Refusal:
    """A program of all inputs, or where none gives nearly all answers, programs of classes of them,
    at most so many.
    """
    made = induce(sources)
    if most < 2 or len(sources) < 2 * MIN_INPUTS or fits(made, sources):
        return made
    return split(sources, made, most) or made


def fits(program: SourceProgram | Refusal, sources: Sources) -> bool:
    """Return whether a program gives nearly all of the model's own answers."""
    if isinstance(program, Refusal):
        return False
    right = program.right(sources.tokens, sources.at, sources.own)
    return float(right.double().mean()) >= GOOD


def split(
    sources: Sources, program: SourceProgram | Refusal, most: int = MAX_BRANCHES
) -> SourceProgram | None:
    """Programs of two classes of inputs, the second of which may be split again: by the condition
    that tells best where a program is wrong, or else by the token at the answer.
    """
    tokens, at = sources.tokens, sources.at
    for condition in conditions(sources, program):
        holds = condition.holds(tokens, at)
        if not MIN_INPUTS <= int(holds.sum()) <= len(holds) - MIN_INPUTS:
            continue
        one, others = (sources.among(flags) for flags in (holds, ~holds))
        first = induce(one)
        if not fits(first, one):
            continue
        second = branched(others, most - 1)
        if isinstance(first, Refusal) or isinstance(second, Refusal) or not fits(second, others):
            continue
        return dataclasses.replace(first, where=condition, otherwise=second)
    return None


def conditions(sources: Sources, program: SourceProgram | Refusal) -> Iterator[Condition]:
    """Conditions on the token at a place: that of which a program is wrong, where that tells it
    best; then each mark at the answer, or each token where there are few.
    """
    tokens, at, inputs = sources.tokens, sources.at, Search(sources).inputs
    found = list[tuple[float, Condition]]()
    if isinstance(program, SourceProgram):
        right = program.right(tokens, at, sources.own)
        for place in (-1, 0, 1, -2):
            if not -1 - int(at.min()) <= place <= int(at.min()):
                continue
            values, index = token_at(place, tokens, at).unique(return_inverse=True)
            hits = torch.zeros(len(values)).index_add_(0, index, right.float())
            wrong = hits < torch.bincount(index) / 2
            some = tuple(values[wrong if wrong.sum() <= len(wrong) / 2 else ~wrong].tolist())
            if 0 < len(some) <= MAX_LISTED:
                told = float((right != wrong[index]).double().mean())
                place = place if place >= 0 else inputs.counted(place)
                found.append((told, Condition(place, some)))
        found.sort(key=lambda one: -one[0])
        yield from (one for _, one in found[:1])
    own, counts = token_at(-1, tokens, at).unique(return_counts=True)
    marks = torch.isin(own, inputs.structural)
    asked = (counts >= MIN_INPUTS) & (marks | (len(own) <= MAX_LISTED))
    for token in own[asked][counts[asked].argsort()].tolist():
        yield Condition(inputs.counted(-1), (token,))


def carried(program: SourceProgram, sources: Sources) -> SourceProgram:
    """The program of another model with the heads of this one: each head that matters has, of the
    rules that the program has in its layer, the one nearest to its attention.

    Raises:
        NoProgramError: a variable is brought by no head that matters.
    """
    known: dict[str, dict[str, Rule]] = {}
    for head, rule in program.heads.items():
        known.setdefault(head.partition("H")[0], {})[rule.name] = rule
    search = Search(sources, {layer: tuple(rules.values()) for layer, rules in known.items()})
    rest = search.irrelevant()
    served = [h for h in sources.heads if h not in rest and h.partition("H")[0] in known]
    heads = search.rules(served) if served else {}
    groups = list[Group]()
    for group, variables in zip(program.groups, program.variables, strict=True):
        names = {program.heads[one].name for one in group.sources if one in program.heads}
        own = [EMBEDDING] if EMBEDDING in group.sources else []
        own += [head for head, rule in heads.items() if rule.name in names]
        if not own:
            listed = ", ".join(one.name for one in variables)
            raise NoProgramError(f"no head that matters attends to {', '.join(names)}: {listed}")
        groups.append(dataclasses.replace(group, sources=tuple(own)))
    used = {one for group in groups for one in group.sources}
    left = tuple(one for one in sources.names if one not in used and one not in heads)
    return dataclasses.replace(program, heads=heads, groups=tuple(groups), rest=left)


@dataclass
class Search:
    """The steps of a search, on inputs that the audit does not look at.

    among: layer ("L0") → the rules that its heads may follow; all when None. untold: rule → others
    that bring the same on all inputs.
    """

    sources: Sources
    among: Mapping[str, Sequence[Rule]] | None = None
    untold: dict[str, list[IndistinguishableRule]] = field(
        default_factory=dict[str, list[IndistinguishableRule]]
    )
    modulus: int = 0
    """The number modulo which the place of the answer is a variable of its own embedding, or 0."""

    @cached_property
    def inputs(self) -> Inputs:
        """The setting that rules are made for."""
        subject = self.sources.subject
        d_vocab = subject.model_description.d_vocab or int(self.sources.tokens.max()) + 1
        causal = subject.model_description.attention_dir != "bidirectional"
        return Inputs(self.sources.tokens, self.sources.at, causal, d_vocab)

    @cached_property
    def few(self) -> Sources:
        """The inputs on which rules are compared."""
        return self.sources.among(slice(SEARCHED))

    @cached_property
    def skill(self) -> Skill:
        """The model's own answers beside the most frequent one."""
        counts = self.sources.own.unique(return_counts=True)[1]
        return Skill(1.0, float(counts.max()) / len(self.sources), len(self.sources))

    def above(self, share: float) -> float:
        """A share of own answers above chance."""
        return self.skill.above(share)

    def program(self) -> SourceProgram | Refusal:
        """The whole search."""
        rest = self.irrelevant()
        relevant = [name for name in self.sources.names if name not in rest]
        if not relevant:
            return Refusal("no source matters: the answers follow from none of them")
        layers = {place_of(name)[0] for name in relevant if name != EMBEDDING}
        if len(layers) > MAX_LAYERS:
            most = f"programs are found of at most {MAX_LAYERS}"
            return Refusal(f"heads of {len(layers)} layers matter; {most}")
        rules = self.rules([name for name in relevant if name != EMBEDDING])
        made = self._with(rules, relevant, rest)
        best, fit = (made, 0.0) if isinstance(made, Refusal) else made
        for other, modulus in self._other_rules(rules):
            self.modulus = modulus
            if self.above(fit) >= SHIFT_BELOW:
                break
            again = self._with(other, relevant, rest)
            if not isinstance(again, Refusal) and again[1] > fit + SHIFT_GAIN:
                best, fit = again
        return best

    def _other_rules(self, rules: Mapping[str, Rule]) -> Iterator[tuple[Mapping[str, Rule], int]]:
        """Rules to try where no function of what these bring fits, each with a number modulo which
        the place of the answer is a variable: what was read by token is read by place, or heads of
        later layers bring the token before or after their key.
        """
        bags = [head for head, rule in rules.items() if rule.kind == "bag"]
        placed = {h: [r for r in self._fitted_rules(h) if r.weights == "own"] for h in bags}
        yield {**rules, **{head: some[0] for head, some in placed.items() if some}}, 0
        later = [rule for head, rule in rules.items() if place_of(head)[0] and rule.kind == "token"]
        moved = {
            r.name for r in later if not r.fixed or (r.name == OWN and self.inputs.aligned is None)
        }
        for name, by in itertools.product(sorted(moved), (-1, 1)):
            yield {h: r.shifted(by) if r.name == name else r for h, r in rules.items()}, 0
        yield from ((rules, modulus) for modulus in MODULI if self.inputs.aligned is None)

    # --- which sources, which keys ----------------------------------------------------------------
    def irrelevant(self) -> list[str]:
        """Sources that may all come from one other input, added one by one, the one that matters
        least first.
        """
        names, several = list(self.sources.names), self.sources.repeated(PAIRS)
        alone = {one: kept_without(several, [one]).share for one in names}
        found: list[str] = []
        for one in sorted(names, key=lambda name: -alone[name]):
            kept = kept_without(several, [*found, one])
            low = Evidence.share(kept.hits, kept.n).low
            if self.above(low) >= FAITHFUL.value:
                found.append(one)
        return found

    def rules(self, heads: Sequence[str]) -> dict[str, Rule]:
        """For each head the rule nearest to its attention among those that keep the answers, then
        one pass in which another rule takes its place where all heads together gain.
        """
        tried = {head: self._candidates(head) for head in heads}
        chosen = {head: found[0] for head, found in tried.items()}
        if len(heads) > 1 or self._kept(chosen) < GOOD:
            reached = self._kept(chosen)
            for head in heads:
                for other in tried[head][1:]:
                    kept = self._kept(chosen | {head: other})
                    if kept > reached + GAIN:
                        chosen[head], reached = other, kept
        return chosen

    @cached_property
    def library(self) -> list[Rule]:
        """Every rule for these inputs."""
        return rules_for(self.inputs)

    @cached_property
    def _tried(self) -> list[Rule]:
        """The rules that a head may follow: of one place in all inputs the position alone."""
        few = self.few
        return [
            rule
            for rule in self.library
            if rule.kind == "bag" or rule.fixed or not is_constant(rule.keys(few.tokens, few.at))
        ]

    def _candidates(self, head: str) -> list[Rule]:
        """Rules of a head, best first."""
        few, own = self.few, self.few.pattern(head)
        rules = self._rules_of(head)
        near: list[tuple[float, Rule]] = []
        for rule in rules:
            pattern = pattern_of(few, head, rule)
            silent = pattern.isnan().any(1)
            if float(silent.double().mean()) > SILENT:
                continue
            far = float((own - torch.where(silent[:, None], own, pattern)).abs().sum(1).mean()) / 2
            far += OWN_WEIGHTS * (rule.weights is not None) + float(silent.double().mean())
            near.append((far, rule))
        near = sorted(near, key=lambda one: one[0]) or [(1.0, rules[0])]
        kept: list[tuple[float, Rule]] = []
        for start in range(0, len(near), NEAR):
            for _, rule in near[start : start + NEAR]:
                kept.append((self._kept({head: rule}), rule))
            if max(share for share, _ in kept) >= GOOD:
                break
        top = max(share for share, _ in kept)
        good = [rule for share, rule in kept if share >= top - TIE]
        fitted = [rule for _, rule in kept if rule.weights is not None and rule not in good]
        return [*good[:4], *fitted]

    def _rules_of(self, head: str) -> list[Rule]:
        """The rules that a head may follow."""
        if self.among is None:
            return [*self._tried, *self._fitted_rules(head)]
        return [
            weighted_tokens(self.inputs, self.sources.pattern(head))
            if isinstance(rule.weights, Tensor)
            else rule
            for rule in self.among[head.partition("H")[0]]
        ]

    def _fitted_rules(self, head: str) -> Iterator[Rule]:
        """Rules whose constants are those of the head."""
        pattern, tokens, at = self.sources.pattern(head), self.sources.tokens, self.sources.at
        back = self.inputs.aligned is None  # places are then counted from the end of the shortest
        near = at[:, None] - torch.arange(int(at.min()), -1, -1) if back else None
        seen, own = (one if near is None else one.gather(1, near) for one in (pattern, tokens))
        shown = seen.mean(0) >= MIN_MASS
        moves = torch.tensor([len(column.unique()) > 1 for column in own.T])
        read = [shown & moves]
        if place_of(head)[0]:  # earlier layers bring tokens to a place whose own is always the same
            read.append(shown)
        for places in [(one.nonzero().flatten() - back * len(one)).tolist() for one in read]:
            if 1 < len(places) <= MAX_READ and self.inputs.causal >= back:
                yield read_positions(places)
        if len(self.inputs.operands) < SEARCHED // 4:
            yield weighted_tokens(self.inputs, pattern)
            if len(self.inputs.operands) > 2:
                yield last_of_set(self.inputs, pattern)

    def _kept(self, rules: Mapping[str, Rule]) -> float:
        """Share of own answers above chance that are kept when heads attend as rules say."""
        patterns = {head: pattern_of(self.few, head, rule) for head, rule in rules.items()}
        logits = self.few.logits(
            {head: self.few.attending(head, one) for head, one in patterns.items()}
        )
        return self.above(float((self.few.answers(logits) == self.few.own).double().mean()))

    # --- what they bring --------------------------------------------------------------------------
    def _with(
        self, rules: Mapping[str, Rule], relevant: Sequence[str], rest: Sequence[str]
    ) -> tuple[SourceProgram, float] | Refusal:
        """The program with these rules and the function that fits best, and the share of answers,
        natural and composed, that it gives.
        """
        self.untold.clear()
        groups, variables = self._groups(rules, relevant)
        if not groups:
            return Refusal("what the heads bring is the same in all inputs")
        if len(groups) > MAX_GROUPS or sum(map(len, variables)) > MAX_VARIABLES:
            n = max(len(groups), sum(map(len, variables)))
            return Refusal(f"heads bring {n} values together, too many to look for a program of")
        function, fit = best_function(self.fitting(groups, variables, rest))
        if function is None:
            return Refusal("no function of what the heads bring fits")
        if self._join_own(groups, variables, function, rules):
            function, fit = best_function(self.fitting(groups, variables, rest))
            assert function is not None
        for group, several in zip(groups, variables, strict=True):
            self._note_tied(group, several, function, rules)
        kept = [any(function.uses(one) for one in several) for several in variables]
        unused = [s for g, k in zip(groups, kept, strict=True) if not k for s in g.sources]
        program = SourceProgram(
            self.inputs,
            {head: rule for head, rule in rules.items() if head not in unused},
            tuple(g for g, k in zip(groups, kept, strict=True) if k),
            tuple(v for v, k in zip(variables, kept, strict=True) if k),
            function,
            (*rest, *unused),
            int(self.sources.own_logits.shape[1]),
            {
                rule.name: (
                    *(equal_rules(rule, self.library, self.inputs) if rule.weights is None else ()),
                    *self.untold.get(rule.name, ()),
                )
                for rule in rules.values()
            },
        )
        return program, fit

    def _join_own(
        self,
        groups: list[Group],
        variables: list[tuple[ProgramVariable, ...]],
        function: Function,
        rules: Mapping[str, Rule],
    ) -> bool:
        """Take the embedding from the input of a head whose key the token at the answer tells,
        where the function reads what that head brings alone: pairs of others are no input's.
        """
        own = next((i for i, one in enumerate(groups) if one.sources == (EMBEDDING,)), None)
        if own is None or any(function.uses(one) for one in variables[own]):
            return False
        for i, group in enumerate(groups):
            rule = rules.get(group.sources[0])
            if rule is None or rule.kind != "token" or self.inputs.own_python not in rule.python:
                continue
            groups[i] = dataclasses.replace(group, sources=(*group.sources, EMBEDDING))
            del groups[own], variables[own]
            return True
        return False

    def _groups(
        self, rules: Mapping[str, Rule], relevant: Sequence[str]
    ) -> tuple[list[Group], list[tuple[ProgramVariable, ...]]]:
        """Sources by the variables that they bring: by rule, and rules together whose values are
        the same on all inputs.
        """
        by_rule: dict[str, list[str]] = {}
        for name in sorted(relevant, key=lambda one: one == EMBEDDING):  # heads may bring its token
            by_rule.setdefault("" if name == EMBEDDING else rules[name].name, []).append(name)
        groups: list[Group] = []
        variables: list[tuple[ProgramVariable, ...]] = []
        seen: list[tuple[Tensor, ...]] = []
        for rule_name, names in by_rule.items():
            rule = None if not rule_name else rules[names[0]]
            taken = {one.name for several in variables for one in several}
            group, several = self._group(rule, names, len(groups), taken)
            weights = {name: rules[name].weights for name in names if name in rules}
            group = dataclasses.replace(group, weights=weights)
            values = group.value(self.sources.tokens, self.sources.at)
            found = tuple(one for one in values.values() if bool((one != one[0]).any()))
            if not found:
                continue
            same = [i for i, other in enumerate(seen) if among(found, other) or among(other, found)]
            if not same:
                groups.append(group)
                variables.append(several)
                seen.append(found)
                continue
            first = same[0]
            larger = len(found) > len(seen[first])
            self._note_untold(groups[first], group, rules)
            groups[first] = together(groups[first], group, larger)
            if larger:
                variables[first], seen[first] = several, found
        return groups, variables

    def _note_untold(self, first: Group, second: Group, rules: Mapping[str, Rule]) -> None:
        """Note rules that bring the same on all inputs, which changed ones would tell apart."""
        for words, tokens, at in changed_inputs(self.inputs):
            values = [tuple(one.value(tokens, at).values()) for one in (first, second)]
            if among(*values) or among(values[1], values[0]):
                continue
            names = [
                rules[one.sources[0]].name if one.sources[0] in rules else OWN
                for one in (first, second)
            ]
            example = tuple(tokens[0, : int(at[0]) + 1].tolist())
            for own, other in (names, names[::-1]):
                self.untold.setdefault(own, []).append(
                    IndistinguishableRule(other, words, example, True)
                )
            return

    def _note_tied(
        self,
        group: Group,
        several: Sequence[ProgramVariable],
        function: Function,
        rules: Mapping[str, Rule],
    ) -> None:
        """Note tokens that come together, and with no other input's, of which one tells another
        that the function takes: what it is made of is any of them.
        """
        if group.keys or len(several) < 2:
            return
        values = group.value(self.sources.tokens, self.sources.at)
        changed = next((t for words, t, _ in changed_inputs(self.inputs) if words == OTHER), None)
        if changed is None:
            return
        for used, other in itertools.permutations(several, 2):
            if not function.uses(used) or function.uses(other):
                continue
            pair = torch.stack([values[other.name], values[used.name]], 1).unique(dim=0)
            shown = len(values[other.name].unique())
            if shown == len(pair) and shown * CELL <= len(self.sources):
                name = f"{used.name} as a function of {other.name}"
                told = IndistinguishableRule(name, OTHER, tuple(changed[0].tolist()), True)
                for head in group.sources:
                    if head in rules:
                        self.untold.setdefault(rules[head].name, []).append(told)

    def _group(
        self, rule: Rule | None, names: Sequence[str], number: int, taken: set[str]
    ) -> tuple[Group, tuple[ProgramVariable, ...]]:
        """The group of some sources of one rule, the embedding for None, and its variables; a token
        that another group brings, too, has another name.
        """
        layers = [place_of(n)[0] for n in names if n != EMBEDDING]
        first = not layers or max(layers) == 0
        inputs, sources = self.inputs, tuple(names)
        places = self._places(rule)
        if places is not None and not first and self.inputs.aligned is not None:
            places = sorted({p for place in places for p in self.brought(place, max(layers))})
        if places is not None and not (len(places) == 1 and rule is None):
            said = [inputs.own_python if p == inputs.aligned else f"t[{p}]" for p in places]
            variables = tuple(
                ProgramVariable(f"v{number}_{p}" if text in taken else text, text)
                for p, text in zip(places, said, strict=True)
            )

            def tokens_at(tokens: Tensor, at: Tensor) -> dict[str, Tensor]:
                return {
                    v.name: token_at(p, tokens, at) for v, p in zip(variables, places, strict=True)
                }

            keys = tuple(places) if first and rule is not None and rule.weights == "own" else ()
            return Group(sources, tokens_at, keys), variables
        name = f"v{number}"
        if rule is None or rule.name == OWN:
            own = inputs.own_python
            one, k = ProgramVariable(f"v{number}" if own in taken else own, own), self.modulus
            place = (ProgramVariable(f"v{number}_{k}", f"len(t) % {k}"),) * (rule is None and k > 0)

            def at_answer(tokens: Tensor, at: Tensor) -> dict[str, Tensor]:
                return {one.name: inputs.own(tokens, at)} | {v.name: (at + 1) % k for v in place}

            return Group(sources, at_answer), (one, *place)
        one = ProgramVariable(name, rule.python, rule.kind)
        if rule.kind == "token":
            return Group(sources, lambda t, at: {name: rule.token(t, at)}), (one,)

        def bag(tokens: Tensor, at: Tensor) -> dict[str, Tensor]:
            shown = rule.keys(tokens, at) & inputs.is_operand(tokens, at)
            return {name: count_tokens(tokens, shown, inputs.d_vocab)}

        by_half = first and rule.name in BY_HALF
        mask = inputs.is_operand if by_half else None
        return Group(sources, bag, mask=mask), (one,)

    def _places(self, rule: Rule | None) -> list[int] | None:
        """The positions that a rule reads, where they are the same in all inputs, or counted back
        from the answer.
        """
        aligned, at = self.inputs.aligned, self.sources.at[:1]
        if rule is None:
            return None if aligned is None else [aligned]
        if not rule.fixed or (aligned is None and rule.weights != "own"):
            return None
        mask = rule.keys(self.sources.tokens[:1], at)[0]
        return (mask.nonzero().flatten() - (aligned is None) * (int(at) + 1)).tolist()

    def brought(self, place: int, layer: int) -> set[int]:
        """Positions whose tokens heads of layers before `layer` bring to a place, itself included,
        of those whose token is not the same in all inputs.
        """
        found = {place}
        for lower in range(layer):
            hook = f"blocks.{lower}.attn.hook_pattern"
            pattern = self.sources.subject.activation(hook, place)
            mean = pattern[self.sources.rows.to(pattern.device)].mean(0).cpu()
            for key in (mean >= BROUGHT).any(0).nonzero().flatten().tolist():
                found |= self.brought(key, lower)
        tokens = self.sources.tokens
        return {p for p in found if bool((tokens[:, p] != tokens[0, p]).any())}

    # --- functions --------------------------------------------------------------------------------
    def fitting(
        self,
        groups: Sequence[Group],
        variables: Sequence[tuple[ProgramVariable, ...]],
        rest: Sequence[str],
    ) -> Fitting:
        """Natural inputs, and inputs whose every source comes from an input of its own."""
        made = [compose(self.sources, groups, {})]
        logits = [self.sources.own_logits]
        for number in range(COMPOSED_SETS):
            rows = {
                i: draw_rows(self.sources, group, "fitted", number, i)
                for i, group in enumerate(groups)
            }
            made.append(compose(self.sources, groups, rows, rest, "fitted", number))
            logits.append(self.sources.logits(made[-1].taken))
        kept = torch.cat([one.possible for one in made])
        values = {n: torch.cat([one.values[n] for one in made])[kept] for n in made[0].values}
        flat = tuple(one for several in variables for one in several)
        answers = self.sources.answers(torch.cat(logits)[kept])
        return Fitting(flat, values, answers, self.inputs, len(self.sources))


def among(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Return whether all of some variables are the same as others on all inputs."""
    return all(
        any(one.shape == other.shape and torch.equal(one, other) for other in others)
        for one in some
    )


def together(first: Group, second: Group, larger: bool) -> Group:
    """Two groups of which one brings no more than the other, taken from one input; larger: the
    second one brings more.
    """
    sources = (*first.sources, *second.sources)
    alike = first.keys == second.keys and (first.mask is None) == (second.mask is None)
    # the token of the answer's own position is a key of heads that bring it, too
    alike |= bool(first.keys) and second.sources == (EMBEDDING,)
    value = second.value if larger else first.value
    mask = first.mask if alike else None
    weights: dict[str, Weights] = {**first.weights, **second.weights}
    return Group(sources, value, first.keys if alike else (), mask, weights)


BY_HALF = ("all tokens", "all operands", "all earlier tokens", "all tokens, weighted by token")
"""Rules that read every operand, so that half of these may come from another input."""
