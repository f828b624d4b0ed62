"""A claim of a paper: its statement, a criterion whose prose and code share their numbers, its
verdict.

    @claim("a", statement="every run learns", paper="accuracy 1",
           criterion=Criterion("every last accuracy is at least {bar:g}", bar=0.9),
           reason="far above chance")
    def learned(study, criterion): ...

The decorator turns the measurement into a `ClaimSpec`; letter, prose and thresholds stand once.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
UNDERPOWERED = "underpowered"
NOT_TESTED = "not tested at this size"
NOT_RUN = "not run yet"
"""Of a kept claim whose criterion has changed since its runs."""

VERDICTS = (REPRODUCED, NOT_REPRODUCED, UNDERPOWERED, NOT_TESTED, NOT_RUN)

JUDGED = ("laptop", "overnight", "full")
"""The sizes that judge claims, the smallest first."""


class Criterion:
    """A sentence with thresholds in it; the measurement reads the same thresholds.

    >>> rule = Criterion("every accuracy is at least {bar:g}", bar=0.9)
    >>> str(rule), rule["bar"]
    ('every accuracy is at least 0.9', 0.9)
    """

    def __init__(self, sentence: str, **thresholds: Any) -> None:
        named = {name for _, name, _, _ in string.Formatter().parse(sentence) if name}
        assert named == set(thresholds), f"criterion {sentence!r}: {named ^ set(thresholds)}"
        self._sentence, self._thresholds = sentence, thresholds

    def __str__(self) -> str:
        return self._sentence.format(**self._thresholds)

    def __getitem__(self, name: str) -> Any:
        return self._thresholds[name]


@dataclass(frozen=True)
class Part:
    """One thing that a criterion asks for.

    name: what is measured; met: True, False, or None where the interval spans the bar or the runs
    are too few; shown: the estimate with its interval or exact test; n: independent runs behind it.
    """

    name: str
    met: bool | None
    shown: str
    n: int

    def to_dict(self) -> dict[str, Any]:
        """Name, outcome in a word, what is shown, and n."""
        outcome = {True: "met", False: "missed", None: "undecided"}[self.met]
        return {"part": self.name, "outcome": outcome, "shown": self.shown, "n": self.n}


@dataclass(frozen=True)
class Finding:
    """What the runs show of a claim.

    parts: all that the criterion asks for; ours: our figure in words; values: the numbers behind
    it; control: what must hold for the measurement to be able to see the effect at all.
    """

    parts: Sequence[Part]
    ours: str
    values: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    control: Part | None = None

    @property
    def verdict(self) -> str:
        """Underpowered without its positive control; else not reproduced where a part is missed,
        reproduced where all are met, underpowered where one is undecided.

        >>> met, open = Part("x", True, "1.00", 3), Part("y", None, "0.5 [0.2, 0.9]", 3)
        >>> Finding((met,), "").verdict, Finding((met, open), "").verdict
        ('reproduced', 'underpowered')
        """
        assert self.parts, "a finding without parts"
        if self.control is not None and not self.control.met:
            return UNDERPOWERED
        outcomes = [part.met for part in self.parts]
        if False in outcomes:
            return NOT_REPRODUCED
        return UNDERPOWERED if None in outcomes else REPRODUCED

    @property
    def n(self) -> int:
        """The fewest independent runs behind any part."""
        return min(part.n for part in self.parts)


@dataclass(frozen=True)
class Replaced:
    """A criterion that was found wrong: its text, what came out under it, and why it went.

    verdict: a string where it is that of every size at which the criterion judged; else size →
    verdict, a size that it never judged left out, so that the verdict of an earlier one stands
    there.

    >>> split = {"laptop": UNDERPOWERED, "overnight": NOT_REPRODUCED}
    >>> one, other = (Replaced("it falls", v, "2 [1, 3]", "") for v in (UNDERPOWERED, split))
    >>> verdict_at(one.verdict, "overnight"), verdict_at(other.verdict, "overnight")
    ('underpowered', 'not reproduced')
    """

    criterion: str
    verdict: str | Mapping[str, str]
    ours: str
    reason: str

    def __post_init__(self) -> None:
        sizes = () if isinstance(self.verdict, str) else self.verdict
        assert set(sizes) <= set(JUDGED), sizes


def verdict_at(verdict: str | Mapping[str, str], size: str) -> str | None:
    """What a replaced criterion's `verdict` says of `size`; None where it never judged it."""
    return verdict if isinstance(verdict, str) else verdict.get(size)


@dataclass(frozen=True)
class ClaimSpec:
    """A claim as the paper makes it and how it is judged, written down before the runs.

    paper: the paper's own figure; reason: why the criterion is fair; sizes: where it is judged;
    replaced: earlier criteria with their verdicts; measure: study's measures → Finding.
    """

    letter: str
    statement: str
    paper: str
    criterion: Criterion
    reason: str
    sizes: tuple[str, ...]
    replaced: tuple[Replaced, ...]
    measure: Callable[[Any, Criterion], Finding]

    def __call__(self, measures: Any) -> Finding:
        return self.measure(measures, self.criterion)


def claim(
    letter: str,
    *,
    statement: str,
    paper: str,
    criterion: Criterion,
    reason: str,
    sizes: tuple[str, ...] = JUDGED,
    replaced: tuple[Replaced, ...] = (),
) -> Callable[[Callable[[Any, Criterion], Finding]], ClaimSpec]:
    """Make a measurement, a function of (measures, criterion), the claim `letter`."""
    assert set(sizes) <= set(JUDGED), sizes

    def decorate(measure: Callable[[Any, Criterion], Finding]) -> ClaimSpec:
        return ClaimSpec(letter, statement, paper, criterion, reason, sizes, replaced, measure)

    return decorate
