"""Probes asked about another answer of each example than its last one, or about all of them."""

from __future__ import annotations

import pytest

import probes
from mechint import planted
from mechint.errors import ParameterError
from mechint.registry import PROBES
from mechint.subject import Which
from mechint.task import IGNORE


@pytest.fixture(scope="module")
def hops() -> planted.Planted:
    """A transformer that follows pointers by doubling; one answer per node."""
    return planted.composition(n=3, k=4, hops=(2,))


@pytest.mark.parametrize("answer", [0, -2, "all"])
def test_an_answer_is_the_subject_s(hops: planted.Planted, answer: Which) -> None:
    probe = PROBES["lens"]()
    result = probe.run(hops.subject, answer=answer)
    assert result.provenance["probe"]["answer"] == answer
    assert result.to_json() == probe.run(hops.subject.with_answer(answer)).to_json()
    called = probes.lens(hops.subject, answer=answer)
    assert result.to_json() == called.to_json()


def test_all_answers_are_counted(hops: planted.Planted) -> None:
    subject = hops.subject
    every = subject.with_answer("all")
    right = every.correct()[every.targets != IGNORE].double().mean()
    assert len(every.targets) == len(subject.answers) * len(subject.data)
    result = probes.lens(subject, answer="all")
    assert result.metrics["lens.final_accuracy"] == pytest.approx(float(right))


def test_an_answer_that_no_example_has_is_refused(hops: planted.Planted) -> None:
    count = len(hops.subject.answers)
    with pytest.raises(ParameterError, match=rf"answer={count}: .* have {count} answers"):
        probes.run("lens", hops.subject, answer=count)
