"""Explanations that run: a program of a model, where its variables live, and an audit of both.

    from mechint.explain import audit, explain
    found = explain(subject)                     # audits, best first
    print(found[0])

An `Explanation` binds the variables of a program to sites by features that are fitted additively;
`audit` fits on one half of the inputs and judges by interventions on the other.
"""

from mechint.explain._audit import Audit, Test, audit
from mechint.explain.claims import head, neurons, site
from mechint.explain.explanation import Explanation
from mechint.explain.parts import Part, Route
from mechint.explain.propose import Family, explain
from mechint.explain.rivals import Rivals, rivals

__all__ = [
    "Audit",
    "Explanation",
    "Family",
    "Part",
    "Rivals",
    "Route",
    "Test",
    "audit",
    "explain",
    "head",
    "neurons",
    "rivals",
    "site",
]
