"""Accounts: what a model computes, computed once from results and drawn by every view."""

from mechint.account.account import (
    NOT_ASKED,
    NOTHING,
    UNDECIDED,
    Account,
    Quality,
    account_of,
    accounts_json,
    quality_of,
    title_of,
    verdict_of,
    verdict_with_program,
)

__all__ = [
    "NOTHING",
    "NOT_ASKED",
    "UNDECIDED",
    "Account",
    "Quality",
    "account_of",
    "accounts_json",
    "quality_of",
    "title_of",
    "verdict_of",
    "verdict_with_program",
]
