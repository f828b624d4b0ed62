"""Tests of what a variable is known up to: values that no answer tells apart, and what a site holds
of it beyond the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.decide import YES, Decision, Evidence, Skill
from mechint.explanation.checks.attention import route
from mechint.explanation.measure import Bench, counted_share, ridge
from mechint.explanation.parts import Part, Route
from mechint.explanation.records import HALF, Test, judge_share

PENALTY = 1e-3
"""Of the reading of a variable, as a share of the mean variance of the activations."""


def finer(bench: Bench, parts: Sequence[Part]) -> Iterator[Test]:
    """For each part that holds one variable other than an answer: how many of its values the
    answers tell apart; and whether the site holds it beyond the answer, where it is to be read
    linearly.
    """
    for part in parts:
        if len(part.variables) != 1 or part.variables[0] in bench.answers or part.blocks:
            continue
        classes = classify_values(bench, part.variables[0])
        found = resolution(bench, part, classes)
        yield found
        if found.verdict != "untested" and is_linear(bench, part):
            yield beyond(bench, part, classes)


def is_linear(bench: Bench, part: Part) -> bool:
    """Return whether a part is to be read linearly: it has features, or is a head that may attend
    as in any other input, so that it brings what its keys hold side by side and computes nothing.
    """
    site = part.site
    if part.features is not None or site.kind != "head":
        return part.features is not None
    assert site.layer is not None
    (attention,) = route(bench, Route("", site.layer, site.units))
    return attention.verdict == "yes"


def classify_values(bench: Bench, name: str) -> Int[Tensor, " value"]:
    """Value of a variable → its class: values are of one class where the answer of no judged input
    differs, whichever of them is set.
    """
    rows, n = bench.judged, bench.program.variables[name].n_values
    answers = [
        bench.labels(bench.values(rows, {name: torch.full((len(rows),), value)})).flatten().cpu()
        for value in range(n)
    ]
    return torch.unique(torch.stack(answers), dim=0, return_inverse=True)[1]


def resolution(bench: Bench, part: Part, classes: Int[Tensor, " value"]) -> Test:
    """The values that are told apart, of those that occur; untested where they are the answers, so
    that the variable is no more than a name of the answer.
    """
    name, values = part.variables[0], bench.values(bench.judged)
    own = values[name].cpu()
    occurring, told = own.unique(), classes[own].unique()
    answers = torch.unique(bench.labels(values).cpu(), dim=0, return_inverse=True)[1]
    pairs = torch.stack([classes[own], answers], 1).unique(dim=0)
    alike = len(pairs) == len(told) == len(answers.unique())
    asked = ", ".join(filter(None, bench.answers))
    words = f"the answers distinguish {len(told)} of its {len(occurring)} values"
    same = Decision("untested", f"{words}, and these are {asked}")
    known = f"up to {len(told)} classes of its {len(occurring)} values"
    if is_modulus(classes, len(told)):
        known = f"up to mod {len(told)}"
    return Test.made(
        "resolution",
        part.name,
        (str(part),),
        same if alike else YES,
        Evidence(value=float(len(told)), n=len(occurring)),
        label="values told apart",
        where=str(part.site),
        caveat="" if len(told) == len(occurring) else known,
        refutes=True,
    )


def is_modulus(classes: Int[Tensor, " value"], n: int) -> bool:
    """Return whether the classes are values modulo n.

    >>> is_modulus(torch.tensor([4, 1, 4, 1, 4]), 2), is_modulus(torch.tensor([0, 0, 1]), 2)
    (True, False)
    """
    places = torch.arange(len(classes))
    return 1 < n < len(classes) and torch.equal(classes, classes[places % n])


def beyond(bench: Bench, part: Part, classes: Int[Tensor, " value"]) -> Test:
    """The share of judged inputs whose class a linear reading of the site finds among those that
    occur with the same answer; it can only refute.
    """
    mean = bench.activation(part.site, bench.fitted).mean(0)
    held, labels = [], []
    for rows in (bench.fitted, bench.judged):
        held.append(bench.activation(part.site, rows) - mean)
        labels.append(classes[bench.values(rows)[part.variables[0]].cpu()])
    one_hot = torch.nn.functional.one_hot(labels[0], int(classes.max()) + 1).double()
    weights = ridge(held[0], one_hot - one_hot.mean(0), PENALTY)
    scores = held[1] @ weights + one_hot.mean(0)
    answers = bench.labels(bench.values(bench.judged)).cpu()
    group = torch.unique(answers, dim=0, return_inverse=True)[1]
    counts = torch.zeros(int(group.max()) + 1, scores.shape[1]).double()
    counts.index_put_((group, labels[1]), torch.ones(len(group)).double(), accumulate=True)
    several = (counts > 0).sum(1) > 1
    asked = several[group]
    allowed = counts[group] > 0
    read = scores.masked_fill(~allowed, -torch.inf).argmax(1)
    n = int(asked.sum())
    chance = float(counts[several].amax(1).sum()) / max(n, 1)
    skill = Skill(1.0, chance, n)
    found, where = counted_share((read == labels[1])[asked]), str(part.site)
    return judge_share(
        "beyond", part.name, (str(part),), found, skill, bound=HALF, refutes=True, where=where
    )
