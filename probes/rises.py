"""How the loss rises without parts of the embedding, and the sentence on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mechint.errors import counted
from mechint.probe import Report
from mechint.results import Null
from probes._fourier.spectra import Array
from probes.words import LISTED, first_of

REMOVAL_LEVEL = 0.01
"""At which sentences on removals are decided."""
TOO_FEW = "no more directions than these are unnamed, too few to compare with as many of them"


@dataclass(frozen=True)
class Rises:
    """Rises of the loss, in nats, over `loss`, without parts of the embedding.

    embedding: name of a part → rise without it; named: without all of these together; unnamed:
    without all others together. named_test: on some of the examples, the rise without all named
    ones together, and (sample,) without as many random directions among the unnamed ones; None
    where there is nothing to remove, or no more directions than that to compare it with.
    """

    loss: float
    embedding: Mapping[Any, float]
    named: float
    unnamed: float
    named_test: tuple[float, Array] | None


def add_named_removal(report: Report, rises: Rises, kind: str) -> None:
    """The metric `embedding.removal_named`: the rise without all named parts together. Its null
    holds the rise on some of the examples against random directions on the same.
    """
    if rises.named_test is not None:
        name, how = "embedding.removal_named", f"as many random directions of the unnamed {kind}"
        null = Null.sampled(name, *rises.named_test, f"{how} removed")
        report.metric(name, rises.named, null=null, unit="nats")


def add_removal_finding(
    report: Report,
    rises: Rises,
    kind: str,
    least: float,
    label: str = "",
    against: str = "loss",
    **gate: Any,
) -> None:
    """The sentence on what the loss is without the named parts of the embedding, from the metric
    `embedding.removal_named` where there is a test.

    Args:
        kind: of the parts, in the plural; label: what stands before their names in the sentence;
            against: what the loss is called; gate: what more `Report.finding` is to know.
    """
    ordered = sorted(rises.embedding, key=lambda name: -rises.embedding[name])
    shown = [f"{name} by {rises.embedding[name]:.2g}" for name in ordered[:LISTED]]
    if rest := ordered[LISTED:]:
        shown.append(f"{counted(len(rest), 'other')} by at most {rises.embedding[rest[0]]:.2g}")
    one, loss = len(ordered) == 1, f"{against} of {rises.loss:.2g} nats"
    some = f"{label}{first_of(ordered)}"
    if rises.named_test is None:
        report.abstain(
            f"projecting {some} out of the embedding changes the {loss} by "
            f"{rises.named:+.2g}, but {TOO_FEW}"
        )
        return
    sampled, samples = rises.named_test
    own = f"{sampled:+.2g}" != f"{rises.named:+.2g}"  # the null has its own examples
    beside = f" ({sampled:+.2g} on the inputs of the null)" if own else ""
    report.finding(
        f"Projected out of the embedding{'' if one else ' together'}, {some} "
        f"{'raises' if one else 'raise'} the {loss} by {rises.named:.2g}"
        f"{beside}; one at a time, {', '.join(shown)}; all unnamed ones together by "
        f"{rises.unnamed:.2g}.",
        question=f"whether the model needs {some} in its embedding",
        otherwise=(
            f"Projecting {some} out of the embedding changes the {loss} by "
            f"{rises.named:+.2g}{beside}; as many random directions of the unnamed {kind} change "
            f"it by {samples.mean():+.2g}."
        ),
        null="embedding.removal_named",
        alpha=REMOVAL_LEVEL,
        effect=rises.named,
        least=least,
        causal=True,
        **gate,
    )
