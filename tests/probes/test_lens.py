"""The lens against brute force, TransformerLens's own decomposition, and planted heads."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binom, kstest
from transformer_lens import ActivationCache
from transformer_lens.weight_processing import ProcessWeights

from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.results import Null
from mechint.subject import Subject, Which
from probes._lens import Lens, Readout
from probes._lens.nulls import (
    ENOUGH,
    OtherInputs,
    Renamed,
    above_chance,
    other_answers,
    permuted_operands,
)


def random_subject(normalization: str | None) -> Subject:
    """Two layers with every kind of weight non-zero."""
    task = TASKS["modular-arithmetic"](p=7)
    config = ModelConfig(
        n_layers=2,
        d_model=12,
        n_heads=3,
        d_vocab=8,
        d_vocab_out=7,
        normalization_type=normalization,
    )
    model = HookedTransformer(config)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return Subject(model, task)


@pytest.mark.parametrize("normalization", ["LN", "LNPre", None])
def test_the_lens_at_the_end_is_the_model_and_the_parts_add_up(normalization: str | None) -> None:
    subject = random_subject(normalization)
    readout = Readout(subject)
    x = subject.activation("blocks.1.hook_resid_post", "answer").double()
    assert torch.allclose(readout.logits(x), subject.logits().double(), atol=1e-4)
    result = Lens().run(subject)
    assert result.metrics["attribution.error"] < 1e-4
    logits = subject.logits()
    right = (logits.gather(1, subject.targets).squeeze(1) - logits.mean(1)).mean()
    assert result.metrics["attribution.total"] == pytest.approx(float(right), abs=1e-4)
    assert result.metrics["lens.final_accuracy"] == pytest.approx(subject.accuracy()["answer"])


@pytest.mark.parametrize("normalization", ["LN", "LNPre", None])
def test_every_depth_is_what_the_model_makes_of_that_residual_stream(
    normalization: str | None,
) -> None:
    subject = random_subject(normalization)
    table = Lens().run(subject).tables["lens"].columns
    for i, hook in enumerate(
        (
            "blocks.0.hook_resid_pre",
            "blocks.0.hook_resid_mid",
            "blocks.0.hook_resid_post",
            "blocks.1.hook_resid_mid",
        )
    ):
        with torch.no_grad():
            logits = subject.model(subject.activation(hook), start_at_layer=2)[
                :, int(subject.answer_positions[0])
            ]
        assert table["accuracy"][i] == pytest.approx(subject.accuracy(logits)["answer"])
        assert table["loss"][i] == pytest.approx(subject.loss(logits)["answer"], rel=1e-5)


def test_attributions_are_transformer_lens_s() -> None:
    """TransformerLens's ActivationCache decomposes the stream and applies the final norm, once its
    value biases are folded into b_O as its models' are when they are loaded; the product is taken
    here.
    """
    subject = random_subject("LNPre")
    folded = HookedTransformer(subject.model.cfg)
    state = ProcessWeights.fold_value_biases(subject.model.state_dict(), subject.model.cfg)
    folded.load_state_dict(state)
    assert not folded.blocks[0].attn.b_V.any() and subject.model.blocks[0].attn.b_V.all()
    with torch.no_grad():
        _, recorded = folded.run_with_cache(subject.data.tokens)
    cache = ActivationCache(dict(recorded), folded)
    stack = torch.cat(
        [cache[f"blocks.{layer}.attn.hook_z"][:, -1].unsqueeze(0) for layer in range(2)]
    )
    heads = torch.einsum(
        "lbhd,lhdm->lhbm", stack, torch.stack([block.attn.W_O for block in subject.model.blocks])
    ).flatten(0, 1)
    scaled = cache.apply_ln_to_stack(heads, layer=-1, pos_slice=-1)
    direction = subject.model.W_U - subject.model.W_U.mean(1, keepdim=True)
    expected = (scaled * direction.T[subject.targets[:, 0]]).sum(-1).mean(-1)
    columns = Lens().run(subject).tables["attribution"].columns
    ours = dict(zip(columns["component"], columns["attribution"], strict=True))
    got = [ours[f"L{layer}H{head}"] for layer in range(2) for head in range(3)]
    assert got == pytest.approx(expected.detach().tolist(), abs=1e-4)


def test_a_constant_moved_from_one_bias_to_the_other_changes_nothing() -> None:
    """Of a head that b_V makes the largest writer, all of it the same for every input."""
    before = random_subject("LN")
    after = before.with_model(copy.deepcopy(before.model))
    attention = after.model.blocks[1].attn
    with torch.no_grad():
        moved = 30 * torch.randn(
            attention.b_V.shape[-1], generator=torch.Generator().manual_seed(0)
        )
        attention.b_V[2] += moved
        attention.b_O -= moved @ attention.W_O[2]
    assert torch.allclose(before.logits(), after.logits(), atol=1e-4)
    results = [Lens(permutations=19).run(each) for each in (before, after)]
    parts = [result.tables["attribution"].columns for result in results]
    assert parts[0]["component"] == parts[1]["component"]
    assert parts[0]["attribution"] == pytest.approx(parts[1]["attribution"], abs=1e-4)
    assert "L1 attention bias" in parts[0]["component"]


def test_it_finds_the_planted_head() -> None:
    plant = planted.induction_head(n=12, length=6, seed=4, rotation_seed=1)
    result = Lens().run(plant.subject)
    layer, head = plant.truth["heads"]["induction"]
    assert result.metrics["attribution.top_component"] == f"L{layer}H{head}"
    assert result.metrics["lens.ready_after"] == "L1 attention"
    assert result.null["attribution.top"].p_value < 0.01


def test_final_biases_that_give_more_than_any_component_are_named() -> None:
    """b_U says "no" to all, and the MLP overrules it where a prime divides: its neurons for "no"
    are cut off. Attributions by hand, from the logits.
    """
    task = TASKS["remainders"](p=11, target="divisibility", masked=(2, 3, 5))
    plant = planted.lookup_table(task).subject
    fired = plant.activation("blocks.0.mlp.hook_post", "answer").abs()
    yes = plant.targets[:, 0].bool()
    for_no = fired[~yes].mean(0) >= fired[yes].mean(0)
    weights = dict(plant.model.named_parameters())
    with torch.no_grad():
        weights["blocks.0.mlp.W_out"][for_no] = 0
        before = Subject(plant.model, task).logits().double()
        weights["unembed.b_U"] += torch.tensor([10.0, 0.0])
    subject = Subject(plant.model, task)
    assert subject.accuracy()["divisible by 7"] == 1.0
    result = Lens().run(subject)
    columns = result.tables["attribution"].columns
    parts = dict(zip(columns["component"], columns["attribution"], strict=True))
    sign = torch.where(subject.targets[:, 0].bool(), 1.0, -1.0).double()
    assert parts["final biases"] == pytest.approx(float((-5 * sign).mean()), abs=1e-5)
    rest = float((sign * (before[:, 1] - before[:, 0]) / 2).mean())
    assert parts["L0 MLP"] == pytest.approx(rest, abs=1e-5)
    assert parts["final biases"] > parts["L0 MLP"] > 0
    share = parts["L0 MLP"] / sum(abs(value) for value in parts.values())
    assert result.metrics["attribution.top_share"] == pytest.approx(share)
    writer = result.findings[1]
    assert writer.effect is not None and writer.effect.value == pytest.approx(parts["L0 MLP"])
    assert writer.effect.baseline == pytest.approx(sum(parts.values()))
    assert writer.details["final biases"] == pytest.approx(parts["final biases"])
    assert "final biases" in writer.caveat and result.lead == ""
    assert "final biases" in str(result.figures["attribution"].spec)


@pytest.mark.parametrize(("kept", "status"), [(3, "no"), (6, "yes")])
def test_no_depth_is_named_where_few_answers_are_right(kept: int, status: str) -> None:
    """The logits of all but some classes stand in each other's columns: 3 of 31 are significant,
    but no tenth of the way from 1/31 to 1.
    """
    plant = planted.modular_addition(31, (3, 8, 12)).subject
    order = torch.tensor([*range(kept), *range(kept + 1, 31), kept])
    with torch.no_grad():
        for name, weight in plant.model.named_parameters():
            if name in ("unembed.W_U", "unembed.b_U"):
                weight.copy_(weight[..., order])
    result = Lens().run(Subject(plant.model, plant.task))
    assert result.metrics["lens.final_accuracy"] == pytest.approx(kept / 31)
    assert result.null["lens.final_accuracy"].p_value < 1e-6
    depth = result.findings[0]
    assert depth.verdict == status
    assert depth.effect is not None and depth.effect.baseline == pytest.approx(1 / 31)
    assert depth.effect.value == pytest.approx(kept / 31)


def test_it_says_why_it_does_not_apply() -> None:
    task = TASKS["modular-arithmetic"](p=7)
    model = HookedTransformer(ModelConfig(d_model=8, d_vocab=8, d_vocab_out=7, read_layers=(1,)))
    with pytest.raises(NotApplicableError, match="leave after different layers"):
        Lens().run(Subject(model, task))


def test_it_says_nothing_of_a_model_at_chance() -> None:
    result = Lens().run(random_subject("LN"))
    assert result.verdict == "unclear"
    assert "the model is not shown to answer better than chance" in result.finding
    assert "can be read after" not in result.finding


def test_an_accuracy_is_held_against_the_constant_answer_summed_by_hand() -> None:
    """At least 5 of 10 right, where each is with 3 in 10; also where each is asked for twice."""
    right, chance, example = np.arange(10) < 5, np.full(10, 0.3), np.arange(10)
    null = above_chance(right, chance, example)
    twice = above_chance(*(each.repeat(2) for each in (right, chance, example)))
    assert twice.p_value == pytest.approx(null.p_value)
    terms = [math.comb(10, k) * 0.3**k * 0.7 ** (10 - k) for k in range(5, 11)]
    assert null.p_value == pytest.approx(sum(terms))
    assert (null.mean, null.std) == pytest.approx((0.3, math.sqrt(0.3 * 0.7 / 10)))


def test_the_answers_of_one_example_are_held_against_chance_once() -> None:
    """Two outputs, of which the first answer of six is right on four examples, the second nowhere:
    two of the six, by their shares, where one in three or in two is by chance.
    """
    right = np.array([[True, False]] * 4 + [[False, False]] * 2).flatten()
    null = above_chance(right, np.array([1 / 3, 1 / 2] * 6), np.arange(6).repeat(2))
    p = 5 / 12
    terms = [math.comb(6, k) * p**k * (1 - p) ** (6 - k) for k in range(2, 7)]
    assert null.p_value == pytest.approx(sum(terms))
    assert (null.observed, null.mean) == (pytest.approx(1 / 3), pytest.approx(p))
    assert null.std == pytest.approx(math.sqrt(p * (1 - p) / 6))


@pytest.mark.parametrize("answer", [-1, "all"])
def test_chance_and_n_of_the_accuracy_are_of_examples_and_their_answers(answer: Which) -> None:
    """Twelve sequences given twice are twelve, whichever of their signs are asked for."""
    task = TASKS["running-sign"](length=15)
    config = ModelConfig(d_vocab=task.d_vocab, d_vocab_out=3, n_ctx=15, d_model=8, n_heads=1)
    whole = Subject(HookedTransformer(config, seed=1), task, answer=answer)
    subject = whole.with_data(whole.data[torch.arange(12).repeat(2)])
    result = Lens(permutations=19).run(subject)
    right, shares = subject.correct()[:, 0].double(), subject.correct().view(24, -1).double()
    null = result.null["lens.final_accuracy"]
    assert null.observed == result.metrics["lens.final_accuracy"] == pytest.approx(right.mean())
    hits, (chance,) = int(shares.mean(1)[:12].sum() + 1e-9), subject.chance.values()
    assert null.p_value == pytest.approx(binom.sf(hits - 1, 12, chance.accuracy))
    assert {finding.n for finding in result.findings} == {12}


def test_p_values_of_few_permuted_answers_are_uniform() -> None:
    """Twelve yes or no answers: a level is reached as often as it says, by the binomial."""
    subject = planted.comparison(n=6).subject
    draw, p_values, distinct = np.random.default_rng(0), [], []
    for seed in range(300):
        few = subject.with_data(subject.data[torch.from_numpy(draw.permutation(36)[:12])])
        other = other_answers(few, 199, seed)
        assert isinstance(other, OtherInputs)
        assert (np.sort(other.rows, 0) == np.arange(12)[:, None]).all()
        assert other.arrangements == pytest.approx(math.comb(12, int(few.targets.sum())))
        logits = torch.from_numpy(draw.standard_normal((12, 2)))
        right = float(logits.gather(1, few.targets).sum())
        p_values.append(Null.sampled("right", right, other.sums(slice(None), logits), "").p_value)
        distinct.append(len(np.unique(other.rows, axis=1).T))
    assert kstest(p_values, "uniform").pvalue > 0.01
    assert (np.array(p_values) <= 0.005).sum() <= binom.ppf(0.999, 300, 0.005)
    assert min(distinct) > 190


def test_answers_of_few_inputs_can_be_permuted_in_few_ways() -> None:
    """Of three examples one answer differs: no samples of the null can decide."""
    subject = planted.comparison(n=6).subject
    yes, no = (torch.nonzero(subject.targets[:, 0] == answer).flatten() for answer in (1, 0))
    few = subject.with_data(subject.data[torch.cat([yes[:1], no[:2]])])
    null = Lens(permutations=199).run(few).null["attribution.top"]
    assert null.arrangements == pytest.approx(3)
    assert "in only 3 ways" in str(null.too_few_arrangements(0.005))


def test_answers_of_renamed_operands_by_brute_force() -> None:
    subject = planted.comparison(n=7).subject
    other = other_answers(subject, 5, 0)
    assert isinstance(other, OtherInputs)
    logits = torch.randn(49, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sums = other.sums(slice(0, 30), logits[:30]) + other.sums(slice(30, 49), logits[30:])
    answers = subject.targets[:, 0].reshape(7, 7)
    for found, rows in zip(sums, other.rows.T, strict=True):
        order = rows[::8] // 7  # of the pairs of equal operands
        assert found == pytest.approx(
            sum(float(logits[7 * a + b, answers[order[a], order[b]]]) for a, b in np.ndindex(7, 7))
        )


def test_operands_are_not_renamed_where_that_changes_no_answer() -> None:
    """Whether a = b is the same whatever the values are called."""
    subject = planted.comparison(n=7).subject
    same = torch.eye(7, dtype=torch.long).reshape(49, 1, 1)
    subject = subject.with_data(replace(subject.data, targets=same))
    assert subject.on_grid and permuted_operands(subject, 5, 0) is None


def test_answers_of_several_outputs_are_renamed_in_all_their_ways_together() -> None:
    """4! of one output are too few, 4!³ of three are enough."""
    subject = planted.composition(n=4, k=4).subject
    outputs = len(subject.with_answer("all").targets.T)
    assert 24 < ENOUGH <= 24**outputs
    assert isinstance(other_answers(subject.with_answer("all"), 5, 0), Renamed)


def test_renamed_answers_by_brute_force() -> None:
    subject = random_subject(None)
    renamed = other_answers(subject, 5, 0)
    assert isinstance(renamed, Renamed)
    logits = torch.randn(49, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sums = renamed.sums(slice(0, 30), logits[:30]) + renamed.sums(slice(30, 49), logits[30:])
    for found, names in zip(sums, renamed.outputs[0][3], strict=True):
        answers = subject.targets[:, 0].tolist()
        assert found == pytest.approx(
            sum(float(logits[i, names[a]]) for i, a in enumerate(answers))
        )


def test_p_values_near_the_level_do_not_turn_with_the_seed() -> None:
    """Against all 5,040 renamings of seven answers: 400 put p = .0036 on either side of .005."""
    subject = random_subject(None)
    logits = torch.randn(49, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    by_class = torch.zeros(7, 7, dtype=torch.float64).index_add_(0, subject.targets[:, 0], logits)
    names = np.array(list(itertools.permutations(range(7))))
    every = np.sort(by_class.numpy()[np.arange(7), names].sum(1))
    observed = (every[-18] + every[-19]) / 2
    for seed in range(8):
        null = other_answers(subject, 400, seed).sums(slice(None), logits)
        assert Null.sampled("p", observed, null, "").p_value == pytest.approx(18 / 5040, abs=0.0014)
