"""An induction head in its weights: K-composition, matching, copying.

The previous-token head writes where the induction head's keys read; through it the QK circuit
matches each token with itself, and the OV circuit copies it. A model that finds an answer by
pointer doubling composes through queries and values instead, an untrained one through nothing.
"""

# %% Three models with known weights
import probes
from mechint import planted

subject = planted.induction_head(12, 6, noise=0.03, rotation_seed=1).subject
models = {
    "induction": subject,
    "untrained": subject.untrained(0),
    "pointer doubling": planted.composition(5, 4, rotation_seed=1).subject,
}

# %% Which heads read what another wrote
results = {name: probes.run("weights", one) for name, one in models.items()}
pairs = {name: result.metrics["composition.pairs"] for name, result in results.items()}
pairs

# %% What the pair of the induction head does
results["induction"]

# %% The circuit itself, as a factored matrix
layer, head = (int(n) for n in results["induction"].metrics["copying.head"][1:].split("H"))
model = subject.model
circuit = model.OV[layer, head]  # (d_model, d_model), never formed
full = model.W_E @ circuit @ model.W_U  # from tokens to classes
(full.AB.diagonal().mean() - full.AB.mean()).item()
