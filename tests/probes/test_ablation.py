"""Ablation against direct edits of the weights, brute-force hooks and planted models."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import mechint
from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.decide.null import sign_flips
from mechint.interventions import Site
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.subject.components import site_of
from mechint.subject.counterfactuals import partners
from mechint.task import IGNORE, Batch, Task, answer_scores
from probes._ablation import Ablation
from probes._effects import Effects
from tests.differences import differences


def made(seed: int = 0, **changes: Any) -> Subject:
    task = TASKS["comparison"](n=8)
    shape: dict[str, Any] = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_mlp": 12}
    shape |= {"normalization_type": "LN", "init_mode": "d_model"} | changes
    config = ModelConfig.for_task(task, **shape)
    return Subject(HookedTransformer(config, seed=seed).double(), task)


def rows(subject: Subject, **settings: Any) -> dict[str, float]:
    """Component → loss with the ablation."""
    result = Ablation(**settings).run(subject, seed=0)
    table = result.tables["effects"].to_frame()
    return dict(zip(table.component, result.metrics["loss"] + table.loss_change, strict=True))


@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_every_ablation_equals_a_hooked_forward(mode: str) -> None:
    subject = made(1)
    found = rows(subject, mode=mode, components=("attention", "head", "mlp"))
    order = partners(torch.full((64,), 1), 0)
    for component, loss in found.items():
        site = site_of(component)
        kind, layer, members = site.kind, site.layer, list(site.units)
        name = {"attention": "hook_attn_out", "head": "attn.hook_z", "mlp": "hook_mlp_out"}[kind]

        def ablate(
            value: torch.Tensor, hook: Any, kind: str = kind, members: list[int] = members
        ) -> torch.Tensor:
            new = {
                "zero": torch.zeros_like(value),
                "mean": value.mean(0).expand_as(value),
                "resample": value[order],
            }[mode]
            if kind == "head":
                value = value.clone()
                value[:, :, members[0]] = new[:, :, members[0]]
                return value
            return new

        logits = subject.logits(hooks=[(f"blocks.{layer}.{name}", ablate)])
        assert loss == pytest.approx(
            float(F.cross_entropy(logits, subject.targets[:, 0])), abs=1e-9
        ), component


def test_planted_heads_are_needed_and_the_decoy_is_not() -> None:
    plant = planted.comparison(n=12)
    result = Ablation().run(plant.subject, seed=0)
    effects = result.tables["effects"].to_frame().set_index("component")
    assert result.metrics["accuracy"] == 1.0
    for layer, head in plant.truth["heads"].values():
        assert effects.loc[f"L{layer}H{head}", "accuracy_change"] < -0.2
    assert result.verdict == "yes"


@pytest.mark.parametrize("name", ["ablation", "attribution"])
def test_too_few_examples_to_tell_are_not_a_negative(name: str) -> None:
    """Over every choice of signs the same loss in each of n examples has p = 2^-n: above 0.01 up
    to six examples, below it from seven on.
    """
    every = {n: np.array(list(itertools.product((-1, 1), repeat=n))).mean(1) for n in (6, 7)}
    assert [float((every[n] >= 1).mean()) > 0.01 for n in (6, 7)] == [True, False]
    subject = planted.induction_head(8, 4, seed=1).subject
    six = probe.run(name, subject, examples=6)
    assert six.verdict == "unclear" and "64 ways" in six.findings[0].reason
    seven = probe.run(name, subject, examples=7).findings[0]
    assert "ways" not in seven.reason
    assert probe.run(name, subject, examples=16).verdict == "yes"


def named(kind: str, layer: int) -> str:
    return str(Site.of(kind, layer))


def of_several_outputs(task: Task, n_layers: int, seed: int) -> HookedTransformer:
    """A small untrained model of a task with several outputs."""
    config = ModelConfig.for_task(task, n_layers=n_layers, d_model=8, n_heads=2)
    return HookedTransformer(config, seed=seed)


def test_the_table_of_several_outputs_holds_what_hooked_forwards_say() -> None:
    """Of every component and output, by hooks; the metrics follow from the table."""
    task = TASKS["remainders"](p=7)
    sizes = [output.n_classes for output in task.outputs]
    model = of_several_outputs(task, n_layers=2, seed=3).double()
    data, optimizer = task.examples(), torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(20):  # until it knows more than the best constant answer
        optimizer.zero_grad()
        answer_scores(task, model(data.tokens)[:, -1], data.targets[:, -1])[
            ..., 1
        ].mean().backward()
        optimizer.step()
    subject = Subject(model, task)
    settings = {"components": ("attention", "mlp"), "mode": "zero"}
    result = Ablation(null_samples=9999, **settings).run(subject, seed=0)
    table = result.tables["effects"].to_frame().set_index(["component", "output"])
    plain = answer_scores(task, subject.logits(), subject.targets)  # (example, output, 2)
    total, by_example = {}, []
    for layer, kind in itertools.product(range(2), ("attention", "mlp")):
        hook = f"blocks.{layer}.hook_{'attn' if kind == 'attention' else 'mlp'}_out"
        logits = subject.logits(hooks=[(hook, lambda x, hook: 0 * x)])
        scores = answer_scores(task, logits, subject.targets)
        for i, output in enumerate(task.outputs):
            row = table.loc[named(kind, layer), output.name]
            accuracy, loss = scores[:, i].mean(0).tolist()
            assert row.accuracy == pytest.approx(accuracy, abs=1e-9)
            assert row.accuracy_change == pytest.approx(accuracy - float(plain[:, i, 0].mean()))
            assert row.loss_change == pytest.approx(loss - float(plain[:, i, 1].mean()), abs=1e-9)
        by_example.append((scores - plain)[..., 1].mean(1).numpy())
        total[named(kind, layer)] = by_example[-1].mean()
    top = max(total, key=lambda name: total[name])
    assert result.metrics["component"] == top and top != "L0 attention"
    assert result.metrics["loss_change"] == pytest.approx(total[top])
    assert result.metrics["largest_loss_increase"] == pytest.approx(total[top], rel=1e-6)
    alike = top.split()[1]  # attention layers, or MLPs
    others = [value for name, value in total.items() if name != top and name.endswith(alike)]
    assert result.metrics["others_median"] == pytest.approx(np.median(others))
    worst = table.loss_change.groupby("output").idxmax()
    breaks = [component for component, _ in worst]
    assert sorted(result.tables["summary"].columns["broken by"]) == sorted(breaks)
    # the p-values by all signs at once, each component on the scale of its own changes
    changes = np.stack(by_example)
    own = changes / np.sqrt((changes**2).mean(1, keepdims=True))
    signs = np.random.default_rng(5).choice((-1.0, 1.0), (own.shape[1], 9999))
    largest = (own @ signs / own.shape[1]).max(0)
    for name, mean in zip(total, own.mean(1), strict=True):
        expected = (largest >= mean).mean()
        assert table.loc[name].p_value.tolist() == pytest.approx([expected] * len(sizes), abs=0.01)


def with_few_answers(keep: float) -> tuple[Subject, Batch, torch.Tensor]:
    """Planted addition, its examples where a share of them has an answer, and which ones do."""
    subject = planted.modular_addition(11, (2, 5)).subject
    targets = subject.data.targets.clone()
    has = torch.rand(len(targets), generator=torch.Generator().manual_seed(0)) < keep
    targets[~has] = IGNORE
    return subject, replace(subject.data, targets=targets), has


def test_examples_without_the_answer_are_left_out() -> None:
    """They have none to lose: as if they were not there, whatever their share."""
    subject, data, has = with_few_answers(0.2)
    assert 8 < int(has.sum()) < 40
    probe = Ablation(components=("head",))
    with_others, alone = (probe.run(subject.with_data(one)) for one in (data, data[has]))
    assert with_others.metrics["examples"] == int(has.sum())
    assert with_others.metrics["largest_loss_increase"] == pytest.approx(
        with_others.metrics["loss_change"]
    )
    assert not list(differences("ablation", alone.metrics, with_others.metrics, 1e-4, 1e-6))
    assert with_others.finding == alone.finding
    assert with_others.verdict == alone.verdict == "yes"
    # without both operands the model is at chance: the harm is what it had over chance, or more
    assert with_others.metrics["share_of_advantage"] > 0.9


def test_needed_takes_harm_on_many_examples_and_a_model_above_chance() -> None:
    """Two components of one mean, above what is asked for: one the same on every example, one by
    two of sixteen; and the same numbers of a model that answers at chance.
    """
    subject = planted.modular_addition(11, (2, 3)).subject
    steady, rare = np.full(16, 0.5), np.zeros(16)
    rare[:2] = 4.0
    harm = Effects(0 * rare, 0 * rare + 2, np.stack([rare, steady]), np.arange(16))
    p_values = sign_flips(harm.moved, 999, 0).p_values
    assert p_values[0] > 0.1 and p_values[1] <= 0.002
    probe = Ablation(least=0.1)
    assert probe._first(subject, harm, p_values) == ([1, 0], [1])
    assert probe._first(subject, harm, np.ones(2))[1] == []
    assert probe._first(subject.untrained(0), harm, p_values)[1] == []


def test_the_median_is_of_components_alike() -> None:
    """Of heads with heads: few large and many small kinds do not mix."""
    subject = planted.modular_addition(11, (2, 5), rotation_seed=1).subject
    result = Ablation().run(subject)
    loss = result.tables["effects"].to_frame().set_index("component").loss_change
    top = result.metrics["component"]
    kind = site_of(top).kind
    alike = [loss[name] for name in loss.index if name != top and site_of(name).kind == kind]
    expected = np.median(alike) if alike else np.nan
    assert result.metrics["others_median"] == pytest.approx(expected, nan_ok=True)
    assert {site_of(name).kind for name in loss.index} > {kind}
    assert ("median of" in result.findings[0].effect.baseline_label) == (len(alike) > 1)


def test_outputs_that_are_not_asked_are_not_counted() -> None:
    """The last answer of pointer doubling is of one output: only its loss is said to rise, and by
    head, and nothing is said to break the others.
    """
    subject = planted.composition(3, 2).subject
    asked = [i for i, answers in enumerate(subject.targets.T) if bool((answers != IGNORE).any())]
    assert 0 < len(asked) < len(subject.task.outputs)
    result = Ablation(null_samples=99).run(subject)
    names = {subject.task.outputs[i].name for i in asked}
    table = result.tables["effects"].to_frame()
    assert {*table.output} == names and not table.loss_change.isna().any()
    heads = table[table.component.str.contains("H")].groupby("component").loss_change.mean()
    assert sorted(result.arrays["by_head"].flatten()) == pytest.approx(sorted(heads), abs=1e-6)
    assert ("summary" in result.tables) == (len(asked) > 1)
    every = Ablation(null_samples=99).run(subject.with_answer("all"))
    assert every.findings == result.findings  # of the last answer alone, and says so


def test_a_task_of_several_outputs_shows_which_component_each_needs() -> None:
    """On the first screen; of a lookup table all goes through its MLP."""
    subject = planted.lookup_table(TASKS["remainders"](p=7)).subject
    account = mechint.analyze(subject)
    shown = account.results["ablation"].tables["summary"].columns
    assert list(shown["output"]) == [one.name for one in subject.task.outputs]
    names = {"L0 MLP", "L0 attention", "L0 attention, L0 MLP"}  # of a tie both
    assert "broken by" in str(account) and {*shown["broken by"]} <= names
