"""Every task of the registry keeps the contract, at its defaults and at parameters that hypothesis
draws.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mechint.registry import TASKS
from mechint.testing import check_task
from tasks.languages import DYCK, TOMITA


def drawn(**choices: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Parameters, each drawn from a list of choices or by a strategy."""
    return st.fixed_dictionaries(
        {
            name: st.sampled_from(choice) if isinstance(choice, list) else choice
            for name, choice in choices.items()
        }
    )


labels, seed = ["true", "shuffled"], st.integers(0, 2**31)
OPERATIONS = ["add", "subtract", "multiply", "x^2+y^2", "x^2+xy+y^2"]
PARAMETERS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "modular-arithmetic": drawn(
        p=st.integers(2, 24),
        operation=OPERATIONS,
        labels=labels,
        label_seed=seed,
        equals=st.booleans(),
        separate_vocabulary=st.booleans(),
        train_fraction=st.floats(0.3, 0.8),
        validation_fraction=st.floats(0, 0.2),
    ),
    "remainders": drawn(
        p=st.integers(9, 24),
        labels=labels,
        target=["remainder", "divisibility"],
        masked=[[], [2], [3, 5]],
    ),
    "groups": drawn(
        group=["C6", "D4", "S3", "S4", "A4", "blocks", "C2xC2", "S3xC4", "D3xC2"],
        labels=labels,
        equals=st.booleans(),
    ),
    "comparison": drawn(
        n=st.integers(2, 30), bijection_seed=seed, labels=labels, equals=st.booleans()
    ),
    "hidden-addition": drawn(
        n=st.integers(2, 30), bijection_seed=seed, labels=labels, equals=st.booleans()
    ),
    "composition": drawn(
        n=st.integers(2, 9),
        k=st.integers(4, 6),
        perm_seed=seed,
        hops=[[1], [4], [1, 2, 4], [3, 1]],
        labels=labels,
    ),
    "listops": drawn(
        n=[2, 5, 10, 16],
        operands=st.integers(2, 3),
        depth=st.integers(1, 2),
        chain_of_thought=st.booleans(),
        operations=[["MAX", "MED", "ADD"], ["PROD"], ["MIN", "NADD"]],
        addition=["sum", "shuffled"],
        table_seed=seed,
    ),
    "listops-triplets": drawn(
        n=st.integers(3, 8), table_seed=seed, answers=["true", "random"], loss_on=["answer", "all"]
    ),
    "corpus": drawn(
        n_ctx=st.integers(16, 40),
        language_seed=seed,
        inject=[None, "comparison", "hidden-addition"],
        frequency=st.floats(0, 0.25),
        gap=[1, 4],
        inject_seed=seed,
    ),
    "digit-sum": drawn(
        digits=st.integers(2, 5),
        base=st.integers(8, 10),
        leading=st.integers(1, 7),
        extra_digit=st.booleans(),
        reversed_answer=st.booleans(),
        labels=labels,
    ),
    "balanced-brackets": drawn(
        length=st.integers(4, 16).map(lambda half: 2 * half),
        shortest=[None, 2, 8],
        read_at=["start", "end"],
        labels=labels,
    ),
    "max-of-list": drawn(
        n=st.integers(4, 64),
        length=st.integers(3, 8),
        marker=st.booleans(),
        close=st.floats(0, 1),
        labels=labels,
    ),
    "sorted-list": drawn(
        n=st.integers(8, 51), length=st.integers(3, 8), distinct=st.booleans(), labels=labels
    ),
    "palindromes": drawn(
        n=st.integers(3, 31), half_length=st.integers(3, 8), markers=st.booleans(), labels=labels
    ),
    "first-unique": drawn(
        n=st.integers(2, 12), length=st.integers(7, 20), opening=st.booleans(), labels=labels
    ),
    "running-sign": drawn(largest=st.integers(1, 9), length=st.integers(4, 20), labels=labels),
    "repeated-tokens": drawn(
        n=st.integers(8, 128),
        length=st.integers(3, 8),
        copies=st.integers(2, 3),
        context=[None, 30],
        distinct=st.booleans(),
        labels=labels,
    ),
    "count-distinct": drawn(n=st.integers(3, 12), length=st.integers(4, 10), labels=labels),
    "formal-language": drawn(
        language=[*TOMITA, *DYCK], length=st.integers(7, 14), depth=st.integers(1, 3)
    ),
    "rasp": drawn(
        program=["reverse", "sort", "histogram"],
        n=st.integers(3, 8),
        length=st.integers(4, 7),
        labels=labels,
    ),
    "regression-mixture": drawn(
        n=st.integers(6, 24),
        n_tasks=st.integers(1, 3),
        rank=st.integers(1, 2),
        rotation=[None, 0, 7],
        labels=labels,
    ),
    "single-index": drawn(
        d=st.integers(4, 16),
        n_directions=st.integers(1, 4),
        beta=st.floats(0, 2),
        rotation=[None, 0, 7],
        labels=labels,
    ),
}


SMALL: dict[str, dict[str, Any]] = {
    "balanced-brackets": {"length": 8},
    "comparison": {"n": 11},
    "composition": {"n": 3, "k": 2, "hops": (1, 2)},
    "digit-sum": {"digits": 2},
    "first-unique": {"n": 3, "length": 6},
    "formal-language": {"length": 7},
    "groups": {"group": "S3"},
    "hidden-addition": {"n": 11},
    "listops": {"depth": 1, "operands": 2, "n": 7},
    "listops-triplets": {"n": 4},
    "max-of-list": {"n": 8, "length": 3},
    "modular-arithmetic": {"p": 7},
    "palindromes": {"n": 3, "half_length": 3},
    "rasp": {"length": 4},
    "remainders": {"p": 9},
    "repeated-tokens": {"n": 8, "length": 3},
    "running-sign": {"length": 4},
    "sorted-list": {"n": 8, "length": 3},
}
"""Parameters at which a task is checked in a second."""


@pytest.mark.parametrize("name", TASKS.names())
def test_a_small_task_keeps_the_contract(name: str) -> None:
    check_task(TASKS[name].from_dict(SMALL.get(name, {})), seeds=(0,), n=8)


@pytest.mark.full
@pytest.mark.parametrize("name", TASKS.names())
def test_a_task_keeps_the_contract_at_its_defaults(name: str) -> None:
    check_task(TASKS[name](), seeds=(0,))


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(set(PARAMETERS) & set(TASKS.names())))
def test_a_task_keeps_the_contract_whatever_its_parameters(name: str) -> None:
    # the message names the promise and the parameters: nothing to shrink
    @settings(
        max_examples=2,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(PARAMETERS[name], st.integers(0, 1000))
    def keeps(parameters: dict[str, Any], seed: int) -> None:
        check_task(TASKS[name].from_dict(parameters), seeds=(seed,), n=8)

    keeps()


def test_a_finite_task_without_held_out_inputs_keeps_the_contract() -> None:
    check_task(TASKS["modular-arithmetic"](p=5, train_fraction=1.0), seeds=(0,), n=8)
