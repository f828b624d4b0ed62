"""The language models of the capacity study: a comparison task, injected at set frequencies and
gaps, in models of several widths.

The background is the synthetic language of `tasks._corpus.language`; the injected task compares two
of a few words by a hidden order. An instance is rare, so a model must keep what it learned between
showings while the language pulls at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mechint.studies.core.study import FRESH, PlannedRun, plan

CHECKPOINTS = 5
"""Kept per run, evenly spaced, so that gradients can be looked at while the task is learned."""


@dataclass(frozen=True)
class Budget:
    """What a size trains. tokens: compared words; texts of n_ctx tokens over a vocabulary of
    `words`; first: seeds that are trained before the others. A gap at which a frequency asks for
    more than every text of a burst is left out. own: each seed has a hidden order, a language and a
    split of its own; otherwise all seeds share those of seed 0.

    laptop: 32 words, and steps enough for the widest model to learn the task at the higher
    frequency. With 10 words and half the steps, tried first, no model did (held-out accuracies from
    0.61 to 0.73): there are too few pairs to generalize from.
    """

    widths: tuple[int, ...]
    frequencies: tuple[float, ...]
    gaps: tuple[int, ...]
    steps: int
    seeds: int
    tokens: int
    n_ctx: int
    words: int
    batch_size: int
    n_layers: int = 2
    lr: float = 5e-3
    first: int = 5
    own: bool = False


BUDGETS = {
    "smoke": Budget((8, 16), (0.3, 0.1), (1,), 8, 1, 8, 8, 64, 16),
    "laptop": Budget((8, 16, 32), (0.12, 0.03), (1, 8), 4000, 4, 32, 8, 96, 64),
    "overnight": Budget(
        (8, 16, 32, 64), (0.12, 0.06, 0.03, 0.015), (1, 8, 32), 8000, 5, 32, 8, 96, 64, first=3
    ),
    "full": Budget(
        (64, 256, 768),
        (0.03, 0.003),
        (1, 32),
        20_000,
        5,
        100,
        64,
        2048,
        256,
        8,
        1e-3,
        own=True,
    ),
}


def language_runs(size: str) -> list[PlannedRun]:
    """One run per width, frequency, gap and seed, after the regressions; `frequency` × `gap` is the
    share of a burst's texts with an instance. The first seeds of every width come before the others
    of any, so that a night which ends early can be judged.
    """
    budget = BUDGETS[size]
    inner = {"n": budget.tokens, "equals": False, "train_fraction": 0.8}
    task = {"n_ctx": budget.n_ctx, "vocab_size": budget.words, "inject": "comparison"}

    def drawn(seed: int) -> dict[str, Any]:
        if not budget.own:
            return {"inject_parameters": inner}
        order = {**inner, "bijection_seed": seed}
        return {"inject_parameters": order, "inject_seed": seed, "language_seed": seed}

    train = {
        "steps": budget.steps,
        "batch_size": budget.batch_size,
        "lr": budget.lr,
        "evaluate_every": max(1, budget.steps // 20),
        "eval_examples": 512,
        "checkpoints": "linear",
        "n_checkpoints": CHECKPOINTS,
    }
    return [
        plan(
            f"language-f{frequency:g}-gap{gap}-width{width}",
            "corpus",
            {**task, **drawn(FRESH + seed), "frequency": frequency, "gap": gap},
            {"d_model": width, "n_layers": budget.n_layers, "n_heads": max(2, width // 64)},
            train,
            seed=FRESH + seed,
            stage=1 + (seed >= budget.first),
            arm="language",
            frequency=frequency,
            gap=gap,
            width=width,
        )
        for frequency in budget.frequencies
        for gap in budget.gaps
        if frequency * gap <= 1
        for width in budget.widths
        for seed in range(budget.seeds)
    ]
