"""Neurons come in clusters, one per frequency, whose phases fit their output.

A neuron of cluster w varies as cos(wx + a) and cos(wy + b) with the operands and writes cos(wc + d)
on the classes c. Summed over the cluster that is cos w(x + y - c) where d = a + b.
"""

# %% A trained model of addition, and the same architecture untrained
import mechint
import probes

subject = mechint.load(mechint.example("clock.pt"))

# %% Clusters, phases, and what each cluster is worth
results = {
    name: probes.run("neurons", one)
    for name, one in {"addition": subject, "untrained": subject.untrained(0)}.items()
}
results["addition"]

# %% The control
results["untrained"].headline
