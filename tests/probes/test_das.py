"""DAS against planted order directions, pyvene's own IntervenableModel, brute-force hooks and its
three baselines.
"""

from __future__ import annotations

import dataclasses
import io
import math
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mechint
from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import ParameterError, UnknownNameError
from mechint.interventions import select_positions
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.subject.counterfactuals import choose_variable, draw
from mechint.subject.pairs import Pairs
from probes._das import DAS, SwapSite, fit, interchange_accuracy, random_subspace, swap
from probes._das.controls import ReaderSplit, as_varied, reader_split
from probes._das.search import SiteCell, choose_cell, decode, share_within_values

SMALL: dict[str, Any] = {
    "steps": 60,
    "batch_size": 128,
    "pairs": 256,
    "held_out": 128,
    "null_samples": 99,
}

SITES = [
    "hook_embed",
    "blocks.0.hook_resid_mid",
    "blocks.0.attn.hook_z",
    "blocks.0.attn.hook_v",
    "blocks.0.hook_attn_out",
]
SITES += ["blocks.1.mlp.hook_post", "blocks.1.hook_resid_post", "blocks.0.ln1.hook_normalized"]
SITES += ["blocks.1.hook_resid_pre", "blocks.1.hook_attn_out", "blocks.1.attn.hook_z"]


@pytest.fixture(scope="module")
def plant() -> planted.Planted:
    return planted.comparison(n=20)


@pytest.fixture(scope="module")
def deep() -> Subject:
    """An untrained model of two layers on the comparison task."""
    task = TASKS["comparison"](n=12)
    config = ModelConfig(
        n_layers=2,
        d_model=8,
        n_heads=2,
        n_ctx=task.n_ctx,
        d_vocab=task.d_vocab,
        d_vocab_out=2,
        normalization_type="LN",
        init_mode="d_model",
    )
    return Subject(HookedTransformer(config, seed=3), task)


@pytest.mark.parametrize("hook", SITES)
@pytest.mark.parametrize("pos", [0, 1, None])
def test_every_site_equals_a_hooked_forward(deep: Subject, hook: str, pos: int | None) -> None:
    pairs = draw(deep, choose_variable(deep.task, "rank of b"), 16, 1, only_correct=False)
    site = SwapSite(deep, pairs, hook, pos)
    subspace = random_subspace(site.width, 3, torch.Generator().manual_seed(0)).float()
    with torch.no_grad():
        ours = site.logits(swap(subspace, site.base, site.source), torch.arange(16))
    _, cache = deep.model.run_with_cache(pairs.source)
    at_pos = 1 if pos is None else pos

    def replace(value: torch.Tensor, hook: Any) -> torch.Tensor:
        value = value.clone()
        flat, source = value[:, at_pos].flatten(1), cache[hook.name][:, at_pos].flatten(1)
        value[:, at_pos] = (flat + (source - flat) @ subspace @ subspace.T).view_as(
            value[:, at_pos]
        )
        return value

    with torch.no_grad():
        expected = select_positions(
            deep.model.run_with_hooks(pairs.base, fwd_hooks=[(hook, replace)]), pairs.reads
        )
    assert torch.allclose(ours, expected, atol=1e-5)


def test_a_site_that_no_answer_reads_has_a_slope_of_zero(deep: Subject) -> None:
    pairs = draw(deep, choose_variable(deep.task, "rank of b"), 16, 1, only_correct=False)
    site = SwapSite(deep, pairs, "blocks.1.hook_mlp_out", 0)
    replaced = site.source.clone().requires_grad_()
    logits = site.logits(replaced, torch.arange(16))
    assert torch.autograd.grad(logits.sum(), replaced)[0].abs().max() == 0


def test_directions_and_units_are_those_of_the_activations(plant: planted.Planted) -> None:
    """Principal directions as of the covariance; units as of the swaps of one unit each."""
    subject = plant.subject
    pairs = draw(subject, choose_variable(subject.task, "rank of a"), 256, 0)
    site = SwapSite(subject, pairs, "hook_embed", 0)
    fitting: dict[str, Any] = {"steps": 60, "batch_size": 128, "lr": 0.05, "seed": 0}
    found, _ = fit(site, subject.task, 2, among="principal", **fitting)
    covariance = np.cov(torch.cat([site.base, site.source]).numpy().T)
    first = np.linalg.eigh(covariance)[1][:, -2:]
    assert np.linalg.svd(first.T @ found.numpy())[1] == pytest.approx([1, 1], abs=1e-4)
    found, losses = fit(site, subject.task, 1, among="units", **fitting)
    assert sorted(found.flatten().tolist())[-2:] == [0, 1] and losses[-1] < losses[0]
    alone = [
        float(interchange_accuracy(subject, site, one[:, None]).nanmean())
        for one in torch.eye(site.width)
    ]
    assert alone[int(found.argmax())] >= np.quantile(alone, 0.75)


@pytest.mark.parametrize("seed", [0, 1])
def test_boundless_search_ends_at_the_planted_dimensions(plant: planted.Planted, seed: int) -> None:
    """Of the eight dimensions it may take, as few as give the answers; the plant's is one line."""
    subject = plant.subject
    pairs = draw(subject, choose_variable(subject.task, "rank of a"), 512, seed)
    site = SwapSite(subject, pairs, "hook_embed", 0)
    fitting: dict[str, Any] = {"steps": 400, "batch_size": 128, "lr": 0.05, "seed": seed}
    found, losses = fit(site, subject.task, 8, among="boundless", **fitting)
    assert found.shape[1] <= 2 and losses[-1] < losses[0]  # one, as a rule
    assert torch.allclose(found.T @ found, torch.eye(found.shape[1]), atol=1e-4)
    assert float(interchange_accuracy(subject, site, found).nanmean()) >= 0.9


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        (
            {"hook": "blocks.0.hook_resid_pree"},
            UnknownNameError,
            "did you mean 'blocks.0.hook_resid_pre'",
        ),
        ({"hook": "hook_resid_prex"}, UnknownNameError, "did you mean 'blocks.0.hook_resid_pre'"),
        ({"variable": "rank of c"}, UnknownNameError, "did you mean 'rank of"),
        (
            {"dimensions": (9,)},
            ParameterError,
            "dimension 9 is above the width 8 of blocks.0.hook_resid_mid",
        ),
        ({"pos": 7}, ParameterError, "pos=7: the inputs have positions 0 to 1"),
        ({"hook": "blocks.0.attn.hook_pattern"}, ParameterError, "expected an activation vector"),
    ],
)
def test_bad_input_is_one_clear_line(
    deep: Subject, settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        DAS(**{**SMALL, "only_correct": False, "steps": 2, **settings}).run(deep)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.full
def test_the_search_reaches_what_pyvenes_rotation_reaches(plant: planted.Planted) -> None:
    """The same loop over pyvene's trainable rotation: another parametrization, the same
    subspace.
    """
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        import pyvene
    subject = plant.subject
    pairs = draw(subject, choose_variable(subject.task, "rank of a"), 512, 0)
    train, test = (SwapSite(subject, part, "hook_embed", 0) for part in (pairs[:384], pairs[384:]))
    ours, _ = fit(train, subject.task, 1, steps=150, batch_size=128, lr=0.02, seed=0)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        rotation = pyvene.LowRankRotatedSpaceIntervention(
            embed_dim=train.width, low_rank_dimension=1
        ).to(train.base)
        optimizer = torch.optim.Adam(rotation.parameters(), lr=0.02)
        for _ in range(150):
            rows = torch.randint(384, (128,))
            logits = train.logits(rotation(train.base[rows], train.source[rows]), rows)
            loss = nn.functional.cross_entropy(logits, train.pairs.labels[rows, 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        theirs = rotation.rotate_layer.weight.detach()
    mine, other = (float(interchange_accuracy(subject, test, one).mean()) for one in (ours, theirs))
    assert mine >= other - 0.03
    assert float((ours.T @ theirs).abs()) > 0.95


def test_directions_that_nothing_reads_are_split_off(deep: Subject) -> None:
    """A subspace half in neurons whose output weights are zero."""
    model = HookedTransformer(deep.model.config)
    model.load_state_dict(deep.model.state_dict())
    with torch.no_grad():
        model.blocks[1].mlp.W_out[3] = 0
    subject = Subject(model, deep.task)
    pairs = draw(subject, choose_variable(deep.task, "rank of a"), 32, 0, only_correct=False)
    site = SwapSite(subject, pairs, "blocks.1.mlp.hook_post", None)
    u = torch.linalg.svd(model.blocks[1].mlp.W_out.detach())[0]
    subspace = (u[:, :1] * 0.6).clone()
    subspace[3] += 0.8
    split = reader_split(subject, site, subspace)
    assert split is not None
    assert split.null_share == pytest.approx(0.64, abs=1e-5)
    alone = interchange_accuracy(subject, site, u[:, :1])
    assert split.row_accuracy == pytest.approx(float(alone.double().mean()))


# --- the variable, or the inputs that it is computed from? ----------------------------------------
@pytest.mark.full
def test_inputs_that_are_carried_are_not_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the MLP the answer's position holds both operands, and the MLP computes their sum: a
    subspace that swaps the operands swaps the sum, and holds no sum.
    """
    subject = planted.modular_addition(13, (1, 2, 5), noise=0.01, seed=1).subject
    settings: dict[str, Any] = {**SMALL, "steps": 200, "pairs": 1024, "variable": "answer"}
    before = DAS(**settings, dimensions=(12,), hook="blocks.0.hook_resid_mid").run(subject)
    assert before.metrics["iia"] > 0.9 and before.metrics["input_share"] > 0.8
    assert before.metrics["decoded"] < 0.3
    assert (before.verdict, before.metrics["verdict"]) == ("no", "inputs")
    # where no place was named, none that decodes it is behind this one: it is one or the other
    only: Any = lambda *_, **__: [("blocks.0.hook_resid_mid", None)]  # noqa: E731
    monkeypatch.setattr("mechint.probes._das.probe.default_places", only)
    monkeypatch.setattr("mechint.probes._das.probe.component_places", lambda *_: [])
    either = DAS(**settings, dimensions=(12,)).run(subject)
    assert (either.verdict, either.metrics["verdict"]) == ("yes", "inputs")
    assert "holds answer or its inputs" in either.headline
    assert either.metrics["variables_held"] == [] and "not decoded" in either.findings[0].caveat
    after = DAS(**settings, dimensions=(6,), hook="blocks.0.hook_resid_post").run(subject)
    assert after.metrics["input_share"] < 0.2
    assert (after.verdict, after.metrics["verdict"]) == ("yes", "variable")


def test_arbitrary_labels_are_as_varied_as_the_own() -> None:
    """Half of the pairs change their answer, and half have either label. Arbitrary labels that are
    mostly 0 would be right of most pairs whatever is swapped.
    """
    answers = torch.tensor([0, 0, 1, 1] * 10)[:, None]
    labels = torch.tensor([0, 1, 0, 1] * 10)[:, None]
    at, tokens = torch.zeros(40, dtype=torch.int64), torch.zeros(40, 2, dtype=torch.int64)
    pairs = Pairs(tokens, tokens, at, at, answers, answers, labels)
    mostly = torch.tensor([0, 0, 0, 0] * 9 + [0, 1, 0, 1])[:, None]
    kept = as_varied(pairs, mostly)
    assert kept.labels.flatten().bincount().tolist() == [2, 2]
    same = as_varied(pairs, labels)
    assert len(same) == 40 and torch.equal(same.labels, labels)
    # none changes: any may change, and of half of them
    assert len(as_varied(dataclasses.replace(pairs, labels=answers), labels)) == 40
    # none changes and all are alike: nothing is left out
    assert len(as_varied(pairs[:2], answers[:2])) == 2


def test_what_is_read_falls_short_by_more_than_two_standard_errors() -> None:
    """Of 256 pairs at .9 these are .0375; and of the threshold, whatever the whole gives."""
    for read, whole, short in ((0.898, 0.902, False), (0.75, 1.0, True), (0.95, 1.0, False)):
        assert ReaderSplit(0.5, read).falls_short(whole, 0.9, 256) == short
    assert not ReaderSplit(0.5, 0.87).falls_short(0.9, 0.9, 256)
    assert ReaderSplit(0.5, 0.86).falls_short(0.9, 0.9, 256)


def test_share_within_values_by_hand() -> None:
    values = torch.tensor([0, 0, 1, 1])
    x = torch.tensor([[1.0, 5.0], [1.0, -5.0], [3.0, 5.0], [3.0, -5.0]])
    assert share_within_values(x[:, :1], values) == 0.0
    # within: 4 · 25 / 2 degrees of freedom; among all: 4 · 25 / 3
    assert share_within_values(x[:, 1:], values) == pytest.approx(1.5)
    assert math.isnan(share_within_values(x, torch.arange(4)))
    assert math.isnan(share_within_values(torch.ones(4, 2), values))


def test_a_code_on_both_sides_is_decoded_and_inputs_are_not() -> None:
    """Equality, coded as attention codes it, 0 or ± something: its means per value coincide.
    One-hot inputs say equality, too, but not of inputs that were not seen.
    """
    pairs = torch.cartesian_prod(torch.arange(8), torch.arange(8))
    values = (pairs[:, 0] == pairs[:, 1]).long()
    code = (pairs[:, :1] - pairs[:, 1:]).double()
    assert share_within_values(code, values) > 0.9
    assert decode(code, values, pairs) == pytest.approx(1.0, abs=0.1)
    one_hot = nn.functional.one_hot(pairs, 8).flatten(1).double()
    assert decode(one_hot, values, pairs) < 0.2
    assert math.isnan(decode(code, pairs[:, 0], pairs[:, :1]))  # every value has one input
    assert math.isnan(decode(code, torch.zeros(64).long(), pairs))  # there is one value
    assert math.isnan(decode(code[:6], values[:6], pairs[:6]))  # of three others none are five


def test_a_variable_that_the_stream_adds_to_another_is_found_in_its_head() -> None:
    """Both operands are written to one direction, a − b: no subspace of the stream holds one."""
    subject = planted.comparison(n=20).subject
    model = HookedTransformer(subject.model.config)
    model.load_state_dict(subject.model.state_dict())
    write = model.weights()["blocks.0.attn.W_O"]
    with torch.no_grad():
        write[1] = -write[0]
    merged = Subject(model.eval(), subject.task)
    data = merged.data
    assert bool(merged.correct(merged.model(data.tokens)[:, -1], data.targets[:, -1]).all())
    settings: dict[str, Any] = {**SMALL, "lr": 0.05, "steps": 100, "control_seeds": 1}
    result = DAS(**settings, variable="rank of a", dimensions=(1, 2)).run(merged)
    assert (result.verdict, result.metrics["hook"]) == ("yes", "blocks.0.attn.hook_z")
    assert result.metrics["dimension"] == 1 and result.metrics["by_head"]["L0H0"] > 0.9
    assert sum(result.metrics["by_head"].values()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(("variable", "pos"), [("pair_0", 4), ("pair_1", 3)])
def test_a_mechanism_enforced_by_training_is_found(
    variable: str, pos: int, published: Path
) -> None:
    """Equality of a pair, held by one head at one position (strict interchange training); all of
    the test split has fewer pairs than are asked for by default.
    """
    path = published / "siit" / "palindromes.pt"
    subject = mechint.load(path, task="palindromes", n=6, half_length=2)
    result = DAS(variable=variable, dimensions=(1, 2), control_seeds=1, steps=100).run(subject)
    assert result.verdict == "yes"
    assert (result.metrics["hook"], result.metrics["pos"]) == ("blocks.1.hook_resid_pre", pos)
    assert result.metrics["dimension"] == 1 and result.metrics["iia"] == 1.0
    assert 0 < result.metrics["minimal_pairs"] < 256
    assert 24 < result.metrics["pairs_trained_on"] < 2048


# --- what is asked about, and of how many pairs ---------------------------------------------------


def test_pairs_are_those_whose_counterfactual_input_is_answered_right() -> None:
    """A model that errs where a = 2: an interchange that makes it a = 2 is no test of the site."""
    task = TASKS["comparison"](n=6)
    subject = planted.comparison(n=6).subject
    with torch.no_grad():
        model = HookedTransformer(subject.model.config)
        model.load_state_dict(subject.model.state_dict())
        model.embed.W_E[2] = model.embed.W_E[5]
    wrong = Subject(model, task)
    variable = choose_variable(task, "rank of a")
    pairs = draw(wrong, variable, 200, 0, least=8)
    mixed = pairs.base.clone()
    mixed[:, 0] = pairs.source[:, 0]
    for tokens, labels in (
        (pairs.base, pairs.answers),
        (pairs.source, pairs.source_answers),
        (mixed, pairs.labels),
    ):
        assert torch.equal(model(tokens)[:, -1].argmax(-1), labels[:, 0])
    site = SwapSite(wrong, pairs, "hook_embed", 0)
    assert bool((interchange_accuracy(wrong, site, None) == 1).all())
    # an output that is not asked of a pair is neither right nor wrong there
    labels = pairs.labels.clone()
    labels[:2] = -1
    site = SwapSite(wrong, dataclasses.replace(pairs, labels=labels), "hook_embed", 0)
    assert interchange_accuracy(
        wrong, site, None
    ).isnan().flatten().nonzero().flatten().tolist() == [0, 1]


# --- the choice among subspaces, with accuracies made up ------------------------------------------
LEVEL, HELD_OUT, NAN = 0.9, 1000, float("nan")


def cell(dimension: int, trained: float, held_out: float, layer: int = 0, **more: Any) -> SiteCell:
    correct = (torch.arange(HELD_OUT) < round(HELD_OUT * held_out)).float()[:, None]
    measured = {"full_swap": 1.0, "full_swap_minimal": 1.0, "input_share": 0.05, "decoded": NAN}
    place = (f"blocks.{layer}.hook_resid_post", None)
    subspace = torch.eye(16)[:, :dimension]
    return SiteCell(place, dimension, subspace, [1.0], trained, correct, **measured | more)


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({}, "variable"),
        ({"full_swap_minimal": 0.5}, "inconsistent"),
        ({"full_swap": 0.5, "full_swap_minimal": NAN}, "variable"),  # other sources swap more
        ({"input_share": 0.9, "decoded": 0.1}, "inputs"),
        ({"input_share": 0.9, "decoded": NAN}, "inputs"),
        ({"input_share": 0.9, "decoded": 0.75}, "inputs"),
        ({"input_share": 0.9, "decoded": 0.85}, "variable"),
        ({"held_out": 0.89}, "none"),
    ],
)
def test_the_verdict_of_a_subspace(more: dict[str, float], verdict: str) -> None:
    assert cell(2, 0.97, more.pop("held_out", 0.96), **more).verdict(LEVEL) == verdict


def test_the_smallest_with_accuracy_to_spare_is_chosen() -> None:
    found = [cell(8, 0.98, 0.97), cell(4, 0.95, 0.94), cell(2, 0.905, 0.895)]
    assert choose_cell(found, LEVEL).dimension == 4
    # two standard errors of 1,000 pairs are .019
    spare = [cell(8, 0.95, 0.94), cell(4, 0.924, 0.94), cell(2, 0.915, 0.94)]
    assert choose_cell(spare, LEVEL).dimension == 4
    # where none has it to spare: the one with the most
    close = [cell(8, 0.903, 0.9), cell(4, 0.91, 0.9), cell(2, 0.905, 0.9)]
    assert choose_cell(close, LEVEL).dimension == 4
    equals = [cell(2, 0.97, 0.96), cell(2, 0.98, 0.96, 1), cell(2, 0.96, 0.96)]
    assert choose_cell(equals, LEVEL) is equals[1]
    # by the training pairs alone: else the accuracy on the others were the best of many
    found = [cell(2, 0.97, 0.91), cell(2, 0.95, 0.99, 1)]
    assert choose_cell(found, LEVEL) is found[0]
    held = [cell(1, 0.97, 0.96, input_share=0.9, decoded=0.0), cell(4, 0.97, 0.96, 1)]
    assert choose_cell(held, LEVEL) is held[1]
    by_chance = [cell(2, 0.5, 0.96), cell(4, 0.97, 0.96, input_share=0.9, decoded=0.0)]
    assert choose_cell(by_chance, LEVEL) is by_chance[1]


def test_positions_are_looked_for_where_the_variable_has_none() -> None:
    """Where x and y have been copied to the answer, and nowhere else, the whole stream swaps it."""
    subject = planted.composition(5, 2).subject
    variable = choose_variable(subject.task, "2-hop of 0")
    from probes._das.search import candidate_places

    pairs = draw(subject, variable, 16, 0, only_correct=False, relation="minimal", least=4)
    places = candidate_places(subject, pairs, 0.9)
    read = int(pairs.reads[0])
    for hook, pos in places:
        assert hook.startswith("blocks.") and pos is not None and pos < read
        whole = SwapSite(subject, pairs, hook, pos)
        assert float(interchange_accuracy(subject, whole, None).nanmean()) >= 0.9
    assert candidate_places(subject, pairs, 1.1) == []
    # what is asked there, one output of two, is in the last stream of any right model
    settings: dict[str, Any] = {**SMALL, "dimensions": (5,), "control_seeds": 1}
    result = DAS(**settings, variable=variable.name).run(subject)
    assert result.metrics["hook"] == "blocks.1.hook_resid_post" and result.metrics["iia"] >= 0.9
    assert result.verdict == "unclear"


@pytest.mark.full
def test_a_small_task_uses_the_pairs_that_it_has() -> None:
    """Counted by hand: of the ways to replace a of (a, b) below 3, those that change a < b, and as
    many that do not.
    """
    task = TASKS["comparison"](n=3)
    model = HookedTransformer(ModelConfig(d_model=8, n_heads=2, n_ctx=2, d_vocab=3, d_vocab_out=2))
    settings: dict[str, Any] = {**SMALL, "steps": 2, "dimensions": (1,), "control_seeds": 1}
    result = DAS(**settings, variable="rank of a", only_correct=False).run(Subject(model, task))
    sizes = [result.metrics[name] for name in ("pairs_trained_on", "pairs_held_out")]
    three = range(3)
    changing = 3 * sum((a < b) != (c < b) for a in three for b in three for c in three)
    assert sum(sizes) == 2 * changing and sizes[1] == round(sum(sizes) / 3)
    effect = result.findings[0].effect
    assert effect is not None and f" {sizes[1]} pairs" in effect.label
