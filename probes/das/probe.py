"""Distributed alignment search: is a causal variable of the task held by a subspace of the model's
activations?
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils import parametrize

from mechint import figures
from mechint.config import setting
from mechint.counterfactuals import Pairs, choose_variable, draw
from mechint.errors import MechintError, ParameterError
from mechint.interventions import (
    RecordedForward,
    ResidSite,
    detached_weights,
    resumes,
    select_positions,
)
from mechint.interventions.resume import resume_functional
from mechint.models import forward
from mechint.probe import Need, Probe
from mechint.results import Null, ProbeResult, Table
from mechint.task import IGNORE, Task, Variable

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject

ADDED = {"hook_embed": ResidSite(0), "hook_pos_embed": ResidSite(0)}
"""Activations outside the blocks that are added to the residual stream, and where."""


def _place(hook: str) -> tuple[int, ResidSite | None]:
    """Block that holds the hook, and the point of the residual stream the activation is or is added
    to (None: inside a layer).
    """
    if hook in ADDED:
        return 0, ADDED[hook]
    _, number, name = hook.split(".", 2)
    block = int(number)
    points = {
        "hook_resid_pre": ResidSite(block),
        "hook_resid_mid": ResidSite.mid(block),
        "hook_resid_post": ResidSite(block + 1),
    }
    return block, (
        points | {"hook_attn_out": ResidSite.mid(block), "hook_mlp_out": ResidSite(block + 1)}
    ).get(name)


def swap(subspace: Tensor, base: Tensor, source: Tensor) -> Tensor:
    """base (..., d) with its coordinates in `subspace` (d, k), orthonormal columns, taken from
    source (..., d).
    """
    return base + (source - base) @ subspace @ subspace.T


class Site:
    """Where pairs are interchanged: all that does not depend on the subspace, computed once and
    kept.

    base, source (pair, width): the activations at `hook` and `positions` (pair,), `width` that of
    all heads together; rest (pair, pos, d_model): the residual stream there, less base where base
    is part of it. A replaced base runs on only from here.
    """

    def __init__(self, subject: Subject, pairs: Pairs, hook: str, pos: int | None) -> None:
        subject.check_hook(hook)
        if hook.endswith(("hook_pattern", "hook_attn_scores", "hook_scale", "hook_result")) or not (
            hook in ADDED or hook.startswith("blocks.")
        ):
            raise ParameterError(
                f"das: hook={hook!r}: expected an activation vector at every position, inside "
                "a block"
            )
        n_ctx = pairs.base.shape[1]
        if pos is not None and not -n_ctx <= pos < n_ctx:
            raise ParameterError(f"das: pos={pos}: the inputs have positions 0 to {n_ctx - 1}")
        self.p, self.config, self.pairs, self.hook = (
            detached_weights(subject.model),
            subject.model.config,
            pairs,
            hook,
        )
        block, self.point = _place(hook)
        self.start = ResidSite(block) if self.point is None else self.point
        self.positions = pairs.reads if pos is None else torch.full_like(pairs.reads, pos % n_ctx)
        source_positions = pairs.source_reads if pos is None else self.positions
        base, source, residual = [], [], []
        for rows in torch.arange(len(pairs), device=subject.device).split(subject.chunk):
            stream = RecordedForward(
                subject.model, pairs.base[rows], pairs.reads[rows], [hook], until=block
            )
            base.append(select_positions(stream.activations[hook], self.positions[rows]).flatten(1))
            residual.append(stream.residual(self.start))
            stream = RecordedForward(
                subject.model, pairs.source[rows], pairs.source_reads[rows], [hook], until=block
            )
            source.append(
                select_positions(stream.activations[hook], source_positions[rows]).flatten(1)
            )
        self.base, self.source, self.rest = torch.cat(base), torch.cat(source), torch.cat(residual)
        if self.point is not None:
            self.rest[torch.arange(len(pairs), device=subject.device), self.positions] -= self.base
        if not bool(torch.isfinite(self.base).all() and torch.isfinite(self.source).all()):
            raise MechintError(f"das: activation {hook} of {subject.describe()} is not finite")
        self.width = self.base.shape[-1]

    def logits(self, replaced: Tensor, rows: Tensor) -> Tensor:
        """Logits (row, d_vocab_out) of the base inputs `rows` with their activation replaced by
        (row, width).
        """
        x, reads, index = (
            self.rest[rows],
            self.pairs.reads[rows],
            (torch.arange(len(rows), device=rows.device), self.positions[rows]),
        )
        if self.point is not None:
            return resume_functional(
                self.p,
                self.config,
                x.index_put(index, replaced, accumulate=True),
                self.start,
                reads,
            )

        def override(name: str, tensor: Tensor) -> Tensor:
            return (
                tensor.index_put(index, replaced.view(-1, *tensor.shape[2:]))
                if name == self.hook
                else tensor
            )

        x = forward.block(self.p, self.config, self.start.layer, x, None, override, forward.no_hook)
        return resume_functional(self.p, self.config, x, ResidSite(self.start.layer + 1), reads)


def fit(
    site: Site, task: Task, dimension: int, *, steps: int, batch_size: int, lr: float, seed: int
) -> tuple[Tensor, list[float]]:
    """The subspace (width, dimension), orthonormal columns, whose interchange best gives the
    labels; the loss of every step.

    Minimises the cross-entropy of the labels (Geiger et al. 2024, Eq. 4) with Adam over pyvene's
    rotation, the learning rate falling linearly to zero. Bit-equal for equal seeds.
    """
    if dimension > site.width:
        raise ParameterError(
            f"das: dimension {dimension} is above the width {site.width} of {site.hook}"
        )
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        rotation = _rotation(site.width, dimension).to(site.base)
        optimiser = torch.optim.Adam(rotation.parameters(), lr=lr, fused=True)
        schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, total_iters=steps)
        losses = []
        for _ in range(steps):
            rows = torch.randint(len(site.pairs), (batch_size,), generator=generator).to(
                site.base.device
            )
            optimiser.zero_grad()
            with parametrize.cached():  # the rotation is read three times a step and made once
                loss = _loss(
                    task,
                    site.logits(rotation(site.base[rows], site.source[rows]), rows),
                    site.pairs.labels[rows],
                )
                loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.detach())
        return rotation.rotate_layer.weight.detach().clone(), torch.stack(losses).tolist()


def _rotation(width: int, dimension: int) -> Any:
    """pyvene's trainable rotation; what its import says to stdout and as warnings does not concern
    our users.
    """
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        from pyvene import LowRankRotatedSpaceIntervention
    return LowRankRotatedSpaceIntervention(embed_dim=width, low_rank_dimension=dimension)


def _loss(task: Task, logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over outputs of the cross-entropy of labels (row, output)."""
    parts = [
        (logits[:, columns], labels[:, output])
        for output, columns in enumerate(task.output_slices.values())
    ]
    return torch.stack(
        [
            F.cross_entropy(part, label, ignore_index=IGNORE)
            for part, label in parts
            if bool((label != IGNORE).any())
        ]
    ).mean()


def interchange_accuracy(subject: Subject, site: Site, subspace: Tensor | None) -> Tensor:
    """(pair, output) float: 1 where the answer under interchange is the label, NaN where none is
    read; None swaps all.
    """
    parts = []
    with torch.no_grad():
        for rows in torch.arange(len(site.pairs), device=subject.device).split(subject.chunk):
            replaced = (
                site.source[rows]
                if subspace is None
                else swap(subspace, site.base[rows], site.source[rows])
            )
            labels = site.pairs.labels[rows]
            parts.append(
                subject.correct(site.logits(replaced, rows), labels)
                .float()
                .masked_fill(labels == IGNORE, math.nan)
            )
    return torch.cat(parts)


def interchange(
    subject: Subject,
    subspace: Any,
    base: Tensor,
    source: Tensor,
    *,
    hook: str,
    pos: int,
    read: int | None = None,
) -> Tensor:
    """Logits (pair, d_vocab_out) at `read` of the inputs `base` with a found subspace taken from
    `source`.

    Args:
        subspace: (width, dimension), orthonormal columns, e.g. ``result.arrays["subspace"]``.
        base, source: tokens (pair, pos).
        hook, pos: where the subspace was found. read: the subject's read position when None.
    """
    reads = torch.full(
        (len(base),), subject.data.reads[-1] if read is None else read, device=subject.device
    )
    none = torch.zeros(len(base), 0, dtype=torch.int64, device=subject.device)
    site = Site(
        subject,
        Pairs(base.to(subject.device), source.to(subject.device), reads, reads, none, none, none),
        hook,
        pos,
    )
    with torch.no_grad():
        return site.logits(
            swap(torch.as_tensor(subspace).to(site.base), site.base, site.source),
            torch.arange(len(base), device=subject.device),
        )


def random_subspace(width: int, dimension: int, generator: torch.Generator) -> Tensor:
    """(width, dimension) orthonormal columns, uniformly distributed."""
    return torch.linalg.qr(torch.randn(width, dimension, generator=generator, dtype=torch.float64))[
        0
    ]


@dataclass(frozen=True)
class Cell:
    """One subspace of the sweep and what its interchange does; all accuracies on held-out pairs but
    `trained`.
    """

    hook: str
    dimension: int
    subspace: Tensor
    losses: list[float]
    trained: float
    correct: Tensor
    full_swap: float
    random: float

    @property
    def iia(self) -> float:
        return mean(self.correct)


def mean(correct: Tensor) -> float:
    return float(correct.double().nanmean())


@dataclass(frozen=True)
class DAS(Probe):
    """Which subspace of the activations holds a causal variable, and how often does swapping it
    swap the answer?

    Interchange intervention accuracy (IIA) is the share of held-out (base, source) pairs on which
    the model, run on the base with the coordinates of its activation in the subspace taken from the
    source, answers as the task's algorithm does when the variable is taken from the source:  h ←
    h_b + R Rᵀ (h_s − h_b),  R (width, dimension) with orthonormal columns, trained by gradient
    descent. It stands beside random subspaces of the same dimension (the null), the swap of the
    whole activation (an upper bound that no low dimension need reach) and a subspace trained the
    same way in the untrained model (what the search finds where there is nothing to find).

    The variable counts as found at `threshold` when both nulls are beaten at p ≤ 0.01.

    Cost: two forwards a pair once a site; then `steps` batches forward and backward from the site
    on, for every layer and dimension and once in the untrained model. Memory: the activations of
    all pairs at one site.
    """

    name: ClassVar[str] = "das"
    source: ClassVar[str] = (
        "Geiger et al. 2024, Finding Alignments Between Interpretable Causal Variables and "
        "Distributed Neural Representations"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.VARIABLES, Need.ANSWERS, Need.RESUME)
    intervenes: ClassVar[bool] = True

    variable: str | None = setting(None, "causal variable of the task; its first one when none")
    hook: str = setting(
        "hook_resid_pre",
        "hook within a block, swept over layers; or a whole name such as blocks.0.mlp.hook_post",
    )
    layers: tuple[int, ...] | None = setting(None, "blocks swept; all when none", low=0)
    pos: int | None = setting(
        None, "position; when none, the variable's own if it has one, else where the answer is read"
    )
    dimensions: tuple[int, ...] = setting((1,), "dimensions of the subspace swept", low=1)
    steps: int = setting(200, "training steps", low=1)
    batch_size: int = setting(256, "pairs a step", low=1)
    lr: float = setting(0.02, "learning rate at the start", low=0)
    pairs: int = setting(2048, "pairs trained on", low=2)
    held_out: int = setting(1024, "other pairs, on which IIA is measured", low=2)
    only_correct: bool = setting(
        True, "only pairs whose base and source the model answers correctly"
    )
    threshold: float = setting(0.9, "IIA from which the variable counts as found", low=0, high=1)
    null_samples: int = setting(199, "random subspaces", low=1)

    def unmet(self, subject: Subject) -> str | None:
        return None if resumes(subject.model) else "its forward cannot be resumed"

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        searched = {"variable": "rank of a", "hook": "hook_embed", "null_samples": 99}
        order = Trial(
            "order direction",
            library.order,
            library.untrained(library.order) | library.lookup("comparison", n=20),
            lambda result, plant: library.angle_between(
                plant.truth["subspaces"]["hook_embed"].numpy(), result.arrays["subspace"]
            ),
            "degrees between direction found and planted",
            tolerance=5.0,
            settings={**searched, "steps": 400, "pairs": 1024, "held_out": 256},
            control_settings={
                "only_correct": False,
                "steps": 60,
                "batch_size": 64,
                "pairs": 128,
                "held_out": 128,
            },
        )
        small = {"steps": 10, "pairs": 24, "held_out": 12, "null_samples": 9}
        return Calibration((order,), {**small, "only_correct": False})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        assert subject.task is not None
        variable = choose_variable(subject.task, self.variable)
        hooks, pos = (
            [subject.check_hook(name) for name in self._hooks(subject)],
            self._position(variable),
        )
        pairs = draw(
            subject, variable, self.pairs + self.held_out, seed, only_correct=self.only_correct
        )
        cells = [cell for hook in hooks for cell in self._cells(subject, pairs, hook, pos, seed)]
        best = max(cells, key=lambda cell: cell.trained)
        null = self._null(subject, best, pairs, pos, seed)
        changed = pairs[self.pairs :].changed
        metrics = {
            "iia": best.iia,
            "iia_changed": mean(best.correct[changed]),
            "iia_random": null["iia"].mean,
            "iia_full_swap": best.full_swap,
            "iia_untrained": best.iia - null["iia_above_untrained"].observed,
            "found": best.iia >= self.threshold
            and all(entry.p_value <= 0.01 for entry in null.values()),
            "hook": best.hook,
            "pos": "read" if pos is None else pos,
            "dimension": best.dimension,
            "variable": variable.name,
            "pairs_held_out": self.held_out,
        }
        if len(subject.task.outputs) > 1:
            outputs = [output.name for output in subject.task.outputs]
            metrics["iia_by_output"] = {
                name: mean(best.correct[:, i])
                for i, name in enumerate(outputs)
                if not bool(best.correct[:, i].isnan().all())
            }
        return self.result(
            metrics=metrics,
            finding=_finding(metrics, null["iia"]),
            null=null,
            tables={"sweep": _table(cells)},
            arrays={"subspace": best.subspace.cpu().numpy(), "loss": np.array(best.losses)},
            figures={
                "sweep": _sweep_figure(cells, null["iia"], metrics),
                "loss": _loss_figure(best),
            },
        )

    def _hooks(self, subject: Subject) -> list[str]:
        if self.hook in ADDED or self.hook.startswith("blocks."):
            return [self.hook]
        layers = range(subject.n_layers) if self.layers is None else self.layers
        return [f"blocks.{layer}.{self.hook}" for layer in layers]

    def _position(self, variable: Variable) -> int | None:
        if self.pos is not None:
            return self.pos
        return variable.positions[0] if len(variable.positions) == 1 else None

    def _cells(
        self, subject: Subject, pairs: Pairs, hook: str, pos: int | None, seed: int
    ) -> list[Cell]:
        """The subspaces of every dimension at one hook."""
        assert subject.task is not None
        train, test = (
            Site(subject, part, hook, pos) for part in (pairs[: self.pairs], pairs[self.pairs :])
        )
        full_swap = mean(interchange_accuracy(subject, test, None))
        cells = []
        for dimension in self.dimensions:
            subspace, losses = fit(
                train,
                subject.task,
                dimension,
                steps=self.steps,
                batch_size=self.batch_size,
                lr=self.lr,
                seed=seed,
            )
            trained, correct = (
                interchange_accuracy(subject, site, subspace) for site in (train, test)
            )
            random = float(np.mean(_random(subject, test, dimension, 5, seed)))
            cells.append(
                Cell(hook, dimension, subspace, losses, mean(trained), correct, full_swap, random)
            )
        return cells

    def _null(
        self, subject: Subject, best: Cell, pairs: Pairs, pos: int | None, seed: int
    ) -> dict[str, Null]:
        test = Site(subject, pairs[self.pairs :], best.hook, pos)
        how = (
            f"random subspaces of dimension {best.dimension} at {best.hook}, the same held-out "
            "pairs"
        )
        untrained = subject.untrained(seed)
        (control,) = replace(self, dimensions=(best.dimension,))._cells(
            untrained, pairs, best.hook, pos, seed
        )
        return {
            "iia": Null.sampled(
                "iia",
                best.iia,
                _random(subject, test, best.dimension, self.null_samples, seed),
                how,
            ),
            "iia_above_untrained": _difference(best.iia, control.iia, len(pairs) - self.pairs),
        }


def _random(subject: Subject, site: Site, dimension: int, n: int, seed: int) -> list[float]:
    """IIA of `n` random subspaces."""
    generator = torch.Generator().manual_seed(seed)
    subspaces = [random_subspace(site.width, dimension, generator).to(site.base) for _ in range(n)]
    return [mean(interchange_accuracy(subject, site, subspace)) for subspace in subspaces]


def _difference(observed: float, control: float, n: int) -> Null:
    """Two shares of the same `n` pairs against each other, as if they were independent (which is on
    the safe side).
    """
    share = (observed + control) / 2
    std = math.sqrt(max(2 * share * (1 - share), 1 / n) / n)
    p_value = 0.5 * math.erfc((observed - control) / std / math.sqrt(2))
    how = (
        "the same search in the untrained model, normal approximation of the difference of two "
        "shares"
    )
    return Null("iia_above_untrained", observed - control, 0.0, std, p_value, how)


def _finding(metrics: dict[str, Any], null: Null) -> str:
    verdict = "holds" if metrics["found"] else "does not hold"
    return (
        f"A {metrics['dimension']}-dimensional subspace of {metrics['hook']} (position "
        f"{metrics['pos']}) {verdict} {metrics['variable']}: swapping it "
        f"gives the counterfactual answer on {metrics['iia']:.1%} of "
        f"{metrics['pairs_held_out']} held-out pairs; random subspaces "
        f"{metrics['iia_random']:.1%} "
        f"(p = {null.p_value:.2g}), the whole activation {metrics['iia_full_swap']:.1%}, the "
        f"same search in the untrained model {metrics['iia_untrained']:.1%}."
    )


def _table(cells: Sequence[Cell]) -> Table:
    columns = {
        "hook": [cell.hook for cell in cells],
        "dimension": [cell.dimension for cell in cells],
        "iia": [cell.iia for cell in cells],
        "iia_train": [cell.trained for cell in cells],
        "iia_random": [cell.random for cell in cells],
        "iia_full_swap": [cell.full_swap for cell in cells],
    }
    units = {name: "share of pairs" for name in columns if name.startswith("iia")}
    return Table(
        columns,
        (
            "One row a site and dimension; iia on held-out pairs, iia_random the mean of 5 random "
            "subspaces."
        ),
        units,
    )


def _sweep_figure(cells: Sequence[Cell], null: Null, metrics: dict[str, Any]) -> Any:
    names = [f"{cell.hook} · {cell.dimension}-D" for cell in cells]
    series = {
        "found subspace": [cell.iia for cell in cells],
        "random subspace": [cell.random for cell in cells],
        "full swap": [cell.full_swap for cell in cells],
    }
    return figures.bars(
        names,
        series,
        title=f"Interchange of {metrics['variable']}",
        x_title="site and dimension of the subspace",
        y_title="interchange intervention accuracy (0–1)",
        levels={"untrained model": metrics["iia_untrained"]},
        null=(null.mean, null.mean - 2 * null.std, null.mean + 2 * null.std),
        caption=(
            "How often swapping the subspace swaps the answer. A variable held by a subspace "
            "scores near the full swap, far above random subspaces."
        ),
    )


def _loss_figure(best: Cell) -> Any:
    return figures.lines(
        list(range(1, len(best.losses) + 1)),
        {"training pairs": best.losses},
        title=f"Search at {best.hook}",
        x_title="step",
        y_title="cross-entropy of the counterfactual label (nats)",
        caption="The search for the best subspace; it has settled where the curve is flat.",
    )
