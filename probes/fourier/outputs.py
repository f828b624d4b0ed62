"""Several outputs of different moduli judged together: which can be tested, and one null for all.

A cosine says different things at different moduli: modulo 2 and 3 it is 1 wherever answers are
right, and one of two or of six orders of the classes reaches that. Outputs are compared by how far
each stands out of its own null.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from mechint.null import orderings
from probes.fourier.spectra import Spectrum


def enough_classes(n: int, alpha: float, n_outputs: int) -> bool:
    """Whether a key frequency of n classes can be told at level `alpha` for `n_outputs` together.

    The right one of the n! orders of the classes is drawn with probability 1/n!, below which no
    p-value lies.

    >>> [n for n in range(2, 12) if not enough_classes(n, 0.002, n_outputs=29)]
    [2, 3, 4, 5, 6, 7]
    """
    return orderings(n) >= n_outputs / alpha


def largest_z(
    logits: Mapping[str, Spectrum],
) -> tuple[dict[str, float], Float[np.ndarray, " sample"]]:
    """Output → its largest cosine in standard deviations of its null, by Fisher's z (the inverse
    hyperbolic tangent, on which small moduli, whose null reaches far, compare with large ones); and
    (sample,) the largest of all outputs in each sample of the null.

    What was observed counts as one more sample of the null, so that ranks are those of a
    permutation test (Westfall and Young 1993).
    """
    cosines = np.array([[one.values.max(), *one.null] for one in logits.values()])
    z = np.arctanh(np.clip(cosines, -1 + 1e-9, 1 - 1e-9))  # (output, 1 + sample)
    z = (z - z.mean(1, keepdims=True)) / np.maximum(z.std(1, keepdims=True), 1e-12)
    return dict(zip(logits, z[:, 0].tolist(), strict=True)), z[:, 1:].max(0)
