"""The joint-training study: which operations small transformers learn alone, and which only beside
easier ones.

Small Models, Smarter Learning: The Power of Joint Task Training.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from mechint.studies.core.study import Analysis, Planned, Runs, Study, plan
from mechint.studies.joint_training import figures as drawn
from mechint.studies.joint_training.claims import STATED
from mechint.studies.joint_training.measures import Measures

LAPTOP_TRAIN = {"steps": 5000, "evaluate_every": 250}
LAPTOP_WIDTH = 64
"""Where ADD beside MAX and MED is known to be learned, and where the arms are compared."""

FULL_WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
FULL_TRAIN = {
    "steps": 20_000,
    "evaluate_every": 200,
    "checkpoints": "log",
    "n_checkpoints": 12,
    "stop_patience": 10,
    "stop_after": 2000,
    "stop_delta": 2.5e-4,
}
RECURRENT = {"n_layers": 1, "n_loops": 3}
"""The paper's main text: one block applied repeatedly, its output fed back."""

SUMS = ("MAX", "MED", "ADD")
FULL_ARMS: Mapping[str, Mapping[str, Any]] = {
    **{
        name: {"n": 20, "operations": (name,)}
        for name in ("MAX", "MIN", "MED", "ADD", "NADD", "PROD")
    },
    "PROD prime": {"n": 19, "operations": ("PROD",)},
    "PROD prime in MAX+PROD": {"n": 19, "operations": ("MAX", "PROD")},
    "ADD in ADD+PROD": {"n": 20, "operations": ("ADD", "PROD")},
    "ADD in ADD+NADD": {"n": 20, "operations": ("ADD", "NADD")},
    "ADD in MAX+MED+ADD": {"n": 20, "operations": SUMS},
    "shuffled ADD in MAX+MED+ADD": {"n": 20, "operations": SUMS, "addition": "shuffled"},
    "ADD, even table": {"n": 20, "operations": ("ADD",), "addition": "random-uniform"},
    "ADD, uneven table": {"n": 20, "operations": ("ADD",), "addition": "random-skewed"},
    **{
        f"{name}, no steps": {"n": 20, "operations": (name,), "chain_of_thought": False}
        for name in ("MAX", "MED", "ADD")
    },
    **{
        f"{name}, n = {n}": {"n": n, "operations": (name,)}
        for name in ("MAX", "ADD")
        for n in (10, 26)
    },
    "OP": {"algebra": "permutation-blocks", "operations": ("OP",)},
    "OP in OP+OP_TOP+OP_BOTTOM": {"algebra": "permutation-blocks"},
    **{
        f"{m} operands, depth {k}": {"n": 10, "operations": SUMS, "operands": m, "depth": k}
        for m in (3, 4, 5)
        for k in (3, 4, 5)
    },
}
"""Arms of the transition curves: name → ListOps; the operation judged stands first in the name, all
of them where none does.
"""


def triplets(
    arm: str,
    operations: Sequence[str],
    width: int,
    seeds: int,
    train: Mapping[str, Any],
    init: str = "normal",
    **task: Any,
) -> Iterator[Planned]:
    """Runs on triplets of digits: the paper's most controlled comparison."""
    judged = "ADD" if "ADD" in operations else operations[-1]
    for seed in range(seeds):
        name = f"{arm}-{width}" + (f"-{init}" if init != "normal" else "")
        labels = {"arm": arm, "width": width, "init": init, "judged": judged}
        model = {"d_model": width, "init_mode": init}
        yield plan(
            name.replace(" ", "-"),
            "listops-triplets",
            {"operations": tuple(operations), **task},
            model,
            train,
            seed=seed,
            **labels,
        )


def laptop() -> list[Planned]:
    """Triplets of digits mod 10: ADD alone and beside others over four widths, each operation alone
    at one, controls.
    """
    train = LAPTOP_TRAIN
    curve = [
        triplets(arm, arm.split("+"), width, 5 if width == LAPTOP_WIDTH else 3, train)
        for width in (64, 32, 16, 8)
        for arm in ("MAX+MED+ADD", "ADD")
    ]
    alone = [
        triplets(name, (name,), 32, 2, train) for name in ("MAX", "MIN", "MED", "PROD", "NADD")
    ]
    product = triplets("ADD+PROD", ("ADD", "PROD"), LAPTOP_WIDTH, 3, train)
    shuffled = triplets("shuffled MAX+MED+ADD", SUMS, LAPTOP_WIDTH, 2, train, addition="shuffled")
    other = [
        triplets(arm, arm.split("+"), LAPTOP_WIDTH, 2, train, "torch")
        for arm in ("MAX+MED+ADD", "ADD")
    ]
    return list(itertools.chain(*curve, *alone, product, shuffled, *other))


def smoke() -> list[Planned]:
    """The laptop's arms on triplets of four digits for a few steps."""
    train = {"steps": 6, "evaluate_every": 3, "batch_size": 8}
    curve = [
        triplets(arm, arm.split("+"), width, 2, train, n=4)
        for width in (12, 8)
        for arm in ("MAX+MED+ADD", "ADD")
    ]
    alone = [
        triplets(name, (name,), 8, 1, train, n=4) for name in ("MAX", "MIN", "MED", "PROD", "NADD")
    ]
    rest = [
        triplets("ADD+PROD", ("ADD", "PROD"), 12, 1, train, n=4),
        triplets("shuffled MAX+MED+ADD", SUMS, 12, 1, train, n=4, addition="shuffled"),
        triplets("ADD", ("ADD",), 12, 1, train, "torch", n=4),
    ]
    return list(itertools.chain(*curve, *alone, *rest))


def full(
    widths: Sequence[int] = FULL_WIDTHS, seeds: int = 5, train: Mapping[str, Any] | None = None
) -> list[Planned]:
    """ListOps with chain of thought over the paper's widths, the recurrent model; the triplets; the
    curriculum.
    """
    train = dict(FULL_TRAIN if train is None else train)
    planned = []
    for arm, width, seed in itertools.product(FULL_ARMS, widths, range(seeds)):
        parameters = {"excluded": None, **FULL_ARMS[arm]}
        judged = (
            arm.replace("shuffled ", "").split(",")[0].split(" ")[0]
            if len(parameters.get("operations", "more")) > 1 and " in " in arm
            else ""
        )
        labels = {"arm": arm, "width": width, "init": "normal", "judged": judged}
        planned.append(
            plan(
                f"{arm}-{width}".replace(" ", "-"),
                "listops",
                parameters,
                {**RECURRENT, "d_model": width},
                train,
                seed=seed,
                **labels,
            )
        )
    steps = train["steps"]
    ramp = {
        "n": 10,
        "operations": ("MAX", "MED"),
        "ramp_operation": "ADD",
        "ramp_start": steps // 2,
        "ramp_steps": max(1, steps // 20),
    }
    for width, seed in itertools.product((24, 48), range(seeds)):
        for arm, parameters in {
            "curriculum": ramp,
            "ADD, n = 10, two layers": {"n": 10, "operations": ("ADD",)},
        }.items():
            labels = {
                "arm": arm,
                "width": width,
                "init": "normal",
                "judged": "ADD" if arm == "curriculum" else "",
            }
            late = {**train, "stop_after": steps}
            planned.append(
                plan(
                    f"{arm}-{width}".replace(" ", "-"),
                    "listops",
                    parameters,
                    {"d_model": width},
                    late,
                    seed=seed,
                    **labels,
                )
            )
    few = {name: train[name] for name in ("steps", "evaluate_every")}
    for arm, width, init in (
        ("MAX+MED+ADD", 64, "normal"),
        ("ADD", 64, "normal"),
        ("MAX+MED+ADD", 64, "torch"),
        ("ADD", 64, "torch"),
    ):
        planned += triplets(f"triplets {arm}", arm.split("+"), width, seeds, few, init)
    planned += triplets("triplets ADD+PROD", ("ADD", "PROD"), 64, seeds, few)
    planned += triplets("triplets shuffled MAX+MED+ADD", SUMS, 64, seeds, few, addition="shuffled")
    return planned


class JointTraining(Study):
    """Nested arithmetic, one operation alone against several together."""

    name: ClassVar[str] = "joint-training"
    title: ClassVar[str] = "Joint training: hard operations learned beside easy ones"
    summary: ClassVar[str] = (
        "Small transformers learn nested operations on digits. Maxima and medians take few "
        "parameters, sums many; but beside maxima and medians, or beside "
        "products, sums are learned by models several times smaller. Embeddings of models "
        "that learned sums show parity and order, and where tables are "
        "shuffled nothing is gained: the easy operations teach the numbers that the hard ones need."
    )

    def runs(self, size: str) -> list[Planned]:
        """The arms of `size`: triplets at the laptop, ListOps over the widths at full."""
        return {"smoke": smoke, "laptop": laptop, "full": full}[size]()

    def analyse(self, runs: Runs, size: str) -> Analysis:
        """Judge claims a to m, and draw transitions, outcomes, embeddings and norm ratios."""
        book = Analysis(self.name, size)
        study = Measures(runs, size)
        for stated in STATED:
            book.judge(stated, getattr(study, f"claim_{stated.letter}"))
        drawn.draw(book, study)
        return book
