"""Published figures beside ours: the kept table, and a row measured again where the files are."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.published import FIGURES, Figure, compare, main


def test_agreement_is_a_tolerance_or_a_set() -> None:
    number = Figure("f", "q", 1.0, lambda path: 1.1, tolerance=0.05)
    assert not number.agrees(1.1) and number.agrees(0.96)
    names = Figure("f", "q", ("a", "b"), lambda path: ("a",))
    assert not names.agrees(("a",)) and names.agrees(("a", "b"))


def test_a_folder_without_models_is_no_agreement(tmp_path: Path) -> None:
    assert main([str(tmp_path), "--out", str(tmp_path / "docs")]) == 1
    assert compare(tmp_path) == []


@pytest.mark.slow
def test_all_figures_measured_again_agree(published: Path) -> None:
    assert [row for row in compare(published) if not row["agrees"]] == []


@pytest.mark.full
def test_figures_measured_again_agree(published: Path) -> None:
    """Those that take seconds: not the shares, which ask for a whole run of fourier at p = 113."""
    wanted = ("18c9ev5v5p", "p99zdpze5l", "wd_10-1")
    figures = [
        figure
        for figure in FIGURES
        if any(name in figure.file for name in wanted) and "share" not in figure.quantity
    ]
    rows = compare(published, figures)
    assert len(rows) == len(figures) == 9
    assert [row for row in rows if not row["agrees"]] == []
