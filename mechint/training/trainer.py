"""The training loop: models of one shape advance together, each exactly as it would alone.

A lone run is an ensemble of one. A model that stops early, reaches its goal or turns non-finite
leaves the ensemble; the others go on. Cost of a step: one compact forward and backward, and one
pass over the flat parameters.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from mechint.config import TrainConfig
from mechint.task import Batch
from mechint.training.allocator import keep_freed_memory
from mechint.training.graphs import Captured
from mechint.training.learners import learner_of
from mechint.training.optimizer import Optimizer
from mechint.training.parameters import FlatParameters
from mechint.training.run_directory import Run

STATE_SECONDS = 20.0
"""How often state.pt is written at most, in seconds of training."""

SYNC = 100
"""On a GPU, after how many steps the losses are fetched and checked."""


@dataclass(frozen=True)
class Progress:
    """Where an ensemble stands: step of `steps`, the latest metrics averaged over the models that
    still train, and how many those are.

    part: which ensemble of those that are trained, counted from 0.
    """

    step: int
    steps: int
    metrics: dict[str, float]
    models: int = 1
    part: int = 0


def kept_steps(config: TrainConfig) -> set[int]:
    """The steps at which checkpoints are kept besides the last.

    >>> sorted(kept_steps(TrainConfig(steps=1000, checkpoints="log", n_checkpoints=4)))
    [0, 1, 10, 100, 1000]
    """
    n = config.n_checkpoints
    if config.checkpoints == "linear":
        return {round(i * config.steps / n) for i in range(n + 1)}
    if config.checkpoints == "log":
        return {0} | {round(config.steps ** (i / (n - 1 or 1))) for i in range(n)}
    return set()


class Ensemble:
    """Runs of one shape in training.

    Args:
        runs: opened runs, all at the same step; states: what each one's `Run.open` gave.
        device: where; progress: called at evaluations and a few times a second.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        states: Sequence[dict[str, Any] | None],
        device: torch.device,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        keep_freed_memory()
        self.runs, self.device, self.progress = list(runs), device, progress
        self.config = runs[0].spec.train
        self.kept = kept_steps(self.config)
        self.step = runs[0].step
        specs = [run.spec for run in runs]
        self.learner = learner_of(
            [spec.model for spec in specs],
            [spec.task for spec in specs],
            self.config.output_weights,
            device,
        )
        initial = [self.learner.initial(i, spec.train.seed) for i, spec in enumerate(specs)]
        dtype = torch.float64 if self.config.precision == "float64" else torch.float32
        self.parameters = FlatParameters(initial, device, dtype)
        self.optimizer = Optimizer([spec.train for spec in specs], self.parameters)
        self.generators = [
            torch.Generator(device).manual_seed(spec.train.seed + 1) for spec in specs
        ]
        self.stale_evaluations = [0] * len(
            runs
        )  # evaluations in a row without a change of the training loss
        for i, state in enumerate(states):
            if state is not None:
                self._load(i, state)
        self.optimizer.steps = self.step
        self.shared = all(
            spec.task == specs[0].task and spec.data_seed == specs[0].data_seed for spec in specs
        )
        self.streams = self._open_streams()
        self.captured: Captured | None = None

    # --- state ------------------------------------------------------------------------------------
    def _load(self, model: int, state: dict[str, Any]) -> None:
        self.parameters.values.data[model] = state["values"].to(self.parameters.values)
        for name, value in state.get("optimizer", state.get("optimiser", {})).items():
            self.optimizer.state[name][model] = value.to(self.parameters.values)
        self.generators[model].set_state(state["generator"])
        self.stale_evaluations[model] = state.get("stale_evaluations", state.get("still", 0))

    def _state(self, model: int) -> dict[str, Any]:
        return {
            "step": self.step,
            "values": self.parameters.values[model].detach().cpu().clone(),
            "optimizer": {
                name: value[model].cpu().clone() for name, value in self.optimizer.state.items()
            },
            "generator": self.generators[model].get_state(),
            "stale_evaluations": self.stale_evaluations[model],
        }

    def _open_streams(self) -> list[Iterator[Batch]]:
        """Streams of training batches; models that share task and data seed share one."""
        specs = [run.spec for run in self.runs]
        if self.config.batch_size is None and specs[0].task.model_kind != "transformer":
            return []
        chosen = specs[:1] if self.shared else specs
        return [
            spec.task.stream("train", spec.data_seed, self.config.batch_size, start=self.step)
            for spec in chosen
        ]

    def _batches(self) -> list[Batch]:
        batches = [next(stream) for stream in self.streams]
        return batches * len(self.runs) if self.shared and batches else batches

    # --- one step ---------------------------------------------------------------------------------
    def _drop(self, name: str, tensor: Tensor) -> Tensor:
        """Dropout with each model's own generator, so that its masks are those it would draw
        alone.
        """
        keep = 1 - getattr(self.runs[0].spec.model, "dropout", 0.0)
        if keep == 1:
            return tensor
        mask = torch.stack([_kept(keep, tensor[0], own) for own in self.generators])
        return tensor * mask.to(tensor.dtype).div_(keep)

    def _descend(self, prepared: Any) -> Tensor:
        """Forward, backward and update; returns the losses (model,) before the update."""
        with torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"
        ):
            losses = self.learner.losses(self.parameters.views, prepared, self._drop)
        self.parameters.differentiate(losses.sum())
        self.optimizer.apply()
        return losses.detach()

    def advance(self) -> Tensor:
        """One optimizer step; the losses (model,)."""
        prepared = self.learner.prepare(self._batches())
        self.optimizer.advance()
        self.step += 1
        if self.device.type == "cuda" and self.config.batch_size is None and self.step > 1:
            if self.captured is None or self.captured.subject is not prepared:
                self.captured = Captured(
                    lambda: self._descend(prepared),
                    prepared,
                    self.generators,
                    [self.parameters.values, *self.optimizer.state.values()],
                )
            return self.captured.replay()
        return self._descend(prepared)

    # --- the whole run ----------------------------------------------------------------------------
    def train(self) -> None:
        """Advance until every run is finished, stopped, failed or interrupted."""
        for run in self.runs:
            run.status = "running"
        saved = shown = time.monotonic()
        losses: list[Tensor] = []
        every = 1 if self.device.type == "cpu" else SYNC
        with interruptible() as interrupted, _precision(self.config.precision):
            if not any(run.metrics for run in self.runs):
                self._evaluate()
            while self.runs and self.step < self.config.steps and not interrupted.is_set():
                losses.append(self.advance())
                if len(losses) >= every or self._due():
                    self._check(losses)
                    losses = []
                if self.runs and self._due():
                    self._evaluate()
                now = time.monotonic()
                if now - saved > STATE_SECONDS and self.runs:
                    self._save_states()
                    saved = now
                if self.progress and now - shown > 0.2 and self.runs:
                    self._report()
                    shown = now
        for model in range(len(self.runs)):
            self._finish(model, "interrupted" if self.step < self.config.steps else "finished")

    def _due(self) -> bool:
        return (
            self.step % self.config.evaluate_every == 0
            or self.step == self.config.steps
            or self.step in self.kept
        )

    def _check(self, losses: list[Tensor]) -> None:
        """Let go of models whose loss is not finite; their runs say where it happened."""
        finite = torch.isfinite(torch.stack(losses)).cpu()
        bad = (~finite.all(0)).nonzero().flatten().tolist()
        for model in bad:
            step = self.step - len(losses) + int((~finite[:, model]).nonzero()[0])
            where = self.parameters.first_not_finite(model)
            run = self.runs[model]
            place = where or "the logits"
            run.error = (
                f"{run.spec.task.name}, seed {run.spec.train.seed}: the loss at step {step} is "
                f"not finite, first in {place}; try a smaller lr, or clip"
            )
            run.status, run.step = "failed", step
        self.drop_models(bad)

    def _evaluate(self) -> None:
        """Record metrics, keep due checkpoints, and let go of the models that are done."""
        seeds = [run.spec.data_seed for run in self.runs]
        rows = self.learner.evaluate(self.parameters.views, seeds, self.config.eval_examples)
        done = []
        for model, (run, row) in enumerate(zip(self.runs, rows, strict=True)):
            before = run.metrics[-1] if run.metrics else {}
            run.record({"step": self.step, **row})
            if self.step in self.kept:
                run.keep_checkpoint(self.step, self.parameters.weights(model))
            if self._stops(model, before, row):
                done.append(model)
        if self.progress:
            self._report()
        for model in done:
            self._finish(model, "stopped")
        self.drop_models(done)

    def _stops(self, model: int, before: dict[str, Any], row: dict[str, float]) -> bool:
        config = self.config
        name = "train.loss" if "train.loss" in row else "test.loss"
        unchanged = name in before and abs(before[name] - row[name]) < config.stop_delta
        self.stale_evaluations[model] = self.stale_evaluations[model] + 1 if unchanged else 0
        if self.step < config.stop_after:
            return False
        patient = (
            config.stop_patience is None or self.stale_evaluations[model] < config.stop_patience
        )
        accuracies = [value for key, value in row.items() if key.startswith("test.accuracy")]
        short = (
            config.stop_accuracy is None or not accuracies or min(accuracies) < config.stop_accuracy
        )
        return not patient or not short

    def _report(self) -> None:
        assert self.progress is not None
        rows = [run.final for run in self.runs]
        means = (
            {name: sum(row[name] for row in rows) / len(rows) for name in rows[0] if name != "step"}
            if rows
            else {}
        )
        self.progress(Progress(self.step, self.config.steps, means, len(rows)))

    def _save_states(self) -> None:
        for model, run in enumerate(self.runs):
            run.save_state(self._state(model))

    def _finish(self, model: int, status: str) -> None:
        run = self.runs[model]
        run.status = status
        run.save_last(self.step, self.parameters.weights(model))
        run.save_state(self._state(model))

    def drop_models(self, gone: Sequence[int]) -> None:
        if not gone:
            return
        stay = [model for model in range(len(self.runs)) if model not in set(gone)]
        for name in ("runs", "generators", "stale_evaluations"):
            setattr(self, name, [getattr(self, name)[i] for i in stay])
        if not self.shared:
            self.streams = [self.streams[i] for i in stay] if self.streams else []
        if stay:
            index = torch.tensor(stay, device=self.device)
            self.parameters.keep(index)
            self.optimizer.keep(index)
            self.learner.keep(stay)
            self.captured = None


def _kept(keep: float, like: Tensor, generator: torch.Generator) -> Tensor:
    """True with probability `keep` to within 2⁻¹⁷, in the shape of `like`; every number drawn
    decides for four entries.
    """
    drawn = torch.empty(-(-like.numel() // 4), dtype=torch.int64, device=like.device).random_(
        -(2**63), None, generator=generator
    )
    return (drawn.view(torch.int16)[: like.numel()] < round(keep * 2**16) - 2**15).view(like.shape)


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, so that a step is never cut in two; the second one
    interrupts as usual.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.getsignal(signal.SIGINT)

    def first(number: int, frame: FrameType | None) -> None:
        event.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, first)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _precision(name: str) -> Iterator[None]:
    """TensorFloat-32 inside, where asked for; as before afterwards."""
    before = torch.get_float32_matmul_precision()
    if name == "tf32":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
