"""TransformerLens's `ActivationCache` of models whose norms have weights.

TransformerLens folds a norm's weight and bias into the matrices that read it, and its cache divides
by the norm's scale alone. A model that mechint opens keeps its norms, so here they are applied:
with x the residual stream that a norm reads, of scale s, weight w and bias b, a component c gives

    w (c - mean c) / s + b ⟨c, x⟩ / ⟨x, x⟩

which is linear in c and sums to the norm's output over any decomposition of x: the bias, which is
no component's own, goes by the share of the stream that a component is. What
`accumulated_resid` stacks are whole streams, and each has all of the bias.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor
from transformer_lens import ActivationCache
from transformer_lens.utilities.slice import Slice


class NormedCache(ActivationCache):
    """An `ActivationCache` that applies the weights and biases of norms."""

    def _norm(self, layer: int | None, mlp_input: bool) -> tuple[str, Tensor, Tensor | None] | None:
        """The name of the stream that a norm reads, its weight and bias; None where it has none."""
        depth = self.model.cfg.n_layers
        layer = depth if layer is None or layer == -1 else layer
        if layer == depth:
            place, owner = f"blocks.{depth - 1}.hook_resid_post", "ln_final"
        else:
            place = f"blocks.{layer}.hook_resid_{'mid' if mlp_input else 'pre'}"
            owner = f"blocks.{layer}.ln{2 if mlp_input else 1}"
        norm = self.model.get_submodule(owner)  # type: ignore[attr-defined]
        weight = getattr(norm, "w", None)
        return None if weight is None else (place, weight, getattr(norm, "b", None))

    def apply_ln_to_stack(
        self,
        residual_stack: Float[Tensor, "component *rows d_model"],
        layer: int | None = None,
        mlp_input: bool = False,
        pos_slice: Any = None,
        batch_slice: Any = None,
        has_batch_dim: bool = True,
        recompute_ln: bool = False,
    ) -> Float[Tensor, "component *rows_out d_model"]:
        """Return what the entries of a stack contribute to the output of a layer's norm."""
        final = layer is None or layer in (-1, self.model.cfg.n_layers)
        given = {"pos_slice": pos_slice, "batch_slice": batch_slice, "has_batch_dim": has_batch_dim}
        normed = super().apply_ln_to_stack(
            residual_stack, layer, mlp_input, recompute_ln=recompute_ln, **given
        )
        norm = None if final and recompute_ln else self._norm(layer, mlp_input)
        if norm is None:
            return normed
        place, weight, bias = norm
        normed = normed * weight
        if bias is None:
            return normed
        positions, examples = (
            part if isinstance(part, Slice) else Slice(part) for part in (pos_slice, batch_slice)
        )
        stack = examples.apply(residual_stack, dim=1) if has_batch_dim else residual_stack
        whole = positions.apply(self[place], dim=-2)
        whole = examples.apply(whole) if self.has_batch_dim else whole
        share = (stack * whole).sum(-1, keepdim=True) / whole.square().sum(-1, keepdim=True)
        return normed + share * bias

    def accumulated_resid(
        self, layer: int | None = None, incl_mid: bool = False, apply_ln: bool = False, **more: Any
    ) -> Any:
        """Return the residual stream before every block; with `apply_ln`, through one norm."""
        final = layer is None or layer in (-1, self.model.cfg.n_layers)
        mlp_input = bool(more.get("mlp_input", False))
        norm = self._norm(layer, mlp_input) if apply_ln and not final else None
        if norm is None:
            return super().accumulated_resid(layer, incl_mid, apply_ln, **more)
        with_labels = bool(more.pop("return_labels", False))
        stack, labels = super().accumulated_resid(layer, incl_mid, return_labels=True, **more)
        _, weight, bias = norm
        normed = super().apply_ln_to_stack(
            stack, layer, mlp_input, more.get("pos_slice"), has_batch_dim=self.has_batch_dim
        )
        normed = normed * weight if bias is None else normed * weight + bias
        return (normed, labels) if with_labels else normed

    def stack_neuron_results(self, *args: Any, **more: Any) -> Any:
        """As TransformerLens does; a norm is applied before results are projected."""
        return self._projected(super().stack_neuron_results, *args, **more)

    def get_full_resid_decomposition(self, *args: Any, **more: Any) -> Any:
        """As TransformerLens does; a norm is applied before components are projected."""
        return self._projected(super().get_full_resid_decomposition, *args, **more)

    def _projected(self, make: Any, *args: Any, **more: Any) -> Any:
        onto = more.pop("project_output_onto", None) if more.get("apply_ln") else None
        projected = make(*args, **more)
        if onto is None:
            return projected
        stack, *labels = projected if isinstance(projected, tuple) else (projected,)
        return (stack @ onto, *labels) if labels else stack @ onto
