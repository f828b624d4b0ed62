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
from jaxtyping import Bool, Float
from torch import Tensor

from mechint.errors import RunError
from mechint.models.layers import Hook, no_hook
from mechint.system.parallel import interruptible
from mechint.task import Batch
from mechint.training.learners import learner_of
from mechint.training.optimizer import FlatParameters, Optimizer
from mechint.training.run import Run
from mechint.training.run_directory import REMEDY, State
from mechint.training.schedule import Progress, kept_steps, loss_change, loss_of, stops

STATE_SECONDS = 20.0
"""Seconds of training between two commits of the states, at least."""

SYNC = 100
"""On a GPU, after how many steps the losses are fetched and checked."""


class Ensemble:
    """Runs of one shape in training.

    Args:
        runs: opened runs, none of them done; device: where they train.
        progress: called at evaluations and a few times a second.
        state: the saved state that they go on from, None at the start.
        commit: called with tensors and step from time to time, to save them.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        device: torch.device,
        progress: Callable[[Progress], None] | None = None,
        state: State | None = None,
        commit: Callable[[State], None] | None = None,
    ) -> None:
        self.runs, self.device, self.progress = list(runs), device, progress
        self.check_every = 1 if device.type == "cpu" else SYNC
        self._save = commit
        self.config = runs[0].spec.train
        self.step = 0
        specs = [run.spec for run in runs]
        configs, tasks = [spec.model for spec in specs], [spec.task for spec in specs]
        self.learner = learner_of(configs, tasks, self.config, device)
        initial = [
            self.learner.initial(i, spec.train.seed)
            | dict(spec.start.weights if spec.start else {})
            for i, spec in enumerate(specs)
        ]
        dtype = torch.float64 if self.config.precision == "float64" else torch.float32
        self.parameters = FlatParameters(initial, device, dtype)
        self.kept = kept_steps(self.config, self.parameters.values.shape[1])
        self.optimizer = Optimizer([spec.train for spec in specs], self.parameters)
        self.generators = [
            torch.Generator(device).manual_seed(spec.train.seed + 1) for spec in specs
        ]
        # evaluations in a row without a change of the training loss
        self.stale_evaluations = [0] * len(runs)
        if state is not None:
            self._load(state)
        self.optimizer.steps = self.step
        self.shared = all(
            spec.task == specs[0].task and spec.data_seed == specs[0].data_seed for spec in specs
        )
        self.streams = self._open_streams()

    # --- state ------------------------------------------------------------------------------------
    def _load(self, state: State) -> None:
        """Go on from a saved state, whose rows are the models of this ensemble in order."""
        if state["device"] != self.device.type:  # another generator, and other sums
            raise RunError(
                f"{state['file'].parent}: trained on {state['device']}; resume with --device "
                f"{state['device']}, or choose another --out"
            )
        ours = {"values": self.parameters.values.data, **self.optimizer.state}
        theirs = {"values": state["values"], **state["optimizer"]}
        of_models = (state["generators"], state["stale_evaluations"])
        fits = ours.keys() == theirs.keys() and all(
            isinstance(theirs[name], Tensor) and theirs[name].shape == value.shape
            for name, value in ours.items()
        )
        try:
            if not fits or any(len(values) != len(self.runs) for values in of_models):
                raise ValueError("of other shapes")
            for name, value in ours.items():
                value.copy_(theirs[name])
            for generator, saved in zip(self.generators, state["generators"], strict=True):
                generator.set_state(saved)
        except (ValueError, TypeError, RuntimeError) as error:
            raise RunError(
                f"{state['file']}: damaged: its tensors do not fit the run; {REMEDY}"
            ) from error
        self.step, self.stale_evaluations = state["step"], list(state["stale_evaluations"])

    def commit(self) -> None:
        """Make this step the one that all models go on from."""
        for run in self.runs:
            run.step = self.step
        if self._save is None:
            return
        n = len(self.runs)
        optimizer = {name: value[:n].cpu().clone() for name, value in self.optimizer.state.items()}
        self._save(
            {
                "step": self.step,
                "device": self.device.type,
                "values": self.parameters.values[:n].detach().cpu().clone(),
                "optimizer": optimizer,
                "generators": [generator.get_state() for generator in self.generators[:n]],
                "stale_evaluations": self.stale_evaluations[:n],
            }
        )

    def _open_streams(self) -> list[Iterator[Batch]]:
        """Streams of training batches; models that share task and data seed share one."""
        specs = [run.spec for run in self.runs]
        if self.config.batch_size is None and specs[0].task.model_kind != "transformer":
            return []
        chosen = specs[:1] if self.shared else specs
        size, start = self.config.batch_size, self.step
        return [spec.task.stream("train", spec.data_seed, size, start=start) for spec in chosen]

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
        prepared: Any = self.learner.prepare(self._batches())
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
            if not any(run.metrics for run in self.runs):  # a run that goes on has its first one
                self._evaluate_and_retire()
            while self.runs and self.step < self.config.steps and not interrupted.is_set():
                losses.append(self.advance())
                if len(losses) >= self.check_every or self._due():
                    self._drop_not_finite(losses)
                    losses = []
                if self.runs and self._due():
                    self._evaluate_and_retire()
                now = time.monotonic()
                if now - saved > STATE_SECONDS and self.runs:
                    self._drop_not_finite(
                        losses
                    )  # nothing goes on from weights that are not finite
                    losses = []
                    self.commit()
                    saved = now
                if self.progress and now - shown > 0.2 and self.runs:
                    self._report()
                    shown = now
        if self.runs:
            self._drop_not_finite(losses)
        ended = self.step == self.config.steps
        for model in range(len(self.runs)):
            self._finish(model, "finished" if ended else "interrupted")
        if ended:
            self.runs = []
        self.commit()

    def _due(self) -> bool:
        last = self.step == self.config.steps
        return last or self.step in self.kept or self.step % self.config.evaluate_every == 0

    def _drop_not_finite(self, losses: list[Tensor]) -> None:
        """Let go of models whose loss is not finite; their runs say where it happened."""
        if not losses:
            return
        finite = torch.isfinite(torch.stack(losses)).cpu()
        bad = (~finite.all(0)).nonzero().flatten().tolist()
        for model in bad:  # finite (step, model)
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

    def _evaluate_and_retire(self) -> None:
        """Record metrics, keep due checkpoints, and let go of the models that are done."""
        seeds = [run.spec.data_seed for run in self.runs]
        rows = self.learner.evaluate(self.parameters.views, seeds, self.config.eval_examples)
        bad = [model for model, row in enumerate(rows) if not math.isfinite(loss_of(row))]
        for model in bad:
            self._fail(model, self.step)
        self.drop_models(bad)
        rows = [row for model, row in enumerate(rows) if model not in bad]
        before = [self._counted(run) for run in self.runs]
        for model, (run, row) in enumerate(zip(self.runs, rows, strict=True)):
            run.record({"step": self.step, **row})
            if self.step in self.kept:
                run.keep_checkpoint(self.step, self.parameters.weights(model))
        done = [model for model, row in enumerate(rows) if self._stops(model, before[model], row)]
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
        """Return whether this evaluation is the last of a model."""
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


# --- dropout --------------------------------------------------------------------------------------
def dropout(
    tensor: Float[Tensor, "model ..."], rate: float, generators: Sequence[torch.Generator]
) -> Float[Tensor, "model ..."]:
    """Set a share `rate` of the entries to zero and scale the others up by 1 / (1 - rate).

    The mask of a model is the one that it would draw alone.
    """
    mask = torch.stack([_draw_mask(1 - rate, tensor[0], generator) for generator in generators])
    return tensor * mask.to(tensor.dtype).div_(1 - rate)


def _draw_mask(keep: float, like: Tensor, generator: torch.Generator) -> Bool[Tensor, " ..."]:
    """True with probability `keep` to within 2⁻¹⁷; each 64-bit number decides four entries."""
    drawn = torch.empty(-(-like.numel() // 4), dtype=torch.int64, device=like.device).random_(
        -(2**63), None, generator=generator
    )
    return (drawn.view(torch.int16)[: like.numel()] < round(keep * 2**16) - 2**15).view(like.shape)
