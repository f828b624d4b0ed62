"""Addition mod p: train a small transformer, and read how it adds.

Of all p² pairs a share is trained on and the rest is the test. With the true answers the test
accuracy reaches 1; with the same answers shuffled over the pairs there is nothing to generalize.
"""

# %% The task and its control: the same answers, shuffled
import mechint
import tasks

task = tasks.make("modular-arithmetic", preset="fast")
control = task.control("shuffled")
print(task.text(task.inputs()[40]))

# %% Train both
(learned,) = mechint.train(task, preset="fast")
(shuffled,) = mechint.train(control, preset="fast")

# %% Accuracy on pairs that were not trained on
outcome = {
    "task": learned.final["test.accuracy"],
    "control": shuffled.final["test.accuracy"],
    "chance": task.chance["answer"].accuracy,
}
outcome

# %% How it adds
account = mechint.analyze(learned.subject())
account
