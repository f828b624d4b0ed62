"""Induction as an explanation: matches by hand, planted heads by name, the example's two terms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import mechint
from mechint import planted
from mechint.explanation import audit, explain, head
from mechint.explanation.claims import KEYS, matches
from mechint.explanation.parts import AT

MODELS = Path(__file__).parents[2] / "examples" / "models"
PAIR = "token after an earlier equal pair"


def test_matches_are_those_of_loops() -> None:
    tokens = torch.randint(4, (60, 12), generator=torch.Generator().manual_seed(1))
    at = torch.randint(12, (60,), generator=torch.Generator().manual_seed(2))
    for length in (1, 2):
        found = matches(tokens, {AT: at}, length)
        for row, (own, end) in enumerate(zip(tokens.tolist(), at.tolist(), strict=True)):
            last = own[max(end - length + 1, 0) : end + 1]
            expected = [
                length <= key <= end and own[key - length : key] == last for key in range(12)
            ]
            assert found[row].tolist() == expected
    keys = KEYS[PAIR](tokens, {AT: at})
    for row, (own, end) in enumerate(zip(tokens.tolist(), at.tolist(), strict=True)):
        pairs = [k for k in range(2, end + 1) if own[k - 2 : k] == own[end - 1 : end + 1]]
        ones = [k for k in range(1, end + 1) if own[k - 1] == own[end]]
        assert keys[row] == max(pairs or ones or [0])


@pytest.mark.full
@pytest.mark.parametrize(("noise", "seed"), [(0.0, 1), (0.05, 2), (0.05, 3)])
def test_planted_heads_stand_and_no_others(noise: float, seed: int) -> None:
    plant = planted.induction_head(noise=noise, seed=seed, rotation_seed=seed)
    best = explain(plant.subject, family="induction")[0]
    heads = plant.truth["heads"]
    # of distinct tokens the terms are the right answer itself: the head copies it
    assert best.standing == "stands" and best.explanation.templates is None
    kinds = {"route", "most attention", "copied", "moved key", "link"}
    assert {one.kind for one in best.tests} == kinds
    (link,), (route,) = best.explanation.links, best.explanation.routes
    assert (link.layer, *link.heads) == heads["previous token"]
    assert (route.layer, *route.heads) == heads["induction"]
    assert best.value("link") == 1.0 and best.value("route") == 1.0
    others = tuple(set(range(3)) - set(link.heads))
    wrong = replace(best.explanation, links=(replace(link, heads=others),))
    found = audit(plant.subject, wrong)
    assert found.standing == "wrong" and found.value("link") == 0.0
    assert explain(plant.subject.untrained(seed))[0].standing == "refused"


@pytest.mark.full
def test_the_example_weighs_matches_of_one_and_two_tokens() -> None:
    subject = mechint.load(MODELS / "induction.pt")
    (best,) = explain(subject, family="induction")
    assert best.standing == "stands" and len(best.explanation.routes) == 1
    assert best.value("agreement") >= 0.94
    (link,) = [test for test in best.tests if test.kind == "link"]
    assert link.value >= 0.8 and link.null is not None and link.null.value <= 0.05
    (match,) = [test for test in best.tests if test.kind == "match"]
    assert match.rival is not None and match.value > match.rival.value
    assert match.null is not None and match.null.value < 0.1
    # a match of one token alone is less than the model does
    one = audit(subject, head(1, 0, 1, 2, 3).attends("token after an earlier equal one"))
    assert one.value("route") < best.value("route") and best.value("route") >= 0.95
    # some of the heads do not carry the tag alone
    claimed = best.explanation.links[0]
    part = replace(best.explanation, links=(replace(claimed, heads=claimed.heads[:1]),))
    assert audit(subject, part).standing in ("incomplete", "wrong")
    said = best.to_dict()["program"].splitlines()
    assert sum(line.startswith("logits follow how often") for line in said) == 2
