"""Patching prompts of different lengths: at positions counted from the answer, by plain hooks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import probes
from mechint.errors import DataError
from mechint.interventions import Site
from mechint.probe.results import ProbeResult
from mechint.subject import Subject
from mechint.subject.counterfactuals import choose_variable, draw
from mechint.subject.pairs import Pairs
from probes._patching import Patching
from probes._patching.measures import with_wrong_source, wrong_sources
from tests.prompts.mixed import mixed

KINDS = ("resid_pre", "attention", "head", "mlp")


@pytest.fixture(scope="module")
def subject() -> Subject:
    return mixed()


@pytest.fixture(scope="module")
def result(subject: Subject) -> ProbeResult:
    return probes.patching(subject, components=KINDS, only_correct=False, null_samples=99)


def pairs_of(subject: Subject) -> Pairs:
    variable = choose_variable(subject.task, None)
    return draw(subject, variable, 256, 0, only_correct=False, relation="minimal")


def logits_with(
    subject: Subject, tokens: torch.Tensor, site: Site | None = None, cache: Any = None
) -> torch.Tensor:
    """Logits at the last token of one prompt with `site` taken from the run of another, without
    padding.
    """

    def put(x: torch.Tensor, hook: Any) -> torch.Tensor:
        assert site is not None
        x = x.clone()
        part = (0, site.pos, site.units[0]) if site.units else (0, site.pos)
        x[part] = cache[site.hook][part]
        return x

    hooks = [] if site is None else [(site.hook, put)]
    with torch.no_grad():
        return subject.model.run_with_hooks(tokens[None], fwd_hooks=hooks)[0, -1]


@pytest.mark.full
def test_components_are_patched_as_far_before_each_answer(
    subject: Subject, result: ProbeResult
) -> None:
    pairs, columns = pairs_of(subject), result.tables["components"].columns
    assert len(pairs) == 30 and set(pairs.reads.tolist()) == {2, 3, 5}
    places = ["answer-5", "answer-4", "answer-3", "answer-2", "answer-1", "answer"]
    assert list(dict.fromkeys(columns["pos"])) == places
    ends = []
    for pair, read in enumerate(pairs.reads.tolist()):
        base, source = pairs.base[pair, : read + 1], pairs.source[pair, : read + 1]
        answer, label = int(pairs.answers[pair, 0]), int(pairs.labels[pair, 0])
        _, cache = subject.model.run_with_cache(source[None])
        low, high = (logits_with(subject, one) for one in (base, source))
        known = (float(one[label] - one[answer]) for one in (low, high))
        ends.append((read, base, cache, answer, label, *known))
    names = ("kind", "layer", "pos", "head", "recovered", "flips", "pairs")
    for kind, layer, pos, head, recovered, flips, n in zip(
        *(columns[name] for name in names), strict=True
    ):
        back = int(str(pos).removeprefix("answer") or 0)
        differences, right = [], []
        for read, base, cache, answer, label, low, high in ends:
            if read + back < 0:
                continue
            site = Site.of(kind, layer, read + back, () if head is None else (head,))
            logits = logits_with(subject, base, site, cache)
            differences.append((low, float(logits[label] - logits[answer]), high))
            right.append(bool(logits[label] > logits[answer]))
        low, patched, high = np.mean(differences, 0)
        assert n == len(right), pos
        assert recovered == pytest.approx((patched - low) / (high - low), abs=1e-6), (kind, pos)
        assert flips == pytest.approx(np.mean(right)), (kind, pos)


@pytest.mark.full
def test_chunks_do_not_change_what_is_patched(subject: Subject, result: ProbeResult) -> None:
    parts = probes.patching(
        subject.with_limits(memory=1, chunk=4),
        components=KINDS,
        only_correct=False,
        null_samples=99,
    )
    shares = [one.tables["components"].columns["recovered"] for one in (result, parts)]
    assert np.allclose(*shares, atol=1e-9)
    assert result.metrics["above_wrong_source"] == pytest.approx(
        parts.metrics["above_wrong_source"], abs=1e-6
    )


def test_positions_that_few_pairs_have_are_left_out() -> None:
    """Two pairs each of 3 and 6 tokens: up to four say nothing of the three positions before."""
    subject = mixed((3, 3, 6), 2)
    result = probes.patching(subject, only_correct=False, null_samples=99)
    columns = result.tables["components"].columns
    assert set(columns["pos"]) == {"answer-2", "answer-1", "answer"}
    assert set(columns["pairs"]) == {12}


def test_a_wrong_source_is_read_where_the_base_is(subject: Subject) -> None:
    pairs = pairs_of(subject)
    reads = {tuple(row): int(at) for row, at in zip(pairs.base.tolist(), pairs.reads, strict=True)}
    wrong = wrong_sources(pairs)
    assert [reads[tuple(row)] for row in wrong.tolist()] == pairs.reads.tolist()
    alone = pairs[torch.cat([(pairs.reads == at).nonzero()[:1, 0] for at in (2, 3, 5)])]
    assert len(with_wrong_source(alone)) == 0
    two = torch.cat([(pairs.reads == 2).nonzero()[:1, 0], (pairs.reads == 5).nonzero()[:2, 0]])
    assert with_wrong_source(pairs[two]).reads.tolist() == [5, 5]
    shortest = pairs[pairs.reads == 2]
    assert len(with_wrong_source(shortest[:1])) == 1


def test_pairs_without_a_wrong_source_are_refused(subject: Subject) -> None:
    probe, variable = Patching(only_correct=False, pairs=2), choose_variable(subject.task, None)
    seed = next(
        seed
        for seed in range(99)
        if len(probe._draw(subject, variable, seed, only_correct=False).reads.unique()) == 2
    )
    with pytest.raises(DataError, match="no two of 2 pairs are read at the same position"):
        probe.run(subject, seed=seed)
