"""The DAS probe: what it searches, what it holds a subspace against, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from mechint.config import setting
from mechint.counterfactuals import choose_variable
from mechint.pairs import Pairs
from mechint.probe import Need, Probe, Report
from mechint.results import ProbeResult
from mechint.task import Variable
from probes._das.comparison import compare_with_controls
from probes._das.drawing import Drawn, minimal_pairs, search_pairs
from probes._das.fit import fit_jointly
from probes._das.search import (
    Cell,
    Fitting,
    Place,
    best_cell,
    cells,
    default_places,
    moved_places,
)
from probes._das.swap import SwapSite, interchange_accuracy, mean
from probes._das.views import loss_figure, say, sweep_figure, sweep_table

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject


@dataclass(frozen=True)
class DAS(Probe):
    """Which subspace of the activations holds a causal variable, and how often does swapping it
    swap the answer?

    Interchange intervention accuracy (IIA) is the share of held-out (base, source) pairs on which
    the model, run on the base with the coordinates of its activation in the subspace taken from the
    source, answers as the task's algorithm does when the variable is taken from the source:  h ←
    h_b + R Rᵀ (h_s − h_b),  R (width, dimension) with orthonormal columns, trained by gradient
    descent. Without a hook it is searched for at the variable's positions and at the answer, at
    every depth, in every one of `dimensions`, and, where it has no position of its own, at other
    positions where the swap of the whole residual stream gives the answers. The smallest subspace
    that reaches `threshold` on the training pairs with two standard errors to spare, or as much as
    any, is held against controls; of all others only what they do is told.

    Held-out pairs are no pairs that were trained on. Of a task their inputs may stand in training
    pairs, too (`inputs_unseen`: the share of held-out pairs neither of whose inputs does, 0 of a
    small task), so that IIA is of the task's inputs, not of others. Where examples are a sample of
    what is meant, as prompts are, a third of them is held out, each with its counterfactuals, and
    no training pair has any of these; a counterfactual is across the line only where they join too
    many prompts (`counterfactuals_apart`), which the sentence says. A template that prompts share
    is not held out. The variable is the prompt then: no two share its value, and neither
    `most_input` nor `answers_kept` is asked.

    A subspace holds the variable when its IIA reaches `threshold` and beats, at p ≤ 0.01, random
    subspaces of the same dimension, random directions whose change has the same norm, the same
    search in the untrained model, and the same search for arbitrary labels (every value taken for
    another); when its coordinates follow the variable, not merely the inputs that the variable is
    computed from: the variance of the coordinates among inputs that share the value is at most
    `most_input` of their whole variance (where it is more, `iia_value_means` tells a subspace that
    carries the inputs from one that holds more than the variable: it swaps in the mean coordinates
    of all inputs with the source's value, which say nothing else of it); and when the swap of the
    whole activation, with a source that differs in the variable and in as little else as the task
    allows (any, where there is none such), reaches `threshold`, too. Beside it stand the directions
    of the mean differences and of a linear probe, pairs that share the value (whose swap must keep
    the answer), and the split by what reads the site: where the part in the row space of its
    readers does not do what the whole does, the subspace works through directions that the model
    does not use (Makelov et al. 2023).

    Cost: two forwards per pair once per site; then `steps` batches forward and backward from the
    site on, for every site and dimension, and twice for the controls. Memory: the activations of
    all pairs at one site.
    """

    name: ClassVar[str] = "das"
    source: ClassVar[str] = (
        "Geiger et al. 2024, Finding Alignments Between Interpretable Causal Variables and "
        "Distributed Neural Representations; Makelov et al. 2023, Is This the Subspace You Are "
        "Looking For?"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.VARIABLES, Need.ANSWERS, Need.RESIDUAL)
    intervenes: ClassVar[bool] = True

    variable: str | None = setting(None, "causal variable of the task; its first one when none")
    jointly: tuple[str, ...] = setting(
        (), "other variables that get columns of their own in the same basis, at the site found"
    )
    hook: str | None = setting(
        None,
        "hook within a block, tried at every layer, or a whole name such as "
        "blocks.0.mlp.hook_post; the residual stream at every depth when none",
    )
    layers: tuple[int, ...] | None = setting(None, "blocks tried; all when none", low=0)
    pos: int | None = setting(
        None,
        "position; when none, the variable's own if it has one, else that of the answer; without "
        "a hook both, or where the swap of the whole stream gives the answers",
    )
    dimensions: tuple[int, ...] = setting((1, 2, 4, 8, 16), "dimensions tried", low=1)
    steps: int = setting(200, "training steps", low=1)
    batch_size: int = setting(256, "pairs per step", low=1)
    lr: float = setting(0.02, "learning rate at the start", low=0)
    pairs: int = setting(2048, "pairs trained on", low=2)
    held_out: int = setting(
        1024, "other pairs, on which IIA is measured; of prompts, pairs of other prompts", low=2
    )
    only_correct: bool = setting(
        True, "only pairs whose base and source the model answers correctly"
    )
    threshold: float = setting(0.9, "IIA from which the variable counts as found", low=0, high=1)
    most_input: float = setting(
        0.5, "share of the coordinates' variance among inputs that share the value", low=0, high=1
    )
    null_samples: int = setting(199, "random subspaces", low=1)
    control_seeds: int = setting(
        3, "searches for arbitrary labels and in untrained models; the best of each counts", low=1
    )

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        order = Trial(
            "order direction",
            library.order,
            library.untrained(library.order)
            | library.lookup("comparison", n=library.ORDERED)
            | library.wrong_answers(library.order),
            lambda result, plant: library.angle_between(
                plant.truth["read"].numpy(), result.arrays["subspace"]
            ),
            "degrees between the direction found and the one that is read",
            # an answer changes only where the readouts of two of 20 numbers change places
            tolerance=15.0,
            settings={
                "variable": "rank of a",
                "hook": "hook_embed",
                "dimensions": (1,),
                "null_samples": 99,
                "control_seeds": 1,
                "lr": 0.05,
                "steps": 100,
                "batch_size": 64,
                "pairs": 512,
                "held_out": 64,
            },
            control_settings={
                "only_correct": False,
                "steps": 30,
                "batch_size": 64,
                "pairs": 64,
            },
        )
        small = {"steps": 10, "pairs": 24, "held_out": 12, "null_samples": 99}
        return Calibration((order,), {**small, "dimensions": (1, 2), "only_correct": False})

    # --- measuring --------------------------------------------------------------------------------
    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        assert subject.task is not None
        variable = choose_variable(subject.task, self.variable)
        places = self._places(subject, variable)
        drawn = self._draw(subject, variable, seed)
        test, options = drawn.test, (self.held_out, seed, self.only_correct)
        minimal = minimal_pairs(subject, variable, *options, drawn.fitted)
        searching = self.hook is None
        if searching and self.pos is None and not variable.positions and minimal is not None:
            places += moved_places(subject, minimal, self.threshold)
        fitting = Fitting(self.steps, self.batch_size, self.lr, seed)
        found = list(
            cells(
                subject,
                variable,
                drawn.train,
                test,
                places,
                self.dimensions,
                fitting,
                threshold=self.threshold,
                most_input=self.most_input,
                minimal=minimal,
                stop_below=self.threshold if searching else None,
            )
        )
        best = best_cell(found, self.threshold, self.most_input)
        report = Report(self, subject)
        self._describe(report, subject, variable, best, found, test)
        report.metric("inputs_unseen", drawn.unseen, unit="share of held-out pairs")
        if drawn.examples is not None:
            held = {"examples_held_out": drawn.examples, "counterfactuals_apart": drawn.apart}
            report.update(held)
        compare_with_controls(
            report,
            subject,
            variable,
            best,
            drawn,
            fitting,
            self.null_samples,
            self.control_seeds,
        )
        if self.jointly:
            self._jointly(report, subject, variable, best, fitting)
        report.table("sweep", sweep_table(found, self.threshold, self.most_input))
        report.array("subspace", best.subspace.cpu().numpy())
        report.array("loss", np.array(best.losses))
        report.figure("sweep", sweep_figure(found, report.nulls["iia"], report.metrics))
        report.figure("loss", loss_figure(best))
        say(report, best, found, self.threshold, self.most_input)
        return report.result()

    def _draw(self, subject: Subject, variable: Variable, seed: int) -> Drawn:
        return search_pairs(subject, variable, self.pairs, self.held_out, seed, self.only_correct)

    def _places(self, subject: Subject, variable: Variable) -> list[Place]:
        if self.hook is None:
            return default_places(subject, variable, self.pos)
        pos = self.pos
        if pos is None and len(variable.positions) == 1:
            pos = variable.positions[0]
        whole = self.hook in ("hook_embed", "hook_pos_embed") or self.hook.startswith("blocks.")
        layers = range(subject.n_layers) if self.layers is None else self.layers
        hooks = [self.hook] if whole else [f"blocks.{layer}.{self.hook}" for layer in layers]
        return [(subject.check_hook(hook), pos) for hook in hooks]

    def _describe(
        self,
        report: Report,
        subject: Subject,
        variable: Variable,
        best: Cell,
        found: list[Cell],
        test: Pairs,
    ) -> None:
        assert subject.task is not None
        verdicts: dict[str, list[str]] = {}
        for one in sorted(found, key=lambda one: one.iia):
            verdicts.setdefault(one.where, []).append(one.verdict(self.threshold, self.most_input))
        report.update(
            {
                "iia": best.iia,
                "iia_changed": mean(best.correct[test.changed]),
                "iia_full_swap": best.full_swap,
                "iia_full_swap_minimal": best.full_swap_minimal,
                "input_share": best.input_share,
                "iia_value_means": best.value_means,
                "hook": best.hook,
                "pos": "answer" if best.place[1] is None else best.place[1],
                "dimension": best.dimension,
                "variable": variable.name,
                "held_at": [where for where, said in verdicts.items() if "holds" in said],
                "inputs_carried_at": [
                    where
                    for where, said in verdicts.items()
                    if "carries its inputs" in said and "holds" not in said
                ],
                "pairs_held_out": len(test),
            }
        )
        if len(subject.task.outputs) > 1:
            by_output = {
                output.name: mean(best.correct[:, i])
                for i, output in enumerate(subject.task.outputs)
                if not bool(best.correct[:, i].isnan().all())
            }
            report.metric("iia_by_output", by_output)

    def _jointly(
        self, report: Report, subject: Subject, variable: Variable, best: Cell, fitting: Fitting
    ) -> None:
        """Several variables in one basis at the site found: accuracy of each on its own columns."""
        assert subject.task is not None
        chosen = [variable, *(choose_variable(subject.task, name) for name in self.jointly)]
        drawn = [self._draw(subject, one, fitting.seed) for one in chosen]
        train = [SwapSite(subject, one.train, *best.place) for one in drawn]
        test = [SwapSite(subject, one.test, *best.place) for one in drawn]
        sizes = [best.dimension] * len(chosen)
        basis, _ = fit_jointly(train, subject.task, sizes, **fitting.options())
        columns = torch.split(basis, sizes, 1)
        accuracy = {
            one.name: mean(interchange_accuracy(subject, site, part))
            for one, site, part in zip(chosen, test, columns, strict=True)
        }
        report.metric("iia_jointly", accuracy)
        report.array("joint_basis", basis.cpu().numpy())
