"""Claim i of the joint-training paper: sums after maxima and medians."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mechint.errors import DataError
from mechint.intervals import clopper_pearson
from mechint.studies.core.claims import Criterion, Finding, Part, Replaced, claim
from mechint.studies.core.evidence import MIN_RUNS, more_often
from mechint.studies.core.study import mean_and_spread
from mechint.studies.joint_training.measures import SOLVED, Measures, solved


@claim(
    "i",
    statement="a small model that does not learn ADD alone learns it after MAX+MED",
    paper="48 wide (Fig. 5), and even 24, about 7 times smaller than ADD alone takes",
    criterion=Criterion(
        "24 and 48 wide, n = 10, nested, the same number of steps, each width by itself: after "
        "MAX+MED more runs are at {solved:g} on ADD than of ADD alone (Fisher's exact one-sided "
        "test, p ≤ {alpha:g}); missed where a difference that matters is excluded or the share of "
        "runs that are after MAX+MED lies below {half:g} by its exact 95% interval, provided that "
        "MAX and MED both were at {solved:g} on average when ADD came. Control: of ADD alone at "
        "most half of the runs get there, at every width.",
        solved=SOLVED,
        alpha=0.05,
        half=0.5,
    ),
    reason=(
        "Learned against not learned at the paper's widths is the claim, of one width and the same "
        "steps, half of them without ADD. Whether ADD alone lacks parameters or steps, and how "
        "many times, is asked in (b). The paper trains MAX and MED to proficiency: a width that "
        "had none is not its experiment. Overnight the model is one block passed three times, "
        "9,862 and 33,526 parameters, in place of layers of their own, two by the paper's figure "
        "(17,086 and 61,798) and three by its text, as at full (24,310 and 90,070)."
    ),
    sizes=("overnight", "full"),
    replaced=(
        Replaced(
            "mean accuracy after the curriculum at least 0.9 at a width where ADD alone stays "
            "below 0.5",
            "not tested",
            "not measured",
            "Means of few runs that are either learned or not; without a test.",
        ),
        Replaced(
            "24 and 48 wide, n = 10, nested, the same number of steps: after MAX+MED more runs are "
            "at 0.9 on ADD than of ADD alone (Fisher's exact one-sided test over both widths, p ≤ "
            "0.05)",
            {"overnight": "reproduced"},
            "7 of 16 against 0 of 16, exact p = 0.0034: 48 wide 7 of 8, 24 wide 0 of 8",
            "One test over both widths, which 24 could not fail: no run learned ADD there, and MED "
            "was at 0.73 when ADD came.",
        ),
    ),
)
def curriculum(study: Measures, criterion: Criterion) -> Finding:
    """Fisher's exact tests of runs that learn ADD, after MAX+MED against from the start, width by
    width.
    """
    arms = ("curriculum", "ADD beside the curriculum")
    found: dict[str, dict[int, list[float]]] = {
        arm: {
            width: study.accuracies(arm, width) for width in study.runs.values_of("width", arm=arm)
        }
        for arm in arms
    }
    after, alone = (found[arm] for arm in arms)
    both = [width for width in after if after[width] and alone.get(width)]
    if not both:
        raise DataError("the study has no finished runs of the curriculum and of ADD beside it")
    known = {width: study.proficiency(width) for width in both}
    parts = [
        _after_others(width, after[width], alone.get(width, []), known.get(width, {}), criterion)
        for width in after
    ]
    words = (
        f"{width} wide: after MAX+MED ({_shares(known[width])} when ADD comes) "
        f"{_outcome(after[width])}, alone {_outcome(alone[width])}"
        for width in both
    )
    shown = ", ".join(f"{solved(alone[width])} of {len(alone[width])}" for width in both)
    small = all(2 * solved(alone[width]) <= len(alone[width]) for width in both)
    fewest = min(len(alone[width]) for width in both)
    control = Part("ADD alone mostly not learned", small, shown, fewest)
    values = {**found, "when ADD comes": known}
    return Finding(parts, "; ".join(words), values, control=control)


def _after_others(
    width: int,
    after: Sequence[float],
    alone: Sequence[float],
    known: Mapping[str, float],
    criterion: Criterion,
) -> Part:
    """What one width says; that it learns nothing tells only where MAX and MED had been learned."""
    hits = (solved(after), len(after)), (solved(alone), len(alone))
    name = f"{width} wide, ADD learned, after MAX+MED against alone"
    part = more_often(name, *hits, criterion["alpha"])
    if part.met or part.n < MIN_RUNS:
        return part
    if min(known.values()) < criterion["solved"]:
        shown = f"{part.shown}; no proficiency when ADD comes, {_shares(known)}"
        return replace(part, met=None, shown=shown)
    few = clopper_pearson(*hits[0])[1] < criterion["half"]
    return replace(part, met=False) if few else part


def _shares(accuracies: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in accuracies.items())


def _outcome(accuracies: Sequence[float]) -> str:
    """How many have learned, and the accuracies."""
    return f"{solved(accuracies)} of {len(accuracies)} at {SOLVED:g}, {mean_and_spread(accuracies)}"
