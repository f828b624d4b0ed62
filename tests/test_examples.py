"""Every script in examples/ runs at size smoke, learns what it says, and its control does not."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PUBLISHED = (
    EXAMPLES.parents[1]
    / "shared"
    / "checkpoints"
    / "progress-measures"
    / "wd_10-1_mod_addition_loss_curve.pth"
)

LEARNED = {
    "modular_arithmetic": 0.9,
    "remainders": 0.5,
    "groups": 0.5,
    "ordering": 0.8,
    "composition": 0.9,
    "listops": 0.7,
    "corpus": 0.7,
}
"""Script → held-out accuracy that its task reaches at least, in every part."""

ABOVE_CHANCE = 0.08
"""Accuracy by which a control may exceed chance: what few held-out examples scatter."""


def run(
    name: str, monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str
) -> dict[str, Any]:
    """The names that the script leaves, run in `folder`."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SIZE", "smoke")
    script = EXAMPLES / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    return runpy.run_path(str(script))


@pytest.mark.parametrize("name", LEARNED)
def test_task_beats_chance_and_its_control_does_not(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = run(name, monkeypatch, tmp_path)
    for part, outcome in (
        left["outcomes"].items() if "outcomes" in left else [(name, left["outcome"])]
    ):
        assert outcome["task"] >= LEARNED[name], part
        assert outcome["task"] > outcome["chance"] + 2 * ABOVE_CHANCE, part
        assert outcome["control"] < outcome["chance"] + ABOVE_CHANCE, part


def test_regression_reaches_the_closed_form_and_its_control_answers_zero(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome = run("regression_mixture", monkeypatch, tmp_path)["outcome"]
    assert outcome["task"] == pytest.approx(outcome["theory"], rel=0.05)
    assert outcome["exact"] == pytest.approx(outcome["theory"], rel=0.01)
    assert outcome["control"] == pytest.approx(outcome["chance"], rel=0.05)
    assert outcome["theory"] < 0.5 * outcome["chance"]


def test_single_index_directions_are_found_and_its_control_finds_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = run("single_index", monkeypatch, tmp_path)
    outcome = left["outcome"]
    assert outcome["task"] < 0.1 * outcome["chance"]
    assert outcome["control"] > 0.9 * outcome["chance"]
    assert left["emerged"] == pytest.approx(left["times"].tolist(), rel=0.25)


def test_every_way_of_training_learns_without_decay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = run("grokking_options", monkeypatch, tmp_path)
    for (way, decay), accuracy in left["outcomes"].items():
        if decay == 0:
            assert accuracy["train"] > 0.95, way
            assert accuracy["test"] > left["chance"] + 2 * ABOVE_CHANCE, way


def test_probe_finds_what_was_planted_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = run("planted_and_calibrated", monkeypatch, tmp_path)
    planted = left["FREQUENCIES"]
    assert left["outcome"] == {
        "planted": planted,
        "noisy": planted,
        "untrained": (),
        "by heart": (),
    }


def test_das_finds_the_planted_direction(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcome = run("das_comparison", monkeypatch, tmp_path)["outcome"]
    assert outcome["iia"] > 0.9
    assert max(outcome["random"], outcome["untrained"]) < 0.8
    assert outcome["cosine with the planted direction"] > 0.9


def test_checkpoint_is_opened_without_an_argument(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome = run("open_published_checkpoint", monkeypatch, tmp_path)["outcome"]
    assert outcome["accuracy"]["answer"] > 0.99
    assert outcome["frequencies"] == (3, 7, 12)


@pytest.mark.slow
@pytest.mark.skipif(
    not PUBLISHED.exists(),
    reason="the published checkpoint is not beside the repository, in ../shared/checkpoints",
)
def test_published_checkpoint_adds_by_its_published_frequencies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outcome = run(
        "open_published_checkpoint",
        monkeypatch,
        tmp_path,
        str(PUBLISHED),
        "modular-arithmetic",
        "p=113",
    )["outcome"]
    assert outcome["accuracy"]["answer"] == 1.0
    assert {6, 23, 37, 39, 41} >= set(outcome["frequencies"]) >= {23, 37, 41}


def test_report_is_a_page_and_goes_into_the_gallery(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from mechint.report import build_gallery, find_pages

    left = run("report", monkeypatch, tmp_path)
    assert left["report"].stat().st_size > 100_000
    pages = find_pages([tmp_path / "runs"])
    assert [page.title for page in pages] == ["Addition mod 23, one layer"]
    index = build_gallery(pages, tmp_path / "gallery")
    assert "Addition mod 23" in index.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(script.stem for script in EXAMPLES.glob("study_*.py")))
def test_study_walks_its_whole_path(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = run(name, monkeypatch, tmp_path)["done"]
    assert done.claims
    assert Path(done.report).exists()


def test_every_example_is_run_here() -> None:
    tests = Path(__file__).read_text(encoding="utf-8")
    unrun = [
        script.stem
        for script in EXAMPLES.glob("*.py")
        if f'"{script.stem}"' not in tests and not script.stem.startswith("study_")
    ]
    assert unrun == []


def test_every_example_is_short_and_has_cells() -> None:
    for script in EXAMPLES.glob("*.py"):
        text = script.read_text(encoding="utf-8")
        assert "\n# %% " in text, script.name
        assert len(text.splitlines()) <= 60, script.name


def test_the_clock_and_the_pizza_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    results = run("clock_and_pizza", monkeypatch, tmp_path)["results"]
    assert [result.metrics["mechanism"] for result in results.values()] == [
        "clock",
        "pizza",
        "neither",
    ]


def test_composition_tells_an_induction_head_from_other_mechanisms(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    results = run("induction_weights", monkeypatch, tmp_path)["results"]
    pairs = {name: result.metrics["composition.pairs"] for name, result in results.items()}
    assert [pair[0] for pair in pairs["induction"]] == ["K"] and pairs["untrained"] == []
    assert {pair[0] for pair in pairs["pointer doubling"]} == {"Q", "V"}


def test_the_right_dictionary_keeps_the_loss_and_random_ones_do_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = run("dictionaries", monkeypatch, tmp_path)
    right, *random = left["recovered"].values()
    assert right == pytest.approx(1, abs=1e-3) and max(random) < 0.5
    assert list(left["ablated"].values()) == [0.0, 1.0]


def test_a_gradient_misses_the_previous_token_head(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = run("attribution", monkeypatch, tmp_path)
    head = "head {}.{}".format(*left["plant"].truth["heads"]["previous token"])
    assert left["result"].metrics["worst"] == head and left["result"].status == "yes"
    assert left["control"].status == "unclear"


def test_circuits_of_the_answer_and_of_one_operand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = run("circuits", monkeypatch, tmp_path)
    whole, one = left["results"].values()
    assert (whole.metrics["edges"], one.metrics["edges"]) == (5, 3)
    assert whole.verdict == "yes" and (tmp_path / "circuit.svg").stat().st_size > 1000
    assert left["control"].status == "unclear"


def test_neurons_stand_in_clusters_and_an_untrained_models_do_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    results = run("neuron_clusters", monkeypatch, tmp_path)["results"]
    assert set(results["addition"].metrics["clusters"]) == {"3", "8", "12"}
    assert results["untrained"].metrics["clusters"] == {}


def test_learning_coefficients_are_those_of_theory_or_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = run("learning_coefficient", monkeypatch, tmp_path)
    for truth, result in names["known"].values():
        assert result.metrics["llc"] == pytest.approx(truth, rel=0.3)
    first = names["course"][0]
    assert first.status == "unclear" and "llc" not in first.metrics
