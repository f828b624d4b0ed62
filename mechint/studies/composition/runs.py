"""What the composition study trains: Wang et al. 2025, Learning compositional functions with
transformers.

Two readouts are trained, because the source does not say which: *staged* reads hop 2^(l-1) after
layer l, where the construction has it, which is supervision at every layer and a stronger hint than
the source states; *last* reads every hop after the last layer. Training with and without easier
data is compared on the last readout, the same for both; attention patterns on the staged one.

Every example of the mixture asks all of its hops, for the source does not say how its examples are
drawn; *one hop each*, where every example asks one of them, is what its words have rather.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mechint.studies.composition import figures as drawn
from mechint.studies.composition.claims import CLAIMS
from mechint.studies.composition.measures import Measures, hops_of
from mechint.studies.core.study import FRESH, Analysis, PlannedRun, Runs, Study, plan


@dataclass(frozen=True)
class Budget:
    """What a size trains. n and d_model: points and width with the staged readout, n_last and
    d_last with the last one; steps and seeds of each readout; attention: width and steps of the
    attention-only models; stages: first step of each hop, alone, in the curriculum; one_hop_each:
    times the staged steps for runs whose examples ask one hop each, which have a third of the
    labels at k = 4; in_turn: the arms of a later `TURN` are trained later, so that what one night
    leaves can be judged.

    laptop: 32 wide with the last readout, where of two seeds that are not judged one began to
    learn 4 hops by step 1,000; twice the width takes twice as long for a step. Eight seeds are the
    fewest of which none that learns, or all but one, decides (b).
    """

    n: int
    n_last: int
    k: int
    d_model: int
    d_last: int
    staged_steps: int
    staged_seeds: int
    last_steps: int
    last_seeds: int
    attention: tuple[int, int]
    stages: tuple[int, ...]
    varied_seeds: int = 1
    examples: int = 256
    one_hop_each: int = 1
    in_turn: bool = False


BUDGETS = {
    "smoke": Budget(3, 3, 2, 16, 16, 40, 1, 40, 1, (16, 40), (0, 10), examples=64),
    "laptop": Budget(6, 4, 4, 64, 32, 900, 5, 4000, 8, (128, 2000), (0, 200, 400)),
    "overnight": Budget(
        *(6, 6, 4, 64, 64, 2000, 12, 30_000, 12, (128, 4000), (0, 200, 400), 5, 1024),
        one_hop_each=3,
        in_turn=True,
    ),
    "full": Budget(
        *(8, 8, 8, 128, 128, 10_000, 12, 60_000, 12, (256, 10_000), (0, 1000, 2000, 3000), 5, 2048),
        one_hop_each=3,
    ),
}


TURN = {"mixture-last": 1, "curriculum-last": 1, "direct": 2}
"""Which arms wait where arms are trained in turn: the short runs of the staged readout come first,
and those that are expected to stay at chance to their last step come last.
"""


def arms(budget: Budget) -> Iterator[tuple[PlannedRun, ...]]:
    """Every arm with its seeds; those that the first claims need come first."""
    hops = hops_of(budget.k)
    read = {"read_layers": tuple(range(1, len(hops) + 1))}
    mixed = {"hops": hops}
    curriculum = {**mixed, "stages": budget.stages, "cumulative": False}
    one_each = {**mixed, "weights": (1.0,) * len(hops)}
    width, steps = budget.attention
    alone = {"attn_only": True, "n_heads": 1, "d_model": width, **read}
    last = {"n": budget.n_last, "steps": budget.last_steps, "readout": "last"}
    last_seeds, staged, varied = budget.last_seeds, budget.staged_seeds, budget.varied_seeds
    own = {"d_model": budget.d_last}
    yield _arm("mixture-last", budget, mixed, own, last_seeds, **last)
    yield _arm("direct", budget, {"hops": (budget.k,)}, own, last_seeds, **last)
    yield _arm("curriculum-last", budget, curriculum, own, last_seeds, **last)
    yield _arm("mixture", budget, mixed, read, staged)
    yield _arm("curriculum", budget, curriculum, read, staged)
    yield _arm("attention-only", budget, mixed, alone, staged, steps=steps)
    copied = {**alone, "init_mode": "copy"}
    yield _arm("attention-only-copy", budget, mixed, copied, staged, steps=steps)
    small = {**read, "init_mode": "normal"}
    yield _arm("mixture-small-start", budget, mixed, small, varied)
    longer = budget.staged_steps * budget.one_hop_each
    yield _arm("mixture-one-hop-each", budget, one_each, read, varied, steps=longer)


def _arm(
    arm: str,
    budget: Budget,
    task: Mapping[str, Any],
    model: Mapping[str, Any],
    seeds: int,
    *,
    n: int | None = None,
    steps: int | None = None,
    readout: str = "staged",
) -> tuple[PlannedRun, ...]:
    """The runs of an arm; a seed draws the hidden permutations too, and a run stops when every hop
    is at 0.99.
    """
    total = steps or budget.staged_steps
    model = {"d_model": budget.d_model, "n_layers": len(hops_of(budget.k)), **model}
    train = {
        "steps": total,
        "evaluate_every": max(1, min(25, total // 10), total // 80),
        "eval_examples": budget.examples,
        "stop_accuracy": 0.99,
    }
    return tuple(
        plan(
            arm,
            "composition",
            {"n": n or budget.n, "k": budget.k, "perm_seed": seed, **task},
            model,
            train,
            seed=seed,
            arm=arm,
            readout=readout,
            stage=TURN.get(arm, 0) if budget.in_turn else 0,
        )
        for seed in range(FRESH, FRESH + seeds)
    )


class CompositionStudy(Study):
    """Direct, mixture and curriculum; both readouts; the attention patterns."""

    name = "composition"
    title = "Learning compositional functions with transformers"
    paper = "Wang et al. 2025, Learning compositional functions with transformers"
    summary = (
        "Composing k permutations that interleave with k hidden ones needs only log₂k + 1 layers "
        "of a transformer, each doubling the hop length. Yet from k-hop labels alone gradient "
        "descent needs exponentially many examples. A curriculum, or simply a mixture with "
        "shorter hops, makes it easy."
    )
    claims = CLAIMS

    def runs(self, size: str) -> list[PlannedRun]:
        """Every arm of both readouts, with as many seeds as the budget of `size` says."""
        return [one for arm in arms(BUDGETS[size]) for one in arm]

    def analyze(self, runs: Runs, size: str) -> Analysis:
        """Judge claims a to d, and draw accuracy per hop and the attention patterns."""
        analysis, measures = Analysis(self.name, size, runs.say), Measures(runs, BUDGETS[size].k)
        for spec in self.claims:
            analysis.add_claim(spec, measures)
        drawn.draw(analysis, measures)
        return analysis
