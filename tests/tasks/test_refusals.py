"""Parameters, texts and questions of tasks that are refused, each in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tasks
from mechint.errors import MechintError

INJECTED = {"inject": "comparison", "inject_parameters": {"n": 20, "equals": False}}
BLOCKS = {"algebra": "permutation-blocks", "operations": ("MAX",)}
PARAMETERS: dict[str, list[tuple[dict[str, Any], str]]] = {
    "balanced-brackets": [
        ({"length": 7}, "an even number"),
        ({"length": 10, "shortest": 12}, "at most length=10"),
    ],
    "composition": [
        ({"hops": (5,)}, "from 1 to k=4"),
        ({"hops": (2, 2)}, "different numbers"),
        ({"hops": ()}, "different numbers"),
        ({"weights": (1.0,)}, "one number for each of the 3 hops"),
        ({"weights": (0.0, 0.0, 0.0)}, "some hop to train on"),
        ({"stages": (1, 2, 3)}, "some hop to train on"),
        ({"n": 2, "k": 2, "hops": (1,)}, "too few inputs"),
    ],
    "corpus": [
        ({**INJECTED, "frequency": 0.5, "gap": 3}, "gap=3: expected at most 2"),
        ({**INJECTED, "n_ctx": 3}, "n_ctx=3: expected at least 4"),
        ({"inject": "corpus"}, "inject='corpus': expected a task other than the corpus"),
        ({"path": "a", "dataset": "b"}, "dataset='b': expected none where path is given"),
        ({"inject": "comparisn"}, "did you mean 'comparison'"),
        (
            {"inject": "remainders", "inject_parameters": {"p": 7}, "frequency": 1.0},
            "expected a token task with one output; it has",
        ),
        ({"inject": "single-index", "n_ctx": 128, "frequency": 1.0}, "expected a token task"),
        (
            {"inject": "comparison", "vocab_size": 64, "frequency": 1.0},
            r"needs 102 words; the background has 64: raise vocab_size",
        ),
        ({"vocab_size": 20}, "vocab_size=20: expected 34 to 8192"),
    ],
    "digit-sum": [
        ({"base": 8, "leading": 9}, "leading=9: expected at most base - 1 = 7"),
        ({"digits": 1, "leading": 1}, "4 inputs are too few to split"),
    ],
    "first-unique": [({"n": 2, "length": 3}, "inputs are too few to split")],
    "groups": [
        ({"group": "Q8"}, "none of C<n>, D<n>"),
        ({"table": ((0, 1), (1, 1))}, "element 1 has no inverse"),
    ],
    "listops": [
        ({"operations": ("SUM",)}, r"unknown operation of integers 'SUM'"),
        ({"operations": ("MAX", "MAX")}, r"expected at least one, and every one once"),
        ({"weights": (1, 2)}, r"expected 3 numbers, one for each of MAX, MED, ADD, not all 0"),
        ({"min_operands": 4}, r"min_operands=4: expected at most operands=3"),
        ({"excluded": 501}, r"expected 1 to 500, half of the 1000 tuples of 3 operands"),
        ({"context": 22}, r"expected at least 23 characters, for operands=3 at depth=2"),
        ({"ramp_operation": "ADD", "train_examples": 9}, r"expected none beside a ramp_operation"),
        (BLOCKS, r"unknown operation of permutation-blocks 'MAX'"),
    ],
    "listops-triplets": [
        ({"excluded": 1000}, "excluded=1000: expected 1 to 999, of 1000 triplets"),
        ({"per_operation": 901}, "per_operation=901: expected 1 to 900"),
        ({"operations": ()}, r"operations=\(\): expected at least one"),
        ({"test_operation": "PROD"}, "unknown operation of the mixture 'PROD'"),
    ],
    "modular-arithmetic": [
        ({"train_fraction": 0.0}, "at least one of the 12769 pairs"),
        ({"train_fraction": 0.8, "validation_fraction": 0.3}, "validation_fraction=0.3"),
        ({"p": 3, "table": ((0, 1), (1, 0))}, "expected p=3 rows of 3"),
        ({"p": 2, "table": ((0, 1), (1, 2))}, "answers from 0 to p-1=1"),
    ],
    "regression-mixture": [
        ({"n": 10}, "regression-mixture: n=10: expected at least n_tasks × rank = 64"),
        ({"n_tasks": 1, "gap": 2}, "gap=2: expected 1 where there is a single task"),
    ],
    "remainders": [
        ({"masked": (4,)}, "of the primes below p=113"),
        ({"p": 5, "masked": (2, 3)}, "some, not all"),
    ],
    "repeated-tokens": [
        ({"n": 5, "length": 6}, "at most n=5"),
        ({"n": 50, "length": 6, "context": 11}, r"copies × length = 12"),
    ],
    "single-index": [
        ({"n_directions": 65}, "single-index: n_directions=65: expected at most d=64"),
        ({"hermite": (1.0, 0.0)}, "expected a coefficient of degree 1 or more"),
    ],
    "sorted-list": [({"n": 4, "length": 5, "distinct": True}, "length=5: expected at most n=4")],
}


def refused(ask: Callable[[], object], said: str) -> None:
    with pytest.raises(MechintError, match=said) as caught:
        ask()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [(name, *row) for name, rows in PARAMETERS.items() for row in rows],
)
def test_parameters_that_make_no_task(name: str, parameters: dict[str, Any], said: str) -> None:
    refused(lambda: tasks.make(name, **parameters).sample(8, seed=0), said)


@pytest.mark.parametrize(
    ("name", "parameters", "text", "said"),
    [
        ("balanced-brackets", {"length": 6}, "(a)", "expected at most 6 brackets"),
        *(
            ("composition", {"n": 3, "k": 2, "hops": (1,)}, text, "expected 2 permutations of 0")
            for text in ("0 1 2", "0 1 2 | 0 0 1", "a b c | 0 1 2")
        ),
        *(("modular-arithmetic", {}, text, "text '5") for text in ("5 - 7 =", "5", "5 + q =")),
    ],
)
def test_texts_that_are_no_example(name: str, parameters: dict, text: str, said: str) -> None:
    refused(lambda: tasks.make(name, **parameters).tokens_of(text), said)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: tasks.corpus().sample(2, seed=0, split="task"), "no task is injected"),
        (lambda: tasks.regression_mixture().critical_width(features=9), "expected 1 to rank=8"),
        (lambda: tasks.regression_mixture().critical_width(8), "task=8: expected 0 to 7"),
        (lambda: next(tasks.regression_mixture(gap=2).stream("train", 0, None)), "without end"),
        (lambda: tasks.single_index(beta=0.5).tail, r"beta=0\.5: expected more than 0\.5"),
        (lambda: tasks.single_index().emergence_times(0.0, 1e-3, 4), "expected all positive"),
    ],
)
def test_questions_without_an_answer(ask: Callable[[], object], said: str) -> None:
    refused(ask, said)
