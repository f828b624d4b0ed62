"""The rule by which evidence becomes a verdict, in findings, audits, studies and calibration, and
claims in words for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mechint.decide.evidence import Bound, Evidence, Skill
from mechint.decide.null import Null, why_undecidable
from mechint.errors import counted

Verdict = Literal["yes", "no", "unclear", "untested"]

LEVEL = 0.05
"""Level at which a null is beaten where nothing else is said."""
NEAR = 0.1
"""A p-value up to it that does not beat its null denies nothing, either."""


@dataclass(frozen=True)
class Decision:
    """A verdict, and the reason for it where it is not "yes".

    verdict: "yes"; "no"; "unclear", the numbers cannot carry either; "untested", nothing could have
    failed.
    """

    verdict: Verdict
    reason: str = ""

    def __bool__(self) -> bool:
        return self.verdict == "yes"


YES = Decision("yes")


def decide(
    evidence: Evidence,
    *,
    null: Null | Sequence[Null] = (),
    bound: Bound | None = None,
    level: float = LEVEL,
    chance: Skill | None = None,
    least: int = 1,
) -> Decision:
    """Decide whether evidence beats its nulls and lies beyond its bound.

    Args:
        evidence: the number, with its counts or resamples. null: all have to be beaten at `level`;
            one whose samples or arrangements cannot reach it decides nothing, and none denies with
            a p-value of at most `NEAR`, with which the bound still may. bound: "yes" where
            the near end of the interval lies beyond it, "no" where the far end does not, and
            "unclear" where the interval has the bound in it. chance: the model's accuracy beside
            chance: of a model at chance nothing is decided, and a bound `above_chance` is a share
            of this accuracy above it. least: the fewest observations.

    Returns:
        "untested" without an observation; "unclear" with fewer than `least`, of a number that is
        not finite, of a model at chance, and where null or bound cannot be decided; else "yes" or
        "no".

    >>> decide(Evidence.share(99, 100), bound=Bound(0.9))
    Decision(verdict='yes', reason='')
    >>> decide(Evidence.share(92, 100), bound=Bound(0.9)).verdict
    'unclear'
    >>> decide(Evidence.share(50, 100), bound=Bound(0.9)).reason
    '0.500 (0.404 to 0.596), not above 0.9'
    >>> decide(Evidence.share(0, 0), bound=Bound(0.9)).verdict
    'untested'
    >>> near_chance = Skill(0.16, 0.11, 4000)
    >>> decide(Evidence.share(15, 100), bound=Bound(0.9, above_chance=True), chance=near_chance)
    Decision(verdict='unclear', reason='0.150 (0.093 to 0.233), not clearly above 0.155')
    >>> decide(Evidence.share(60, 60), bound=Bound(0.95)).reason
    '1.000 (0.940 to 1.000), not clearly above 0.95'
    """
    nulls = (null,) if isinstance(null, Null) else tuple(null)
    if not evidence.n:
        return Decision("untested", "no input on which it could fail")
    if evidence.n < least:
        few = f"{counted(evidence.n, 'input')}, where at least {least} are needed"
        return Decision("unclear", few)
    if chance is not None and chance.reason:
        return Decision("unclear", chance.reason)
    if (reason := why_undecidable(nulls, level)) is not None:
        return Decision("unclear", reason)
    if math.isnan(evidence.value):
        return Decision("unclear", "the number is not defined")
    if bound is not None and bound.above_chance:
        assert chance is not None, "a bound above chance needs the chance"
        bound = replace(bound, value=chance.at(bound.value), above_chance=False)
    held = YES if bound is None else _held_to(bound, evidence)
    if nulls and (weakest := max(nulls, key=lambda one: one.p_value)).p_value > level * (1 + 1e-9):
        reason = f"{weakest.p_text} against {weakest.how}, {level:g} asked for"
        if weakest.p_value > NEAR:
            return Decision("no", reason)
        return held if held.verdict == "no" else Decision("unclear", reason)
    return held


def _held_to(bound: Bound, evidence: Evidence) -> Decision:
    near, far = bound.ends(evidence)
    if bound.beyond(near):
        return YES
    verdict: Verdict = "unclear" if bound.beyond(far) else "no"
    words = f"{evidence}, {'not' if verdict == 'no' else 'not clearly'} {bound.side}"
    return Decision(verdict, f"{words} {bound.value:.3g}")


def all_of(decisions: Iterable[Decision]) -> Decision:
    """Combine several tests of one claim: "no" where one says so, else "unclear" where one
    does, else "yes" where one could have failed, else "untested".

    >>> all_of([YES, Decision("untested", "no input")])
    Decision(verdict='yes', reason='')
    >>> all_of([YES, Decision("no", "a"), Decision("unclear", "b")]).reason
    'a'
    """
    found = list(decisions)
    for verdict in ("no", "unclear", "yes", "untested"):
        for one in found:
            if one.verdict == verdict:
                return one
    return Decision("untested", "it has no test")


def first_of(*cases: tuple[object, str]) -> str:
    """The words of the first case that has any and whose condition holds; "" where none does.

    >>> first_of((0 > 1, "more"), (True, "no more")), first_of((False, "never"))
    ('no more', '')
    """
    return next((words for holds, words in cases if holds and words), "")


@dataclass(frozen=True)
class Claim:
    """A claim in words, for each verdict, and what it is about.

    yes: at most fifteen words, subject first. no: claims no more than that it does not hold.
    unclear: where it cannot be decided. doubt: the reason for which it cannot, known before any
    test; "" where it can. lead: of "yes", as the verdict of an account; True for the words of "yes"
    themselves. caveat: one clause that
    limits "yes". causal: it says what the model uses, needs or does because of something.
    at_chance: it can be true of a model that answers at chance, as one about its weights can.
    outputs: those that it names; one of all of them where None.

    >>> claim, few = Claim(yes="It adds.", no="It does not."), Decision("unclear", "few inputs")
    >>> [claim.say(one) for one in (YES, Decision("no"), few)]
    ['It adds.', 'It does not.', 'Unclear: few inputs']
    >>> replace(claim, unclear="It may add.").say(few)
    'It may add.'
    """

    yes: str
    no: str
    unclear: str = ""
    doubt: str = ""
    lead: str | bool = ""
    caveat: str = ""
    causal: bool = False
    at_chance: bool = False
    outputs: Sequence[str] | None = None

    def say(self, decision: Decision) -> str:
        """The words for a decision; those of "unclear" where nothing was tested."""
        if decision.verdict in ("yes", "no"):
            return self.yes if decision.verdict == "yes" else self.no
        return self.unclear or f"Unclear: {decision.reason}"
