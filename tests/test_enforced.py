"""Truth that training enforced holds by another computation: every interchange over all inputs, by
plain hooks and plain arithmetic.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

import mechint
from benchmarks import zoo
from mechint.config import ModelConfig
from mechint.errors import MechintError
from mechint.planted import random_alignment, save_enforced, truth_of
from mechint.planted.enforced import check_alignment
from mechint.registry import TASKS
from mechint.subject.components import site_of
from mechint.training import enforce, enforce_each

P = 3
TASK = TASKS["modular-arithmetic"](p=P)
CONFIG = ModelConfig(
    n_layers=2,
    d_model=32,
    n_heads=2,
    d_mlp=64,
    n_ctx=3,
    d_vocab=P + 1,
    d_vocab_out=P,
    normalization_type="LN",
)
ALIGNMENT = {"x": "L0H1 @ 1", "y": "L0H0 @ 2"}
PLACES = {"x": (1, 1), "y": (2, 0)}
"""Variable → position and head, of the first layer."""


def swapped(model: Any, base: torch.Tensor, source: torch.Tensor, names: str) -> torch.Tensor:
    """Answers on `base` when the heads of `names` have their output on `source`."""
    _, cache = model.run_with_cache(source)

    def swap(z: torch.Tensor, hook: Any) -> torch.Tensor:
        z = z.clone()
        for name in names:
            position, head = PLACES[name]
            z[:, position, head] = cache[hook.name][:, position, head]
        return z

    with torch.no_grad():
        logits = model.run_with_hooks(base, fwd_hooks=[("blocks.0.attn.hook_z", swap)])
    return logits[:, -1].argmax(-1)


def every_pair() -> tuple[torch.Tensor, torch.Tensor]:
    numbers = range(P)
    rows = [(a, b, P, c, d, P) for a, b, c, d in product(numbers, repeat=4)]
    tokens = torch.tensor(rows)
    return tokens[:, :3], tokens[:, 3:]


@pytest.mark.full
def test_an_enforced_alignment_holds_over_all_inputs(tmp_path: Path) -> None:
    plant = enforce(TASK, ALIGNMENT, CONFIG, seed=0)
    truth, model = plant.truth, plant.subject.model
    assert truth["verified"] and truth["pairs"] == P**4
    base, source = every_pair()
    (a, b, _), (c, d, _) = base.T, source.T
    for names, right in (("x", c + b), ("y", a + d), ("xy", c + d)):
        share = float((swapped(model, base, source, names) == right % P).double().mean())
        assert share == truth["interchange"].get(names, truth["all"]) >= 0.99
    # all else is another input's, and so is every other head and MLP up to the last site
    share = float((swapped(model, source, base, "xy") == (a + b) % P).double().mean())
    assert share >= 0.99
    outside = {f"L0H{head} @ {pos}" for head in (0, 1) for pos in range(3)}
    assert set(truth["outside"]) == outside - set(ALIGNMENT.values())
    assert max(truth["outside"].values()) <= 0.01
    # the truth is written into the checkpoint, and read again
    save_enforced(plant, tmp_path / "plant.pt")
    opened = mechint.load(tmp_path / "plant.pt")
    assert truth_of(opened) == truth_of(plant.subject) == truth
    assert opened.accuracy() == {"answer": 1.0}
    with pytest.raises(MechintError, match="no truth was enforced"):
        truth_of(mechint.Subject(model, TASK))


@pytest.mark.full
def test_models_leave_their_ensemble_and_the_others_go_on() -> None:
    """Each alignment takes its own number of steps, about as many as alone."""
    alignments = [{"x": "L0H1 @ 2", "y": "L0H0 @ 2"}, ALIGNMENT, {"x": "L1H0 @ 2", "y": "L0H1 @ 2"}]
    plants = enforce_each(TASK, alignments, CONFIG, [2, 0, 1])
    steps = [plant.truth["steps"] for plant in plants]
    assert all(plant.truth["verified"] for plant in plants) and len(set(steps)) > 1
    last = steps.index(max(steps))
    alone = enforce(TASK, alignments[last], CONFIG, [2, 0, 1][last])
    assert alone.truth["steps"] == pytest.approx(steps[last], abs=100)


@pytest.mark.full
def test_the_natural_twin_fails() -> None:
    """The same seed, trained on the task alone: right answers, and no variable at its site."""
    plant = enforce(TASK, ALIGNMENT, CONFIG, seed=0, natural=True)
    assert plant.truth["accuracy"] == 1.0 and not plant.truth["verified"]
    base, source = every_pair()
    said = swapped(plant.subject.model, base, source, "x")
    right = (source[:, 0] + base[:, 1]) % P
    changed = source[:, 0] != base[:, 0]
    share = float((said == right)[changed].double().mean())
    assert share == pytest.approx(plant.truth["changed"]["x"]) and share < 0.9


@pytest.mark.parametrize(
    ("alignment", "message"),
    [
        ({"z": "L0H0 @ 2"}, "variable of modular-arithmetic 'z'"),
        ({"x": "L0H7 @ 1", "y": "L0H0 @ 2"}, "x at L0H7 @ 1: the model has no such site"),
        ({"x": "L2H0 @ 2"}, "the model has no such site"),
        ({"x": "L0H0"}, "at one position"),
        ({"y": "L0H0 @ 0"}, "stands before position 1, which the variable needs"),
        ({"x": "L1H0 @ 1"}, "nothing reads it at position 2"),
        ({"x": "L1 MLP @ 2"}, "nothing behind it computes the answer"),
        ({"x": "L0H0 @ 2", "y": "L0H0 @ 2"}, "it is the site of x"),
        ({"x": "L1H0 @ 2", "answer": "L0 MLP @ 2"}, "not behind the site of x"),
        ({"x": "L0H0 @ 1", "y": "L1H0 @ 2"}, "no head behind the last site carries it"),
        ({"x": "L0H0 @ 2"}, "x do not determine the answers; align more"),
        ({}, "no variables do not determine"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(alignment: dict[str, str], message: str) -> None:
    with pytest.raises(MechintError) as caught:
        enforce(TASK, alignment, CONFIG)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_alignments_are_drawn_among_what_can_be() -> None:
    """Every one drawn is accepted, they differ, and the same seed gives the same."""
    drawn = [random_alignment(TASK, CONFIG, seed) for seed in range(12)]
    assert drawn[3] == random_alignment(TASK, CONFIG, 3)
    assert len({str(sorted(one.items())) for one in drawn}) > 6
    for one in drawn:
        assert set(one) == {"x", "y"}
        assert len({(site.hook, site.units) for site in one.values()}) == 2
        assert check_alignment(TASK, CONFIG, one) == one
    whole = random_alignment(TASK, CONFIG, 0, ("x", "y", "answer"))
    assert whole["answer"].pos == 2 and max(whole[v].layer for v in "xy") <= whole["answer"].layer


@pytest.mark.full
def test_the_zoo_is_made_and_the_probes_are_held_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One model of one family and its twin: a table of what holds, and one of what was said."""
    monkeypatch.setattr(zoo, "FAMILIES", {"sums": zoo.Family("modular-arithmetic", {"p": 3})})
    monkeypatch.setattr(zoo, "ASKED", {"patching": {"pairs": 24}})
    zoo.main(
        ["--out", str(tmp_path), "--models", "1", "--families", "sums", "--workers", "1", "--judge"]
    )
    made = {path.name: truth_of(mechint.load(path)) for path in tmp_path.glob("*.pt")}
    assert {name: truth["verified"] for name, truth in made.items()} == {
        "sums-0.pt": True,
        "sums-0-natural.pt": False,
    }
    listed = (tmp_path / "zoo.md").read_text()
    assert str(made["sums-0.pt"]["alignment"]["x"]) in listed and "| naturally | no |" in listed
    kinds = [
        line.split("|")[2].strip()
        for line in (tmp_path / "probes.md").read_text().split("\n")[2:-3]
    ]
    assert kinds == ["enforced", "natural twin", "untrained"]
    rows = zoo.judge([tmp_path / "sums-0.pt"])
    assert sum(rows[0][name] for name in zoo.SAID) == rows[0]["asked"] == 2
    written = json.loads((tmp_path / "probes.json").read_text())["rows"]
    assert [(row["about"], row["models"]) for row in written] == [(kind, 1) for kind in kinds]
    kept = tmp_path / "answers" / "sums-0.patching.json"
    kept.write_text('[["patching", "enforced", "wrong", 0.0]]')
    assert zoo.judge([tmp_path / "sums-0.pt"])[0]["wrong"] == 1


def test_what_does_not_hold_a_variable_is_no_input_of_its_site() -> None:
    """Sites of other variables, and all others but those that its own may read."""
    held = {"x": "L0 MLP @ 1", "y": "L0H0 @ 2"}
    outside = ["L0H0 @ 1", "L0 MLP @ 2", "L0H1 @ 2", "L1H0 @ 1"]
    found = zoo.elsewhere({"alignment": held, "outside": dict.fromkeys(outside, 0.0)}, "x")
    assert {name: list(map(str, sites)) for name, sites in found.items()} == {
        "permuted": ["L0H0 @ 2"],
        "other site": ["L0 MLP @ 2", "L0H1 @ 2", "L1H0 @ 1"],
    }


def test_a_place_is_right_behind_its_site_alone() -> None:
    """By the order of computation: L0H1 at 1 writes before L0's MLP, and L1's heads carry it on."""
    truth = {"alignment": {"x": "L0H1 @ 1", "y": "L0H0 @ 2"}}
    site = site_of("L0H1 @ 1")
    cases = {
        ("resid_mid", 0, 1): "right",
        ("resid_pre", 1, 1): "right",
        ("resid_pre", 0, 1): "before",
        ("resid_pre", 1, "answer"): "wrong",
        ("resid_mid", 1, "answer"): "behind",
    }
    for (kind, layer, pos), said in cases.items():
        metrics = {"hook": f"blocks.{layer}.hook_{kind}", "pos": pos}
        assert zoo._named("das", metrics, truth, site, answer=2) == said
    for place, said in (
        ("L0H1 @ 1", "right"),
        ("L0H0 @ 1", "wrong"),
        ("L0 MLP @ answer", "wrong"),
        ("L1 resid_mid @ answer", "behind"),
        ("L1H1 @ answer", "behind"),
    ):
        assert zoo._held(site_of(place), site, answer=2, last=(0, 2)) == said
    assert zoo._held(site, site_of("L0 MLP @ 1"), answer=2, last=(0, 2)) == "before"
    for components, said in (
        (["L0H1", "L1H0", "L1 MLP"], "right"),
        (["L0H1", "L0H0"], "right"),
        (["L0H0", "L1 MLP"], "wrong"),
    ):
        assert zoo._named("circuits", {"components": components}, truth, site, 2) == said
