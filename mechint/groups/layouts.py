"""Layouts of tokens 0 … n−1: the rules that the geometry of their embedding follows.

Of rows E (n, d), centered over the tokens, G = E Eᵀ scaled to trace n − 1 is held against H, the
Gram matrix of isotropic rows. A layout is a linear space of symmetric matrices, and its share is
that of ‖R‖², R = G − H, in the space:

    cyclic     G_xy depends on x − y mod n: circles, of any frequencies
    ordered    G_xy depends on |x − y|: a line, an arc, or a circle
    line       one direction, linear in x
    mod m      functions of x mod m, m a divisor of n
    grid a×b   functions of x mod a beside functions of x mod b, at right angles

    effect = (share − mean share of permuted tokens) / (1 − that mean)

Several models are averaged as R, whatever their widths. Averages hide a layout that every model has
a copy of its own of: `align` fits the copies by the symmetries x → u x of addition mod n.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from mechint.decide.null import MaxNull

Array = NDArray[Any]
FEWEST = 9
"""Tokens from which layouts differ, and permuted tokens are many enough."""
MAX_CLASSES = 10
"""The largest m of mod m, and classes of a side of a grid."""
LEAST = 0.2
"""Effects below are no layout, however surprising."""
NEARLY = 0.8
"""The smallest space that holds this share of the largest effect names the layout."""
TURNS = 6
"""Passes over the models in which each is fitted to the others."""


# --- matrices -------------------------------------------------------------------------------------
def center(a: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """A matrix without the means of its rows and columns."""
    return a - a.mean(0, keepdims=True) - a.mean(1, keepdims=True) + a.mean()


def beyond_isotropy(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n n"]:
    """R of an embedding: its centered Gram matrix at trace n − 1, less that of isotropic rows; all
    zeros where the rows are alike.

    >>> square = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> beyond_isotropy(square)[0].round(3).tolist()
    [0.0, 0.25, -0.5, 0.25]
    """
    centered = rows - rows.mean(0)
    gram, n = centered @ centered.T, len(rows)
    trace = float(np.trace(gram))
    if trace <= 1e-12 * float(np.square(rows).sum()):
        return np.zeros((n, n))
    return center(gram * ((n - 1) / trace)) - center(np.eye(n))


def agreement(residuals: Float[np.ndarray, "model n n"], own: Iterable[int] = ()) -> float:
    """Mean ⟨R_i, R_j⟩ over pairs of different models, over mean ‖R_i‖²: 1 where all have one copy
    of a layout, 0 where each has a layout of its own.

    own: which model each is, where some are there several times; all different when empty.
    """
    flat = residuals.reshape(len(residuals), -1)
    products = flat @ flat.T
    which = np.array(list(own) or range(len(flat)))
    pairs = which[:, None] != which
    norm = float(products.trace()) / len(flat)
    return float(products[pairs].mean()) / norm if pairs.any() and norm > 0 else math.nan


def align(residuals: Float[np.ndarray, "model n n"]) -> Float[np.ndarray, "model n n"]:
    """The matrices with the tokens of each model relabeled x → u x, u a unit mod n, so that they
    agree best, one after another. Fitting raises agreement by itself: fit permuted tokens, too.
    """
    n = residuals.shape[-1]
    orders = [np.arange(n) * u % n for u in range(1, n) if math.gcd(u, n) == 1]
    fitted = residuals.copy()
    for _ in range(TURNS):
        before = fitted.copy()
        for i in range(len(fitted)):
            rest = fitted.sum(0) - fitted[i]
            copies = np.array([fitted[i][np.ix_(order, order)] for order in orders])
            fitted[i] = copies[int((copies * rest).sum((1, 2)).argmax())]
        if np.array_equal(before, fitted):
            break
    return fitted


# --- layouts --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Layout:
    """A space of symmetric matrices over n tokens, spanned by the indicators of classes of entries.

    labels (part, n²): the class of each entry, once in every part of the basis; weights (n²,): the
    entries of the indicators. functions: the projection (n, n) onto the functions of the tokens
    that stand out, where the layout is about such; a deficit of them is no layout, and has a share
    below zero.
    """

    name: str
    n: int
    labels: Int[np.ndarray, "part entry"]
    weights: Float[np.ndarray, " entry"]
    functions: Array | None = None

    def _count(self, labels: Iterable[Any], values: Array, size: int) -> Array:
        return np.sum([np.bincount(one, values, size) for one in labels], 0)

    def moments(self, matrix: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " k"]:
        """The scalar products of a matrix with the basis."""
        return self._count(self.labels, self.weights * matrix.ravel(), len(self))

    @cached_property
    def _inverse(self) -> Array:
        """(k, k) pseudo-inverse of the products of the basis, centered and without H."""
        n, k = self.n, len(self)
        rows = np.repeat(np.arange(n), n)
        in_rows = (label * n + rows for label in self.labels)
        sums = self._count(in_rows, self.weights, k * n).reshape(k, n)
        total = sums.sum(1)
        along = self.moments(np.eye(n)) - total / n
        pairs = (a * k + b for a in self.labels for b in self.labels)
        products = self._count(pairs, self.weights**2, k * k).reshape(k, k) - 2 / n * sums @ sums.T
        products += np.outer(total, total) / n**2 - np.outer(along, along) / (n - 1)
        return np.asarray(np.linalg.pinv(products, rcond=1e-9, hermitian=True))

    def __len__(self) -> int:
        return int(self.labels.max()) + 1

    @cached_property
    def dimensions(self) -> int:
        """Dimensions of the space, centered and without the isotropic matrix."""
        return int(np.linalg.matrix_rank(self._inverse, hermitian=True))

    def share(self, residual: Float[np.ndarray, "n n"]) -> float:
        """The share of ‖R‖² in the space."""
        whole = float(np.square(residual).sum())
        if not whole:
            return 0.0
        moments = self.moments(residual)
        held = float(moments @ self._inverse @ moments) / whole
        lacking = self.functions is not None and float((self.functions * residual).sum()) < 0
        return -held if lacking else held

    def project(self, residual: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
        """The part of R in the space."""
        scales = (self._inverse @ self.moments(residual))[self.labels].sum(0)
        found = center((scales * self.weights).reshape(self.n, self.n))
        flat = center(np.eye(self.n))
        return found - flat * (found * flat).sum() / (self.n - 1)


def _mod(n: int, m: int) -> tuple[Array, Array]:
    """A class for each pair of x and y mod m, and the projection onto functions of x mod m."""
    x = np.arange(n) % m
    pairs = np.minimum.outer(x, x) * m + np.maximum.outer(x, x)
    same = (x[:, None] == x).astype(float)
    return pairs, center(same / same.sum(1, keepdims=True))


def _constant_on(classes: Iterable[Array]) -> tuple[Array, Array]:
    """The labels and weights of a basis: one indicator of each class of each part."""
    labels = [np.unique(part, return_inverse=True)[1].ravel() for part in classes]
    starts = np.cumsum([0, *(label.max() + 1 for label in labels[:-1])])
    return np.array(labels) + starts[:, None], np.ones(labels[0].size)


@lru_cache(maxsize=8)
def layouts(n: int) -> tuple[Layout, ...]:
    """The layouts that are looked for among n tokens.

    >>> [layout.name for layout in layouts(10)]
    ['cyclic', 'ordered', 'line', 'mod 2', 'mod 5', 'grid 2×5']
    """
    x = np.arange(n)
    apart = np.abs(np.subtract.outer(x, x))
    along = (x - x.mean()) / np.linalg.norm(x - x.mean())
    line = np.outer(along, along)
    found = [
        Layout("cyclic", n, *_constant_on([np.minimum(apart, n - apart)])),
        Layout("ordered", n, *_constant_on([apart])),
        Layout("line", n, np.zeros((1, n * n), int), line.ravel(), line),
    ]
    for m in range(2, min(n - 1, MAX_CLASSES) + 1):
        if n % m == 0:
            classes, functions = _mod(n, m)
            found.append(Layout(f"mod {m}", n, *_constant_on([classes]), functions))
    for a in range(2, math.isqrt(n) + 1):
        b = n // a
        if a * b == n and math.gcd(a, b) == 1 and b <= MAX_CLASSES:
            (first, one), (second, other) = _mod(n, a), _mod(n, b)
            basis = _constant_on([first, second])
            found.append(Layout(f"grid {a}×{b}", n, *basis, one + other))
    return tuple(found)


# --- what is found --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Structure:
    """The layouts of one R, of a model or averaged, against permuted tokens.

    shares and chance (layout,): its share, and the mean over permuted tokens; test: standardized
    shares against the largest of the family in every permutation.
    """

    residual: Float[np.ndarray, "n n"]
    shares: Float[np.ndarray, " layout"]
    chance: Float[np.ndarray, " layout"]
    test: MaxNull

    @property
    def known(self) -> tuple[Layout, ...]:
        """The layouts that were looked for."""
        return layouts(len(self.residual))

    @property
    def effects(self) -> dict[str, float]:
        """Layout → its effect: 0 of permuted tokens, 1 where R is of the layout alone."""
        return self._scaled(self.shares)

    @property
    def strength(self) -> float:
        """‖R‖² / (n − 1): the variance of the spectrum, 0 of isotropic rows."""
        return float(np.square(self.residual).sum()) / (len(self.residual) - 1)

    def name(self, alpha: float = 0.05) -> str:
        """The layout of the smallest space that holds NEARLY the largest effect of those that are
        surprising at `alpha` and have an effect of LEAST or more; empty where none is.
        """
        passed = {
            name: effect
            for (name, effect), p in zip(self.effects.items(), self.test.p_values, strict=True)
            if p <= alpha * (1 + 1e-9) and effect >= LEAST
        }
        enough = NEARLY * max(passed.values(), default=0.0)
        close = [one for one in self.known if passed.get(one.name, -math.inf) >= enough]
        return min(close, key=lambda one: one.dimensions).name if passed else ""

    def effect_of(self, residual: Float[np.ndarray, "n n"]) -> dict[str, float]:
        """The effects of another R of as many tokens, by the chance of this one."""
        return self._scaled(shares_of(residual))

    def _scaled(self, shares: Float[np.ndarray, " layout"]) -> dict[str, float]:
        """Layout → its share on the scale from chance, 0, to the whole, 1."""
        effects = (shares - self.chance) / np.maximum(1 - self.chance, 1e-12)
        return {layout.name: float(one) for layout, one in zip(self.known, effects, strict=True)}


def shares_of(residual: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " layout"]:
    """(layout,) the share of R in each of the layouts."""
    return np.array([layout.share(residual) for layout in layouts(len(residual))])


def find_layouts(
    residual: Float[np.ndarray, "n n"], permutations: int = 499, seed: int = 0
) -> Structure:
    """The layouts of R, of one model or averaged over several; null: the tokens permuted, in the
    same order in every model.

    >>> line = np.arange(10.0)[:, None] * np.ones(3)
    >>> found = find_layouts(beyond_isotropy(line), 99)
    >>> found.name(), round(found.effects["line"], 6)
    ('line', 1.0)
    """
    n, draw = len(residual), np.random.default_rng(seed)
    orders = [draw.permutation(n) for _ in range(permutations)]
    null = np.array([shares_of(residual[np.ix_(order, order)]) for order in orders])
    shares, middle, spread = shares_of(residual), null.mean(0), null.std(0).clip(1e-12)
    standard = MaxNull(*(((x - middle) / spread).round(9) for x in (shares, null)))
    return Structure(residual, shares, middle, standard)
