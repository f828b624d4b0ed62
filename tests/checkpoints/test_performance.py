"""The performance of models whose outputs are not asked equally often."""

from __future__ import annotations

import math

import pytest
import torch

import mechint
from mechint.checkpoints import Assumption, load_checkpoint
from mechint.checkpoints.checkpoint import CHANCE_LEVEL, SplitPerformance, measure_performance
from mechint.decide import Skill
from mechint.planted.trained import small_transformer
from mechint.subject import Subject
from tests.conformance.three_operands import ThreeOperands


def test_every_output_is_shown_with_the_answers_of_its_own() -> None:
    """Of 96 answers 60 are sums and 36, those of an even b, the other; shares of these counts."""
    task = ThreeOperands()
    even = sum(b % 2 == 0 for b in range(task.n_b))
    subject = Subject(small_transformer(task, 0, 8, 16), task)
    found = measure_performance(subject, None)
    assert found is not None
    assert found.n == {"sum": 3 * 5 * 4, "more": 3 * even * 4} == {"sum": 60, "more": 36}
    for name, accuracy in found.accuracy.items():
        assert accuracy * found.n[name] == pytest.approx(round(accuracy * found.n[name]))


def of(accuracy: float, n: int, loss: float = 0.1, level: float = 0.5, **more) -> SplitPerformance:
    """A performance on one output whose chance is `level` and 0.7 nats."""
    chance = {"y": {"accuracy": level, "loss": 0.7}}
    return SplitPerformance(
        {"y": accuracy}, {"y": loss}, chance, {"y": n}, **{"splits": {}, **more}
    )


def test_chance_is_an_exact_binomial_test() -> None:
    """Of ten coins all ten show heads with probability 1/1024, of nine with 1/512."""
    assert of(1.0, 10).at_chance == of(1.0, 10).too_few == []
    assert of(1.0, 9).too_few == ["y"] and of(1.0, 9).at_chance == []
    many = of(0.55, 960)
    tail = sum(math.comb(960, k) for k in range(528, 961)) / 2**960
    assert (tail > CHANCE_LEVEL) == (many.at_chance == ["y"])


def test_few_prompts_answered_right_are_not_at_chance() -> None:
    """One clean and one corrupted prompt are an experiment (users 1.1)."""
    (said,) = of(1.0, 2).warnings({})
    assert "too few to tell an accuracy of 1" in said and "no mechanism" not in said
    assert "are the same" in Skill(1.0, 1.0, 1500).reason  # no number of answers would tell


def test_a_loss_above_a_constant_answers_names_the_assumption() -> None:
    assumed = {"attention_dir": Assumption("causal", "default"), "zero": Assumption([], "")}
    (said,) = of(0.875, 500, loss=1.3).warnings({}, assumed)
    assert "assumed are attention_dir" in said and "zero" not in said
    (said,) = of(0.4, 500, loss=1.3).warnings({}, {})
    assert "read wrongly" not in said and "trained too little" in said
    overfit = of(0.4, 500, loss=1.3, splits={"train": {"loss": {"y": 0.1}, "accuracy": {"y": 1}}})
    assert overfit.misread == []


def test_right_answers_at_a_large_loss_are_not_read_wrongly() -> None:
    """As of a compiled program, whose logits are one-hot of the answer."""
    (said,) = of(1.0, 500, loss=1.3).warnings({})
    assert "answers 1 right" in said and "read wrongly" not in said


@pytest.mark.full
def test_a_norm_folded_without_centering_is_named(tmp_path) -> None:
    """Trained under a layer norm whose weights are then multiplied in here, and nothing else."""
    task = mechint.tasks.make("max-of-list", n=8, length=3)
    model = {"d_model": 16, "d_mlp": 32, "attn_only": False, "normalization_type": "LN"}
    (run,) = mechint.train(task, model, {"steps": 300, "lr": 1e-2})
    state = {k: v.double() for k, v in run.subject().model.transformer_lens_state().items()}
    for norm, readers in (
        ("blocks.0.ln1", ["blocks.0.attn.W_Q", "blocks.0.attn.W_K", "blocks.0.attn.W_V"]),
        ("blocks.0.ln2", ["blocks.0.mlp.W_in"]),
        ("ln_final", ["unembed.W_U"]),
    ):
        scale, shift = state.pop(f"{norm}.w"), state.pop(f"{norm}.b")
        for name in readers:
            bias = name.replace("W_", "b_")
            state[bias] = state[bias] + shift @ state[name]
            state[name] = scale[:, None] * state[name]
    torch.save({name: value.float() for name, value in state.items()}, tmp_path / "old.pt")
    (said,) = load_checkpoint(tmp_path / "old.pt", task).warnings()
    assert "with --set model.normalization_type=" in said and "LNPre" in said
    opened = load_checkpoint(tmp_path / "old.pt", task, model={"normalization_type": "LNPre"})
    trained = run.subject()
    inputs = trained.data.tokens
    torch.testing.assert_close(opened.model(inputs), trained.model(inputs), atol=1e-4, rtol=1e-4)
