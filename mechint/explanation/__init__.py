"""Explanations that run: a program of a model, where its variables live, and an audit of both.

    from mechint.explanation import audit, explain
    found = explain(subject)                     # audits, best first
    print(found[0].standing, found[0].explanation.name)

An `Explanation` binds the variables of a program to sites by features that are fitted additively;
`audit` fits on one half of the inputs and judges by interventions on the other.
"""

from mechint.explanation._audit import audit
from mechint.explanation.certificate import Certificate, certify
from mechint.explanation.claims import head, site
from mechint.explanation.comparison import Comparison, carry, compare
from mechint.explanation.explanation import Explanation
from mechint.explanation.parts import Part, Route
from mechint.explanation.propose import Family, explain
from mechint.explanation.records import Test
from mechint.explanation.standing import Audit

__all__ = [
    "Audit",
    "Certificate",
    "Comparison",
    "Explanation",
    "Family",
    "Part",
    "Route",
    "Test",
    "audit",
    "carry",
    "certify",
    "compare",
    "explain",
    "head",
    "site",
]
