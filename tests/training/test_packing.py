"""Where short examples lie when they share the rows of the compact layout."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mechint.training.packing import pack


def best_fit(lengths: list[int], width: int) -> list[int]:
    """The places found by looking at every row: the longest first, each in the fullest row that has
    room, of several such the one filled last.
    """
    starts, rows = [0] * len(lengths), []  # of a row: slots taken, and when it was filled last
    longest_first = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    for turn, index in enumerate(longest_first):
        fits = [row for row, (taken, _) in enumerate(rows) if taken + lengths[index] <= width]
        if not fits:
            rows.append((0, turn))
            fits = [len(rows) - 1]
        row = max(fits, key=rows.__getitem__)
        starts[index] = row * width + rows[row][0]
        rows[row] = (rows[row][0] + lengths[index], turn)
    return starts


@given(st.integers(1, 12).flatmap(lambda n: st.lists(st.integers(1, n), min_size=1, max_size=40)))
def test_each_example_lies_where_it_fits_best(lengths: list[int]) -> None:
    assert pack(lengths, max(lengths)) == best_fit(lengths, max(lengths))
