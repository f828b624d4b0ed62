"""Composition of hidden permutations: are longer hops built on shorter ones?

Every example brings fresh permutations; between them stand hidden ones, the same in all examples,
which only training can reveal. One hop needs one of them, two hops need two in a row.
"""

# %% The task and its control
import mechint
import tasks

task = tasks.make("composition", preset="fast")
control = task.control("shuffled")
print(task.text(task.sample(1, seed=0).tokens[0]), " hidden:", task.tables()["permutations"])

# %% Train both
(learned,) = mechint.train(task, preset="fast")
(shuffled,) = mechint.train(control, preset="fast")

# %% Accuracy of every hop on held-out inputs
outcomes = {}
for hop, chance in task.chance.items():
    accuracy = [run.final[f"test.accuracy.{hop}"] for run in (learned, shuffled)]
    outcomes[hop] = {"task": accuracy[0], "control": accuracy[1], "chance": chance.accuracy}
outcomes
