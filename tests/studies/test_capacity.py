"""Capacity: encoders with planted features are judged as the theory says; the other measures
against brute force.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mechint.claim import Claim
from mechint.models.linear_bottleneck import initialize, losses, measures
from mechint.probe import run as run_probe
from mechint.run_table.entries import Entry
from mechint.studies import PlannedRun, Runs, find_study, plan
from mechint.studies.capacity import (
    claims_alignment,
    claims_loss,
    claims_retention,
    language_measures,
)
from mechint.studies.capacity.language_measures import Measures, left_out_r2
from mechint.studies.capacity.loss_measures import accuracy_at_loss, compute_of, other_losses
from mechint.studies.capacity.measures import (
    energy_widths,
    kept,
    margin,
    rare_weight,
    share_as_predicted,
)
from mechint.studies.capacity.runs import BUDGETS, MIXTURE, SMALL
from mechint.training import Run, train_many
from tests.studies.planted_outcomes import judge, outcomes

TASK = {"n": 16, "n_tasks": 4, "rank": 4, "alpha": 1.0, "beta": 0.7}
WIDTHS = (1, 2, 3, 5, 7, 9, 11, 13, 15, 16)


def planted(width: int, order: Callable[[Run], torch.Tensor], task: dict[str, Any] = TASK) -> Run:
    """A run whose encoder holds the `width` features of largest `order` (task, feature)."""
    run = Run(
        plan(
            "x",
            "regression-mixture",
            task,
            {"width": width, "columns": 16},
            {"steps": 1, "batch_size": None},
        ).spec
    )
    chosen = order(run).flatten().argsort(descending=True, stable=True)[:width]
    encoder = torch.zeros(16, 16, dtype=torch.float64)
    encoder[:, :width] = run.spec.task.bases.flatten(0, 1)[chosen].T
    run.weights, run.status = {"W_enc": encoder}, "finished"
    run.metrics = [
        {
            "step": 1,
            **{
                f"test.{name}": float(value)
                for name, value in measures(run.weights, run.spec.task).items()
            },
        }
    ]
    return run


def runs_of(
    order: Callable[[Run], torch.Tensor],
    arms: tuple[str, ...] = ("phase", "staircase", "complexity"),
    seeds: int = 3,
) -> Runs:
    made, labels = {}, {}
    for arm in arms:
        for width in WIDTHS:
            for seed in range(seeds):
                name = f"{arm}-{width}-{seed}"
                made[name] = planted(width, order)
                labels[name] = {"arm": arm, "width": width, "seed": seed}
    return Runs(made, labels)


def verdict(letter: str, runs: Runs) -> str:
    return judge("capacity", letter, Measures(runs)).verdict


def utilities(run: Run) -> torch.Tensor:
    return run.spec.task.utilities


def frequencies(run: Run) -> torch.Tensor:
    return run.spec.task.priors[:, None].expand(-1, run.spec.task.rank)


def rarest_first(run: Run) -> torch.Tensor:
    return -run.spec.task.utilities


@pytest.mark.parametrize("letter", ["a", "b", "c", "f"])
def test_planted_features(letter: str) -> None:
    """Encoders that hold the features of largest utility, those of another order, and too few."""
    wrong = rarest_first if letter == "c" else frequencies
    assert verdict(letter, runs_of(utilities)) == "reproduced"
    assert verdict(letter, runs_of(wrong)) == "not reproduced"
    assert verdict(letter, runs_of(utilities, seeds=2)) == "underpowered"
    unfilled = runs_of(utilities)
    for run in unfilled.values():
        run.metrics[0] |= {f"test.features.{t}": 0.0 for t in range(1, 4)}
    assert verdict(letter, unfilled) == "underpowered"  # the control: width left over


def test_a_rare_task_that_no_width_holds_is_missed() -> None:
    runs = runs_of(utilities)
    for run in runs.values():
        run.metrics[0][f"test.features.{run.spec.task.n_tasks - 1}"] = 0.0
    claim = judge("capacity", "c", Measures(runs))
    assert outcomes(claim)["every rare task held at some width"] == "missed"


@given(st.integers(0, 32), st.floats(0.1, 2), st.floats(0.1, 2))
def test_kept_is_the_task_s_own_rule(width: int, alpha: float, beta: float) -> None:
    task = plan(
        "x", "regression-mixture", {"n": 32, "n_tasks": 8, "rank": 4, "alpha": alpha, "beta": beta}
    ).spec.task
    assert kept(task, width, task.utilities.numpy()).tolist() == task.retained_features(width)


@given(st.floats(0.1, 2), st.floats(0.1, 2), st.floats(0.05, 1))
def test_width_for_a_share_of_the_energy(alpha: float, beta: float, share: float) -> None:
    task = plan(
        "x", "regression-mixture", {"n": 16, "n_tasks": 4, "rank": 4, "alpha": alpha, "beta": beta}
    ).spec.task
    for t, width in enumerate(energy_widths(task, share)):
        order = task.utilities.flatten().argsort(descending=True, stable=True).tolist()
        held = {
            m: sum(float(task.spectra[t, i % 4]) for i in order[:m] if i // 4 == t)
            for m in (width - 1, width)
        }
        total = float(task.spectra[t].sum())
        assert held[width] >= share * total - 1e-9 and held[width - 1] < share * total + 1e-9


def test_share_counts_cells_within_half_a_feature() -> None:
    run = planted(5, utilities)
    assert share_as_predicted([run]) == 1.0
    run.metrics[0]["test.features.0"] += 0.6
    assert share_as_predicted([run]) == pytest.approx(0.75)


@given(st.integers(0, 1000))
def test_left_out_r2_is_that_of_fits_without_the_example(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x = np.concatenate([generator.standard_normal((12, 3)), np.ones((12, 1))], 1)
    y = generator.standard_normal(12)
    errors = []
    for i in range(12):
        rest = np.arange(12) != i
        weights, *_ = np.linalg.lstsq(x[rest], y[rest], rcond=None)
        errors.append(y[i] - x[i] @ weights)
    assert left_out_r2(x, y) == pytest.approx(
        1 - np.sum(np.square(errors)) / np.sum((y - y.mean()) ** 2), abs=1e-6
    )


Table = dict[tuple[int, int], float]
"""(gap, width) → features of the rarest task."""

PLACES = [(gap, width) for gap in (1, 16, 64) for width in (9, 13)]
CAPACITY: dict[str, Table] = {
    "retention": dict(zip(PLACES, (2.0, 4.0, 1.0, 3.0, 0.0, 2.0), strict=True)),
    "weighted": dict(zip(PLACES, (2.0, 4.0) * 3, strict=True)),
}
"""What capacity alone leaves, by arm: with its prior's weight, the same at every gap."""

FORGOTTEN: dict[str, Table] = {
    "retention": {**CAPACITY["retention"], (16, 9): 0.0},
    "weighted": {**CAPACITY["weighted"], (16, 9): 0.5, (64, 9): 0.0, (64, 13): 3.5},
}


def judge_retention(
    monkeypatch: pytest.MonkeyPatch, tables: dict[str, Table], seeds: int = 3
) -> Claim:
    """Claim d on these tables of features held, with CAPACITY beside them."""
    made, labels = {}, {}
    for arm, table in tables.items():
        for (gap, width), features in table.items():
            if arm == "weighted" and gap == 1:
                continue  # as planned: at a gap of 1 the arms are one
            for seed in range(seeds):
                run, name = planted(width, utilities), f"{arm}-{gap}-{width}-{seed}"
                run.metrics[0]["test.features.3"] = features + 0.01 * seed
                run.metrics[0]["allowed"] = CAPACITY[arm][gap, width]
                made[name] = run
                labels[name] = {"arm": arm, "gap": gap, "width": width, "seed": seed}
    monkeypatch.setattr(claims_retention, "allowed", lambda run: run.final["allowed"])
    return judge("capacity", "d", Measures(Runs(made, labels)))


def test_retention_is_what_is_lost_beyond_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judge_retention(monkeypatch, FORGOTTEN)
    assert found.verdict == "reproduced"
    assert any("own size, gap 16" in part["part"] for part in found.parts)
    assert any("usual size, gap 64" in part["part"] for part in found.parts)
    assert judge_retention(monkeypatch, FORGOTTEN, seeds=2).verdict == "underpowered"


def test_what_capacity_explains_is_not_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features that fall with the gap just as Theorem 3 says at the weight that bursts have."""
    assert judge_retention(monkeypatch, CAPACITY).verdict == "not reproduced"
    own_size_only = {**FORGOTTEN, "weighted": CAPACITY["weighted"]}
    assert judge_retention(monkeypatch, own_size_only).verdict == "not reproduced"
    nothing = {arm: dict.fromkeys(PLACES, 0.0) for arm in CAPACITY}
    assert judge_retention(monkeypatch, nothing).verdict == "underpowered"  # the control


@pytest.mark.parametrize("gap", [1, 16, 64])
@pytest.mark.parametrize("normalization", ["batch", "fixed"])
def test_weight_of_the_rare_task_in_unclipped_bursts(gap: int, normalization: str) -> None:
    """A burst averaged over its own size has r/(u + r)/G of the loss; over the usual one, p."""
    task = {**SMALL, **MIXTURE, "gap": gap, "normalization": normalization}
    run = Run(plan("x", "regression-mixture", task, {}, {"clip": None, "batch_size": 128}).spec)
    prior = (1 / 8) / sum(1 / t for t in range(1, 9))
    usual, due = round(128 * (1 - prior)), round(gap * prior * 128)
    of_own_size = due / (usual + due) / gap
    expected = prior if gap == 1 or normalization == "fixed" else of_own_size
    assert rare_weight(run) == pytest.approx(expected, rel=0.01)


def test_a_clipped_burst_weighs_less() -> None:
    """The mean of the clipped gradients themselves has the rare task's decoder in that share."""
    task = {**SMALL, **MIXTURE, "gap": 16, "normalization": "fixed"}
    planned = plan("x", "regression-mixture", task, {}, {"clip": 0.5, "batch_size": 128})
    run = Run(planned.spec)
    run.weights = initialize(planned.spec.model, 0)
    run.weights["W_dec"] = torch.zeros_like(run.weights["W_dec"])
    sums = np.zeros(2)
    for step in range(8000, 8000 + 4 * 16):
        batch = next(iter(planned.spec.task.stream("train", 0, 128, start=step)))
        weights = {name: value.clone().requires_grad_() for name, value in run.weights.items()}
        losses(weights, planned.spec.model, batch).backward()
        grad = weights["W_dec"].grad  # the encoder's is zero where decoders are
        assert grad is not None
        grad = grad * min(1.0, 0.5 / float(grad.norm()))
        expected = run.weights["W_enc"].T @ readouts(planned)  # of a task's own examples
        towards = (grad * expected).sum((1, 2)) / expected.square().sum((1, 2))
        sums += [-float(towards[:-1].sum()), -float(towards[-1])]
    assert rare_weight(run) < 0.035  # of a prior of 0.046
    assert rare_weight(run) == pytest.approx(sums[1] / sums.sum(), rel=0.1)


def readouts(planned: PlannedRun) -> torch.Tensor:
    """(task, n, rank) the teachers of a planned run's task, float32."""
    return planned.spec.task.readouts.mT.float()


def data(
    extra: float,
    seeds: int = 3,
    learns: bool = True,
    narrow: int = 3,
    task: dict[str, Any] = TASK,
) -> Runs:
    """Widths `narrow` and 13 with the data once and ten times; at the narrow one ten times the data
    gives the rarest task `extra` features.
    """
    made, labels = {}, {}
    for factor in (1, 10):
        for width in (narrow, 13):
            for seed in range(seeds):
                name, run = f"{factor}-{width}-{seed}", planted(width, utilities, task)
                run.metrics[0]["test.loss"] = 1.0
                if (factor, width) == (10, narrow):
                    run.metrics[0]["test.features.3"] += extra
                if width == 13 and not learns:
                    run.metrics[0]["test.features.3"] = 0.0
                made[name] = run
                labels[name] = {"arm": "data", "factor": factor, "width": width, "seed": seed}
    return Runs(made, labels)


def test_ten_times_the_data() -> None:
    assert verdict("e", data(0.1)) == "reproduced"
    assert verdict("e", data(1.0)) == "not reproduced"  # one rare feature more than capacity leaves
    assert verdict("e", data(0.1, seeds=2)) == "underpowered"
    assert verdict("e", data(0.1, learns=False)) == "underpowered"  # the control


def test_one_seed_above_the_random_projection_is_missed() -> None:
    runs = data(0.0)
    runs["10-3-0"].metrics[0]["test.features.3"] = 0.8  # random: 4 × 3 / 16 = 0.75
    assert verdict("e", runs) == "not reproduced"


def test_one_seed_that_is_taught_a_task_above_capacity_is_missed() -> None:
    """The mean over eight seeds, 0.09 [−0.09, 0.27], is far below the half that one of them is
    taught; one that held it before is not taught it.
    """
    runs = data(0.0, seeds=8)
    runs["10-3-0"].metrics[0]["test.features.3"] = 0.7
    assert verdict("e", runs) == "not reproduced"
    runs["1-3-0"].metrics[0]["test.features.3"] = 0.6
    assert verdict("e", runs) == "reproduced"


def test_a_width_between_two_equal_utilities_does_not_say_what_data_teaches() -> None:
    """Utilities 1/(t j): width 4 keeps one third of two, and ten times the data gives the fourth
    task a feature of one quarter.
    """
    task = {**TASK, "beta": 1.0}
    assert margin(planted(4, utilities, task).spec.task, 4) == pytest.approx(0, abs=1e-9)
    for extra in (0.0, 0.7):
        claim = judge("capacity", "e", Measures(data(extra, narrow=4, task=task)))
        (part,) = (part for part in claim.parts if "anew" in part["part"])
        assert claim.verdict == "underpowered" and part["outcome"] == "undecided"
    assert verdict("e", data(2.0, narrow=4, task=task)) == "not reproduced"  # random: 1


def test_the_widths_of_the_paper_s_own_size_are_no_ties() -> None:
    planned = [one for one in find_study("capacity").runs("full") if one.labels["arm"] == "data"]
    task: Any = planned[0].spec.task
    widths = {one.labels["width"] for one in planned}
    judged = [width for width in widths if any(task.critical_width(t) > width for t in range(8))]
    assert len(judged) == 3 and min(margin(task, width) for width in judged) > 0.05


# --- language models, whose measures are given ----------------------------------------------------
class Given(Measures):
    """Language models of two widths and frequencies; each measure is a function of both."""

    def __init__(self, seeds: int, **measures: Callable[[int, float], Any]) -> None:
        labels, runs = {}, {}
        for width in (8, 32):
            for frequency in (0.12, 0.03):
                for seed in range(seeds):
                    name = f"{width}-{frequency}-{seed}"
                    labels[name] = {
                        "arm": "language",
                        "width": width,
                        "frequency": frequency,
                        "gap": 1,
                        "seed": seed,
                    }
                    runs[name] = planted(5, utilities)
        super().__init__(Runs(runs, labels))
        for measure, of in measures.items():
            setattr(self, measure, self._of(of))

    def _of(self, of: Callable[[int, float], Any]) -> Callable[..., Any]:
        def measure(name: str, *_: str) -> Any:
            own = self.runs.labels[name]
            value, jitter = of(own["width"], own["frequency"]), 0.002 * own["seed"]
            return value + jitter if isinstance(value, float) else value

        return measure


def accurate(narrow_rare: float, wide: float = 0.95) -> Callable[[int, float], float]:
    return lambda width, frequency: narrow_rare if (width, frequency) == (8, 0.03) else wide


@pytest.mark.parametrize(
    ("measure", "seeds", "expected"),
    [
        (accurate(0.6), 4, "reproduced"),
        (accurate(0.94), 4, "not reproduced"),
        (accurate(0.5, 0.6), 4, "underpowered"),  # the control: nothing is learned where frequent
        (accurate(0.6), 2, "underpowered"),
    ],
)
def test_rarer_tasks(measure: Callable[[int, float], float], seeds: int, expected: str) -> None:
    assert judge("capacity", "g", Given(seeds, accuracy=measure)).verdict == expected


@pytest.mark.parametrize(
    ("narrow", "wide", "seeds", "expected"),
    [
        (-0.5, 0.8, 4, "reproduced"),
        (0.8, 0.8, 4, "not reproduced"),
        (-0.9, -0.5, 4, "underpowered"),
        (-0.5, 0.8, 2, "underpowered"),
    ],
)
def test_features_of_the_order(narrow: float, wide: float, seeds: int, expected: str) -> None:
    study = Given(seeds, order_r2=lambda width, frequency: narrow if width == 8 else wide)
    study.site = lambda operand: "hook_embed"  # type: ignore[method-assign]
    study.learned = study.names  # type: ignore[method-assign]
    assert judge("capacity", "h", study).verdict == expected


@pytest.mark.parametrize(
    ("narrow", "wide", "signed", "seeds", "expected"),
    [
        (3.3, 1.1, 0.3, 4, "reproduced"),
        (1.1, 3.3, 0.3, 4, "not reproduced"),
        (3.3, 1.1, -0.3, 4, "not reproduced"),
        (3.3, 1.1, 0.3, 2, "underpowered"),
    ],
)
def test_interference(narrow: float, wide: float, signed: float, seeds: int, expected: str) -> None:
    def cosines(width: int, frequency: float) -> dict[str, float]:
        size = narrow if width == 8 else wide
        return {"background": size, "raw": size / 10, "signed": signed}

    study = Given(seeds, cosines=cosines, accuracy=accurate(0.6))
    assert judge("capacity", "i", study).verdict == expected


def test_interference_is_compared_where_both_models_were_still_learning() -> None:
    def cosines(width: int, frequency: float) -> dict[str, float]:
        if (width, frequency) == (32, 0.12):
            return {}  # learned before its first checkpoint
        size = {(8, 0.12): 9.0, (8, 0.03): 3.0, (32, 0.03): 1.0}[width, frequency]
        return {"background": size, "raw": 0.1, "signed": 0.3}

    found = judge("capacity", "i", Given(4, cosines=cosines, accuracy=accurate(0.6)))
    assert found.verdict == "reproduced"
    assert found.parts[0]["shown"].startswith("0.333")  # without the frequent condition
    assert "on 4 pairs" in found.ours


def test_checkpoints_while_learning_lie_before_the_task_is_learned() -> None:
    study = Given(1)
    (name, *_) = study.names()
    run = study.runs[name]
    run.metrics = [
        {"step": step, "test.greedy.accuracy.task": at}
        for step, at in ((0, 0.5), (10, 0.6), (20, 0.95), (30, 0.85), (40, 0.97))
    ]
    run.subject = lambda: SimpleNamespace(series=dict.fromkeys((0, 8, 16, 24, 40)))  # type: ignore[method-assign,assignment,return-value]
    assert study.while_learning(name) == [8, 16]


@pytest.mark.parametrize(
    ("iia", "shuffled", "models", "expected"),
    [
        (0.97, 0.7, 4, "reproduced"),
        (0.6, 0.5, 4, "not reproduced"),
        (0.97, 0.9, 4, "underpowered"),  # the control: ranks dealt out anew are found as well
        (0.97, 0.7, 2, "underpowered"),
        (0.97, 0.7, 16, "reproduced"),
    ],
)
def test_alignment(iia: float, shuffled: float, models: int, expected: str) -> None:
    study = searched(iia, shuffled)
    study.learned = lambda: list(study.runs)[:models]  # type: ignore[method-assign]
    claim = judge("capacity", "j", study)
    assert claim.verdict == expected
    assert claim.n == min(models, 4)  # seeds, not their conditions
    assert "the words' embedding" in claim.ours
    # a model that answers with any word of the language is no control, and stands beside
    assert "untrained" not in claim.criterion and "untrained" not in str(claim.control)
    assert "in untrained models 0.10" in claim.ours


def test_the_kept_searches_are_judged_as_their_numbers_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Path(__file__).parents[2] / "results/capacity/laptop/claims.json"
    (kept,) = (one for one in json.loads(place.read_text(encoding="utf-8")) if one["letter"] == "j")
    labels = {one.name: one.labels for one in find_study("capacity").runs("laptop")}
    study = Measures(Runs(dict.fromkeys(labels, planted(1, utilities)), labels))
    monkeypatch.setattr(study, "learned", lambda: list(kept["values"]["rank of a"]))
    monkeypatch.setattr(
        claims_alignment, "searches", lambda study, operand: kept["values"][operand]
    )
    claim = judge("capacity", "j", study).to_dict()
    for said in ("verdict", "ours", "parts", "control", "n"):
        assert claim[said] == kept[said], said


def searched(iia: float, shuffled: float) -> Given:
    """Four seeds of models in which the searches found this."""
    found = {
        "iia": iia,
        "full swap": 0.99,
        "p": 0.01,
        "hook": "blocks.0.hook_resid_pre",
        "shuffled ranks": shuffled,
        "untrained model": 0.1,
    }
    study = Given(4, interchange=lambda width, frequency: found)
    study.behind = lambda name, operand: found  # type: ignore[method-assign]
    return study


@pytest.mark.parametrize("letter", ["h", "j"])
def test_where_no_model_learned_the_task_the_control_failed(letter: str) -> None:
    study = Given(4, accuracy=accurate(0.5, 0.6))
    claim = judge("capacity", letter, study)
    assert claim.verdict == "underpowered" and claim.n == 0
    assert claim.control is not None and claim.control["outcome"] == "missed"
    unfinished = judge("capacity", letter, Measures(Runs({}, {})))
    assert unfinished.verdict == "not tested at this size"


def test_interchanges_are_searched_once_and_kept(tmp_path: Path, monkeypatch: Any) -> None:
    """The search's figures stand under the claim's names, and a second look runs no probe."""
    planned = find_study("capacity").runs("smoke")[-1]
    (run,) = train_many([dataclasses.replace(planned.spec, out=tmp_path / "run")])
    for name, value in {"steps": 2, "pairs": 32, "held_out": 16, "only_correct": False}.items():
        monkeypatch.setitem(language_measures.SEARCH, name, value)
    first, second = (
        Measures(Runs({"run": run}, {"run": {"arm": "language", "seed": 0}})) for _ in range(2)
    )
    for study in (first, second):
        monkeypatch.setattr(study, "learned", lambda: ["run"])
    found = first.interchange("run", "rank of a")
    direct = run_probe("das", run.subject(), variable="rank of a", **language_measures.SEARCH)
    assert found == {
        "iia": direct.metrics["iia"],
        "full swap": direct.metrics["iia_full_swap"],
        "p": direct.null["iia"].p_value,
        "hook": direct.metrics["hook"],
        "shuffled ranks": direct.metrics["iia_arbitrary"],
        "untrained model": direct.metrics["iia_untrained"],
    }
    behind = run_probe(
        "das",
        run.subject(),
        variable="rank of a",
        hook="blocks.1.hook_resid_pre",
        **language_measures.SEARCH,
    )
    assert first.behind("run", "rank of a")["iia"] == behind.metrics["iia"]
    monkeypatch.setattr(Entry, "subject", None)  # opening a model would fail
    assert second.interchange("run", "rank of a") == found


def language_run(*rows: tuple[float, float, float, float]) -> Run:
    """A language model with these (step, loss on all tokens, loss on answers, accuracy)."""
    task = {"n_ctx": 8, "vocab_size": 96, "inject": "comparison", "frequency": 0.12}
    run = Run(plan("x", "corpus", task, {"d_model": 8}, {"steps": 1}).spec, status="finished")
    names = ("step", "test.loss", "test.loss.task", "test.greedy.accuracy.task")
    run.metrics = [dict(zip(names, row, strict=True)) for row in rows]
    return run


def test_loss_of_all_other_tokens() -> None:
    """7 targets a text; every 1/0.12 texts one of them is an answer."""
    run = language_run((0, (0.12 * 0.7 + (7 - 0.12) * 2.1) / 7, 0.7, 0.5))
    assert other_losses(run) == pytest.approx([2.1])


@given(st.floats(1.05, 2.95), st.integers(2, 7), st.integers(8, 30))
def test_logs_on_one_curve_do_not_differ_at_equal_loss(level: float, few: int, many: int) -> None:
    """However coarse the looks, and whatever the answers' loss is, where accuracy is a line."""

    def log(looks: int, answers: float) -> Run:
        share = 0.12 / 7
        others = np.linspace(3, 1, looks)
        return language_run(
            *(
                (i, share * answers + (1 - share) * x, answers, 1.2 - x / 5)
                for i, x in enumerate(others)
            )
        )

    coarse, fine = accuracy_at_loss(log(few, 0.7), level), accuracy_at_loss(log(many, 0.1), level)
    assert coarse == pytest.approx(fine) and coarse == pytest.approx((1.2 - level / 5, level))


def test_a_level_that_is_never_reached_takes_the_last_evaluation() -> None:
    accuracy, loss = accuracy_at_loss(language_run((0, 3, 3, 0.5), (9, 2, 2, 0.8)), 1.0)
    assert (accuracy, loss) == (pytest.approx(0.8), pytest.approx(2.0))


def curves(accuracy: Callable[[int, float], float], seeds: int) -> Given:
    """Language models with this accuracy where their losses are 1."""
    study, made = Given(seeds), {}
    for name, labels in study.runs.labels.items():
        value = accuracy(labels["width"], labels["frequency"]) + 0.002 * labels["seed"]
        last = 0.5 if labels["width"] == 32 else 1.0
        made[name] = language_run((0, 2, 2, 0.5), (10, 1, 1, value), (20, last, last, 0.95))
    study.runs = Runs(made, study.runs.labels)
    return study


@pytest.mark.parametrize(
    ("accuracy", "seeds", "expected"),
    [
        (lambda width, frequency: 0.8 if frequency > 0.1 or width == 32 else 0.5, 4, "reproduced"),
        (lambda width, frequency: 0.8, 4, "not reproduced"),
        (lambda width, frequency: 0.8 if width == 32 else 0.5, 4, "not reproduced"),
        (
            lambda width, frequency: 0.8 if frequency > 0.1 or width == 32 else 0.5,
            2,
            "underpowered",
        ),
    ],
)
def test_equal_loss(accuracy: Callable[[int, float], float], seeds: int, expected: str) -> None:
    study = curves(accuracy, seeds)
    assert judge("capacity", "k", study, "full").verdict == expected


@pytest.mark.parametrize(
    ("early", "seeds", "expected"),
    [
        (0.3, 4, "reproduced"),
        (0.9, 4, "not reproduced"),  # lower at the end of its own, longer training alone
        (0.3, 2, "underpowered"),
    ],
)
def test_equal_compute(
    early: float, seeds: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wide model's step costs four of the narrow one's, whose 100 buy 25: between two looks."""
    study, made = Given(seeds, accuracy=accurate(0.6)), {}
    for name, labels in study.runs.labels.items():
        jitter = 0.01 * labels["seed"]
        if labels["width"] == 8:
            rows = ((0, 3, 2.0, 0.5), (100, 2, 0.7 + jitter, 0.6))
        else:
            rows = ((0, 3, 2 * early - 0.1, 0.5), (50, 2, 0.1, 0.9), (100, 2, 0.0, 1.0))
        made[name] = language_run(*rows)
    study.runs = Runs(made, study.runs.labels)
    of = {
        id(made[name]): 4.0 if own["width"] == 32 else 1.0
        for name, own in study.runs.labels.items()
    }
    monkeypatch.setattr(claims_loss, "compute_of", lambda run: of[id(run)])
    claim = judge("capacity", "l", study, "full")
    assert claim.verdict == expected
    assert f"{early:.2f} at width 32 at 1e+02 FLOP (step 25 of width 32)" in claim.ours


def test_compute_counts_parameters_and_tokens() -> None:
    planned = find_study("capacity").runs("smoke")[-1]
    (run,) = train_many([planned.spec])
    parameters = sum(value.numel() for value in run.weights.values())
    assert compute_of(run) == 6 * parameters * planned.spec.train.batch_size * 8


@pytest.mark.parametrize("size", ["smoke", "laptop", "full"])
def test_arms_train_as_one_ensemble(size: str) -> None:
    from mechint.training.plan import shape_of

    planned = find_study("capacity").runs(size)
    assert len({one.name for one in planned}) == len(planned)
    for arm in ("phase", "staircase", "complexity"):
        assert len({shape_of(one.spec) for one in planned if one.labels["arm"] == arm}) == 1
    assert {one.labels["width"] for one in planned if one.labels["arm"] == "phase"} >= {
        min(BUDGETS[size].widths)
    }
