"""A user's own claims in one line each, and the explanation that they make together.

audit(subject, head(0, 1).attends("largest token"), site("L0 resid_post @ answer").holds("carry_0"))
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import NotApplicableError, ParameterError, UnknownNameError
from mechint.explanation.explanation import Explanation
from mechint.explanation.parts import AT, Copy, Part, Products, Route, Values
from mechint.explanation.rules import (
    Inputs,
    Keys,
    Rule,
    mark_after_pair,
    mark_equal,
    mark_places,
    mark_ranked,
)
from mechint.interventions import Site
from mechint.subject import Subject
from mechint.subject.components import site_of
from mechint.task import Program, Step, Task, rng

SPREAD = 65_521
"""Random values of a variable in the null of a part, a prime."""


def inputs_of(tokens: Int[Tensor, "n pos"], at: Int[Tensor, " n"] | None = None) -> Inputs:
    """The inputs of the keys of claims; answers stand at the last position where it is not said."""
    tokens = tokens.cpu()
    at = torch.full_like(tokens[:, 0], tokens.shape[1] - 1) if at is None else at.cpu()
    return Inputs(tokens, at, True, int(tokens.max()) + 1)


KEYS: dict[str, Callable[[Inputs], Keys]] = {
    "largest token": lambda inputs: partial(mark_ranked, inputs, -1),
    "smallest token": lambda inputs: partial(mark_ranked, inputs, 0),
    "second largest token": lambda inputs: partial(mark_ranked, inputs, -2),
    "first token": lambda inputs: partial(mark_places, [0]),
    "previous token": lambda inputs: partial(mark_places, [-2]),
    "token after an earlier equal one": lambda inputs: partial(mark_equal, 1),
    "token after an earlier equal pair": lambda inputs: mark_after_pair,
}
"""The keys that a head may be said to attend to from the answer, in words: largest and smallest
are meant of operands, by token number."""


def key_of(name: str, tokens: Int[Tensor, "n pos"], values: Values) -> Int[Tensor, " n"]:
    """The position of a key of `KEYS`; the first one where it says nothing.

    >>> rows = torch.tensor([[9, 3, 5, 3], [7, 2, 8, 8]])
    >>> key_of("largest token", rows, {}).tolist(), key_of("previous token", rows, {}).tolist()
    ([0, 2], [2, 2])
    """
    inputs = inputs_of(tokens, values.get(AT))
    rule = Rule(name, "", KEYS[name](inputs))
    return rule.key(inputs.tokens, inputs.at).clamp(min=0)


@dataclass(frozen=True)
class ClaimSite:
    """A head or a site, of which something is said."""

    where: Site

    def attends(self, to: str) -> Route:
        """From the answer, these heads attend to a key of `KEYS`."""
        if self.where.kind != "head" or self.where.layer is None:
            raise ParameterError(f"{self.where}: only heads attend; write L0H1 attends …")
        if to not in KEYS:
            raise UnknownNameError.of("key", to, KEYS)
        return Route(
            f"attends to the {to}", self.where.layer, self.where.units, partial(key_of, to)
        )

    def copies(self, key: str) -> Copy:
        """The head brings the token at a key of `KEYS`, which is the answer."""
        if len(self.where.units) > 1:
            raise ParameterError(f"{self.where}: copies is said of one head; got several")
        return Copy(self.attends(key))

    def holds(self, variable: str) -> Claimed:
        """The site holds a variable of the task's program."""
        return Claimed(self.where, variable)


@dataclass(frozen=True)
class Claimed:
    """A site and the variable that it is said to hold; a Part once the program is known."""

    site: Site
    variable: str

    def part(self, program: Program) -> Part:
        """The part, with one feature per value of the variable; of heads the whole output."""
        if self.variable not in program.variables:
            raise UnknownNameError.of("variable", self.variable, program.variables)
        if self.site.pos is None:
            raise ParameterError(f"{self.site}: name a position, such as {self.site} @ answer")
        whole = self.site.kind == "head"  # its code need not be additive
        features = (
            None if whole else one_hot(self.variable, program.variables[self.variable].n_values)
        )
        return Part(self.variable, self.site, (self.variable,), features)


def one_hot(variable: str, n_values: int) -> Products:
    """Features of a variable: one per value."""
    return Products((((variable, torch.eye(n_values).double()),),))


def head(layer: int, *heads: int) -> ClaimSite:
    """Heads of a layer at the answer, by their numbers: head(1, 0).

    Raises:
        ParameterError: something else than numbers; `site` takes the spelling.
    """
    if not all(isinstance(one, int) for one in (layer, *heads)):
        given = ", ".join(map(repr, (layer, *heads)))
        raise ParameterError(f"head({given}): expected numbers, head(1, 0); or site('L1H0')")
    return ClaimSite(Site.of("head", layer, "answer", heads))


def site(text: str) -> ClaimSite:
    """A site by its spelling, such as "L0 resid_post @ answer"."""
    return ClaimSite(site_of(text))


def parse_claim(text: str) -> Route | Copy | Claimed:
    """A claim from one line: "L0H1 attends largest token", "L0 resid_post @ answer holds carry_0".

    >>> str(parse_claim("L0H1 attends largest token"))
    'L0H1 attends to the largest token'

    Raises:
        ParameterError: it is neither.
    """
    match = re.fullmatch(r"(.+?) (attends|cop(?:y|ies)|holds?)(?: to)?(?: the)? (.+)", text.strip())
    if match is None:
        raise ParameterError(
            f"claim {text!r}: expected 'L0H1 attends largest token', 'L0H1 copies largest token' "
            "or 'L0 resid_post @ answer holds VARIABLE'"
        )
    where = site(match[1])
    said = {"a": where.attends, "c": where.copies, "h": where.holds}
    return said[match[2][0]](match[3])


def program_of(subject: Subject, given: Any) -> Program | None:
    """The program that claims are made under: the task's own where None is given, a rival by its
    name, a Program, or plain functions, the last of which gives the answer.

    given: of functions one, a list, or a mapping of names. Each takes tokens (batch, pos), then the
    values (batch,) of the functions that its other parameters name, and gives whole numbers from 0.

    Raises:
        UnknownNameError: no such rival.
        ParameterError: no function, one that raises, or no whole numbers from 0.
    """
    task = subject.task
    if task is None or given is None or isinstance(given, Program):
        return given if task is None or given is not None else task.own_program
    if isinstance(given, str):
        if given not in task.programs:
            raise UnknownNameError.of("program", given, task.programs)
        return task.programs[given]
    listed = [cast("Callable[..., Tensor]", given)] if callable(given) else given
    named = listed if isinstance(listed, Mapping) else {one.__name__: one for one in listed}
    tokens, values, steps = subject.data.tokens, dict[str, Tensor](), list[Step]()
    for name, compute in named.items():
        parents = tuple(inspect.signature(compute).parameters)[1:]
        if missing := [parent for parent in parents if parent not in values]:
            raise ParameterError(f"program: {name}: no function before it is called {missing[0]!r}")
        try:
            found = compute(tokens, *(values[parent] for parent in parents))
        except Exception as error:  # of code that is the user's
            raise ParameterError(f"program: {name}: {type(error).__name__}: {error}") from error
        whole = isinstance(found, Tensor) and not found.is_floating_point()
        if not whole or found.shape != tokens.shape[:1] or int(found.min()) < 0:
            wants = "expected a tensor (batch,) of whole numbers from 0"
            raise ParameterError(f"program: {name}: {wants}, got {type(found).__name__}")
        values[name] = found.long()
        last = len(steps) + 1 == len(named)
        size = task.outputs[0].n_classes if last else int(found.max()) + 1
        if int(found.max()) >= size:
            raise ParameterError(
                f"program: {name}: gives {int(found.max())}; the answer has classes 0 to {size - 1}"
            )
        steps.append(Step(name, size, compute, parents))
    answers = ((steps[-1].name,),) * task.n_answers
    return Program("functions of one's own", tuple(steps), answers)


def explanation_of(subject: Subject, claimed: Sequence[Any], under: Any = None) -> Explanation:
    """The explanation that is claimed: itself, or one of the claims under a program (`program_of`),
    which is the task's own where none is given.
    """
    if len(claimed) == 1 and isinstance(claimed[0], Explanation):
        return claimed[0]
    program = program_of(subject, under)
    of_heads = all(isinstance(one, Route | Copy) for one in claimed)  # it needs no program
    if program is None and subject.task is not None and of_heads:
        program = _no_program(subject.task)
    if program is None:
        raise NotApplicableError(f"{subject.describe()}: its task states no program to explain by")
    given = [one.part(program) if isinstance(one, Claimed) else one for one in claimed]
    if other := [one for one in given if not isinstance(one, Part | Route | Copy)]:
        raise ParameterError(f"claim {other[0]!r}: expected an Explanation, Part, Route or claim")
    parts = [one for one in given if isinstance(one, Part)]
    copies = [one for one in given if isinstance(one, Copy)]
    routes = [
        one.route if isinstance(one, Copy) else one
        for one in given
        if isinstance(one, Route | Copy)
    ]
    n_heads = subject.model_description.n_heads or 0
    named = [(str(one), one.layer, one.heads) for one in routes]
    named += [(str(p), p.site.layer or 0, p.site.units) for p in parts if p.site.kind == "head"]
    for words, layer, heads in named:
        if not heads or layer >= subject.n_layers or max(heads) >= n_heads:
            last = f"expected heads from L0H0 to L{subject.n_layers - 1}H{n_heads - 1}"
            raise ParameterError(f"claim {words!r}: {last if n_heads else 'there are no heads'}")
    name = "; ".join(map(str, [*parts, *routes, *copies]))
    return Explanation(
        name,
        program,
        tuple(parts),
        tuple(routes),
        spare=lambda sample: permuted(program, parts, sample),
        notes=markers(subject) if routes else (),
        copies=tuple(copies),
    )


def _no_program(task: Task) -> Program:
    """A program of a task that states none, such as prompts: it answers nothing."""
    step = Step("first token", task.d_vocab, lambda tokens: tokens[:, 0])
    return Program("no program", (step,), ((None,) * len(task.outputs),) * task.n_answers)


def markers(subject: Subject) -> tuple[str, ...]:
    """A note on the tokens that are no operands, where there are any."""
    found = inputs_of(subject.data.tokens, subject.answer_positions).structural.tolist()
    names = [subject.task.vocabulary.tokens[one] for one in found] if subject.task else found
    return (f"keys are among operands, not {', '.join(map(str, names))}",) if found else ()


def permuted(program: Program, parts: Sequence[Part], sample: int) -> Explanation:
    """The same parts, with a random value of the variable for all that the program computes: the
    null of parts by one feature per value, fitted as hard.
    """

    def features(part: Part) -> Part:
        if part.features is None or len(part.variables) != 1:
            return part
        n = program.variables[part.variables[0]].n_values
        draw = rng("explain permuted", part.name, sample)
        table = torch.from_numpy(draw.integers(0, n, SPREAD))
        mixed = torch.from_numpy(draw.integers(1, 1 << 31, (len(program.steps), 1)))

        def made(values: Values) -> Float[Tensor, "example value"]:
            every = torch.stack([values[step.name].cpu() for step in program.steps])
            return torch.nn.functional.one_hot(table[(every * mixed).sum(0) % SPREAD], n).double()

        return replace(part, features=made)

    return Explanation("spare", program, tuple(map(features, parts)))
