"""One removal has one number: whatever the probe, and whatever inputs its null is drawn on."""

from __future__ import annotations

import numpy as np
import pytest

from mechint import planted, probe
from mechint.probe import Report
from probes._fourier.removals import RemovalNull
from probes._irreps.probe import Irreps
from probes.rises import Rises, add_named_removal, add_removal_finding


def test_frequencies_and_representations_of_a_cyclic_group_are_worth_the_same() -> None:
    subject = planted.modular_addition(31, (3, 8), noise=0.05, rotation_seed=1, seed=1).subject
    fourier = probe.run("fourier", subject, operand_permutations=9, steps=0, neuron_mixtures=2)
    irreps = probe.run("irreps", subject)
    both = [result.metrics["embedding.removal_named"] for result in (fourier, irreps)]
    assert fourier.metrics["embedding.key_frequencies"] == [3, 8]
    assert set(irreps.metrics["embedding.removal"]) == {"3", "8"}
    assert both[0] == pytest.approx(both[1], rel=1e-6)
    # each null has its own random inputs, on which it holds its own rise
    observed = [result.null["embedding.removal_named"].observed for result in (fourier, irreps)]
    assert observed[0] != pytest.approx(observed[1], rel=1e-6)
    assert observed == pytest.approx(both, rel=0.3)


def test_directions_are_not_drawn_where_all_of_the_rest_are_drawn() -> None:
    """Else every sample of the null were one and the same removal."""
    subject = planted.modular_addition(11, (2, 3), noise=0.05, rotation_seed=1).subject
    against = RemovalNull(samples=19, examples=49, seed=0).against(subject, [range(11)])
    assert against([2], [1]) is None and against([2, 3], [1]) is None
    tested = against([2], [1, 4])
    assert tested is not None and len(set(tested[1])) == 19


def test_the_sentence_says_both_where_they_differ() -> None:
    subject = planted.modular_addition(11, (2, 3)).subject
    for sampled, beside in ((17.0, True), (18.01, False)):
        report = Report(Irreps(), subject)
        rises = Rises(0.1, {"2": 9.0, "3": 8.0}, 18.0, 0.2, (sampled, np.full(99, 0.1)))
        add_named_removal(report, rises, "representations")
        add_removal_finding(report, rises, "representations", 1e-3)
        (said,) = report.findings
        assert said.effect == report.metrics["embedding.removal_named"] == 18.0
        assert report.nulls["embedding.removal_named"].observed == sampled
        assert "raise the loss of 0.1 nats by 18" in said.headline
        assert ("18 (+17 on the inputs of the null);" in said.headline) == beside
