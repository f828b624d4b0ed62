"""Many models as one table; ``mechint.runs(paths)`` makes it."""

from mechint.run_table.entries import Entry, find_entries
from mechint.run_table.table import Measurement, Runs, columns_of, runs

__all__ = ["Entry", "Measurement", "Runs", "columns_of", "find_entries", "runs"]
