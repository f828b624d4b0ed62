"""The DAS probe: what it searches, what it holds a subspace against, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim, first_of
from mechint.errors import counted
from mechint.interventions import Site
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, ProbeResult, Scope, Table
from mechint.probes._das import controls
from mechint.probes._das._swap import SwapSite, mean
from mechint.probes._das.search import (
    AMONG,
    MIN_EXAMPLES,
    Drawn,
    Place,
    SiteCell,
    candidate_places,
    choose_cell,
    component_places,
    default_places,
    draw_pairs,
    search,
)
from mechint.subject.counterfactuals import asked_answer, asked_of, choose_variable
from mechint.subject.pairs import told_apart
from mechint.task import IGNORE, Variable, choose_answer

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject

MOST_VARIABLES = 3
"""Variables that are asked about where none is named."""
UNDECODED = "its value is not decoded on other inputs, from the coordinates of any place tried"


@dataclass(frozen=True)
class Alignment:
    """The best subspace for one variable, and what it is held against.

    random: interchange accuracies of random subspaces; arbitrary, untrained: of the same search for
    arbitrary labels and in untrained models, one per seed.
    arbitrary_pairs: the fewest that one of those for arbitrary labels is of.
    """

    variable: Variable
    drawn: Drawn
    cells: Sequence[SiteCell]
    best: SiteCell
    random: Sequence[float]
    arbitrary: Sequence[float]
    untrained: Sequence[float]
    arbitrary_pairs: int
    readers: controls.ReaderSplit | None


@dataclass(frozen=True)
class DAS(Probe):
    """Which subspace of the activations holds a causal variable, and how often does swapping it
    swap the answer?

        h ← h_b + R Rᵀ (h_s − h_b),    R (width, k), RᵀR = 1, trained on pairs (base b, source s)

    IIA: share of held-out pairs on which the model, so changed, answers as the task does when the
    variable is taken from the source. Held against random subspaces and the same search for
    arbitrary labels and in untrained models. Not the variable: coordinates from which its value
    cannot be decoded on other inputs; a site whose whole swap fails; directions that nothing reads.
    """

    name: ClassVar[str] = "das"
    topic: ClassVar[str] = "causal variables"
    source: ClassVar[str] = (
        "Geiger et al. 2024, Finding Alignments Between Interpretable Causal Variables and "
        "Distributed Neural Representations; Makelov et al. 2023, Is This the Subspace You Are "
        "Looking For?"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.VARIABLES, Need.ANSWERS, Need.RESIDUAL)
    lead_rank: ClassVar[int] = 55
    intervenes: ClassVar[bool] = True

    variable: str | None = setting(
        None,
        f"causal variable of the task; when none, up to {MOST_VARIABLES} that several tokens "
        "determine, the answer last",
    )
    hook: str | None = setting(
        None,
        "hook within a block, tried at every layer, or a whole name such as "
        "blocks.0.mlp.hook_post; when none, the residual stream at every depth and, where no "
        "subspace of it holds the variable, the outputs of heads and MLPs",
    )
    layers: tuple[int, ...] | None = setting(None, "blocks tried; all when none", low=0)
    pos: int | None = setting(
        None,
        "position; when none, the variable's own if it has one, else that of the answer; without "
        "a hook both, or where the swap of the whole stream gives the answers",
    )
    embedding: bool = setting(
        False, "without a hook, the stream before the first block, too, at the variable's tokens"
    )
    dimensions: tuple[int, ...] = setting((1, 2, 4, 8, 16), "dimensions tried", low=1)
    among: str = setting(
        "subspaces",
        "what is searched: all subspaces, the first principal directions, units, by a trained "
        "mask (DBM), or subspaces of a trained size, the largest of `dimensions` at most",
        choices=AMONG,
    )
    steps: int = setting(200, "training steps", low=1)
    batch_size: int = setting(256, "pairs per step", low=1)
    lr: float = setting(0.02, "learning rate at the start", low=0)
    pairs: int = setting(2048, "pairs trained on, at most", low=2)
    held_out: int = setting(
        1024,
        "other pairs, at most, on which IIA is measured; of prompts, pairs of other prompts",
        low=2,
    )
    only_correct: bool = setting(
        True,
        "only pairs whose base, source and counterfactual input the model answers correctly",
    )
    threshold: float = setting(0.9, "IIA from which the variable counts as found", low=0, high=1)
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
        variables = choose_variables(subject, self.variable)
        alignments = [self.align(subject, variable, seed) for variable in variables]
        # those that hold their variable first, in the order of the variables
        alignments.sort(key=lambda alignment: alignment.best.verdict(self.threshold) != "variable")
        report = Report(self, subject)
        first, *others = alignments
        self._record(report, subject, first)
        nulls = [
            self._nulls(report, alignment, f".{alignment.variable.name}" * (place > 0))
            for place, alignment in enumerate(alignments)
        ]
        report.table("sweep", sweep_table(first.cells, self.threshold))
        if others:
            report.table("variables", variables_table(alignments, self.threshold))
        report.array("subspace", first.best.subspace.cpu().numpy())
        report.array("loss", np.array(first.best.losses))
        report.figure("sweep", sweep_figure(first))
        holding = list[Alignment]()
        for alignment, (names, few) in zip(alignments, nulls, strict=True):
            verdict = self._say(report, alignment, names, few)
            if verdict == "yes" and alignment.best.verdict(self.threshold) == "variable":
                holding.append(alignment)
        report.metric("variables_held", [alignment.variable.name for alignment in holding])
        if holding:
            report.lead(f"{_subspace(holding[0].best)} holds {holding[0].variable.name}.")
        return report.result()

    def align(self, subject: Subject, variable: Variable, seed: int) -> Alignment:
        """The best subspace for a variable, with its controls."""
        fitting = {name: getattr(self, name) for name in ("steps", "batch_size", "lr", "among")}
        fitting["seed"] = seed
        drawn = draw_pairs(subject, variable, self.pairs, self.held_out, seed, self.only_correct)
        places, every = self._places(subject, variable, drawn), self.hook is not None
        options: tuple[Any, ...] = (self.dimensions, self.threshold, fitting)
        cells = list(search(subject, variable, drawn, places, *options, every=every))
        best = self._choose(subject, variable, cells)
        stream = self.hook is None and self.pos is None
        if stream and best.verdict(self.threshold) != "variable" and drawn.minimal is not None:
            places = component_places(subject, variable, drawn.minimal, self.threshold)
            cells += search(subject, variable, drawn, places, *options)
            best = self._choose(subject, variable, cells)
        test = SwapSite(subject, drawn.test, *best.place)
        random = controls.random_accuracies(subject, test, best.dimension, self.null_samples, seed)
        # each control searches anew with its own seed; the best of each kind counts
        fits = [{**fitting, "seed": seed + i} for i in range(self.control_seeds)]
        arbitrary = [controls.arbitrary_accuracy(subject, variable, best, drawn, f) for f in fits]
        untrained = [controls.untrained_accuracy(subject, best, drawn, f) for f in fits]
        readers = controls.reader_split(subject, test, best.subspace)
        accuracies, pairs = zip(*arbitrary, strict=True)
        return Alignment(
            variable, drawn, cells, best, random, accuracies, untrained, min(pairs), readers
        )

    def _choose(self, subject: Subject, variable: Variable, cells: Sequence[SiteCell]) -> SiteCell:
        """The best subspace that need not hold the variable, where one holds it; else of all."""
        own = [cell for cell in cells if not _is_tautology(subject, variable, cell)]
        best = choose_cell(own or cells, self.threshold)
        holds = best.verdict(self.threshold) == "variable"
        return best if holds else choose_cell(cells, self.threshold)

    def _places(self, subject: Subject, variable: Variable, drawn: Drawn) -> list[Place]:
        if self.hook is None:
            places = default_places(subject, variable, self.pos, embedding=self.embedding)
            if self.pos is None and not variable.positions and drawn.minimal is not None:
                places += candidate_places(subject, drawn.minimal, self.threshold)
            return places
        pos = self.pos
        if pos is None and len(variable.positions) == 1:
            pos = variable.positions[0]
        whole = self.hook in ("hook_embed", "hook_pos_embed") or self.hook.startswith("blocks.")
        layers = range(subject.n_layers) if self.layers is None else self.layers
        hooks = [self.hook] if whole else [f"blocks.{layer}.{self.hook}" for layer in layers]
        return [(subject.check_hook(hook), pos) for hook in hooks]

    # --- what is recorded and said ----------------------------------------------------------------
    def _nulls(self, report: Report, alignment: Alignment, ending: str) -> tuple[list[str], str]:
        """Record what the variable's subspace is held against; the names of the nulls, and the
        reason for which not even a perfect subspace is told from a control, "" where one is.
        """
        best, examples, few = alignment.best, alignment.drawn.examples, ""
        how = f"random subspaces of {counted(best.dimension, 'dimension')} at {best.where}"
        report.metric(f"iia{ending}", best.iia, null=alignment.random, how=how)
        names = [f"iia{ending}"]
        # of a sample, pairs that share an example are no independent observations
        pairs = len(alignment.drawn.test) if examples is None else examples // 2
        arbitrary_pairs = min(pairs, alignment.arbitrary_pairs)
        for name, found, control, its_pairs in (
            ("arbitrary", alignment.arbitrary, "arbitrary labels", arbitrary_pairs),
            ("untrained", alignment.untrained, report.subject.control, pairs),
        ):
            report.metric(f"iia_{name}{ending}", max(found))
            how = f"the best of {len(found)} searches with {control}"
            how += f", corrected for {pairs} pairs that share no example" * (examples is not None)
            # the observed accuracy, and a perfect one: what not even that beats decides nothing
            null, perfect = (
                controls.difference(
                    f"iia_above_{name}{ending}",
                    accuracy,
                    max(found),
                    pairs,
                    how,
                    of_control=its_pairs,
                    few=bool(examples),
                )
                for accuracy in (best.iia, 1.0)
            )
            report.metric(null.metric, null.observed, null=null)
            names.append(null.metric)
            if perfect.p_value > self.significance:
                few = f"of {counted(pairs, 'held-out pair')} a search with {control} swaps "
                few += f"{max(found):.2f}: give more examples"
        return names, few

    def _record(self, report: Report, subject: Subject, alignment: Alignment) -> None:
        """The metrics of the variable that leads."""
        best, test, variable = alignment.best, alignment.drawn.test, alignment.variable
        groups, values = told_apart(variable, test)
        minimal = alignment.drawn.minimal
        holding = [cell for cell in alignment.cells if cell.verdict(self.threshold) == "variable"]
        held = [cell.where for cell in holding]
        report.update(
            {
                "variable": variable.name,
                "hook": best.place[0],
                "pos": "answer" if best.place[1] is None else best.place[1],
                "dimension": best.dimension,
                "verdict": best.verdict(self.threshold),
                "iia_changed": mean(best.correct[test.changed]),
                "iia_random": float(np.mean(alignment.random)),
                "iia_full_swap": best.full_swap,
                "iia_full_swap_minimal": best.full_swap_minimal,
                "input_share": best.input_share,
                "decoded": best.decoded,
                "held_at": [where for where in dict.fromkeys(held) if where != best.where],
                "values": values,
                "values_told_apart": groups,
                "pairs_held_out": len(test),
                "pairs_trained_on": len(alignment.drawn.train),
                "minimal_pairs": 0 if minimal is None else len(minimal),
            }
        )
        report.metric("inputs_unseen", alignment.drawn.unseen, unit="share of held-out pairs")
        if best.place[0].endswith("attn.hook_z"):
            report.metric("by_head", shares_of_heads(subject, best), unit="share of the subspace")
        for name, found in (("arbitrary", alignment.arbitrary), ("untrained", alignment.untrained)):
            report.metric(f"iia_{name}_by_seed", list(found))
        if alignment.readers is not None:
            split = alignment.readers
            report.update(
                {"null_space_share": split.null_share, "iia_row_space": split.row_accuracy}
            )
        if alignment.drawn.examples is not None:
            held = {"examples_held_out": alignment.drawn.examples}
            report.update({**held, "counterfactuals_apart": alignment.drawn.apart})

    def _say(self, report: Report, alignment: Alignment, nulls: Sequence[str], few: str) -> str:
        best, name, pairs = alignment.best, alignment.variable.name, len(alignment.drawn.test)
        verdict, examples = best.verdict(self.threshold), alignment.drawn.examples
        readers, alone = alignment.readers, self.hook is None
        swapped = f"share swapped of {counted(pairs, 'pair')} held out"
        # what no place decodes may be held in a code that nothing decodes but the model
        or_inputs = verdict == "inputs" and alone
        found = verdict == "variable" or or_inputs
        unused = found and readers and readers.falls_short(best.iia, self.threshold, pairs)
        denied = {
            "inputs": f"{best.where} carries the inputs of {name}, not {name} itself.",
            "inconsistent": f"Swapping all of {best.where} swaps {name} too seldom.",
        }.get(verdict, f"No subspace tried holds {name}.")
        unread = f"The subspace found swaps {name} through directions that nothing reads."
        effect = Effect.of(report.nulls[nulls[0]], "", swapped, "random subspaces")
        if verdict == "inconsistent":
            swapped = f"share swapped by all of it of pairs that differ in {name} alone"
            effect = Effect(best.full_swap_minimal, "", swapped)
        unclear, doubt = f"A subspace that holds {name} cannot be told.", few
        if examples is not None and examples < MIN_EXAMPLES:
            unclear = f"No subspace can be told to hold {name}."
            doubt = f"{examples} examples are held out, and pairs are told from chance by "
            doubt += f"{MIN_EXAMPLES} of them: give more, a third is held out"
        elif verdict != "variable":
            doubt = ""
        elif not few and alone and _is_tautology(report.subject, alignment.variable, best):
            unclear = f"Whether a subspace holds {name} before the last stream is unclear."
            doubt = f"it was found in {best.where} alone, which holds the answer of any right model"
        return report.finding(
            Claim(
                f"{_subspace(best)} holds {name}{' or its inputs' * or_inputs}.",
                no=first_of(
                    (unused, unread),
                    (found, f"Controls swap {name} as well as {best.where} does."),
                    (True, denied),
                ),
                unclear=unclear,
                doubt=doubt,
                caveat=UNDECODED if or_inputs else _caveat(report.subject, alignment),
                causal=True,
            ),
            effect,
            holds=found and not unused,
            null=nulls,
            least=self.threshold - 1e-9,
            n=pairs,
            scope=Scope(answers=asked_of(report.subject, alignment.variable)),
        )


def choose_variables(subject: Subject, name: str | None) -> list[Variable]:
    """The variable `name`; else up to `MOST_VARIABLES` that the asked answer depends on and that
    several tokens determine, the answer itself last; the first one where there are none.
    """
    task = subject.known_task
    if name is not None:
        return [choose_variable(task, name)]
    answer = asked_answer(subject)
    reached = [
        variable
        for variable in task.variables.values()
        if variable.answers is None or answer is None or answer % task.n_answers in variable.answers
    ]
    composed = [variable for variable in reached if len(variable.positions) != 1]
    composed.sort(key=lambda variable: _is_answer(subject, variable))  # stable
    return composed[:MOST_VARIABLES] or reached[:1] or [choose_variable(task, None)]


def _is_answer(subject: Subject, variable: Variable) -> bool:
    """Return True where the value alone determines what is asked, or an output of it."""
    tokens = subject.data.tokens[:64].cpu()
    value = variable.value_of(tokens)[:1].expand(len(tokens))
    asked = choose_answer(subject.known_task, variable, asked_answer(subject))
    rows, reads = torch.arange(len(tokens)), subject.answers.at(asked)[0][:64].cpu()
    labels = variable.label(tokens, value)[rows, reads.clamp_min(0)]
    return bool(((labels == labels[0]).all(0) & (labels[0] != IGNORE)).any())


def _is_tautology(subject: Subject, variable: Variable, cell: SiteCell) -> bool:
    """Return True where the variable is the answer, and its place is what the unembedding reads, or
    all of a stream at the answer.
    """
    hook, pos = cell.place
    whole = hook == f"blocks.{subject.n_layers - 1}.hook_resid_post" or (
        cell.dimension == len(cell.subspace)
    )
    return pos is None and whole and _is_answer(subject, variable)


def shares_of_heads(subject: Subject, cell: SiteCell) -> dict[str, float]:
    """Share of the squared norm of the basis that each head of the layer has."""
    layer, n_heads = Site(cell.place[0]).layer, subject.model_description.n_heads or 1
    shares = cell.subspace.unflatten(0, (n_heads, -1)).square().sum((1, 2)) / cell.dimension
    return {str(Site.head(layer or 0, head)): share for head, share in enumerate(shares.tolist())}


def _subspace(cell: SiteCell) -> str:
    """The subspace in words.

    >>> from types import SimpleNamespace
    >>> _subspace(SimpleNamespace(dimension=2, where="L1 resid_pre @ 3"))
    'A 2-dimensional subspace of L1 resid_pre @ 3'
    """
    if cell.dimension == 1:
        return f"One dimension of {cell.where}"
    article = "An" if cell.dimension in (8, 11, 18) else "A"
    return f"{article} {cell.dimension}-dimensional subspace of {cell.where}"


def _caveat(subject: Subject, alignment: Alignment) -> str:
    """One clause that limits what the finding says."""
    if _is_answer(subject, alignment.variable):
        return "this is what the model is asked there"
    groups, values = told_apart(alignment.variable, alignment.drawn.test)
    if groups < values:
        return f"answers tell its {values} values apart in {groups} groups only"
    if alignment.drawn.minimal is None:
        return "no pair differs in the variable alone"
    if alignment.drawn.examples is not None and not alignment.drawn.apart:
        return "counterfactuals of held-out examples were trained on"
    return ""


# --- tables and figure ----------------------------------------------------------------------------
MOST_SITES = 16
"""Sites in the figure of the search, the best ones."""


def sweep_table(cells: Sequence[SiteCell], threshold: float) -> Table:
    """A row per site and dimension."""
    columns: dict[str, Sequence[Any]] = {
        "hook": [cell.place[0] for cell in cells],
        "pos": ["answer" if cell.place[1] is None else cell.place[1] for cell in cells],
        "dimension": [cell.dimension for cell in cells],
        "iia": [cell.iia for cell in cells],
        "iia_train": [cell.trained for cell in cells],
        "iia_full_swap": [cell.full_swap for cell in cells],
        "iia_full_swap_minimal": [cell.full_swap_minimal for cell in cells],
        "input_share": [cell.input_share for cell in cells],
        "decoded": [cell.decoded for cell in cells],
        "verdict": [cell.verdict(threshold) for cell in cells],
    }
    units = {name: "share of pairs" for name in columns if name.startswith("iia")}
    caption = (
        "One row per site and dimension; iia on held-out pairs; iia_full_swap_minimal: all of the "
        "activation, with sources that differ in the variable alone; input_share: variance of the "
        "coordinates among inputs that share the value; decoded: values that they tell on other "
        "inputs, above chance; verdict: without the controls."
    )
    return Table(columns, caption, units)


def variables_table(aligned: Sequence[Alignment], threshold: float) -> Table:
    """A row per variable: its best subspace and what it is held against."""
    columns: dict[str, Sequence[Any]] = {
        "variable": [alignment.variable.name for alignment in aligned],
        "where": [alignment.best.where for alignment in aligned],
        "dimension": [alignment.best.dimension for alignment in aligned],
        "iia": [alignment.best.iia for alignment in aligned],
        "iia_random": [float(np.mean(alignment.random)) for alignment in aligned],
        "iia_arbitrary": [max(alignment.arbitrary) for alignment in aligned],
        "iia_full_swap_minimal": [alignment.best.full_swap_minimal for alignment in aligned],
        "verdict": [alignment.best.verdict(threshold) for alignment in aligned],
    }
    units = {name: "share of pairs" for name in columns if name.startswith("iia")}
    return Table(columns, "One row per variable, at its best site.", units)


def sweep_figure(alignment: Alignment) -> figures.Figure:
    """The best dimension of every site, beside the controls."""
    sites: dict[str, SiteCell] = {}
    for cell in alignment.cells:
        if cell.where not in sites or cell.iia > sites[cell.where].iia:
            sites[cell.where] = cell
    shown = sorted(sites.values(), key=lambda cell: -cell.iia)[:MOST_SITES]
    searches = {"arbitrary labels": alignment.arbitrary, "untrained model": alignment.untrained}
    mean, std = float(np.mean(alignment.random)), float(np.std(alignment.random))
    return figures.bars(
        [f"{cell.where}, {cell.dimension} dim." for cell in shown],
        {
            "best subspace": [cell.iia for cell in shown],
            "whole activation": [cell.full_swap for cell in shown],
        },
        title=f"Interchange of {alignment.variable.name}",
        x_title="site and dimension of its best subspace",
        y_title="interchange intervention accuracy (0–1)",
        levels={name: max(found) for name, found in searches.items()},
        null=(mean, mean - 2 * std, mean + 2 * std),
        horizontal=True,
        caption=(
            "How often the swap gives the counterfactual answer; the band: random subspaces of the "
            "best site."
        ),
    )
