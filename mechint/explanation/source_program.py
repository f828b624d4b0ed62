"""A program over the sources of an answer.

A program says of each head that matters which keys it attends to, of the variables that sources
bring a function that gives the answer, and of all other sources that they do not matter. It knows
no task: what is explained is the model's own answer. Its tests are in
`mechint.explanation.checks.composed`.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.explanation.code import MAIN_OF_ROWS, run_rows
from mechint.explanation.functions import Function, ProgramVariable, named
from mechint.explanation.measure import failing_class
from mechint.explanation.parts import AT, Part, Route
from mechint.explanation.rules import (
    MAX_POSITIONS,
    NOTHING,
    IndistinguishableRule,
    Inputs,
    Rule,
    count_tokens,
    is_constant,
)
from mechint.explanation.sources import EMBEDDING, Group, Sources, Values, place_of
from mechint.interventions import Site
from mechint.task import Program, Step

MAX_TITLE = 60
"""Letters of an answer up to which variables are written out in a title."""
TIES = ", but for ties"
"""Of a title, where several answers are tied on some inputs, and it is not said which comes."""
WHATEVER = ", for all of these inputs"
"""The end of the title of a constant."""
MAX_COMPARED = 8
"""Places from each end whose tokens are compared, in classes of inputs."""
MOSTLY = 0.75
"""Share of inputs on which half of the attention of a head that *attends* is on its keys."""
MAX_GROUPS, MAX_VARIABLES = 4, 6
"""Groups of sources and variables of a program, at most."""


@dataclass(frozen=True)
class Condition:
    """A condition on the token at a place, counted as in Python up to the answer.

    >>> rows, at = torch.tensor([[3, 1, 2], [3, 4, 0]]), torch.tensor([2, 1])
    >>> str(Condition(-1, (2,))), Condition(-1, (2,)).holds(rows, at).tolist()
    ('t[-1] == 2', [True, False])
    """

    place: int
    tokens: tuple[int, ...]

    def __str__(self) -> str:
        (first, *more) = self.tokens
        return f"t[{self.place}] {f'in {set(self.tokens)}' if more else f'== {first}'}"

    def holds(
        self, tokens: Int[Tensor, "example pos"], at: Int[Tensor, " example"]
    ) -> Bool[Tensor, " example"]:
        """Flags of the inputs on which it holds."""
        return torch.isin(token_at(self.place, tokens, at), torch.tensor(self.tokens))


def token_at(
    place: int, tokens: Int[Tensor, "example pos"], at: Int[Tensor, " example"]
) -> Int[Tensor, " example"]:
    """The token at a place, counted back from the answer where it is negative; `NOTHING` before the
    first one.
    """
    spot = at * 0 + place if place >= 0 else at + place + 1
    return tokens.gather(1, spot.clamp(min=0)[:, None])[:, 0].where(spot >= 0, NOTHING)


@dataclass(frozen=True)
class SourceProgram:
    """A program over sources.

    heads: head that matters → its rule. groups: sources that bring the same variables; variables:
    of each group. function: of all variables. rest: sources that are said not to matter. inputs:
    what the rules were made for. equal: rule → rules that have the same keys on all prompts. where,
    otherwise: the inputs that it is of, and the program of all others; None where it is of all.
    apart: heads that mostly attend elsewhere, of all inputs or a class, though answers are kept
    when they attend by their rules.
    """

    inputs: Inputs
    heads: Mapping[str, Rule]
    groups: tuple[Group, ...]
    variables: tuple[tuple[ProgramVariable, ...], ...]
    function: Function
    rest: tuple[str, ...]
    n_answers: int = 0
    equal: Mapping[str, tuple[IndistinguishableRule, ...]] = field(
        default_factory=dict[str, tuple[IndistinguishableRule, ...]]
    )
    where: Condition | None = None
    otherwise: SourceProgram | None = None
    apart: frozenset[str] = frozenset()

    @property
    def branches(self) -> tuple[SourceProgram, ...]:
        """The program and those of the inputs on which its condition does not hold, in order."""
        return (self, *(self.otherwise.branches if self.otherwise is not None else ()))

    def values(self, tokens: Int[Tensor, "example pos"], at: Int[Tensor, " example"]) -> Values:
        """Every variable of inputs whose answers are at these positions."""
        found: dict[str, Tensor] = {}
        for group in self.groups:
            found.update(group.value(tokens, at))
        return found

    def answer(
        self, tokens: Int[Tensor, "example pos"], at: Int[Tensor, " example"]
    ) -> Int[Tensor, " example"]:
        """The answers of the program; -1 where it says nothing."""
        found = self.function.compute(self.values(tokens, at)).expand(len(at))
        if self.where is None or self.otherwise is None:
            return found
        return torch.where(self.where.holds(tokens, at), found, self.otherwise.answer(tokens, at))

    def right(
        self, tokens: Int[Tensor, "example pos"], at: Int[Tensor, " example"], own: Tensor
    ) -> Bool[Tensor, " example"]:
        """Flags of the answers that are those of the program, or one of several that are tied."""
        found = self.function.gives(self.values(tokens, at), own)
        if self.where is None or self.otherwise is None:
            return found
        other = self.otherwise.right(tokens, at, own)
        return torch.where(self.where.holds(tokens, at), found, other)

    def classes(
        self, tokens: Int[Tensor, "example pos"], at: Int[Tensor, " example"]
    ) -> dict[str, Tensor]:
        """Classes of inputs, as `failing_class` takes them: by each token from both ends, tokens
        that are there, length, the program's answer, the value of each variable, and two tokens or
        variables that are equal.
        """
        shown = self.inputs.visible(tokens, at)
        found = {
            "length {}": at + 1,
            "its answer {}": self.answer(tokens, at),
            "{} among the tokens": count_tokens(tokens, shown, self.inputs.d_vocab) > 0,
        }
        places = range(min(int(at.min()) + 1, MAX_POSITIONS))
        both = [(self.inputs.counted(-1 - p), p) for p in places]
        named = {f"t[{i}]": token_at(i, tokens, at) for ends in both for i in ends}
        values = self.values(tokens, at) if self.otherwise is None else {}
        for name, value in values.items():
            if value.dim() == 1:
                named[name] = value
            else:
                first, second = value.topk(2).values.T
                found[f"a lead of {{}} in {name}"] = first - second
        found |= {f"{name} == {{}}": value for name, value in named.items()}
        near = [*list(named.items())[: 2 * MAX_COMPARED], *list(named.items())[2 * len(places) :]]
        for (name, value), (other, another) in itertools.combinations(near, 2):
            found[f"{name} == {other}"] = (value == another)[:, None]
        return found

    @property
    def ambiguous(self) -> dict[str, str]:
        """Head → the reason for which the prompts tell nothing of its rule."""
        found = dict[str, str]()
        for head, rule in self.heads.items():
            for one in self.equal.get(rule.name, ()):
                if one.differs:
                    found[head] = (
                        f"{rule.name} and {one.name} are the same on all prompts; give {one.by}"
                    )
        return found

    @property
    def ambiguous_claims(self) -> set[str]:
        """The routes of these heads, and the parts that they bring."""
        heads = self.ambiguous
        groups = [i for i, one in enumerate(self.groups) if heads.keys() & set(one.sources)]
        parts = {claim for i in groups for claim in self.part_claims(i)}
        return parts | set(self.route_claims(list(heads)))

    def part_claims(self, index: int | None = None) -> tuple[str, ...]:
        """The parts of one group, or of all, as an audit names them."""
        return tuple(str(one) for i, one in self.parts() if index in (None, i))

    def route_claims(self, heads: Collection[str] | None = None) -> tuple[str, ...]:
        """The routes of some heads, or of all, as an audit names them."""
        return tuple(
            str(one)
            for one in self.routes()
            if heads is None or any(f"L{one.layer}H{h}" in heads for h in one.heads)
        )

    def parts(self) -> list[tuple[int, Part]]:
        """(group, part): the sites of a group's sources, the heads of a layer together."""
        found = list[tuple[int, Part]]()
        if not self.groups:
            return [(0, Part("nothing", Site("blocks.0.hook_resid_pre", "answer"), ()))]
        for index, (group, several) in enumerate(zip(self.groups, self.variables, strict=True)):
            variables = [one for one in several if self.function.uses(one)]
            names = tuple(one.name for one in variables)
            said = {one.name: one.python for one in variables}
            by_layer: dict[int, list[int]] = {}
            for source in group.sources:
                if source == EMBEDDING:  # it holds its own token alone
                    own = [v.name for v in variables if v.python == self.inputs.own_python]
                    held = tuple(own) or names
                    site = Site("blocks.0.hook_resid_pre", "answer")
                    found.append((index, Part(", ".join(said[one] for one in held), site, held)))
                else:
                    layer, head = place_of(source)
                    by_layer.setdefault(layer, []).append(head)
            for layer, heads in by_layer.items():
                site = Site.of("head", layer, "answer", tuple(sorted(heads)))
                found.append((index, Part(", ".join(said.values()), site, names)))
        return found

    def routes(self) -> list[Route]:
        """One a rule and layer."""
        by_rule: dict[tuple[int, str, bool], list[int]] = {}
        for head, rule in self.heads.items():
            layer, index = place_of(head)
            by_rule.setdefault((layer, rule.name, head in self.apart), []).append(index)
        rules = {rule.name: rule for rule in self.heads.values()}
        return [
            Route(
                f"{'may attend' if apart else 'attend' + 's' * (len(heads) == 1)} to {name}",
                layer,
                tuple(sorted(heads)),
                lambda tokens, values, rule=rules[name]: rule.key(tokens, values[AT]),
            )
            for (layer, name, apart), heads in by_rule.items()
        ]

    def steps(self) -> Program:
        """The same as a causal program: a step for each variable, and one for the answer; that
        alone where there are branches.
        """
        made, inputs, n_answers = list[Step](), self.inputs, int(self.n_answers)
        if self.otherwise is not None:

            def whole(tokens: Tensor) -> Tensor:
                return self.answer(tokens, self._at(tokens))

            return Program(self.title, (Step("answer", n_answers, whole),), (("answer",),))
        for group, variables in zip(self.groups, self.variables, strict=True):
            for one in variables:

                def compute(tokens: Tensor, group: Group = group, name: str = one.name) -> Tensor:
                    return group.value(tokens, self._at(tokens))[name]

                made.append(Step(one.name, inputs.d_vocab, compute, description=one.python))
        names = tuple(step.name for step in made)

        def answer(tokens: Tensor, *values: Tensor) -> Tensor:
            return self.function.compute(dict(zip(names, values, strict=True)))

        made.append(Step("answer", n_answers, answer, names, self.function.python))
        return Program(self.title, tuple(made), (("answer",),))

    def _at(self, tokens: Tensor) -> Tensor:
        """The positions of the answers of these tokens, known of the program's own inputs."""
        last = self.inputs.aligned
        if last is not None:
            return torch.full((len(tokens),), last)
        known = {
            tuple(row): int(at)
            for row, at in zip(self.inputs.tokens.tolist(), self.inputs.at.tolist(), strict=True)
        }
        return torch.tensor([known.get(tuple(row), len(row) - 1) for row in tokens.tolist()])

    @property
    def tied(self) -> float:
        """The share of inputs on which several answers are tied."""
        if self.function.tops is None:
            return 0.0
        tops = self.function.tops(self.values(self.inputs.tokens, self.inputs.at))
        return float((tops.sum(1) > 1).double().mean())

    @property
    def title(self) -> str:
        """The program in one line: the answer, with a variable's expression where it is one."""
        if self.needless and self.otherwise is not None:
            return self.otherwise.title
        several = [v for vs in self.variables for v in vs]
        used = [one for one in several if self.function.uses(one)]
        text = short = self.function.words or self.function.python
        for one in used:
            short = named(one.name).sub(lambda _, one=one: one.python, short)
        said = (f"{one.name} = {one.python}" for one in used if one.name != one.python)
        short = short if len(short) <= MAX_TITLE else ", ".join([text, *said])
        short += TIES * (self.tied > 0)
        for name, table in self.function.tables.items():
            short = short.replace(f"{name}.get(", f"a table of {len(table)} rows by (")
        if self.otherwise is not None:
            other = self.otherwise.title.removeprefix("answer = ").removesuffix(WHATEVER)
            first = f"({short})" if " if " in short or ", v" in short else short
            return (
                f"answer = {short if short == other else f'{first} if {self.where} else {other}'}"
            )
        return f"answer = {short}{'' if used else WHATEVER}"

    @property
    def needless(self) -> bool:
        """True of a constant that the program of all others gives on these inputs, too."""
        if self.otherwise is None or self.groups:
            return False
        tokens, at = self.inputs.tokens, self.inputs.at
        return bool((self.otherwise.answer(tokens, at) == self.function.compute({})).all())

    @property
    def alone(self) -> bool:
        """True where one group, taken whole, brings everything."""
        if len(self.groups) != 1:
            return False
        (first,) = self.groups
        return not first.keys and first.mask is None

    @property
    def fixed(self) -> list[str]:
        """Heads of which is said that their keys depend on no input."""
        tokens, at = self.inputs.tokens, self.inputs.at
        return [
            head
            for head, rule in self.heads.items()
            if rule.fixed or (rule.kind == "bag" and is_constant(rule.keys(tokens, at)))
        ]

    # --- text -------------------------------------------------------------------------------------
    def lines(self, number: int = 0) -> list[str]:
        """The body of the program in Python: one line a variable that is not read in place, with
        the sources that bring it, and the answer; of its branches, whose constants are numbered.
        """
        found, silent = list[str](), list[str]()
        for group, variables in zip(self.groups, self.variables, strict=True):
            for one in variables:
                if not self.function.uses(one):
                    continue
                if one.name != one.python:
                    found.append(f"{one.name} = {one.python}  # {', '.join(group.sources)}")
                if any(some in one.python for some in ("None", "last(", "only(")):
                    silent.append(one.name)
        if silent and not self.function.takes_none:
            listed = " is None" if len(silent) == 1 else f", {', '.join(silent[1:])})"
            test = f"{silent[0]} is None" if len(silent) == 1 else f"None in ({silent[0]}{listed}"
            found += [f"if {test}:", "    return None"]
        found.append(f"return {self.function.python}")
        for name in self.function.tables if number else ():
            found = [named(name).sub(f"{name}_{number}", line) for line in found]
        if number:
            marks = f"operands(t, STRUCTURAL_{number})"
            found = [line.replace("operands(t)", marks) for line in found]
        if self.otherwise is None:
            return found
        inside, other = [f"    {line}" for line in found], self.otherwise.lines(number + 1)
        return other if found == other or self.needless else [f"if {self.where}:", *inside, *other]

    def said_of_heads(self) -> list[str]:
        """One line a rule and layer: its heads, the keys that they attend to, and the branch."""
        if self.otherwise is None:
            return [str(one) for one in self.routes()]
        own = [f"where {self.where}: {one}" for one in self.routes()]
        return [*own, *self.otherwise.said_of_heads()]

    def notes(self) -> list[str]:
        """The share of inputs on which several answers are tied, and the rules that the prompts do
        not tell apart, with the prompts that would.
        """
        some = f"where several are tied ({self.tied:.1%}) it is not said which is the answer"
        placed = self.inputs.aligned is not None and any(one.fixed for one in self.heads.values())
        lengths = "prompts of one length do not tell places from the start from ones from the end"
        return (
            [some] * (self.tied > 0)
            + [lengths] * placed
            + [
                f"on these prompts not told from {one}"
                for name, several in self.equal.items()
                for one in several
                if any(rule.name == name for rule in self.heads.values())
            ]
        )

    def python(self, title: str = "") -> str:
        """The program as a Python file that needs nothing: `answer(t)` of the tokens up to the
        position that answers; None where it says nothing.
        """
        body, constants = "\n        ".join(self.lines()), ""
        for number, one in enumerate(self.branches):
            made = dict(one.function.tables)
            if "operands(" in body:
                made["STRUCTURAL"] = set(one.inputs.structural.tolist())
            for name, value in made.items():
                constants += f"{name}{f'_{number}' if number else ''} = {value!r}\n"
        helpers = "".join(text for name, text in HELPERS.items() if f"{name}(" in body)
        imports = "import sys\n" + (
            "from collections import Counter\n" if "Counter(" in body + helpers else ""
        )
        said = "\n".join([title or "A program that mechint found.", "", *self.said_of_heads()])
        said = said.replace("\\", "/").replace('"', "'")
        return (
            f'"""{said}\n"""\n\n{imports}\n{constants}\n{helpers}\n'
            f'def answer(t):\n    """The answer after the tokens t; None where there is none."""\n'
            f"    try:\n        {body}\n    except (IndexError, KeyError, ValueError):\n"
            f"        return None  # a token that it reads is not there\n{MAIN_OF_ROWS}"
        )

    def run_python(
        self, tokens: Int[Tensor, "example pos"], at: Int[Tensor, " example"]
    ) -> Int[Tensor, " example"]:
        """The answers of `python`, -1 for None."""
        stop = at + 1 if self.inputs.causal else torch.full_like(at, tokens.shape[1])
        return run_rows(self.python(), tokens, stop)


HELPERS = {
    "operands": """
def operands(t, marks=STRUCTURAL):
    return [x for x in t if x not in marks]

""",
    "only": """
def only(found):
    found = list(found)
    return found[0] if len(found) == 1 else None

""",
    "last": """
def last(found):
    return max(enumerate(found), default=(0, None), key=lambda one: one[0])[1]

""",
    "either": """
def either(first, second):
    return second if first is None else first

""",
    "most_common": """
def most_common(bag):
    top = [x for x in bag if bag[x] == max(bag.values())]
    return top[0] if len(top) == 1 else None  # which of several is not said

""",
}
"""Functions that programs call: name → text."""


def always(sources: Sources, inputs: Inputs) -> SourceProgram:
    """The program of a model that gives one answer to all inputs: nothing matters to it."""
    answer = int(sources.own[0])
    function = Function(str(answer), lambda values: torch.tensor(answer), 1)
    width = int(sources.own_logits.shape[1])
    return SourceProgram(inputs, {}, (), (), function, sources.names, width)


def pattern_of(sources: Sources, head: str, rule: Rule) -> Float[Tensor, "example pos"]:
    """The attention that a rule says a head has; NaN where it says nothing."""
    if isinstance(rule.weights, str):
        return sources.restricted(head, rule.keys(sources.tokens, sources.at))
    return rule.pattern(sources.tokens, sources.at)


def named_attention(sources: Sources, head: str, rule: Rule) -> Float[Tensor, " example"]:
    """Attention of a head to the tokens that its rule names, wherever they stand; NaN where it
    names none.
    """
    mask = rule.keys(sources.tokens, sources.at)
    if rule.kind == "token" and not (rule.shift or rule.fixed):
        key = rule.key(sources.tokens, sources.at).clamp(min=0)[:, None]
        mask = (sources.tokens == sources.tokens.gather(1, key)) & mask.any(1, keepdim=True)
    return (sources.pattern(head) * mask).sum(1).where(mask.any(1), torch.nan)


def looks_apart(sources: Sources, program: SourceProgram) -> SourceProgram:
    """The program with the heads that mostly attend elsewhere than their rules name."""
    some, found = sources, set[str]()
    if program.where is not None and program.otherwise is not None:
        holds = program.where.holds(sources.tokens, sources.at)
        some, rest = sources.among(holds), sources.among(~holds)
        program = replace(program, otherwise=looks_apart(rest, program.otherwise))
    alone = replace(program, where=None, otherwise=None)
    classes = {**alone.classes(some.tokens, some.at), "any {}": torch.zeros(len(some))}
    for head, rule in program.heads.items():
        mass = named_attention(some, head, rule)
        if failing_class((mass > 0.5) | mass.isnan(), classes, MOSTLY, MOSTLY):
            found.add(head)
    return replace(program, apart=frozenset(found))
