"""Many models as one table; ``mechint.runs(paths)`` makes it."""

from mechint.run_table.dynamics import (
    EmergenceTime,
    compare_transitions,
    emergence_times,
    transition,
)
from mechint.run_table.entries import Entry, find_entries
from mechint.run_table.measuring import Measurement, columns_of, measure
from mechint.run_table.table import Runs, runs

__all__ = [
    "EmergenceTime",
    "Entry",
    "Measurement",
    "Runs",
    "columns_of",
    "compare_transitions",
    "emergence_times",
    "find_entries",
    "measure",
    "runs",
    "transition",
]
