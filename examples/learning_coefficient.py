"""The local learning coefficient of networks where it is known in closed form.

A linear network that is wider than its map has directions along which the loss does not rise: its
coefficient is below d/2, by a closed form (Aoyagi 2024). Linear regression has d/2. Of a network
that has not learned, the estimate is reported as unreliable.
"""

# %% Networks whose coefficient has a closed form
import probes
from mechint import planted

settings = {"draws": 150, "burn_in": 150, "localization": 1.0, "tolerance": 0.5}
known = {}
for name, (widths, rank) in {
    "regression": ((5, 3), 2),
    "one layer too wide": ((4, 3, 4), 1),
}.items():
    plant = planted.linear_network(widths, rank, n=128)
    known[name] = plant.truth["learning_coefficient"], probes.run("llc", plant.subject, **settings)
for name, (truth, result) in known.items():
    print(f"{name}: {truth:g} in closed form, {result.metrics['llc']:.3g} estimated")

# %% Chains, with the loss along each
known["one layer too wide"][1]

# %% The same network before training
untrained = probes.run("llc", plant.subject.untrained(0), **settings)
untrained.findings[0]
