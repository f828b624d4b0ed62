"""A hidden order: from pairs alone a network finds out which token ranks where, and compares or
adds ranks it was never told.

Each token has a secret rank. Comparison asks which of two comes first, hidden addition for the sum
of both ranks modulo n. Order carries over from pair to pair, so pairs that were never shown are
answered; shuffled answers carry nothing over.
"""

# %% Two tasks on one kind of hidden order
import os

import tasks
from mechint.training import spec, train_many

SIZE = os.environ.get("SIZE", "smoke")  # smoke: seconds; full: 100 tokens, as in the source
COMPARISON = {"smoke": {"n": 40}, "full": {}}[SIZE]
ADDITION = {"smoke": {"n": 23, "train_fraction": 0.8}, "full": {}}[SIZE]
MODEL = {"smoke": {"d_model": 64, "d_mlp": 128}, "full": {}}[SIZE]
TRAIN = {"smoke": {"steps": 200, "lr": 5e-3}, "full": {}}[SIZE]
LONGER = {"smoke": {"steps": 400, "lr": 1e-2}, "full": {}}[SIZE]

comparison, addition = (
    tasks.make("comparison", **COMPARISON),
    tasks.make("hidden-addition", **ADDITION),
)
print(
    "one prompt of each:",
    comparison.text(comparison.inputs()[7]),
    " and ",
    addition.text(addition.inputs()[7]),
)
print("the secret:", dict(list(comparison.tables()["rank"].items())[:5]), "...")

# %% Train each beside its shuffled control
compared = train_many(
    [spec(one, MODEL, TRAIN) for one in (comparison, comparison.control("shuffled"))]
)
added = train_many([spec(one, MODEL, LONGER) for one in (addition, addition.control("shuffled"))])

# %% Accuracy on pairs that were not trained on
outcomes = {}
for task, (learned, shuffled) in ((comparison, compared), (addition, added)):
    (chance,) = task.chance.values()
    outcomes[task.name] = {
        "task": learned.final["test.accuracy"],
        "control": shuffled.final["test.accuracy"],
        "chance": chance.accuracy,
    }
    print(task.name, {name: f"{accuracy:.1%}" for name, accuracy in outcomes[task.name].items()})
