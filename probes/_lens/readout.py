"""The final norm and the unembedding as one linear map and a scale."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.probes._weights.circuits import fold, norm_of, norm_scale
from mechint.subject import Subject
from mechint.subject.activations import residual_hooks


class Readout:
    """The final norm and the unembedding of a subject's model as one linear map and a scale, in
    float64.

    Of an RMS norm the mean is not taken out.
    """

    def __init__(self, subject: Subject) -> None:
        self.model = model = subject.model
        weight = model.W_U.detach().double()
        self.bias = torch.zeros(weight.shape[1], dtype=torch.float64, device=weight.device)
        scale, centered = norm_of(model, "ln_final")
        final = getattr(model, "ln_final", None)
        if getattr(final, "b", None) is not None:
            self.bias = final.b.detach().double() @ weight  # type: ignore[union-attr]
        bias = getattr(getattr(model, "unembed", model), "b_U", None)
        if bias is not None:
            self.bias = self.bias + bias.detach().double()
        scale = None if scale is None else scale.to(weight.device)
        self.matrix = fold(scale, centered, weight)  # (d_model, d_vocab_out)

    def scale(self, x: Float[Tensor, "example d_model"]) -> Float[Tensor, "example 1"]:
        """The number by which the final norm divides x (example, d_model): (example, 1)."""
        return norm_scale(self.model, x)

    @classmethod
    def unmet(cls, subject: Subject) -> str | None:
        """The reason for which logits are not read off the last stream; None elsewhere."""
        wrapped = not hasattr(subject.model, "cfg")
        if getattr(subject.model, "W_U", None) is None or not hasattr(subject.model, "blocks"):
            given = ": give weights of W_U and b_U to mechint.wrap" if wrapped else ""
            return f"the model has no unembedding and blocks of TransformerLens's names{given}"
        if getattr(getattr(subject.model, "cfg", None), "read_layers", None) is not None:
            return "its output groups leave after different layers, so no one stream answers"
        if cls.error(subject) > 1e-3:
            norm = "W_U and b_U" if wrapped else "its final norm and W_U"
            return f"its logits are not {norm} on the last residual stream"
        return None

    @classmethod
    def error(cls, subject: Subject, examples: int = 8) -> float:
        """Largest difference of a readout's logits from the model's own, relative to the largest of
        these; infinite where W_U is not as wide as the stream, which another map then narrows.
        """
        few = subject.with_data(subject.data[:examples])
        last = list(residual_hooks(subject.n_layers, subject.hooks).values())[-1]
        own, stream = few.logits().double(), few.activation(last, "answer").double()
        if len(subject.model.W_U) != stream.shape[-1]:
            return math.inf
        mine = cls(subject).logits(stream)
        return float((mine - own).abs().max() / own.abs().max().clamp_min(1e-12))

    def logits(self, x: Float[Tensor, "example d_model"]) -> Float[Tensor, "example d_vocab_out"]:
        """The logit lens of x (example, d_model)."""
        return x @ self.matrix / self.scale(x) + self.bias
