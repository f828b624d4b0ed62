"""Link functions as series of normalized Hermite polynomials, whose products have closed-form
Gaussian means.

h_j = He_j / sqrt(j!), so E[h_i(z) h_j(z)] = δ_ij for z ~ N(0, 1), and for unit vectors u and v and
x ~ N(0, I) E[h_i(⟨x, u⟩) h_j(⟨x, v⟩)] = δ_ij ⟨u, v⟩^j (O'Donnell, Analysis of Boolean Functions,
Sec. 11.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.errors import ParameterError


def link(coefficients: Sequence[float]) -> tuple[float, ...]:
    """The coefficients c_0, c_1, … of σ = Σ_j c_j h_j scaled to E[σ²] = 1.

    Raises:
        ParameterError: all coefficients beyond c_0 are zero: such a link is constant.

    >>> link((0, 0, 3, 4))
    (0.0, 0.0, 0.6, 0.8)
    """
    if not any(coefficients[1:]):
        raise ParameterError(
            f"hermite={tuple(coefficients)}: expected a coefficient of degree 1 or more that "
            "is not zero"
        )
    norm = math.hypot(*coefficients)
    return tuple(value / norm for value in coefficients)


def information_exponent(coefficients: Sequence[float]) -> int:
    """The least degree of 1 or more with a coefficient (Ben Arous et al. 2021).

    >>> information_exponent((0, 0, 0, 1.0))
    3
    """
    return next(degree for degree, value in enumerate(coefficients) if degree > 0 and value != 0)


def evaluate(coefficients: Sequence[float], z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Σ_j c_j h_j(z), elementwise, by the recurrence sqrt(j + 1) h_{j+1} = z h_j - sqrt(j) h_{j-1}.

    >>> evaluate((0, 0, 1.0), torch.tensor([0.0, 1.0, 3.0]))  # (z² - 1) / sqrt(2)
    tensor([-0.7071,  0.0000,  5.6569])
    """
    before, now = torch.zeros_like(z), torch.ones_like(z)
    total = coefficients[0] * now if coefficients[0] else before
    for degree, value in enumerate(coefficients[1:], 1):
        before, now = now, (z * now - math.sqrt(degree - 1) * before) / math.sqrt(degree)
        total = total + value * now if value else total
    return total


def correlate(
    first: Sequence[float], second: Sequence[float], cosine: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """E[σ(⟨x, u⟩) τ(⟨x, v⟩)] for links σ and τ and unit vectors with ⟨u, v⟩ = cosine,
    elementwise.
    """
    total = torch.zeros_like(cosine)
    for degree, (a, b) in enumerate(zip(first, second, strict=False)):
        if a and b:
            total = total + a * b * cosine.pow(degree)
    return total
