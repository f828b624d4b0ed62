"""Causal tests by removal from the last layer's neurons: the loss without what they compute of the
operands, or with some of them at their mean.

Cost: where the model allows it a projection and an unembedding per removal, else a forward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from mechint.activations import slices
from mechint.models.at_positions import supports
from mechint.models.forward import Forward
from mechint.subject import Subject
from probes._fourier.spectra import Array
from probes.removal import mean_loss


@dataclass(frozen=True)
class NeuronRemoval:
    """The subject without functions of the two operands that the last layer's neurons compute.

    neurons: their activations at the answer, (example, d_mlp). Where the model allows it, only the
    MLP's output and the final residual stream at the answer are needed, (example, d_model) each:
    taking a function of the inputs out of every neuron takes it out of what the MLP writes.
    """

    subject: Subject
    hook: str
    activation: Tensor
    residual: Tensor | None

    @classmethod
    def of(cls, subject: Subject) -> NeuronRemoval | None:
        """None where the model has no neurons."""
        last = f"blocks.{subject.n_layers - 1}"
        post, written = f"{last}.mlp.hook_post", f"{last}.hook_mlp_out"
        if post not in subject.model.hook_dict or subject.answer == "all":
            return None
        if supports(subject.model, [written]):
            found = subject.activations([written, f"{last}.hook_resid_post"], at="answer")
            return cls(subject, written, *found.values())
        return cls(subject, post, subject.activation(post, at="answer"), None)

    def loss(self, waves: Float[Array, "wave element"], order: Int[Array, " element"]) -> float:
        """The loss without all products of two of the orthonormal `waves` (the constant is added to
        them) over the grid of operands, the constant itself kept.

        order: tokens of the elements in the order of the waves' columns.
        """
        subject, removed = self.subject, self._removed(waves, order)
        if self.residual is not None:
            model = subject.model
            with torch.no_grad():
                logits = Forward(model.weights(), model.config).unembed(self.residual - removed)
        else:
            logits = torch.cat(
                [self._hooked(removed, part) for part in slices(len(subject.data), subject.chunk)]
            )
        return mean_loss(subject, logits, subject.targets)

    def _removed(self, waves: Array, order: Array) -> Tensor:
        """(example, width) the part of the activation in the products of waves."""
        n = len(order)
        constant = torch.full((1, n), n**-0.5, dtype=torch.float64)
        basis = torch.cat([constant, torch.tensor(waves)]).to(self.activation.device)
        grid = self.subject.grid(self.activation)
        tokens = torch.from_numpy(order).to(grid.device)
        cells = tokens[:, None], tokens  # of a product, the powers 1 … p - 1: zero is no element
        parts = einsum(basis, basis, grid[cells].double(), "i x, j y, x y d -> i j d")
        parts[0, 0] = 0
        removed = torch.zeros_like(grid)
        removed[cells] = einsum(basis, basis, parts, "i x, j y, i j d -> x y d").to(grid.dtype)
        return removed.flatten(0, 1)

    def _hooked(self, removed: Tensor, part: slice) -> Tensor:
        subject = self.subject
        where = subject.answer_positions[part]

        def subtract(activation: Tensor, hook: Any) -> Tensor:
            activation = activation.clone()
            examples = torch.arange(len(activation), device=activation.device)
            activation[examples, where] -= removed[part]
            return activation

        return subject.logits(subject.data[part], hooks=[(self.hook, subtract)])


@dataclass(frozen=True)
class NeuronsAtMean:
    """The subject with some neurons of `hook`, the last layer's, at their `mean` (neuron,) at the
    answer.
    """

    subject: Subject
    hook: str
    mean: Tensor

    @cached_property
    def _recorded(self) -> tuple[Tensor, Tensor] | None:
        """Neurons and final residual stream at the answer, where the model allows the short cut."""
        names = [self.hook, self.hook.replace("mlp.hook_post", "hook_resid_post")]
        if not supports(self.subject.model, names) or self.subject.answer == "all":
            return None
        neurons, residual = self.subject.activations(names, at="answer").values()
        return neurons, residual

    def loss(self, neurons: Int[Array, " chosen"]) -> float:
        """The loss with the neurons of these indices at their mean."""
        subject, chosen = self.subject, torch.from_numpy(neurons).to(self.subject.device)
        if self._recorded is None:
            logits = subject.logits(hooks=[(self.hook, self._replace_with_mean(chosen))])
        else:
            values, residual = self._recorded
            model = subject.model
            layer = int(self.hook.split(".")[1]) % model.config.n_layers
            written = model.weights()[f"blocks.{layer}.mlp.W_out"]
            with torch.no_grad():
                lost = (values[:, chosen] - self.mean[chosen]) @ written[chosen]
                logits = Forward(model.weights(), model.config).unembed(residual - lost)
        return mean_loss(subject, logits, subject.targets)

    def _replace_with_mean(self, chosen: Tensor) -> Callable[[Tensor, Any], Tensor]:
        def replace(activation: Tensor, hook: Any) -> Tensor:
            activation = activation.clone()
            activation[..., chosen] = self.mean[chosen].to(activation.dtype)
            return activation

        return replace
