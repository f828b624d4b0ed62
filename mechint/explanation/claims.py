"""A user's own claims in one line each, and the explanation that they make together.

audit(subject, head(0, 1).attends("largest token"), site("L0 resid_post @ answer").holds("carry_0"))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mechint.errors import NotApplicableError, ParameterError, UnknownNameError
from mechint.explanation.explanation import Explanation
from mechint.explanation.parts import AT, Part, Products, Route, Values
from mechint.interventions import Site
from mechint.subject import Subject
from mechint.subject.components import site_of
from mechint.task import Program


def _among(choose: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Values], Tensor]:
    """A choice among the tokens, the last one left out where it is a marker, the same in all."""

    def key(tokens: Int[Tensor, "n pos"], values: Values) -> Int[Tensor, " n"]:
        marked = bool((tokens[:, -1] == tokens[0, -1]).all())
        return choose(tokens[:, :-1] if marked else tokens)

    return key


def matches(tokens: Int[Tensor, "n pos"], values: Values, length: int) -> Bool[Tensor, "n pos"]:
    """The keys that stand after an earlier occurrence of the `length` tokens up to the answer's
    position, which is the last one where the values do not say.
    """
    ctx = tokens.shape[1]
    places = torch.arange(ctx, device=tokens.device)
    at = values[AT].to(tokens.device) if AT in values else torch.full_like(tokens[:, 0], ctx - 1)
    found = (places >= length) & (places <= at[:, None])
    for back in range(length):
        own = tokens.gather(1, (at - back).clamp(min=0)[:, None])
        found &= tokens.roll(back + 1, 1) == own
    return found & (at >= length - 1)[:, None]


def _after_earlier(tokens: Int[Tensor, "n pos"], values: Values) -> Int[Tensor, " n"]:
    """The key after the latest earlier occurrence of the last token; the first where none is."""
    places = torch.arange(tokens.shape[1], device=tokens.device)
    return (matches(tokens, values, 1) * places).amax(1)


def _after_earlier_pair(tokens: Int[Tensor, "n pos"], values: Values) -> Int[Tensor, " n"]:
    """The key after the latest earlier occurrence of the last two tokens; of the last token alone
    where these occur nowhere before.
    """
    places = torch.arange(tokens.shape[1], device=tokens.device)
    found = (matches(tokens, values, 2) * places).amax(1)
    return torch.where(found > 0, found, _after_earlier(tokens, values))


KEYS: dict[str, Callable[[Tensor, Values], Tensor]] = {
    "largest token": _among(lambda tokens: tokens.argmax(1)),
    "smallest token": _among(lambda tokens: tokens.argmin(1)),
    "second largest token": _among(lambda tokens: tokens.argsort(1)[:, -2]),
    "first token": lambda tokens, values: torch.zeros_like(tokens[:, 0]),
    "previous token": lambda tokens, values: torch.full_like(tokens[:, 0], tokens.shape[1] - 2),
    "token after an earlier equal one": _after_earlier,
    "token after an earlier equal pair": _after_earlier_pair,
}
"""What a head may be said to attend to from the answer, in words."""


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
        return Route(f"attends to the {to}", self.where.layer, self.where.units, KEYS[to])

    def holds(self, variable: str) -> Claimed:
        """The site holds a variable of the task's program."""
        return Claimed(self.where, variable)

    hold = holds


@dataclass(frozen=True)
class Claimed:
    """A site and the variable that it is said to hold; a Part once the program is known."""

    site: Site
    variable: str

    def part(self, program: Program) -> Part:
        """The part, with one feature per value of the variable."""
        if self.variable not in program.variables:
            raise UnknownNameError.of("variable", self.variable, program.variables)
        features = one_hot(self.variable, program.variables[self.variable].n_values)
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


def neurons(layer: int, units: Sequence[int]) -> ClaimSite:
    """Neurons of a layer at the answer."""
    return ClaimSite(Site.neurons(layer, list(units), "answer"))


def site(text: str) -> ClaimSite:
    """A site by its spelling, such as "L0 resid_post @ answer"."""
    return ClaimSite(site_of(text))


def parse_claim(text: str) -> Route | Claimed:
    """A claim from one line: "L0H1 attends largest token", "L0 resid_post @ answer holds carry_0".

    >>> str(parse_claim("L0H1 attends largest token"))
    'L0H1 attends to the largest token'

    Raises:
        ParameterError: it is neither.
    """
    match = re.fullmatch(r"(.+?) (attends|holds?)(?: to)?(?: the)? (.+)", text.strip())
    if match is None:
        raise ParameterError(
            f"claim {text!r}: expected 'L0H1 attends largest token' or "
            "'L0 resid_post @ answer holds VARIABLE'"
        )
    where = site_of(match[1])
    if match[2] == "attends":
        return ClaimSite(where).attends(match[3])
    return ClaimSite(where).holds(match[3])


def explanation_of(subject: Subject, claimed: Sequence[Any]) -> Explanation:
    """The explanation that is claimed: itself, or one of the claims under the task's program."""
    if len(claimed) == 1 and isinstance(claimed[0], Explanation):
        return claimed[0]
    program = None if subject.task is None else subject.task.own_program
    if program is None:
        raise NotApplicableError(f"{subject.describe()}: its task states no program to explain by")
    parts: list[Part] = []
    routes: list[Route] = []
    for one in claimed:
        if isinstance(one, Claimed):
            parts.append(one.part(program))
        elif isinstance(one, Part):
            parts.append(one)
        elif isinstance(one, Route):
            routes.append(one)
        else:
            raise ParameterError(f"claim {one!r}: expected an Explanation, Part, Route or claim")
    name = "; ".join([*map(str, parts), *map(str, routes)])
    return Explanation(name, program, tuple(parts), tuple(routes))
