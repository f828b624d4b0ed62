"""Decisions: evidence, bounds, nulls, chance, and the one rule that makes a verdict of them.

found = decide(Evidence.share(97, 100), bound=Bound(0.9), chance=Skill(0.99, 0.1, 100))
found.verdict                         # "yes", "no", "unclear" or "untested"
"""

from mechint.decide._rule import NEAR, YES, Claim, Decision, Verdict, all_of, decide, first_of
from mechint.decide.evidence import Bound, Evidence, Skill, best_constant, clopper_pearson, wilson
from mechint.decide.null import MaxNull, Null

__all__ = [
    "NEAR",
    "YES",
    "Bound",
    "Claim",
    "Decision",
    "Evidence",
    "MaxNull",
    "Null",
    "Skill",
    "Verdict",
    "all_of",
    "best_constant",
    "clopper_pearson",
    "decide",
    "first_of",
    "wilson",
]
