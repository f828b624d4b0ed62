"""Twenty false claims, made from the words that explanations use; none may stand.

They were written by the author of the tests for sums over all frequencies, who knew the tests of
audits, in one sitting and before any of them was audited; no bound was changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import mechint
from mechint import planted
from mechint.explanation import Audit, audit, head, site
from mechint.explanation.measure import Bench
from mechint.planted.library import lookup, lookup_in_waves, product
from mechint.planted.trained import sums_by_heart
from mechint.subject import Subject
from probes.explanations.representations import Bilinear, Frequencies, GroupProducts, Setting

MODELS = Path(__file__).parents[2] / "examples" / "models"
Last = Callable[[Setting, Any], Any]


def example(name: str) -> Subject:
    """A shipped model."""
    return mechint.load(MODELS / f"{name}.pt")


def plant(seed: int = 5) -> Subject:
    """Addition mod 23 by frequencies 2, 5 and 9."""
    return planted.modular_addition(23, (2, 5, 9), noise=0.05, rotation_seed=seed).subject


def by(
    subject: Subject,
    keys: list[str] | None = None,
    inputs: list[str] | None = None,
    last: Last | None = None,
    family: Any = Frequencies,
) -> Audit:
    """The answer by some representations, by all when None; others in the inputs."""
    setting, made = Setting.of(subject), family()
    assert setting is not None
    bench = Bench.of(subject, subject.task.own_program)  # type: ignore[union-attr]
    keys = setting.names() if keys is None else keys
    return audit(subject, made.make(bench, setting, keys, inputs or keys, last))


def claimed(subject: Subject, *claims: Any, **more: Any) -> Audit:
    """Claims about heads and sites, on fewer inputs."""
    return audit(subject, *claims, examples=1000, **more)


def rescaled(subject: Subject) -> Subject:
    """A model whose logits of each class are scaled by a factor of their own."""
    weights = dict(subject.model.named_parameters())["unembed.W_U"]
    with torch.no_grad():
        weights.mul_(torch.linspace(0.6, 1.4, weights.shape[1]))
    return subject


def minus(tokens: torch.Tensor) -> torch.Tensor:
    """The difference of the operands, of a model that adds."""
    return (tokens[:, 0] - tokens[:, 1]) % 23


def tens(tokens: torch.Tensor) -> torch.Tensor:
    """Something that the model does not hold: a parity of both operands."""
    return (tokens[:, 0] + tokens[:, 1]) % 2


def summed(tokens: torch.Tensor, tens: torch.Tensor) -> torch.Tensor:
    """The sum, from the tokens alone."""
    return (tokens[:, 0] + tokens[:, 1]) % 23 + 0 * tens


FORGERIES: dict[str, Callable[[], Audit]] = {
    "a frequency is left out": lambda: by(example("clock"), ["7", "9"]),
    "a frequency is added": lambda: by(example("clock"), ["5", "7", "9", "12"]),
    "second harmonics": lambda: by(example("clock"), ["14", "11", "5"]),
    "all of three frequencies": lambda: by(example("clock")),
    "those of another model": lambda: by(example("pizza"), ["7", "9", "12"]),
    "harmonics in the inputs of a clock": lambda: by(
        plant(), ["2", "5", "9"], ["2", "5", "9", "4", "10"]
    ),
    "other inputs than answers": lambda: by(plant(), ["2", "5", "9"], ["1", "3", "4"]),
    "a table by all frequencies": lambda: by(lookup("modular-arithmetic", p=23)["lookup"](3)),
    "a rescaled table by all": lambda: by(
        rescaled(lookup("modular-arithmetic", p=23)["lookup"](4))
    ),
    "a table that writes two waves": lambda: by(lookup_in_waves(6), ["2", "3"]),
    "sums by heart, by all": lambda: by(sums_by_heart(7, 13)),
    "one representation for another": lambda: by(
        product(0.05, 8).subject, ["sign"], family=GroupProducts
    ),
    "bilinear in all of them": lambda: by(product(0.05, 9).subject, family=Bilinear),
    "the head copies the first token": lambda: claimed(
        example("maximum"), head(0, 0).copies("first token")
    ),
    "the head attends to the smallest": lambda: claimed(
        example("maximum"), head(0, 0).attends("smallest token")
    ),
    "a carry where nothing has met": lambda: claimed(
        example("digits"), site("L0 resid_pre @ answer").holds("carry_0")
    ),
    "a sum at the last layer": lambda: claimed(
        example("digits"), site("L1 resid_post @ answer").holds("sum_1")
    ),
    "a first layer that finds the match": lambda: claimed(
        example("induction"), head(0, 0).copies("token after an earlier equal pair")
    ),
    "subtraction": lambda: claimed(
        plant(), site("L0 resid_post @ answer").holds("minus"), program=minus
    ),
    "a parity on the way": lambda: claimed(
        plant(), site("L0 resid_mid @ answer").holds("tens"), program=[tens, summed]
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_does_not_stand(name: str) -> None:
    assert FORGERIES[name]().standing != "stands"
