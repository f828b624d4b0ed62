"""The calibration of explanations: planted programs have to stand with exactly the planted parts,
controls to be refused, and forced programs and wrong claims not to stand.

    python -m benchmarks.audits --first 1000 --seeds 100

Bounds are those of `mechint explain`; what each trial has to come to is fixed in `TRIALS`. Prints
the table of docs/explanations.md, with Wilson intervals, and each trial that came out otherwise.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mechint import planted
from mechint.decide.intervals import wilson
from mechint.explanation import Audit, Explanation, audit, explain
from mechint.explanation.measure import Bench
from mechint.planted.assembly import Planted
from mechint.planted.library import induction, lookup, product, shuffled
from mechint.planted.trained import memorizing, sums_by_heart
from mechint.subject import Subject
from probes.explanations.representations import Frequencies, Setting, spectrum

FAMILIES = ("frequencies", "representations", "bilinear")
P, KEYS, NOISE = 31, 3, 0.05
"""Modulus, number of frequencies, and noise of plants of which something wrong is claimed."""


@dataclass(frozen=True)
class Trial:
    """What is done with each seed; run: seed → whether it came out as it has to, and what came.

    share: of the seeds that take part.
    """

    what: str
    run: Callable[[int], tuple[bool, Audit]]
    share: float = 1.0


def addition(seed: int, noise: float, pizza: bool) -> Planted:
    """Addition mod 31 by three frequencies that the seed draws."""
    drawn = np.random.default_rng(seed).choice(np.arange(1, (P + 1) // 2), KEYS, replace=False)
    return planted.modular_addition(
        P,
        sorted(drawn.tolist()),
        constant_attention=pizza,
        noise=noise,
        rotation_seed=seed,
        seed=seed,
    )


def claim(subject: Subject, keys: Sequence[str], pizza: bool) -> Explanation:
    """Addition by some frequencies, whatever the logits hold; with the amplitudes of a pizza."""
    setting, family = Setting.of(subject), Frequencies()
    assert setting is not None and subject.task is not None
    assert subject.task.own_program is not None
    family.read(Bench.of(subject, subject.task.own_program))
    return family.make(setting, keys, keys, "claimed", Setting.pizza if pizza else Setting.product)


def blocks(found: Audit) -> set[str]:
    """What the part that reads the logits is made of."""
    return {name for part in found.explanation.parts if part.reads for name in part.blocks}


def stands_by_keys(noise: float, pizza: bool) -> Callable[[int], tuple[bool, Audit]]:
    """Plants of addition stand by exactly their frequencies."""

    def run(seed: int) -> tuple[bool, Audit]:
        plant = addition(seed, noise, pizza)
        best = explain(plant.subject, family="frequencies")[0]
        truth = {str(key) for key in plant.truth["frequencies"]}
        return best.standing == "stands" and blocks(best) == truth, best

    return run


def stands_by_irreps(noise: float) -> Callable[[int], tuple[bool, Audit]]:
    """Plants of products in S4 stand by exactly their representation."""

    def run(seed: int) -> tuple[bool, Audit]:
        plant = product(noise, seed)
        best = explain(plant.subject)[0]
        return best.standing == "stands" and blocks(best) == {*plant.truth["irreps"]}, best

    return run


def stands_by_heads(noise: float) -> Callable[[int], tuple[bool, Audit]]:
    """Plants of induction stand by exactly their heads."""

    def run(seed: int) -> tuple[bool, Audit]:
        plant = induction(noise, seed)
        best = explain(plant.subject, family="induction")[0]
        claims = (*best.explanation.links, *best.explanation.routes)
        heads = [(one.layer, *one.heads) for one in claims]
        truth = [plant.truth["heads"][name] for name in ("previous token", "induction")]
        return best.standing == "stands" and heads == truth, best

    return run


def refused(build: Callable[[int], Subject]) -> Callable[[int], tuple[bool, Audit]]:
    """Of controls no frequencies or representations are found, or they are wrong."""

    def run(seed: int) -> tuple[bool, Audit]:
        audits = explain(build(seed))
        named = [one for one in audits if one.explanation.family in FAMILIES]
        best = (named or audits)[0]
        return not named or best.standing == "wrong", best

    return run


def forced(build: Callable[[int], Subject]) -> Callable[[int], tuple[bool, Audit]]:
    """The three frequencies that the logits hold most of do not stand; of odd seeds as a pizza."""

    def run(seed: int) -> tuple[bool, Audit]:
        subject = build(seed)
        setting, task = Setting.of(subject), subject.task
        assert setting is not None and task is not None and task.own_program is not None
        cosines = spectrum(Bench.of(subject, task.own_program), setting).by_label
        best = sorted(setting.names(), key=lambda name: -cosines[int(name)])[:KEYS]
        found = audit(subject, claim(subject, best, seed % 2 == 1))
        return found.standing in ("wrong", "incomplete", "refused"), found

    return run


def wrong(kept: int, added: int, pizza: bool) -> Callable[[int], tuple[bool, Audit]]:
    """Plants do not stand by `kept` of their frequencies and `added` others; a superfluous one is
    named where all are kept.
    """

    def run(seed: int) -> tuple[bool, Audit]:
        plant, draw = addition(seed, NOISE, pizza), np.random.default_rng(seed + 1)
        truth = draw.permutation([str(key) for key in plant.truth["frequencies"]]).tolist()
        others = [str(key) for key in range(1, (P + 1) // 2) if str(key) not in truth]
        more = draw.permutation(others)[:added].tolist()
        found = audit(plant.subject, claim(plant.subject, [*truth[:kept], *more], pizza))
        if kept == KEYS:
            return found.standing == "superfluous" and found.superfluous == (*more,), found
        return found.standing in ("wrong", "incomplete"), found

    return run


ONLY = "modular-arithmetic"
TRUE: dict[str, Callable[[int], Subject]] = {
    "untrained": lambda seed: addition(seed, 0.0, False).subject.untrained(seed),
    "lookup mod 13": lookup(ONLY, p=13)["lookup"],
    "lookup mod 31": lookup(ONLY, p=31)["lookup"],
    "sums mod 13 by heart": lambda seed: sums_by_heart(seed, 13),
}
"""Controls that are asked for the true answers."""
CONTROLS = TRUE | {
    "shuffled labels": shuffled(ONLY, p=13)["shuffled labels"],
    "shuffled labels by training": memorizing,
    "untrained on S4": lambda seed: product(0.0, seed).subject.untrained(seed),
    "lookup on S4": lookup("groups", group="S4")["lookup"],
}
KINDS = {"clock": False, "pizza": True}
WRONG = {"all wrong": (0, 3), "one of three wrong": (2, 1), "one missing": (2, 0)}
WRONG |= {"two missing": (1, 0)}
TRIALS: tuple[Trial, ...] = (
    *(
        Trial(f"plants of addition, {kind}, noise {noise:g}: stand", stands_by_keys(noise, pizza))
        for kind, pizza in KINDS.items()
        for noise in (0.0, 0.05, 0.1)
    ),
    *(
        Trial(f"plants of products in S4, noise {noise:g}: stand", stands_by_irreps(noise))
        for noise in (0.0, 0.05)
    ),
    *(
        Trial(f"plants of induction, noise {noise:g}: stand", stands_by_heads(noise))
        for noise in (0.0, 0.05)
    ),
    *(Trial(f"controls, {name}: refused", refused(build), 0.5) for name, build in CONTROLS.items()),
    *(
        Trial(f"forced on {name}: wrong, incomplete or refused", forced(build), 0.5)
        for name, build in TRUE.items()
    ),
    *(
        Trial(f"claimed of a {kind}, {name}: wrong or incomplete", wrong(*counts, pizza), 0.4)
        for kind, pizza in KINDS.items()
        for name, counts in WRONG.items()
    ),
    *(
        Trial(f"claimed of a {kind}, one too many: named as superfluous", wrong(3, 1, pizza), 0.5)
        for kind, pizza in KINDS.items()
    ),
)


def row(trial: Trial, seeds: Sequence[int]) -> str:
    """The row of a trial, after its misses."""
    hits, these = 0, seeds[: round(len(seeds) * trial.share)]
    for seed in these:
        good, found = trial.run(seed)
        hits += good
        if not good:
            said = f"{found.standing} {found.reason}: {found.explanation.name}"
            print(f"  {trial.what}, seed {seed}: {said}", flush=True)
    low, high = wilson(hits, len(these))
    return f"| {trial.what} | {hits} of {len(these)} ({low:.0%} to {high:.0%}) |"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audits")
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--seeds", type=int, default=100, help="how many; some trials take fewer")
    parser.add_argument("--only", default="", help="trials whose words have this")
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    for trial in TRIALS:
        if chosen.only in trial.what:
            print(row(trial, seeds), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
