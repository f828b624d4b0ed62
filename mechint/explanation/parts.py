"""The claims that an explanation is made of: parts that hold variables, and routes of attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.interventions import Site

Values = Mapping[str, Tensor]
"""Variable → (example,) its values."""
AT = "answer position"
"""The name under which keys find the position of the answer among the values."""
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

    @property
    def where(self) -> str:
        """Its heads: "L0H1, L0H2"."""
        return ", ".join(f"L{self.layer}H{head}" for head in self.heads)

    def __str__(self) -> str:
        return f"{self.where} {self.name}"


@dataclass(frozen=True)
class Copy:
    """A claim about a route of one head: the answer is the token at its key, brought by it, so that
    the answer moves where the key is moved.
    """

    route: Route

    def __str__(self) -> str:
        return f"{self.route.where} brings the answer, the token there"
