"""The weighted sum of a few values: one sum over all products, and its gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mechint.models.attention import WeightedSum


def plain(pattern: Tensor, v: Tensor) -> Tensor:
    """The same as one sum over the products of all pairs."""
    return (pattern.movedim(-3, -1).unsqueeze(-1) * v.unsqueeze(-4)).sum(-3)


def problem(queries: int, keys: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """A pattern (model, batch, head, query, key), values and a gradient of what they give."""
    generator = torch.Generator().manual_seed(queries + 10 * keys)
    pattern = torch.rand(2, 5, 3, queries, keys, generator=generator, dtype=dtype)
    v = torch.randn(2, 5, keys, 3, 4, generator=generator, dtype=dtype)
    grad = torch.randn(2, 5, queries, 3, 4, generator=generator, dtype=dtype)
    return pattern.requires_grad_(), v.requires_grad_(), grad


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 3), (2, 2), (4, 1)])
def test_a_weighted_sum_is_the_sum_of_all_products(queries: int, keys: int) -> None:
    pattern, v, grad = problem(queries, keys, torch.float32)
    expected, found = plain(pattern, v), WeightedSum.apply(pattern, v)
    torch.testing.assert_close(found, expected)
    ours = torch.autograd.grad(found, (pattern, v), grad)
    theirs = torch.autograd.grad(expected, (pattern, v), grad)
    torch.testing.assert_close(ours, theirs)


def test_the_gradients_of_a_weighted_sum_by_finite_differences() -> None:
    pattern, v, _ = problem(2, 2, torch.float64)
    assert torch.autograd.gradcheck(WeightedSum.apply, (pattern, v))
