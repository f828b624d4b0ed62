"""Explanation: a program of a model, parts where its variables live, and routes of attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.interventions import Site
from mechint.task import Program

if TYPE_CHECKING:
    from mechint.subject import Subject

Values = Mapping[str, Tensor]
"""Variable → (example,) its values."""
AT = "answer position"
"""The name under which keys and templates find the position of the answer among the values."""
Features = Callable[[Values], Float[Tensor, "example feature"]]


@dataclass(frozen=True)
class Products:
    """Features that are products of tables, so that they can be written out as numbers.

    groups: each is one or more (variable, table (value, column)); its features are all products of
    one column of each table, the last table's column changing fastest.

    >>> signs = torch.tensor([[1.0], [-1.0]])
    >>> Products(((("a", signs), ("b", signs)),))({"a": torch.tensor([1]), "b": torch.tensor([0])})
    tensor([[-1.]])
    """

    groups: tuple[tuple[tuple[str, Float[Tensor, "_ _"]], ...], ...]

    def __call__(self, values: Values) -> Float[Tensor, "example feature"]:
        """The features of examples with these values."""
        found: list[Tensor] = []
        for (first, start), *others in self.groups:
            product = start[values[first].cpu()]
            for variable, table in others:
                rows = table[values[variable].cpu()]
                product = (product[:, :, None] * rows[:, None, :]).flatten(1)
            found.append(product)
        return torch.cat(found, 1)


@dataclass(frozen=True)
class Part:
    """A claim about a site: its activation is mean + features(values) W + rest.

    Without features the whole site is claimed, and is exchanged whole: for narrow sites, such as a
    head, whose code of a variable need not be additive.

    variables: the variables of the program that the features depend on. features: values →
    (example, feature); W is fitted by least squares, so that only the span matters. blocks: name →
    columns that belong together (one frequency, one representation), for tests of each. reads:
    whether the logits are claimed to be linear in these features, as of the last site.
    """

    name: str
    site: Site
    variables: tuple[str, ...]
    features: Features | None = None
    blocks: Mapping[str, slice] = field(default_factory=dict[str, slice])
    reads: bool = False

    def __str__(self) -> str:
        return f"{self.name} at {self.site}"


@dataclass(frozen=True)
class Route:
    """A claim about a head: from the answer it attends to the key that `key` names.

    key: (tokens (example, pos), values) → (example,) position, with the answer's own position among
    the values as `AT`; None claims that the pattern does not depend on the input, and is tested
    with the patterns of other inputs.
    """

    name: str
    layer: int
    heads: tuple[int, ...]
    key: Callable[[Int[Tensor, "example pos"], Values], Int[Tensor, " example"]] | None = None

    def __str__(self) -> str:
        heads = ", ".join(f"L{self.layer}H{head}" for head in self.heads)
        return f"{heads} {self.name}"


@dataclass(frozen=True)
class Link:
    """A claim about two depths: `heads` of `layer` write a tag at every position, by which later
    heads find the position `key`, whose token is the answer.

    It is tested by exchanging what these heads write there with what they write at another
    position, with everything later left to the model: the answer must become the token there.
    """

    name: str
    layer: int
    heads: tuple[int, ...]
    key: Callable[[Int[Tensor, "example pos"], Values], Int[Tensor, " example"]]

    def __str__(self) -> str:
        heads = ", ".join(f"L{self.layer}H{head}" for head in self.heads)
        return f"{heads} {self.name}"


Templates = Callable[
    [Int[Tensor, "example pos"], Values], Float[Tensor, "template example d_vocab_out"]
]
"""(tokens, values) → the terms of the logits, up to one constant each; values as for a `Route`."""


@dataclass(frozen=True)
class Explanation:
    """A causal program of a model and where its variables live.

    name: in one line, with its numbers ("addition by frequencies 3, 15 and 17"). program: computes
    the variables and the answers. parts, routes: where they live. family: who proposed it. spare:
    features that the explanation does not use, as many again as a block has, for the null of each
    test: an explanation by these is fitted as hard. spare_blocks: the same for one block of a part,
    alike for all blocks of one width. notes: what a reader is told besides. links: how two depths
    hang together. templates: terms of which the logits are sums, with one fitted constant each, and
    `terms` in words; template_spare: as many other terms, for the null.
    """

    name: str
    program: Program
    parts: tuple[Part, ...] = ()
    routes: tuple[Route, ...] = ()
    family: str = "claim"
    spare: Callable[[int], Explanation | None] | None = None
    spare_blocks: Callable[[Part, str], list[Features]] | None = None
    notes: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    templates: Templates | None = None
    template_spare: Templates | None = None
    terms: tuple[str, ...] = ()

    @property
    def inputs(self) -> list[str]:
        """Variables without parents that some part holds."""
        held = {name for part in self.parts for name in part.variables}
        return [s.name for s in self.program.steps if not s.parents and s.name in held]

    @property
    def held(self) -> list[str]:
        """Variables that some part holds, in the order of the program."""
        held = {name for part in self.parts for name in part.variables}
        return [step.name for step in self.program.steps if step.name in held]

    def to_python(self, subject: Subject, *, seed: int = 0, examples: int = 3000) -> str:
        """A Python file of numpy alone that computes the answers from tokens, with its constants.

        Where a part reads the logits off its features, the answers are the largest of the fitted
        logits, from the same half of the inputs as in `audit`; else those of the program.

        Raises:
            NotApplicableError: a variable has more than 65,536 cases to write out.

        >>> from mechint import planted
        >>> from mechint.explain import explain
        >>> subject = planted.modular_addition(13, (2, 5)).subject
        >>> text = explain(subject, family="frequencies")[0].explanation.to_python(subject)
        >>> "import numpy" in text and "torch" not in text
        True
        """
        from mechint.explain.code import written

        return written(subject, self, seed, examples).text


def program_text(explanation: Explanation) -> str:
    """One line a variable that a part holds, with what it follows from and where it lives, one a
    term of the logits, and one a route to a key or link.
    """
    lines = [f"logits follow {term}" for term in explanation.terms]
    for step in (explanation.program.variables[name] for name in explanation.held):
        tokens = ", ".join(f"token {place}" for place in step.positions)
        source = f"of {', '.join(step.parents)}" if step.parents else tokens or "of the tokens"
        said = f": {step.description}" if step.description else ""
        lines.append(f"{step.name} {source}{said}")
        for part in explanation.parts:
            if step.name in part.variables:
                blocks = f", by {', '.join(part.blocks)}" if part.blocks else ""
                lines.append(f"    at {part.site}{blocks}")
    routes = [one for one in explanation.routes if one.key is not None]
    return "\n".join([*lines, *map(str, explanation.links), *map(str, routes)])
