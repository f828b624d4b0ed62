"""Claims e and f of the remainders paper: the frequencies of the neurons, and of the embedding."""

from __future__ import annotations

from mechint.studies.core.claims import Criterion, Finding, Part, Replaced, claim
from mechint.studies.core.evidence import MIN_RUNS, every, share_within
from mechint.studies.remainders.claims_learning import EVERY_RUN, THAT_LEARNED, TWO_IN_FIVE
from mechint.studies.remainders.measures import (
    GENERALIZED,
    HALFWAY,
    SHARE,
    Measures,
    active_over_time,
    active_within,
    beside,
    listed,
    step_or_never,
)

FALL = 0.25
"""Of the largest count of active frequencies, what it falls by where it falls again."""


@claim(
    "e",
    statement=(
        "the number of active frequencies of the neurons spikes while the later primes "
        "generalize, and falls again"
    ),
    paper="0, 0, 10, 18, 10 at epochs 256, 1,024, 4,096, 16,384, 65,536",
    criterion=Criterion(
        "All neurons, log-spaced checkpoints, every frequency divided by its sum over time and "
        "counted above μ + 2σ of all frequencies and times: the first checkpoint with the largest "
        "count comes after the first later prime is {half:.0%} of the way from chance to 1 and no "
        "later than the first checkpoint at which each has been at {bar:g}, and its count exceeds "
        "the first checkpoint's, and the last one's by at least {fall:.0%} of itself, in a share "
        "of the main runs that have every prime at {bar:g} at the last step, whose 95% exact "
        "interval lies above {share:g}. Control: at least {least} main runs have every prime at "
        "{bar:g}.",
        half=HALFWAY,
        fall=FALL,
        bar=GENERALIZED,
        share=SHARE,
        least=MIN_RUNS,
    ),
    reason=(
        "Rise, and fall at the end, are the claim, by the rule of the authors' code; within one "
        "checkpoint μ + 2σ can mark at most a fifth of the frequencies, and is shown beside. The "
        "paper's count falls by 44%, from 18 to 10; one frequency fewer is within what neighboring "
        "checkpoints differ by. A largest count before the later primes, or long after them, is "
        "not theirs. At laptop the last four checkpoints are at steps 2,617, 3,633, 5,043 and "
        f"7,000; a night keeps more. {THAT_LEARNED} {TWO_IN_FIVE}"
    ),
    replaced=(
        Replaced(
            "in every main run the largest count comes after the first later prime has "
            "generalized, exceeds the first checkpoint's, and exceeds the last checkpoint's "
            "(μ + 2σ within each checkpoint)",
            "not reproduced",
            "of 23 frequencies at most 2 in either run",
            "Within one checkpoint μ + 2σ marks at most 11 of the paper's 56 frequencies, which "
            "has 18: its code takes μ and σ over all frequencies and times.",
        ),
        Replaced(
            "all neurons, by the rule of the authors' code, in every main run: the largest count "
            "comes after the first later prime is half-way, exceeds the first checkpoint's, and "
            "exceeds the last one's",
            "not reproduced",
            "5 of 6 runs, 95% interval [0.36, 1.00]",
            EVERY_RUN,
        ),
        Replaced(
            "All neurons, log-spaced checkpoints, every frequency divided by its sum over time and "
            "counted above μ + 2σ of all frequencies and times: the largest count comes after the "
            "first later prime is 50% of the way from chance to 1, exceeds the first checkpoint's, "
            "and exceeds the last one's, in a share of the main runs whose 95% exact interval lies "
            "above 0.4. Control: a later prime gets so far in every main run.",
            "underpowered",
            "7 of 10 runs, 95% interval [0.35, 0.93]",
            "A fall from 9 to 8, between four checkpoints, was a fall, and three of the ten runs "
            "had a prime below 0.9 at the last step, where the paper's count falls as the model "
            "generalizes fully.",
        ),
        Replaced(
            "All neurons, log-spaced checkpoints, every frequency divided by its sum over time and "
            "counted above μ + 2σ of all frequencies and times: the largest count comes after the "
            "first later prime is 50% of the way from chance to 1, exceeds the first checkpoint's, "
            "and exceeds the last one's by at least 25% of itself, in a share of the main runs "
            "that have every prime at 0.9 at the last step, whose 95% exact interval lies above "
            "0.4. Control: at least 3 main runs have every prime at 0.9.",
            "underpowered",
            "4 of 8 runs, 95% interval [0.16, 0.84]",
            "A spike long after every prime has generalized met it, and of steps with the same "
            "count it took the last.",
        ),
    ),
)
def active_frequencies(study: Measures, criterion: Criterion) -> Finding:
    """Counts of active frequencies over the checkpoints of every main run."""
    spiked, words, values = {}, {}, {}
    for name in study.names("main"):
        steps, power = study.power(name)
        counts = active_over_time(power)
        peak = max(counts)
        at = [step for step, count in zip(steps, counts, strict=True) if count == peak]
        start, end = study.later_primes(name)
        meanwhile = at[0] >= start and not any(end <= step < at[0] for step in steps)
        fallen = peak - counts[-1] >= criterion["fall"] * peak
        spiked[name] = meanwhile and peak > counts[0] and fallen
        words[name] = (
            f"{counts[0]} at the start, at most {peak} (steps {listed(at[:6])}), {counts[-1]} at "
            f"the end, the later primes from {step_or_never(start)} to {step_or_never(end)}"
        )
        values[name] = {"step": steps, "active": counts, "within": active_within(power)}
    learned = study.that_learned()
    hits = sum(spiked[name] for name in learned)
    return Finding(
        [share_within("runs that spike", hits, len(learned), low=criterion["share"])],
        beside(words, learned),
        {**values, "learned": learned},
        control=study.enough_learned(criterion["least"]),
    )


@claim(
    "f",
    statement="with shuffled labels neither embedding nor neurons are periodic",
    paper="no periodicity in either (Fig. 14, 16)",
    criterion=Criterion(
        "Largest share of a frequency against tokens in random order, 999 orders: p > {alpha:g} in "
        "embedding and neurons of every shuffled run. Control: p ≤ {alpha:g} in both of every main "
        "run at its last checkpoint that is no later than the end of the shuffled runs.",
        alpha=0.01,
    ),
    reason=(
        "The permuted null says what no order looks like; the main runs show that the measurement "
        "can see one, after as many steps as the shuffled ones had, which are fewer at laptop. All "
        "shuffled runs have one table of labels: their seeds vary split, start and batches alone."
    ),
    replaced=(
        Replaced(
            "largest share of a frequency against tokens in random order: p > 0.01 in embedding "
            "and neurons of every shuffled run, and p ≤ 0.01 in both of every main run",
            "reproduced",
            "main p = 0.005, 0.01; shuffled p = 0.68, 0.94",
            "199 orders put p = 0.01 on the bar itself, and one shuffled run is one run.",
        ),
        Replaced(
            "Largest share of a frequency against tokens in random order, 999 orders: p > 0.01 in "
            "embedding and neurons of every shuffled run. Control: p ≤ 0.01 in both of every main "
            "run.",
            "reproduced",
            "3 of 3 shuffled runs, p from 0.11 to 0.97; 10 of 10 main runs, p = 0.001",
            "The main runs of its control had 7,000 steps and the shuffled ones 2,000: that "
            "periodicity takes longer would have looked the same.",
        ),
    ),
)
def shuffled_labels(study: Measures, criterion: Criterion) -> Finding:
    """Permutation tests of the spectra of every shuffled and every main run."""
    sites = ("embedding", "neurons")
    steps: dict[str, int | None] = dict.fromkeys(study.names("shuffled"))  # None: their last
    steps |= {name: study.checkpoint(name, "shuffled") for name in study.names("main")}
    p_values = {
        arm: {
            name: [
                study.fourier(name, steps[name]).null[f"{site}.largest_share"].p_value
                for site in sites
            ]
            for name in study.names(arm)
        }
        for arm in ("main", "shuffled")
    }
    alpha = criterion["alpha"]
    silent = [min(each) > alpha for each in p_values["shuffled"].values()]
    seen = [max(each) <= alpha for each in p_values["main"].values()]
    shown = "; ".join(
        f"{name}{'' if steps[name] is None else f' at step {steps[name]}'} "
        + ", ".join(f"{site} p = {p:.2g}" for site, p in zip(sites, each, strict=True))
        for arm in p_values.values()
        for name, each in arm.items()
    )
    return Finding(
        [every("shuffled runs show none", silent)],
        shown,
        {**p_values, "step": steps},
        control=Part("main runs are periodic", all(seen), f"{sum(seen)} of {len(seen)}", len(seen)),
    )
