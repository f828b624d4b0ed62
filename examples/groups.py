"""The product in a finite group: any multiplication table is a task, and its representations are
its symmetry.

The pairs of residues modulo 5 are a group that no single cycle goes through; permutations of five
points do not even commute and take longer. A network that found the structure multiplies pairs it
never saw; over a shuffled table it cannot.
"""

# %% The task and its control
import os

import tasks
from mechint.groups.representations import representations
from mechint.training import spec, train_many

SIZE = os.environ.get("SIZE", "smoke")  # smoke: seconds; full: all permutations of five points
PARAMETERS = {"smoke": {"group": "C5xC5", "train_fraction": 0.85}, "full": {"group": "S5"}}[SIZE]
MODEL = {"smoke": {"d_model": 64, "d_mlp": 128}, "full": {}}[SIZE]
TRAIN = {"smoke": {"steps": 200, "lr": 1e-2}, "full": {}}[SIZE]

task = tasks.make("groups", **PARAMETERS)
control = task.control("shuffled")
group = task.symmetry.group
print("one prompt:", task.text(task.inputs()[40]))
print(
    group.order,
    "elements; irreducible representations",
    [irrep.name for irrep in representations(group).irreps],
)

# %% Train both, as one ensemble
learned, shuffled = train_many([spec(one, MODEL, TRAIN) for one in (task, control)])

# %% Accuracy on products that were not trained on
outcome = {
    "task": learned.final["test.accuracy"],
    "control": shuffled.final["test.accuracy"],
    "chance": task.chance["answer"].accuracy,
}
for name, accuracy in outcome.items():
    print(f"{name:<8} {accuracy:6.1%}")
