"""The training loop: models of one shape advance together as one ensemble.

A lone run is an ensemble of one. A model that stops early, reaches its goal or turns non-finite
leaves the ensemble; the others go on. What a model computes does not depend on the others but for
the order in which sums are taken: the same ensemble gives the same bits, another one differs by
rounding (`docs/reliability.md` has the measured size). Which runs form an ensemble follows from the
plan alone (`mechint.training.plan`). Cost of a step: one forward and backward of the rows that the
loss reads, and one pass over the flat parameters.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.errors import RunError
from mechint.models.layers import Hook, no_hook
from mechint.task import Batch
from mechint.training.dropout import dropout
from mechint.training.interrupt import interruptible
from mechint.training.learners import learner_of
from mechint.training.optimizer import Optimizer
from mechint.training.parameters import FlatParameters
from mechint.training.run import Run
from mechint.training.run_directory import State
from mechint.training.schedule import Progress, kept_steps, loss_change, loss_of, stops

STATE_SECONDS = 20.0
"""How often the states are committed at most, in seconds of training."""

SYNC = 100
"""On a GPU, after how many steps the losses are fetched and checked."""


class Ensemble:
    """Runs of one shape in training.

    Args:
        runs: opened runs, all at the same step; states: what each goes on from, None at the start.
        device: where; progress: called at evaluations and a few times a second.
        ensemble: the identifier that is kept with the states.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        states: Sequence[State | None],
        device: torch.device,
        progress: Callable[[Progress], None] | None = None,
        ensemble: str = "",
    ) -> None:
        self.runs, self.device, self.progress = list(runs), device, progress
        self.check_every = 1 if device.type == "cpu" else SYNC
        self.identifier = ensemble
        self.left: list[tuple[Run, State]] = []  # models that are done, not committed yet
        self.config = runs[0].spec.train
        self.step = runs[0].step
        specs = [run.spec for run in runs]
        configs, tasks = [spec.model for spec in specs], [spec.task for spec in specs]
        self.learner = learner_of(configs, tasks, self.config, device)
        initial = [self.learner.initial(i, spec.train.seed) for i, spec in enumerate(specs)]
        dtype = torch.float64 if self.config.precision == "float64" else torch.float32
        self.parameters = FlatParameters(initial, device, dtype)
        self.kept = kept_steps(self.config, self.parameters.values.shape[1])
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

    # --- state ------------------------------------------------------------------------------------
    def _load(self, model: int, state: State) -> None:
        if state["device"] != self.device.type:  # another generator, and other sums
            raise RunError(
                f"{self.runs[model].path}: trained on {state['device']}; resume with --device "
                f"{state['device']}, or choose another --out"
            )
        values, optimizer = self.parameters.values, self.optimizer.state
        fits = state["values"].shape == values[model].shape and all(
            name in optimizer and value.shape == optimizer[name][model].shape
            for name, value in state["optimizer"].items()
        )
        if not fits or not set(optimizer) <= set(state["optimizer"]):
            raise RunError(
                f"{self.runs[model].path}/{state['file']}: damaged: its tensors do not fit the "
                "run; delete it and --resume starts this run anew"
            )
        values.data[model] = state["values"].to(values)
        for name, value in state["optimizer"].items():
            optimizer[name][model] = value.to(values)
        self.generators[model].set_state(state["generator"])
        self.stale_evaluations[model] = state["stale_evaluations"]

    def _state(self, model: int) -> State:
        run = self.runs[model]
        return {
            "step": self.step,
            "status": run.status,
            "error": run.error,
            "ensemble": self.identifier,
            "threads": torch.get_num_threads(),
            "device": self.device.type,
            "values": self.parameters.values[model].detach().cpu().clone(),
            "optimizer": {
                name: value[model].cpu().clone() for name, value in self.optimizer.state.items()
            },
            "generator": self.generators[model].get_state(),
            "stale_evaluations": self.stale_evaluations[model],
        }

    def commit(self) -> None:
        """Make this step the one that all models go on from, in two phases (see `RunDirectory`)."""
        active = [(run, self._state(model)) for model, run in enumerate(self.runs) if run.path]
        entries = [(run.directory, state) for run, state in (*self.left, *active) if run.directory]
        for directory, state in entries:
            directory.prepare({**state, "commit": self.step})
        for directory, _ in entries:
            directory.commit()
        self.left = []

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
    @property
    def _drop(self) -> Hook:
        """Dropout with each model's own generator, where there is any."""
        rate = getattr(self.runs[0].spec.model, "dropout", 0.0)
        if not rate:
            return no_hook
        return lambda _, tensor: dropout(tensor, rate, self.generators)

    def advance(self) -> Float[Tensor, " model"]:
        """One optimizer step: the losses (model,) before it."""
        prepared = self.learner.prepare(self._batches())
        losses = self.learner.descend(self.parameters, prepared, self._drop)
        self.optimizer.apply()
        self.step += 1
        return losses

    # --- the whole run ----------------------------------------------------------------------------
    def train(self) -> None:
        """Advance until every run is finished, stopped, failed or interrupted."""
        for run in self.runs:
            run.status = "running"
        saved = shown = time.monotonic()
        losses: list[Tensor] = []
        with interruptible() as interrupted, _precision(self.config.precision):
            if not any(run.metrics for run in self.runs):
                self._evaluate()
            while self.runs and self.step < self.config.steps and not interrupted.is_set():
                losses.append(self.advance())
                if len(losses) >= self.check_every or self._due() or self.step in self.kept:
                    self._check(losses)
                    losses = []
                if self.runs and self._due():
                    self._evaluate()
                else:
                    self._keep()
                now = time.monotonic()
                if now - saved > STATE_SECONDS and self.runs:
                    self._check(losses)  # nothing goes on from weights that are not finite
                    losses = []
                    self.commit()
                    saved = now
                if self.progress and now - shown > 0.2 and self.runs:
                    self._report()
                    shown = now
        if self.runs:
            self._check(losses)
        status = "interrupted" if self.step < self.config.steps else "finished"
        for model in range(len(self.runs)):
            self._finish(model, status)
        self.runs = []
        self.commit()

    def _due(self) -> bool:
        evaluated = self.config.checkpoints in ("log", "linear") and self.step in self.kept
        last = self.step == self.config.steps
        return evaluated or last or self.step % self.config.evaluate_every == 0

    def _keep(self) -> None:
        """Keep a checkpoint of every model where this step is one of those to keep."""
        if self.step in self.kept:
            for model, run in enumerate(self.runs):
                run.keep_checkpoint(self.step, self.parameters.weights(model))

    def _check(self, losses: list[Tensor]) -> None:
        """Let go of models whose loss is not finite; their runs say where it happened."""
        if not losses:
            return
        finite = torch.isfinite(torch.stack(losses)).cpu()
        bad = (~finite.all(0)).nonzero().flatten().tolist()
        for model in bad:
            self._fail(model, self.step - len(losses) + int((~finite[:, model]).nonzero()[0]))
        self.drop_models(bad)

    def _fail(self, model: int, step: int) -> None:
        """End a run whose loss at `step` is not finite, and say where that began, unless steps
        since then have spread it over all parameters.
        """
        where = ""
        if step >= self.step - 1:
            where = f", first in {self.parameters.first_not_finite(model) or 'the logits'}"
        run = self.runs[model]
        run.error = (
            f"{run.spec.task.name}, seed {run.spec.train.seed}: the loss at step {step} is "
            f"not finite{where}; try a smaller lr, or clip"
        )
        run.status, run.step = "failed", step
        self.left.append((run, {**self._state(model), "step": step}))

    def _evaluate(self) -> None:
        """Record metrics, keep due checkpoints, and let go of the models that are done."""
        seeds = [run.spec.data_seed for run in self.runs]
        rows = self.learner.evaluate(self.parameters.views, seeds, self.config.eval_examples)
        bad = [model for model, row in enumerate(rows) if not math.isfinite(loss_of(row))]
        for model in bad:
            self._fail(model, self.step)
        self.drop_models(bad)
        rows = [row for model, row in enumerate(rows) if model not in bad]
        done = []
        before = [self._counted(run) for run in self.runs]
        for run, row in zip(self.runs, rows, strict=True):
            run.record({"step": self.step, **row})
        self._keep()
        for model, row in enumerate(rows):
            if self._stops(model, before[model], row):
                done.append(model)
        if self.progress:
            self._report()
        for model in done:
            self._finish(model, "stopped")
        self.drop_models(done)

    def _counted(self, run: Run) -> Mapping[str, float]:
        """The last evaluation that patience counts: those of `checkpoints` come on top."""
        every = self.config.evaluate_every
        return next((row for row in reversed(run.metrics) if row["step"] % every == 0), {})

    def _stops(self, model: int, before: Mapping[str, Any], row: Mapping[str, float]) -> bool:
        """Whether this evaluation is the last of a model."""
        if self.step % self.config.evaluate_every == 0:
            unchanged = loss_change(before, row) < self.config.stop_delta
            self.stale_evaluations[model] = self.stale_evaluations[model] + 1 if unchanged else 0
        return stops(self.config, self.step, self.stale_evaluations[model], row)

    def _report(self) -> None:
        assert self.progress is not None
        rows = [run.final for run in self.runs]
        names = dict.fromkeys(name for row in rows for name in row if name != "step")
        # of the models that have it: a task's scores are its own
        means = {name: fmean(row[name] for row in rows if name in row) for name in names}
        self.progress(Progress(self.step, self.config.steps, means, len(rows)))

    def _finish(self, model: int, status: str) -> None:
        run = self.runs[model]
        run.status = status
        run.save_last(self.step, self.parameters.weights(model))
        self.left.append((run, self._state(model)))

    def drop_models(self, gone: Sequence[int]) -> None:
        """Take models, numbered as they stand now, out of the ensemble."""
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
