"""What the joint-training study trains: Small Models, Smarter Learning: The Power of Joint Task
Training.

laptop: triplets of digits, and permutation blocks as plain tables. overnight: the paper's nested
expressions with chain of thought at n = 10, of which one run 48 wide takes a core three minutes;
sums alone and beside others come first, then the curriculum, and the other arms. Three widths of
three arms with three seeds are 80 minutes of a core, and decide none of the claims about them: they
are not laptop's, which has 25 minutes in all.
full: n = 20 and 26 at the paper's widths and steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from mechint.studies.core.study import FRESH, Analysis, PlannedRun, Runs, Study, plan
from mechint.studies.joint_training import figures as drawn
from mechint.studies.joint_training.arms import (
    BLOCKS,
    FULL_ARMS,
    LAYERED,
    OVERNIGHT_ARMS,
    RECURRENT,
    SUMS,
    THREE_LAYERS,
    TOGETHER,
    judged_operation,
)
from mechint.studies.joint_training.claims import CLAIMS
from mechint.studies.joint_training.measures import MIXTURES, Measures

TRIPLET_WIDTHS = (8, 16, 32, 64)
TRIPLET_TRAIN = {"steps": 5000, "evaluate_every": 50}
LEARNED = {"stop_accuracy": 0.99}
"""A run on triplets ends where it has learned all that is held out: what it costs after that
decides nothing.
"""

EARLY_STOP = {"stop_patience": 10, "stop_after": 2000, "stop_delta": 2.5e-4}
"""The paper's rule: the training loss changed by less than this over ten evaluations."""

NESTED_TRAIN = {"steps": 10_000, "evaluate_every": 1000}
"""Models that have not learned yet write long nonsense: reading it costs as much as 200 steps."""

NESTED_WIDTHS = (48, 24, 64, 32, 96)

FIRST_NIGHTS: Sequence[Sequence[int]] = ((48, 24), (64, 32), (96,))
"""Widths of sums alone and beside others with two seeds, in the order in which nights reach them:
where those stand at every width the range holds a transition or does not. More seeds narrow its
interval, first that of sums alone, which with two seeds is the widest by far.
"""

WIDER = (128, 192)
"""Widths of sums alone where five seeds up to 96 wide left their curve below 50%. They take longest
of all; the third seed waits until the curriculum stands.
"""

TABLES = {"operands": 2, "min_operands": 2, "depth": 1}
"""Permutation blocks as plain 36 by 36 tables: the cheap form of the claim about them."""

TABLE_WIDTHS: Mapping[str, Sequence[int]] = {
    "OP": (24, 40, 56),
    "OP in OP+OP_TOP+OP_BOTTOM": (12, 16, 24),
}
"""Around the 50% point of each arm, as runs of another seed had it (OP alone 0.05 at width 24, 0.76
at 48; in the mixture 0.02 at width 12, 1.00 at 16).
"""

FULL_WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
FULL_TRAIN = {
    "steps": 20_000,
    "evaluate_every": 200,
    "checkpoints": "log",
    "n_checkpoints": 12,
    **EARLY_STOP,
}


def triplets(
    arm: str,
    operations: Sequence[str],
    width: int,
    seeds: int,
    train: Mapping[str, Any],
    init: str = "normal",
    stage: int = 0,
    **task: Any,
) -> Iterator[PlannedRun]:
    """Runs on triplets of digits, not nested: the paper's most controlled comparison."""
    judged = "ADD" if "ADD" in operations else operations[-1]
    for seed in range(FRESH, FRESH + seeds):
        name = f"triplets-{arm}-{width}" + (f"-{init}" if init != "normal" else "")
        yield plan(
            name.replace(" ", "-"),
            "listops-triplets",
            {"operations": tuple(operations), **task},
            {"d_model": width, "init_mode": init},
            train,
            seed=seed,
            stage=stage,
            arm=f"triplets {arm}",
            width=width,
            init=init,
            judged=judged,
        )


def triplet_arms(
    train: Mapping[str, Any],
    widths: Sequence[int] = TRIPLET_WIDTHS,
    seeds: int = 12,
    few: int = 5,
    stage: int = 0,
    **task: Any,
) -> Iterator[PlannedRun]:
    """Sums alone and beside others at every width; each operation alone at the middle one; the
    early stop, of both as in the paper, and the other initial weights at the widest. 300 of each
    operation is shown and not judged, by fewer seeds.
    """
    early, train = {**train, **EARLY_STOP}, {**train, **LEARNED}
    middle, widest = widths[-2], widths[-1]
    per_operation: dict[str, Any] = {"per_operation": 300 if task.get("n", 10) == 10 else 10}
    for width in reversed(widths):
        yield from triplets("MAX+MED+ADD", SUMS, width, seeds, train, stage=stage, **task)
        yield from triplets("ADD", ("ADD",), width, seeds, train, stage=stage, **task)
        yield from triplets(
            "300 each of MAX+MED+ADD",
            SUMS,
            width,
            few,
            train,
            stage=stage,
            **task,
            **per_operation,
        )
    for name in ("MAX", "MIN", "MED", "PROD", "NADD"):
        yield from triplets(name, (name,), middle, few, train, stage=stage, **task)
    for arm in ("MAX+MED+ADD", "ADD"):
        stopped = f"{arm}, early stop"
        yield from triplets(stopped, arm.split("+"), widest, seeds, early, stage=stage, **task)
    for arm in ("MAX+MED+ADD", "ADD"):
        yield from triplets(arm, arm.split("+"), widest, few, train, "torch", stage, **task)


def nested(
    arm: str,
    parameters: Mapping[str, Any],
    width: int,
    seeds: Sequence[int],
    train: Mapping[str, Any],
    stage: int = 0,
    model: Mapping[str, Any] = RECURRENT,
) -> Iterator[PlannedRun]:
    """Runs on nested expressions, by the recurrent model unless another is named."""
    for seed in seeds:
        yield plan(
            f"{arm}-{width}".replace(" ", "-"),
            "listops",
            {"excluded": None, **parameters},
            {**model, "d_model": width},
            train,
            seed=FRESH + seed,
            stage=stage,
            arm=arm,
            width=width,
            init="normal",
            judged=judged_operation(arm),
        )


def curricula(
    widths: Sequence[int], seeds: int, train: Mapping[str, Any], stage: int = 0
) -> Iterator[PlannedRun]:
    """MAX and MED to proficiency in the first half, then ADD ramped up; beside ADD alone for as
    many steps. Neither stops early: the ramp comes late.
    """
    steps = train["steps"]
    ramp = {
        "n": 10,
        "operations": ("MAX", "MED"),
        "ramp_operation": "ADD",
        "ramp_start": steps // 2,
        "ramp_steps": max(1, steps // 20),
    }
    late = {**train, "stop_after": steps}
    alone = {"n": 10, "operations": ("ADD",)}
    arms = {"curriculum": ramp, "ADD beside the curriculum": alone}
    for width, (arm, parameters) in itertools.product(widths, arms.items()):
        yield from nested(arm, parameters, width, range(seeds), late, stage)


def tables(seeds: Sequence[int], stage: int = 0) -> Iterator[PlannedRun]:
    """Permutation blocks as plain 36 by 36 tables, the widest models first; a run ends where it has
    learned them.
    """
    train = {**NESTED_TRAIN, "evaluate_every": 250, **LEARNED}
    for arm, widths in TABLE_WIDTHS.items():
        for width in reversed(widths):
            yield from nested(arm, {**BLOCKS[arm], **TABLES}, width, seeds, train, stage)


def three_layers(seeds: int, train: Mapping[str, Any]) -> Iterator[PlannedRun]:
    """Whose norm ratios the paper compares; to the end, for ADD alone has a long plateau."""
    long = {**train, "stop_after": train["steps"]}
    for arm, parameters in THREE_LAYERS.items():
        yield from nested(arm, parameters, 128, range(seeds), long, model=LAYERED)


def smoke() -> list[PlannedRun]:
    """Triplets of four digits and short nested expressions for a few steps."""
    train = {"steps": 6, "evaluate_every": 3, "batch_size": 8, "eval_examples": 16}
    small = {"n": 4, "operands": 2, "depth": 1}
    arms = [
        nested(arm, {**TOGETHER[arm], **small}, width, (0,), train)
        for arm in TOGETHER
        for width in (8, 12)
    ]
    return [*triplet_arms(train, (8, 12), 2, 1, n=4), *itertools.chain(*arms)]


def laptop() -> list[PlannedRun]:
    """Permutation blocks as tables and triplets of digits mod 10."""
    return [*tables(range(3)), *triplet_arms(TRIPLET_TRAIN)]


def overnight() -> list[PlannedRun]:
    """Nested expressions at n = 10, sums alone and beside others first; then triplets."""

    def together(
        widths: Sequence[int], seeds: Sequence[int], arms: Iterable[str], stage: int
    ) -> Iterator[PlannedRun]:
        for width, arm in itertools.product(widths, arms):
            yield from nested(arm, TOGETHER[arm], width, seeds, NESTED_TRAIN, stage)

    planned = [
        one
        for stage, widths in enumerate(FIRST_NIGHTS)
        for one in together(widths, (0, 1), TOGETHER, stage)
    ]
    planned += together(NESTED_WIDTHS, (2, 3, 4), ("ADD",), stage=3)
    planned += together(WIDER, (0, 1), ("ADD",), stage=4)
    planned += curricula((24, 48), 8, NESTED_TRAIN, stage=5)
    planned += together(WIDER, (2,), ("ADD",), stage=6)
    planned += together(NESTED_WIDTHS, (2, 3, 4), MIXTURES, stage=7)
    planned += tables(range(5), stage=8)
    for width, arm in itertools.product((*sorted(NESTED_WIDTHS), *WIDER), OVERNIGHT_ARMS):
        if width in WIDER and arm != "ADD, no steps":
            continue  # beside sums alone, which go so far
        planned += nested(arm, OVERNIGHT_ARMS[arm], width, range(3), NESTED_TRAIN, stage=9)
    planned += triplet_arms(TRIPLET_TRAIN, stage=10)
    return planned


def full(
    widths: Sequence[int] = FULL_WIDTHS, seeds: int = 5, train: Mapping[str, Any] | None = None
) -> list[PlannedRun]:
    """ListOps with chain of thought over the paper's widths, the recurrent model; the curriculum;
    the layered models of the norm ratios; the triplets.
    """
    train = dict(FULL_TRAIN if train is None else train)
    planned = [
        one
        for arm, width in itertools.product(FULL_ARMS, widths)
        for one in nested(arm, FULL_ARMS[arm], width, range(seeds), train)
    ]
    planned += curricula((24, 48), seeds, train)
    planned += three_layers(seeds, train)
    few = {name: train[name] for name in ("steps", "evaluate_every")}
    return [*planned, *triplet_arms(few, (8, 16, 32, 64) if seeds > 1 else (8, 12), max(2, seeds))]


class JointTraining(Study):
    """Nested arithmetic, one operation alone against several together."""

    name: ClassVar[str] = "joint-training"
    title: ClassVar[str] = "Joint training: hard operations learned beside easy ones"
    paper: ClassVar[str] = "Small Models, Smarter Learning: The Power of Joint Task Training"
    summary: ClassVar[str] = (
        "Small transformers learn nested operations on digits. Maxima and medians take few "
        "parameters, sums many; but beside maxima and medians, or beside products, sums are "
        "learned by models several times smaller. Embeddings of models that learned sums show "
        "parity and order, and where tables are shuffled nothing is gained: the easy operations "
        "teach the numbers that the hard ones need."
    )
    claims = CLAIMS

    def runs(self, size: str) -> list[PlannedRun]:
        """The arms of `size`: triplets at the laptop, nested expressions above."""
        return {"smoke": smoke, "laptop": laptop, "overnight": overnight, "full": full}[size]()

    def analyze(self, runs: Runs, size: str) -> Analysis:
        """Judge claims a to m, and draw transitions, outcomes, embeddings and norm ratios."""
        analysis, measures = Analysis(self.name, size, runs.say), Measures(runs, size)
        for spec in self.claims:
            analysis.add_claim(spec, measures)
        drawn.draw(analysis, measures)
        return analysis
