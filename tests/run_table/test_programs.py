"""Shares of programs over seeds, and the agreement of pairs, by closed forms and all orders."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from math import comb
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from scipy.stats import binomtest

from mechint.cli import main
from mechint.run_table.programs import programs_of, programs_text


def rows_of(programs: dict[str, str]) -> list[dict[str, Any]]:
    """A row a letter: the program of a seed; "-" where none stands, which has a nearest one."""
    return [
        {
            "task": task,
            "seed": seed,
            "model.d_model": 32,
            "explain.standing": "wrong" if one == "-" else "stands",
            "explain.program": "p" if one == "-" else one,
        }
        for task, some in programs.items()
        for seed, one in enumerate(some)
    ]


def test_shares_have_wilsons_intervals_and_models_without_a_program_are_counted() -> None:
    found = programs_of(rows_of({"add": "pppppppqq-", "max": "mmmmmmmmmm"}))["shares"]
    told = {(one["setting"], one["program"]): (one["models"], one["n"]) for one in found}
    assert told == {
        ("add", "p"): (7, 10),
        ("add", "q"): (2, 10),
        ("add", "none stands"): (1, 10),
        ("max", "m"): (10, 10),
    }
    for one in found:
        low, high = binomtest(one["models"], one["n"]).proportion_ci(method="wilson")
        assert (one["low"], one["high"]) == pytest.approx((low, high), abs=1e-9)


@pytest.mark.parametrize(
    "programs", [{"a": "pppq", "b": "qqqp"}, {"a": "pp--", "b": "qqqq"}, {"a": "pqpq", "b": "qpqp"}]
)
def test_agreement_and_its_p_value_are_those_over_all_orders(programs: dict[str, str]) -> None:
    """Each order of the programs among the models, and the mean that pairs have then."""
    sizes = [len(some) for some in programs.values()]
    letters = "".join(programs.values())

    def agreement(order: Any) -> float:
        some, hits = list(order), 0
        for size in sizes:
            own, some = some[:size], some[size:]
            hits += sum(x == y != "-" for x, y in itertools.combinations(own, 2))
        return hits / sum(comb(size, 2) for size in sizes)

    every = [agreement(order) for order in itertools.permutations(letters)]
    pairs = programs_of(rows_of(programs))["pairs"]
    assert pairs["share"] == agreement(letters) and pairs["n"] == 12
    exact = sum(k * (k - 1) for p, k in Counter(letters).items() if p != "-") / (8 * 7)
    assert sum(every) / len(every) == pytest.approx(exact)
    assert pairs["permuted"] == pytest.approx(exact, abs=0.02)
    reached = sum(one >= agreement(letters) - 1e-12 for one in every) / len(every)
    assert pairs["p_value"] == pytest.approx(reached, abs=0.04)


def test_what_no_permutation_could_change_is_untested_and_chance_is_not_agreement() -> None:
    alone = programs_of(rows_of({"a": "pppppppp"}))
    assert alone["pairs"]["verdict"] == "untested" and alone["pairs"]["share"] == 1.0
    assert "no permutation" in programs_text(alone)
    mixed = programs_of(rows_of({"a": "pqpqpqpq", "b": "qpqpqpqp"}))["pairs"]
    assert mixed["verdict"] == "no"
    both = programs_of(rows_of({"a": "pppppppp", "b": "qqqqqqqq"}))["pairs"]
    assert both["verdict"] == "yes"
    same = programs_of(rows_of({"a": "pppppppp", "b": "pppppppp"}))["pairs"]
    assert same["verdict"] != "yes", "one program whatever the setting is no agreement of seeds"
    none = programs_of(rows_of({"a": "--------", "b": "--------"}))["pairs"]
    assert none["share"] == 0.0 and none["verdict"] != "yes"


def test_files_that_state_no_seed_are_no_pairs() -> None:
    rows = [{k: v for k, v in row.items() if k != "seed"} for row in rows_of({"a": "pp"})]
    found = programs_of(rows)
    assert found["pairs"]["n"] == 0 and found["shares"][0]["models"] == 2
    assert programs_text(found).count("\n") == 0


@pytest.mark.full
def test_a_table_of_two_files_says_what_each_runs(tmp_path: Path) -> None:
    models = Path(__file__).parents[2] / "examples" / "models"
    page = tmp_path / "t.html"
    asked = ["table", str(models / "clock.pt"), str(models / "pizza.pt"), "--explain"]
    ran = CliRunner().invoke(main, [*asked, "--json", "--light", "--out", str(page)])
    found = json.loads(ran.stdout)["programs"]
    assert sum(one["models"] for one in found["shares"]) == 2 and not found["pairs"]["n"]
    assert "programs" in page.read_text()
