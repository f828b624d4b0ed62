"""Accounts side by side, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from mechint.account.terminal import compared_rows, quality_text
from mechint.probe.results import Figure, Table
from mechint.report.page import Page, Section

if TYPE_CHECKING:
    from mechint.account import Account

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def comparison_page(accounts: Sequence[Account], command: str = "", said: str = "") -> Page:
    """The page of several accounts: verdicts first, what is `said` of their programs, then what
    differs, then each one's hero.
    """
    letters = LETTERS[: len(accounts)]
    named = list(zip(letters, accounts, strict=True))
    verdicts = dict.fromkeys(one.verdict for one in accounts)
    same = len(verdicts) == 1
    titles = list(dict.fromkeys(one.title for one in accounts))
    rows = compared_rows(accounts)
    columns: dict[str, list[object]] = {"measure": [name for name, _ in rows]}
    for place, (letter, account) in enumerate(named):
        columns[f"{letter}: {PurePath(account.path).stem or account.title}"] = [
            values[place] for _, values in rows
        ]
    heroes = {letter: _heroes(account) for letter, account in named}
    figures = {  # those of one probe beside each other, where every model has it
        f"{letter} {name}": replace(held[name], title=f"{letter}: {held[name].title}")
        for name in heroes[letters[0]]
        for letter, held in heroes.items()
        if all(name in other for other in heroes.values())
    }
    answers = [
        Section(
            f"{letter}: {PurePath(account.path).stem or account.title}",
            lead=account.verdict,
            paragraphs=[account.path, *quality_text(account.quality, ", ")],
            findings=[finding for _, finding in account.evidence],
        )
        for letter, account in named
    ]
    return Page(
        " and ".join(titles),
        [
            Section(
                "Side by side",
                lead=said,
                figures=figures,
                tables={"both": Table(columns, "text metrics and numbers that differ")},
            ),
            *answers,
        ],
        kicker="comparison",
        quality=[
            f"{letter}: {PurePath(account.path).name or account.title}; "
            + "; ".join(quality_text(account.quality, ", "))
            for letter, account in named
        ],
        verdict="\n".join(verdicts)
        if same
        else "\n".join(f"{letter}: {account.verdict}" for letter, account in named),
        probes=list(dict.fromkeys(name for one in accounts for name in one.results)),
        command=command,
    )


def _heroes(account: Account) -> dict[str, Figure]:
    """The hero of each result, that of the leading one first."""
    order = sorted(account.results.values(), key=lambda one: -one.lead_rank)
    return {
        one.probe: one.figures[one.hero].for_verdict(one.verdict)
        for one in order
        if one.hero in one.figures and one.figures[one.hero].plots
    }
