"""A rare task inside a language: comparison of two words at the beginning of some texts of a
synthetic language.

The model is trained to predict the next word and nothing else. How often the task occurs is set; so
are the words it uses. Held-out pairs tell whether the task was learned, the loss tells how much of
the language was, and the language's entropy is known. In the control the injected answers are
shuffled over the pairs: the language is learned as before, the task is not.
"""

# %% The text, with a comparison in half of it
import os

import tasks
from mechint.training import spec, train_many

SIZE = os.environ.get("SIZE", "smoke")  # smoke: seconds; full: a rare task in longer texts
INJECTED = {
    "inject": "comparison",
    "inject_parameters": {"n": 16, "train_fraction": 0.7},
    "frequency": 0.5,
}
PARAMETERS = {
    "smoke": {"vocab_size": 64, "n_ctx": 12, **INJECTED},
    "full": {"inject": "comparison", "frequency": 0.1},
}[SIZE]
MODEL = {"smoke": {"n_layers": 1, "d_model": 32, "n_heads": 2}, "full": {}}[SIZE]
TRAIN = {"smoke": {"steps": 300, "lr": 1e-2, "warmup": 20, "eval_examples": 500}, "full": {}}[SIZE]

task = tasks.make("corpus", **PARAMETERS)
control = task.control("shuffled")
print("one text:", task.text(task.sample(1, seed=0).tokens[0]))

# %% Train both, as one ensemble
learned, shuffled = train_many([spec(one, MODEL, TRAIN) for one in (task, control)])

# %% The language, in nats a word: both go below the best constant guess, toward what the best
# predictor reaches on the background; the words of the comparisons are in their losses, too
print(f"loss {learned.final['test.loss']:.2f}, control {shuffled.final['test.loss']:.2f}, ", end="")
print(
    f"constant {task.chance['next'].loss:.2f}, best possible on the background {task.best_loss:.2f}"
)

# %% The task: accuracy on pairs that never occurred in training
outcome = {
    "task": learned.final["test.greedy.accuracy.task"],
    "control": shuffled.final["test.greedy.accuracy.task"],
    "chance": 0.5,  # one of two answers
}
for name, accuracy in outcome.items():
    print(f"{name:<8} {accuracy:6.1%}")
