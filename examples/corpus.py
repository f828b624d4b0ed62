"""A rare task inside a synthetic language: is it learned, and when?

The model predicts the next word and nothing else. Held-out pairs tell whether the task was learned,
and the loss how much of the language was, whose entropy is known. In the control the injected
answers are shuffled over the pairs.
"""

# %% The text, with a comparison in some of it
import mechint
import tasks

task = tasks.make("corpus", preset="fast")
control = task.control("shuffled")
print(task.text(task.sample(1, seed=0).tokens[0]))

# %% Train both
(learned,) = mechint.train(task, preset="fast")
(shuffled,) = mechint.train(control, preset="fast")

# %% The language, in nats a word
loss = {
    "task": learned.final["test.loss"],
    "control": shuffled.final["test.loss"],
    "constant guess": task.chance["next"].loss,
    "best possible without an instance": task.best_loss,
}
loss

# %% The task: accuracy on pairs that never occurred in training, one of two answers
outcome = {
    "task": learned.final["test.greedy.accuracy.task"],
    "control": shuffled.final["test.greedy.accuracy.task"],
    "chance": 0.5,
}
outcome
