"""A sum of single-index functions: directions are found one by one, the strongest first, at times
known in advance.

The target is Σ a_p σ(⟨x, θ_p⟩) with amplitudes that fall as a power of p. Each direction has a long
plateau and a sharp end, whose time theory gives. With targets that belong to other inputs no
direction is ever found.
"""

# %% The task, and when theory says each direction is learned
import os

import mechint
import tasks

SIZE = os.environ.get("SIZE", "smoke")  # smoke: seconds; full: 24 directions in 64 dimensions
PARAMETERS = {"smoke": {"d": 32, "n_directions": 4, "beta": 1.5}, "full": {}}[SIZE]
MODEL = {"smoke": {"width": 128, "init_norm": 1e-2}, "full": {}}[SIZE]
TRAIN = {"smoke": {"steps": 600, "lr": 0.02, "batch_size": 256, "evaluate_every": 10}, "full": {}}[
    SIZE
]

task = tasks.make("single-index", **PARAMETERS)

# %% Train on fresh inputs, and on targets that belong to other inputs
(learned,) = mechint.train(task, MODEL, TRAIN)
(control,) = mechint.train(task.control("shuffled"), MODEL, TRAIN)

# %% Directions in the order they emerge: the first evaluation at which a direction's alignment
# passes one half
times = task.emergence_times(
    learned.spec.train.lr, learned.spec.model.init_norm, learned.spec.model.width
)
emerged = [
    next((row["step"] for row in learned.metrics if row[f"test.alignment.{p}"] > 0.5), None)
    for p in range(task.n_directions)
]
for p, (predicted, step) in enumerate(zip(times.tolist(), emerged, strict=True)):
    print(f"direction {p}: predicted at step {predicted:.0f}, learned by step {step}")

# %% The loss, computed exactly, against that of the best constant
outcome = {
    "task": learned.final["test.loss"],
    "control": control.final["test.loss"],
    "chance": task.chance["y"].loss,
}
for name, loss in outcome.items():
    print(f"{name:<8} {loss:6.3f}")
