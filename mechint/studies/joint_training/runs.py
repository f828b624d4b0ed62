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
    MODULI,
    OVERNIGHT_ARMS,
    RECURRENT,
    THREE_LAYERS,
    TOGETHER,
    judged_operation,
)
from mechint.studies.joint_training.claims import CLAIMS
from mechint.studies.joint_training.measures import MIXTURES, Measures
from mechint.studies.joint_training.triplet_runs import (
    EARLY_STOP,
    LEARNED,
    TRIPLET_TRAIN,
    triplet_arms,
)

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

EXAMPLES = 45_000
"""Nested expressions that a model of the paper is trained on."""

CURRICULA = 8
"""Seeds of the curriculum: where none of five learns, half of all may, by the exact interval."""

FULL_WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
FULL_TRAIN = {
    "steps": 20_000,
    "evaluate_every": 200,
    "checkpoints": "log",
    "n_checkpoints": 12,
    **EARLY_STOP,
}


def nested(
    arm: str,
    parameters: Mapping[str, Any],
    width: int,
    seeds: Sequence[int],
    train: Mapping[str, Any],
    stage: int = 0,
    model: Mapping[str, Any] = RECURRENT,
    own: bool = False,
) -> Iterator[PlannedRun]:
    """Runs on nested expressions, by the recurrent model unless another is named. own: each seed
    has held-out triplets and tables of its own; otherwise all share those of seed 0.
    """
    for seed in (FRESH + one for one in seeds):
        drawn = {"excluded_seed": seed, "table_seed": seed} if own else {}
        yield plan(
            f"{arm}-{width}".replace(" ", "-"),
            "listops",
            {"excluded": None, **parameters, **drawn},
            {**model, "d_model": width},
            train,
            seed=seed,
            stage=stage,
            arm=arm,
            width=width,
            init="normal",
            judged=judged_operation(arm),
        )


def curricula(
    widths: Sequence[int],
    seeds: int,
    train: Mapping[str, Any],
    stage: int = 0,
    **settings: Any,
) -> Iterator[PlannedRun]:
    """MAX and MED to proficiency in the first half, then ADD ramped up; beside ADD alone for as
    many steps. Neither stops early: the ramp comes late. settings: of `nested`.
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
        yield from nested(arm, parameters, width, range(seeds), late, stage, **settings)


def tables(seeds: Sequence[int], stage: int = 0) -> Iterator[PlannedRun]:
    """Permutation blocks as plain 36 by 36 tables, the widest models first; a run ends where it has
    learned them.
    """
    train = {**NESTED_TRAIN, "evaluate_every": 250, **LEARNED}
    for arm, widths in TABLE_WIDTHS.items():
        for width in reversed(widths):
            yield from nested(arm, {**BLOCKS[arm], **TABLES}, width, seeds, train, stage)


def three_layers(seeds: int, train: Mapping[str, Any], examples: int) -> Iterator[PlannedRun]:
    """Whose norm ratios the paper compares; to the end, for ADD alone has a long plateau. All share
    the held-out triplets: a pair is compared on sums that neither has seen.
    """
    long = {**train, "stop_after": train["steps"]}
    for arm, parameters in THREE_LAYERS.items():
        fixed = {**parameters, "train_examples": examples}
        yield from nested(arm, fixed, 128, range(seeds), long, model=LAYERED)


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
    planned += curricula((24, 48), CURRICULA, NESTED_TRAIN, stage=5)
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
    widths: Sequence[int] = FULL_WIDTHS,
    seeds: int = 5,
    train: Mapping[str, Any] | None = None,
    examples: int = EXAMPLES,
) -> list[PlannedRun]:
    """ListOps with chain of thought over the paper's widths, the recurrent model; the curriculum
    and what norm ratios are of, in layers of their own; the triplets. `examples` are trained on,
    in proportion to the modulus where moduli are compared; a curriculum has ever new ones.
    """
    train = dict(FULL_TRAIN if train is None else train)
    planned: list[PlannedRun] = []
    for arm, parameters in FULL_ARMS.items():
        most = examples * parameters["n"] // 10 if arm in MODULI else examples
        fixed = {**parameters, "train_examples": most}
        for width in widths:
            planned += nested(arm, fixed, width, range(seeds), train, own=True)
    pairs = CURRICULA if seeds > 1 else 1
    planned += curricula((24, 48), pairs, train, model=LAYERED, own=True)
    planned += three_layers(seeds, train, examples)
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
    setting: ClassVar[str] = (
        "Below size full, nested expressions are ever new, where the paper trains on some 45,000 "
        "fixed ones; all seeds of a modulus share the held-out operands, so that intervals hold "
        "initialization and batches only; and models are one block passed three times, where the "
        "paper's curriculum (i) trains layers of their own. At full expressions are as many as in "
        "the paper, in (i) ever new; each seed has its own operands and tables, in (h) all share "
        "one set; and (i) trains three layers."
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
