"""Attribution against a sum by hand, plain hooks, finite differences and linear models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.models.transformer import HookedTransformer
from mechint.probe import Report
from mechint.probe.results import Null
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.subject.counterfactuals import pair_all, unpaired
from mechint.subject.pairs import Pairs
from probes._attribution import Attribution, components, measured

SMALL = {"examples": 48, "null_samples": 199}


def subject(**changes: Any) -> Subject:
    sizes = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_mlp": 6, "d_vocab": 6, "n_ctx": 3}
    config = ModelConfig(**{**sizes, "d_vocab_out": 5, "init_mode": "d_model", **changes})
    model = HookedTransformer(config, seed=2).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.rpartition(".")[2].startswith("b"):
                value.copy_(torch.randn(value.shape, generator=generator).double())
    return Subject(model, TASKS["modular-arithmetic"](p=5))


def resampled(one: Subject) -> Pairs:
    return pair_all(one, one.data, None, 0)


def right_above_mean(logits: torch.Tensor, pairs: Pairs) -> np.ndarray:
    rows = torch.arange(len(logits))
    return (logits[rows, pairs.answers[:, 0]] - logits.mean(-1)).detach().numpy()


@pytest.mark.parametrize("normalization", [None, "LN", "LNPre"])
def test_what_is_written_adds_up_to_the_score(normalization: str | None) -> None:
    one = subject(normalization_type=normalization)
    pairs = unpaired(one, one.data[:9])
    effects = measured(one, pairs, "mean")
    assert effects.sum_error < 1e-10
    logits = one.model(pairs.base)[:, -1]
    assert effects.score == pytest.approx(right_above_mean(logits, pairs), abs=1e-10)
    # the last MLP's part by hand: its output over the frozen scale, through ln_final.w and W_U
    model, (_, cache) = one.model, one.model.run_with_cache(pairs.base)
    out = cache["blocks.1.hook_mlp_out"][:, -1]
    if normalization is not None:
        out = (out - out.mean(-1, keepdim=True)) / cache["ln_final.hook_scale"][:, -1]
    if normalization == "LN":
        out = out * model.weights()["ln_final.w"]
    expected = right_above_mean(out @ model.W_U, pairs)
    names = [str(site) for site in components(one)]
    assert effects.direct[names.index("L1 MLP")] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("ablation", ["mean", "resample"])
def test_exact_losses_are_those_of_plain_hooks(ablation: Any) -> None:
    one = subject(normalization_type="LN")
    pairs = unpaired(one, one.data) if ablation == "mean" else resampled(one)
    effects = measured(one, pairs, ablation)
    model, rows = one.model, torch.arange(len(pairs))
    _, cache = model.run_with_cache(pairs.base)
    _, other = model.run_with_cache(pairs.source)

    def scored(logits: torch.Tensor) -> np.ndarray:
        if ablation == "mean":
            return right_above_mean(logits, pairs)
        right, wrong = pairs.answers[:, 0], pairs.labels[:, 0]
        return (logits[rows, right] - logits[rows, wrong]).detach().numpy()

    for index, site in enumerate(components(one)):
        value = other[site.hook] if ablation == "resample" else cache[site.hook].mean(0)

        def put(x: torch.Tensor, hook: Any, site: Any = site, value: Any = value) -> torch.Tensor:
            x = x.clone()
            if site.kind == "head":
                x[:, :, site.units[0]] = value[..., site.units[0], :]
            else:
                x[:] = value
            return x

        logits = model.run_with_hooks(pairs.base, fwd_hooks=[(site.hook, put)])[:, -1]
        expected = effects.score - scored(logits)
        assert effects.exact[index] == pytest.approx(expected, abs=1e-9), str(site)


def test_answers_of_one_example_are_averaged_before_anything_is_drawn() -> None:
    """Each of the two answers measured alone, and both together in any order."""
    one = planted.composition(5, 4).subject
    one = one.with_data(one.data[:3])
    parts = [unpaired(one, one.data, answer) for answer in (0, 3)]
    both = Pairs.cat(parts)
    assert both.examples.tolist() == [0, 1, 2, 0, 1, 2] and both.n_examples == 3
    together = measured(one, both, "mean")
    mixed = measured(one, both[torch.tensor([4, 0, 1, 5, 3, 2])], "mean")
    for name in ("direct", "direct_effect", "first_order", "exact", "score"):
        first, second = (getattr(measured(one, part, "mean"), name) for part in parts)
        assert getattr(together, name) == pytest.approx((first + second) / 2, abs=1e-4), name
        expected = getattr(together, name)[..., [1, 0, 2]]
        assert getattr(mixed, name) == pytest.approx(expected, abs=1e-4), name


@pytest.mark.full
def test_inputs_that_come_again_count_once() -> None:
    """A score of 14.1 nats over different inputs stood beside the lens's 9.4 over all examples."""
    one = planted.modular_addition(5, (1,)).subject
    again = one.with_data(one.data[torch.tensor([0] * 20 + list(range(12)))])
    result = probe.run("attribution", again, examples=32, only_correct=False)
    right = again.targets[20:, :1]
    logits = again.logits()[20:].double()
    score = (logits.gather(1, right)[:, 0] - logits.mean(1)).mean()
    assert result.metrics["score"] == pytest.approx(float(score), rel=1e-5)
    assert (result.metrics["examples"], result.metrics["answers"]) == (12, 32)


def test_first_order_is_the_slope_toward_the_replacement() -> None:
    one, step = subject(normalization_type="LN"), 1e-5
    pairs = resampled(one)
    effects = measured(one, pairs, "resample")
    _, cache = one.model.run_with_cache(pairs.base)
    _, other = one.model.run_with_cache(pairs.source)
    rows, right, wrong = torch.arange(len(pairs)), pairs.answers[:, 0], pairs.labels[:, 0]
    for index, site in enumerate(components(one)):
        change = other[site.hook] - cache[site.hook]
        if site.kind == "head":
            change = change * (torch.arange(2) == site.units[0])[:, None]
        ends = []
        for sign in (1, -1):
            hook = (site.hook, lambda x, hook, sign=sign, by=change: x + sign * step * by)
            logits = one.model.run_with_hooks(pairs.base, fwd_hooks=[hook])[:, -1]
            ends.append((logits[rows, right] - logits[rows, wrong]).detach().numpy())
        slope = -(ends[0] - ends[1]) / (2 * step)
        assert effects.first_order[index] == pytest.approx(slope, abs=1e-5), str(site)


def test_planted_components_are_found_and_a_saturated_head_is_missed_by_the_gradient() -> None:
    plant = planted.induction_head(8, 4, rotation_seed=1, seed=1)
    previous, induction = (
        "L{}H{}".format(*plant.truth["heads"][role]) for role in ("previous token", "induction")
    )
    result = probe.run("attribution", plant.subject, **SMALL)
    metrics, columns = result.metrics, result.tables["components"].columns
    losses = dict(zip(columns["component"], columns["exact"], strict=True))
    heads = {name for name in losses if "H" in name}
    assert {name for name in heads if losses[name] > 0.5 * metrics["score"]} == {
        previous,
        induction,
    }
    assert result.verdict == "yes" and metrics["writer"] == induction
    estimates = dict(zip(columns["component"], columns["first_order"], strict=True))
    assert abs(estimates[previous]) < 0.05 * losses[previous]  # it runs through a saturated softmax
    assert metrics["sum_error"] < 1e-3


def test_no_more_than_all_of_a_score_is_lost() -> None:
    """Without what says the answer it may be turned round: in nats, not as a share above one."""
    for factor, share in ((0.5, True), (2.0, False)):
        report = Report(Attribution(), planted.modular_addition(5, (1,)).subject)
        null = Null.sampled("largest_loss", 8.0 * factor, [0.0] * 999, "drawn")
        report.metric("largest_loss", 8.0 * factor, null=null)
        known = {"component": "L0 MLP", "tied": [], "score": 8.0, "examples": 25, "writer": ""}
        known["interval"] = [factor - 0.1, factor + 0.1]
        report.update(known)
        Attribution()._say(report, None)
        assert ("%" in report.findings[0].headline) == share
        assert ("8 to -8 nats" in report.findings[0].headline) != share
