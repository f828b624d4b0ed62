"""How far components of the tokens' similarity lie apart by the residue of their values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from mechint.null import groupings
from mechint.results import Null
from probes._fourier.spectra import Array

RESIDUES = {"parity": 2, "mod_4": 4}
SEPARATED = {
    "parity": "component {}",
    "mod_4": "what component {} varies within even and within odd",
}
"""What a separation is a share of."""


def separation(
    scores: Float[np.ndarray, "n component"], classes: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " component"]:
    """(components,) share of each component's variance that lies between the classes (η², 0–1).

    >>> separation(np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]),
    ...     np.array([0, 1, 0, 1])).tolist()
    [1.0, 0.0]
    """
    members = np.eye(classes.max() + 1)[classes]
    counts = members.sum(0)
    means = members.T @ (scores - scores.mean(0)) / counts[:, None]
    between = (counts[:, None] * means**2).sum(0)
    return between / np.maximum(((scores - scores.mean(0)) ** 2).sum(0), 1e-24)


def within(
    scores: Float[np.ndarray, "n component"], classes: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n component"]:
    """(n, components) what the scores vary within the classes: less the mean of their class.

    >>> within(np.array([[1.0], [3.0], [7.0]]), np.array([0, 0, 1])).ravel().tolist()
    [-1.0, 1.0, 0.0]
    """
    members = np.eye(classes.max() + 1)[classes]
    return scores - members @ ((members.T @ scores) / members.sum(0)[:, None])


def separations(
    scores: Float[np.ndarray, "n component"],
    orders: Sequence[Array],
    generator: np.random.Generator,
) -> tuple[dict[str, Any], dict[str, Null]]:
    """Metrics and nulls of the components' separation by parity, over random `orders` of the
    tokens, and by residue mod 4 within parity.
    """
    n = len(scores)
    metrics: dict[str, Any] = {}
    nulls: dict[str, Null] = {}
    for name, modulus in RESIDUES.items():
        # finer classes hold all that coarser ones separate: what they add is asked within those
        classes, coarser = np.arange(n) % min(modulus, n), np.arange(n) % (modulus // 2)
        varied, how = within(scores, coarser), "the largest separation with tokens in random order"
        shares = separation(varied, classes)
        metrics |= {
            f"{name}.separation": float(shares.max()),
            f"{name}.component": int(shares.argmax()) + 1,
        }
        dealt = [classes[order] for order in orders]
        if coarser.any():
            dealt = [_dealt(classes, coarser, generator) for _ in orders]
            how += ", even and odd ones each among themselves"
        counts = (np.unique(classes[coarser == one], return_counts=True)[1] for one in set(coarser))
        nulls[f"{name}.separation"] = Null.sampled(
            f"{name}.separation",
            float(shares.max()),
            [float(separation(varied, one).max()) for one in dealt],
            how,
            math.prod(groupings(sizes.tolist()) for sizes in counts),
        )
    return metrics, nulls


def _dealt(classes: Array, coarser: Array, generator: np.random.Generator) -> Array:
    """The classes dealt out anew among the tokens of each coarser class."""
    dealt = np.empty_like(classes)
    drawn = np.lexsort((generator.random(len(classes)), coarser))
    dealt[np.argsort(coarser, kind="stable")] = classes[drawn]
    return dealt
