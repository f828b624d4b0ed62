"""Products in a finite group: which irreducible representations does a model use?

Any multiplication table is a task, and its representations are its symmetry. A model that found
the structure multiplies pairs it never saw; over a shuffled table it cannot.
"""

# %% The task and its control
import mechint
import tasks
from mechint.groups.representations import representations

task = tasks.make("groups", preset="fast")
control = task.control("shuffled")
group = task.symmetry.group
print(group.order, "elements:", [irrep.name for irrep in representations(group).irreps])

# %% Train both
(learned,) = mechint.train(task, preset="fast")
(shuffled,) = mechint.train(control, preset="fast")
outcome = {
    "task": learned.final["test.accuracy"],
    "control": shuffled.final["test.accuracy"],
    "chance": task.chance["answer"].accuracy,
}
outcome

# %% The representations in its embedding, neurons and logits
account = mechint.analyze(learned.subject(), "irreps", "attention")
account
