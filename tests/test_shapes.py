"""Shapes in signatures are checked at run time, by the import hook in mechint's own modules."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.task import Answers, Chance
from tests import shapes
from tests.shapes import check_shapes


@check_shapes
def scaled(x: Float[Tensor, "batch d"], by: Float[Tensor, " d"] | None) -> Float[Tensor, "batch d"]:
    return x if by is None else x * by


@check_shapes
def broken(x: Float[Tensor, "batch d"]) -> Int[Tensor, " batch"]:
    return x.sum(1)


def test_what_fits_passes() -> None:
    assert scaled(torch.ones(2, 3), torch.ones(3)).shape == (2, 3)
    assert scaled(torch.ones(2, 3), None).shape == (2, 3)


@pytest.mark.parametrize(
    ("x", "by"),
    [
        (torch.ones(2), None),
        (torch.ones(2, 3), torch.ones(2)),
        (torch.ones(2, 3, dtype=torch.int64), None),
        (torch.ones(2, 3), torch.ones(1, 3)),
    ],
)
def test_another_shape_or_type_is_an_error(x: Tensor, by: Tensor | None) -> None:
    with pytest.raises(TypeError):
        scaled(x, by)


def test_what_is_returned_is_checked() -> None:
    with pytest.raises(TypeError, match="returns"):
        broken(torch.ones(2, 3))


def test_the_contracts_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import hook is at work on mechint's own modules."""
    monkeypatch.setattr(shapes, "EVERY", 1)  # however often other tests have called them
    with pytest.raises(TypeError):
        Chance.of(torch.ones(3))  # classes are integers
    with pytest.raises(TypeError):
        Answers(torch.zeros(2, 1), torch.zeros(3, 1, 1, dtype=torch.int64))


@check_shapes
def halves(
    parts: dict[str, Float[Tensor, "batch d"]], n: int
) -> tuple[Float[Tensor, " batch"], int]:
    return parts["left"].sum(1)[n:], n


def test_shapes_within_mappings_and_tuples_are_checked() -> None:
    assert halves({"left": torch.ones(2, 3)}, 0)[0].shape == (2,)
    with pytest.raises(TypeError):
        halves({"left": torch.ones(2, 3), "right": torch.ones(3, 3)}, 0)
    with pytest.raises(TypeError, match="returns"):
        halves({"left": torch.ones(2, 3)}, 1)
