"""Pairs of prompts are judged as the field does: the right answer above the other's."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

import probes
from mechint.account.account import quality_of
from mechint.account.terminal import quality_text
from mechint.checkpoints.checkpoint import measure_performance
from mechint.config import ModelConfig
from mechint.errors import DataError
from mechint.interventions import EditedRuns, Site, Zero, ablate
from mechint.models.transformer import HookedTransformer
from mechint.prompts import Prompts
from mechint.subject import Subject
from mechint.subject.counterfactuals import answered, choose_variable, draw
from tests.prompts.mixed import mixed

EVEN, ODD, SAID = 16, 17, 18
"""Answers to prompts that begin with an even and an odd token, and what the model says above."""


def asked(*, wrong: bool = False, variables: bool = False) -> Subject:
    """A model of one layer that puts `EVEN` or `ODD` right, above the other, and `SAID` above
    both; `wrong`: the other way round; `variables`: prompts say the parity of their first token.
    """
    config = ModelConfig(d_model=16, n_heads=1, n_ctx=2, d_vocab=19, d_vocab_out=19, attn_only=True)
    model = HookedTransformer(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        embed, out = model.get_parameter("embed.W_E"), model.get_parameter("unembed.W_U")
        sign = torch.tensor([1.0, -1.0] * 8 + [0.0] * 3)
        embed[:, 0] = -sign if wrong else sign
        model.get_parameter("blocks.0.attn.W_V")[0, 0, 0] = 1
        model.get_parameter("blocks.0.attn.W_O")[0, 0, 1] = 1
        out[1, EVEN], out[1, ODD] = 1, -1
        model.get_parameter("unembed.b_U")[SAID] = 9

    def row(first: int) -> dict[str, Any]:
        said = {"variables": {"parity": ("even", "odd")[first % 2]}} if variables else {}
        return {"prompt": [first, SAID], "answer": ODD if first % 2 else EVEN, **said}

    pairs = itertools.product(range(0, 16, 2), range(1, 16, 2))
    rows = [row(even) | {"counterfactual": row(odd)} for even, odd in pairs]
    return Subject(model, Prompts.of(rows, None, 19, 2))


def test_an_answer_above_the_other_of_its_pair_is_right_whatever_is_said_first() -> None:
    subject = asked()
    found = measure_performance(subject, None)
    assert found is not None
    assert (found.accuracy["next token"], found.top_1) == (1.0, 0.0)
    assert found.chance["next token"]["accuracy"] == 0.5
    logits, (even, odd) = subject.logits(), (EVEN, ODD)
    difference = (logits[:, even] - logits[:, odd]).abs()
    loss = torch.log1p(torch.exp(-difference)).mean()
    assert math.isclose(found.loss["next token"], float(loss), rel_tol=1e-6)
    assert not found.misread
    assert found.warnings({}) == []
    assert "by pair" in quality_text(quality_of(subject))[0]
    assert found.pairs == quality_of(subject)[0].pairs == (64, 64)
    lost = ablate(subject, "L0H0", by="zero")  # all that tells the two answers apart
    assert lost.accuracy_before["next token"] == 1 and lost.accuracy["next token"] == 0
    assert lost.margin == pytest.approx(0) and lost.loss["next token"] == pytest.approx(math.log(2))
    assert lost.margin_before == pytest.approx(float(difference.mean()), rel=1e-6)
    assert lost.loss_before["next token"] == pytest.approx(float(loss), rel=1e-6)
    pairs = draw(subject, choose_variable(subject.task, None), 32, 0, relation="minimal")
    assert bool(answered(subject, pairs).all())


def test_pairs_the_wrong_way_round_are_at_chance_and_nothing_is_patched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = asked(wrong=True)
    found = measure_performance(subject, None)
    assert found is not None
    assert found.at_chance == ["next token"]

    def no_work(*_: object) -> None:
        raise AssertionError("patched before it was asked whether the model answers")

    monkeypatch.setattr(EditedRuns, "under", no_work)
    for name in ("patching", "attribution"):
        with pytest.raises(DataError, match="set only_correct=false"):
            probes.run(name, subject)
        (finding,) = probes.run(name, subject, only_correct=False).findings
        assert finding.verdict == "unclear"


def test_patching_decides_where_the_model_answers_by_pair_alone() -> None:
    result = probes.run("patching", asked(), components=("head",), null_samples=199)
    assert result.findings[0].verdict == "yes"
    assert result.metrics["component"] == "L0H0 @ 1"


@pytest.mark.parametrize("resumes", [True, False])
def test_what_is_read_of_each_forward_is_what_its_logits_give(
    resumes: bool,
) -> None:
    """No more logits are kept than one forward makes, and it gives the same numbers."""
    subject = mixed((6,))
    model, data = subject.model, subject.data
    sites = [
        Zero(Site.head(layer, head, pos)) for layer in (0, 1) for head in (0, 1) for pos in (1, 5)
    ]
    if not resumes:
        model.add_hook("blocks.0.hook_mlp_out", lambda activation, hook: activation)
    names = {one.site.hook for one in sites}
    recorded = EditedRuns(model, data.tokens, subject.answer_positions, names, stack=1 << 12)
    assert (recorded.engine == "native") == resumes
    sizes: list[int] = []

    def first(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        sizes.append(len(logits))
        return logits[..., 0]

    assert torch.allclose(recorded.under(sites, read=first), recorded.under(sites)[..., 0])
    assert max(sizes[1:]) < len(sites) * len(data.tokens)


def test_the_lens_shows_difference_and_rank_by_depth() -> None:
    """Before attention nothing of the prompt is at its end; afterwards the model's own numbers."""
    subject = asked()
    result = probes.run("lens", subject)
    columns = result.tables["lens"].columns
    margins, logits = subject.margins, subject.logits()
    assert margins is not None
    assert columns["after"] == ["embedding", "L0 attention"]
    assert columns["difference"] == pytest.approx([0, float(margins.mean())], abs=1e-6)
    places = (-logits).argsort(-1).tolist()
    targets = subject.targets[:, 0].tolist()
    ranks = [row.index(target) for row, target in zip(places, targets, strict=True)]
    assert columns["rank"][-1] == pytest.approx(sum(ranks) / len(ranks))
    assert columns["right by pair"] == [0, 1] and columns["first choice"] == [0, 0]
    assert result.metrics["lens.ready_after"] == "L0 attention"
