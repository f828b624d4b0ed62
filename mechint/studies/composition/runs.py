"""Learning compositional functions with transformers (Wang et al. 2025): k-fold composition needs
its easier parts first.

Two readouts are trained, because the source does not say which: *staged* reads hop 2^(l-1) after
layer l, where the construction has it, which is a stronger hint than the source states; *last*
reads every hop after the last layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechint import figures
from mechint.errors import TrainingError
from mechint.results import Figure, Table
from mechint.studies.core.study import (
    Analysis,
    Finding,
    Planned,
    Runs,
    Stated,
    Study,
    mean_and_spread,
    plan,
    task_of,
)
from mechint.training import Run

LEARNED = 0.95
"""Test accuracy at which a hop counts as learned."""

CHANCE_MARGIN = 0.05
"""How far above chance the accuracy of what was not learned may lie: 256 test examples spread by
0.02.
"""

CLAIMS = {
    claim.letter: claim
    for claim in (
        Stated(
            "a",
            (
                "Trained on k-hop labels alone, an ordinary transformer with feed-forward layers "
                "stays at chance."
            ),
            (
                "without data mixture the transformer cannot learn the 4-hop task (figure); "
                "N^Ω(k) queries needed (theorem)"
            ),
            "In every seed the last test accuracy of the k-hop is at most chance + 0.05, "
            "after at least 1.5 times the steps in which every staged "
            "mixture run learned it.",
            (
                "The same model must have had clearly more time than the mixture needs; staying "
                "at chance for ever cannot be shown by a run."
            ),
        ),
        Stated(
            "b",
            (
                "On a mixture of 1-, 2-, 4-, … k-hop data the transformer learns all of them, "
                "easy to hard."
            ),
            "with mixture it learns from 1-hop to 4-hop, in that order (figure)",
            (
                "With the staged readout every seed passes a test accuracy of 0.95 on every hop, "
                "no longer hop before a shorter one, the longest after the first."
            ),
            (
                "0.95 is far from any constant answer; the steps are compared at the resolution "
                "of the evaluations. The last-layer readout stands beside it."
            ),
        ),
        Stated(
            "c",
            "An easy-to-hard curriculum, hop 2^(l-1) from stage l on, learns it too.",
            "poly(N, k) samples suffice (theorem)",
            "With the staged readout every seed of the curriculum ends above 0.95 on the k-hop.",
            "As in (b). Earlier hops stay in later stages; the source leaves this open.",
        ),
        Stated(
            "d",
            (
                "The learned attention of layer 1 goes from (i, j) to (i, π_i(j)), and that of "
                "layer l+1 from (i, j) to (i + 2^(l-1), hop(j))."
            ),
            (
                "layer 1 recovers the hidden permutations; the hop length doubles with every "
                "layer (construction)"
            ),
            "In every attention-only run the argmax of layer 1 is (i, π_i(j)) for at least "
            "0.95 of the queries, and that of layer 2 is (i + 1, hop(j)) "
            "for at least half of the queries that have one.",
            "Uniform attention finds 1/(kN) of them. One head without feed-forward layers has "
            "no other way to 1-hop; later layers have more than one, "
            "and layer 3 is measured, not required.",
        ),
    )
}


@dataclass(frozen=True)
class Budget:
    """What a size trains. seeds: of every arm, 1 where none is given; stages: first step of each
    hop in the curriculum.
    """

    n: int
    k: int
    d_model: int
    steps: Mapping[str, int]
    seeds: Mapping[str, int]
    stages: tuple[int, ...]
    examples: int = 256


FEW = {"mixture": 5, "direct": 3, "curriculum": 3, "attention-only": 5, "mixture-last": 3}
MANY = dict.fromkeys((*FEW, "curriculum-last", "mixture-small-start", "mixture-one-hop-each"), 5)

BUDGETS = {
    "smoke": Budget(
        3,
        2,
        16,
        {"mixture": 40, "direct": 40, "last": 40, "curriculum": 40, "attention": 40},
        {},
        (0, 10),
        64,
    ),
    "laptop": Budget(
        6,
        4,
        64,
        {"mixture": 900, "direct": 1000, "last": 1000, "curriculum": 900, "attention": 900},
        FEW,
        (0, 200, 400),
    ),
    "full": Budget(
        8,
        8,
        128,
        {"mixture": 10000, "direct": 20000, "last": 20000, "curriculum": 10000, "attention": 10000},
        MANY,
        (0, 1000, 2000, 3000),
        2048,
    ),
}


class CompositionStudy(Study):
    """Direct, mixture and curriculum; both readouts; the attention patterns."""

    name = "composition"
    title = "Learning compositional functions with transformers"
    summary = (
        "Composing k permutations that interleave with k hidden ones needs only log₂k + 1 "
        "layers of a transformer, each doubling the hop length. "
        "Yet from k-hop labels alone gradient descent needs exponentially many examples. A "
        "curriculum, or simply a mixture with shorter hops, makes it easy."
    )

    def runs(self, size: str) -> list[Planned]:
        """Every arm of both readouts, with as many seeds as the budget of `size` says."""
        budget = BUDGETS[size]
        hops = _hops(budget.k)
        staged = {"read_layers": tuple(range(1, len(hops) + 1))}
        alone = {"attn_only": True, "n_heads": 1, **staged}
        one_each = {"weights": (1.0,) * len(hops)}
        arms: list[tuple[str, str, str, dict[str, Any], dict[str, Any]]] = [
            ("mixture", "staged", "mixture", {"hops": hops}, staged),
            ("curriculum", "staged", "curriculum", {"hops": hops, "stages": budget.stages}, staged),
            ("direct", "last", "direct", {"hops": (budget.k,)}, {}),
            ("attention-only", "staged", "attention", {"hops": hops}, alone),
            ("mixture-last", "last", "last", {"hops": hops}, {}),
            ("curriculum-last", "last", "last", {"hops": hops, "stages": budget.stages}, {}),
            (
                "mixture-small-start",
                "staged",
                "mixture",
                {"hops": hops},
                {**staged, "init_mode": "normal"},
            ),
            ("mixture-one-hop-each", "staged", "mixture", {"hops": hops, **one_each}, staged),
        ]
        return [
            _planned(budget, arm, readout, budget.steps[kind], task, model, seed)
            for arm, readout, kind, task, model in arms
            for seed in range(budget.seeds.get(arm, 1))
        ]

    def analyse(self, runs: Runs, size: str) -> Analysis:
        """Judge claims a to d, and draw accuracy per hop and the attention patterns."""
        book, k = Analysis(self.name, size), BUDGETS[size].k
        book.judge(CLAIMS["a"], lambda: _direct(runs, k))
        book.judge(CLAIMS["b"], lambda: _mixture(runs, k))
        book.judge(CLAIMS["c"], lambda: _curriculum(runs, k))
        book.judge(CLAIMS["d"], lambda: _patterns(runs, k))
        book.draw("Accuracy per hop", lambda: _hop_figure(runs, k, "mixture", "staged readout"))
        book.draw(
            "Accuracy per hop, last layer",
            lambda: _hop_figure(runs, k, "mixture-last", "all hops read after the last layer"),
        )
        book.draw("With and without easier data", lambda: _arms_figure(runs, k))
        book.draw("First-layer attention", lambda: _attention_figure(runs))
        book.draw("Hop length of every layer", lambda: _pattern_figure(runs, k))
        book.vary("Readout, start and mixture", lambda: _arms_table(runs, k))
        book.tabulate("Attention patterns", lambda: _pattern_table(runs, k))
        return book


def _planned(
    budget: Budget,
    arm: str,
    readout: str,
    steps: int,
    task: Mapping[str, Any],
    model: Mapping[str, Any],
    seed: int,
) -> Planned:
    """A run; its seed draws the hidden permutations too, and it stops when every hop is at 0.99."""
    task = {"n": budget.n, "k": budget.k, "perm_seed": seed, **task}
    model = {"d_model": budget.d_model, "n_layers": len(_hops(budget.k)), **model}
    train = {
        "steps": steps,
        "evaluate_every": max(1, min(25, steps // 10)),
        "eval_examples": budget.examples,
        "stop_accuracy": 0.99,
    }
    return plan(arm, "composition", task, model, train, seed=seed, arm=arm, readout=readout)


def _hops(k: int) -> tuple[int, ...]:
    return tuple(2**level for level in range(int(math.log2(k)) + 1))


# --- what a run shows -----------------------------------------------------------------------------
def _accuracies(run: Run, hop: int) -> np.ndarray:
    """Test accuracy of one hop at every evaluation; a task of one output logs it without a name."""
    name = "test.accuracy" if len(task_of(run).outputs) == 1 else f"test.accuracy.{hop}-hop"
    return np.array([row[name] for row in run.metrics])


def _steps(run: Run) -> np.ndarray:
    return np.array([row["step"] for row in run.metrics], dtype=float)


def _learned_at(run: Run, hop: int) -> float:
    """The first evaluated step at which `hop` is learned; infinite when it never is."""
    return float(min(_steps(run)[_accuracies(run, hop) >= LEARNED], default=math.inf))


def pattern_shares(run: Run, layer: int, examples: int = 128) -> tuple[float, float]:
    """How much of layer `layer`'s attention (from 1) goes where the construction sends it, for the
    head that does most.

    Returns:
        Share of the queries (i, j) whose largest weight is on the target, and mean weight on the
        target, both 0 … 1.
    """
    subject = run.subject(n_examples=examples)
    targets = pattern_targets(
        run, subject.data.tokens, layer
    )  # (example, query), -1 where there is none
    pattern = subject.activation(f"blocks.{layer - 1}.attn.hook_pattern")
    asked = targets >= 0
    index = targets.clamp_min(0)[:, None, :, None].expand(-1, pattern.shape[1], -1, 1)
    mass = pattern.gather(-1, index).squeeze(-1).transpose(1, 2)[asked].mean(0)
    right = (pattern.argmax(-1).transpose(1, 2)[asked] == targets[asked][:, None]).float().mean(0)
    best = int(right.argmax())
    return float(right[best]), float(mass[best])


def complement_share(run: Run, examples: int = 128) -> float:
    """Share of the queries (i, j) that layer 1 sends everywhere in block i but to (i, π_i(j)): 0 …
    1.

    Of a permutation the value that is missing tells as much as the one that is looked at, so this
    is another way to the 1-hop.
    """
    subject, n = run.subject(n_examples=examples), task_of(run).n
    targets = pattern_targets(run, subject.data.tokens, 1).unflatten(
        1, (-1, n)
    )  # (example, block, query)
    pattern = (
        subject.activation("blocks.0.attn.hook_pattern").unflatten(2, (-1, n)).unflatten(4, (-1, n))
    )
    blocks = pattern.diagonal(dim1=2, dim2=4).movedim(-1, 2)  # (example, head, block, query, key)
    return float((blocks.argmin(-1) == (targets % n)[:, None]).float().mean((0, 2, 3)).max())


def pattern_targets(run: Run, tokens: Any, layer: int) -> Any:
    """(example, query) the position that the construction's layer attends to from every position,
    -1 where it ends.
    """
    task = task_of(run)
    n, k = task.n, task.k
    targets = tokens.new_full(tokens.shape, -1)
    if layer == 1:
        for i in range(k):
            targets[:, i * n : (i + 1) * n] = task.permutations[i] + i * n
        return targets
    half = 2 ** (layer - 2)
    begun = type(task)(n=n, k=k, perm_seed=task.perm_seed, hops=(half,)).label_inputs(tokens)[
        ..., 0
    ]
    for i in range(k - 2 * half + 1):
        targets[:, i * n : (i + 1) * n] = begun[:, i * n : (i + 1) * n] + (i + half) * n
    return targets


# --- the claims -----------------------------------------------------------------------------------
def _direct(runs: Runs, k: int) -> Finding:
    group = runs.select(arm="direct")
    last = [float(_accuracies(run, k)[-1]) for run in group]
    chance = 1 / task_of(group[0]).n
    needed = max(_learned_at(run, k) for run in runs.select(arm="mixture"))
    steps = min(run.step for run in group)
    holds = max(last) <= chance + CHANCE_MARGIN and steps >= 1.5 * needed
    ours = (
        f"Accuracy {mean_and_spread(last)} after {steps} steps, chance {chance:.2f}; the "
        f"mixture needed {needed:g} steps."
    )
    return Finding(
        holds,
        ours,
        {"accuracies": last, "chance": chance, "steps": steps, "steps the mixture needed": needed},
    )


def _learning_steps(runs: Runs, arm: str, k: int) -> list[list[float]]:
    """A list of the hops' learning steps a seed."""
    return [[_learned_at(run, hop) for hop in _hops(k)] for run in runs.select(arm=arm)]


def _mixture(runs: Runs, k: int) -> Finding:
    steps = _learning_steps(runs, "mixture", k)
    holds = all(
        math.isfinite(max(row)) and row == sorted(row) and row[0] < row[-1] for row in steps
    )
    return Finding(
        holds,
        f"{_solved(steps)} learned every hop; {_in_words(steps, k)}.",
        {"steps": steps},
        _last_layer(runs, "mixture-last", k),
    )


def _last_layer(runs: Runs, arm: str, k: int) -> str:
    """A note: how the other readout does; a failed run of it takes nothing from the claim."""
    try:
        steps = _learning_steps(runs, arm, k)
    except TrainingError as error:
        return f"The last-layer readout could not be measured: {error}."
    return (
        f"With all hops read after the last layer {_solved(steps)} learned every hop "
        f"({_in_words(steps, k)})."
    )


def _solved(steps: Sequence[Sequence[float]]) -> str:
    return f"{sum(math.isfinite(max(row)) for row in steps)} of {len(steps)} runs"


def _in_words(steps: Sequence[Sequence[float]], k: int) -> str:
    """Median steps at which hops are learned."""
    medians = [float(np.median(column)) for column in zip(*steps, strict=True)]
    words = (
        f"{hop}-hop " + (f"at step {step:.0f}" if math.isfinite(step) else "never")
        for hop, step in zip(_hops(k), medians, strict=True)
    )
    return ", ".join(words) + " (medians)"


def _curriculum(runs: Runs, k: int) -> Finding:
    last = [float(_accuracies(run, k)[-1]) for run in runs.select(arm="curriculum")]
    steps = _learning_steps(runs, "curriculum", k)
    ours = f"Last accuracy on {k} hops {mean_and_spread(last)}; {_in_words(steps, k)}."
    return Finding(
        min(last) > LEARNED,
        ours,
        {"accuracies": last, "steps": steps},
        _last_layer(runs, "curriculum-last", k),
    )


def _patterns(runs: Runs, k: int) -> Finding:
    layers = range(1, len(_hops(k)) + 1)
    shares = {
        layer: [pattern_shares(run, layer) for run in runs.select(arm="attention-only")]
        for layer in layers
    }
    holds = (
        min(share for share, _ in shares[1]) >= 0.95 and min(share for share, _ in shares[2]) >= 0.5
    )
    words = [
        f"layer {layer}: {mean_and_spread([share for share, _ in each])} of the queries"
        for layer, each in shares.items()
    ]
    values: dict[str, Any] = {
        f"layer {layer}": {
            "argmax share": [share for share, _ in each],
            "mean weight": [mass for _, mass in each],
        }
        for layer, each in shares.items()
    }
    shunned = [complement_share(run) for run in runs.select(arm="attention-only")]
    values["layer 1, all but the target"] = shunned
    either = mean_and_spread(
        [share + others for (share, _), others in zip(shares[1], shunned, strict=True)]
    )
    note = (
        f"Of the queries of layer 1 {either} look either at (i, π_i(j)) or at all of block i "
        f"but it ({mean_and_spread(shunned)}): "
        "the value that a permutation lacks there tells as much."
    )
    return Finding(holds, "Argmax on the target: " + "; ".join(words) + ".", values, note)


# --- tables and figures ---------------------------------------------------------------------------
def _arms_table(runs: Runs, k: int) -> Table:
    rows: dict[str, list[Any]] = {
        "arm": [],
        "readout": [],
        "runs that learned all": [],
        "steps": [],
        f"last accuracy on {k} hops": [],
    }
    for arm in runs.values_of("arm"):
        try:
            group = runs.select(arm=arm)
        except TrainingError:  # an arm that failed leaves the others their rows
            continue
        hops = (k,) if arm == "direct" else _hops(k)
        steps = [[_learned_at(run, hop) for hop in hops] for run in group]
        last = mean_and_spread([float(_accuracies(run, k)[-1]) for run in group])
        median = float(np.median([max(row) for row in steps]))
        row = (
            arm,
            runs.labels[runs.names(arm=arm)[0]]["readout"],
            _solved(steps),
            f"{median:.0f}" if math.isfinite(median) else "not learned",
            last,
        )
        for column, value in zip(rows.values(), row, strict=True):
            column.append(value)
    return Table(
        rows,
        (
            "Every arm: staged or last-layer readout, a small start (N(0, 0.02) weights), one hop "
            "asked an example in place of all."
        ),
    )


def _pattern_table(runs: Runs, k: int) -> Table:
    rows: dict[str, list[Any]] = {
        "arm": [],
        "layer": [],
        "argmax on target": [],
        "weight on target": [],
        "all but the target": [],
    }
    for arm in ("attention-only", "mixture", "mixture-last"):
        for layer in range(1, len(_hops(k)) + 1):
            group = runs.select(arm=arm)
            shares = [pattern_shares(run, layer) for run in group]
            complement = (
                mean_and_spread([complement_share(run) for run in group]) if layer == 1 else ""
            )
            row = (
                arm,
                layer,
                mean_and_spread([share for share, _ in shares]),
                mean_and_spread([mass for _, mass in shares]),
                complement,
            )
            for column, value in zip(rows.values(), row, strict=True):
                column.append(value)
    return Table(
        rows,
        "The head of each layer that follows the construction most (uniform attention has "
        "1/(kN)), and the share of queries whose least weight in their "
        "block is on the target.",
    )


def _hop_figure(runs: Runs, k: int, arm: str, readout: str) -> Figure:
    x, y = {}, {}
    for hop in _hops(k):
        for seed, run in enumerate(runs.select(arm=arm)):
            name = f"{hop}-hop" if seed == 0 else f"{hop}-hop, seed {seed}"
            x[name], y[name] = _steps(run), _accuracies(run, hop)
    caption = (
        "Test accuracy of every hop over the steps of mixture training, a curve a seed: each "
        "longer hop is learned after the shorter one."
    )
    chance = {"chance": 1 / task_of(runs.select(arm=arm)[0]).n}
    return figures.lines(
        x,
        y,
        title=f"Mixture, {readout}",
        x_title="step",
        y_title="test accuracy (0–1)",
        y_range=(0, 1),
        levels=chance,
        caption=caption,
    )


def _arms_figure(runs: Runs, k: int) -> Figure:
    x, y = {}, {}
    for arm in ("mixture", "curriculum", "direct"):
        for seed, run in enumerate(runs.select(arm=arm)):
            name = arm if seed == 0 else f"{arm}, seed {seed}"
            x[name], y[name] = _steps(run), _accuracies(run, k)
    caption = (
        f"Test accuracy on {k} hops: with easier data, or easier data first, it is learned; "
        f"from {k}-hop labels alone it stays at chance."
    )
    chance = {"chance": 1 / task_of(runs.select(arm="direct")[0]).n}
    style: dict[str, Any] = {
        "x_title": "step",
        "y_title": "test accuracy (0–1)",
        "y_range": (0, 1),
        "levels": chance,
    }
    return figures.lines(x, y, title="With and without easier data", caption=caption, **style)


def _attention_figure(runs: Runs) -> Figure:
    run = runs.select(arm="attention-only")[0]
    subject = run.subject(n_examples=64)
    pattern = subject.activation("blocks.0.attn.hook_pattern").mean(0)[0]
    targets = pattern_targets(run, subject.data.tokens[:1], 1)[0].tolist()
    task = task_of(run)
    names = [f"({p // task.n + 1},{p % task.n + 1})" for p in range(task.n_ctx)]
    caption = (
        "Mean attention of the only head of layer 1; circles mark (i, π_i(j)), the hidden "
        "permutations."
    )
    titles: dict[str, Any] = {
        "title": "First-layer attention against π",
        "x_title": "attended position (i, j)",
        "y_title": "query position (i, j)",
    }
    shown = figures.heatmap(
        pattern, x=names, y=names, z_title="attention (0–1)", caption=caption, **titles
    )
    marker = {"symbol": "circle-open", "size": 9, "color": "#D55E00"}
    circles = {
        "type": "scatter",
        "mode": "markers",
        "x": [names[t] for t in targets],
        "y": names,
        "marker": marker,
        "name": "(i, π_i(j))",
        "showlegend": False,
    }
    return Figure({**shown.spec, "data": [*shown.spec["data"], circles]}, shown.caption)


def _pattern_figure(runs: Runs, k: int) -> Figure:
    layers = [f"layer {layer}" for layer in range(1, len(_hops(k)) + 1)]
    series = {}
    for arm in ("attention-only", "mixture"):
        group = runs.select(arm=arm)
        series[arm] = [
            float(np.mean([pattern_shares(run, layer)[0] for run in group]))
            for layer in range(1, len(layers) + 1)
        ]
    caption = (
        "Share of queries whose largest weight lies where the construction puts it: layer 1 on "
        "(i, π_i(j)), layer l+1 on (i + 2^(l-1), hop(j))."
    )
    return figures.bars(
        layers,
        series,
        title="Hop length of every layer",
        x_title="layer",
        y_title="share of queries (0–1)",
        caption=caption,
    )
