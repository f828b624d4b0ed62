"""Bounds on rounding: how far the numbers of a forward may be off in a type of fewer digits.

A forward in float64 is followed operation by operation, and each number carries a bound on the
error that the same operation would have there: the running error analysis of Higham, *Accuracy and
Stability of Numerical Algorithms* (2002), chapter 3, for sums in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from mechint.errors import NotApplicableError

MOVING = {
    *("_to_copy", "_unsafe_view", "alias", "cat", "clone", "constant_pad_nd", "detach"),
    *("embedding", "expand", "flip", "gather", "index", "index_select", "permute", "repeat"),
    *("roll", "select", "slice", "split", "squeeze", "stack", "t", "transpose", "tril", "triu"),
    *("unbind", "unsqueeze", "view", "where"),
}
"""Operations that move numbers, whose errors move with them."""
LIBRARY = 4
"""Units in the last place to which torch's own functions, such as exp, are trusted."""


class RoundingBound(TorchDispatchMode):
    """Inside, a bound is kept on the error of each number that is computed in float64.

    `of(tensor)` is what it could be off by, had it been computed in the type `precision` from the
    same inputs and weights, by sums in any order, with what underflows taken for zero or not. It
    says nothing of what overflows there.

    Source: Higham 2002, chapters 2 (underflow, 2.8) and 3 (dot products, 3.1 and 3.5).

    Raises:
        NotApplicableError: an operation has no rule, or gives numbers of another type.

    >>> a, b = torch.ones(1, 4).double(), torch.ones(4, 1).double()
    >>> with RoundingBound(torch.float32) as bound:
    ...     product = a @ b
    >>> 4 * 4 * 2**-24 <= float(bound.of(product)) < 8 * 4 * 2**-24
    True
    """

    def __init__(self, precision: torch.dtype) -> None:
        super().__init__()
        self.type = torch.finfo(precision)
        self.unit = self.type.eps / 2 + torch.finfo(torch.float64).eps
        self._kept = dict[int, tuple[Tensor, Tensor]]()

    def of(self, x: Any) -> Tensor:
        """The bound of each number of a tensor; 0 of what was not computed inside."""
        return self._kept[id(x)][1] if id(x) in self._kept else torch.zeros_like(torch.as_tensor(x))

    def sums(self, n: int) -> float:
        """Relative error of a sum of n products, in any order."""
        return (n + 2) * self.unit / (1 - (n + 2) * self.unit)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation, and keep the bound of what it gives."""
        kwargs, name = kwargs or {}, func._schema.name.removeprefix("aten::")
        found = func(*args, **kwargs)
        made, given = (
            [one for one in tree_leaves(held) if isinstance(one, Tensor)]
            for held in (found, (args, kwargs))
        )
        floats = [one for one in given if one.is_floating_point()]
        types = {one.dtype for one in made}
        decides = types != {torch.float64}  # a flag, an index, another type
        narrows = torch.float64 in {one.dtype for one in floats} and any(
            one.is_floating_point and one != torch.float64 for one in types
        )
        exact = decides and not narrows and not any(bool(self.of(one).any()) for one in floats)
        if not floats or exact:
            return found
        if decides or func._schema.is_mutable or name not in MOVING | ERROR_BOUNDS.keys():
            raise NotApplicableError(f"rounding in {name} is not bounded")
        if name in MOVING:
            errors_of = {id(one): self.of(one) for one in floats}
            taken, more = tree_map_only(Tensor, lambda x: errors_of.get(id(x), x), (args, kwargs))
            errors = tree_leaves(func(*taken, **more))
        else:
            errors = tree_leaves(ERROR_BOUNDS[name](self, found, *args, **kwargs))
        for one, error in zip(made, errors, strict=True):
            error = error.abs().nan_to_num(torch.inf, torch.inf).masked_fill(one.isinf(), 0.0)
            self._kept[id(one)] = one, error
        return found

    def rounded(self, y: Tensor, error: Tensor) -> Tensor:
        """The error of a result that is off by `error` before it is rounded itself."""
        return error + self.unit * (y.abs() + error) + self.type.tiny


# --- rules: the bound, the result and the arguments of an operation → the error of the result -----
def _product(at: RoundingBound, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    most_a, most_b = a.abs() + at.of(a), b.abs() + at.of(b)
    error = a.abs() @ at.of(b) + at.of(a) @ most_b
    return error + at.sums(a.shape[-1]) * (most_a @ most_b) + a.shape[-1] * at.type.tiny


def _times(at: RoundingBound, y: Tensor, a: Any, b: Any) -> Tensor:
    return at.rounded(y, abs(a) * at.of(b) + at.of(a) * (abs(b) + at.of(b)))


def _sum(at: RoundingBound, y: Tensor, a: Tensor, b: Any, alpha: float = 1) -> Tensor:
    scaled = at.of(b) if alpha == 1 else _times(at, torch.as_tensor(alpha * b), b, alpha)
    return at.rounded(y, at.of(a) + scaled)


def _total(at: RoundingBound, y: Tensor, a: Tensor, *how: Any, **more: Any) -> Tensor:
    sums = at.sums(a.numel() // max(1, y.numel()))
    return (at.of(a) + sums * (a.abs() + at.of(a))).sum(*how, **more)


def _softmax(at: RoundingBound, y: Tensor, a: Tensor, dim: int, half: bool) -> Tensor:
    """Each exp(score) is off by a factor, and so is their sum; no share is above 1."""
    most = at.of(a).amax(dim, keepdim=True)
    span = a.amax(dim, keepdim=True) - a.masked_fill(a.isinf(), torch.inf).amin(dim, keepdim=True)
    power = 2 * (most + at.unit * (span + 2 * most)) + at.sums(a.shape[dim] + 2 * LIBRARY)
    return (y * power.expm1() + at.type.tiny).clamp(max=1.0)


def _layer_norm(
    at: RoundingBound, y: Any, a: Tensor, shape: Any, w: Any, b: Any, eps: float
) -> tuple[Tensor, ...]:
    """However the mean is subtracted, before or after the division; mean and scale are not read."""
    axes, sums = tuple(range(-len(shape), 0)), at.sums(math.prod(shape))
    most = a.abs() + at.of(a) + (a.abs() + at.of(a)).mean(axes, keepdim=True)
    own = (a - a.mean(axes, keepdim=True)).abs()
    error = at.of(a) + at.of(a).mean(axes, keepdim=True) + (sums + 2 * at.unit) * most
    scale = ((own**2).mean(axes, keepdim=True) + eps).sqrt()
    spread = ((2 * own + error) * error + 2 * sums * most**2).mean(axes, keepdim=True)
    spread = at.rounded(2 * scale, torch.minimum(spread / scale, spread.sqrt()))
    error = error + own * spread / scale + 2 * LIBRARY * at.unit * most
    error = error / (scale - spread).clamp(min=0) * (1.0 if w is None else w.abs())
    return at.rounded(y[0], error), *(torch.full_like(one, torch.inf) for one in y[1:])


ERROR_BOUNDS: dict[str, Callable[..., Any]] = {
    "_softmax": _softmax,
    "add": _sum,
    "addcmul": lambda at, y, c, a, b: at.rounded(y, _times(at, a * b, a, b) + at.of(c)),
    "addmm": lambda at, y, c, a, b: at.rounded(y, _product(at, y, a, b) + at.of(c)),
    "bmm": _product,
    "div": lambda at, y, a, b: at.rounded(
        y, (at.of(a) + y.abs() * at.of(b)) / torch.as_tensor(abs(b) - at.of(b)).clamp(min=0)
    ),
    "gelu": lambda at, y, a, approximate="none": (
        1.13 * at.of(a) + 2 * LIBRARY * at.unit * (a.abs() + at.of(a))
    ),
    "masked_fill": lambda at, y, a, mask, value: at.of(a).masked_fill(mask, 0.0),
    "mean": lambda at, y, a, *how, **more: _total(at, y, a, *how, **more) * y.numel() / a.numel(),
    "mm": _product,
    "mul": _times,
    "native_layer_norm": _layer_norm,
    "pow": lambda at, y, a, power: _times(at, y, a, a) if power == 2 else y * torch.nan,
    "relu": lambda at, y, a: at.of(a),
    "sqrt": lambda at, y, a: at.rounded(y, torch.minimum(at.of(a) / y, at.of(a).sqrt())),
    "sub": _sum,
    "sum": _total,
}
"""Operation of ATen → its rule."""
ERROR_BOUNDS["baddbmm"] = ERROR_BOUNDS["addmm"]
