"""Decisions: nulls, intervals, and the rule that turns evidence into a verdict."""

from mechint.decide.intervals import clopper_pearson, wilson
from mechint.decide.null import MaxNull, Null

__all__ = ["MaxNull", "Null", "clopper_pearson", "wilson"]
