"""Truth that training enforced holds by another computation: every interchange over all inputs, by
plain hooks and plain arithmetic.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

import mechint
from mechint.config import ModelConfig
from mechint.errors import MechintError
from mechint.planted import save_enforced, truth_of
from mechint.registry import TASKS
from mechint.training.enforced import enforce, enforce_each

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
