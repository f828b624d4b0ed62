"""Words of decisions: one table for findings, claims of explanations and claims of studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mechint.decide._rule import Decision, Verdict

CLAIM: Mapping[Verdict, str] = {
    "yes": "stands",
    "no": "wrong",
    "unclear": "unclear",
    "untested": "untested",
}
"""Standing of a part, a route or another claim of an explanation."""
STUDY: Mapping[Verdict, str] = {
    "yes": "supported",
    "no": "refuted",
    "unclear": "inconclusive",
    "untested": "not run",
}
"""Verdict on a claim of a study."""
STANDINGS: Mapping[str, str] = {
    "stands": "every claim has a test that could fail, and passes it",
    "superfluous": "stands, with parts that are needless or untested",
    "unclear": "a test cannot be decided on these inputs",
    "incomplete": "nothing false, but it does not suffice",
    "wrong": "a test contradicts a claim",
    "untested": "nothing could be tested",
    "refused": "the model answers at chance, or no program was found",
}
"""Standing of an explanation, best first, and its meaning."""
STANDS = ("stands", "superfluous")
"""Standings of an explanation whose program is that of the model."""
NOT_FALSE = (*STANDS, "unclear", "incomplete")
"""Standings of an explanation in which nothing is contradicted, and something was tested."""


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

    >>> Claim(yes="It adds.", no="It does not add.").say(Decision("no"))
    'It does not add.'
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
