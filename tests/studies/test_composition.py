"""Composition: the attention patterns against the planted construction, the hops' targets against
brute force.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mechint.planted import composition as planted
from mechint.studies import PlannedRun, find_study, plan
from mechint.studies.composition.measures import Measures
from mechint.training import Run
from tests.studies.planted_outcomes import judge, outcomes, runs_of, spec_of

composition = importlib.import_module("mechint.studies.composition.measures")
figures = importlib.import_module("mechint.studies.composition.figures")


class Planted(Run):
    """A run whose model is the planted construction."""

    def subject(self, **options: Any) -> Any:
        return planted(n=3, k=4).subject


@pytest.fixture(scope="module")
def run() -> Run:
    made = Planted(
        plan(
            "x",
            "composition",
            {"n": 3, "k": 4, "hops": (1, 2, 4)},
            {"d_model": 8, "n_heads": 1},
            {"steps": 1},
        ).spec
    )
    made.status = "finished"
    return made


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_construction_has_its_own_pattern(run: Run, layer: int) -> None:
    assert composition.pattern_shares(run, layer) == pytest.approx((1.0, 1.0), abs=1e-4)


@pytest.mark.parametrize("layer", [1, 2, 3])
@pytest.mark.parametrize("avoiding", [(), (0,), (1, 3), (0, 1, 2, 3)])
def test_every_block_follows_the_construction_in_its_own_way(
    run: Run, avoiding: tuple[int, ...], layer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted pattern with the sign of some blocks of queries turned around: nothing on the
    target, and the same weight on all others of its block.
    """
    made = run.subject()
    pattern = made.activation(f"blocks.{layer - 1}.attn.hook_pattern").clone()
    targets = composition.pattern_targets(run, made.data.tokens, layer)
    for block in avoiding:
        for query in range(3 * block, 3 * block + 3):
            for example, target in enumerate(targets[:, query].tolist()):
                if target >= 0:
                    first = target - target % 3
                    pattern[example, :, query] = 0
                    pattern[example, :, query, first : first + 3] = 0.5
                    pattern[example, :, query, target] = 0
    inverted = SimpleNamespace(data=made.data, activation=lambda name: pattern)
    monkeypatch.setattr(run, "subject", lambda **options: inverted)
    looked, avoided = composition.block_shares(run, layer)
    blocks = range({1: 4, 2: 3, 3: 1}[layer])
    assert avoided.tolist() == [[float(block in avoiding) for block in blocks]]
    assert looked.tolist() == [[float(block not in avoiding) for block in blocks]]
    measures = study(x=[IN_ORDER])
    monkeypatch.setattr(measures, "blocks", lambda name, layer: (looked, avoided))
    assert measures.followed("x-0", layer) == 1.0
    mirrored = [block in avoiding for block in blocks]
    assert measures.avoided("x-0", layer) == pytest.approx(sum(mirrored) / len(mirrored))


def test_a_block_that_gets_little_attention_is_not_avoided_at_its_target(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run.subject()
    targets = composition.pattern_targets(run, made.data.tokens, 1)
    pattern = 0 * made.activation("blocks.0.attn.hook_pattern") + 0.1  # 0.2 on the own block
    pattern.scatter_(-1, targets[:, None, :, None], 0.0)
    faint = SimpleNamespace(data=made.data, activation=lambda name: pattern)
    monkeypatch.setattr(run, "subject", lambda **options: faint)
    looked, avoided = composition.block_shares(run, 1)
    assert avoided.max() == looked.max() == 0
    pattern *= 2
    assert composition.block_shares(run, 1)[1].min() == 1


def test_one_head_has_to_follow_in_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    measures = study(x=[IN_ORDER])
    looked, avoided = np.array([[1.0, 0.0], [0.0, 0.5]]), np.array([[0.0, 0.2], [0.9, 0.0]])
    monkeypatch.setattr(measures, "blocks", lambda name, layer: (looked, avoided))
    assert measures.followed("x-0", 1) == pytest.approx(0.7)  # (0.9 + 0.5) / 2, not (1 + 0.5) / 2


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_targets_by_brute_force(run: Run, layer: int) -> None:
    task: Any = run.spec.task
    tokens = task.sample(5, seed=1).tokens
    found = composition.pattern_targets(run, tokens, layer).tolist()
    half, hidden = 0 if layer == 1 else 2 ** (layer - 2), task.permutations.tolist()
    for row, example in zip(found, tokens.tolist(), strict=True):
        for i in range(4):
            for j in range(3):
                end = j
                for step in range(i, min(4, i + half)):
                    end = example[step * 3 + hidden[step][end]] - step * 3
                doubled = (i + half) * 3 + end if i + 2 * half <= 4 else -1
                assert row[i * 3 + j] == (i * 3 + hidden[i][j] if layer == 1 else doubled)


STAGES = {"stages": (0, 20, 40), "cumulative": False}
"""Steps 1 … 20 are of 1-hop, 21 … 40 of 2-hop."""


def learned(
    arm: str, steps: dict[int, int], seed: int = 0, last: int = 100
) -> tuple[PlannedRun, Run]:
    """A run whose hops jump to accuracy 1 at the given steps (0: never)."""
    hops = tuple(steps)
    planned = plan(
        arm,
        "composition",
        {"n": 3, "k": 4, "hops": hops, **(STAGES if arm.startswith("curriculum") else {})},
        {"d_model": 8, "n_heads": 1, "n_layers": 3},
        {"steps": last},
        seed=seed,
        arm=arm,
        readout="last",
    )
    run = Run(planned.spec)
    names = ["test.accuracy"] if len(hops) == 1 else [f"test.accuracy.{hop}-hop" for hop in hops]
    for step in range(0, last + 1, 10):
        run.metrics.append(
            {
                "step": step,
                **{
                    name: 1.0 if 0 < at <= step else 1 / 3
                    for name, at in zip(names, steps.values(), strict=True)
                },
            }
        )
    run.step, run.status = last, "finished"
    return planned, run


IN_ORDER, STUCK, REVERSED = {1: 10, 2: 20, 4: 40}, {1: 10, 2: 20, 4: 0}, {1: 10, 2: 50, 4: 40}
UNTRAINED = {1: 0, 2: 0, 4: 0}


def study(**arms: list[dict[int, int]]) -> Measures:
    """Arms by name (underscores for hyphens), one run per entry."""
    made = [
        learned(arm.replace("_", "-"), steps, seed)
        for arm, runs in arms.items()
        for seed, steps in enumerate(runs)
    ]
    return Measures(runs_of(made), 4)


@pytest.mark.parametrize(
    ("direct", "mixture", "verdict"),
    [
        ([{4: 0}] * 6, [IN_ORDER] * 6, "reproduced"),
        ([{4: 90}] + [{4: 0}] * 5, [IN_ORDER] * 6, "not reproduced"),
        ([{4: 0}] * 6, [IN_ORDER] + [STUCK] * 5, "underpowered"),  # one of six: no difference yet
        (
            [{4: 0}] * 6,
            [STUCK] * 6,
            "underpowered",
        ),  # the control: nothing learns with this readout
        ([{4: 0}] * 60, [STUCK] * 60, "underpowered"),  # nor where so many show no difference
        ([{4: 0}] * 2, [IN_ORDER] * 2, "underpowered"),
    ],
)
def test_direct_training(direct: list, mixture: list, verdict: str) -> None:
    measures = study(direct=direct, mixture_last=mixture)
    assert judge("composition", "a", measures).verdict == verdict


def test_half_of_the_answers_of_three_points_is_not_chance() -> None:
    arms = {"direct": [{4: 0}] * 6, "mixture-last": [IN_ORDER] * 6}
    made = [learned(arm, one, i) for arm, runs in arms.items() for i, one in enumerate(runs)]
    for last in (1 / 3 + 0.049, 0.5):
        made[0][1].metrics[-1]["test.accuracy"] = last
        said = judge("composition", "a", Measures(runs_of(made), 4)).verdict
        assert said == ("not reproduced" if last == 0.5 else "reproduced")


@pytest.mark.parametrize(
    ("staged", "last", "verdict"),
    [
        ([IN_ORDER] * 5, [IN_ORDER] * 6, "reproduced"),
        ([IN_ORDER] * 4 + [REVERSED], [IN_ORDER] * 6, "not reproduced"),
        ([IN_ORDER] * 5, [STUCK] * 8, "not reproduced"),
        ([IN_ORDER] * 5, [IN_ORDER] * 3 + [STUCK] * 3, "underpowered"),
        ([IN_ORDER] * 2, [IN_ORDER] * 2, "underpowered"),
    ],
)
def test_mixture_is_learned_from_easy_to_hard(staged: list, last: list, verdict: str) -> None:
    measures = study(mixture=staged, mixture_last=last)
    assert judge("composition", "b", measures).verdict == verdict


@pytest.mark.parametrize(
    ("one_hop_each", "verdict"),
    [
        ([STUCK], "reproduced"),  # shown beside, too few to be judged
        ([UNTRAINED] * 2, "reproduced"),  # and too few for the control
        ([UNTRAINED] * 3, "underpowered"),
        ([IN_ORDER] * 5, "reproduced"),
        ([STUCK] * 8, "not reproduced"),
        ([REVERSED] + [IN_ORDER] * 5, "not reproduced"),
    ],
)
def test_one_hop_of_each_example_is_judged_where_it_is_trained(
    one_hop_each: list, verdict: str
) -> None:
    measures = study(
        mixture=[IN_ORDER] * 5, mixture_last=[IN_ORDER] * 6, mixture_one_hop_each=one_hop_each
    )
    claim = judge("composition", "b", measures)
    assert claim.verdict == verdict
    assert ("not judged" in claim.ours) == (len(one_hop_each) < 3)


def test_criteria_say_what_an_example_of_the_mixture_asks() -> None:
    for letter in "ab":
        assert "asks all of its hops" in str(spec_of("composition", letter).criterion)
    planned = {one.name: one for one in find_study("composition").runs("overnight")}
    asked: Any = planned["mixture-one-hop-each-1000"].spec
    targets = next(asked.task.stream("train", 0, 8)).targets  # (example, pos, hop)
    assert {int((one >= 0).any(0).sum()) for one in targets} == {1}
    every: Any = planned["mixture-1000"].spec
    targets = next(every.task.stream("train", 0, 8)).targets
    assert {int((one >= 0).any(0).sum()) for one in targets} == {3}
    assert asked.train.steps == 3 * every.train.steps


FAILED_STAGE = {1: 10, 2: 50, 4: 60}
"""2-hop is learned only after step 40, where its stage ends."""


@pytest.mark.parametrize(
    ("staged", "last", "verdict"),
    [
        ([IN_ORDER] * 5, [], "reproduced"),
        ([IN_ORDER] * 5, [STUCK] * 8, "reproduced"),  # the source's claim is of the staged readout
        ([STUCK] * 8, [IN_ORDER] * 8, "not reproduced"),
        ([IN_ORDER] * 4 + [STUCK], [IN_ORDER] * 8, "underpowered"),  # 4 of 5: [0.28, 0.99]
        ([IN_ORDER] * 2, [IN_ORDER] * 8, "underpowered"),
        # the control: no claim about stage 3 where stage 2, or 1, failed
        ([FAILED_STAGE] * 5, [], "underpowered"),
        ([{1: 10, 2: 0, 4: 0}] * 8, [], "underpowered"),
        ([{1: 0, 2: 0, 4: 0}] * 8, [], "underpowered"),
    ],
)
def test_curriculum(staged: list, last: list, verdict: str) -> None:
    measures = study(curriculum=staged, curriculum_last=last)
    claim = judge("composition", "c", measures)
    assert claim.verdict == verdict
    assert ("last readout" in claim.ours) == bool(last)


def test_a_hop_that_was_learned_after_its_stage_is_told_from_one_within_it() -> None:
    runs = study(curriculum=[IN_ORDER, FAILED_STAGE, {1: 30, 2: 30, 4: 50}, {1: 20, 2: 40, 4: 50}])
    assert runs.passed_stages("curriculum") == [True, False, False, True]


def patterned(
    monkeypatch: pytest.MonkeyPatch, first: float, copied: float, later: float, n: int
) -> Measures:
    """Runs that learned, with these shares of queries on the target; first, copied: either way."""
    arms = {"attention_only": first, "attention_only_copy": copied, "mixture": 0.3}
    measures = study(**{arm: [IN_ORDER] * n for arm in arms})
    share = {arm.replace("_", "-"): value for arm, value in arms.items()}
    monkeypatch.setattr(measures, "pattern", lambda name, layer: (0.3, 0.2))

    def followed(name: str, layer: int) -> float:
        return share[name.rpartition("-")[0]] if layer == 1 else later + 0.001 * int(name[-1])

    monkeypatch.setattr(measures, "followed", followed)
    return measures


@pytest.mark.parametrize(
    ("shares", "verdict", "missed"),
    [
        ((0.98, 0.98, 0.9, 4), "reproduced", ""),
        ((0.98, 0.4, 0.9, 4), "not reproduced", "attention-only-copy, layer 1"),
        ((0.6, 0.98, 0.9, 4), "not reproduced", "attention-only, layer 1"),
        ((0.98, 0.98, 0.2, 4), "not reproduced", "mixture, layer 3"),
        ((0.98, 0.98, 0.9, 2), "underpowered", ""),
    ],
)
def test_attention_patterns(
    shares: tuple, verdict: str, missed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = judge("composition", "d", patterned(monkeypatch, *shares))
    assert claim.verdict == verdict
    assert not missed or outcomes(claim)[missed] == "missed"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (
            [IN_ORDER, REVERSED, STUCK],
            "1-hop in 3 of 3 runs, 2-hop in 3 of 3 runs, 4-hop in 2 of 3 runs; all hops in 2 of 3 "
            "runs, 1 of them from easy to hard.",
        ),
        (
            [UNTRAINED],
            "1-hop in 0 of 1 run, 2-hop in 0 of 1 run, 4-hop in 0 of 1 run; all hops in 0 of 1 "
            "run.",
        ),
    ],
)
def test_the_caption_says_which_hops_were_learned(steps: list, said: str) -> None:
    caption = figures.hops(study(mixture=steps), "mixture", "staged").caption
    assert caption.endswith(f"At 0.95: {said}")


@pytest.mark.parametrize(("steps", "shown"), [([STUCK, IN_ORDER], 1), ([STUCK, STUCK], 0)])
def test_the_drawn_attention_is_of_a_run_that_learned(
    run: Run, steps: list, shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    measures = study(attention_only=steps)
    for one in measures.group("attention-only"):
        monkeypatch.setattr(one, "subject", run.subject)
    caption = figures.attention(measures).caption
    assert f"attention-only-{shown}" in caption
    assert ("which learned every hop" in caption) == bool(shown)
    assert "largest weight there, block by block: 1.00, 1.00, 1.00, 1.00" in caption


@pytest.mark.parametrize("learned_in_mixture", [0, 4])
def test_runs_that_did_not_learn_are_not_judged_by_their_attention(
    learned_in_mixture: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That none learned is the control that failed: the claim was tested, and is underpowered."""
    mixture = [IN_ORDER] * learned_in_mixture + [STUCK] * 2
    arms = {"attention_only": [STUCK] * 4, "attention_only_copy": [STUCK] * 4, "mixture": mixture}
    measures = study(**arms)
    monkeypatch.setattr(measures, "pattern", lambda name, layer: (0.9, 0.5))
    monkeypatch.setattr(measures, "followed", lambda name, layer: 0.9)
    claim = judge("composition", "d", measures)
    assert claim.verdict == "underpowered" and claim.n == 0
    assert claim.control is not None and claim.control["outcome"] == "missed"
    assert {part["outcome"] for part in claim.parts if part["n"] == 0} == {"undecided"}
    assert "attention-only no run learned every hop" in claim.ours


def test_an_arm_that_was_not_trained_is_not_tested() -> None:
    arms = {"attention_only": [STUCK] * 4, "mixture": [IN_ORDER] * 4}
    claim = judge("composition", "d", study(**arms))
    assert claim.verdict == "not tested at this size" and "has finished" in claim.note
