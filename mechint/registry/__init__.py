"""Names of tasks, probes, studies, checkpoint formats and explanations, resolved on use."""

from mechint.registry.registry import (
    CHECKPOINT_FORMATS,
    EXPLANATIONS,
    FUNCTIONS,
    PROBES,
    RULES,
    STUDIES,
    TASKS,
    Registry,
    reduced,
    summary,
    unfinished,
)

__all__ = [
    "CHECKPOINT_FORMATS",
    "EXPLANATIONS",
    "FUNCTIONS",
    "PROBES",
    "RULES",
    "STUDIES",
    "TASKS",
    "Registry",
    "reduced",
    "summary",
    "unfinished",
]
