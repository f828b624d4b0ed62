"""The training engine against a plain loop, against itself in and out of ensembles, and across
interruptions.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import mechint
import tasks
from mechint.config import LLAMA, TrainConfig
from mechint.errors import MechintError, NonFiniteError, ParameterError, RunError
from mechint.models.transformer import HookedTransformer
from mechint.training import learners, plan, spec, train, train_many
from mechint.training.optimizer import FlatParameters, Optimizer, learning_rate
from mechint.training.schedule import kept_steps, stops

TASK = tasks.make("modular-arithmetic", p=7, train_fraction=0.6)
SMALL = {"d_model": 16, "n_heads": 2, "d_mlp": 32}
BRIEF = {"steps": 30, "evaluate_every": 10, "warmup": 3, "lr": 5e-3}


def plain_losses(steps: int, weight_decay: float, data_seed: int) -> list[float]:
    """Training losses of a loop that anybody would write: the module's own forward, PyTorch's
    AdamW.
    """
    model = HookedTransformer(spec(TASK, SMALL).model, seed=0)
    data = TASK.examples()[TASK.split(data_seed)["train"]]
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=5e-3, weight_decay=weight_decay, betas=(0.9, 0.98)
    )
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(data.tokens)[:, -1], data.targets[:, -1, 0])
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm_up.step()
    return losses


@pytest.mark.parametrize("data_seed", [0, 5])
def test_training_equals_a_plain_loop(data_seed: int) -> None:
    """On the split of `data_seed`, whatever the seed of the weights, which is 0."""
    losses = plain_losses(31, 1.0, data_seed)
    config = {**BRIEF, "weight_decay": 1.0, "evaluate_every": 1, "data_seed": data_seed}
    (run,) = train(TASK, SMALL, config)
    assert [row["train.loss"] for row in run.metrics] == pytest.approx(losses, rel=2e-4)


@pytest.mark.parametrize(
    ("task", "model", "training"),
    [
        (TASK, {**SMALL, "dropout": 0.1}, {**BRIEF, "grokfast": "ema"}),
        (
            TASK,
            {**SMALL, "use_bias": False},
            {**BRIEF, "batch_size": 8, "clip": 0.1, "optimizer": "adam", "weight_decay": 0.01},
        ),
        (
            tasks.make("remainders", p=5, train_fraction=0.6),
            SMALL,
            {**BRIEF, "grokfast": "ma", "grokfast_window": 4},
        ),
        (
            tasks.make("composition", n=3, k=2, hops=(1, 2)),
            {"d_model": 16, "n_layers": 2, "n_heads": 2},
            {**BRIEF, "batch_size": 8, "eval_examples": 50},
        ),
        pytest.param(
            tasks.make("listops", operands=2, depth=1),
            {"d_model": 16, "n_layers": 2, "n_loops": 2},
            {**BRIEF, "batch_size": 4, "eval_examples": 20},
            marks=pytest.mark.full,
        ),
        (TASK, SMALL, {**BRIEF, "optimizer": "muon", "weight_decay": 0.1}),
        (TASK, SMALL, {**BRIEF, "loss": "stablemax"}),
        (TASK, {**LLAMA, **SMALL}, BRIEF),
        (TASK, SMALL, {**BRIEF, "orthogonal_grad": True, "weight_decay": 0.0}),
    ],
    ids=[
        "dropout",
        "clipped",
        "remainders",
        "hops",
        "listops",
        "muon",
        "stablemax",
        "llama",
        "orthogonal",
    ],
)
def test_same_curve_in_and_out_of_an_ensemble(task, model, training) -> None:
    """`docs/reliability.md` promises the size of what differs: what a step rounds, grown with the
    steps.
    """
    training = {**training, "precision": "float64"}
    together = train(task, model, training, seeds=(0, 1, 2))
    (alone,) = train(task, model, training, seeds=(1,))
    assert {0, 10, 20, 30} <= {row["step"] for row in together[1].metrics}
    for ours, theirs in zip(together[1].metrics, alone.metrics, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-7)
    assert together[0].final["train.loss"] != together[1].final["train.loss"]


def test_one_ensemble_holds_different_rates_and_labels() -> None:
    shuffled = dataclasses.replace(TASK, labels="shuffled")
    specs = [
        spec(TASK, SMALL, {**BRIEF, "lr": 1e-3}),
        spec(TASK, SMALL, {**BRIEF, "weight_decay": 0.0, "min_lr": 1e-4}),
        spec(shuffled, SMALL, BRIEF, seed=3),
        *(spec(TASK, SMALL, {**BRIEF, "optimizer": "muon", "muon_lr": r}) for r in (0.01, 0.05)),
    ]
    together = train_many(specs)
    for run, alone in zip(together, (train_many([one])[0] for one in specs), strict=True):
        assert run.final == pytest.approx(alone.final, rel=2e-3, abs=1e-5)


@pytest.mark.parametrize("field", ["betas", "clip", "momentum", "eps"])
def test_models_that_differ_in_what_an_update_shares_do_not_train_together(field: str) -> None:
    """Each ends as it does alone."""
    values = {"betas": ((0.9, 0.98), (0.5, 0.7)), "clip": (0.01, 10.0), "momentum": (0.0, 0.9)}
    brief = {**BRIEF, "optimizer": "sgd" if field == "momentum" else "adamw"}
    specs = [
        spec(TASK, SMALL, {**brief, field: value}) for value in values.get(field, (1e-8, 1e-2))
    ]
    alone = [train_many([one])[0].final["train.loss"] for one in specs]
    assert abs(alone[0] - alone[1]) > 1e-3
    together = [run.final["train.loss"] for run in train_many(specs)]
    assert together == pytest.approx(alone, rel=2e-3)


def test_tasks_whose_long_tables_differ_are_each_evaluated_on_their_own_answers() -> None:
    made = [
        tasks.make(
            "modular-arithmetic",
            p=13,
            train_fraction=0.6,
            table=[[(x + sign * y) % 13 for y in range(13)] for x in range(13)],
        )
        for sign in (1, -1)
    ]
    runs = train_many([spec(task, SMALL, BRIEF, seed=0) for task in made])
    for task, run in zip(made, runs, strict=True):
        subject = run.subject()
        test = task.split(0)["test"]
        loss = subject.loss(subject.logits()[test], subject.targets[test])
        assert run.final["test.loss"] == pytest.approx(loss["answer"], rel=1e-4)
    assert runs[0].final["test.loss"] != runs[1].final["test.loss"]


def test_an_evaluation_holds_no_more_logits_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product of examples, positions and classes is bounded, which a corpus has many of."""
    whole = train_many([spec(TASK, SMALL, BRIEF, seed=seed) for seed in (0, 1)])
    held, counted = list[int](), learners.counts

    def counting(logits: torch.Tensor, *rest: object) -> object:
        held.append(logits.numel())
        return counted(logits, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(learners, "counts", counting)
    monkeypatch.setattr(learners, "MAX_LOGITS", 60)
    parts = train_many([spec(TASK, SMALL, BRIEF, seed=seed) for seed in (0, 1)])
    assert max(held) <= 60 and len(held) > 40
    for one, other in zip(whole, parts, strict=True):
        assert one.final == pytest.approx(other.final, rel=1e-6)


def test_training_on_every_input_evaluates_those_alone() -> None:
    whole = tasks.make("modular-arithmetic", p=7, train_fraction=1)
    (part,) = train_many([spec(whole, SMALL, BRIEF)])
    assert 0 <= part.final["train.accuracy"] <= 1 and "test.accuracy" not in part.final


def test_students_descend_the_population_loss_to_the_closed_form() -> None:
    task = tasks.make("regression-mixture", n=8, n_tasks=2, rank=2)
    training = {
        "steps": 600,
        "batch_size": None,
        "optimizer": "adam",
        "weight_decay": 0.0,
        "lr": 0.02,
        "evaluate_every": 600,
    }
    runs = train_many(
        [
            spec(task, {"width": width, "columns": 3, "decoder": "optimal"}, training)
            for width in (1, 3)
        ]
    )
    for width, run in zip((1, 3), runs, strict=True):
        assert run.final["test.loss"] == pytest.approx(float(task.residual(width)), rel=0.02)


def interrupting(step: int):
    pressed: list[int] = []

    def progress(now) -> None:
        if now.step == step and not pressed:
            pressed.append(step)
            os.kill(os.getpid(), signal.SIGINT)

    return progress


def test_a_directory_keeps_its_run(tmp_path: Path) -> None:
    """A run that is finished is not trained again."""
    (first,), file = train(TASK, SMALL, BRIEF, out=tmp_path / "run"), tmp_path / "run" / "ckpt.pt"
    before = file.stat().st_mtime_ns
    (again,) = train(TASK, SMALL, BRIEF, out=tmp_path / "run", resume=True)
    assert (again.metrics, file.stat().st_mtime_ns) == (first.metrics, before)
    with pytest.raises(RunError, match="holds this run already; --resume"):
        train(TASK, SMALL, BRIEF, out=tmp_path / "run")
    with pytest.raises(RunError, match=r"train.lr is 0.005 there, 0.1 here"):
        train(TASK, SMALL, {**BRIEF, "lr": 0.1}, out=tmp_path / "run", resume=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match="not empty and holds no run"):
        train(TASK, SMALL, BRIEF, out=tmp_path / "other")


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_non_finite_run_leaves_its_ensemble_alone(dropout: float) -> None:
    training = {**BRIEF, "optimizer": "sgd", "weight_decay": 0.0}
    model = {**SMALL, "dropout": dropout}
    good = [spec(TASK, model, training, seed=seed) for seed in (0, 2)]
    bad = spec(TASK, model, {**training, "lr": 1e30}, seed=1)
    runs = train_many([good[0], bad, good[1]])
    assert [run.status for run in runs] == ["finished", "failed", "finished"]
    assert "seed 1" in runs[1].error
    for run, own in zip(runs[::2], good, strict=True):
        assert run.final == pytest.approx(train_many([own])[0].final, rel=1e-4)


def test_a_run_of_several_outputs_stops_when_all_are_learned() -> None:
    config = TrainConfig(stop_accuracy=0.9, stop_after=10)
    row = {"test.accuracy": 0.95, "test.accuracy.mod 2": 1.0, "test.accuracy.mod 3": 0.85}
    assert not stops(config, 10, 0, row)
    assert stops(config, 10, 0, row | {"test.accuracy.mod 3": 0.9})


def test_early_stops() -> None:
    (reached,) = train(TASK, SMALL, {**BRIEF, "stop_accuracy": 0.0})
    assert (reached.status, reached.final["step"]) == ("stopped", 0)
    (flat,) = train(
        TASK, SMALL, {**BRIEF, "steps": 100, "lr": 1e-30, "stop_patience": 2, "stop_after": 30}
    )
    assert (flat.status, flat.final["step"]) == ("stopped", 30)


def test_a_resumed_run_stops_when_the_whole_one_would(tmp_path: Path) -> None:
    """The evaluations without a change before it was cut count: 10, 20, 30 of a patience of 3."""
    still = {**BRIEF, "steps": 100, "lr": 1e-30, "stop_patience": 3}
    with pytest.raises(KeyboardInterrupt, match="stopped at step 20"):
        train(TASK, SMALL, still, out=tmp_path / "run", progress=interrupting(20))
    (again,) = train(TASK, SMALL, still, out=tmp_path / "run", resume=True)
    (whole,) = train(TASK, SMALL, still)
    assert (again.status, again.final["step"]) == ("stopped", 30)
    assert whole.final["step"] == 30


@pytest.mark.full
def test_a_model_keeps_its_own_patience_when_another_leaves() -> None:
    """The first stands still and leaves at 30; the second's loss falls by less than `stop_delta`
    from 30 on, for the third time at 50; the third's falls by more to the end. Each alone and in
    every order of the three.
    """
    patient = {**BRIEF, "steps": 100, "optimizer": "sgd", "weight_decay": 0.0}
    patient |= {"stop_patience": 3, "stop_delta": 0.035}
    specs = [spec(TASK, SMALL, {**patient, "lr": lr}, seed=1) for lr in (1e-30, 0.01, 0.1)]
    ends = [(run.status, run.final["step"]) for one in specs for run in train_many([one])]
    assert ends == [("stopped", 30), ("stopped", 50), ("finished", 100)]
    for order in itertools.permutations(range(3)):
        runs = train_many([specs[i] for i in order])
        assert [(run.status, run.final["step"]) for run in runs] == [ends[i] for i in order]


def test_models_of_a_generated_task_are_evaluated_on_the_same_examples() -> None:
    """Those of seed 0, whatever the model's own: what differs between them is the model alone."""
    task = tasks.make("composition", n=3, k=2, hops=(2,))
    brief = {"steps": 4, "evaluate_every": 4, "batch_size": 8, "eval_examples": 40}
    for run in train(task, {"d_model": 8, "n_heads": 1}, brief, seeds=(0, 1)):
        subject = run.subject()
        shown = subject.with_data(task.sample(40, 0, "test")).with_answer("all")
        assert run.final["test.accuracy"] == pytest.approx(shown.accuracy()["2-hop"])


@pytest.mark.parametrize("checkpoints", ["log", "linear"])
def test_kept_checkpoints_do_not_change_where_a_run_ends(checkpoints: str) -> None:
    """They are evaluated, at steps that patience does not count."""
    patient = {**BRIEF, "steps": 200, "lr": 1e-4, "evaluate_every": 20, "stop_patience": 3}
    patient["stop_delta"] = 0.05
    (plain,) = train(TASK, SMALL, {**patient, "checkpoints": "last"})
    (more,) = train(TASK, SMALL, {**patient, "checkpoints": checkpoints, "n_checkpoints": 50})
    assert len(more.metrics) > len(plain.metrics)
    assert (plain.status, plain.final["step"]) == (more.status, more.final["step"])
    assert plain.status == "stopped"


@pytest.mark.parametrize("steps", [1, 2])
def test_a_run_that_its_last_update_breaks_has_failed(steps: int, tmp_path: Path) -> None:
    broken = {**BRIEF, "steps": steps, "optimizer": "sgd", "lr": 1e30, "warmup": 0}
    with pytest.raises(NonFiniteError, match="the loss at step 1 is not finite, first in "):
        train(TASK, SMALL, broken, out=tmp_path / "run")
    assert "NaN" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    assert not (tmp_path / "run" / "ckpt.pt").exists()


def test_runs_do_not_hide_in_each_other(tmp_path: Path) -> None:
    train(TASK, SMALL, BRIEF, out=tmp_path / "lone")
    with pytest.raises(RunError, match="seed-0000: lies in the directory of another run"):
        train(TASK, SMALL, BRIEF, seeds=(0, 1), out=tmp_path / "lone")
    assert not list((tmp_path / "lone").glob("seed-*"))


def test_more_models_than_an_ensemble_holds_train_in_turns(monkeypatch) -> None:
    specs = [spec(TASK, SMALL, BRIEF, seed=seed) for seed in range(4)]
    whole, steps = train_many(specs), list[int]()
    monkeypatch.setitem(plan.TILE, "cpu", 300_000)
    in_turns = train_many(specs, progress=lambda now: steps.append(now.models))
    assert max(steps) < 4
    for run, together in zip(in_turns, whole, strict=True):
        assert run.final == pytest.approx(together.final, rel=1e-3)


@pytest.mark.parametrize(
    ("task", "model", "said"),
    [
        ("composition", SMALL, r"expected a task: tasks\.make\('composition'\)"),
        (TASK, {"d_vocab": 5}, "d_vocab follows from the task"),
    ],
)
def test_a_name_and_a_model_of_another_task_are_refused(task: Any, model: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        spec(task, model, BRIEF)


@pytest.mark.full
@pytest.mark.parametrize("later", [{"attention_dir": "bidirectional"}, {"attention_rate": 0.5}])
def test_padding_is_not_hidden_from_a_model_that_would_read_it(later: dict[str, object]) -> None:
    task = tasks.make("listops", operands=2, depth=1)
    with pytest.raises(ParameterError, match=f"{next(iter(later))}=.*listops differ in length"):
        train(task, {"d_model": 8, **later}, BRIEF)


def test_training_leaves_global_randomness_alone() -> None:
    before = torch.get_rng_state()
    train(TASK, {**SMALL, "dropout": 0.5}, BRIEF)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("data_seed", [0, 5])
def test_metrics_are_those_of_the_subject(tmp_path: Path, data_seed: int, saved: bool) -> None:
    """And its split is that of `data_seed`, whatever the seed of the weights, which is 0."""
    training, out = {**BRIEF, "data_seed": data_seed}, tmp_path / "run" if saved else None
    (run,) = train(TASK, SMALL, training, out=out)
    subject, split = run.subject(), TASK.split(data_seed)
    assert {name: index.tolist() for name, index in subject.split.items()} == {
        name: index.tolist() for name, index in split.items()
    }
    for name in ("train", "test"):
        index = split[name]
        assert run.final[f"{name}.accuracy"] == pytest.approx(
            subject.accuracy(subject.logits()[index], subject.targets[index])["answer"]
        )
        assert run.final[f"{name}.loss"] == pytest.approx(
            subject.loss(subject.logits()[index], subject.targets[index])["answer"], rel=1e-5
        )
    if saved:
        config = json.loads((tmp_path / "run" / "config.json").read_text())
        assert config["task"]["name"] == "modular-arithmetic"


# --- the optimizer --------------------------------------------------------------------------------
@settings(deadline=None, max_examples=20)
@given(
    kind=st.sampled_from(["adamw", "adam", "sgd"]),
    decay=st.floats(0, 0.5),
    momentum=st.floats(0, 0.9),
    seed=st.integers(0, 99),
)
def test_updates_equal_pytorchs(kind: str, decay: float, momentum: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(5, generator=generator, dtype=torch.float64)
    config = TrainConfig(
        optimizer=kind, lr=0.1, weight_decay=decay, momentum=momentum, warmup=0, precision="float64"
    )
    ours = FlatParameters([{"W": start}], dtype=torch.float64)
    optimizer = Optimizer([config], ours)
    theirs = torch.nn.Parameter(start.clone())
    reference = {
        "adamw": lambda: torch.optim.AdamW(
            [theirs], lr=0.1, betas=config.betas, weight_decay=decay
        ),
        "adam": lambda: torch.optim.Adam([theirs], lr=0.1, betas=config.betas, weight_decay=decay),
        "sgd": lambda: torch.optim.SGD([theirs], lr=0.1, momentum=momentum, weight_decay=decay),
    }[kind]()
    for _ in range(5):
        gradient = torch.randn(5, generator=generator, dtype=torch.float64)
        ours.grad.copy_(gradient)
        theirs.grad = gradient.clone()
        optimizer.apply()
        reference.step()
    assert torch.allclose(ours.values[0], theirs, rtol=1e-10, atol=1e-12)


FILTERS: dict[str, tuple[dict[str, Any], Callable[[torch.Tensor, int], torch.Tensor]]] = {
    "ema from the first": (
        {"grokfast": "ema", "grokfast_alpha": 0.9, "grokfast_start": "first"},
        lambda g, i: 0.9**i * g[0] + sum(0.1 * 0.9 ** (i - k) * g[k] for k in range(1, i + 1)),
    ),
    "ema from zero": (
        {"grokfast": "ema", "grokfast_alpha": 0.9, "grokfast_start": "zero"},
        lambda g, i: 0.1 * torch.stack([0.9 ** (i - k) * g[k] for k in range(i + 1)]).sum(0),
    ),
    "mean of a window": (
        {"grokfast": "ma", "grokfast_window": 3},
        lambda g, i: g[i - 2 : i + 1].mean(0) if i >= 2 else torch.zeros_like(g[0]),
    ),
}
"""Settings → the slow part of the gradient at step i, in closed form."""


@pytest.mark.parametrize("name", FILTERS)
def test_grokfast_adds_the_slow_part_of_the_gradient(name: str) -> None:
    settings, slow = FILTERS[name]
    gradients = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = {"optimizer": "sgd", "lr": 1.0, "weight_decay": 0.0, "warmup": 0}
    flat = FlatParameters([{"W": torch.zeros(3)}], dtype=torch.float64)
    optimizer = Optimizer([TrainConfig(**plain, **settings, grokfast_lamb=2.0)], flat)
    for gradient in gradients:
        flat.grad.copy_(gradient)
        optimizer.apply()
    expected = -sum(gradients[i] + 2.0 * slow(gradients, i) for i in range(len(gradients)))
    assert torch.allclose(flat.values[0], expected)


@pytest.mark.parametrize("warmup", [0, 10])
def test_the_rate_of_every_step_lies_on_its_curve(warmup: int) -> None:
    """Up a line to the rate; then as far down to the least one as a quarter turn or a line goes,
    from the first step behind the warm-up to the last; or 1/√step; or level.
    """
    span = {"lr": 2.0, "min_lr": 0.5, "warmup": warmup, "steps": warmup + 40}
    shares = (np.arange(40) + 1) / 40  # of the way behind the warm-up
    curves = {
        "cosine": 1.25 + 0.75 * np.cos(np.pi * shares),
        "linear": np.interp(shares, [0, 1], [2.0, 0.5]),
        "constant": np.full(40, 2.0),
        "inverse_sqrt": 2.0 / np.sqrt((np.arange(40) + 1 + warmup) / max(1, warmup)),
    }
    for name, curve in curves.items():
        config = TrainConfig(schedule=name, **span)
        rates = [learning_rate(config, step) for step in range(warmup + 40)]
        assert rates[:warmup] == pytest.approx([2.0 * (i + 1) / 10 for i in range(warmup)])
        assert rates[warmup:] == pytest.approx(curve.tolist()), name
        after = 0.5 if name in ("cosine", "linear") else rates[-1]
        assert learning_rate(config, warmup + 40) == pytest.approx(after, rel=0.02)


@pytest.mark.parametrize("n", [1, 2, 4, 9])
def test_kept_steps_are_evenly_apart_in_steps_or_in_their_logarithm(n: int) -> None:
    steps = 10**8
    linear = kept_steps(TrainConfig(steps=steps, checkpoints="linear", n_checkpoints=n))
    assert sorted(linear) == pytest.approx(np.linspace(0, steps, n + 1), abs=1)
    log = kept_steps(TrainConfig(steps=steps, checkpoints="log", n_checkpoints=n))
    assert sorted(log) == pytest.approx([0, *np.logspace(0, 8, n)], abs=1)
    assert kept_steps(TrainConfig(steps=steps, checkpoints="last", n_checkpoints=n)) == set()


def test_scores_are_of_the_held_out_examples_of_each_runs_own_split() -> None:
    """Triplets are split by the run's seed: another seed's held-out ones were trained on."""
    task = tasks.make("listops-triplets", operations=("ADD",), per_operation=900)
    brief = {"steps": 40, "evaluate_every": 40, "lr": 1e-2}
    runs = train_many([spec(task, SMALL, brief, seed=seed) for seed in (1, 2, 3)])
    for seed, run in zip((1, 2, 3), runs, strict=True):
        held_out = task.examples()[task.split(seed)["test"]]
        logits = run.subject().model(held_out.tokens)
        equals = (held_out.tokens == task.tokens_of("s(%123)=6e")[7]).nonzero()[:, 1]
        rows = torch.arange(len(held_out.tokens))
        said = logits[rows, equals].argmax(-1)
        right = (said == held_out.tokens[rows, equals + 1]).double().mean()
        assert run.final["test.greedy.accuracy"] == pytest.approx(float(right))


def test_training_starts_from_the_weights_of_a_file(tmp_path: Path) -> None:
    """At step 0 they are the file's, and so is what they answer; the optimizer is a fresh one."""
    source = tmp_path / "source"
    (first,) = train(TASK, SMALL, BRIEF, out=source)
    given = {"start": source, "seeds": [0, 3], "out": tmp_path / "on"}
    runs = train(TASK, train=BRIEF, **given)
    kept = mechint.load(source).model.state_dict()
    for run in runs:
        begun = mechint.load(run.path / "checkpoints" / "step-00000000.pt").model.state_dict()
        assert kept.keys() == begun.keys() and all(torch.equal(kept[n], begun[n]) for n in kept)
        assert not torch.equal(run.weights["embed.W_E"], kept["embed.W_E"])
        made = json.loads((run.path / "manifest.json").read_text())
        digest = hashlib.sha256((source / "ckpt.pt").read_bytes()).hexdigest()
        assert made["start"] == digest
    assert runs[0].metrics[0]["test.loss"] == pytest.approx(first.final["test.loss"])
    (in_memory,) = train(TASK, train=BRIEF, start=source)
    assert in_memory.final["test.loss"] == pytest.approx(runs[0].final["test.loss"])
    assert [run.step for run in train(TASK, train=BRIEF, resume=True, **given)] == [30, 30]
    other = tmp_path / "other"
    train(TASK, SMALL, BRIEF | {"seed": 1}, out=other)
    with pytest.raises(RunError, match="holds another run"):
        train(TASK, train=BRIEF, resume=True, **given | {"start": other})
    (tmp_path / "text.pt").write_text("no weights")
    for start, task, model, message in (
        (tmp_path / "text.pt", TASK, None, "text.pt"),
        (source, TASK, {"d_model": 8}, "d_model is 16"),
        (source, tasks.make("modular-arithmetic", p=5), None, "d_vocab is 8"),
        (source, tasks.make("regression-mixture", n=8, n_tasks=2, rank=2), None, "a transformer"),
    ):
        with pytest.raises(MechintError, match=message) as raised:
            train(task, model, BRIEF, start=start)
        assert "\n" not in str(raised.value)
