"""Search for the settings that do best, by Optuna: at random, or from what earlier trials gave.

    DIR/search.json     what is searched for: task, settings, spaces, objective, sampler
    DIR/search.db       Optuna's study, an SQLite database that its own tools open
    DIR/trial=0007/     a run directory per trial, or one per value that the trials share

Trials are asked for and trained several at a time, as ensembles. Every trial is drawn with a seed
of its own from the trials before its batch, so a search that is killed and resumed asks for the
same trials.
"""

from mechint.sweeps.search.plan import SEARCH, Search, keep_search, read_search
from mechint.sweeps.search.run import check_objective, run_search, trials
from mechint.sweeps.search.space import Space

__all__ = [
    "SEARCH", "Search", "Space", "check_objective", "keep_search", "read_search", "run_search",
    "trials",
]  # fmt: skip
