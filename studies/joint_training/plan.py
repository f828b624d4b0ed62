"""Runs of the joint-training study: Small Models, Smarter Learning.

laptop: triplets of digits. overnight: the paper's nested expressions with chain of thought at n =
10, of which a run 48 wide takes a core about six minutes, and permutation blocks as plain tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from mechint.studies.joint_training.claims import CLAIMS
from mechint.studies.joint_training.figures import draw
from mechint.studies.joint_training.measures import measure
from mechint.studies.study import FRESH, PlannedRun, Sentence, Study, arm

SEED = 3000
PAIRED = 7000
"""The first seed of the runs by size, and of pairs of widths."""
SUMS = ("MAX", "MED", "ADD")
EARLY_STOP = {"stop_patience": 10, "stop_after": 2000, "stop_delta": 2.5e-4}
"""The paper's rule: the training loss changed by less than this over ten evaluations."""

LEARNED = {"stop_accuracy": 0.99}
RECURRENT = {"n_layers": 1, "n_loops": 3}
"""The paper's main text: one block applied repeatedly, its output fed back."""

NESTED_TRAIN = {"steps": 10_000, "evaluate_every": 1000}
TABLE_TRAIN = {**NESTED_TRAIN, "evaluate_every": 250, **LEARNED}
TABLES = {"algebra": "permutation-blocks", "operands": 2, "min_operands": 2, "depth": 1}
"""Permutation blocks as plain 36 by 36 tables."""

Arms = Mapping[str, Mapping[str, Any]]
TOGETHER: Arms = {
    "ADD": {"n": 10, "operations": ("ADD",)},
    "ADD in MAX+MED+ADD": {"n": 10, "operations": SUMS},
    "ADD in ADD+PROD": {"n": 10, "operations": ("ADD", "PROD")},
}
NO_STEPS: Arms = {
    "MED": {"n": 10, "operations": ("MED",)},
    **{
        f"{name}, no steps": {"n": 10, "operations": (name,), "chain_of_thought": False}
        for name in ("MED", "ADD")
    },
}
BLOCKS: Arms = {
    "OP": {**TABLES, "operations": ("OP",)},
    "OP in OP+OP_TOP+OP_BOTTOM": TABLES,
}
TABLE_WIDTHS: Mapping[str, Sequence[int]] = {
    "OP": (48, 64, 80, 96, 128),
    "OP in OP+OP_TOP+OP_BOTTOM": (16, 24, 32, 48, 64),
}


def judged_operation(name: str) -> str:
    """The operation on which an arm is judged; empty where it is the whole test.

    >>> judged_operation("ADD in MAX+MED+ADD, one width"), judged_operation("ADD, no steps")
    ('ADD', '')
    """
    alone = "ADD" if name == "curriculum" else ""
    return name.partition(" in ")[0] if " in " in name else alone


def triplets(
    name: str,
    operations: Iterable[str],
    width: int,
    seeds: int,
    train: Mapping[str, Any],
    init: str = "normal",
    *,
    first: int = SEED,
    stage: int = 0,
    own: Iterable[str] = (),
    **task: Any,
) -> list[PlannedRun]:
    """Runs on triplets of digits, not nested: the paper's most controlled comparison."""
    return arm(
        f"triplets {name}",
        "listops-triplets",
        range(first, first + seeds),
        {"operations": tuple(operations), **task},
        {"d_model": width, "init_mode": init},
        train,
        folder=f"triplets-{name}-{width}-{init}".replace(", ", "-"),
        stage=stage,
        own=own,
        width=width,
        init=init,
    )


def nested(
    name: str,
    parameters: Mapping[str, Any],
    widths: Iterable[int],
    seeds: int,
    train: Mapping[str, Any],
    stage: int = 0,
    first: int = SEED,
) -> list[PlannedRun]:
    """Runs on nested expressions, by the recurrent model."""
    return [
        one
        for width in widths
        for one in arm(
            name,
            "listops",
            range(first, first + seeds),
            {"excluded": None, **parameters},
            {**RECURRENT, "d_model": width},
            train,
            folder=f"{name}-{width}",
            stage=stage,
            width=width,
            judged=judged_operation(name),
        )
    ]


def curriculum(width: int, steps: int) -> list[PlannedRun]:
    """MAX and MED to proficiency in the first half, then ADD ramped up; beside ADD alone for as
    many steps.
    """
    ramp = {"ramp_operation": "ADD", "ramp_start": steps // 2, "ramp_steps": steps // 20}
    easy = {"n": 10, "operations": ("MAX", "MED"), **ramp}
    train = {**NESTED_TRAIN, "steps": steps, "stop_after": steps}
    arms = {"curriculum": easy, "ADD beside the curriculum": TOGETHER["ADD"]}
    return [one for name in arms for one in nested(name, arms[name], (width,), 8, train, 1)]


def laptop(train: Mapping[str, Any], width: int = 64, **task: Any) -> list[PlannedRun]:
    """Sums beside maxima and medians and alone, with the paper's early stop."""
    early = {**train, **EARLY_STOP}
    return [
        *triplets("MAX+MED+ADD, early stop", SUMS, width, 2 if task else 16, early, **task),
        *triplets("ADD, early stop", ("ADD",), width, 2 if task else 32, early, **task),
    ]


def fresh(train: Mapping[str, Any]) -> list[PlannedRun]:
    """Sums beside maxima and medians and alone without an early stop, for the steps they take; then
    sums alone with it, for what they reach.
    """
    late, early = {**train, **LEARNED}, {**train, **EARLY_STOP}
    return [
        *triplets("MAX+MED+ADD", SUMS, 64, 16, late, first=FRESH),
        *triplets("ADD", ("ADD",), 64, 16, late, first=FRESH),
        *triplets("ADD, early stop", ("ADD",), 64, 48, early, first=FRESH, stage=1),
        *by_size({"steps": 5000, "evaluate_every": 100, **LEARNED}),
        *pairs(),
    ]


def by_size(train: Mapping[str, Any]) -> list[PlannedRun]:
    """Sums alone on triplets at twice the widths of the mixture; then, 32 wide, beside products,
    and a shuffled table beside maxima and medians.
    """
    run = partial(triplets, train=train, first=PAIRED, stage=2)
    both = (("MAX+MED+ADD, by size", SUMS, 1), ("ADD, by size", ("ADD",), 2))
    shuffled: dict[str, Any] = {"addition": "shuffled", "own": ("table_seed",)}
    return [
        *(one for w in (8, 16, 32) for name, of, x in both for one in run(name, of, x * w, 36)),
        *run("ADD+PROD, by size", ("ADD", "PROD"), 32, 12),
        *run("MAX+MED+shuffled ADD, by size", SUMS, 32, 12, **shuffled),
    ]


def pairs() -> list[PlannedRun]:
    """Sums alone and in a mixture at one pair of widths: nested, and permutation blocks."""
    cells = {
        **dict(zip(TOGETHER, ((64, 8), (48, 8), (48, 6)), strict=True)),
        **dict(zip(BLOCKS, ((40, 20), (24, 20)), strict=True)),
    }
    last = {**NESTED_TRAIN, "evaluate_every": NESTED_TRAIN["steps"], "checkpoints": "last"}
    kinds = ((TOGETHER, last, 3), (BLOCKS, TABLE_TRAIN, 4))
    return [
        one
        for arms, train, stage in kinds
        for name in arms
        for one in nested(
            f"{name}, one width", arms[name], cells[name][:1], cells[name][1], train, stage, PAIRED
        )
    ]


def overnight() -> list[PlannedRun]:
    """Nested expressions at n = 10, the mixtures first, then the curriculum; tables; every width of
    triplets.
    """
    widths, long = (24, 32, 48, 64, 96), {"steps": 30_000, "evaluate_every": 1000}
    cells = [
        *((name, TOGETHER[name], widths, 5, NESTED_TRAIN, 0) for name in list(TOGETHER)[1:]),
        ("ADD", TOGETHER["ADD"], (48, 64, 96, 128, 192), 5, long, 2),
        *((name, BLOCKS[name], of, 6, TABLE_TRAIN, 3) for name, of in TABLE_WIDTHS.items()),
        *((name, task, widths, 3, NESTED_TRAIN, 4) for name, task in NO_STEPS.items()),
    ]
    planned = [one for cell in cells for one in nested(*cell)]
    planned += [*curriculum(48, 10_000), *curriculum(24, 20_000)]  # MED is slow 24 wide
    run = partial(triplets, train={"steps": 5000, "evaluate_every": 50, **LEARNED})
    for width in (8, 16, 32, 64):
        planned += run("MAX+MED+ADD", SUMS, width, 12) + run("ADD", ("ADD",), width, 12)
        planned += run("300 each of MAX+MED+ADD", SUMS, width, 8, per_operation=300)
    return planned


def plan(size: str) -> list[PlannedRun]:
    """The runs of a size."""
    if size == "smoke":
        train = {"steps": 6, "evaluate_every": 3, "batch_size": 8, "eval_examples": 16}
        small = {"n": 4, "operands": 2, "depth": 1}
        nest = [nested(name, {**TOGETHER[name], **small}, (8,), 1, train) for name in TOGETHER]
        return [*laptop(train, 12, n=4), *(one for runs in nest for one in runs)]
    train = {"steps": 5000, "evaluate_every": 50}
    return overnight() if size == "overnight" else {"laptop": laptop, "fresh": fresh}[size](train)


STUDY = Study(
    name="joint-training",
    title="Joint training: hard operations learned beside easy ones",
    paper="Small Models, Smarter Learning: The Power of Joint Task Training",
    summary=(
        "Small transformers learn nested operations on digits. Maxima and medians take few "
        "parameters, sums many; but beside maxima and medians, or beside products, sums are "
        "learned by models several times smaller. Embeddings of models that learned sums show "
        "parity and order, and where tables are shuffled nothing is gained."
    ),
    here="triplets mod 10, 8 to 64 wide; nested n = 10, 10,000 steps",
    there="nested n = 20 and 26, 8 to 362 wide, 20,000 to 50,000 steps",
    claims=CLAIMS,
    sentences=(
        Sentence(
            "more models learn sums beside maxima and medians than alone",
            ("e1", "e2", "e5"),
            regime="triplets mod 10, 8 to 64 wide",
        ),
        Sentence(
            "in mixtures sums take several times fewer parameters",
            ("b2", "b1", "n1", "n2", "f", "n3"),
            regime="nested n = 10, 24 to 192 wide; permutation blocks",
        ),
        Sentence(
            "a model 48 wide learns sums after maxima and medians", ("i1",), regime="nested n = 10"
        ),
        Sentence(
            "embeddings of mixtures are regular, more than of sums alone",
            ("r3", "r2"),
            regime="triplets mod 10, 32 wide",
        ),
        Sentence(
            "sums are learned in half the steps beside maxima and medians",
            ("p",),
            regime="triplets mod 10, 64 wide",
        ),
        Sentence(
            "difficulty, shuffled tables, parity, last layers and steps are as in the figures",
            (
                *("d1", "d2", "a1", "a2", "a3", "a4", "b3", "b4", "c", "g1", "g2", "g3", "h1"),
                *("h2", "j", "k1", "k2", "l1", "m1", "m2"),
            ),
            "nested n = 20 and 26",
        ),
        Sentence(
            "models of sums alone share one layout of the digits, each in a copy of its own",
            ("r1",),
            regime="triplets mod 10, 32 wide",
            own=True,
        ),
        Sentence(
            "the number line comes before the sums",
            ("r5",),
            regime="triplets mod 10, 32 wide",
            own=True,
        ),
        Sentence(
            "on triplets fewer models learn sums beside products than alone",
            ("t4",),
            regime="triplets mod 10, 32 wide",
            own=True,
        ),
        Sentence(
            "size is not what sums alone lack",
            ("t3",),
            regime="triplets mod 10, 8 to 64 wide",
            own=True,
        ),
        Sentence(
            "sums alone take more than twice the width of the mixture",
            ("t1", "t2"),
            regime="triplets mod 10, 8 to 64 wide",
            own=True,
        ),
    ),
    costs={"laptop": 0.6, "fresh": 4.0, "overnight": 30},
    plan=plan,
    measure=measure,
    draw=draw,
)
