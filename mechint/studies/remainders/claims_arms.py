"""Claims h and i of the remainders paper: what is left without Grokfast, without dropout, and
without the easy primes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mechint.errors import DataError
from mechint.studies.core.claims import Criterion, Finding, Part, Replaced, claim
from mechint.studies.core.evidence import MIN_RUNS, earlier, every, mean_within
from mechint.studies.remainders.claims_learning import NIGHT
from mechint.studies.remainders.measures import (
    FIT,
    GENERALIZED,
    HALFWAY,
    Measures,
    in_steps,
    listed,
)

LEAD = (11, 13, 17, 19)
"""The primes that the paper sees first where the easy ones are masked."""


@claim(
    "h",
    statement=(
        "without Grokfast it does not converge; without dropout it overfits all primes but 2 and 3"
    ),
    paper="λ = 0 did not converge; validation diverged without dropout",
    criterion=Criterion(
        "At as many steps as the main runs: without Grokfast fewer primes are at {bar:g} than in "
        "the main runs (exact one-sided Mann–Whitney test, p ≤ {alpha:g}), and in every run at "
        "most {few:.0%} of those above 7 are {half:.0%} of the way from chance to 1 at the last "
        "step; without dropout, in every run, all training accuracies are at least {fit:g} and "
        "held-out accuracy is at least {bar:g} for 2 and 3 alone. Control: every main run has all "
        "primes at {bar:g}.",
        bar=GENERALIZED,
        alpha=0.05,
        few=0.1,
        half=HALFWAY,
        fit=FIT,
    ),
    reason=(
        "The same bar and the same number of steps in all arms, three runs each. A model that has "
        "learned all primes but some has converged on the others; a tenth, two of the paper's 25, "
        "leaves room for a prime that rises by chance."
    ),
    sizes=NIGHT,
    replaced=(
        Replaced(
            "at the last step of the run without Grokfast some prime is below 0.9 and fewer primes "
            "are at it than in any main run; at the last step of the run without dropout all "
            "training accuracies are at least 0.99 and held-out accuracy is at least 0.9 for 2 and "
            "3 alone",
            "reproduced",
            "without Grokfast 7 of 14 primes; without dropout 2 and 3, at step 4,000",
            "One run each, the one without dropout stopped at a step where the main run too had "
            "only 2, 3 and 5.",
        ),
        Replaced(
            "At as many steps as the main runs: without Grokfast fewer primes are at 0.9 than in "
            "the main runs (exact one-sided Mann–Whitney test, p ≤ 0.05) and not all in any run; "
            "without dropout, in every run, all training accuracies are at least 0.99 and held-out "
            "accuracy is at least 0.9 for 2 and 3 alone. Control: every main run has all primes at "
            "0.9.",
            {},
            "no run at the paper's length",
            "28 of 29 primes without Grokfast met it, which is no failure to converge.",
        ),
    ),
)
def ablations(study: Measures, criterion: Criterion) -> Finding:
    """Mann–Whitney test of primes learned without Grokfast; accuracies without dropout."""
    counts = {
        arm: [len(study.generalized(name)) for name in study.names(arm)]
        for arm in ("main", "no grokfast")
    }
    total = len(study.final(study.names("main")[0]))
    shares = {
        name: float(np.mean(list(study.late_halfway(name).values())))
        for name in study.names("no grokfast")
    }
    overfit = [
        min(study.final(name, "train").values()) >= criterion["fit"]
        and study.generalized(name) == [2, 3]
        for name in study.names("no dropout")
    ]
    parts = (
        earlier(
            "primes without Grokfast", counts["no grokfast"], counts["main"], criterion["alpha"]
        ),
        every(
            "without Grokfast few later primes",
            [share <= criterion["few"] for share in shares.values()],
            f"half-way {listed(f'{share:.0%}' for share in shares.values())}",
        ),
        every("without dropout 2 and 3 alone", overfit),
    )
    held = {name: study.generalized(name) for name in study.names("no dropout")}
    ours = (
        f"of {total} primes {listed(counts['no grokfast'])} without Grokfast, "
        f"{listed(counts['main'])} with; without dropout "
        + "; ".join(listed(each) or "none" for each in held.values())
    )
    control = study.every_run(
        "main runs learn all", "main", lambda name: len(study.generalized(name)) == total
    )
    values = {"counts": counts, "later primes half-way": shares, "no dropout": held}
    return Finding(parts, ours, values, control=control)


@claim(
    "i",
    statement=(
        "without 2, 3, 5, 7 the primes 11, 13, 17, 19 come first, and the rest is not notably "
        "delayed"
    ),
    paper="11, 13, 17, 19 first, no notable delay (App. A)",
    criterion=Criterion(
        "By onsets ({half:.0%} of the way from chance to 1): the share of pairs in which one of "
        "11, 13, 17, 19 precedes one of the rest lies above {pairs:g} over masked runs, by its 95% "
        "interval, and so lies below {delay:g} the ratio of an onset of the rest in masked to that "
        "in main runs, a mean over the rest; where one of them never gets so far it is infinite, "
        "which misses in every run and leaves open in some. Control: every prime gets so far in "
        "every main run.",
        half=HALFWAY,
        pairs=0.5,
        delay=1.5,
    ),
    reason=(
        "First is a matter of ranks, one share per run (Mann and Whitney's); half as long again "
        "would be a notable delay, and what never comes is delayed for ever. The four that lead "
        "say nothing of the rest."
    ),
    sizes=NIGHT,
    replaced=(
        Replaced(
            "11 and 13 reach 0.9, no other prime does before 17 and 19 have, and 11 and 13 do so "
            "in at most 1.5 times the main runs' mean steps",
            "not reproduced",
            "11 at 2300, 13 at 1964, 17 at 3500, 19 at 2857, 23 at 3036, ...",
            "A strict order of one run; by ranks 11, 13, 17, 19 do precede the rest (p = 0.019), "
            "not delayed.",
        ),
        Replaced(
            "By onsets (50% of the way from chance to 1): the share of pairs in which one of "
            "11, 13, 17, 19 precedes one of the rest lies above 0.5 over masked runs, by its 95% "
            "interval, and the mean ratio of a later prime's onset in masked to that in main runs "
            "lies below 1.5. Control: every prime gets so far in every main run.",
            {},
            "no run at the paper's length",
            "What is never reached counted as reached at the last step, and the four that lead "
            "were in the mean: a rest that no masked run ever learns met it.",
        ),
    ),
)
def masked(study: Measures, criterion: Criterion) -> Finding:
    """Share of pairs of primes in the expected order, and the ratio of onsets to the main runs'."""
    onsets = [study.late_onsets(name) for name in study.names("main")]
    main = {q: float(np.mean([first[q] for first in onsets])) for q in onsets[0]}
    shares, delays = [], []
    for name in study.names("masked"):
        late = study.late_onsets(name)
        lead, rest = ([q for q in late if (q in LEAD) == leads] for leads in (True, False))
        if not rest:
            raise DataError(f"{name}: has no prime above {max(LEAD)} to compare with")
        pairs = [(late[a], late[b]) for a in lead for b in rest]
        shares.append(float(np.mean([(a < b) + (a == b) / 2 for a, b in pairs])))
        ratios = [late[q] / main[q] if math.isfinite(late[q]) else math.inf for q in rest]
        delays.append(float(np.mean(ratios)))
    parts = (
        mean_within("11, 13, 17, 19 precede", shares, low=criterion["pairs"]),
        _delay(delays, criterion["delay"]),
    )
    words = in_steps([study.onsets(name) for name in study.names("masked")], LEAD)
    values = {"shares": shares, "delays": delays, "main": main}
    return Finding(parts, words, values, control=study.all_halfway())


def _delay(delays: Sequence[float], most: float) -> Part:
    """The mean delay over runs lies below `most`: missed where it is infinite in every run,
    undecided where in some.
    """
    never, n = sum(map(math.isinf, delays)), len(delays)
    if not never:
        return mean_within("delay of the rest", delays, high=most)
    met = False if never == n >= MIN_RUNS else None
    return Part("delay of the rest", met, f"not all of the rest learned in {never} of {n} runs", n)
