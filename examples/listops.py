"""ListOps: nested expressions over a finite algebra, and the triplet experiments with their fixed
training set.

Some operand tuples are held out: no training expression shows one at any step. A model that learned
the operation answers them all the same. The control gives every tuple a random answer that never
changes, which leaves nothing to carry over. Accuracy is that of greedy continuation from the
prompt: the model must write the answer itself.
"""

# %% Expressions without end, and single triplets from a fixed set
import os

import tasks
from mechint.training import spec, train_many

SIZE = os.environ.get(
    "SIZE", "smoke"
)  # smoke: seconds; full: MAX, MED and ADD with a chain of thought
EXPRESSIONS = {"smoke": {"operations": ("MAX",), "depth": 1}, "full": {}}[SIZE]
TRIPLETS = {"smoke": {"operations": ("MAX",)}, "full": {}}[SIZE]
MODEL = {"smoke": {"d_model": 32, "n_layers": 1, "n_heads": 2}, "full": {}}[SIZE]
TRAIN = {"smoke": {"steps": 300, "lr": 5e-3, "eval_examples": 500}, "full": {}}[SIZE]

families = (tasks.make("listops", **EXPRESSIONS), tasks.make("listops-triplets", **TRIPLETS))
for task in families:
    print(f"{task.name}: {task.text(task.sample(1, seed=0).tokens[0])}")

# %% Train each beside its control
trained = [
    train_many([spec(one, MODEL, TRAIN) for one in (task, task.control("random-answers"))])
    for task in families
]

# %% Accuracy on held-out operands; chance is always giving the most frequent value
outcomes = {}
for task, (learned, random) in zip(families, trained, strict=True):
    accuracy = [run.final["test.greedy.accuracy"] for run in (learned, random)]
    outcomes[task.name] = {
        "task": accuracy[0],
        "control": accuracy[1],
        "chance": task.answer_chance.accuracy,
    }
    print(task.name, {name: f"{value:.1%}" for name, value in outcomes[task.name].items()})
