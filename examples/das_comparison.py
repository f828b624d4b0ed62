"""Where does a model hold the rank of a token? Distributed alignment search on the comparison of
hidden ranks.

If one direction of the residual stream is the rank of the first token, then swapping that direction
between two inputs must swap the answer as the task says. The share of pairs for which it does is
the interchange intervention accuracy. It is worth something only beside what a random direction and
an untrained model reach.
"""

# %% A model that compares hidden ranks: here one written by hand; `mechint.load("runs/comparison")`
# opens a trained one
import numpy as np

import mechint.planted
import probes

plant = mechint.planted.comparison(n=20, rotation_seed=1)
subject = plant.subject
print(
    "the task:",
    subject.task.text(subject.data.tokens[7]),
    " accuracy:",
    subject.accuracy()["a < b"],
)

# %% Search for the direction of "rank of a" in the embedding at its own position
result = probes.run(
    "das",
    subject,
    variable="rank of a",
    hook="hook_embed",
    steps=120,
    batch_size=128,
    pairs=256,
    held_out=128,
    null_samples=99,
)
print(result.finding)

# %% The direction that was found, against the one that was planted
direction = np.asarray(plant.truth["subspaces"]["hook_embed"])[:, 0]
cosine = abs(float(result.arrays["subspace"][:, 0] @ direction))

outcome = {
    "iia": result.metrics["iia"],
    "random": result.metrics["iia_random"],
    "untrained": result.metrics["iia_untrained"],
    "cosine with the planted direction": cosine,
}
for name, value in outcome.items():
    print(f"{name:<36}{value:.2f}")
