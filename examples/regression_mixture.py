"""Superposition of regressions: which features does a narrow model keep?

Features are kept in the order of utility, prior × eigenvalue, whatever task they belong to, and the
loss of the rest is the floor. Where targets belong to other inputs, the best answer is none.
"""

# %% The task, and what theory says about a bottleneck of six columns
import mechint
import tasks

WIDTH = 6
task = tasks.make("regression-mixture", n=16, n_tasks=4, rank=4)
print(task.retained_features(WIDTH), f"features kept, loss {task.residual(WIDTH):.3f}")

# %% Train on batches, on the whole distribution, and on targets of other inputs
train = {"steps": 300, "lr": 0.03, "warmup": 20, "batch_size": 128, "evaluate_every": 300}
(batches,) = mechint.train(task, {"width": WIDTH}, train)
(exact,) = mechint.train(
    task, {"width": WIDTH, "decoder": "optimal"}, {**train, "batch_size": None}
)
(control,) = mechint.train(task.control("shuffled"), {"width": WIDTH}, train)

# %% The loss, computed exactly
outcome = {
    "task": batches.final["test.loss"],
    "exact": exact.final["test.loss"],
    "theory": task.residual(WIDTH),
    "control": control.final["test.loss"],
    "chance": task.chance["y"].loss,
}
outcome

# %% Which features the encoder holds
account = mechint.analyze(exact.subject(), "subspace")
account
