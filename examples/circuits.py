"""Edge by edge: which component reads which, by its query, key or value, and at which position.

Addition is planted in two heads that carry one operand each and an MLP that multiplies them. Of the
whole answer path patching finds both operands' paths; of the variable x, where a source differs in
the first operand alone, one of them. Random circuits of the same size do next to nothing. With
SIZE=full the model is trained.
"""

# %% A model that adds modulo p
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
    plant = planted.modular_addition(13, (2, 5), noise=0.02, rotation_seed=1)
    subject = plant.subject
    print("planted:", dict(plant.truth["heads"]))

# %% The circuit of the answer, and that of one variable
results = {
    "the answer": probes.run("circuits", subject),
    "x": probes.run("circuits", subject, variable="x"),
}
for name, result in results.items():
    metrics, edges = result.metrics, result.tables["edges"].columns
    print(f"{name}: {metrics['edges']} of {metrics['graph_edges']} edges")
    for row in zip(*(edges[k] for k in ("sender", "receiver", "position", "drop")), strict=True):
        print("  {} → {} @ {}: without it the circuit loses {:.0%}".format(*row))
    print(f"  {result.finding}")

# %% The picture of the graph, for a paper; the control: initial weights
results["the answer"].figures["circuit"].save("circuit.svg")
control = probes.run("circuits", subject.untrained(0), only_correct=False)
print(control.finding)
