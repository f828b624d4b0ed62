"""Addition modulo p: a small transformer generalizes to pairs it never saw, unless the answers are
shuffled.

Of all p² pairs a share is trained on and the rest is the test. With true answers the test accuracy
reaches 1; with the same answers dealt out to other pairs there is nothing to generalize, and it
stays at 1/p.
"""

# %% The task and its control
import os

import tasks
from mechint.training import spec, train_many

SIZE = os.environ.get(
    "SIZE", "smoke"
)  # smoke: seconds; full: the setting of the literature, where generalization comes late
PARAMETERS = {"smoke": {"p": 23, "train_fraction": 0.8}, "full": {"p": 113}}[SIZE]
MODEL = {"smoke": {"d_model": 64, "d_mlp": 128}, "full": {}}[SIZE]
TRAIN = {"smoke": {"steps": 400, "lr": 1e-2}, "full": {}}[SIZE]

task = tasks.make("modular-arithmetic", **PARAMETERS)
control = task.control("shuffled")
print("one prompt:", task.text(task.inputs()[40]))

# %% Train both, as one ensemble
learned, shuffled = train_many([spec(one, MODEL, TRAIN) for one in (task, control)])

# %% Accuracy on pairs that were not trained on: only the true answers can be foreseen
outcome = {
    "task": learned.final["test.accuracy"],
    "control": shuffled.final["test.accuracy"],
    "chance": task.chance["answer"].accuracy,
}
for name, accuracy in outcome.items():
    print(f"{name:<8} {accuracy:6.1%}")
