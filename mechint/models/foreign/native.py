"""The base of modules made of a configuration: parameters by name, new initial ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from mechint.errors import CheckpointError
from mechint.models.hook_points import HookedRootModule
from mechint.models.protocol import Capability


class NativeModel(HookedRootModule):
    """A hooked model of `config`, made as ``type(model)(config, seed=0)``."""

    capabilities = frozenset({Capability.REINITIALIZE, Capability.EDIT_WEIGHTS})
    config: Any

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    def reinitialized(self, seed: int) -> Self:
        """A model of the same configuration with the initial weights of `seed`, on the CPU."""
        return type(self)(self.config, seed=seed)  # type: ignore[call-arg]

    def weights(self) -> dict[str, Tensor]:
        """The parameters by name, as the functions of the architecture take them."""
        return dict(self.named_parameters())

    def load_weights(self, state: Mapping[str, Tensor]) -> None:
        """Take parameters by name.

        Raises:
            CheckpointError: a name that only one of them has, or another shape.
        """
        own = self.weights()
        if set(own) != set(state):
            raise CheckpointError(
                f"state dict holds {', '.join(sorted(state))}; expected {', '.join(sorted(own))}"
            )
        self._copy(state)

    def _copy(self, state: Mapping[str, Tensor]) -> None:
        own = self.weights()
        for name, value in own.items():
            if state[name].shape != value.shape:
                raise CheckpointError(
                    f"{name}: got shape {tuple(state[name].shape)}, expected {tuple(value.shape)}"
                )
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(state[name])
