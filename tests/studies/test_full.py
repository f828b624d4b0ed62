"""Size full, dry-run on a CPU: one run of every kind takes two steps of two examples, at the
paper's own widths.
"""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from mechint.registry import STUDIES
from mechint.studies import PlannedRun, find_study
from mechint.training import train_many


def one_of_each_kind(planned: list[PlannedRun]) -> list[PlannedRun]:
    """The first run of every architecture, task and kind of training."""
    kinds: dict[str, PlannedRun] = {}
    for one in planned:
        described = one.spec.to_dict()
        described["train"] = {
            name: value
            for name, value in described["train"].items()
            if name not in ("seed", "data_seed", "steps")
        }
        described["task"] = {**described["task"], "perm_seed": None}
        kinds.setdefault(json.dumps(described, sort_keys=True, default=str), one)
    return list(kinds.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(set(STUDIES) - {"joint-training"})
)  # which has a dry run with its analysis, in its own file
def test_full_takes_its_first_steps(name: str) -> None:
    planned = find_study(name).runs("full")
    assert len({one.name for one in planned}) == len(planned)
    widest: dict[str, PlannedRun] = {}
    for one in one_of_each_kind(
        planned
    ):  # of every arm the largest model: the others differ in width alone
        arm = json.dumps(
            {key: value for key, value in one.labels.items() if key not in ("seed", "width")},
            default=str,
        )
        if arm not in widest or one.labels.get("width", 0) > widest[arm].labels.get("width", 0):
            widest[arm] = one
    for one in widest.values():
        size = None if one.spec.train.batch_size is None else 2
        train = dataclasses.replace(
            one.spec.train,
            steps=2,
            evaluate_every=2,
            eval_examples=2,
            batch_size=size,
            checkpoints="last",
        )
        (run,) = train_many([dataclasses.replace(one.spec, train=train)])
        assert run.status in ("finished", "stopped"), one.name
        assert all(bool(torch.isfinite(value).all()) for value in run.weights.values()), one.name
