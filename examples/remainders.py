"""Remainders by many primes at once: one network reads a two-digit number in base p and answers x
mod q for primes q < p.

All primes are learned by heart soon, but the small ones generalize first: at size smoke 2 and 3 are
there, 5 is on its way and 7 is not. The shuffled control gives every number the whole row of
remainders of another one: nothing can be foreseen.
"""

# %% The task and its control
import os

import tasks
from mechint.training import spec, train_many

SIZE = os.environ.get(
    "SIZE", "smoke"
)  # smoke: seconds; full: base 113 and its 29 primes, as in the source
PARAMETERS = {
    "smoke": {
        "p": 23,
        "masked": (11, 13, 17, 19),
        "train_fraction": 0.8,
        "validation_fraction": 0.0,
    },
    "full": {},
}[SIZE]
MODEL = {"smoke": {"d_model": 64, "d_mlp": 256, "dropout": 0.0}, "full": {}}[SIZE]
TRAIN = {"smoke": {"steps": 300, "lr": 5e-3, "weight_decay": 1.0}, "full": {}}[SIZE]

task = tasks.make("remainders", **PARAMETERS)
control = task.control("shuffled")
print("one prompt, the low digit first:", task.text(task.inputs()[40]))

# %% Train both, as one ensemble
learned, shuffled = train_many([spec(one, MODEL, TRAIN) for one in (task, control)])

# %% Held-out accuracy of every prime: chance is 1/q, so the primes are compared by what lies above
# it
print(f"{'':<8}  true  shuffled  chance")
for output, chance in task.chance.items():
    row = [run.final[f"test.accuracy.{output}"] for run in (learned, shuffled)]
    print(f"{output:<8} {row[0]:5.1%} {row[1]:8.1%} {chance.accuracy:7.1%}")

# %% The mean over primes
outcome = {
    "task": learned.final["test.accuracy"],
    "control": shuffled.final["test.accuracy"],
    "chance": sum(chance.accuracy for chance in task.chance.values()) / len(task.chance),
}
