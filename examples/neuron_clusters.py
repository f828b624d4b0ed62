"""Neurons come in clusters, one per frequency, and each cluster's phases fit its output.

A neuron of cluster w varies as cos(wx + a) and cos(wy + b) with the operands and writes cos(wc + d)
on the classes c. Summed over the cluster that is cos w(x + y - c) where d = a + b. Neurons of an
untrained model have no frequency. With SIZE=full the model is trained.
"""

# %% A model of addition, and the same architecture untrained
import os

import mechint
import probes
import tasks
from mechint import planted

SIZE = os.environ.get("SIZE", "smoke")  # smoke: a planted model; full: a trained one, minutes

if SIZE == "full":
    (run,) = mechint.train(tasks.make("modular-arithmetic", p=59), {"d_model": 128}, {}, seeds=[0])
    subject = run.subject()
else:
    subject = planted.modular_addition(31, (3, 8, 12), noise=0.03, rotation_seed=1).subject

# %% Clusters, phases, and what each cluster is worth
results = {
    name: probes.run("neurons", one)
    for name, one in {"addition": subject, "untrained": subject.untrained(0)}.items()
}
metrics = results["addition"].metrics
for name, size in metrics["clusters"].items():
    print(
        f"frequency {name:>3}: {size:4} neurons, phase alignment "
        f"{metrics['phase_alignment'][name]:.3f}, loss without them "
        f"{metrics['loss'] + metrics['ablation'][name]:.2g} nats"
    )

# %% In the probe's own words
for name, result in results.items():
    print(f"{name}: {result.finding}")
