"""Explanations: planted programs stand with exactly the planted parts, controls and wrong claims do
not, published models come out as other code found them.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import mechint
import tasks
from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError, ParameterError, UnknownNameError
from mechint.explanation import Explanation, Part, audit, explain, head, site
from mechint.explanation.code import written
from mechint.explanation.measure import Bench
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.subject.components import site_of
from probes.explanations.representations import Bilinear, Frequencies, GroupProducts, Setting

CHECKPOINTS = Path(os.environ.get("MECHINT_PUBLISHED", "published"))
published = pytest.mark.usefixtures("published")
P, KEYS = 31, (3, 8, 12)


def addition(noise: float = 0.05, seed: int = 1) -> Subject:
    return planted.modular_addition(P, KEYS, noise=noise, rotation_seed=seed, seed=seed).subject


def forced(
    subject: Subject, keys: list[str], last: Any = Setting.product, by: Any = Frequencies
) -> Explanation:
    """The explanation by some frequencies, whatever the logits hold."""
    setting, family = Setting.of(subject), by()
    assert setting is not None and subject.task is not None
    program = subject.task.own_program
    assert program is not None
    return family.make(Bench.of(subject, program), setting, keys, keys, last)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_planted_frequencies_stand_and_no_others(noise: float) -> None:
    best = explain(addition(noise), family="frequencies")[0]
    assert best.standing == "stands"
    reads = next(part for part in best.explanation.parts if part.reads)
    assert set(reads.blocks) == {str(key) for key in KEYS}
    assert best.value("match") > 0.9 and best.value("faithfulness") > 0.95
    assert best.value("interchange") > 0.95
    assert all((t.effect.baseline or 0) < 0.2 for t in best.tests if t.kind == "faithfulness")


def test_a_planted_pizza_is_completed_by_the_amplitude_of_its_waves() -> None:
    """Refilled into another pair, the waves of that pair's sum stay times |cos(w(x - y)/2)| less
    its mean: of these three frequencies they answer a tenth of the pairs.
    """
    plant = planted.modular_addition(
        P, (2, 12, 14), constant_attention=True, noise=0.05, rotation_seed=11, seed=11
    )
    best, keys = explain(plant.subject, family="frequencies")
    assert (best.standing, keys.standing) == ("stands", "incomplete")
    assert (
        keys.missing == ("amplitudes |cos(w(x - y)/2)|",)
        and keys.missing[0] in best.explanation.name
    )
    assert best.value("faithfulness") > keys.value("faithfulness") + 0.05
    assert best.value("match") > 0.95 > 0.85 > keys.value("match")
    assert list(best.explanation.parts[-1].blocks) == ["2", "12", "14"]
    assert written(plant.subject, best.explanation).agreement > 0.95
    wrong = forced(plant.subject, ["2", "12", "5"], Setting.pizza)
    assert audit(plant.subject, wrong).standing in ("wrong", "incomplete")


def test_waves_of_a_pizza_are_those_of_loops() -> None:
    """w (x - y)/2 is one half of 2π k (x - y)/p, whose cosine has one sign or the other mod p."""
    subject = addition()
    setting, program = Setting.of(subject), subject.task.own_program  # type: ignore[union-attr]
    assert setting is not None and program is not None
    values = Bench.of(subject, setting.with_difference(program)).values(torch.arange(40))
    features = setting.pizza(["3", "8"]).features
    assert features is not None
    for row, x, y in zip(features(values), values["x"].tolist(), values["y"].tolist(), strict=True):
        made = []
        for angle in (2 * math.pi * key / P for key in (3, 8)):
            size = abs(math.cos(angle * (x - y) / 2))
            for wave in (math.cos(angle * (x + y)), math.sin(angle * (x + y))):
                made += [wave, wave * size]
        assert row.tolist() == pytest.approx(made, abs=1e-9)


@pytest.mark.parametrize(
    "keys", [["1", "2", "5"], ["3", "8", "5"], ["3", "8"]], ids=["wrong", "one wrong", "missing"]
)
def test_wrong_frequencies_do_not_stand(keys: list[str]) -> None:
    assert audit(addition(), forced(addition(), keys)).standing in ("wrong", "incomplete")


def test_a_superfluous_frequency_is_named() -> None:
    found = audit(addition(), forced(addition(), ["3", "8", "12", "5"]))
    assert found.standing == "superfluous" and found.superfluous == ("5",)
    bench = Bench.of(addition(), found.explanation.program)
    family = Frequencies()
    smaller, at_the_answer = family.without(bench, found.explanation, found.superfluous)
    assert smaller.name == "addition by frequencies 3, 8, 12"
    assert at_the_answer.name == "addition by frequencies 3, 8, 12, inputs also 5"
    assert audit(addition(), smaller).standing == "stands"
    assert family.without(bench, smaller, ["3", "8", "12"]) == []


@pytest.mark.full
@pytest.mark.parametrize(("by", "last"), [(GroupProducts, "product"), (Bilinear, "products")])
def test_a_superfluous_sign_is_named(by: Any, last: str) -> None:
    """No second representation of S4 has one dimension: the sign is ranked among functions of
    larger ones, among which a needless one is no more than any.
    """
    subject = planted.group_product("S4", ("standard",), noise=0.05, rotation_seed=1, seed=1)
    claimed = forced(subject.subject, ["standard", "sign"], getattr(Setting, last), by)
    found = audit(subject.subject, claimed)
    (need,) = (one for one in found.tests if one.block and one.target == "sign")
    assert int(need.null.rpartition(", ")[2]) >= 9
    assert found.superfluous == ("sign",) and found.standing != "stands"


def test_controls_are_refused_also_when_forced() -> None:
    task = TASKS["modular-arithmetic"](p=13)
    lookup = planted.lookup_table(task, noise=0.05, seed=1).subject
    assert explain(lookup, family="frequencies")[0].standing == "refused"
    assert audit(lookup, forced(lookup, ["1", "2", "3"])).standing in ("wrong", "incomplete")
    untrained = explain(addition().untrained(0))[0]
    assert untrained.standing == "refused" and "without its input" in untrained.reason
    assert untrained.scope.drawn == untrained.n == 481  # half of 31 * 31, and not all inputs


def test_the_additive_edit_refills_what_the_program_says() -> None:
    """By hand: the activation of another input, moved by the difference of its features."""
    subject = addition()
    bench = Bench.of(subject, subject.task.own_program)  # type: ignore[union-attr, arg-type]
    setting = Setting.of(subject)
    assert setting is not None
    part = setting.product([str(key) for key in KEYS])
    fit = bench.fit(part)
    base = bench.judged[bench.order("refill", len(bench.judged))]
    old, own = bench.values(base), bench.values(bench.judged)
    edited = bench.logits(base, [bench.edit(fit, old, own)])
    assert part.features is not None
    moved = (part.features(own) - part.features(old)) @ fit.weights
    held = subject.activation(part.site.hook, "answer")[base].double() + moved
    logits = held @ subject.model.W_U.double() + getattr(subject.model, "b_U", torch.zeros(P))
    assert torch.allclose(edited, logits.detach(), atol=1e-3)


def test_halves_are_disjoint_and_of_distinct_inputs() -> None:
    subject = addition()
    bench = Bench.of(subject, subject.task.own_program, examples=400)  # type: ignore[union-attr, arg-type]
    rows = torch.cat([bench.fitted, bench.judged])
    assert len(rows.unique()) == len(rows) == 400
    few = Bench.of(subject.with_data(subject.data[:36]), bench.program)
    assert (len(few.fitted), len(few.judged)) == (12, 24)  # as many as an audit takes
    digits = mechint.load(mechint.example("digits.pt")).with_answer(0)  # all pairs, as it happens
    whole, drawn = (Bench.of(one, bench.program).population() for one in (subject, digits))
    assert whole.whole and not drawn.whole


def test_claims_in_one_line() -> None:
    subject = mechint.load(Path(__file__).parents[2] / "examples" / "models" / "clock.pt")
    wrong = audit(subject, site("L0 resid_mid @ 0").holds("answer"))
    assert wrong.standing in ("wrong", "incomplete") and wrong.value("interchange") < 0.5
    last = site("L0 resid_post @ answer")
    assert audit(subject, last.holds("answer")).standing == "stands"
    for error, words, ask in (
        (UnknownNameError, "variable", lambda: audit(subject, last.holds("carry"))),
        (UnknownNameError, "the truth", lambda: head(0, 1).attends("the truth")),
        (ParameterError, "one head", lambda: head(0, 0, 1).copies("largest token")),
        (ParameterError, "only heads attend", lambda: site("L0 MLP").attends("largest token")),
        (
            ParameterError,
            r"L9H0 .*: expected heads from L0H0 to L0H3",
            lambda: audit(subject, head(9, 0).attends("first token")),
        ),
        (
            ParameterError,
            r"name a position, such as L0H0 @ answer",
            lambda: audit(subject, site("L0H0").holds("x")),
        ),
        (
            NotApplicableError,
            "give prompts",
            lambda: explain(Subject(subject.model, None, data=subject.data)),
        ),
    ):
        with pytest.raises(error, match=words):
            ask()


# --- claims under a program of one's own ----------------------------------------------------------
def total(tokens: torch.Tensor) -> torch.Tensor:
    return tokens[:, 0] + tokens[:, 1]


def answer(tokens: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    return total % 13


def test_a_task_without_answers_has_no_program() -> None:
    """Of a regression nothing is read at a position: one line says so, of one answer and of all."""
    task = tasks.make("regression-mixture", n=8, n_tasks=2, rank=2)
    (run,) = mechint.train(task, {"width": 4}, {"steps": 2})
    subject = run.subject()
    for answer in (None, "all", 0):
        with pytest.raises(NotApplicableError, match="reads no answer at a position"):
            explain(subject, answer=answer)


def product(tokens: torch.Tensor) -> torch.Tensor:
    return tokens[:, 0] * tokens[:, 1] % 13


def test_claims_are_made_under_functions_or_a_rival_by_name() -> None:
    """Whether the sum exceeds the modulus changes no answer."""
    last = site("L0 resid_post @ answer")
    subject = planted.modular_addition(13, (2, 5), rotation_seed=1).subject
    for name, program, standing in (
        ("answer", None, {"stands"}),
        ("answer", [total, answer], {"stands"}),
        ("answer", "lookup", {"stands"}),
        ("total", [total, answer], {"untested", "incomplete", "wrong"}),
        ("product", product, {"wrong"}),
    ):
        assert audit(subject, last.holds(name), program=program).standing in standing
    with pytest.raises(UnknownNameError, match="did you mean 'lookup'"):
        audit(subject, last.holds("answer"), program="lookups")
    for wrong in (
        [answer],
        lambda tokens: tokens,
        lambda tokens: -tokens[:, 0],
        lambda tokens: tokens[:, 9],
        total,
    ):
        with pytest.raises(ParameterError, match="program: "):
            audit(subject, last.holds("answer"), program=wrong)


# --- what is refused ------------------------------------------------------------------------------
def test_too_few_inputs_abstain() -> None:
    subject = addition()
    few = subject.with_data(subject.data[torch.arange(30) * 11])
    assert audit(few, site("L0 resid_post @ answer").holds("answer")).standing == "untested"
    found = explain(few)[0]
    assert (found.standing, found.reason) == ("untested", "20 judged inputs, 24 needed")


def test_a_site_that_does_nothing_holds_nothing_however_few_the_inputs() -> None:
    """Of a product mod 7 few exchanges change the answer; any input refills an idle head."""
    task = TASKS["modular-arithmetic"].from_dict({"p": 7, "operation": "multiply"})
    subject = planted.lookup_table(task, seed=0).subject
    for name, place, standing in (
        ("x", "L0H0 @ answer", "stands"),
        ("x", "L0H1 @ answer", "wrong"),
        ("x", "L0H1 @ 0", "wrong"),
    ):
        found = audit(subject, Part(name, site_of(place), (name,)))
        assert (place, found.standing) == (place, standing)
        assert not any(math.isnan(test.value) for test in found.tests)


@published
def test_a_head_holds_a_variable_whose_code_is_not_additive() -> None:
    """Interchange accuracy 1.0000 over all inputs, by the program that trained it; else .72."""
    task = TASKS["palindromes"](n=6, half_length=2)
    subject = mechint.load(CHECKPOINTS / "siit" / "palindromes.pt", task=task)
    for place, name in (("L0H1 @ 4", "pair_0"), ("L0H0 @ 3", "pair_1")):
        found = audit(subject, site(place).holds(name))
        assert found.standing == "stands" and found.value("interchange") == 1.0
    assert audit(subject, site("L0H0 @ 4").holds("pair_0")).standing == "wrong"


@published
@pytest.mark.full
def test_keys_alone_do_not_explain_the_published_pizza() -> None:
    """Joint interchange .694 by other code; complete with the second harmonics 6, 25, 29."""
    found = explain(mechint.load(CHECKPOINTS / "pizza" / "model_p99zdpze5l.pt"))
    stands, keys = found[0], found[-1]
    assert stands.standing == "stands" and keys.standing == "incomplete"
    assert set(keys.missing) == {"6", "25", "29"}
    assert keys.value("interchange") == pytest.approx(0.69, abs=0.04)
    assert stands.value("interchange") >= 0.99 and stands.value("match") >= 0.99


@published
@pytest.mark.full
def test_group_models_are_bilinear() -> None:
    """R² .629 by products of S5's key representations and .9992 by bilinear ones, by other code."""
    found = explain(mechint.load(CHECKPOINTS / "rep-theory" / "S5_T_seed1" / "model.pt"))
    best, product, *_ = found
    assert best.explanation.family == "bilinear" and best.standing == "stands"
    assert best.value("match") >= 0.99 and best.value("faithfulness") >= 0.99
    assert product.value("match") == pytest.approx(0.629, abs=0.02)


def test_a_model_that_always_says_the_commonest_answer_is_refused() -> None:
    """Half of the data are palindromes, of its different inputs 1 in 36."""
    task = TASKS["palindromes"](n=6, half_length=2)
    config = ModelConfig(
        n_layers=1, d_model=8, n_heads=1, n_ctx=6, d_vocab=task.d_vocab, d_vocab_out=2
    )
    model = HookedTransformer(config, seed=0)
    with torch.no_grad():
        model.unembed.b_U[0] = 100.0
    subject = Subject(model.eval(), task)
    bench = Bench.of(subject, task.own_program)
    assert bench.accuracy > 0.9 and not bench.skill.beats_chance
    assert explain(subject)[0].standing == "refused"
