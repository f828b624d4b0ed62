"""ListOps: nested expressions over a finite algebra, answered by greedy continuation.

Some operand tuples are held out: no training expression shows one at any step. A model that learned
the operation answers them all the same. The control gives every tuple a fixed random answer.
"""

# %% Expressions, and single triplets from a fixed training set
import mechint
import tasks

families = [tasks.make(name, preset="fast") for name in ("listops", "listops-triplets")]
for task in families:
    print(f"{task.name}: {task.text(task.sample(1, seed=0).tokens[0])}")

# %% Train each, and its control
trained = {
    task.name: [
        mechint.train(one, preset="fast")[0] for one in (task, task.control("random-answers"))
    ]
    for task in families
}

# %% Accuracy on held-out operands; chance is the most frequent value
outcomes = {}
for task in families:
    learned, random = (run.final["test.greedy.accuracy"] for run in trained[task.name])
    chance = task.answer_chance.accuracy
    outcomes[task.name] = {"task": learned, "control": random, "chance": chance}
outcomes
