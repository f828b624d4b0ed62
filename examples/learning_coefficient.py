"""The local learning coefficient of networks where it is known, and along a training run.

A linear network that is wider than its map has directions along which the loss does not rise: its
coefficient is below d/2, by a closed form (Aoyagi 2024). Linear regression has d/2. Along a run the
probe gives no number where its chains find a lower loss nearby, as before the model has learned.
"""

# %% Networks whose coefficient has a closed form
import os

import mechint
import probes
import tasks
from mechint import planted

SIZE = os.environ.get("SIZE", "smoke")  # smoke: seconds; full: a grokking run, minutes
DRAWS = {"smoke": 150, "full": 1000}[SIZE]
KNOWN = {"regression": ((5, 3), 2), "one layer too wide": ((4, 3, 4), 1)}

settings = {"draws": DRAWS, "burn_in": DRAWS, "localization": 1.0, "tolerance": 0.5}
known = {}
for name, (widths, rank) in KNOWN.items():
    plant = planted.linear_network(widths, rank, n=128)
    result = probes.run("llc", plant.subject, **settings)
    known[name] = plant.truth["learning_coefficient"], result
    print(f"{name}: {plant.truth['learning_coefficient']:g} in closed form. {result.finding}")

# %% A model of addition, before and after it learned
p, steps = {"smoke": (7, 60), "full": (59, 8000)}[SIZE]
(run,) = mechint.train(
    tasks.make("modular-arithmetic", p=p, train_fraction=0.6),
    {"d_model": 32, "n_heads": 2, "d_mlp": 64},
    {"steps": steps, "lr": 3e-3, "checkpoints": "linear"},
    seeds=[0],
)
subject = run.subject()
kept = list(subject.series)
few = {"draws": 40, "burn_in": 20, "chains": 3} if SIZE == "smoke" else {}

# %% One row per checkpoint: a number with its interval, or why there is none
course = {
    step: probes.run("llc", subject.at_step(step), **few)
    for step in (kept if SIZE == "full" else (kept[0], kept[-1]))
}
for step, result in course.items():
    print(f"step {step}: {result.finding}")
