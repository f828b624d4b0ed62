"""An induction head is read off its weights: K-composition, matching, copying.

The previous-token head writes where the induction head's keys read; through it the QK circuit
matches each token with itself, and the OV circuit copies it. A model that finds an answer by
pointer doubling composes through queries and values instead, an untrained one through nothing.
With SIZE=full the induction heads are trained ones, on copies whose distance varies: side by side,
a head that looks back by a fixed distance answers as well.
"""

# %% Three models
import os

import mechint
import probes
import tasks
from mechint import planted

SIZE = os.environ.get("SIZE", "smoke")  # smoke: planted models; full: a trained one, minutes

if SIZE == "full":
    task = tasks.make("repeated-tokens", n=20, length=8, context=32)
    (run,) = mechint.train(task, dict(task.model_defaults), {"steps": 2500, "lr": 3e-3}, seeds=[0])
    subject = run.subject()
else:
    subject = planted.induction_head(12, 6, noise=0.03, rotation_seed=1).subject
models = {
    "induction": subject,
    "untrained": subject.untrained(0),
    "pointer doubling": planted.composition(5, 4, rotation_seed=1).subject,
}

# %% Which heads read what another wrote
results = {
    name: probes.run("weights", one, directions=0 if name != "induction" else 2, examples=32)
    for name, one in models.items()
}
for name, result in results.items():
    print(f"{name}: composition {', '.join(result.metrics['composition.pairs']) or 'none'}")

# %% What the pair of the induction head does
metrics = results["induction"].metrics
print(f"{metrics['composition.K.pair']}: matches its own token {metrics['matching']:.2f}")
print(f"{metrics['copying.head']}: copies what it reads {metrics['copying']:.2f}")

# %% The circuits themselves, as factored matrices
layer, head = (int(number) for number in metrics["copying.head"][1:].split("H"))
model = subject.model
circuit = model.OV[layer, head]  # (d_model, d_model), never formed
full = model.W_E @ circuit @ model.W_U  # from tokens to classes
own = full.AB.diagonal().mean() - full.AB.mean()
print(f"its largest singular values {[round(v, 2) for v in circuit.S[:4].tolist()]}")
print(f"a token's own logit stands {own:.1f} above the mean")

# %% In the probe's own words
for name, result in results.items():
    print(f"{name}: {result.finding}")
