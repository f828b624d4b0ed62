"""A deep linear network: the simplest model with degenerate minima."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mechint.models.hook_points import HookedRootModule, HookPoint
from mechint.models.protocol import Capability


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
