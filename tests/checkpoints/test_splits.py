"""Splits of other projects, against their code's own steps and their published losses."""

from __future__ import annotations

import random

import pytest
import torch

from mechint.checkpoints import load_checkpoint
from mechint.checkpoints.reader import SplitRule, known_split
from mechint.registry import TASKS
from tests.checkpoints.bases import pizza, progress_measures
from tests.checkpoints.test_pair_networks import rep_theory
from tests.checkpoints.test_readers import randoms


def test_python_shuffle_is_the_shuffle_of_the_list_of_pairs():
    pairs = [(x, y) for x in range(7) for y in range(7)]
    random.Random(5).shuffle(pairs)
    train = sorted(7 * x + y for x, y in pairs[: int(0.3 * 49)])
    assert SplitRule("python-shuffle", 5, 0.3).indices(49)["train"].tolist() == train


@pytest.mark.parametrize("rule", ["torch-randperm", "torch-randperm-or-sorted"])
def test_torch_randperm_is_the_global_generators(rule):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        order = torch.randperm(50)
    indices = SplitRule(rule, 3, 0.4).indices(50)
    assert indices["train"].tolist() == sorted(order[:20].tolist())
    assert sorted([*indices["train"].tolist(), *indices["test"].tolist()]) == list(range(50))
    unshuffled = SplitRule("torch-randperm-or-sorted", 0, 0.4).indices(50)["train"]
    assert unshuffled.tolist() == list(range(20))


def test_a_split_belongs_to_the_task_the_file_names():
    task = TASKS["modular-arithmetic"](p=7)
    rule = SplitRule("python-shuffle", 1, 0.3)
    same = {"p": 7, "operation": "add"}
    assert known_split(rule, "modular-arithmetic", same, task) == rule
    subtract = TASKS["modular-arithmetic"](p=7, operation="subtract")
    assert known_split(rule, "modular-arithmetic", same, subtract) == rule
    other = TASKS["modular-arithmetic"](p=7, train_fraction=0.5)
    assert known_split(rule, "modular-arithmetic", same, other) is None
    assert known_split(rule, "groups", {}, task) is None
    assert known_split(None, "modular-arithmetic", same, task) is None


def test_where_the_split_is_not_known_there_is_none(tmp_path):
    opened = load_checkpoint(pizza(tmp_path))
    assert opened.split is None and opened.subject().split is None and opened.seed is None
    assert opened.performance.splits == {}


def test_the_files_seed_is_its_own(tmp_path):
    opened = load_checkpoint(progress_measures(tmp_path))
    assert (opened.seed, opened.split) == (1, SplitRule("python-shuffle", 1, 0.4))
    state = randoms({"W_x": (7, 4), "W_y": (7, 4), "W": (8, 5), "W_U": (5, 7)})
    opened = load_checkpoint(rep_theory(tmp_path, state, seed=0))
    assert opened.split == SplitRule("torch-randperm-or-sorted", 0, 0.4)
    assert len(opened.subject().split["train"]) == int(0.4 * 49)
