"""Distributed alignment search: a direction that holds the rank of a token.

If one direction of the residual stream is the rank of the first token, then swapping it between two
inputs swaps the answer as the task says. The share of pairs for which it does is the interchange
intervention accuracy (IIA), compared with random directions and an untrained model.
"""

# %% A model that compares hidden ranks; its weights are written, so that the direction is known
import numpy as np

import mechint.planted
import probes

plant = mechint.planted.comparison(n=20, rotation_seed=1)
subject = plant.subject

# %% Search for the direction of "rank of a" in the embedding
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
result

# %% The direction that was found, and the one that was planted
direction = np.asarray(plant.truth["subspaces"]["hook_embed"])[:, 0]
outcome = {
    "iia": result.metrics["iia"],
    "random": result.metrics["iia_random"],
    "untrained": result.metrics["iia_untrained"],
    "cosine": abs(float(result.arrays["subspace"][:, 0] @ direction)),
}
outcome
