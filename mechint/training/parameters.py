"""Flat parameters: all weights of an ensemble in one (model, parameter) matrix, with gradients laid
out alike.

The optimizer works on the matrix; the forward on views of it, in the shapes of the architecture
with a leading `model` axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.models.foreign.untouched import all_finite


class FlatParameters:
    """Stacked parameters of models of one shape.

    `values` and `grad` are (model, parameter); `views` name → leaf tensor (model, *shape) whose
    storage is `values`.
    """

    def __init__(
        self,
        initial: Sequence[Mapping[str, Tensor]],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.shapes = {name: tuple(value.shape) for name, value in initial[0].items()}
        rows = [torch.cat([weights[name].flatten() for name in self.shapes]) for weights in initial]
        values = torch.stack(rows).to(device=device, dtype=dtype)
        self._lay_out(values, torch.zeros_like(values))

    def _lay_out(self, values: Tensor, grad: Tensor) -> None:
        self.values, self.grad = values, grad
        self.views: dict[str, Tensor] = {}
        self.spans: dict[str, slice] = {}
        start = 0
        for name, shape in self.shapes.items():
            span = slice(start, start + int(torch.Size(shape).numel()))
            view = self.values[:, span].view(-1, *shape).requires_grad_()
            self.views[name], self.spans[name], start = view, span, span.stop

    def __len__(self) -> int:
        return self.values.shape[0]

    def differentiate(self, loss: Float[Tensor, ""]) -> None:
        """Fill `grad` with the gradient of `loss`, zero for what it does not read."""
        grads = torch.autograd.grad(
            loss, list(self.views.values()), allow_unused=True, materialize_grads=True
        )
        torch.cat([grad.flatten(1) for grad in grads], 1, out=self.grad)

    def keep(self, index: Int[Tensor, " kept"]) -> None:
        """Drop all models but those at `index`."""
        values = self.values[index].clone()
        self._lay_out(values, torch.zeros_like(values))

    def weights(self, model: int) -> dict[str, Tensor]:
        """A copy of one model's parameters, float32 on the CPU."""
        row = self.values[model].detach()
        return {
            name: row[span].view(self.shapes[name]).to("cpu", torch.float32, copy=True)
            for name, span in self.spans.items()
        }

    def matrices(self) -> Float[Tensor, " parameter"]:
        """(parameter,) 1 for entries of weight matrices, 0 for biases and norm weights."""
        marks = torch.zeros(
            self.values.shape[1], dtype=self.values.dtype, device=self.values.device
        )
        for name, span in self.spans.items():
            marks[span] = float(name.rpartition(".")[2].startswith("W"))
        return marks

    def first_not_finite(self, model: int) -> str | None:
        """Name of the first parameter of `model` whose value or gradient is not finite."""
        both = self.values[model], self.grad[model]
        bad = (
            name
            for name, span in self.spans.items()
            if not all(all_finite(numbers[span]) for numbers in both)
        )
        return next(bad, None)
