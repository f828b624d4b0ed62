"""Every registered probe keeps the contract, on subjects it applies to and on those it does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from mechint import planted
from mechint.registry import PROBES, TASKS
from mechint.subject import Subject
from mechint.testing import check_probe

SUBJECTS: dict[str, Callable[[], planted.Planted]] = {
    "addition": lambda: planted.modular_addition(11, (2, 3), noise=0.02),
    "comparison": lambda: planted.comparison(12, 0.5, noise=0.01),
    "composition": lambda: planted.composition(5, 2),
    "induction": lambda: planted.induction_head(8, 4, noise=0.01),
    "bottleneck": lambda: planted.bottleneck(width=4, noise=0.1, n=12, n_tasks=3, rank=4),
}

QUICK: dict[str, dict[str, Any]] = {
    "das": {"steps": 10, "pairs": 24, "held_out": 12, "null_samples": 9, "only_correct": False},
    "patching": {"pairs": 32, "null_samples": 19},
    "ablation": {"examples": 64, "null_examples": 16, "null_samples": 9, "neurons": 4},
    "norms": {"null_models": 19, "null_examples": 16, "bootstrap": 199},
    "gradients": {"permutations": 2},
    "lens": {"permutations": 19},
    "linear": {"permutations": 19, "variables": 3},
    "fourier": {"permutations": 99, "operand_permutations": 9},
    "subspace": {"samples": 19},
    "interference": {"examples": 32, "batches": 2, "batch_size": 8, "null_samples": 5},
    "embedding": {"permutations": 19},
    "irreps": {"permutations": 49},
    "progress": {"samples": 9},
}
"""Settings with which a measurement takes a moment."""

SUITED: dict[tuple[str, str], dict[str, Any]] = {
    # the first variable stands at one position, and no two permutations differ in one value alone
    ("patching", "composition"): {"variable": "2-hop of 0"},
}
"""Settings that a subject asks for."""

# composition's variables show at the positions of their own answers, interchange looks at the last
# one that is read
UNSUITED = {("das", "composition")}
PAIRS = [
    (name, subject)
    for name in PROBES.names()
    for subject in [*SUBJECTS, "remainders"]
    if (name, subject) not in UNSUITED
]


@lru_cache(maxsize=1)
def remainders() -> planted.Planted:
    """Several outputs: all answers memorised."""
    return planted.lookup_table(TASKS["remainders"](p=7), noise=0.03)


@pytest.mark.parametrize(("name", "subject"), PAIRS)
def test_a_probe_keeps_the_contract(name: str, subject: str) -> None:
    probe = PROBES[name].from_dict({**QUICK.get(name, {}), **SUITED.get((name, subject), {})})
    plant = remainders() if subject == "remainders" else SUBJECTS[subject]()
    check_probe(probe, plant.subject)


@pytest.mark.parametrize("name", PROBES.names())
def test_a_probe_applies_to_some_subject(name: str) -> None:
    probe = PROBES[name]()
    assert (
        any(probe.applicable(build().subject) is None for build in SUBJECTS.values())
        or probe.applicable(remainders().subject) is None
    )


@pytest.mark.parametrize("name", PROBES.names())
def test_a_probe_without_a_task_says_so_or_runs(name: str) -> None:
    probe = PROBES[name].from_dict(QUICK.get(name, {}))
    check_probe(probe, Subject(SUBJECTS["addition"]().subject.model, None))


@pytest.mark.parametrize("name", PROBES.names())
def test_a_probe_says_what_it_asks_and_where_it_is_from(name: str) -> None:
    probe = PROBES[name]
    assert probe.name == name
    assert probe.question.endswith("?"), (
        f"{name}: the docstring's first line is the question it answers"
    )
    assert probe.source
    assert all(row["help"] for row in probe.describe()), f"{name}: a setting without help"
