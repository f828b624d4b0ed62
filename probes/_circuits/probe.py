"""The circuits probe: which pairs it looks at, which circuit it finds, and what it says of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mechint.config import setting
from mechint.errors import counted
from mechint.null import samples_needed
from mechint.probe import Need, Probe, Report
from mechint.results import ProbeResult
from probes._circuits import views
from probes._circuits.choosing import (
    ablation_setting,
    graph_of,
    paired,
    split,
    stand_in,
    variable_setting,
)
from probes._circuits.effects import correlation, edge_attribution, path_patching
from probes._circuits.graph import Graph
from probes._circuits.judging import incompleteness, judge_circuit, rivals_of
from probes._circuits.scoring import Scorer
from probes._circuits.search import find_circuit

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject

EXACT_EDGES = 512
"""Up to so many edges each one is patched; more are ranked by EAP-IG."""

SLACK = 0.05
"""By how much the faithfulness on other pairs may fall short of the threshold of the search."""

METHODS = ("path patching", "eap", "eap-ig")


@dataclass(frozen=True)
class Circuits(Probe):
    """Which edges between heads, MLPs, embedding and logits compute the answer, and do they alone?

    Nodes are the embeddings, heads and MLPs that write to the residual stream, and the q, k and v
    inputs of heads, the inputs of MLPs and the logits that read it; an edge is one writer as one
    reader sees it, per position where a variable of the task has positions of its own. An edge
    outside a circuit carries its sender's mean over examples ("mean", where no variable is named),
    the run of a source that differs in `variable` alone ("counterfactual"), or that of another
    example ("resample"; what is the same in all examples stays unseen). Score = logit of the right
    answer - that of the source's answer (of the mean class with "mean"). F(C) = (score of C - score
    without edges) / (score of the model - score without edges).

    Each edge is ranked by path patching, 1 - F(all edges but e), exactly, or where there are more
    than 512 by EAP-IG, (base - source) · gradient, mean over 5 points between the two. Edges are
    added by rank until F reaches `threshold`, then pruned. On all examples of a finite task, those
    of the search among them, or pairs held out (where examples are a sample, as prompts are, pairs
    of other examples), with `only_correct` those answered right: faithfulness F(C); completeness
    1 - F(M \\ C); minimality, the least F(C) - F(C \\ e). On examples that the search has not seen:
    incompleteness, the mean of |F(C \\ K) - F(M \\ K)| over random parts K of C; and the nulls,
    other circuits of as many edges made of random paths from the embedding to the logits
    (sufficiency), and as many random edges outside C taken out of the model (necessity), no two of
    either alike, so that a small graph may have too few to decide. Found: p ≤ 0.01 for both, F at
    least `threshold` - 0.05, most of the pairs answered right by the circuit alone (a few may hold
    most of the score), and a model that answers most pairs right.

    Examples of a generated task are drawn anew, unless the subject was given some (`with_data`).
    Cost: one forward per edge, stacked, from its reader on; tens more for the search; 2
    `null_samples` for the nulls. Memory: a quarter of the subject's.
    """

    name: ClassVar[str] = "circuits"
    source: ClassVar[str] = (
        "Wang et al. 2023, Interpretability in the Wild (faithfulness, completeness, minimality); "
        "Goldowsky-Dill et al. 2023, Localizing Model Behavior with Path Patching; Syed et al. "
        "2023 (EAP); Hanna et al. 2024, Have Faith in Faithfulness (EAP-IG); Shi et al. 2024, "
        "Hypothesis Testing the Circuit Hypothesis in LLMs"
    )
    needs: ClassVar[tuple[Need, ...]] = (
        Need.TASK,
        Need.ANSWERS,
        Need.RESIDUAL,
        Need.ATTENTION,
        Need.RESUME,
    )
    intervenes: ClassVar[bool] = True

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
        if getattr(subject.model.config, "read_layers", None) is not None:
            return "its output groups leave after different layers, so no one node is its logits"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import Planted, library
        from mechint.planted.calibration import Calibration, Trial

        def heads(plant: Planted) -> list[str]:
            return ["{}.{}".format(*place) for place in plant.truth["heads"].values()]

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
            trial("modular addition", library.addition, "mlp 0"),
        )
        settings = {"pairs": 24, "held_out": 32, "null_samples": 99, "only_correct": False}
        return Calibration(trials, settings)

    # --- measuring --------------------------------------------------------------------------------
    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        ablation, variable = stand_in(self, subject, self.ablation, self.variable)
        wanted = self.pairs + self.held_out
        every, share = paired(subject, ablation, variable, wanted, seed, self.only_correct)
        search, test, unseen = split(subject, every, self.pairs, self.held_out, seed)
        graph = graph_of(subject, every, self.by_position)
        on_search, on_test, on_unseen = (
            Scorer(subject, graph, one, ablation) for one in (search, test, unseen)
        )
        method = self.method or ("path patching" if len(graph.edges) <= EXACT_EDGES else "eap-ig")
        estimate = edge_attribution(on_search, 1 if method == "eap" else 5)
        effects = path_patching(on_search) if method == "path patching" else estimate
        kept = find_circuit(on_search, effects, self.threshold)
        found = judge_circuit(on_test, kept)
        rivals = rivals_of(on_unseen, kept, self.null_samples, seed)
        size = int(kept.sum())

        report = Report(self, subject)
        found_all = len(rivals.random_sufficiency) < self.null_samples
        how = f"{'all ' * found_all}other circuits of {size} edges made of random paths"
        report.metric("sufficiency", rivals.sufficiency, null=rivals.random_sufficiency, how=how)
        outside = min(size, len(kept) - size)
        how = f"{outside} random edges outside the circuit taken out"
        if len(rivals.random_necessity) < self.null_samples:
            how = f"all sets of {outside} edges outside the circuit taken out"
        report.metric("necessity", rivals.necessity, null=rivals.random_necessity, how=how)
        unit = "share of the model's score"
        for name, value in (
            ("faithfulness", found.faithfulness),
            ("completeness", found.completeness),
            ("minimality", float(found.drops.min()) if size else 0.0),
            ("incompleteness", incompleteness(on_unseen, kept, seed)),
        ):
            report.metric(name, value, unit=unit)
        report.update(
            {
                "accuracy": found.accuracy,
                "above_model": found.above,
                "edges": size,
                "graph_edges": len(graph.edges),
                "components": graph.components(kept),
                "ablation": ablation,
                "method": method,
                "by_position": graph.groups > 1,
                "variable": variable.name if variable is not None else "none",
                "pairs_judged": len(test),
                "examples_judged": test.n_examples,
                "all_inputs": test is every and subject.on_grid,
                "answered": share,
            }
        )
        if method == "path patching":
            report.metric("eap_ig_correlation", correlation(effects, estimate))
        self._show(report, graph, kept, effects, found.drops, rivals.random_sufficiency)
        self._say(report, held_out=test is not every)
        return report.result()

    # --- what is shown and said -------------------------------------------------------------------
    def _show(
        self,
        report: Report,
        graph: Graph,
        kept: np.ndarray,
        effects: np.ndarray,
        drops: np.ndarray,
        random: np.ndarray,
    ) -> None:
        metrics = report.metrics
        names = views.position_names(report.subject, graph.groups)
        report.table("edges", views.edges_table(graph, kept, effects, drops, names))
        report.array("effects", effects)
        report.array("circuit", kept.astype(float))
        title = f"Circuit of {counted(metrics['edges'], 'edge')}"
        report.figure("circuit", views.graph_figure(graph, kept, effects, names, title))
        report.figure(
            "random", views.rivals_figure(random, metrics["sufficiency"], metrics["edges"])
        )

    def _say(self, report: Report, held_out: bool) -> None:
        metrics = report.metrics
        heads = [name for name in metrics["components"] if not name.startswith("mlp")]
        mlps = [name for name in metrics["components"] if name.startswith("mlp")]
        parts = [f"head{'s' * (len(heads) > 1)} {', '.join(heads)}"] * bool(heads)
        names = " and ".join([*parts, *[", ".join(mlps)] * bool(mlps)]) or "no head or MLP"
        which = "held-out " * held_out + "possible " * metrics["all_inputs"]
        examples = f"{which}examples"
        if self.only_correct and metrics["answered"] < 1:
            examples += " that the model answers right"
        answers = f"answers of {metrics['examples_judged']} " * (report.subject.answer == "all")
        judged = f"{metrics['pairs_judged']} {answers}{examples}"
        random = report.nulls["sufficiency"].mean
        numbers = (
            f"alone they keep {metrics['faithfulness']:.1%} of the score and answer "
            f"{metrics['accuracy']:.1%} of {judged}; without them the model loses "
            f"{metrics['completeness']:.1%}; the edge that counts least, "
            f"{metrics['minimality']:.1%}; random circuits of the size keep {random:.1%}"
        )
        told = {
            "counterfactual": f"for {metrics['variable']}",
            "resample": "against other examples",
            "mean": "against mean activations",
        }[metrics["ablation"]]
        question = f"whether a circuit {told} stands out"
        circuit = f"{metrics['edges']} of {metrics['graph_edges']} edges, through {names}"
        if metrics["answered"] <= 0.5:
            report.abstain(
                f"the model answers {metrics['answered']:.0%} of pairs drawn without selection; "
                f"of a circuit of {circuit}: {numbers}",
                question,
            )
            return
        size = metrics["edges"]
        outside = min(size, metrics["graph_edges"] - size)
        for name, others in (
            ("sufficiency", f"other circuits of {counted(size, 'edge')}"),
            ("necessity", f"sets of {counted(outside, 'edge')} outside it"),
        ):
            null, needed = report.nulls[name], samples_needed(self.significance)
            if null.samples < min(self.null_samples, needed):  # the graph has no more
                report.abstain(
                    f"there are only {null.samples} {others} to hold it against, where p ≤ "
                    f"{self.significance:g} takes {needed}; of a circuit of {circuit}: {numbers}",
                    question,
                )
                return
        report.finding(
            f"The circuit {told} is {circuit}: {numbers}",
            question=question,
            otherwise=f"No circuit stands out {told}; the smallest found is {circuit}: {numbers}",
            holds=metrics["accuracy"] > 0.5,  # a score may be kept on few examples that score most
            null=["sufficiency", "necessity"],
            effect=metrics["faithfulness"],
            least=self.threshold - SLACK,
            n=metrics["examples_judged"],
            causal=True,
        )
