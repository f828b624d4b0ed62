"""An account in under 2 kB of JSON: what a program or an agent reads first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mechint.decide.null import MIN_PRINTED_P
from mechint.explanation.text import by_answer, says, shown_tests
from mechint.probe.results import SCHEMA

if TYPE_CHECKING:
    from mechint.account import Account
    from mechint.probe.results import Finding

MOST = 2000
"""Bytes of the JSON; findings that do not fit are counted."""
MOST_TRIED = 6
"""Other programs of an answer that are named with their standing."""


def brief(account: Account, **more: Any) -> dict[str, Any]:
    """Model, quality, verdict, its scope, findings with effect, baseline and p-value, what was not
    asked, the next command, and `more`, which is not shortened.
    """
    verdict, scope = account.verdict, account.limits
    found = [*account.evidence, *account.findings("no"), *account.findings("unclear")]
    if not account.results and account.audits:
        each = by_answer(account.audits)
        best = [one for one, *_ in each]
        verdict = "; ".join(f"{says(one)}: {one['short'] or one['name']}" for one in best)
        scope = "; ".join(one["reason"] for one in best if one["reason"]) or scope
        found = [("explanation", test) for one in best for test in shown_tests(one)]
        more["also_tried"] = {
            one["short"] or one["name"]: one["standing"]
            for _, *others in each
            for one in others[:MOST_TRIED]
        }
    rows = [_row(name, finding) for name, finding in found]
    made = {
        "schema": SCHEMA,
        "model": account.title,
        "quality": [
            {"output": one.output, "accuracy": _short(one.accuracy), "chance": _short(one.chance)}
            for one in account.quality[:3]
        ],
        "verdict": verdict,
        "scope": scope,
        "evidence": rows,
        "unasked": dict(account.not_asked) if account.results else {},
        "next": next(iter(account.next), ""),
        **more,
    }
    while len(json.dumps(made, ensure_ascii=False).encode()) > MOST and (rows or made["unasked"]):
        made["more"] = made.get("more", 0) + 1
        if rows:
            rows.pop()
        else:
            made["unasked"].popitem()
    return made


def brief_of_two(accounts: Sequence[Account], sentence: str) -> dict[str, Any]:
    """The sentence of a comparison, and model, verdict and scope of each."""
    models = [{"model": a.title, "verdict": a.verdict, "scope": a.limits} for a in accounts]
    return {"schema": SCHEMA, "sentence": sentence, "models": models}


def _row(name: str, finding: Finding) -> dict[str, Any]:
    effect = finding.effect
    row = {
        "probe": name,
        "headline": finding.headline,
        "verdict": finding.verdict,
        "effect": effect and _short(effect.value),
        "baseline": effect and _short(effect.baseline),
        "p": finding.p_value and max(finding.p_value, MIN_PRINTED_P),
        "scope": str(finding.scope),
        "reason": finding.reason,
    }
    return {key: value for key, value in row.items() if value not in (None, "")}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
