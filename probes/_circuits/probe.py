"""The circuits probe: which pairs it looks at, which circuit it finds, and what it says of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mechint.config import setting
from mechint.decide import Claim, first_of
from mechint.errors import counted
from mechint.interventions import resumes
from mechint.models.protocol import Capability
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, ProbeResult
from mechint.probes._circuits import views
from mechint.probes._circuits.choosing import (
    ablation_setting,
    graph_of,
    paired,
    shape_of,
    split,
    stand_in,
    variable_setting,
)
from mechint.probes._circuits.graph import Graph
from mechint.probes._circuits.scoring import Scorer
from mechint.probes._circuits.search import (
    Judgement,
    Rivals,
    curve_of,
    edge_attribution,
    find_circuit,
    judge_circuit,
    needed_components,
    path_patching,
    rivals_of,
)
from mechint.probes.words import listed, mostly_wrong, portion, position_names

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject

EXACT_EDGES = 512
"""Up to so many edges each one is patched; more are ranked by EAP-IG."""

SLACK = 0.05
"""By how much the faithfulness on other pairs may fall short of the threshold of the search, and
share of the score that components which are not named may carry together.
"""

LEAST_GAP = 0.05
"""Share of the score by which all edges have to raise it above that of none."""

MOST_EDGES = 60_000
"""Edges of a graph that is searched: GPT-2's 32,000, not the 127,000 of thirty blocks."""
LARGEST_FLOOR = 0.05
"""The largest p-value floor of an exact test, of a graph with few circuits, that decides."""

METHODS = ("path patching", "eap", "eap-ig")


@dataclass(frozen=True)
class Circuits(Probe):
    """Which edges between heads, MLPs, embedding and logits compute the answer, and do they alone?

        F(C) = (score of C − score of no edge) / (score of all edges − score of no edge)

    score: logit of the right answer above the mean class (above the source's answer, where a
    `variable` is named). Outside a circuit an edge carries its sender's mean (the source's run).
    Edges are ranked by path patching, above 512 by EAP-IG; the smallest faithful circuit is judged
    on other examples: faithfulness, completeness 1 − F(M ∖ C), minimality, random circuits.
    """

    name: ClassVar[str] = "circuits"
    topic: ClassVar[str] = "layers and components"
    source: ClassVar[str] = (
        "Wang et al. 2023, Interpretability in the Wild (faithfulness, completeness, minimality); "
        "Goldowsky-Dill et al. 2023, Localizing Model Behavior with Path Patching; Syed et al. "
        "2023 (EAP); Hanna et al. 2024, Have Faith in Faithfulness (EAP-IG); Shi et al. 2024, "
        "Hypothesis Testing the Circuit Hypothesis in LLMs; Mueller et al. 2025, MIB (CPR, CMD)"
    )
    needs: ClassVar[tuple[Need, ...]] = (
        Need.TASK,
        Need.ANSWERS,
        Need.RESIDUAL,
        Need.ATTENTION,
    )
    lead_rank: ClassVar[int] = 65
    intervenes: ClassVar[bool] = True
    several: ClassVar[int] = 1

    variable: str | None = variable_setting()
    ablation: str | None = ablation_setting("an edge outside the circuit carries")
    method: str | None = setting(
        None, "how edges are ranked; by their number when none", choices=METHODS
    )
    by_position: bool | None = setting(
        None,
        "one edge per position; when none, where a variable of the task has positions of its own "
        "and all examples are read at the same one",
    )
    threshold: float = setting(0.9, "faithfulness that the search asks for", low=0, high=1)
    pairs: int = setting(
        128,
        "pairs that the circuit is searched on, and others that the nulls are drawn on",
        low=2,
        high=2**20,
    )
    held_out: int = setting(
        1024, "other pairs that it is judged on, where not all inputs are", low=2, high=2**20
    )
    only_correct: bool = setting(True, "only pairs whose base and source are answered correctly")
    null_samples: int = setting(199, "random circuits of each null", low=1)

    def unmet(self, subject: Subject) -> str | None:
        config = getattr(subject.model, "config", None)
        if getattr(config, "read_layers", None) is not None:
            return "its output groups leave after different layers, so no one node is its logits"
        if Capability.RESUME in subject.capabilities and not resumes(subject.model):
            return "hooks are on its model, past which edges are not cut; take them off"
        shape = shape_of(subject.model)
        if isinstance(shape, str):
            return f"{shape}; ask patching, attribution or heads"
        edges = Graph(shape).n_edges
        if edges > MOST_EDGES:
            return (
                f"its graph has {edges:,} edges, where at most {MOST_EDGES:,} are searched; the "
                "probe heads asks which heads move the answer of pairs of prompts"
            )
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import Planted, library
        from mechint.planted.calibration import Calibration, Trial

        def heads(plant: Planted) -> list[str]:
            return ["L{}H{}".format(*place) for place in plant.truth["heads"].values()]

        def doubling(noise: float, seed: int) -> Planted:
            plant = library.pointer_doubling(noise, seed)  # all hops are asked at the first answer
            return dataclasses.replace(plant, subject=plant.subject.with_answer(0))

        def trial(name: str, plant: Any, *mlps: str, **settings: Any) -> Trial:
            return Trial(
                name,
                plant,
                library.untrained(plant),
                library.misses(
                    lambda result: result.metrics["components"], lambda one: [*heads(one), *mlps]
                ),
                "heads and MLPs missed or made up",
                settings={"pairs": 32, "held_out": 64, "null_samples": 99, **settings},
                control_settings={"only_correct": False},
            )

        trials = (
            trial("induction head", library.induction, by_position=False),
            trial("composition by doubling", doubling, by_position=False),
            trial("modular addition", library.addition, "L0 MLP"),
        )
        settings = {"pairs": 24, "held_out": 32, "null_samples": 99, "only_correct": False}
        return Calibration(trials, settings)

    # --- measuring --------------------------------------------------------------------------------
    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        # F(C) = (score of C − score of no edge) / (score of all edges − score of no edge) (Wang et
        # al. 2023): searched on some pairs, judged on others, and held against random circuits of
        # its size on a third part (Shi et al. 2024).
        ablation, variable = stand_in(self, subject, self.ablation, self.variable, given_pairs=True)
        # the examples that are searched on are half of all, at most
        few = 2 * self.pairs
        every, share = paired(subject, ablation, variable, seed, self.only_correct, few)
        search, test, unseen = split(subject, every, self.pairs, self.held_out, seed)
        graph = graph_of(subject, every, self.by_position)
        on_search, on_test, on_unseen = (
            Scorer(subject, graph, part, ablation, every) for part in (search, test, unseen)
        )
        report = Report(self, subject)
        report.update(
            {
                "graph_edges": len(graph.edges),
                "ablation": ablation,
                "by_position": graph.groups > 1,
                "variable": variable.name if variable is not None else "none",
                "pairs_judged": len(test),
                "examples_judged": test.n_examples,
                "all_inputs": test is every and subject.on_grid,
                "answered": share,
            }
        )
        low, high = on_test.ends
        report.update({"score": high, "score_without_edges": low})
        if doubt := _why_undecided(on_search, on_test, on_unseen):
            report.update({"edges": 0, "components": []})
            report.unclear("A circuit cannot be told from the rest of the model.", doubt)
            return report.result()
        method = self.method or ("path patching" if len(graph.edges) <= EXACT_EDGES else "eap-ig")
        if method == "path patching":
            effects = path_patching(on_search)
        else:
            effects = edge_attribution(on_search, 1 if method == "eap" else 5)
        kept = find_circuit(on_search, effects, self.threshold)
        found = judge_circuit(on_test, kept)
        curve, shares = curve_of(on_test, effects)
        rivals = rivals_of(on_unseen, kept, self.null_samples, seed)
        self._record(report, graph, kept, found, rivals)
        report.metric("components", list(needed_components(on_test, kept, SLACK)))
        report.update({"method": method, "cpr": curve.cpr, "cmd": curve.cmd})
        names = position_names(subject)
        report.table("edges", views.edges_table(graph, kept, effects, found.drops, names))
        report.array("effects", effects)
        report.array("circuit", kept.astype(float))
        share = f"{int(kept.sum())} of {counted(len(kept), 'edge')}"
        title = f"{share} keep {found.faithfulness:.0%} of the score"
        report.figure("circuit", views.graph_figure(graph, kept, effects, names, title))
        report.figure("curve", views.curve_figure(curve, shares, int(kept.sum())))
        self._say(report)
        return report.result()

    def _record(
        self, report: Report, graph: Graph, kept: np.ndarray, found: Judgement, rivals: Rivals
    ) -> None:
        size = int(kept.sum())
        complete = len(rivals.random_sufficiency) < self.null_samples
        how = f"{'all ' * complete}other circuits of {size} edges made of random paths"
        report.metric("sufficiency", rivals.sufficiency, null=rivals.random_sufficiency, how=how)
        outside = min(size, len(kept) - size)
        complete = len(rivals.random_necessity) < self.null_samples
        sets = f"all sets of {outside}" if complete else f"{outside} random"
        how = f"{sets} edges outside the circuit taken out"
        report.metric("necessity", rivals.necessity, null=rivals.random_necessity, how=how)
        for name, value in (
            ("faithfulness", found.faithfulness),
            ("completeness", found.completeness),
            ("minimality", float(found.drops.min()) if size else 0.0),
        ):
            report.metric(name, value, unit="share of the model's score")
        report.update({"interval": found.interval, "accuracy": found.accuracy, "edges": size})

    def _say(self, report: Report) -> None:
        metrics, nulls = report.metrics, report.nulls
        size, through = metrics["edges"], metrics["components"]
        floors = {name: nulls[name].floor for name in ("sufficiency", "necessity")}
        tested = [name for name, floor in floors.items() if floor <= LARGEST_FLOOR]
        level = max([self.significance, *(floors[name] for name in tested)])
        caveats = []
        if level > self.significance:
            least = min(nulls[name].samples for name in tested)
            caveats.append(f"only {least} rivals of its size exist, so that p is never smaller")
        if "necessity" not in tested:
            caveats.append("too few edges are outside it to test its necessity")
        edges = f"{size} of {metrics['graph_edges']} edges"
        some = listed(through) if len(through) <= 4 else counted(len(through), "component")
        report.finding(
            Claim(
                f"{edges} keep {portion(metrics['faithfulness'])} of the score.",
                no=first_of(
                    (
                        metrics["completeness"] <= 0.5,
                        f"{edges} are not the circuit: without them "
                        f"{portion(1 - metrics['completeness'])} of the score stays.",
                    ),
                    (
                        metrics["accuracy"] <= 0.5,
                        f"{edges} are no circuit: alone they answer "
                        f"{portion(metrics['accuracy'])} right.",
                    ),
                    (True, f"No circuit stands out: the smallest has {edges}."),
                ),
                unclear="A circuit of answers that are mostly wrong says nothing."
                if metrics["answered"] <= 0.5
                else "Too few other circuits exist to hold this one against.",
                doubt=mostly_wrong(metrics["answered"]),
                lead=f"It answers through {some or 'its embedding'}.",
                caveat="; ".join(caveats),
                causal=True,
            ),
            Effect(
                metrics["faithfulness"],
                "of the score",
                "kept",
                nulls["sufficiency"].mean,
                "random circuits of its size",
            ),
            holds=metrics["accuracy"] > 0.5 and metrics["completeness"] > 0.5,
            null=tested or ["sufficiency"],
            alpha=level,
            least=self.threshold - SLACK,
            n=metrics["examples_judged"],
        )


def _why_undecided(*scorers: Scorer) -> str:
    """The reason for which no circuit can be judged on these pairs; "" where one can be."""
    for scorer in scorers:
        low, high = scorer.ends
        if scorer.ablation == "mean" and len(scorer.pairs.answers.unique(dim=0)) < 2:
            return (
                f"all {scorer.pairs.n_examples} examples of a part have one answer, which no edge "
                "is needed for: give more examples"
            )
        if high - low < LEAST_GAP * max(abs(low), abs(high)):
            return (
                f"the score is {high:.3g} nats with all edges and {low:.3g} with none, so that no "
                "circuit can carry their difference"
            )
    return ""
