"""Claims d, g and h of the joint-training paper: what models of nested expressions have learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from mechint.errors import DataError
from mechint.studies.core.claims import Criterion, Finding, Part, Replaced, claim
from mechint.studies.core.evidence import LEVEL, MIN_RUNS, mean_within
from mechint.studies.core.study import mean_and_spread
from mechint.studies.joint_training.arms import THREE_LAYERS
from mechint.studies.joint_training.measures import CONVERGED, MIXTURES, SOLVED, Measures

NESTED = ("overnight", "full")
ORDER_ARM = "ADD in ADD+PROD"
"""The mixture in whose embedding residues mod 4 are ordered too."""


@claim(
    "d",
    statement="with a shuffled addition table the mixture does not help",
    paper=(
        "about 20% on shuffled ADD inside the mixture, which takes twice the parameters of "
        "shuffled ADD alone (Sec. 3, Fig. 3)"
    ),
    criterion=Criterion(
        "n = 26, nested, at the width where the true mixture does best, by 95% intervals over "
        "seeds: mean accuracy on shuffled ADD in the mixture lies below {shuffled:g}, and less "
        "than {gain:g} above that of shuffled ADD alone; and the bootstrap interval of the factor "
        "by which the 50% point of shuffled ADD alone lies above that in the mixture lies below "
        "{factor:g}. Control: on true ADD in the mixture there at least {true:g}.",
        shuffled=0.35,
        gain=0.1,
        factor=1.0,
        true=SOLVED,
    ),
    reason=(
        "The paper's 20% is for n = 26; 0.35 is far from learned and leaves room above it. That "
        "the mixture does not help is said against shuffled ADD alone, for which the paper's "
        "models need half the parameters; where neither passes 50% at any width the factor is "
        "open. The true mixture shows that the width suffices."
    ),
    sizes=("full",),
    replaced=(
        Replaced(
            "at the width where MAX+MED+ADD is judged: mean held-out accuracy on shuffled ADD in "
            "the mixture at most 0.35, and at least 0.9 on true ADD (triplets mod 10)",
            {"laptop": "not reproduced"},
            "shuffled ADD 0.95 ± 0.06 (2 runs), true ADD 1.00 ± 0.00 (5 runs)",
            "The paper's figure is for n = 26, nested, 40,000 steps; at n = 10 the table has "
            "55 entries. Nine in ten of the triplets that were asked had been trained on.",
        ),
        Replaced(
            "n = 26, nested, at the width where the true mixture does best: mean accuracy on "
            "shuffled ADD in the mixture below 0.35 by its 95% interval",
            "not tested",
            "not measured",
            "Without shuffled ADD alone: a mixture that multiplied its accuracy by six would have "
            "been no help.",
        ),
    ),
)
def shuffled_table(study: Measures, criterion: Criterion) -> Finding:
    """Mean accuracy on the shuffled and on the true table in the mixture, over runs, and on the
    shuffled one alone; the factor between the last two's points.
    """
    arm, apart = "ADD in MAX+MED+ADD, n = 26", "shuffled ADD, n = 26"
    true = {width: study.accuracies(arm, width) for width in study.runs.values_of("width", arm=arm)}
    true = {width: each for width, each in true.items() if each}
    if not true:
        raise DataError(f"the study has no finished run of {arm} at this size")
    best = max(true, key=lambda width: float(np.mean(true[width])))
    shuffled, alone = (study.accuracies(each, best) for each in (f"shuffled {arm}", apart))
    if not shuffled or not alone:
        raise DataError(f"the study has no finished run of shuffled ADD {best} wide at this size")
    gain = [a - b for a, b in zip(shuffled, alone, strict=False)]
    factor, ratio = study.factor(apart, f"shuffled {arm}", high=criterion["factor"])
    parts = (
        mean_within(f"shuffled, {best} wide", shuffled, high=criterion["shuffled"]),
        mean_within(f"in the mixture above alone, {best} wide", gain, high=criterion["gain"]),
        factor,
    )
    reached = float(np.mean(true[best]))
    ours = (
        f"width {best}: shuffled ADD in the mixture {mean_and_spread(shuffled)}, alone "
        f"{mean_and_spread(alone)}, true ADD in the mixture {reached:.2f}; factor {factor.shown}"
    )
    control = Part("true mixture", reached >= criterion["true"], f"{reached:.2f}", len(true[best]))
    values = {"true": true, "shuffled": shuffled, "shuffled alone": alone, "factor": ratio}
    return Finding(parts, ours, values, control=control)


@claim(
    "g",
    statement=(
        "embeddings averaged over models that learned ADD, alone or beside others, separate parity "
        "in one of the first half of their components"
    ),
    paper=(
        "PC1 and PC2 for ADD, PC1 for ADD+PROD (Fig. 2), top components for the mixtures (Fig. "
        "13); with PROD residues mod 4 too, and order in all components"
    ),
    criterion=Criterion(
        "Nested expressions, the first half of the components searched: parity separates the "
        "averaged similarity matrix of MAX+MED+ADD, of ADD+PROD and of ADD alone with p ≤ "
        "{alpha:g} against tokens in random order; where 4 divides n, residues mod 4 separate that "
        "of ADD+PROD within even and within odd, against these in random order. Control: at least "
        "{models} models of each arm are at {solved:g} on ADD.",
        alpha=0.05,
        models=10,
        solved=SOLVED,
    ),
    reason=(
        "Ten digits fall into five and five in 126 ways, so that p cannot be much below 0.01; an "
        "average over few models shows the models. The paper names components 1, 2, 4 and 5. "
        "Parity alone separates residues mod 4 as well, and 4 does not divide 10. That with PROD "
        "all components are ordered is not judged: the paper does not say by what."
    ),
    sizes=NESTED,
    replaced=(
        Replaced(
            "in every mixture with ADD of which some run reached 0.9: parity separation of the "
            "averaged similarity matrix, within its first four components, has p ≤ 0.05 against "
            "tokens in random order; some mixture must have such a run (triplets)",
            {"laptop": "not reproduced"},
            "MAX+MED+ADD p = 1, ADD p = 1; no run of ADD+PROD",
            "The paper's case is nested; four components were searched where parity may sit in "
            "the fifth; ADD+PROD, the paper's main case, had no model.",
        ),
        Replaced(
            "nested expressions, all components searched: parity separates the averaged similarity "
            "matrix of each arm with p ≤ 0.05 against tokens in random order, and residues mod 4 "
            "that of ADD+PROD; at least 10 models of each arm",
            {"overnight": "underpowered"},
            "models that learned: MAX+MED+ADD 2, ADD+PROD 2, ADD 0; ADD+PROD parity p = 0.018, "
            "residues mod 4 p = 0.018 in the same component",
            "Parity separates residues mod 4 too, so that their part was met wherever that of "
            "parity was, and 4 does not divide n = 10; the last component counted as a first one.",
        ),
    ),
)
def embeddings(study: Measures, criterion: Criterion) -> Finding:
    """Permutation tests of parity and residues mod 4 in the averaged similarity matrices; missed
    where hardly an average over models drawn again passes the test.
    """
    parts, values, words = [], {}, []
    mod_4 = study.size == "full"  # n = 20; 4 does not divide the 10 of the other sizes
    counts = {arm: len(study.learned(arm)) for arm in (*MIXTURES, "ADD")}
    for arm, n in counts.items():
        result = study.layout(arm)
        for residue in ("parity", "mod_4") if mod_4 and arm == ORDER_ARM else ("parity",):
            if result is None:
                parts.append(Part(f"{arm}, {residue}", None, "no model learned", 0))
                continue
            null = result.null[f"{residue}.separation"]
            at = result.metrics[f"{residue}.component"]
            shown = f"share {null.observed:.2f} of component {at}, p = {null.p_value:.2g}"
            name, met = f"{arm}, {residue}", null.p_value <= criterion["alpha"]
            if n < MIN_RUNS:
                parts.append(Part(name, None, shown, n))
            elif met:
                parts.append(Part(name, True, shown, n))
            else:
                again = study.drawn_again(arm, residue)
                passed = sum(p <= criterion["alpha"] for p in again) / len(again)
                missed = passed <= (1 - LEVEL) / 2
                shown += f", at the bar in {passed:.0%} of {len(again)} draws of the models"
                parts.append(Part(name, False if missed else None, shown, n))
            found = {"share": null.observed, "p": null.p_value, "component": at}
            values.setdefault(arm, {})[residue] = found
            words.append(f"{arm} ({n} models) {residue} {shown}")
    fewest = min(counts.values())
    shown = ", ".join(f"{arm} {n}" for arm, n in counts.items())
    return Finding(
        parts,
        "; ".join(words) or "no model learned ADD",
        values,
        control=Part("models that learned", fewest >= criterion["models"], shown, fewest),
    )


@claim(
    "h",
    statement=(
        "on sums the mixture's last layer attends more and feeds forward less than that of ADD "
        "alone"
    ),
    paper=(
        "norm ratios, mixture minus ADD: attention d = +0.18 (KS 0.159, JS 0.159, Wasserstein "
        "0.070), feed-forward d = -0.34 (KS 0.246, JS 0.162, Wasserstein 0.283); n = 10, three "
        "layers, 128 wide, both at 99%"
    ),
    criterion=Criterion(
        "Three separate layers, 128 wide, n = 10: over pairs of a mixture and a run of ADD alone, "
        "both at {bar:g} on nested sums, at the characters = and >: Cohen's d of the last layer's "
        "norm ratio lies above {zero:g} for attention and below {zero:g} for the feed-forward "
        "layer, by the 95% intervals of its means. Control: at least {pairs} pairs.",
        bar=CONVERGED,
        zero=0,
        pairs=3,
    ),
    reason=(
        "The paper compares two models, both at 99%; pairs say whether the sign is a property of "
        "the training or of one model. Of which positions of its sums the ratios are, it does not "
        "say: a step or the answer begins at > and =. Between pairs on triplets attention's d "
        "spread by 0.7; if it does here, +0.18 needs some 60 pairs."
    ),
    sizes=("full",),
    replaced=(
        Replaced(
            "Cohen's d of attention above 0 and of feed-forward below 0, each on average over "
            "pairs of runs by more than two standard errors (triplets, every position)",
            {"laptop": "not reproduced"},
            "attention -0.02 ± 0.70, feed-forward -0.60 ± 0.60 (5 pairs)",
            "It paired mixtures with runs of ADD whether or not these had learned the sums, on "
            "triplets and at every position.",
        ),
        Replaced(
            "over pairs of a mixture and a run of ADD alone of one width, both at 0.95 on nested "
            "sums, at the characters = and >, the recurrent model: Cohen's d of attention above 0 "
            "and of feed-forward below 0, by the 95% intervals of its means; at least 3 pairs",
            {"overnight": "underpowered"},
            "no pair of runs of one width is at 0.95 on nested sums",
            "Mixtures are trained to 96 wide, where ADD alone is at 0.80 at most after 10,000 "
            "steps: no pair could come about. One block passed three times has no last layer of "
            "its own; the paper's models have three.",
        ),
    ),
)
def norm_ratios_differ(study: Measures, criterion: Criterion) -> Finding:
    """Cohen's d of the norm ratios, mixture against ADD alone, over pairs of runs."""
    pairs = study.pairs()
    for arm in THREE_LAYERS if not pairs else ():
        if not study.learned(arm, bar=0.0):
            raise DataError(f"the study has no finished run of {arm} at this size")
    d = {kind: [pair[kind]["d"] for pair in pairs] for kind in ("attention", "MLP")}
    zero = criterion["zero"]
    parts = (
        mean_within("attention, Cohen's d", d["attention"], low=zero),
        mean_within("feed-forward, Cohen's d", d["MLP"], high=zero),
    )
    words = []
    for kind in d if pairs else ():
        ks, wasserstein = (
            np.mean([pair[kind][name] for pair in pairs]) for name in ("ks", "wasserstein")
        )
        words.append(
            f"{kind}: d {mean_and_spread(d[kind])}, KS {ks:.3f}, Wasserstein {wasserstein:.3f}"
        )
    values: dict[str, Any] = {"pairs": pairs}
    enough = len(pairs) >= criterion["pairs"]
    control = Part("pairs at the bar", enough, str(len(pairs)), len(pairs))
    ours = "; ".join(words) or f"no pair of runs is at {CONVERGED} on nested sums"
    return Finding(parts, ours, values, control=control)
