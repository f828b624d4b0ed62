"""Circuits: which component reads which, edge by edge, with random circuits of the same size.

Path patching finds the edges that an induction model needs, from the previous-token head through
the keys of the induction heads to the logits. Random circuits of the size do next to nothing, and
initial weights have none.
"""

# %% A trained model
import mechint
import probes

subject = mechint.load(mechint.example("induction.pt"))

# %% The circuit of the answer
result = probes.run("circuits", subject, pairs=128, held_out=64, null_samples=99)
result

# %% The picture, for a paper
result.figures[result.hero].save("circuit.svg")

# %% The control: the same architecture with initial weights
control = probes.run("circuits", subject.untrained(0), only_correct=False, pairs=64, held_out=32)
control.headline
