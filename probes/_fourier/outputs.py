"""Several outputs of different moduli judged together: which can be tested, and one null for all.

A cosine says different things at different moduli: modulo 2 and 3 it is 1 wherever answers are
right, and one of two or of six orders of the classes reaches that. Outputs are compared by how far
each stands out of its own null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from mechint.errors import counted
from mechint.null import family_wise
from mechint.probe import Report
from mechint.results import Null
from probes._fourier.spectra import Spectrum, circular_orders
from probes.words import first_of


def enough_classes(n: int, alpha: float, n_outputs: int) -> bool:
    """Whether a key frequency of n classes can be told at level `alpha` for `n_outputs` together.

    The right one of the orders of n elements on a circle is drawn with a probability below which no
    p-value lies.

    >>> [n for n in range(2, 12) if not enough_classes(n, 0.002, n_outputs=29)]
    [2, 3, 4, 5, 6, 7, 8, 9]
    """
    return circular_orders(n) >= n_outputs / alpha


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


def add_finding(report: Report, tested: Mapping[str, Spectrum], too_few: Sequence[str]) -> None:
    """Which of several outputs have key frequencies, all of them together at the probe's level."""
    z, null = largest_z(tested)
    name, largest = "logits.largest_z", np.array(list(z.values()))
    how = (
        "the largest of all outputs, in standard deviations of each, answers and classes in one "
        "random order"
    )
    report.metric(
        name,
        z,
        null=Null.sampled(name, float(largest.max()), null, how),
        unit="standard deviations of Fisher's z of the largest cosine's null",
    )
    level = report.probe.significance * (1 + 1e-9)
    p_values = dict(zip(z, family_wise(largest, null), strict=True))
    keyed = {output: one.keys for output, one in tested.items() if one.keys}
    found = {output: keys for output, keys in keyed.items() if p_values[output] <= level}

    def shown(keys: Mapping[str, Sequence[int]]) -> str:
        return "; ".join(f"{output}: {', '.join(map(str, some))}" for output, some in keys.items())

    which = f"the {counted(len(tested), 'output')}" + (
        f" that can be tested ({first_of(too_few)} {'has' if len(too_few) == 1 else 'have'} too "
        "few classes)"
        if too_few
        else ""
    )
    verb, its = ("has", "its") if len(found) == 1 else ("have", "their")
    report.finding(
        f"{len(found)} of {which} {verb} key frequencies in {its} logits ({shown(found)}).",
        question="which outputs have key frequencies",
        otherwise=(
            f"None of {which} has key frequencies in its logits beyond what one of so many may "
            f"have by chance ({shown(keyed)})."
            if keyed
            else f"None of {which} has a key frequency in its logits."
        ),
        holds=bool(found),
        null=name,
    )
