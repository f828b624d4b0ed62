"""A sum of single-index functions: directions emerge one by one, at predicted times.

The target is Σ a_p σ(⟨x, θ_p⟩) with amplitudes that fall as a power of p. Each direction has a long
plateau and a sharp end, whose time theory gives. With targets of other inputs none is found.
"""

# %% Train on fresh inputs, and on targets that belong to other inputs
import mechint
import tasks

task = tasks.make("single-index", d=32, n_directions=4, beta=1.5)
model = {"width": 128, "init_norm": 1e-2}
train = {"steps": 600, "lr": 0.02, "batch_size": 256, "evaluate_every": 10}
(learned,) = mechint.train(task, model, train)
(control,) = mechint.train(task.control("shuffled"), model, train)

# %% The first evaluation at which a direction's alignment passes one half
spec = learned.spec
times = task.emergence_times(spec.train.lr, spec.model.init_norm, spec.model.width)
emerged = [
    next((row["step"] for row in learned.metrics if row[f"test.alignment.{p}"] > 0.5), None)
    for p in range(task.n_directions)
]
for p, (predicted, step) in enumerate(zip(times.tolist(), emerged, strict=True)):
    print(f"direction {p}: predicted at step {predicted:.0f}, learned by step {step}")

# %% The loss, computed exactly
outcome = {
    "task": learned.final["test.loss"],
    "control": control.final["test.loss"],
    "chance": task.chance["y"].loss,
}
outcome
