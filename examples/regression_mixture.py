"""Linear regressions that compete for width: which features a narrow model keeps is known before it
is trained.

Features are kept in the order of utility, prior × eigenvalue, whatever task they belong to; the
loss of the rest is the floor. Descending the exact loss of the whole distribution reaches it;
batches come close. Where targets belong to other inputs the best answer is none, and the loss stays
at that of answering zero.
"""

# %% The task, and what theory says about a bottleneck of six columns
import os

import mechint
import tasks

SIZE = os.environ.get(
    "SIZE", "smoke"
)  # smoke: seconds; full: eight tasks of eight features, as in the source
PARAMETERS = {"smoke": {"n": 16, "n_tasks": 4, "rank": 4}, "full": {}}[SIZE]
WIDTH = {"smoke": 6, "full": 16}[SIZE]
STEPS = {"smoke": 300, "full": 8000}[SIZE]
TRAIN = {"steps": STEPS, "lr": 0.03, "warmup": 20, "batch_size": 128, "evaluate_every": STEPS}

task = tasks.make("regression-mixture", **PARAMETERS)
print(
    f"{WIDTH} columns keep {task.retained_features(WIDTH)} features of the tasks and leave "
    f"a loss of {task.residual(WIDTH):.3f}"
)

# %% Train on batches, on the whole distribution, and on targets that belong to other inputs
(batches,) = mechint.train(task, {"width": WIDTH}, TRAIN)
(exact,) = mechint.train(
    task, {"width": WIDTH, "decoder": "optimal"}, {**TRAIN, "batch_size": None}
)
(control,) = mechint.train(task.control("shuffled"), {"width": WIDTH}, TRAIN)

# %% The loss, computed exactly: batches and the whole distribution end where theory says, the
# control where it began
outcome = {
    "task": batches.final["test.loss"],
    "exact": exact.final["test.loss"],
    "theory": task.residual(WIDTH),
    "control": control.final["test.loss"],
    "chance": task.chance["y"].loss,
}
for name, loss in outcome.items():
    print(f"{name:<8} {loss:6.3f}")

# %% How many features of every task the encoder holds, in the basis-free count of the source
print("features held:", [round(exact.final[f"test.features.{t}"], 2) for t in range(task.n_tasks)])
