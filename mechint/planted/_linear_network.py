"""Deep linear networks at a point of known rank, whose learning coefficient has a closed form.

y = x W_1 ⋯ W_L with true product of rank r. Its learning coefficient and multiplicity follow from
the widths and r alone (Aoyagi 2024, Consideration on the learning efficiency of multiple-layered
neural networks with linear units, Main Theorem; of two layers: Aoyagi & Watanabe 2005). One layer
is linear regression, a regular model of coefficient d/2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mechint.errors import ParameterError
from mechint.models.hook_points import HookedRootModule, HookPoint
from mechint.models.protocol import Capability
from mechint.planted.assembly import Planted, random_rotation
from mechint.subject import Subject
from mechint.task import Batch, rng


class LinearNetwork(HookedRootModule):
    """x W_1 ⋯ W_L for x (batch, widths[0]).

    Hooks: hook_hidden.{i} (batch, widths[i + 1]), what layer i answers.

    >>> model = LinearNetwork((3, 2, 4), seed=0)
    >>> tuple(model(torch.ones(5, 3)).shape), tuple(model.W[1].shape)
    ((5, 4), (2, 4))
    """

    capabilities = frozenset({Capability.REINITIALIZE, Capability.EDIT_WEIGHTS})

    def __init__(self, widths: Sequence[int], seed: int = 0) -> None:
        super().__init__()
        self.widths = tuple(widths)
        generator = torch.Generator().manual_seed(seed)
        self.W = nn.ParameterList(
            torch.randn(d_in, d_out, generator=generator, dtype=torch.float32) / math.sqrt(d_in)
            for d_in, d_out in itertools.pairwise(self.widths)
        )
        self.hook_hidden = nn.ModuleList(HookPoint() for _ in self.W)
        self.setup()

    def reinitialized(self, seed: int) -> LinearNetwork:
        """A network of the same widths with the initial weights of `seed`."""
        return LinearNetwork(self.widths, seed)

    def forward(self, x: Float[Tensor, "batch d_in"]) -> Float[Tensor, "batch d_out"]:
        """The product of all layers applied to x."""
        for weight, hook in zip(self.W, self.hook_hidden, strict=True):
            x = hook(x @ weight)
        return x


def learning_coefficient(widths: Sequence[int], rank: int) -> tuple[float, int]:
    """(λ, m), learning coefficient and multiplicity of a linear network of `widths` (inputs first)
    where the true product has `rank` (Aoyagi 2024, Main Theorem).

    >>> learning_coefficient((5, 4), 2)  # linear regression: half the number of weights
    (10.0, 1)
    >>> learning_coefficient((1, 1, 1), 0)  # y = a b x at a = b = 0
    (0.5, 2)
    """
    spare = [width - rank for width in widths]  # M_s
    for size in range(2, len(spare) + 1):
        for chosen in itertools.combinations(range(len(spare)), size):
            inside = [spare[i] for i in chosen]
            outside = [spare[i] for i in range(len(spare)) if i not in chosen]
            layers, total = size - 1, sum(inside)  # ℓ, Σ M_s
            if total < layers * max(inside):
                continue
            if outside and not (max(inside) < min(outside) and total < layers * min(outside)):
                continue
            over = total - (math.ceil(total / layers) - 1) * layers  # a
            pairs = sum(a * b for a, b in itertools.combinations(inside, 2))
            value = (
                (rank * (widths[0] + widths[-1]) - rank**2) / 2
                + over * (layers - over) / (4 * layers)
                - (layers - 1) * total**2 / (4 * layers)
                + pairs / 2
            )
            return value, over * (layers - over) + 1
    raise AssertionError(f"no layers of {widths} satisfy the theorem's conditions")


def linear_network(
    widths: Sequence[int],
    rank: int,
    *,
    n: int = 1024,
    noise: float = 0.0,
    seed: int = 0,
    scales: Sequence[float] | None = None,
) -> Planted:
    """A linear network whose product is the true map, of `rank` singular values 1.

    Args:
        widths: inputs, hidden widths, outputs.
        n: examples, inputs drawn from N(0, 1).
        noise: standard deviation of Gaussian noise on the targets, relative to their root mean
            square, or to 1 where the map is zero.
        seed: of inputs, noise and the bases of every layer.
        scales: (input,) standard deviations of the inputs, 1 when none. They condition the model
            well or badly and leave its learning coefficient as it is.

    Returns:
        truth: "learning_coefficient" and "multiplicity", "parameters" their number.

    Raises:
        ParameterError: a rank above the smallest width, or scales that are not above zero, one
            for each input.

    >>> linear_network((4, 3, 4), 1).truth["learning_coefficient"]
    6.0
    """
    if not 0 <= rank <= min(widths):
        raise ParameterError(
            f"planted: rank={rank}: expected 0 to {min(widths)}, the smallest of widths={widths}"
        )
    if scales is not None and (len(scales) != widths[0] or min(scales) <= 0):
        raise ParameterError(
            f"planted: scales={tuple(scales)}: expected {widths[0]} numbers above 0, one per input"
        )
    model = LinearNetwork(widths)
    turns = [random_rotation(width, seed + i) for i, width in enumerate(widths)]
    with torch.no_grad():
        for i, weight in enumerate(model.W):
            core = torch.zeros(weight.shape, dtype=torch.float64)
            core[range(rank), range(rank)] = 1.0
            weight.copy_(turns[i].T @ core @ turns[i + 1])
        generator = rng("planted linear network", seed)
        tokens = torch.from_numpy(generator.standard_normal((n, widths[0]))).float()
        tokens = tokens if scales is None else tokens * torch.tensor(scales)
        targets = model(tokens)
        scale = float(targets.square().mean().sqrt()) or 1.0
        targets = targets + noise * scale * torch.from_numpy(
            generator.standard_normal(tuple(targets.shape))
        ).to(targets)
    value, multiplicity = learning_coefficient(widths, rank)
    source = {"path": "planted linear network", "format": "planted", "widths": list(widths)}
    return Planted(
        Subject(model, None, data=Batch(tokens, targets), provenance=source),
        {
            "mechanism": "linear network",
            "learning_coefficient": value,
            "multiplicity": multiplicity,
            "parameters": sum(weight.numel() for weight in model.W),
        },
    )
