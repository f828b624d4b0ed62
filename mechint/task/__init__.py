"""Task: inputs and labels, and the truth about the algorithm that joins them.

A family of tasks is one file: a frozen dataclass that derives from `FiniteTask` (its inputs can be
enumerated) or from `GeneratedTask` (its inputs are a stream), and one entry point in
``pyproject.toml``. Everything a probe asks of a task is defined here; what a family does not
have stays at the default and the probe says why it does not apply.
"""

from mechint.task.base import ACCURACY, LOSS, Task, answer_scores, logits_of
from mechint.task.batch import (
    ANY,
    IGNORE,
    MAX_SEED,
    SPLITS,
    Answers,
    Batch,
    Output,
    TargetKind,
    Vocabulary,
    epochs,
    first_of_each,
    rng,
)
from mechint.task.families import FiniteTask, GeneratedTask, function_task
from mechint.task.truth import (
    Chance,
    Control,
    Counterfactuals,
    Program,
    Relation,
    Step,
    Symmetry,
    Variable,
    choose_answer,
    find_variable,
)

__all__ = [
    "ACCURACY",
    "ANY",
    "IGNORE",
    "LOSS",
    "MAX_SEED",
    "SPLITS",
    "Answers",
    "Batch",
    "Chance",
    "Control",
    "Counterfactuals",
    "FiniteTask",
    "GeneratedTask",
    "Output",
    "Program",
    "Relation",
    "Step",
    "Symmetry",
    "TargetKind",
    "Task",
    "Variable",
    "Vocabulary",
    "answer_scores",
    "choose_answer",
    "epochs",
    "find_variable",
    "first_of_each",
    "function_task",
    "logits_of",
    "rng",
]
