"""Runs of the study of frequencies that die: additions mod 37, of which forks are trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mechint.studies.dying_frequencies.claims import CLAIMS
from mechint.studies.dying_frequencies.figures import draw
from mechint.studies.dying_frequencies.measures import measure
from mechint.studies.study import PlannedRun, Sentence, Study, arm

SEED = 3000
SEEDS = {"smoke": 2, "laptop": 48, "fresh": 0, "overnight": 128}
MODEL: Mapping[str, Any] = {"d_model": 64, "n_heads": 4, "d_mlp": 256}
TRAIN: Mapping[str, Any] = {
    **{"steps": 1000, "lr": 0.005, "weight_decay": 2.0, "grokfast": "ema"},
    **{"evaluate_every": 100, "checkpoints": "linear", "n_checkpoints": 50},
}


def plan(size: str) -> list[PlannedRun]:
    """Additions of as many seeds as the size has."""
    few = {"steps": 40, "n_checkpoints": 4} if size == "smoke" else {}
    seeds = range(SEED, SEED + SEEDS[size])
    task = {"p": 37, "train_fraction": 0.6}
    return arm("addition", "modular-arithmetic", seeds, task, MODEL, {**TRAIN, **few})


STUDY = Study(
    name="dying-frequencies",
    title="Frequencies that die: scaffold or rival?",
    paper="Our own study",
    summary=(
        "While addition mod p is learned, more frequencies grow in the embedding than the model "
        "ends with. The hypotheses: those that die are a scaffold, without which training takes "
        "longer; or they are rivals, without which it takes less. Forks decide: at the step at "
        "which they are largest they are taken out of the embedding, and training goes on."
    ),
    here="addition mod 37, 60% train, one layer 64 wide, 1,000 steps",
    there="nobody's, as far as we know",
    before=(
        "He et al. 2026 (arXiv 2602.16849) describe rivals: frequencies compete within a neuron, "
        "and weight decay prunes those that lose. Of forks without them we found nothing in one "
        "search."
    ),
    claims=CLAIMS,
    sentences=(
        Sentence("frequencies that die are a scaffold", ("a",)),
        Sentence("frequencies that die are rivals", ("b",)),
    ),
    costs={"laptop": 0.3, "overnight": 1},
    plan=plan,
    measure=measure,
    draw=draw,
)
