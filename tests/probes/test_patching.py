"""Patching against brute-force hook loops, exact linear models and planted circuits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import mechint
from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError, ParameterError
from mechint.interventions import Site, Take
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.subject.counterfactuals import choose_variable, draw
from probes._effects import Cases
from probes._patching import Patching, flipped
from probes._patching.measures import left_without


def made(seed: int = 0, **changes: Any) -> Subject:
    task = TASKS["comparison"](n=12, equals=True)
    shape: dict[str, Any] = {"n_layers": 2, "d_model": 8, "n_heads": 2, "init_mode": "d_model"}
    config = ModelConfig.for_task(task, **{**shape, "normalization_type": "LN", **changes})
    return Subject(HookedTransformer(config, seed=seed).double(), task)


def test_ends_of_the_scale_and_flips() -> None:
    subject = made(1)
    pairs = draw(
        subject,
        choose_variable(subject.task, "rank of a"),
        16,
        0,
        only_correct=False,
        relation="minimal",
    )
    assert torch.equal(pairs.base[:, 1:], pairs.source[:, 1:])
    assert torch.equal(pairs.labels, pairs.source_answers)
    everything = [Site.resid_pre(0, 0), Site.resid_pre(0, 1)]
    cases = Cases(subject, pairs.base, pairs.reads, {"own": pairs.source})
    _, runs, base, sources = next(cases.parts())
    source = sources["own"]
    logits = runs.under([Take(one, source) for one in everything], base)
    assert torch.allclose(logits[0], runs.base(source))
    assert torch.allclose(logits[1], runs.base(base))
    answers = subject.model(pairs.source)[:, -1].argmax(-1)
    assert torch.equal(
        flipped(subject.task, logits[0], pairs), (answers == pairs.labels[:, 0]).float()
    )


def test_what_is_left_is_that_of_plain_hooks() -> None:
    """One head at its mean over the bases and the sources, in the runs of both."""
    subject = made(2)
    variable = choose_variable(subject.task, "rank of a")
    pairs = draw(subject, variable, 20, 0, only_correct=False, relation="minimal")
    hook, read = "blocks.0.attn.hook_z", int(pairs.reads[0])
    runs = [subject.model.run_with_cache(tokens)[1][hook] for tokens in (pairs.base, pairs.source)]
    mean = torch.cat(runs)[:, read, 1].mean(0)

    def hold(z: torch.Tensor, hook: Any) -> torch.Tensor:
        z = z.clone()
        z[:, read, 1] = mean
        return z

    def apart(hooks: list[Any]) -> float:
        base, source = (
            subject.model.run_with_hooks(tokens, fwd_hooks=hooks)[:, read]
            for tokens in (pairs.base, pairs.source)
        )
        more, rows = (source - base).detach(), torch.arange(20)
        return float((more[rows, pairs.labels[:, 0]] - more[rows, pairs.answers[:, 0]]).sum())

    found = left_without(subject, pairs, [Site.head(0, 1, read)])
    assert found == pytest.approx(apart([(hook, hold)]) / apart([]), rel=1e-9)
    assert abs(found - 1) > 1e-3


def test_bad_input() -> None:
    with pytest.raises(ParameterError, match="expected some of resid_pre, attention, head, mlp"):
        Patching(components=("heads",))
    with pytest.raises(ParameterError, match=r"layers=5: .* has layers 0 to 1"):
        Patching(layers=(5,), only_correct=False).run(made())
    with pytest.raises(NotApplicableError, match="MLPs: the model has none"):
        Patching(components=("mlp",), only_correct=False).run(made(attn_only=True))


def test_heads_and_mlps_lead_and_not_the_stream_that_they_write_to() -> None:
    """At the answer the stream before the last block carries everything, too, and says nothing."""
    subject = planted.modular_addition(11, (2, 5), rotation_seed=1).subject
    result = Patching(pairs=64, variable="x").run(subject)
    assert result.metrics["component"] == "L0H0 @ 2" and result.verdict == "yes"
    kinds = set(result.tables["components"].columns["kind"])
    assert kinds == {"resid_pre", "head", "mlp"}
    assert result.findings[0].effect.value == result.metrics["recovered"]
    stream = Patching(pairs=64, variable="x", components=("resid_pre",)).run(subject)
    assert "resid_pre" in stream.metrics["component"]


@pytest.mark.full
@pytest.mark.parametrize(("variable", "head"), [("pair_1", "L0H0 @ 3"), ("pair_0", "L0H1 @ 4")])
def test_a_mechanism_enforced_by_training_is_found(
    variable: str, head: str, published: Path
) -> None:
    path = published / "siit" / "palindromes.pt"
    subject = mechint.load(path, task="palindromes", n=6, half_length=2)
    result = Patching(variable=variable).run(subject)
    assert result.verdict == "yes" and result.metrics["component"] == head
    assert result.metrics["recovered"] > 0.9 and 7 <= result.metrics["pairs"] < 256


@pytest.mark.parametrize("kind", ["attention", "mlp"])
def test_what_holds_the_answer_is_not_said_to_carry_an_operand(kind: str) -> None:
    """The heads at the answer of a table bring both operands to the MLP, which gives every answer:
    taken from an input of another x and y, either layer answers as that input does. A head of them
    brings one operand.
    """
    subject = planted.lookup_table(TASKS["modular-arithmetic"](p=11)).subject
    result = mechint.probes.patching(subject, variable="x", components=(kind,))
    assert result.verdict == "no" and not result.lead
    assert result.metrics["flips"] > 0.9 and result.metrics["flips_apart"] < 0.2
    tokens, hook = subject.data.tokens, Site.of(kind, 0).hook
    source = tokens.roll(40, 0)
    with torch.no_grad():
        value = subject.model.run_with_cache(source)[1][hook]
        edited = subject.model.run_with_hooks(tokens, fwd_hooks=[(hook, lambda *_, **__: value)])
    assert torch.equal(edited[:, -1].argmax(-1), subject.model(source)[:, -1].argmax(-1))
    heads = mechint.probes.patching(subject, variable="x", components=("head",))
    assert heads.metrics["component"] == "L0H0 @ 2" and heads.metrics["flips_apart"] == 1


@pytest.mark.parametrize(("pairs", "verdict"), [(4, "unclear"), (16, "unclear"), (48, "no")])
def test_few_pairs_deny_nothing(pairs: int, verdict: str) -> None:
    subject = planted.lookup_table(TASKS["modular-arithmetic"](p=11)).subject
    settings = {"variable": "x", "pairs": pairs, "components": ("attention",)}
    (finding,) = mechint.probes.patching(subject, **settings).findings  # it holds the answer
    assert finding.verdict == verdict and (f"{pairs} pairs" in finding.reason) == (pairs < 48)
    (head,) = mechint.probes.patching(subject, **{**settings, "components": ("head",)}).findings
    assert head.verdict == ("unclear" if pairs == 4 else "yes")  # 16 patterns of signs are too few
    assert (f"{pairs} pairs" in head.reason) == (pairs == 4)


def test_the_answer_of_the_pairs_is_named_and_the_kinds_that_were_asked() -> None:
    """One hop is read where the next ones are not: elsewhere than the subject's last answer."""
    subject = planted.composition(4, 4, rotation_seed=0, seed=0).subject
    for place in (0, 2):
        found = Patching(variable=f"1-hop of {place}", pairs=16, null_samples=99).run(subject)
        (finding,) = found.findings
        assert finding.scope.answers == f"from 0:{place}" and finding.verdict == "yes"
        assert f"@ {place}" in finding.headline
