"""Training of models that hold each causal variable of their task in a place of our choice, by
strict interchange-intervention training (Geiger et al. 2022; Gupta et al. 2024, InterpBench).

    plant = enforce(task, {"pair_0": "L0H1 @ 4", "pair_1": "L0H0 @ 3"}, config, seed=0)
    plant.truth["verified"], plant.truth["interchange"]

The loss is the cross-entropy of the task; of interchanges, in which the sites of some variables
carry what they carry for another input and the answer is that of the task's program with that
input's values; and of resampling, in which other heads and MLPs up to the last site carry what they
carry for another input, the sites keep theirs, and the answer stays. The variables together
determine the answers, so that an interchange of all of them asks for the other input's answer,
whatever all else says.

What was enforced is truth only if it holds afterwards: `mechint.planted.enforced.verify`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mechint.config import ModelConfig, TrainConfig
from mechint.errors import ParameterError
from mechint.interventions import Site
from mechint.models.layers import Hook, no_hook
from mechint.models.transformer import HookedTransformer
from mechint.planted.assembly import Planted
from mechint.planted.enforced import (
    POOL,
    Sites,
    check_alignment,
    exchange,
    masks_of,
    outside,
    pairs_of,
    program_given,
    record,
    sample_all,
    verify,
)
from mechint.subject import Subject
from mechint.task import IGNORE, Batch, Task, rng
from mechint.training.api import raise_interrupted
from mechint.training.learners import TokenLearner
from mechint.training.run import Run, Spec
from mechint.training.trainer import Ensemble

ENOUGH = 0.998
"""Share of right answers, under every intervention, at which training stops."""
CHECKED, EVERY = 512, 50
"""Pairs of a check while training, and steps between checks."""


def enforce(
    task: Task,
    alignment: Mapping[str, Site | str],
    config: ModelConfig,
    seed: int = 0,
    **chosen: Any,
) -> Planted:
    """Train a model of `task` to hold each variable at its site, and nothing elsewhere.

    Args:
        alignment: variable → site, such as "L0H1 @ 4", "L0 MLP @ answer" or "L1 resid_pre @ 2".
            Together the variables must determine every answer.
        config: of the model; vocabulary, positions and classes are the task's.
        seed: of the initial weights.
        chosen: keyword arguments of `enforce_each`.

    >>> import tasks
    >>> config = ModelConfig(d_model=16, n_heads=2, n_ctx=3, d_vocab=4, d_vocab_out=3)
    >>> plant = enforce(tasks.modular_arithmetic(p=3), {"answer": "L0 MLP @ 2"}, config, steps=1)
    >>> plant.truth["alignment"], plant.truth["verified"]
    ({'answer': 'L0 MLP @ 2'}, False)
    """
    return enforce_each(task, [alignment], config, [seed], **chosen)[0]


def enforce_each(
    task: Task,
    alignments: Sequence[Mapping[str, Site | str]],
    config: ModelConfig,
    seeds: Sequence[int],
    *,
    natural: bool = False,
    steps: int = 2000,
    batch_size: int = 64,
    lr: float = 3e-3,
    pairs: int = 4096,
) -> list[Planted]:
    """Train a model for every alignment and seed, all as one ensemble: what becomes of one does not
    depend on the others but for rounding. Cost: two forwards and a backward of `2 * batch_size`
    examples per step.

    Args:
        alignments: of the same variables, at sites of their own.
        natural: train on the task alone; with the same seed, the twin that nobody constrained.
        steps: at most; a model leaves where what is asked for holds.
        pairs: that the alignment is verified on, where the task has more.

    Returns:
        The models, with what `verify` finds, "alignment" (variable → site), "seed", "steps" and
        "natural" as their truth, which is one only where "verified" is True. Training and
        verification draw from all splits.

    Raises:
        UnknownNameError: a variable that the task lacks. ParameterError: a site that cannot hold
            its variable, or variables that do not determine the answers, or are not the same.
    """
    every = [check_alignment(task, config, alignment) for alignment in alignments]
    if any(sorted(sites) != sorted(every[0]) for sites in every):
        raise ParameterError(f"alignments of {task.name}: expected the same variables in each")
    train = TrainConfig(
        steps=steps,
        batch_size=batch_size,
        lr=lr,
        weight_decay=0.01,
        warmup=50,
        schedule="linear",
        min_lr=lr / 10,
        clip=1.0,
        evaluate_every=EVERY,
        stop_accuracy=ENOUGH,
        checkpoints="last",
        data_seed=0,
    )
    runs = [Run(Spec(task, config, dataclasses.replace(train, seed=seed))) for seed in seeds]
    judged, device = pairs_of(task, pairs), torch.device("cpu")
    learner = StrictLearner(every, task, config, train, judged, natural)
    Ensemble(runs, device, learner=learner).train()
    raise_interrupted(runs)
    plants = list[Planted]()
    for run, sites in zip(runs, every, strict=True):
        model = HookedTransformer(config, seed=run.spec.train.seed)
        model.load_weights(run.weights or model.weights())
        truth = {
            "mechanism": "enforced by training",
            "alignment": {name: str(site) for name, site in sites.items()},
            **(run.final.get("truth") or verify(model, task, sites, *judged)),
            "seed": run.spec.train.seed,
            "steps": run.step,
            "natural": natural,
        }
        provenance = {"metrics": {"truth": truth}}
        plants.append(Planted(Subject(model.eval(), task, provenance=provenance), truth))
    return plants


class StrictLearner(TokenLearner):
    """Models of one task and shape, each with the sites of its own at which it is to hold the
    variables; `natural` ones learn the task alone.
    """

    def __init__(
        self,
        every: Sequence[Sites],
        task: Task,
        config: ModelConfig,
        train: TrainConfig,
        judged: tuple[Batch, Batch],
        natural: bool,
    ) -> None:
        n = len(every)
        super().__init__([config] * n, [task] * n, train, torch.device("cpu"))
        self.task, self.config, self.natural = task, config, natural
        self.check = sample_all(task, CHECKED, 1), sample_all(task, CHECKED, 2)
        self.judged, self.names, self.step = judged, sorted(every[0]), 0
        self._hold(every)

    def _hold(self, every: Sequence[Sites]) -> None:
        self.every = list(every)
        self.outside = masks_of(self.config, [[[], outside(self.config, one)] for one in every])
        self.kept = masks_of(self.config, [[[], [*one.values()]] for one in every])

    def keep(self, index: Sequence[int]) -> None:
        """Drop all models but those at `index`."""
        super().keep(index)
        self._hold([self.every[i] for i in index])

    def stream(self, task: Task, seed: int, batch_size: int | None, start: int) -> Iterator[Batch]:
        """Bases and sources, one behind the other, drawn from all splits."""
        assert batch_size is not None and not start
        draw, pool = rng("enforced", task.name), sample_all(task, POOL, 0)
        while True:
            yield pool[torch.from_numpy(draw.integers(0, len(pool), 2 * batch_size))]

    def prepare(self, batches: list[Batch]) -> Any:
        """The bases and sources that all models see, the variables that are exchanged, and what of
        the other components is resampled, by hook.
        """
        self.step += 1
        draw = rng("enforced", self.task.name, self.step)
        swapped = draw.permutation(self.names)[: draw.integers(1, len(self.names) + 1)].tolist()
        share = draw.choice([0.1, 0.5, 1.0])
        resampled = {
            name: mask & torch.from_numpy(rng(name, self.step).random(mask.shape[1:]) < share)
            for name, mask in self.outside.items()
        }
        return batches[0], swapped, resampled

    def losses(
        self, weights: Mapping[str, Tensor], prepared: Any, drop: Hook = no_hook
    ) -> Float[Tensor, " model"]:
        """(model,) cross-entropies: of bases and sources, and on the bases with an interchange of
        the variables and with what is outside resampled, in part. Of natural ones: on the bases.
        """
        both, swapped, resampled = prepared
        n = len(both) // 2
        base, source = both[:n], both[n:]
        if self.natural:
            return self._each(record(weights, self.config, base.tokens, ())[0], base.targets)
        logits, kept = record(weights, self.config, both.tokens, self.outside | self.kept)
        own, theirs = (
            {k: v[:, part] for k, v in kept.items()} for part in (slice(n), slice(n, None))
        )
        moved = masks_of(self.config, [[[one[name] for name in swapped], []] for one in self.every])
        edits = (theirs, moved), (theirs, resampled), (own, self.kept)
        after = exchange(weights, self.config, base.tokens, *edits)
        labels = self.task.targets(base.tokens, program_given(self.task, source, swapped))
        wanted = torch.cat([labels, base.targets])
        return self._each(logits, both.targets) + 2 * self._each(after.flatten(1, 2), wanted)

    def _each(
        self, logits: Float[Tensor, "model example pos d_vocab_out"], targets: Tensor
    ) -> Float[Tensor, " model"]:
        total = logits.new_zeros(len(logits))
        for i, part in enumerate(self.task.output_slices.values()):
            wanted = targets[..., i].expand(len(logits), -1, -1)
            losses = F.cross_entropy(
                logits[..., part].flatten(0, 2),
                wanted.flatten(),
                ignore_index=IGNORE,
                reduction="none",
            )
            total = total + losses.view(len(logits), -1).sum(1) / (targets[..., i] != IGNORE).sum()
        return total

    def evaluate(
        self, weights: Mapping[str, Tensor], seeds: Sequence[int], n: int
    ) -> list[dict[str, Any]]:
        """Of every model the zero-one loss; as accuracy the smallest share of answers that are as
        asked for under an intervention, the accuracy of natural ones; and where that is enough on a
        few pairs, the whole truth.
        """
        asked, rows = "accuracy" if self.natural else "least", list[dict[str, Any]]()
        model = HookedTransformer(self.config)
        for place, sites in enumerate(self.every):
            model.load_weights({name: value[place].detach() for name, value in weights.items()})
            found = verify(model, self.task, sites, *self.check, one_by_one=False)
            row: dict[str, Any] = {"test.loss": 1 - found["accuracy"]}
            if self.step and found[asked] > ENOUGH:
                found = row["truth"] = verify(model, self.task, sites, *self.judged)
            rows.append(row | {"test.accuracy": found[asked]})
        return rows
