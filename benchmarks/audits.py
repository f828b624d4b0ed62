"""The calibration of explanations: planted programs have to stand with exactly the planted parts,
controls to be refused, and forced programs and wrong claims not to stand.

    python -m benchmarks.audits --first 1000 --seeds 100 --out benchmarks/results/audits.json

Bounds are those of `mechint explain`; what each trial has to come to is fixed in `TRIALS`. Prints
each trial that came out otherwise, and writes the table of docs/explanations-measured.md, with
Wilson intervals.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mechint
from benchmarks import induced
from benchmarks.far_sum import FarSum
from benchmarks.kept import keep_row, made
from mechint import planted
from mechint.decide.evidence import wilson
from mechint.explanation import Audit, Explanation, Part, audit, explain, head
from mechint.explanation.claims import one_hot
from mechint.explanation.measure import Bench
from mechint.interventions import Site
from mechint.planted.assembly import (
    Planted,
)
from mechint.planted.library import lookup, product, shuffled
from mechint.planted.trained import memorizing, sums_by_heart
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.system.files import write_text
from mechint.task import Program, Step
from probes.explanations.representations import Frequencies, Setting, spectrum

PAGE = Path(__file__).parents[1] / "docs" / "explanations-measured.md"
TABLE = "| what | count | interval | first seed |\n| --- | --- | --- | --- |\n"
"""The head of its table."""
FAMILIES = ("frequencies", "representations", "bilinear")
FOUND = 0.99
"""Share of prompts on which a program gives the known answers."""
P, KEYS, NOISE = 31, 3, 0.05
"""Modulus, number of frequencies, and noise of plants of which something wrong is claimed."""
HELD_BACK = ("wrong", "unclear", "untested", "refused")
"""Standings that bear nothing out of an explanation."""


@dataclass(frozen=True)
class Trial:
    """What is done with each seed; run: seed → whether it came out as it has to, and what came.

    run: None in place of whether, where the seed is no case of the trial. share: of the seeds that
    take part.
    """

    what: str
    run: Callable[[int], tuple[bool | None, Audit]]
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
    bench = Bench.of(subject, subject.task.own_program)
    return family.make(bench, setting, keys, keys, Setting.pizza if pizza else Setting.product)


def blocks(found: Audit) -> set[str]:
    """Sources of the part that reads the logits."""
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


def stands_by_all(noise: float) -> Callable[[int], tuple[bool, Audit]]:
    """Plants of addition mod 23 by all eleven frequencies stand by all of them."""

    def run(seed: int) -> tuple[bool, Audit]:
        every, blur = tuple(range(1, 12)), {"noise": noise, "rotation_seed": seed, "seed": seed}
        best = explain(planted.modular_addition(23, every, **blur).subject, family="frequencies")[0]
        return best.standing == "stands" and blocks(best) == set(map(str, every)), best

    return run


def stands_by_prompts(seed: int) -> tuple[bool, Audit]:
    """Plants that prompts alone show stand, and their program gives the planted answers."""
    plant = induced.plant(seed)
    found = explain(plant.subject)[0]
    return found.standing == "stands" and gives(found, plant) >= FOUND, found


def stands_not_falsely(seed: int) -> tuple[bool | None, Audit]:
    """Of models trained on a known rule no program stands that gives other answers; those that
    have not learned it are no case.
    """
    made_ = induced.trained(seed)
    if made_ is None:
        return None, explain(induced.untrained(seed))[0]
    found = explain(made_.subject)[0]
    return found.standing != "stands" or gives(found, made_) >= FOUND, found


def gives(found: Audit, made: induced.Made) -> float:
    """Share of the prompts on which the file of a program gives the known answers."""
    names: dict[str, Any] = {"__name__": "program"}
    exec(found.explanation.to_python(made.subject), names)  # noqa: S102
    tokens = made.subject.data.tokens
    right = made.truth(tokens).tolist()
    return float(
        np.mean([names["answer"](t) == a for t, a in zip(tokens.tolist(), right, strict=True)])
    )


def stands_by_copy(seed: int) -> tuple[bool, Audit]:
    """Heads that are planted to copy the largest, the smallest or the first token do."""
    draw, key = np.random.default_rng(seed), ("largest", "smallest", "first")[seed % 3]
    n, ctx = int(draw.integers(5, 12)), int(draw.integers(4, 8))
    model = induced.build(n, ctx, [0 if key == "first" else key], seed=seed)
    subject = induced.subject_of(model, induced.prompts(n, ctx, 4000, seed))
    found = audit(subject, head(0, 0).copies(f"{key} token"))
    return found.standing == "stands", found


def refused(build: Callable[[int], Subject]) -> Callable[[int], tuple[bool, Audit]]:
    """Of controls no frequencies or representations are found, or every one is held back."""

    def run(seed: int) -> tuple[bool, Audit]:
        audits = explain(build(seed))
        named = [one for one in audits if one.explanation.family in FAMILIES]
        return all(one.standing in HELD_BACK for one in named), (named or audits)[0]

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
        return found.standing in (*HELD_BACK, "incomplete"), found

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


# --- false claims ---------------------------------------------------------------------------------
FALSE = 0.5
"""Of the seeds, the share on which each kind of false claim is made: 50 of 100."""
LAST = Site("blocks.0.hook_resid_post", "answer")


def stands_not(make: Callable[[int], Audit]) -> Callable[[int], tuple[bool, Audit]]:
    """A false claim may be wrong, incomplete, unclear, untested or superfluous, and not stand."""

    def run(seed: int) -> tuple[bool, Audit]:
        found = make(seed)
        return found.standing != "stands", found

    return run


def proposed(build: Callable[[int], Subject]) -> Callable[[int], tuple[bool, Audit]]:
    """The best program that is proposed of a model without one does not stand."""
    return stands_not(lambda seed: explain(build(seed))[0])


def meaningless(seed: int, n: int) -> Step:
    """A bit that a random linear function of the tokens draws, on which no answer depends."""
    weights = torch.from_numpy(np.random.default_rng(seed).integers(1, 97, n))
    return Step("bit", 2, lambda tokens, *_: (tokens[:, :n].cpu() * weights).sum(1) % 97 % 2)


def refined(seed: int) -> Audit:
    """The answer and a meaningless bit as one variable, at the last stream of a plant."""
    subject = addition(seed, NOISE, seed % 2 == 1).subject
    x, y, answer = subject.task.own_program.steps  # type: ignore[union-attr]
    bit = meaningless(seed, 2)
    tag = Step(
        "tag",
        2 * P,
        lambda tokens, x, y: 2 * ((x + y) % P) + bit.compute(tokens),
        (x.name, y.name),
    )
    read = Step(answer.name, P, lambda tokens, tag: tag // 2, ("tag",))
    program = Program("refined", (x, y, tag, read), ((answer.name,),))
    part = Part("tag", LAST, ("tag",), one_hot("tag", 2 * P))
    return audit(subject, Explanation("refined", program, (part,)))


def vacuous(seed: int) -> Audit:
    """A meaningless bit at a random site, beside the answer at the last stream."""
    subject = addition(seed, NOISE, seed % 2 == 1).subject
    x, y, answer = subject.task.own_program.steps  # type: ignore[union-attr]
    program = Program("vacuous", (x, y, meaningless(seed, 2), answer), ((answer.name,),))
    draw = np.random.default_rng(seed)
    hook = str(draw.choice(["blocks.0.hook_resid_pre", "blocks.0.hook_resid_mid", LAST.hook]))
    false = Part("bit", Site(hook, "answer"), ("bit",), one_hot("bit", 2))
    true = Part(answer.name, LAST, (answer.name,), one_hot(answer.name, P))
    return audit(subject, Explanation("vacuous", program, (false, true)))


def table(seed: int, scaled: bool) -> Subject:
    """A lookup table of the sum of two ends, the classes of its logits scaled at random."""
    subject = planted.lookup_table(FarSum(n=5), rotation_seed=seed, seed=seed).subject
    if scaled:
        scale = 1 + 0.4 * torch.randn(5, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            dict(subject.model.named_parameters())["unembed.W_U"].mul_(scale.clamp(min=0.3))
    return subject


def no_copy(seed: int) -> Audit:
    """A head of the table is said to copy the token at its own position, or at any key."""
    draw, subject = np.random.default_rng(seed), table(seed, False)
    heads = {0: "first token", 2: "previous token"}
    head_, key = list(heads.items())[seed // 2 % 2] if seed % 2 else (0, "largest token")
    head_ = head_ if seed % 2 else int(draw.integers(4))
    return audit(subject, head(0, head_).copies(key), examples=625)


def needless(seed: int) -> Audit:
    """The planted frequencies at the answer, and up to four others in the inputs alone."""
    plant, draw = addition(seed, NOISE, False), np.random.default_rng(seed + 1)
    keys = [str(key) for key in plant.truth["frequencies"]]
    rest = [str(key) for key in range(1, (P + 1) // 2) if str(key) not in keys]
    more = draw.permutation(rest)[: 1 + seed % 4].tolist()
    setting, family = Setting.of(plant.subject), Frequencies()
    assert setting is not None
    program = plant.subject.task.own_program  # type: ignore[union-attr]
    assert program is not None
    made = family.make(Bench.of(plant.subject, program), setting, keys, [*keys, *more])
    return audit(plant.subject, made)


def unneeded(seed: int) -> Audit:
    """A head that carries one operand of a table is said to carry the other, or one between."""
    subject, draw = table(seed, False), np.random.default_rng(seed)
    name, true = ("a", 0) if seed % 2 else ("b", 3)
    place = int(draw.choice([one for one in range(4) if one != true]))
    return audit(subject, Part(name, Site.of("head", 0, "answer", (place,)), (name,)), examples=625)


def scaled(seed: int) -> Audit:
    """A head of a scaled table is said to bring its answer, from its own position or another."""
    key = ("first token", "previous token", "largest token")[seed % 3]
    return audit(table(seed, True), head(0, seed % 4).copies(key), examples=625)


BARELY = (5, 10, 20, 35, 50)
"""Steps of training."""
TRAINED = 0.9
"""Accuracy on the judged inputs from which a model has learned its task."""


def barely_trained(seed: int) -> tuple[bool | None, Audit]:
    """Of a model that has not learned its task after 5 to 50 steps no program stands: the sum of
    two ends, or the largest of a list.
    """
    task = FarSum() if seed % 2 else TASKS["max-of-list"](n=8, length=4)
    steps = BARELY[seed // 2 % len(BARELY)]
    model = {"n_layers": 1 + seed // 10 % 2, "d_model": 64, "n_heads": 2}
    run = mechint.train(task, model, {"steps": steps, "lr": 3e-3, "seed": seed})
    found = explain(run[0].subject(), seed=seed, examples=1500)[0]
    learned = found.accuracy >= TRAINED
    return (None if learned else found.standing != "stands"), found


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
        Trial(f"plants of all frequencies, noise {noise:g}: stand", stands_by_all(noise))
        for noise in (0.0, 0.05)
    ),
    Trial("plants of a copy: stand", stands_by_copy),
    *(
        Trial(f"controls, {name}: held back", refused(build), 0.5)
        for name, build in CONTROLS.items()
    ),
    *(
        Trial(f"forced on {name}: held back or incomplete", forced(build), 0.5)
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


TRIALS += (
    Trial("plants that prompts show: stand", stands_by_prompts),
    Trial("trained on a known rule: none stands falsely", stands_not_falsely, 0.36),
    Trial("without a program, answers by rote: none stands", proposed(induced.by_rote), 0.24),
    Trial("without a program, permuted answers: none stands", proposed(induced.permuted), 0.24),
    Trial("without a program, untrained: none stands", proposed(induced.untrained), 0.64),
    Trial("false: a refined variable", stands_not(refined), FALSE),
    Trial("false: a part that changes nothing", stands_not(vacuous), FALSE),
    Trial("false: a copy that is none", stands_not(no_copy), FALSE),
    Trial("false: needless frequencies in the inputs", stands_not(needless), FALSE),
    Trial("false: heads that do not carry it", stands_not(unneeded), FALSE),
    Trial("false: a copy in a scaled lookup table", stands_not(scaled), FALSE),
    Trial(f"below {TRAINED} accuracy after 5 to 50 steps: none stands", barely_trained, 0.2),
)


def row(trial: Trial, seeds: Sequence[int]) -> dict[str, int]:
    """The counts of a trial; its misses and the seeds that are no case of it are printed."""
    hits, n = 0, 0
    for seed in seeds[: round(len(seeds) * trial.share)]:
        good, found = trial.run(seed)
        hits, n = hits + bool(good), n + (good is not None)
        if not good:
            said = f"{found.standing} {found.reason}: {found.explanation.name}"
            case = "" if good is False else f", no case of it (accuracy {found.accuracy:.3f})"
            print(f"  {trial.what}, seed {seed}{case}: {said}", flush=True)
    return {"hits": hits, "n": n, "first": seeds[0]}


def line(what: str, counts: Mapping[str, int]) -> str:
    """The row of a table."""
    low, high = wilson(counts["hits"], counts["n"])
    hits = f"{counts['hits']} of {counts['n']}"
    return f"| {what} | {hits} | {low:.1%} to {high:.1%} | {counts['first']} |"


def put(page: Path, kept: Mapping[str, Any]) -> None:
    """Put the table of all rows in the place of the one that stands on a page."""
    text = page.read_text(encoding="utf-8")
    before, mark, rest = text.partition(TABLE)
    after = rest[rest.index("\n\n") :]
    named = [one.what for one in TRIALS if one.what in kept["rows"]]
    rows = "\n".join(line(one, kept["rows"][one]) for one in named)
    write_text(page, f"{before}{mark}{rows}{after}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audits")
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--seeds", type=int, default=100, help="how many; some trials take fewer")
    parser.add_argument("--only", default="", help="trials whose words have this")
    parser.add_argument("--out", type=Path, help="JSON that keeps the rows, put into `PAGE`, too")
    chosen = parser.parse_args(arguments)
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    for trial in TRIALS:
        if chosen.only in trial.what:
            counts = row(trial, seeds)
            print(line(trial.what, counts), flush=True)
            if chosen.out is not None:
                asked = f"--first {chosen.first} --seeds {chosen.seeds} --only {trial.what!r}"
                command = f"python -m benchmarks.audits {asked} --out {chosen.out}"
                put(PAGE, keep_row(chosen.out, counts, made(command, trial.what)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
