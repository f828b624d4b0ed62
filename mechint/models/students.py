"""The students as hooked modules, and the table that training finds them in by `Task.model_kind`.

Their mathematics lives in `linear_bottleneck` and `two_layer`, as the transformer's does in
`mechint.models.forward`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from mechint.models import linear_bottleneck, two_layer
from mechint.models.hook_points import HookPoint
from mechint.models.linear_bottleneck import LinearBottleneckConfig
from mechint.models.protocol import NativeModel
from mechint.models.two_layer import TwoLayerConfig


class _Student(NativeModel):
    def __init__(self, config: Any, initial: Mapping[str, Tensor], hooks: tuple[str, ...]) -> None:
        super().__init__()
        self.config = config
        for name in hooks:
            setattr(self, name, HookPoint())
        for name, value in initial.items():
            self.register_parameter(name, nn.Parameter(value))
        self.setup()

    def _through(self, name: str, tensor: Tensor) -> Tensor:
        return self.hook_dict[name](tensor)


class LinearBottleneck(_Student):
    """One shared encoder and a linear decoder per task.

    Hooks: hook_encoded (batch, columns), hook_decoded (batch, task, n_out): what every task's
    decoder answers.

    Example:
        >>> import torch
        >>> model = LinearBottleneck(LinearBottleneckConfig(n=8, width=3, n_tasks=4, n_out=2),
        ...     seed=0)
        >>> answers, cache = model.run_with_cache(torch.ones(5, 8), torch.tensor([0, 1, 2, 3, 0]))
        >>> (tuple(answers.shape), tuple(cache["hook_encoded"].shape),
        ...     tuple(cache["hook_decoded"].shape))
        ((5, 2), (5, 3), (5, 4, 2))
    """

    config: LinearBottleneckConfig

    def __init__(self, config: LinearBottleneckConfig, seed: int = 0) -> None:
        super().__init__(
            config, linear_bottleneck.initialize(config, seed), ("hook_encoded", "hook_decoded")
        )

    def forward(
        self, x: Float[Tensor, "batch n"], task: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch ... n_out"]:
        """Answers (batch, n_out), each by the decoder of its task, or (batch, task, n_out)."""
        if task is None:
            return linear_bottleneck.decoded(self.weights(), self.config, x, self._through)
        return linear_bottleneck.forward(self.weights(), self.config, x, task, self._through)


class TwoLayerStudent(_Student):
    """f(x) = Σ_i ‖w_i‖² σ(⟨x, w_i / ‖w_i‖⟩).

    Hooks: hook_pre (batch, neuron) the projections, hook_post (batch, neuron) the link of them.

    Example:
        >>> import torch
        >>> model = TwoLayerStudent(TwoLayerConfig(d=8, width=3), seed=0)
        >>> answers, cache = model.run_with_cache(torch.ones(5, 8))
        >>> tuple(answers.shape), tuple(cache["hook_post"].shape)
        ((5,), (5, 3))
    """

    config: TwoLayerConfig

    def __init__(self, config: TwoLayerConfig, seed: int = 0) -> None:
        super().__init__(config, two_layer.initialize(config, seed), ("hook_pre", "hook_post"))

    def forward(self, x: Float[Tensor, "batch d"]) -> Float[Tensor, " batch"]:
        """Answers (batch,) to x (batch, d)."""
        return two_layer.forward(self.weights(), self.config, x, self._through)


STUDENTS: Mapping[str, Any] = {"linear-bottleneck": linear_bottleneck, "two-layer": two_layer}
"""Kind → the module whose functions training calls, on plain or stacked parameters.

initialize(config, seed) -> parameters; losses(parameters, config, batch) -> (model,);
population_loss(parameters, config, task) -> (model,), exact; measures(parameters, task) -> name →
(model,), what has been learned so far, for the metrics log.
"""
