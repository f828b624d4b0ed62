"""What training does on a GPU, where there is none: captured steps with stand-ins for CUDA, what
a graph would refuse, which device is the current one, and how losses are looked at late.
"""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tasks
from mechint.training import graphs, part, spec, trainer
from mechint.training.packing import stack, stack_on
from mechint.training.regression_learner import RegressionLearner
from mechint.training.resume import open_runs
from mechint.training.run import Run
from mechint.training.trainer import Ensemble

SMALL = {"d_model": 8, "n_heads": 1, "d_head": 8, "d_mlp": 16}


class Replayed:
    """In place of `Captured`: every replay calls the body."""

    def __init__(self, body, subject, generators, state, device):
        self.body, self.subject = body, subject

    def replay(self):
        return self.body().clone()


def ensemble(**options) -> Ensemble:
    made = spec(tasks.make("modular-arithmetic", p=7), SMALL, {"steps": 20, "warmup": 3})
    return Ensemble([Run(made)], [None], torch.device("cpu"), **options)


def test_replayed_steps_train_as_eager_ones_do(monkeypatch):
    monkeypatch.setattr(trainer, "Captured", Replayed)
    eager, replayed = ensemble(), ensemble()
    replayed.capture = True
    losses = [[one.advance().item() for _ in range(12)] for one in (eager, replayed)]
    assert losses[0] == losses[1] and replayed.captured is not None and eager.captured is None
    assert torch.equal(eager.parameters.values, replayed.parameters.values)


class Recorded(TorchDispatchMode):
    """The operations of a block, with the numbers that a captured graph would keep as they are."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        numbers = [one for one in args if isinstance(one, int | float)]
        self.operations.append((str(function), str(numbers)))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "train",
    [
        {"optimizer": "adamw", "clip": 1.0, "schedule": "cosine"},
        {"optimizer": "adam", "grokfast": "ema", "grokfast_start": "zero"},
        {"optimizer": "sgd", "momentum": 0.9, "orthogonal_grad": True, "grokfast": "ema"},
        {"optimizer": "muon", "loss": "stablemax", "decay_matrices_only": True},
        {"grokfast": "ma", "grokfast_window": 5},
    ],
)
def test_a_step_that_may_be_captured_does_the_same_every_time(train):
    """A graph recorded at step 2 is replayed at all others."""
    config = {"steps": 20, "warmup": 3, **train}
    made = spec(tasks.make("modular-arithmetic", p=7), SMALL, config)
    trained = Ensemble([Run(made)], [None], torch.device("cpu"))
    seen = []
    for _ in range(10):
        prepared = trained.learner.prepare(trained._batches())
        trained.optimizer.advance()
        with Recorded() as recorded:
            trained._descend(prepared)
        seen.append(recorded.operations)
    same = all(operations == seen[1] for operations in seen[1:])
    assert same == graphs.can_capture(made.train, made.model) == (train.get("grokfast") != "ma")


class Copied(TorchDispatchMode):
    """The copies of a block that a CUDA graph would refuse, were the block on a GPU: of numbers of
    Python into tensors, and of tensors from before the block into another type or place.
    """

    def __init__(self):
        super().__init__()
        self.made, self.copies = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        old = "_to_copy" in name and not any(args[0] is one for one in self.made)
        if old or "lift_fresh" in name:
            self.copies.append(name)
        out = function(*args, **(kwargs or {}))
        self.made.append(out)
        return out


EXACT = {"batch_size": None, "steps": 20}
CAPTURED = [
    ("modular-arithmetic", {"p": 7}, SMALL, {"steps": 20}),
    ("remainders", {"p": 5}, SMALL, {"steps": 20}),
    ("remainders", {"p": 5}, SMALL, {"steps": 20, "output_weights": "equal"}),
    ("single-index", {"d": 8, "n_directions": 2}, {"width": 4}, EXACT),
    ("regression-mixture", {"n": 8, "n_tasks": 2, "rank": 2}, {"width": 4}, EXACT),
]


@pytest.mark.parametrize(("task", "parameters", "model", "train"), CAPTURED)
def test_a_captured_step_copies_nothing_from_the_cpu(task, parameters, model, train):
    """CUDA refuses it while a graph is recorded; constants are float64 on the CPU, so that on a CPU
    the same copy shows as one to float32.
    """
    made = spec(tasks.make(task, **parameters), model, train)
    trained = Ensemble([Run(made)], [None], torch.device("cpu"))
    prepared = trained.learner.prepare(trained._batches())
    trained.optimizer.advance()
    with Copied() as copied:
        trained._descend(prepared)
    assert graphs.can_capture(made.train, made.model) and not copied.copies


def test_a_step_that_solves_for_the_decoders_is_not_captured():
    made = spec(tasks.make("regression-mixture"), {"decoder": "optimal"}, EXACT)
    assert not graphs.can_capture(made.train, made.model)


def test_capturing_leaves_weights_and_draws_as_they_were(monkeypatch):
    chosen: list[torch.device] = []  # innermost last
    used_on = []

    class Graph:
        def register_generator_state(self, generator):
            self.generator = generator

        def replay(self):
            used_on.append(chosen[-1])

    @contextlib.contextmanager
    def context(*_):
        used_on.append(chosen[-1])
        yield

    @contextlib.contextmanager
    def device(wanted):
        chosen.append(wanted)
        yield
        chosen.pop()

    class Stream:
        def wait_stream(self, other):
            assert isinstance(other, Stream)

    for name, stand_in in {
        "Stream": Stream,
        "current_stream": Stream,
        "stream": context,
        "graph": context,
        "CUDAGraph": Graph,
        "device": device,
    }.items():
        monkeypatch.setattr(graphs.torch.cuda, name, stand_in, raising=False)
    values, generator = torch.arange(4.0), torch.Generator().manual_seed(0)
    calls = []

    def body():
        calls.append(torch.rand(1, generator=generator).item())
        values.add_(1)
        return values.sum()

    first = torch.rand(1, generator=torch.Generator().manual_seed(0)).item()
    second = torch.device("cuda:1")
    captured = graphs.Captured(body, "subject", [generator], [values], second)
    captured.replay()
    assert used_on == 3 * [second] and not chosen, "the stream, the graph and its replay"
    warm, capturing = calls[: graphs.WARM_UP], calls[graphs.WARM_UP :]
    assert warm[0] == first and capturing == [first], "the draws of the warm-up are taken back"
    assert values.tolist() == [1.0, 2.0, 3.0, 4.0], "one body on the weights before the warm-up"
    assert captured.graph.generator is generator


def test_a_part_trains_with_its_gpu_as_the_current_one(monkeypatch):
    """So the manifest names that GPU; on a CPU none is asked for."""
    entered, opened = [], []
    monkeypatch.setattr(
        graphs.torch.cuda, "device", lambda one: contextlib.nullcontext(entered.append(one))
    )
    monkeypatch.setattr(part, "open_runs", lambda *_: opened.append(list(entered)) or [])
    for name in ("cpu", "cuda:1"):
        part.train_part([], "none", torch.device(name))
    assert opened == [[], [torch.device("cuda:1")]]


@pytest.mark.parametrize("name", ["regression-mixture", "single-index"])
def test_students_train_in_float64(name):
    made = spec(tasks.make(name), {}, {"steps": 5, "precision": "float64"})
    trained = Ensemble([Run(made)], [None], torch.device("cpu"))
    assert trained.advance().dtype == torch.float64


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_batch_that_students_share_is_moved_once(precision):
    """On another device than the CPU, here one without numbers; and what its moments give is what
    every model alone gives.
    """
    made = spec(
        tasks.make("regression-mixture", n=8, n_tasks=2, rank=2),
        {"width": 4},
        {"steps": 5, "precision": precision},
    )
    batch = next(made.task.stream("train", 0, 16))
    here, there = (
        RegressionLearner(3 * [made.model], 3 * [made.task], made.train, torch.device(device))
        for device in ("cpu", "meta")
    )
    moved = there.prepare(3 * [batch])
    assert moved.tokens.dtype == there.dtype and moved.tokens.device.type == "meta"
    for tensor in (moved.tokens, moved.targets, moved.masks["task"]):
        assert tensor.stride(0) == 0 and len(tensor) == 3

    each = [here.initial(0, seed) for seed in range(3)]
    weights = {name: torch.stack([one[name] for one in each]).to(here.dtype) for name in each[0]}
    together = here.losses(weights, stack(3 * [here._placed(batch)]))
    one = stack([here._placed(batch)])  # of a lone model, so not by its moments
    assert one.tokens.stride(0) > 0
    alone = [
        here.losses({name: value[i : i + 1] for name, value in weights.items()}, one)
        for i in range(3)
    ]
    tolerance = {"float32": 1e-5, "float64": 1e-12}[precision]
    torch.testing.assert_close(together, torch.cat(alone), rtol=tolerance, atol=0)


def test_a_shared_batch_of_tokens_is_moved_once():
    batch = tasks.make("modular-arithmetic", p=5).examples()
    moved = stack_on(torch.device("meta"), 3 * [batch])
    apart = stack_on(torch.device("meta"), [batch, batch[:], batch[:]])
    assert moved.tokens.stride(0) == 0 and moved.targets.stride(0) == 0
    assert moved.tokens.shape == apart.tokens.shape and apart.tokens.stride(0) > 0


def diverging(
    folder, monkeypatch, check_every: int, state_seconds: float
) -> tuple[Run, list[bool]]:
    """A run whose loss stops being finite, with its losses looked at every so many steps; and
    whether the weights were finite at each commit of a running state.
    """
    made = spec(
        tasks.make("modular-arithmetic", p=7),
        SMALL,
        {
            "steps": 60,
            "warmup": 0,
            "optimizer": "sgd",
            "lr": 1e30,
            "evaluate_every": 60,
            "checkpoints": None,  # at each the losses are looked at
        },
        out=folder,
    )
    run, committed = Run(made), []
    (group,) = open_runs([run], "alone", False)
    trained = Ensemble(group.runs, group.states, torch.device("cpu"))
    trained.check_every = check_every
    commit = trained.commit

    def recorded():
        committed.extend([bool(trained.parameters.values.isfinite().all())] * len(trained.runs))
        commit()

    monkeypatch.setattr(trained, "commit", recorded)
    monkeypatch.setattr(trainer, "STATE_SECONDS", state_seconds)
    trained.train()
    return run, committed


def test_where_a_run_diverged_is_said_only_when_it_was_looked_at_in_time(tmp_path, monkeypatch):
    soon, _ = diverging(tmp_path / "a", monkeypatch, 1, 1e9)
    late, _ = diverging(tmp_path / "b", monkeypatch, 50, 1e9)
    assert soon.status == late.status == "failed" and soon.step == late.step < 49
    assert "not finite, first in " in soon.error
    assert "not finite; try a smaller lr" in late.error


def test_weights_that_are_not_finite_are_never_committed_to_go_on_from(tmp_path, monkeypatch):
    often, committed = diverging(tmp_path, monkeypatch, 50, -1.0)
    assert often.status == "failed" and committed and all(committed)
