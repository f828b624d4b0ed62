"""Composition of hidden permutations: where does a pointer land after one hop, and after several?

Every example brings fresh permutations σ₁ … σₖ; between them stand hidden ones, the same in all
examples, which only training can reveal. One hop needs one of them, two hops need two in a row:
longer hops are built on shorter ones and come later.
"""

# %% The task and its control
import os

import tasks
from mechint.training import spec, train_many

SIZE = os.environ.get(
    "SIZE", "smoke"
)  # smoke: seconds; full: hops of 1, 2 and 4 in a model of three layers
PARAMETERS = {"smoke": {"n": 4, "k": 2, "hops": (1, 2), "perm_seed": 3}, "full": {}}[SIZE]
MODEL = {"smoke": {"d_model": 32, "n_layers": 2, "n_heads": 2}, "full": {}}[SIZE]
TRAIN = {"smoke": {"steps": 300, "lr": 5e-3, "eval_examples": 500}, "full": {}}[SIZE]

task = tasks.make("composition", **PARAMETERS)
control = task.control("shuffled")
print(
    "one prompt:",
    task.text(task.sample(1, seed=0).tokens[0]),
    "  hidden:",
    task.tables()["permutations"],
)

# %% Train both, as one ensemble
learned, shuffled = train_many([spec(one, MODEL, TRAIN) for one in (task, control)])

# %% Accuracy of every hop on inputs whose hash keeps them out of training
outcomes = {}
for hop, chance in task.chance.items():
    accuracy = [run.final[f"test.accuracy.{hop}"] for run in (learned, shuffled)]
    outcomes[hop] = {"task": accuracy[0], "control": accuracy[1], "chance": chance.accuracy}
    print(hop, {name: f"{value:.1%}" for name, value in outcomes[hop].items()})
