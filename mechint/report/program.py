"""The program of an explanation as boxes from inputs to answer, each with its tests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mechint.explanation.records import Test
from mechint.explanation.text import share_text, shown_tests, told_tests
from mechint.probe.results import Effect

DEPTHS = ("embed", "resid_pre", "attn", "resid_mid", "mlp", "resid_post")
"""Sites of a layer in the order in which they are computed."""
HEADS = re.compile(r"((?:L\d+H[\d,]+,? ?)*)(.*)")
"""The heads that a route begins with, and what they do."""


@dataclass(frozen=True)
class Box:
    """One part of a program: where it lives, and its tests.

    standing: of its claim, "missing" of what no part names, "told" of what is no claim.
    """

    title: str
    where: str
    standing: str
    blocks: str = ""
    reason: str = ""
    tests: Sequence[Test] = ()


def columns_of(audit: Mapping[str, Any]) -> list[list[Box]]:
    """The boxes of an audit, given as JSON values, in columns from the inputs to the logits."""
    claims = {one["claim"]: one for one in audit["claims"]}
    tests = shown_tests(audit)
    placed: list[tuple[tuple[int, int], Box]] = []
    for part in audit["parts"]:
        name = f"{part['name']} at {part['site']}"
        blocks = ", ".join(part["blocks"])
        box = _box(part["name"], part["site"], claims, name, tests, blocks)
        placed.append((_depth(part["site"]), box))
    for route in audit["routes"]:
        if route in claims:
            heads, what = HEADS.findall(route)[0]
            placed.append((_depth(route), _box(heads, what, claims, route, tests)))
    for one in told_tests(audit):
        placed.append((_depth(one.target), Box(one.target, one.headline, "told")))
    last = max((depth for depth, _ in placed), default=(0, 0))
    placed += [(last, Box("missing", said, "missing")) for said in audit["missing"]]
    columns: dict[tuple[int, int], list[Box]] = {}
    told: set[str] = set()  # a test of several parts stands in the first
    for depth, box in sorted(placed, key=lambda one: one[0]):
        new = [test for test in box.tests if test.headline not in told]
        told |= {test.headline for test in new}
        columns.setdefault(depth, []).append(replace(box, tests=new))
    found = audit.get("accounted")
    if found is None:
        return list(columns.values())
    verb: str = found["verb"]
    word = {"explains": "explained", "keeps": "kept"}.get(verb, verb)
    share = Test(word, "yes", Effect(found["share"]), kind="coverage", target=found["of"])
    where = found["how"] or f"{share_text(1 - found['share'])} not {word}"
    return [*columns.values(), [Box(found["of"], where, "told", tests=[share])]]


def _box(
    title: str,
    where: str,
    claims: Mapping[str, Mapping[str, str]],
    claim: str,
    tests: Sequence[Test],
    blocks: str = "",
) -> Box:
    """The box of a claim, with the tests that are about it, those that fail first."""
    own = sorted(
        (one for one in tests if claim in one.of), key=lambda one: one.standing == "stands"
    )
    found = claims.get(claim, {"standing": "untested", "reason": ""})
    return Box(title.strip(), where, found["standing"], blocks, found["reason"], own)


def _depth(site: str) -> tuple[int, int]:
    """Layer and depth of a site or of heads.

    >>> _depth("L1 resid_post @ answer"), _depth("L0H0, L0H1")
    ((1, 5), (0, 2))
    """
    found = re.search(r"L(\d+)(?:H\d+| (\w+))", site)
    if found is None:
        return -1, 0
    kind = found[2] or "attn"
    order = next((i for i, one in enumerate(DEPTHS) if kind.startswith(one)), 2)
    return int(found[1]), order
