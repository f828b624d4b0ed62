"""Progress on stderr: lines where that is a file, a bar where it is a terminal, rate and time left
in both.
"""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from mechint.system import progress
from mechint.system.progress import counting, counting_within


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock that progress reads."""
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    return clock


def test_a_line_every_ten_seconds_with_rate_and_time_left(
    now: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with counting("drawing pages") as update:
        for done, seconds in enumerate((0, 4, 12, 15, 24)):
            now[0] = 100.0 + seconds
            update(done, 6, f"page {done}")
    assert capsys.readouterr().err.splitlines() == [
        "mechint: drawing pages: 2 of 6 (page 2), 10 per minute, 24 s left",
        "mechint: drawing pages: 4 of 6 (page 4), 10 per minute, 12 s left",
    ]


def test_what_is_soon_done_prints_nothing(
    now: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with counting("probing") as update:
        update(0, 1, "fourier")
        now[0] += 3
        update(1, 1, "fourier")
    assert capsys.readouterr().err == ""


def test_what_takes_long_inside_says_how_far_it_is(
    now: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with counting("probing") as update:
        update(1, 3, "patching")
        now[0] += 30
        with counting_within("interventions") as within:
            for done in range(0, 2400, 600):
                within(done, 2400)
                now[0] += 60
        now[0] += 10
        update(2, 3, "weights")
        with counting_within("directions") as outer:
            now[0] += 10
            outer(1, 8)
            with counting_within("interventions") as inner:
                now[0] += 10
                inner(50, 100)
    with counting_within("interventions") as within:  # no command counts
        within(1, 2)
    assert capsys.readouterr().err.splitlines() == [
        "mechint: probing: 1 of 3 (patching, interventions 600 of 2,400, 10 per second, 3 min "
        "left), 40 per hour, 3 min left",
        "mechint: probing: 1 of 3 (patching, interventions 1,200 of 2,400, 10 per second, 2 min "
        "left), 24 per hour, 5 min left",
        "mechint: probing: 1 of 3 (patching, interventions 1,800 of 2,400, 10 per second, 60 s "
        "left), 17 per hour, 7 min left",
        "mechint: probing: 2 of 3 (weights), 26 per hour, 2 min left",
        "mechint: probing: 2 of 3 (weights, directions 1 of 8, 6 per minute, 70 s left), "
        "25 per hour, 2 min left",
        "mechint: probing: 2 of 3 (weights, directions 1 of 8, 6 per minute, 70 s left, "
        "interventions 50 of 100, 5 per second, 10 s left), 24 per hour, 2 min left",
    ]


def test_a_bar_says_the_same(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=120)
    monkeypatch.setattr(progress, "console", lambda **_: terminal)
    with counting("measuring") as update:
        now[0] += 6
        update(3, 9, "[red]")
    assert "measuring: 3 of 9 ([red]), 30 per minute, 12 s left" in written.getvalue()


def test_a_step_is_named_where_no_terminal_is(
    now: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with counting("remainders") as update:
        for seconds, text in ((0, "run 1 of 2"), (3, "run 2 of 2"), (12, "measuring 2 runs")):
            now[0] = 100.0 + seconds
            update(0, 0, text)
    assert capsys.readouterr().err.splitlines() == ["mechint: remainders: measuring 2 runs"]
