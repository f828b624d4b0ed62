"""Words of decisions: one table for findings, claims of explanations and claims of studies."""

from __future__ import annotations

from collections.abc import Mapping

from mechint.decide._rule import Verdict

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
