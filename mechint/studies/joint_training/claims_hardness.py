"""Claims j to m of the joint-training paper: what makes an operation take more parameters.

Without a transition inside the range of trained sizes none of them has a verdict.
"""

from __future__ import annotations

import math

import numpy as np

from mechint.studies.core.claims import Criterion, Finding, Part, Replaced, claim
from mechint.studies.core.evidence import every, ratio_within
from mechint.studies.joint_training.measures import Measures
from mechint.studies.joint_training.transitions import BY_POINT, INSIDE

NESTED = ("overnight", "full")
FULL = ("full",)


@claim(
    "j",
    statement="the transition is set by operands + depth, and nesting costs more than operands",
    paper="3 to 5 operands and nesting levels: settings of one sum group together (Fig. 34)",
    criterion=Criterion(
        "95% bootstrap intervals: the rank correlation of the 50% points with operands + depth "
        "lies above {rank:g}, and the mean factor that one level more costs, over that of one "
        f"operand more, lies above {{more:g}}. Control: every curve passes 50% {INSIDE}.",
        rank=0.5,
        more=1.0,
    ),
    reason="0.5 over nine settings would be chance at p = 0.09; the interval must lie above it.",
    sizes=FULL,
    replaced=(
        Replaced(
            "rank correlation of the 50% points with operands + depth at least 0.8, and on average "
            "one level more costs more parameters than one operand more",
            "not tested",
            "not measured",
            "Point estimates without interval or control.",
        ),
        BY_POINT,
    ),
)
def operands_and_depth(study: Measures, criterion: Criterion) -> Finding:
    """Rank correlation of the 50% points with size, and the factor per level and operand."""
    from scipy import stats

    cells = [(m, k) for m in (3, 4, 5) for k in (3, 4, 5)]
    arms = [f"{m} operands, depth {k}" for m, k in cells]
    sums = [m + k for m, k in cells]

    def of(points: np.ndarray) -> tuple[float, float]:
        """(rank correlation, ratio of factors) of (cell,) log points."""
        grid = points.reshape(3, 3)  # (operands, depth)
        level, operand = np.diff(grid, axis=1).mean(), np.diff(grid, axis=0).mean()
        rank = stats.spearmanr(sums, points).statistic  # type: ignore[attr-defined]
        return float(np.nan_to_num(rank)), math.exp(float(level - operand))

    points = np.log([study.transition(arm).at_least() for arm in arms])
    draws = np.array([of(row) for row in np.log([study.transition(arm).draws() for arm in arms]).T])
    ends = [tuple(np.quantile(column, (0.025, 0.975))) for column in draws.T]
    rank, more = of(points)
    n = min(len(study.transition(arm).accuracies) for arm in arms)
    parts = (
        ratio_within("rank correlation", rank, ends[0], criterion["rank"], math.inf, n),
        ratio_within("level over operand", more, ends[1], criterion["more"], math.inf, n),
    )
    ours = f"rank correlation {rank:.2f}; one level more costs {more:.2f} times one operand more"
    values = {"points": dict(zip(arms, np.exp(points).tolist(), strict=True))}
    return Finding(parts, ours, values, control=study.crossing(*arms))


@claim(
    "k",
    statement="chain of thought helps nearly everywhere, and sums are not learned without it",
    paper="Fig. 30",
    criterion=Criterion(
        "Without it ADD is below {sums:g} in every run of every width, and the 95% bootstrap "
        "interval of the factor by which the 50% point without it lies above the one with it lies "
        "above {factor:g} for MAX or for MED, and below {factor:g} for neither. Control: with it "
        f"ADD passes 50% {INSIDE}, and without it models as large were trained.",
        sums=0.5,
        factor=1.0,
    ),
    reason="The claim as it stands; nearly everywhere leaves room for one that does not differ.",
    sizes=NESTED,
    replaced=(
        Replaced(
            "without it ADD reaches 50% at no width, and no operation's 50% point is lower than "
            "with it",
            "not tested",
            "not measured",
            "Point estimates without interval or control.",
        ),
        BY_POINT,
    ),
)
def chain_of_thought(study: Measures, criterion: Criterion) -> Finding:
    """Bootstrap factors between the 50% points without and with a chain of thought."""
    fits = study.transition("ADD, no steps"), study.transition("ADD")
    without, as_large = fits[0].accuracies, fits[0].parameters.max() >= fits[1].at_least()
    low = [bool(accuracy < criterion["sums"]) for accuracy in without]
    found = {name: study.factor(f"{name}, no steps", name, low=1.0)[0] for name in ("MAX", "MED")}
    outcomes = [part.met for part in found.values()]
    helps = False if False in outcomes else (True if True in outcomes else None)
    shown = ", ".join(f"{name} {part.shown}" for name, part in found.items())
    n = min(part.n for part in found.values())
    parts = (
        every("ADD without steps", low, f"at most {without.max():.2f}"),
        Part("steps lower the 50% point", helps, shown, n),
    )
    ours = f"ADD without steps at most {without.max():.2f}; factor without over with: {shown}"
    control = study.crossing("ADD") if as_large else Part("models as large", False, "none", n)
    return Finding(parts, ours, {}, control=control)


@claim(
    "l",
    statement="the transition of ADD grows with the modulus, by a larger factor than that of MAX",
    paper="n = 10 to 226, most for ADD and for PROD at primes (Fig. 6)",
    criterion=Criterion(
        "95% bootstrap intervals of factors between 50% points: ADD at n = 26 over n = 10 lies "
        "above {grows:g}, and that factor over the one of MAX lies above {more:g}. Control: every "
        f"curve passes 50% {INSIDE}.",
        grows=1.0,
        more=1.0,
    ),
    reason=(
        "Moduli whose values are one character each, with data in proportion to them. PROD is "
        "trained at one prime, and how its transition grows is not judged."
    ),
    sizes=FULL,
    replaced=(
        Replaced(
            "the 50% point of ADD grows from n = 10 over 20 to 26, and by a larger factor than "
            "that of MAX",
            "not tested",
            "not measured",
            "Point estimates without interval or control.",
        ),
        BY_POINT,
    ),
)
def modulus(study: Measures, criterion: Criterion) -> Finding:
    """Bootstrap factors between the 50% points at the larger and the smaller modulus."""
    arms = [f"{name}, n = {n}" for name in ("ADD", "MAX") for n in (26, 10)]
    fits = [study.transition(arm) for arm in arms]
    points = [fit.at_least() for fit in fits]
    draws = [fit.draws() for fit in fits]
    n = min(len(fit.accuracies) for fit in fits)
    growth = draws[0] / draws[1]
    ends = np.quantile([growth, growth * draws[3] / draws[2]], (0.025, 0.975), axis=1)
    grown = float(points[0] / points[1])
    more = grown * float(points[3] / points[2])
    parts = (
        ratio_within(
            "ADD, n = 26 over 10", grown, tuple(ends[:, 0]), criterion["grows"], math.inf, n
        ),
        ratio_within("over that of MAX", more, tuple(ends[:, 1]), criterion["more"], math.inf, n),
    )
    return Finding(
        parts, study.describe(*arms), study.numbers(*arms), control=study.crossing(*arms)
    )


@claim(
    "m",
    statement=(
        "a random table for sums is easy with uneven answers, and as hard as the true one with "
        "even answers"
    ),
    paper="Fig. 32",
    criterion=Criterion(
        "95% bootstrap intervals: the 50% point of the true table over that with uneven answers "
        "lies above {easier:g}, and over that with even answers within a factor {alike:g} either "
        f"way. Control: the true table passes 50% {INSIDE}.",
        easier=1.5,
        alike=2.0,
    ),
    reason="Easier and as hard, with room for the grid of widths.",
    sizes=FULL,
    replaced=(
        Replaced(
            "the 50% point with uneven answers is at most half of that of the true table, with "
            "even answers within a factor 2 of it",
            "not tested",
            "not measured",
            "Point estimates without interval or control.",
        ),
        BY_POINT,
    ),
)
def random_tables(study: Measures, criterion: Criterion) -> Finding:
    """Bootstrap factors between the 50% points of the true table and of random ones."""
    alike = criterion["alike"]
    uneven, ratio = study.factor("ADD", "ADD, uneven table", low=criterion["easier"])
    even, other = study.factor("ADD", "ADD, even table", 1 / alike, alike)
    ours = study.describe("ADD", "ADD, uneven table", "ADD, even table")
    values = {"uneven": ratio, "even": other}
    return Finding((uneven, even), ours, values, control=study.crossing("ADD"))
